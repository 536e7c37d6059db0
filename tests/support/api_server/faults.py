"""Faults of the simulated API server: answers that a client has to survive, given when a test says so."""

import random
from collections.abc import Container
from dataclasses import dataclass

from tests.support.api_server.answers import Refused, RefusedInWords, forbidden, has_changed, not_served

READS = frozenset({"get", "list", "watch"})
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_LATER = ("slow", "lost")


@dataclass(slots=True, kw_only=True)
class Fault:
    """An answer in place of the right one, or a right one that comes late or is lost.

    `answer` is "not served" (404 as text), "busy" (429 as text), "initializing" (429 as a Status), "conflict" (409),
    "terminating" (403 of a namespace that goes), "unavailable" (503) or "error" (500). "slow" lets the right answer
    come `seconds` late; "lost" does what is asked for and breaks the connection. `times` counts down with each request
    that it answers; None goes on for ever. `share` of the requests are answered so, by chance. `verbs` and `resource`
    ("" for all) say which requests.
    """

    answer: str
    times: int | None = None
    share: float = 1.0
    verbs: Container[str] = READS | WRITES
    resource: str = ""
    seconds: float = 1  # Retry-After, where there is one; how late a slow answer is


class Faults:
    """The faults of now; `given` counts the answers."""

    def __init__(self, seed: int = 0) -> None:
        self.now: list[Fault] = []
        self.given = 0
        self._random = random.Random(seed)

    def add(self, answer: str, **more: object) -> Fault:
        """Begin a fault, whose other fields are `more`. Returns it; `end` ends it."""
        fault = Fault(answer=answer, **more)  # type: ignore[arg-type]
        self.now.append(fault)
        return fault

    def end(self) -> None:
        """End all faults."""
        self.now.clear()

    def check(self, verb: str, group: str, resource: str, name: str) -> None:
        """Answer with a fault, where there is one for the request.

        Raises:
            Refused: there is.
        """
        for fault in self.now:
            if fault.answer not in _LATER and self._is_hit(fault, verb, resource):
                raise _answer(fault, group, resource, name)

    def delay(self, verb: str, resource: str) -> float:
        """How many seconds late the answer to a request is to be."""
        return sum(
            fault.seconds for fault in self.now if fault.answer == "slow" and self._is_hit(fault, verb, resource)
        )

    def loses(self, verb: str, resource: str) -> bool:
        """Whether the answer to a request is to be lost."""
        return any(fault.answer == "lost" and self._is_hit(fault, verb, resource) for fault in self.now)

    def _is_hit(self, fault: Fault, verb: str, resource: str) -> bool:
        """Whether a fault is one of a request's, which is counted."""
        if verb not in fault.verbs or fault.resource not in ("", resource) or fault.times == 0:
            return False
        if self._random.random() >= fault.share:
            return False
        if fault.times is not None:
            fault.times -= 1
        self.given += 1
        return True


def _answer(fault: Fault, group: str, resource: str, name: str) -> Refused:
    after = {"Retry-After": f"{fault.seconds:.0f}"}
    if fault.answer == "not served":
        return not_served()
    if fault.answer == "busy":
        # what max-requests-inflight answers, which is no Status
        return RefusedInWords(429, "Too many requests, please try again later.", headers=after)
    if fault.answer == "initializing":
        details = {"retryAfterSeconds": int(fault.seconds)}
        return Refused(429, "TooManyRequests", "storage is (re)initializing", details=details, headers=after)
    if fault.answer == "conflict":
        return has_changed(group, resource, name)
    if fault.answer == "terminating":
        why = "unable to create new content in namespace ml because it is being terminated"
        return forbidden(group, resource, name, why)
    if fault.answer == "unavailable":
        return Refused(503, "ServiceUnavailable", "the server is currently unable to handle the request")
    return Refused(500, "InternalError", "Internal error occurred: etcdserver: request timed out")
