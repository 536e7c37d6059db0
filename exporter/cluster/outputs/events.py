"""/events: the last errors of GPUs in the kernel's logs of all nodes, as their exporters wrote them, the newest first.

As in /container/metrics, a header names missing nodes. A node that does not read its log is not missing.
"""

from exporter.cluster.outputs.look import ClusterLook, missing_header, why_nothing
from exporter.outputs.output import JSON_FORMAT, Answer, Output, answer, json_refusal

_NO_EVENTS = (
    "Prometheus has no events: ask the node exporters, or have this role ask them, without --cluster.prometheus"
)


def _make(look: ClusterLook) -> Answer:
    view = look.view
    if view.events is None:
        return json_refusal(_NO_EVENTS, 404)
    why = why_nothing(view)
    listed = b"[" + b",".join(event.text for event in view.events) + b"]\n"
    made = json_refusal(why, 503) if why else answer(JSON_FORMAT, listed)
    return made._replace(headers=missing_header(view, view.without_events))


OUTPUT = Output(path="/events", says="the last errors and suspicions of all nodes, as JSON", make=_make)
