"""Events, which are read and written in two versions: events.k8s.io/v1, as they are stored here, and core v1."""

from datetime import datetime

from tests.support.api_server.answers import Cause, Json, Object

# What the fields of events.k8s.io/v1 are called in core v1.
_IN_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_LONGEST_NOTE = 1024
_TYPES = ("Normal", "Warning")


def as_core(event: Object) -> Object:
    """A stored event in core v1."""
    return {**{_IN_CORE.get(name, name): value for name, value in event.items()}, "apiVersion": "v1"}


def from_core(event: Object) -> Object:
    """An event in core v1 as it is stored."""
    names = {core: name for name, core in _IN_CORE.items()}
    return {**{names.get(name, name): value for name, value in event.items()}, "apiVersion": "events.k8s.io/v1"}


def problems(event: Object, *, is_core: bool) -> list[Cause]:
    """What is wrong with a new event; core v1 is checked for what it is about alone."""
    about = event.get("regarding") or {}
    namespace = event["metadata"].get("namespace")
    if about.get("namespace", namespace) != namespace and not (not about.get("namespace") and namespace == "default"):
        said = "does not match event.namespace"
        return [Cause("Invalid", "involvedObject.namespace", f'Invalid value: "{about["namespace"]}": {said}')]
    if is_core:
        return []
    if not _is_time(event.get("eventTime")):
        return [Cause("Required", "eventTime", "Required value")]
    for field, name in (("reportingController", "reportingController"), ("reportingInstance", "reportingInstance")):
        if not event.get(field):
            return [Cause("Required", name, "Required value")]
    for name in ("action", "reason"):
        if not event.get(name):
            return [Cause("Required", name, "Required value")]
    if event.get("type") not in _TYPES:
        # a real one shows no value here, and the value in the complaint
        return [Cause("Invalid", "type", f'Invalid value: "": has invalid value: {event.get("type", "")}')]
    if len(str(event.get("note", "")).encode()) > _LONGEST_NOTE:
        return [Cause("Invalid", "message", f'Invalid value: "": can have at most {_LONGEST_NOTE} bytes')]
    return []


def _is_time(value: Json) -> bool:
    try:
        return datetime.fromisoformat(str(value)).tzinfo is not None
    except ValueError:
        return False
