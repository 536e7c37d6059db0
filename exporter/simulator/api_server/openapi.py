"""OpenAPI v3 as the API server tells it of kinds that definitions define: what `kubectl explain` asks for.

The index is as tests/data/kubernetes-1.36/discovery/openapi-v3.json has it. What is told of a kind, and how, is from
kubernetes/kubernetes, staging/src/k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder.
"""

from collections.abc import Iterable
from hashlib import sha512
from json import dumps

from exporter.simulator.api_server.answers import Object
from exporter.simulator.api_server.kinds import Kind, Kinds

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# what the API server says itself, whatever the definition says
_TOP = {
    "apiVersion": {
        "type": "string",
        "description": "APIVersion defines the versioned schema of this representation of an object.",
    },
    "kind": {
        "type": "string",
        "description": "Kind is a string value representing the REST resource this object represents.",
    },
    "metadata": {
        "allOf": [{"$ref": f"#/components/schemas/{_META}"}],
        "description": "Standard object's metadata.",
        "default": {},
    },
}


def index(kinds: Kinds) -> Object:
    """GET /openapi/v3: where to read of which group and version."""
    told = {}
    for api_version in sorted({kind.api_version for kind in kinds if kind.is_custom()}):
        text = dumps(document(kinds, api_version)).encode()
        url = f"/openapi/v3/apis/{api_version}?hash={sha512(text).hexdigest().upper()}"
        told[f"apis/{api_version}"] = {"serverRelativeURL": url}
    return {"paths": told}


def document(kinds: Kinds, api_version: str) -> Object | None:
    """GET /openapi/v3/apis/<group>/<version>; None where no definition has a kind of it."""
    own = [kind for kind in kinds if kind.is_custom() and kind.api_version == api_version]
    if not own:
        return None
    schemas = {_name(kind): _schema(kind) for kind in own}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"},
        "paths": dict(_paths(own)),
        "components": {"schemas": {**schemas, _META: {"type": "object", "description": "ObjectMeta is metadata."}}},
    }


def _paths(kinds: Iterable[Kind]) -> Iterable[tuple[str, Object]]:
    for kind in kinds:
        within = "/namespaces/{namespace}" if kind.namespaced else ""
        path = f"/apis/{kind.api_version}{within}/{kind.plural}"
        body = {"application/json": {"schema": {"$ref": f"#/components/schemas/{_name(kind)}"}}}
        for at, verb, action in ((path, "post", "post"), (f"{path}/{{name}}", "get", "get")):
            said = {"200": {"description": "OK", "content": body}}
            yield at, {verb: {"responses": said, "x-kubernetes-action": action, **_gvk(kind, one=True)}}


def _schema(kind: Kind) -> Object:
    schema = kind.schema or {}
    return {**schema, "properties": {**schema.get("properties", {}), **_TOP}, **_gvk(kind)}


def _gvk(kind: Kind, *, one: bool = False) -> Object:
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.name}
    return {"x-kubernetes-group-version-kind": gvk if one else [gvk]}


def _name(kind: Kind) -> str:
    return ".".join((*reversed(kind.group.split(".")), kind.version, kind.name))
