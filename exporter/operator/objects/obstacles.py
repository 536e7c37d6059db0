"""Why the objects of a custom resource are not what it wants. Pure."""

from dataclasses import dataclass

from exporter.errors import SourceError
from exporter.operator.objects.parts import one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why the objects of a custom resource are not what it wants: one word for programs, and a sentence for people.

    Where it holds, the DaemonSet and all that it uses stay as they are, and so its nodes are in trouble.
    """

    reason: str
    message: str
    holds: bool = False


def refused(error: SourceError) -> Obstacle:
    """The API server does not let the operator write, or does not answer. Of these, a `Refused` has an HTTP status."""
    reason = "Refused" if isinstance(getattr(error, "status", None), int) else "ApiUnavailable"
    if error.reason in ("permission", "unauthorized"):
        reason = "Forbidden"
    if error.reason == "oversize":
        reason = "TooMany"
    return Obstacle(reason=reason, message=one_line(str(error.trouble), 1024))
