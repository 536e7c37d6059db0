"""The documents by which clients find out what is served."""

from collections.abc import Iterable

from tests.support.api_server import openapi
from tests.support.api_server.answers import Json, Object, no_resource, not_served
from tests.support.api_server.kinds import Kind, Kinds

AGGREGATED = "apidiscovery.k8s.io"
VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2",
    "gitCommit": "98b35193b2ac7a23a673325f5e9b830ecd5ba406",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go1.26.10",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_READ_AND_CHANGE = ["get", "patch", "update"]


def core_versions(address: str) -> Object:
    """GET /api."""
    where = {"clientCIDR": "0.0.0.0/0", "serverAddress": address}
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [where]}


def group_list(groups: dict[str, list[str]]) -> Object:
    """GET /apis."""
    told = [_group(name, versions) for name, versions in groups.items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": told}


def group(name: str, versions: list[str]) -> Object:
    """GET /apis/<group>."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def resource_list(kinds: Iterable[Kind], api_version: str) -> Object:
    """GET /api/v1 or /apis/<group>/<version>."""
    told = [entry for kind in kinds if kind.api_version == api_version for entry in _resources(kind)]
    first = {"kind": "APIResourceList", "groupVersion": api_version, "resources": sorted(told, key=_name)}
    return first if api_version == "v1" else {"apiVersion": "v1", **first}


def aggregated(kinds: Iterable[Kind], groups: dict[str, list[str]], *, is_core: bool) -> Object:
    """GET /api and /apis, as clients ask that want all in one answer."""
    known = tuple(kinds)
    items = [
        {
            **({"metadata": {"name": name}} if name else {"metadata": {}}),
            "versions": [
                {
                    "version": version,
                    "resources": [_aggregated(kind) for kind in known if (kind.group, kind.version) == (name, version)],
                    "freshness": "Current",
                }
                for version in versions
            ],
        }
        for name, versions in groups.items()
        if (name == "") == is_core
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": f"{AGGREGATED}/v2", "metadata": {}, "items": items}


def _group(name: str, versions: list[str]) -> Object:
    told = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": told, "preferredVersion": told[0]}


def _resources(kind: Kind) -> list[Object]:
    about = {"namespaced": kind.namespaced, "kind": kind.name}
    main: Object = {
        "name": kind.plural,
        "singularName": kind.singular or kind.name.lower(),
        **about,
        "verbs": kind.verbs,
        **({"shortNames": list(kind.short_names)} if kind.short_names else {}),
        **({"categories": list(kind.categories)} if kind.categories else {}),
    }
    told = [main]
    if kind.has_status:
        told.append({"name": f"{kind.plural}/status", "singularName": "", **about, "verbs": _READ_AND_CHANGE})
    if kind.scale:
        scale = {"group": "autoscaling", "version": "v1", "namespaced": kind.namespaced, "kind": "Scale"}
        told.append({"name": f"{kind.plural}/scale", "singularName": "", **scale, "verbs": _READ_AND_CHANGE})
    return told


def _aggregated(kind: Kind) -> Object:
    own = {"group": "", "version": "", "kind": kind.name}
    below = []
    if kind.scale:
        answer = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        below.append({"subresource": "scale", "responseKind": answer, "verbs": _READ_AND_CHANGE})
    if kind.has_status:
        below.append({"subresource": "status", "responseKind": own, "verbs": _READ_AND_CHANGE})
    return {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.name} if kind.is_custom() else own,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular or kind.name.lower(),
        "verbs": kind.verbs,
        **({"shortNames": list(kind.short_names)} if kind.short_names else {}),
        **({"categories": list(kind.categories)} if kind.categories else {}),
        **({"subresources": below} if below else {}),
    }


def _name(entry: Object) -> Json:
    return entry["name"]


def document(kinds: Kinds, parts: list[str], accept: str, host: str) -> tuple[Object | str, str]:
    """What a path that names no collection is answered with, and the type of that.

    Raises:
        Refused: 404, where nothing is there.
    """
    root, below, groups = parts[0], parts[1:], kinds.groups()
    if root in ("healthz", "livez", "readyz"):
        return "ok", "text/plain"
    answer: Object | None = None
    if root == "version":
        answer = VERSION
    elif root in ("api", "apis") and not below and AGGREGATED in accept:
        kind = f"application/json;g={AGGREGATED};v=v2;as=APIGroupDiscoveryList"
        return aggregated(kinds, groups, is_core=root == "api"), kind
    elif root == "openapi" and below[:1] == ["v3"]:
        answer = openapi.index(kinds) if len(below) == 1 else openapi.document(kinds, "/".join(below[1:]))
    elif root == "api" and not below:
        answer = core_versions(host)
    elif root == "apis" and not below:
        answer = group_list(groups)
    elif root == "apis" and below[0] in groups and len(below) == 1:
        answer = group(below[0], groups[below[0]])
    elif root in ("api", "apis") and any(kind.api_version == "/".join(below) for kind in kinds):
        answer = resource_list(kinds, "/".join(below))
    if answer is None:
        raise no_resource() if root == "apis" and below[0] in groups else not_served()
    return answer, "application/json"
