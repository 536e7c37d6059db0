"""What a node's /debug/mapping says of its sources: which of them fail, and why. Pure, and strict in what it needs.

No other path says why: /metrics and /gpu/metrics have `source_up` alone. It is also the smallest of the exporter's
answers that says so: 11 KB of 8 GPUs, 58 KB of 8 GPUs in 7 instances each, decoded in 0.5 ms.
"""

import json
import re
from typing import NamedTuple

from exporter.errors import Malformed
from exporter.sources.exporters.asking import Question
from exporter.sources.http import ConnectRemedies

# 16 GPUs in 48 shares each, all held, take half of it.
MOST_BYTES = 1024 * 1024
MOST_SOURCES = 64
_REASON = re.compile(r"[a-z_]{1,40}")
_LOOK_THERE = "is the image of spec.image this program's, and of a version like the operator's?"
# The operator has made the DaemonSet: these exporters speak plain HTTP and ask for no password.
HEALTHS = Question(
    path="/debug/mapping",
    flag="the operator",
    most="",
    connect=ConnectRemedies(
        refused="the port of the exporter is closed to other pods: does something on the node (a service mesh, a"
        " firewall) stand before it?",
        unreachable="does a NetworkPolicy or a firewall let the operator reach the exporters' port 9400?",
        tls="the exporters that the operator makes speak plain HTTP: what stands before them?",
    ),
    slow="look at that node and its exporter: is it overloaded?",
    too_large=_LOOK_THERE,
    no_right="the exporters that the operator makes ask for no password: what stands before them (a service mesh)?",
)


class Failing(NamedTuple):
    """A source that fails; `says` is one line with what to do."""

    source: str
    reason: str
    says: str


def read_health(body: bytes, node: str) -> tuple[Failing, ...]:
    """The sources of a node's exporter that fail, in its order.

    Raises:
        Malformed: the body is not what the exporter of that node answers.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _garbage("it is not JSON") from error
    if not isinstance(found, dict) or not isinstance(sources := found.get("sources"), dict) or not sources:
        raise _garbage("it does not say how its sources are")
    if found.get("node") != node:
        raise _garbage(f"it answers as the node {str(found.get('node'))[:80]!r}, and runs on {node!r}")
    if len(sources) > MOST_SOURCES:
        raise _garbage(f"it has more than {MOST_SOURCES} sources")
    return tuple(_failing(name, state) for name, state in sources.items() if _fails(name, state))


def _fails(name: str, state: object) -> bool:
    if not isinstance(state, dict) or state.get("up") not in (True, False, None):
        raise _garbage(f"it does not say how its source {name[:80]!r} is")
    return state["up"] is False


def _failing(name: str, state: dict[str, object]) -> Failing:
    reason, message, remedy = (str(state.get(field) or "") for field in ("reason", "message", "remedy"))
    says = f"{message or 'it does not say why'}{' -> ' if remedy else ''}{remedy}"
    return Failing(name, reason if _REASON.fullmatch(reason) else "unknown", says)


def _garbage(what: str) -> Malformed:
    return Malformed("garbage", f"its answer cannot be used: {what}", remedy=_LOOK_THERE)
