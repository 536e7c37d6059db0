"""Creating and changing objects, as an API server does for each kind alike."""

import copy
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.support.api_server import built_in_rules, defaults, definitions, events, schemas, validation
from tests.support.api_server.answers import (
    Cause,
    Json,
    Object,
    Refused,
    already_exists,
    bad_request,
    has_changed,
    invalid,
    not_found,
)
from tests.support.api_server.checks import (
    check_appliable,
    check_finalizers,
    check_namespace,
    check_precondition,
    check_times,
    check_uid,
    check_uid_of_new,
    name_problems,
)
from tests.support.api_server.kinds import CORE_EVENT, DEFINITION, EVENT, Kind, Kinds
from tests.support.api_server.managers import UPDATE, Managed, Manager, after_update, read_managed, write_managed
from tests.support.api_server.server_side_apply import applier, apply
from tests.support.api_server.store import Key, Store
from tests.support.api_server.subresources import (
    ITS_OWN,
    SCALE,
    STATUS,
    for_subresource,
    is_other,
    merged_subresource,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """How a request wants to write."""

    manager: str
    dry_run: bool = False
    force: bool = False
    validation: str = "Warn"


@dataclass(slots=True, kw_only=True)
class Written:
    """What has come of a write: the object, whether it is new, whether anything changed, and warnings."""

    item: Object
    created: bool = False
    changed: bool = True
    warnings: list[str] = field(default_factory=list)


def now() -> str:
    """The time as objects tell it."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


class Writer:
    """Writes objects to a store. `rules` says what is wrong by a rule in CEL; without it these are not checked."""

    def __init__(self, store: Store, kinds: Kinds, *, rules: validation.Rules | None = None, seed: int = 0) -> None:
        self._store = store
        self._kinds = kinds
        self._rules = rules
        self._random = random.Random(seed)

    def create(self, kind: Kind, namespace: str, body: Object, intent: Intent) -> Written:
        """A POST of an object.

        Raises:
            Refused: the object is invalid, or there is one of its name.
        """
        item = self._readable(kind, namespace, body)
        metadata = item["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + "".join(
                self._random.choices("bcdfghjklmnpqrstvwxz245678", k=5)
            )
        item, warnings = self._decoded(kind, item, intent)
        key = Key(kind.resource, namespace, str(metadata.get("name") or ""))
        check_namespace(self._store, kind, key)
        if metadata.get("resourceVersion"):
            raise Refused(500, "", "resourceVersion should not be set on objects to be created")
        item = self._born(kind, key, item)
        self._check(kind, item, None)
        if self._store.get(key) is not None:
            raise already_exists(kind.group, kind.plural, key.name)
        empty = {**copy.deepcopy(kind.skeleton), "apiVersion": kind.api_version, "kind": kind.name, "metadata": {}}
        manager = Manager(name=intent.manager, operation=UPDATE, version=kind.api_version)
        told = {**item, STATUS: empty.get(STATUS)} if kind.has_status and STATUS in item else item
        managed = after_update({}, empty, told, kind.shape, manager=manager, time=now())
        item["metadata"]["managedFields"] = write_managed(managed)
        return Written(item=self._stored(key, item, intent), created=True, warnings=warnings)

    def replace(self, kind: Kind, key: Key, body: Object, subresource: str, intent: Intent) -> Written:
        """A PUT of an object.

        Raises:
            Refused: it is not there, has changed meanwhile, or would be invalid.
        """
        item = self._readable(kind, key.namespace, body)
        live = self._live(kind, key)
        if item["metadata"].get("name") != key.name:
            said = item["metadata"].get("name")
            raise bad_request(f"the name of the object ({said}) does not match the name on the URL ({key.name})")
        if (kind.needs_version or kind.is_custom()) and not item["metadata"].get("resourceVersion"):
            said = "Invalid value: 0: must be specified for an update"
            raise invalid(kind.group, kind.name, key.name, [Cause("Invalid", "metadata.resourceVersion", said)])
        check_precondition(kind, key, live, item)
        item, warnings = self._decoded(kind, item, intent)
        return self._updated(kind, key, live, item, subresource, intent, warnings)

    def patch(
        self, kind: Kind, key: Key, change: Callable[[Object], Json], subresource: str, intent: Intent
    ) -> Written:
        """A PATCH by anything but an apply; `change` makes the new object of a copy of the live one.

        Raises:
            Refused: the object is not there, has changed meanwhile, or would be invalid.
        """
        live = self._live(kind, key)
        shown = events.as_core(live) if kind == CORE_EVENT else live
        item = self._readable(kind, key.namespace, change(copy.deepcopy(shown)))
        item, warnings = self._decoded(kind, item, intent)
        return self._updated(kind, key, live, item, subresource, intent, warnings)

    def apply(self, kind: Kind, key: Key, body: Object, subresource: str, intent: Intent) -> Written:
        """A server-side apply.

        Raises:
            Refused: there are conflicts, the object cannot be read, or would be invalid.
        """
        check_appliable(kind, key, body)
        body = for_subresource(kind, body, subresource)
        live = self._store.get(key)
        is_new = live is None
        if live is None:
            if subresource:
                raise not_found(kind.group, kind.plural, key.name)
            check_uid_of_new(kind, key, body)
            check_namespace(self._store, kind, key)
            live = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {}}
        wanted = body["metadata"].get("resourceVersion")
        if wanted and wanted != live["metadata"].get("resourceVersion"):
            raise has_changed(kind.group, kind.plural, key.name)
        applied = copy.deepcopy(body)
        applied["metadata"].pop("resourceVersion", None)
        manager = applier(intent.manager, subresource)
        item, managed = apply(
            live, applied, read_managed(live), kind.shape, manager=manager, time=now(), force=intent.force
        )
        item = copy.deepcopy(item)
        if is_new:
            item.setdefault("metadata", {}).update({"name": key.name})
            item, warnings = self._decoded(kind, item, intent)
            item = self._born(kind, key, item)
            self._check(kind, item, None)
            item["metadata"]["managedFields"] = write_managed(managed)
            return Written(item=self._stored(key, item, intent), created=True, warnings=warnings)
        item, warnings = self._decoded(kind, item, intent)
        return self._updated(kind, key, live, item, subresource, intent, warnings, managed=managed)

    def rescale(self, kind: Kind, key: Key, live: Object, item: Object, intent: Intent) -> Written:
        """A write of a scale subresource, which has changed the number of replicas in `item`."""
        return self._updated(kind, key, live, item, SCALE, intent, [])

    def _live(self, kind: Kind, key: Key) -> Object:
        live = self._store.get(key)
        if live is None:
            raise not_found(kind.group, kind.plural, key.name)
        return live

    def _updated(
        self,
        kind: Kind,
        key: Key,
        live: Object,
        item: Object,
        subresource: str,
        intent: Intent,
        warnings: list[str],
        *,
        managed: Managed | None = None,
    ) -> Written:
        """The live object exchanged for the new one, as far as the subresource may change it."""
        told = item["metadata"].get("resourceVersion")
        if told and told != live["metadata"]["resourceVersion"]:
            raise has_changed(kind.group, kind.plural, key.name)
        if not subresource:
            check_uid(kind, key, live, item)
        given = item["metadata"].get("managedFields")
        item = merged_subresource(kind, live, item, subresource)
        check_finalizers(kind, live, item)
        self._check(kind, item, live)
        if managed is None:
            former = read_managed(live if not given else {"metadata": {"managedFields": given}})
            manager = Manager(name=intent.manager, operation=UPDATE, subresource=subresource, version=kind.api_version)
            time = None if subresource == SCALE else now()
            managed = after_update(former, live, item, kind.shape, manager=manager, time=time)
        if kind.has_generation or kind.is_custom():
            item["metadata"]["generation"] = live["metadata"].get("generation", 1) + is_other(kind, live, item)
        item["metadata"]["managedFields"] = write_managed(managed)
        if not item["metadata"]["managedFields"]:
            del item["metadata"]["managedFields"]
        if item == live:
            return Written(item=live, changed=False, warnings=warnings)
        return Written(item=self._stored(key, item, intent), warnings=warnings)

    def _stored(self, key: Key, item: Object, intent: Intent) -> Object:
        if intent.dry_run:
            return item
        metadata = item["metadata"]
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            # what was stored goes as it was; who has removed the last finalizer is answered with what it made of it
            self._store.drop(key)
            return item
        return self._store.put(key, item)

    def _readable(self, kind: Kind, namespace: str, body: Json) -> Object:
        """A copy of the body, which is an object of the kind, in the namespace."""
        if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
            raise bad_request(f"the object provided is unrecognized (must be of type {kind.name})")
        item = copy.deepcopy(body)
        item["metadata"] = item.get("metadata") or {}
        given = item.setdefault("apiVersion", kind.api_version), item.setdefault("kind", kind.name)
        if given != (kind.api_version, kind.name):
            wanted = f"{kind.api_version}, Kind={kind.name}"
            said = f"{given[0]}, Kind={given[1]}"
            raise bad_request(f"the object provided is of another kind ({said}) than the request's ({wanted})")
        if kind.namespaced and item["metadata"].setdefault("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        return events.from_core(item) if kind == CORE_EVENT else item

    def _decoded(self, kind: Kind, item: Object, intent: Intent) -> tuple[Object, list[str]]:
        """The object without unknown fields and with defaults, and what is to be warned of."""
        if kind.schema is None:
            check_times(kind, item)
            return (definitions.with_defaults(item) if kind == DEFINITION else defaults.with_defaults(kind, item)), []
        item, gone = schemas.pruned(item, kind.schema)
        told = [f'unknown field "{path}"' for path in gone]
        if told and intent.validation == "Strict":
            which = f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}'
            raise bad_request(f"{which}: strict decoding error: {', '.join(told)}")
        return schemas.with_defaults(item, kind.schema), told if intent.validation == "Warn" else []

    def _born(self, kind: Kind, key: Key, item: Object) -> Object:
        """A new object, with what the API server gives it."""
        item = {**copy.deepcopy(kind.skeleton), **item}
        if kind.is_custom() and kind.has_status:
            item.pop(STATUS, None)
        elif kind.has_status:
            new = definitions.first_status(item) if kind == DEFINITION else kind.skeleton[STATUS]
            item[STATUS] = copy.deepcopy(new)
        metadata = {name: value for name, value in item["metadata"].items() if name not in ITS_OWN}
        metadata.pop("managedFields", None)
        metadata |= {"uid": str(uuid.UUID(int=self._random.getrandbits(128), version=4)), "creationTimestamp": now()}
        if key.namespace:
            metadata["namespace"] = key.namespace
        if kind.has_generation or kind.is_custom():
            metadata["generation"] = 1
        return {**item, "metadata": metadata}

    def _check(self, kind: Kind, item: Object, before: Object | None) -> None:
        """Refuse what is invalid."""
        name = str(item["metadata"].get("name") or "")
        causes = [*name_problems(kind, item["metadata"]), *built_in_rules.problems(kind, item, before)]
        if kind in (EVENT, CORE_EVENT) and before is None:
            found = events.problems(item, is_core=kind == CORE_EVENT)
            if found:
                raise invalid("", kind.name, name, found)
        elif kind == DEFINITION:
            causes += definitions.problems(item)
        elif kind.schema is not None:
            causes += validation.problems(item, before, kind.schema, self._rules)
        if causes:
            raise invalid(kind.group, kind.name, name, causes)
