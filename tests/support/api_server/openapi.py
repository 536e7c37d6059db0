"""OpenAPI v3 as the API server tells it: what `kubectl explain` asks for, and `kubectl apply` before it sends anything.

Of kinds that definitions define, it tells the schemas; how is from kubernetes/kubernetes,
staging/src/k8s.io/apiextensions-apiserver/pkg/controller/openapi. Of built-in kinds it tells no more than that the
server validates their fields.
"""

from collections.abc import Iterator
from hashlib import sha512
from json import dumps

from tests.support.api_server.answers import Object
from tests.support.api_server.kinds import Kind, Kinds

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# what the API server says itself, whatever the definition says
_TOP = {
    "apiVersion": {"type": "string", "description": "The versioned schema of this representation of an object."},
    "kind": {"type": "string", "description": "The REST resource that this object represents."},
    "metadata": {"allOf": [{"$ref": f"#/components/schemas/{_META}"}], "description": "Standard object's metadata."},
}
_FIELD_VALIDATION = {"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": True}}


def index(kinds: Kinds) -> Object:
    """GET /openapi/v3: where to read of which group and version."""
    told = {}
    for path in sorted({_path(kind) for kind in kinds}):
        text = dumps(document(kinds, path)).encode()
        told[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={sha512(text).hexdigest().upper()}"}
    return {"paths": told}


def document(kinds: Kinds, path: str) -> Object | None:
    """GET /openapi/v3/<path>, which is `api/v1` or `apis/<group>/<version>`; None where nothing is served there."""
    own = [kind for kind in kinds if _path(kind) == path]
    if not own:
        return None
    schemas = {_name(kind): _schema(kind) for kind in own if kind.schema is not None}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.2"},
        "paths": dict(item for kind in own for item in _operations(kind)),
        "components": {"schemas": {**schemas, _META: {"type": "object", "description": "ObjectMeta is metadata."}}},
    }


def _path(kind: Kind) -> str:
    return f"{'apis' if kind.group else 'api'}/{kind.api_version}"


def _operations(kind: Kind) -> Iterator[tuple[str, Object]]:
    within = "/namespaces/{namespace}" if kind.namespaced else ""
    objects = f"/{_path(kind)}{within}/{kind.plural}"
    about = {"x-kubernetes-group-version-kind": _gvk(kind), "responses": {"200": {"description": "OK"}}}
    writing = {**about, "parameters": [_FIELD_VALIDATION]}
    yield objects, {"post": {**writing, "x-kubernetes-action": "post"}}
    yield (
        f"{objects}/{{name}}",
        {
            "get": {**about, "x-kubernetes-action": "get"},
            "patch": {**writing, "x-kubernetes-action": "patch"},
        },
    )


def _schema(kind: Kind) -> Object:
    schema = kind.schema or {}
    properties = {**schema.get("properties", {}), **_TOP}
    return {**schema, "properties": properties, "x-kubernetes-group-version-kind": [_gvk(kind)]}


def _gvk(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.name}


def _name(kind: Kind) -> str:
    return ".".join((*reversed(kind.group.split(".")), kind.version, kind.name))
