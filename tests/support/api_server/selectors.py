"""Label and field selectors of lists and watches."""

from collections.abc import Callable

from tests.support.api_server.answers import Object, bad_request

# What kinds can be selected by, beyond the name and the namespace, by their resources.
_FIELDS = {
    "pods": {"spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "status.phase", "status.podIP"},
    "events.events.k8s.io": {
        "reason", "type", "regarding.kind", "regarding.name", "regarding.namespace", "regarding.uid",
    },
    "nodes": {"spec.unschedulable"},
    "secrets": {"type"},
    "namespaces": {"status.phase"},
}  # fmt: skip
Selector = Callable[[Object], bool]


def selector_of(resource: str, labels: str, fields: str) -> Selector:
    """Whether an object is meant.

    Raises:
        Refused: 400, where the kind cannot be selected by a field.
    """
    by_labels = [_of_labels(part) for part in _parts(labels)]
    by_fields = [_of_field(resource, part) for part in _parts(fields)]
    return lambda item: all(fits(item) for fits in (*by_labels, *by_fields))


def _parts(text: str) -> list[str]:
    """The requirements, which commas part that stand in no bracket."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(f"{text},"):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    return [part for part in parts if part]


def _of_labels(part: str) -> Selector:
    def label(item: Object, name: str) -> str | None:
        value: str | None = (item["metadata"].get("labels") or {}).get(name)
        return value

    if part.endswith(")"):
        name, _, rest = part.partition(" ")
        wants = not rest.strip().startswith("notin")
        values = {value.strip() for value in part[part.index("(") + 1 : -1].split(",")}
        return lambda item: (label(item, name) in values) == wants
    for sign, wants in (("!=", False), ("==", True), ("=", True)):
        name, found, value = part.partition(sign)
        if found:
            return lambda item: (label(item, name.strip()) == value.strip()) == wants
    name = part.removeprefix("!").strip()
    return lambda item: (label(item, name) is None) == part.startswith("!")


def _of_field(resource: str, part: str) -> Selector:
    wants = "!=" not in part
    path, _, value = part.replace("==", "=").replace("!=", "=").partition("=")
    if path not in ("metadata.name", "metadata.namespace") and path not in _FIELDS.get(resource, ()):
        raise bad_request(f"field label not supported: {path}")

    def fits(item: Object) -> bool:
        found: object = item
        for name in path.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        return (str(found or "") == value) == wants

    return fits
