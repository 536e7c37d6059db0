"""What the API server refuses, and whether the same request may go well a moment later. Pure."""

import json
import re
from http import HTTPStatus

from exporter.errors import SourceError, TimedOut, Unavailable
from exporter.operator.objects.parts import text

_FOR_WANT_OF_A_RIGHT = re.compile(
    r"""\b[Uu]ser "|\bRBAC: |cannot set (?:blockOwnerDeletion|an ownerRef)|not yet ready"""
)


class Refused(Unavailable):
    """The API server does not take what it is given: asked again in the same words, it says the same.

    `why` is what it says, on one line; `reason_given` is its own word for it, such as Invalid or AlreadyExists.
    """

    def __init__(self, path: str, status: int, why: str, reason_given: str) -> None:
        super().__init__(
            "http_status",
            f"the Kubernetes API refuses {path} with {status}{': ' if why else ''}{why}",
            remedy="change what it names",
        )
        self.status = status
        self.why = why or f"HTTP status {status}"
        self.reason_given = reason_given


def may_go_well(error: SourceError) -> bool:
    """Whether the same request may go well a moment later.

    404 without a Status is a group that is not served yet; 409 Conflict is somebody else's change at the same time.
    """
    if isinstance(error, Refused):
        return error.status == HTTPStatus.CONFLICT and error.reason_given == "Conflict" and not _is_lasting(error.why)
    if isinstance(error, TimedOut):
        return True
    return isinstance(error, Unavailable) and error.reason not in ("permission", "tls", "unauthorized")


def _is_lasting(why: str) -> bool:
    """Whether a conflict is with another owner of a field, or about a uid: those do not pass."""
    return any(words in why for words in ("conflict with", "recondition", "uid mismatch"))


def is_by_admission(told: str) -> bool:
    """Whether a 403 is not for want of a right: a quota, a policy or a webhook says no, or the namespace is going.

    What is refused for want of a right names who asks, or what of owners they may not set (recorded on 1.36). An API
    server that starts is not ready to admit anything: that passes.
    """
    return bool(told) and not _FOR_WANT_OF_A_RIGHT.search(told)


def reason_in(body: bytes) -> str:
    """The reason of a Status, such as AlreadyExists; "" where the body is none."""
    try:
        return text(json.loads(body), "reason")
    except (ValueError, AttributeError, RecursionError):
        return ""
