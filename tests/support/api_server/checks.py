"""What is checked of objects of all kinds before they are written."""

import re

from tests.support.api_server.answers import (
    Cause,
    Json,
    Object,
    Refused,
    bad_request,
    conflict,
    invalid,
    is_being_terminated,
    not_found,
)
from tests.support.api_server.kinds import NAMESPACE, Kind
from tests.support.api_server.server_side_apply import undeclared
from tests.support.api_server.store import Key, Store

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LONGEST_NAME = 253
# Times with exactly six digits after the second (MicroTime in apimachinery): without them they cannot be read.
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)", re.ASCII)
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
_MICRO_TIMES = {"Event": ("eventTime",), "Lease": ("acquireTime", "renewTime")}
_FREE_NAMES = ("rbac.authorization.k8s.io",)  # groups whose objects may have any name


def check_appliable(kind: Kind, key: Key, body: Json) -> None:
    """Refuse what is no object to apply to the one of a path.

    Raises:
        Refused: 400, or 500 for a field that the schema does not declare.
    """
    if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
        raise bad_request("the body of an apply is no object")
    metadata = body.setdefault("metadata", {})
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if metadata.get("name", key.name) != key.name:
        said = metadata["name"]
        raise bad_request(f"the name of the object ({said}) does not match the name on the URL ({key.name})")
    if kind.namespaced and metadata.get("namespace", key.namespace) != key.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    given = str(body.get("apiVersion") or "")
    if given != kind.api_version:
        said = f"Specified patch version: {given}, expected: {kind.api_version}"
        raise bad_request(f"Incorrect version specified in apply patch. {said}")
    missing = undeclared(body, kind.schema) if kind.schema is not None else None
    if missing:
        # a real one takes this for its own fault: kubernetes/kubernetes#139253
        which = f"{key.namespace}/{key.name}; {kind.api_version}, Kind={kind.name}"
        said = f"failed to create typed patch object ({which}): {missing}: field not declared in schema"
        raise Refused(500, "", said)


def check_namespace(store: Store, kind: Kind, key: Key) -> None:
    """Refuse a new object where its namespace is not there, or goes.

    Raises:
        Refused: 404 or 403.
    """
    if not kind.namespaced:
        return
    there = store.get(Key(NAMESPACE.resource, "", key.namespace))
    if there is None:
        raise not_found("", NAMESPACE.plural, key.namespace)
    if "deletionTimestamp" in there["metadata"]:
        raise is_being_terminated(kind.group, kind.plural, key.name, key.namespace)


def check_times(kind: Kind, item: Object) -> None:
    """Refuse times that cannot be read.

    Raises:
        Refused: 400.
    """
    holder = item.get("spec") if kind.name == "Lease" else item
    for name in _MICRO_TIMES.get(kind.name, ()):
        told = holder.get(name) if isinstance(holder, dict) else None
        if told is not None and not _MICRO_TIME.fullmatch(str(told)):
            which = f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}'
            raise bad_request(f'{which}: parsing time "{told}" as "{_MICRO_LAYOUT}": cannot parse it')


def check_uid_of_new(kind: Kind, key: Key, body: Object) -> None:
    """Refuse to make an object anew that the body takes for another.

    Raises:
        Refused: 409.
    """
    uid = body["metadata"].get("uid")
    if uid:
        said = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(kind.group, kind.plural, key.name, said)


def check_uid(kind: Kind, key: Key, live: Object, item: Object) -> None:
    """Refuse a change whose body names another uid.

    Raises:
        Refused: 422.
    """
    uid = item["metadata"].get("uid") or live["metadata"]["uid"]
    if uid != live["metadata"]["uid"]:
        cause = Cause("Invalid", "metadata.uid", f'Invalid value: "{uid}": field is immutable')
        raise invalid(kind.group, kind.name, key.name, [cause])


def check_precondition(kind: Kind, key: Key, live: Object, item: Object) -> None:
    """Refuse to replace an object that the body takes for another.

    Raises:
        Refused: 409.
    """
    uid = item["metadata"].get("uid") or live["metadata"]["uid"]
    if uid != live["metadata"]["uid"]:
        said = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {live['metadata']['uid']}"
        raise conflict(kind.group, kind.plural, key.name, said)


def check_finalizers(kind: Kind, live: Object, item: Object) -> None:
    """Refuse new finalizers of what is being deleted.

    Raises:
        Refused: 422.
    """
    if not live["metadata"].get("deletionTimestamp"):
        return
    new = set(item["metadata"].get("finalizers") or ()) - set(live["metadata"].get("finalizers") or ())
    if new:
        names = ", ".join(f'"{name}"' for name in sorted(new))
        said = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{names}}}"
        )
        cause = Cause("Forbidden", "metadata.finalizers", f"Forbidden: {said}")
        raise invalid(kind.group, kind.name, str(item["metadata"].get("name")), [cause])


def name_problems(kind: Kind, metadata: Object) -> list[Cause]:
    """What is wrong with an object's name."""
    if kind.group in _FREE_NAMES:
        return []
    name = str(metadata.get("name") or "")
    if not name:
        return [Cause("Required", "metadata.name", "Required value: name or generateName is required")]
    if not _NAME.fullmatch(name):
        return [Cause("Invalid", "metadata.name", f'Invalid value: "{name}": {_NAME_RULE}')]
    if len(name) > _LONGEST_NAME:
        said = f"must be no more than {_LONGEST_NAME} bytes"
        return [Cause("Invalid", "metadata.name", f'Invalid value: "{name}": {said}')]
    return []
