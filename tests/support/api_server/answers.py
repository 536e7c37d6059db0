"""The answers by which a Kubernetes API server refuses a request, in the words of a real one.

They are held to recordings of kube-apiserver 1.36: tests/api_server/test_recordings.py.
"""

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]
Json = Any  # any value that JSON can express


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
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.headers = dict(headers or {})
        self.body: Object | str = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
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
    about = f'{qualified(resource, group)} "{name}"' if name else qualified(resource, group)
    return Refused(403, "Forbidden", f"{about} is forbidden: {why}", details=details_of(group, resource, name))


def invalid(group: str, kind: str, name: str, field: str, why: str) -> Refused:
    """A field of the object breaks a rule."""
    message = f'{qualified(kind, group)} "{name}" is invalid: {field}: {why}'
    cause = {"reason": "FieldValueInvalid", "message": why, "field": field}
    return Refused(422, "Invalid", message, details={**details_of(group, kind, name), "causes": [cause]})


def qualified(resource: str, group: str) -> str:
    """`resource.group`, or the resource alone for the core group."""
    return f"{resource}.{group}" if group else resource
