"""The reader of a node's /debug/mapping: its failing sources, with their reasons. Pure, and strict in what it needs.

No other path has the reasons: /metrics and /gpu/metrics have only `source_up`. The answer is small, too: 11 KB with 8
GPUs, 58 KB with 8 GPUs in 7 instances each, decoded in 0.5 ms.

Tests: tests/operator/test_exporter_health.py.
"""

import json
import re
from collections.abc import Mapping
from functools import partial

from exporter.errors import Trouble
from exporter.sources.http import Peer
from exporter.sources.json_text import garbage

# The answer of 16 GPUs with 48 shares each, all held, takes half of this.
MOST_BYTES = 1024 * 1024
MOST_SOURCES = 64
_REASON = re.compile(r"[a-z_]{1,40}")
PATH = "/debug/mapping"
# The exporters of the operator's own DaemonSet, which speak plain HTTP and ask for no password.
OPERATED_EXPORTERS = Peer(
    flag="the operator",
    refused=(
        "the port of the exporter is closed to other pods: does something on the node (a service mesh, a firewall)"
        " stand before it?"
    ),
    unreachable="does a NetworkPolicy or a firewall let the operator reach the exporters' port 9400?",
    tls="the exporters that the operator makes speak plain HTTP: what stands before them?",
    look_there="look at that exporter's log, and at what the address answers to curl",
    silent="does a NetworkPolicy or a firewall let the operator reach the exporters' port 9400?",
    slow="look at that node and its exporter: is it overloaded?",
    no_right="the exporters that the operator makes ask for no password: what stands before them (a service mesh)?",
    no_path="is it this program's node exporter, and is its address given without a path?",
    too_much="is the image of spec.image this program's, and of a version like the operator's?",
)
_garbage = partial(garbage, remedy=OPERATED_EXPORTERS.too_much)


def read_health(body: bytes, node: str) -> Mapping[str, Trouble]:
    """The troubles of the failing sources of a node's exporter, by source, in its order.

    Raises Malformed: the body is no such answer, or another node's.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _garbage("it is not JSON") from error
    if not isinstance(answer, dict) or not isinstance(sources := answer.get("sources"), dict) or not sources:
        raise _garbage("it does not say how its sources are")
    if answer.get("node") != node:
        raise _garbage(f"it answers as the node {str(answer.get('node'))[:80]!r}, and runs on {node!r}")
    if len(sources) > MOST_SOURCES:
        raise _garbage(f"it has more than {MOST_SOURCES} sources")
    for name, state in sources.items():
        if not isinstance(state, dict) or state.get("up", "") not in (True, False, None):
            raise _garbage(f"it does not say how its source {name[:80]!r} is")
    return {name: _trouble(state) for name, state in sources.items() if state["up"] is False}


def _trouble(state: dict[str, object]) -> Trouble:
    reason, message, remedy = (str(state.get(field) or "") for field in ("reason", "message", "remedy"))
    word = reason if _REASON.fullmatch(reason) else "unknown"
    return Trouble(word, message or "it does not say why", remedy)
