"""The documents by which clients find out what is served."""

from tests.support.api_server.answers import Object, no_resource, not_served
from tests.support.api_server.kinds import VERBS, Kind, Kinds

_OF_SUBRESOURCES = ["get", "patch", "update"]


def document(kinds: Kinds, parts: list[str]) -> Object:
    """The answer to a path that names no collection.

    Raises:
        Refused: 404, where nothing is there.
    """
    root, below, groups = parts[0], parts[1:], kinds.groups()
    if root == "api" and not below:
        return {"kind": "APIVersions", "versions": ["v1"]}
    if root == "apis" and not below:
        listed = [_group(name, versions) for name, versions in groups.items() if name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    if root == "apis" and len(below) == 1 and below[0] in groups:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(below[0], groups[below[0]])}
    version = "/".join(below)
    resources = [entry for kind in kinds if kind.api_version == version for entry in _resources(kind)]
    if root in ("api", "apis") and resources:
        first = {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
        return first if version == "v1" else {"apiVersion": "v1", **first}
    raise no_resource() if root == "apis" and below[0] in groups else not_served()


def _group(name: str, versions: list[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(kind: Kind) -> list[Object]:
    about = {"namespaced": kind.namespaced, "kind": kind.name}
    resources: list[Object] = [{"name": kind.plural, "singularName": kind.name.lower(), **about, "verbs": VERBS}]
    if kind.has_status:
        resources.append({"name": f"{kind.plural}/status", "singularName": "", **about, "verbs": _OF_SUBRESOURCES})
    if kind.has_scale:
        scale = {"group": "autoscaling", "version": "v1", "namespaced": True, "kind": "Scale"}
        resources.append({"name": f"{kind.plural}/scale", "singularName": "", **scale, "verbs": _OF_SUBRESOURCES})
    return resources
