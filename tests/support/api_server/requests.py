"""What a request to the API is about: its path, its verb, its body."""

import json
from typing import NamedTuple

from aiohttp import web

from tests.support import quick_yaml
from tests.support.api_server.answers import Json, no_resource, not_served
from tests.support.api_server.kinds import Kind, Kinds
from tests.support.api_server.store import Key
from tests.support.api_server.writing import STATUS

APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Path(NamedTuple):
    """A path below /api or /apis: a collection, an object where there is a name, or its subresource."""

    group: str
    version: str
    plural: str
    namespace: str
    name: str
    subresource: str

    @property
    def resource(self) -> str:
        """As rules of RBAC name it: `daemonsets` or `daemonsets/status`."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural

    def key(self, kind: Kind) -> Key:
        """The key by which its object is stored."""
        return Key(kind.resource, self.namespace, self.name)


def read_path(path: str) -> Path:
    """The parts of a path below /api or /apis."""
    root, *parts = path.strip("/").split("/")
    group = "" if root == "api" else parts.pop(0)
    version, *rest = parts
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] != STATUS:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *_ = (*rest, "", "")
    return Path(group, version, plural, namespace, name, subresource)


def kind_of(kinds: Kinds, path: Path) -> Kind:
    """The kind that a path names.

    Raises:
        Refused: 404, in the form that depends on how much of it is served.
    """
    if path.group not in kinds.groups():
        raise not_served()
    kind = kinds.find(path.group, path.version, path.plural)
    is_there = kind is not None and (not path.subresource or (path.subresource == STATUS and kind.has_status))
    if kind is None or not is_there or bool(path.namespace) > kind.namespaced:
        raise no_resource()
    return kind


def verb_of(request: web.Request, path: Path) -> str:
    """The verb by RBAC's names."""
    if request.method == "GET":
        return "get" if path.name else "watch" if request.query.get("watch") in ("true", "1") else "list"
    return _VERBS[request.method]


def manager_of(request: web.Request) -> str:
    """The manager in whose name the request writes fields."""
    return request.query.get("fieldManager") or request.headers.get("User-Agent", "unknown").partition("/")[0]


async def body_of(request: web.Request) -> Json:
    """The body, from JSON or YAML; None where there is none."""
    text = await request.text()
    if not text.strip():
        return None
    return json.loads(text) if text.startswith("{") else quick_yaml.load(text)
