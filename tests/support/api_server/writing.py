"""Creating, changing and deleting objects, as an API server does for each kind alike."""

import random
import re
import uuid
from datetime import UTC, datetime

from tests.support.api_server.answers import (
    Json,
    Object,
    already_exists,
    conflict,
    details_of,
    has_changed,
    invalid,
    not_found,
)
from tests.support.api_server.fields import Shape
from tests.support.api_server.kinds import Kind
from tests.support.api_server.managers import (
    APPLY,
    UPDATE,
    Managed,
    Manager,
    applied,
    read_managed,
    updated,
    write_managed,
)
from tests.support.api_server.store import Key, Store, copied

STATUS = "status"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_FREE_NAMES = "rbac.authorization.k8s.io"  # the group whose objects may have any name
_ITS_OWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation")


def now() -> str:
    """The time as objects tell it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


class Writer:
    """Writes objects to a store. Each method returns the object as it is then, and raises Refused."""

    def __init__(self, store: Store, *, seed: int = 0) -> None:
        self._store = store
        self._random = random.Random(seed)

    def create(self, kind: Kind, namespace: str, body: Object, manager: str) -> Object:
        """A POST of an object."""
        item = _read(kind, namespace, body)
        key = Key(kind.resource, namespace, item["metadata"]["name"])
        if kind.has_status:
            item.pop(STATUS, None)
        who = Manager(name=manager, operation=UPDATE)
        # nobody owns what Go writes for a built-in object without any field
        blank: Object = {"metadata": {}, **({} if kind.schema else {"spec": {"names": {}}})}
        managed = updated({}, blank, item, Shape(schema=kind.schema), who, now())
        if self._store.get(key) is not None:
            raise already_exists(kind.group, kind.plural, key.name)
        return self._made(kind, key, item, managed)

    def replace(self, kind: Kind, key: Key, body: Object, manager: str) -> Object:
        """A PUT of an object."""
        live = self._live(kind, key)
        return self._update(kind, key, live, _read(kind, key.namespace, body), "", manager)

    def merge(self, kind: Kind, key: Key, body: Json, subresource: str, manager: str) -> Object:
        """A merge patch of an object, or of its status."""
        live = self._live(kind, key)
        return self._update(kind, key, live, merge_patched(copied(live), body), subresource, manager)

    def apply(self, kind: Kind, key: Key, body: Object, subresource: str, manager: str, *, force: bool) -> Object:
        """A server-side apply of an object, or of its status."""
        wanted = _read(kind, key.namespace, body)
        uid = wanted["metadata"].pop("uid", None)
        if subresource:
            wanted = {name: wanted[name] for name in ("apiVersion", "kind", subresource) if name in wanted}
        elif kind.has_status:
            wanted.pop(STATUS, None)
        live = self._store.get(key)
        if live is None and subresource:
            raise not_found(kind.group, kind.plural, key.name)
        if live is None and uid:
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise conflict(kind.group, kind.plural, key.name, why)
        if live is not None and uid not in (None, live["metadata"]["uid"]):
            why = f'Invalid value: "{uid}": field is immutable'
            raise invalid(kind.group, kind.name, key.name, "metadata.uid", why)
        who = Manager(name=manager, operation=APPLY, subresource=subresource)
        before = live or {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {}}
        item, managed = applied(
            before, wanted, read_managed(before), Shape(schema=kind.schema), who, now(), force=force
        )  # fmt: skip
        if live is None:
            return self._made(kind, key, item, managed)
        return self._stored(kind, key, live, _within(kind, live, item, subresource), managed)

    def delete(self, kind: Kind, key: Key, options: Object) -> Object:
        """Delete an object. Returns the answer."""
        live = self._live(kind, key)
        metadata = live["metadata"]
        for name, words in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            wanted = (options.get("preconditions") or {}).get(name)
            if wanted and wanted != metadata[name]:
                why = f"the {words} in the precondition ({wanted}) does not match the {words} in record"
                why += f" ({metadata[name]}). The object might have been modified"
                # a real one names the kind here where it names the resource elsewhere
                raise conflict(kind.group, kind.name, key.name, why)
        self._store.drop(key)
        about = details_of(kind.group, kind.plural, key.name, uid=metadata["uid"])
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": about}

    def new_metadata(self) -> Object:
        """What the API server gives a new object."""
        uid = uuid.UUID(int=self._random.getrandbits(128), version=4)
        return {"uid": str(uid), "creationTimestamp": now()}

    def _live(self, kind: Kind, key: Key) -> Object:
        live = self._store.get(key)
        if live is None:
            raise not_found(kind.group, kind.plural, key.name)
        return live

    def _made(self, kind: Kind, key: Key, item: Object, managed: Managed) -> Object:
        if not _NAME.fullmatch(key.name) and kind.group != _FREE_NAMES:
            why = f'Invalid value: "{key.name}": {_NAME_RULE}'
            raise invalid(kind.group, kind.name, key.name, "metadata.name", why)
        metadata = {**item["metadata"], **self.new_metadata()}
        metadata |= {"namespace": key.namespace} if key.namespace else {}
        metadata |= {"generation": 1} if kind.has_generation else {}
        metadata["managedFields"] = write_managed(managed)
        return self._store.put(key, {**item, "metadata": metadata})

    def _update(self, kind: Kind, key: Key, live: Object, item: Object, subresource: str, manager: str) -> Object:
        version = item["metadata"].get("resourceVersion")
        if version and version != live["metadata"]["resourceVersion"]:
            raise has_changed(kind.group, kind.plural, key.name)
        item = _within(kind, live, item, subresource)
        who = Manager(name=manager, operation=UPDATE, subresource=subresource)
        managed = updated(read_managed(live), live, item, Shape(schema=kind.schema), who, now())
        return self._stored(kind, key, live, item, managed)

    def _stored(self, kind: Kind, key: Key, live: Object, item: Object, managed: Managed) -> Object:
        metadata = {**item["metadata"], "managedFields": write_managed(managed)}
        if not managed:
            del metadata["managedFields"]
        if kind.has_generation:
            metadata["generation"] = live["metadata"].get("generation", 1) + (_wish(item) != _wish(live))
        item = {**item, "metadata": metadata}
        return live if item == live else self._store.put(key, item)


def merge_patched(value: Json, patch: Json) -> Json:
    """The value after a merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for name, inner in patch.items():
        if inner is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patched(merged.get(name), inner)
    return merged


def _read(kind: Kind, namespace: str, body: Object) -> Object:
    """A copy of a request's object."""
    item = {"apiVersion": kind.api_version, "kind": kind.name, **copied(body)}
    item["metadata"] = {**(item.get("metadata") or {}), **({"namespace": namespace} if namespace else {})}
    return item


def _wish(item: Object) -> Object:
    """The wanted part of an object: all but the metadata and the status."""
    return {name: value for name, value in item.items() if name not in ("metadata", STATUS)}


def _within(kind: Kind, live: Object, item: Object, subresource: str) -> Object:
    """The new object with what its writer may not change put back."""
    if subresource:
        return {**live, **({STATUS: item[STATUS]} if STATUS in item else {})}
    metadata = {name: value for name, value in item["metadata"].items() if name not in _ITS_OWN and value}
    metadata |= {name: live["metadata"][name] for name in _ITS_OWN if name in live["metadata"]}
    item = {**item, "metadata": metadata}
    if kind.has_status:
        item.pop(STATUS, None)
        item |= {STATUS: live[STATUS]} if STATUS in live else {}
    return item
