"""The answers by which a Kubernetes API server refuses a request, in the words of a real one.

Recorded of kube-apiserver 1.36 (tests/data/kubernetes-1.36/operator); where nothing was recorded, after its source.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]
Json = Any  # whatever JSON can say


class Refused(Exception):
    """A request that is answered with an error.

    `body` is the answer: a Status, or plain text where a real API server has no Status to give.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Object | None = None,
        metadata: Object | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.headers = dict(headers or {})
        self.body: Object | str = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata or {},
            "status": "Failure",
            "message": message,
            **({"reason": reason} if reason else {}),
            **({} if details is None else {"details": details}),
            "code": code,
        }


class RefusedInWords(Refused):
    """The same in plain text, as parts of a real API server answer that stand before its API."""

    def __init__(self, code: int, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(code, "", message, headers=headers)
        self.body = f"{message}\n"


def details_of(group: str, kind: str, name: str = "", **more: Json) -> Object:
    """What an answer is about. `kind` is a kind or, more often, a resource."""
    about = {"name": name, "group": group, "kind": kind}
    return {**{key: value for key, value in about.items() if value}, **more}


def not_served() -> Refused:
    """The API group is not served at all."""
    return RefusedInWords(404, "404 page not found")


def no_resource() -> Refused:
    """The group is served; the version or the resource is not."""
    return Refused(404, "NotFound", "the server could not find the requested resource", details={})


def no_method() -> Refused:
    """The resource is served; the method is not."""
    message = "the server does not allow this method on the requested resource"
    return Refused(405, "MethodNotAllowed", message, details={})


def bad_request(message: str) -> Refused:
    """The request cannot be read."""
    return Refused(400, "BadRequest", message)


def not_found(group: str, resource: str, name: str) -> Refused:
    """The object is not there."""
    message = f'{qualified(resource, group)} "{name}" not found'
    return Refused(404, "NotFound", message, details=details_of(group, resource, name))


def already_exists(group: str, resource: str, name: str) -> Refused:
    """An object of the name is there already."""
    message = f'{qualified(resource, group)} "{name}" already exists'
    return Refused(409, "AlreadyExists", message, details=details_of(group, resource, name))


def has_changed(group: str, resource: str, name: str) -> Refused:
    """The object is not the one that the request was made for."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(group, resource, name, why)


def conflict(group: str, resource: str, name: str, why: str) -> Refused:
    """The request does not fit what is there."""
    message = f'Operation cannot be fulfilled on {qualified(resource, group)} "{name}": {why}'
    return Refused(409, "Conflict", message, details=details_of(group, resource, name))


def forbidden(group: str, resource: str, name: str, why: str) -> Refused:
    """Somebody may not do this."""
    said = f"{_about(group, resource, name)} is forbidden: {why}"
    return Refused(403, "Forbidden", said, details=details_of(group, resource, name))


def is_being_terminated(group: str, resource: str, name: str, namespace: str) -> Refused:
    """The namespace is being deleted, and takes nothing new in."""
    about = f"namespace {namespace} is being terminated"
    cause = {"reason": "NamespaceTerminating", "message": about, "field": "metadata.namespace"}
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    details = {**details_of(group, resource, name), "causes": [cause]}
    return Refused(403, "Forbidden", f"{_about(group, resource, name)} is forbidden: {why}", details=details)


def invalid(group: str, kind: str, name: str, causes: Sequence["Cause"]) -> Refused:
    """The object breaks rules; each cause names a field and a rule."""
    said = [f"{cause.field}: {cause.message}" for cause in causes]
    list_of = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    message = f'{qualified(kind, group)} "{name}" is invalid: {list_of}'
    told = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    return Refused(422, "Invalid", message, details={**details_of(group, kind, name), "causes": told})


def too_many(message: str = "storage is (re)initializing", *, seconds: int = 1) -> Refused:
    """The server has no time now."""
    return Refused(
        429, "TooManyRequests", message, details={"retryAfterSeconds": seconds}, headers={"Retry-After": str(seconds)}
    )


def qualified(resource: str, group: str) -> str:
    """`resource.group`, or the resource alone for the core group."""
    return f"{resource}.{group}" if group else resource


def _about(group: str, resource: str, name: str) -> str:
    return f'{qualified(resource, group)} "{name}"' if name else qualified(resource, group)


class Cause:
    """Why one field is invalid: a reason (FieldValueInvalid, …), a message and the field's path."""

    def __init__(self, reason: str, field: str, message: str) -> None:
        self.reason = f"FieldValue{reason}"
        self.field = field
        self.message = message
