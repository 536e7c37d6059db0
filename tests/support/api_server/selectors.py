"""Label and field selectors of lists and watches, as far as this project sends them."""

import re
from collections.abc import Callable, Mapping

from tests.support.api_server.answers import Object, Refused
from tests.support.api_server.kinds import Kind, shown

# A kind can be selected by its name, and by these of its fields.
_FIELDS = {
    "pods": ("spec.nodeName",),
    "events.events.k8s.io": ("reason", "regarding.uid", "involvedObject.name"),
}
_LABELS = re.compile(r"[^,(]+(?:\([^)]*\))?")
Selector = Callable[[Object], bool]


def selector_of(kind: Kind, query: Mapping[str, str]) -> Selector:
    """Whether an object is meant.

    Raises:
        Refused: 400, the kind cannot be selected by a field.
    """
    labels = [_of_label(part) for part in _LABELS.findall(query.get("labelSelector", ""))]
    fields = [part.partition("=") for part in query.get("fieldSelector", "").split(",") if part]
    for path, _, _ in fields:
        if path not in ("metadata.name", *_FIELDS.get(kind.resource, ())):
            raise Refused(400, "BadRequest", f"field label not supported: {path}")

    def is_meant(item: Object) -> bool:
        own = item["metadata"].get("labels") or {}
        of_kind = shown(kind, item) if fields else item
        return all(fits(own) for fits in labels) and all(
            str(_at(of_kind, path) or "") == value for path, _, value in fields
        )

    return is_meant


def _of_label(part: str) -> Callable[[Mapping[str, str]], bool]:
    """`name`, `name=value` or `name in (value,…)`."""
    name, is_set, values = part.partition(" in ")
    if is_set:
        return lambda labels: labels.get(name) in values.strip("()").split(",")
    name, sign, value = part.partition("=")
    return lambda labels: labels.get(name) == value if sign else name in labels


def _at(item: object, path: str) -> object:
    for name in path.split("."):
        item = item.get(name) if isinstance(item, dict) else None
    return item
