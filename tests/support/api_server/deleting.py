"""Deleting objects: preconditions, finalizers and what is to become of dependents."""

import copy

from tests.support.api_server import definitions
from tests.support.api_server.answers import Object, conflict, details_of, not_found
from tests.support.api_server.kinds import DEFINITION, NAMESPACE, Kind
from tests.support.api_server.store import Key, Store
from tests.support.api_server.writing import now

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
_FINALIZERS = {"Foreground": FOREGROUND, "Orphan": ORPHAN}


def delete(store: Store, kind: Kind, key: Key, options: Object, *, dry_run: bool = False) -> Object:
    """Delete an object, or mark it for deletion where finalizers hold it. Returns the answer.

    Raises:
        Refused: it is not there, or is another than the preconditions say.
    """
    live = store.get(key)
    if live is None:
        raise not_found(kind.group, kind.plural, key.name)
    _check_preconditions(kind, key, live, options.get("preconditions") or {})
    policy = options.get("propagationPolicy") or ("Orphan" if options.get("orphanDependents") else "Background")
    item = copy.deepcopy(live)
    metadata = item["metadata"]
    held = [name for name in metadata.get("finalizers") or () if name not in (FOREGROUND, ORPHAN)]
    if policy in _FINALIZERS:
        held.append(_FINALIZERS[policy])
    if kind == DEFINITION and definitions.CLEANUP not in held:
        held.append(definitions.CLEANUP)
    if not held and kind != NAMESPACE:
        if not dry_run:
            store.drop(key)
        about = details_of(kind.group, kind.plural, key.name, uid=metadata["uid"])
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": about}
    if held:
        metadata["finalizers"] = held
    if "deletionTimestamp" not in metadata:
        _mark(kind, item)
    if item == live or dry_run:
        return item
    return store.put(key, item)


def _mark(kind: Kind, item: Object) -> None:
    """Say that the object is being deleted, as its kind does."""
    metadata = item["metadata"]
    metadata["deletionTimestamp"] = now()
    if kind == NAMESPACE:
        item["status"] = {**item.get("status", {}), "phase": "Terminating"}
    elif kind == DEFINITION:
        said = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        told = definitions.condition("Terminating", "InstanceDeletionPending", said, now())
        item["status"]["conditions"] = [*(item["status"].get("conditions") or ()), told]
    else:
        metadata["deletionGracePeriodSeconds"] = 0
        if "generation" in metadata:
            metadata["generation"] += 1


def _check_preconditions(kind: Kind, key: Key, live: Object, preconditions: Object) -> None:
    for name, words in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted, there = preconditions.get(name), live["metadata"][name]
        if wanted and wanted != there:
            said = f"the {words} in the precondition ({wanted}) does not match the {words} in record ({there})"
            # a real one names the kind here where it names the resource elsewhere
            raise conflict(kind.group, kind.name, key.name, f"{said}. The object might have been modified")
