"""CustomResourceDefinitions: what a definition serves, and since when.

A definition that is Established is not served at once: for some 90 ms a list is answered as if it were not there, then
for 30 ms with 429 (tests/data/kubernetes-1.36/operator/crd-becomes-served.jsonl).
"""

import copy
import time
from collections.abc import Callable

from tests.support.api_server import structure
from tests.support.api_server.answers import Cause, Object, Refused, not_served, too_many
from tests.support.api_server.kinds import DEFINITION, Kind, Kinds, Scale
from tests.support.api_server.managers import UPDATE, Manager, after_update, read_managed, write_managed
from tests.support.api_server.store import ADDED, DELETED, Change, Store

NOT_FOUND_SECONDS = 0.09
INITIALIZING_SECONDS = 0.03
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_STATUS_WRITER = Manager(name="kube-apiserver", operation=UPDATE, subresource="status", version=DEFINITION.api_version)


class Definitions:
    """Serves what the store's definitions define, as they come, change and go."""

    def __init__(self, store: Store, kinds: Kinds, *, now: Callable[[], str]) -> None:
        self.not_found_seconds = NOT_FOUND_SECONDS
        self.initializing_seconds = INITIALIZING_SECONDS
        self._store = store
        self._kinds = kinds
        self._now = now
        self._since: dict[str, float] = {}
        self._gone: dict[str, float] = {}
        store.listeners.append(self._heard)

    def check(self, kind: Kind, verb: str) -> None:
        """Refuse a request that comes while the definition is not served yet, or goes.

        Raises:
            Refused: 404, 429 or 405.
        """
        if not kind.is_custom():
            return
        age = time.monotonic() - self._since[kind.resource]
        if age < self.not_found_seconds:
            raise not_served()
        if age < self.not_found_seconds + self.initializing_seconds:
            raise too_many()
        if verb == "create" and self.is_going(kind.resource):
            said = "create not allowed while custom resource definition is terminating"
            raise Refused(405, "MethodNotAllowed", said, details={"group": kind.group, "kind": kind.plural})

    def gone_at(self, resource: str) -> float | None:
        """When a definition went, by the monotonic clock; None for one that is there or never was."""
        return self._gone.get(resource)

    def is_going(self, resource: str) -> bool:
        """Whether the definition is being deleted."""
        return any(
            item["metadata"]["name"] == resource and "deletionTimestamp" in item["metadata"]
            for _, item in self._store.all(DEFINITION.resource)
        )

    def _heard(self, change: Change) -> None:
        if change.key.resource != DEFINITION.resource:
            return
        name = change.key.name
        if change.what == DELETED:
            self._kinds.remove(name)
            self._gone[name] = time.monotonic()
            return
        if change.before is not None and change.before["spec"] == change.item["spec"]:
            return
        self._kinds.remove(name)
        for kind in kinds_of(change.item):
            self._kinds.add(kind)
        if change.what == ADDED:
            self._since[name] = time.monotonic()
            self._accept(change)

    def _accept(self, change: Change) -> None:
        """Say in the definition's status that its names are accepted and that it is established."""
        item = copy.deepcopy(change.item)
        since = self._now()
        said = (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
        item["status"]["acceptedNames"] = item["spec"]["names"]
        item["status"]["conditions"] = [condition(*told, since) for told in said]
        managed = after_update(
            read_managed(item), change.item, item, DEFINITION.shape, manager=_STATUS_WRITER, time=since
        )
        item["metadata"]["managedFields"] = write_managed(managed)
        self._store.put(change.key, item)


def condition(kind: str, reason: str, message: str, since: str) -> Object:
    """A condition of a definition that is true."""
    return {"type": kind, "status": "True", "lastTransitionTime": since, "reason": reason, "message": message}


def kinds_of(definition: Object) -> list[Kind]:
    """The kinds that a definition serves, one for each version."""
    spec = definition["spec"]
    names = spec["names"]
    return [
        Kind(
            group=spec["group"],
            version=version["name"],
            name=names["kind"],
            plural=names["plural"],
            namespaced=spec.get("scope") == "Namespaced",
            singular=names.get("singular", ""),
            list_name=names.get("listKind", ""),
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            has_status="status" in (version.get("subresources") or {}),
            scale=_scale_of((version.get("subresources") or {}).get("scale")),
            schema=version["schema"]["openAPIV3Schema"],
            columns=tuple(version.get("additionalPrinterColumns") or ()),
        )
        for version in spec["versions"]
        if version.get("served")
    ]


def _scale_of(subresource: Object | None) -> Scale | None:
    if subresource is None:
        return None
    return Scale(
        wanted=subresource["specReplicasPath"],
        there=subresource["statusReplicasPath"],
        selector=subresource.get("labelSelectorPath", ""),
    )


def with_defaults(item: Object) -> Object:
    """A definition with what is left out filled in."""
    spec = item.get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("names"), dict):
        return item
    names = {**spec["names"]}
    names.setdefault("singular", str(names.get("kind", "")).lower())
    names.setdefault("listKind", f"{names.get('kind', '')}List")
    return {**item, "spec": {**spec, "names": names, "conversion": spec.get("conversion") or {"strategy": "None"}}}


def first_status(item: Object) -> Object:
    """The status of a definition that was just made."""
    stored = [version.get("name") for version in item["spec"].get("versions") or () if version.get("storage")]
    return {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}


def problems(item: Object) -> list[Cause]:
    """What is wrong with a CustomResourceDefinition: its name, and whether there is a schema and one storage."""
    spec = item.get("spec") or {}
    name = f"{spec.get('names', {}).get('plural', '')}.{spec.get('group', '')}"
    if item["metadata"].get("name") != name:
        said = f'Invalid value: "{item["metadata"].get("name")}": must be spec.names.plural+"."+spec.group'
        return [Cause("Invalid", "metadata.name", said)]
    causes: list[Cause] = []
    for index, version in enumerate(spec.get("versions") or ()):
        where = f"spec.versions[{index}].schema.openAPIV3Schema"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema:
            causes += structure.problems(schema, where)
        else:
            causes.append(Cause("Required", where, "Required value: schemas are required"))
    if sum(bool(version.get("storage")) for version in spec.get("versions") or ()) != 1:
        said = "must have exactly one version marked as storage version"
        causes.append(Cause("Invalid", "spec.versions", f'Invalid value: "": {said}'))
    return causes
