"""What a request to the API is about: its path, its verb, its body."""

import json
from dataclasses import dataclass

import yaml
from aiohttp import web

from tests.support.api_server.answers import Cause, Json, bad_request, invalid, no_method, no_resource, not_served
from tests.support.api_server.kinds import Kind, Kinds
from tests.support.api_server.store import Key
from tests.support.api_server.writing import Intent

APPLY, MERGE, JSON = "application/apply-patch+yaml", "application/merge-patch+json", "application/json-patch+json"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_COLLECTIONS = frozenset({"create", "deletecollection", "list", "watch"})


class _Loader(yaml.SafeLoader):
    """YAML in which a time is text, as in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A path below /api or /apis: a collection, an object where there is a name, or its subresource."""

    group: str
    version: str
    plural: str
    namespace: str
    name: str
    subresource: str
    is_longer: bool = False  # than any that is served


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a path names: a kind's collection, an object where there is a name, or its subresource."""

    kind: Kind
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> Key:
        """By which the object is stored."""
        return Key(self.kind.resource, self.namespace, self.name)


def read_path(path: str) -> Path:
    """The parts of a path below /api or /apis."""
    root, *parts = path.strip("/").split("/")
    group = "" if root == "api" else parts.pop(0)
    version, *rest = parts
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *more = (*rest, "", "")
    return Path(
        group=group, version=version, plural=plural, namespace=namespace, name=name, subresource=subresource,
        is_longer=any(more),
    )  # fmt: skip


def target_of(kinds: Kinds, path: Path) -> Target:
    """What a path names.

    Raises:
        Refused: 404, in the form that depends on how much of it is served.
    """
    if path.group not in kinds.groups():
        raise not_served()
    kind = kinds.find(path.group, path.version, path.plural)
    if kind is None or path.is_longer:
        raise no_resource()
    is_there = {"": True, "status": kind.has_status, "scale": kind.scale is not None}
    if not is_there.get(path.subresource, False) or bool(path.namespace) > kind.namespaced:
        raise no_resource()
    return Target(kind=kind, namespace=path.namespace, name=path.name, subresource=path.subresource)


def verb_of(request: web.Request, path: Path) -> str:
    """The verb by RBAC's names, or a method that has none."""
    if request.method == "GET":
        if path.name:
            return "get"
        return "watch" if request.query.get("watch") in ("true", "1") else "list"
    verb = _VERBS.get(request.method, request.method)
    return "deletecollection" if verb == "delete" and not path.name else verb


def check_verb(verb: str, target: Target) -> None:
    """Refuse a verb that the collection or object does not have.

    Raises:
        Refused: 405.
    """
    if verb not in target.kind.verbs or (verb in _OF_COLLECTIONS) == bool(target.name):
        raise no_method()


def intent_of(request: web.Request) -> Intent:
    """How the request wants to write.

    Raises:
        Refused: 422, where an apply names no manager.
    """
    agent = request.headers.get("User-Agent", "unknown").partition("/")[0]
    manager = request.query.get("fieldManager", "")
    if not manager and request.content_type == APPLY:
        cause = Cause("Required", "fieldManager", "Required value: is required for apply patch")
        raise invalid("meta.k8s.io", "PatchOptions", "", [cause])
    return Intent(
        manager=manager or agent,
        dry_run=request.query.get("dryRun") == "All",
        force=request.query.get("force") in ("true", "1"),
        validation=request.query.get("fieldValidation") or "Warn",
    )


async def body_of(request: web.Request, kind: Kind) -> Json:
    """The body, from JSON or YAML; None where there is none.

    Raises:
        Refused: 400, where it is neither.
    """
    text = await request.text()
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        if "yaml" not in request.content_type:
            said = f"couldn't get version/kind; json parse error: {_as_go_says(text, error)} ({text[:64]})"
            raise bad_request(f"the object provided is unrecognized (must be of type {kind.name}): {said}") from error
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader without times)
    except yaml.YAMLError as error:
        raise bad_request(f"error decoding YAML: {error}") from error


def _as_go_says(text: str, error: ValueError) -> str:
    """A complaint of Go's parser for the commonest faults, else that of Python's."""
    if isinstance(error, json.JSONDecodeError):
        if error.pos >= len(text):
            return "unexpected end of JSON input"
        where = "object key string" if "property name" in error.msg else "value"
        return f"invalid character '{text[error.pos]}' looking for beginning of {where}"
    return str(error)
