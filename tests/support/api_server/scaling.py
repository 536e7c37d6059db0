"""The scale subresource: how many replicas an object wants and has, whatever its kind."""

import copy

from tests.support.api_server.answers import Cause, Json, Object, has_changed, invalid
from tests.support.api_server.kinds import Kind, Scale
from tests.support.api_server.store import Key


def scale_of(scale: Scale, item: Object) -> Object:
    """The Scale of an object."""
    metadata = {name: item["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion",
                                                          "creationTimestamp") if name in item["metadata"]}  # fmt: skip
    wanted, there = _at(item, scale.wanted), _at(item, scale.there)
    if scale.selector:
        selector = str(_at(item, scale.selector) or "")
    else:
        labels = _at(item, ".spec.selector.matchLabels") or {}
        selector = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": wanted} if wanted else {},
        "status": {"replicas": there or 0, **({"selector": selector} if selector else {})},
    }


def rescaled(kind: Kind, scale: Scale, key: Key, live: Object, body: Json) -> Object:
    """The object with the replicas that a Scale wants.

    Raises:
        Refused: they are fewer than none, or the Scale is not that of the object as it is now.
    """
    spec = body.get("spec") if isinstance(body, dict) else None
    replicas = (spec if isinstance(spec, dict) else {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        said = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise invalid("autoscaling", "Scale", key.name, [Cause("Invalid", "spec.replicas", said)])
    version = (body.get("metadata") or {}).get("resourceVersion")
    if version and version != live["metadata"]["resourceVersion"]:
        raise has_changed(kind.group, kind.plural, key.name)
    item = copy.deepcopy(live)
    parent = item
    *above, last = scale.wanted.strip(".").split(".")
    for name in above:
        parent = parent.setdefault(name, {})
    parent[last] = replicas
    return item


def _at(item: Json, path: str) -> Json:
    for name in path.strip(".").split("."):
        item = item.get(name) if isinstance(item, dict) else None
    return item
