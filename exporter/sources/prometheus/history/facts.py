"""What a report says beside the accounts: which GPUs there were, which nodes were seen, and what nobody saw.

Sums that only describe are left to the server: to the second they need not be right.
"""

from collections.abc import Sequence

from exporter.errors import SourceError
from exporter.report.facts import Facts
from exporter.report.span import Span
from exporter.sources.prometheus.history.answers import Found
from exporter.sources.prometheus.history.api import PrometheusApi, TooMuch
from exporter.sources.prometheus.history.selectors import selector

CAPACITY = "node_gpu_capacity"
# Nodes are looked for this many times in a piece, and never farther apart than Prometheus looks back by itself.
_LOOKS = 12
_MOST_STEP_MS = 300_000
_LEAST_STEP_MS = 1000


class FactsReader:
    """Reads what there is beside the accounts. What a server cannot answer is left out."""

    def __init__(self, *, api: PrometheusApi, matchers: Sequence[str]) -> None:
        self.facts = Facts()
        self._api = api
        self._matchers = tuple(matchers)

    async def read(self, piece: Span) -> None:
        """Add what is known of a piece of the span."""
        facts = self.facts
        info = self._rows("pod_gpu_info", 'modelName!=""')
        models = f"max by (UUID, modelName) (last_over_time({info}[{piece.ms}ms]))"
        for found in await self._ask(models, piece):
            facts.models[found.labels.get("UUID", "")] = found.labels.get("modelName", "")
        step_ms = max(_LEAST_STEP_MS, min(_MOST_STEP_MS, piece.ms // _LOOKS))
        # before Prometheus 3.0 a window has both its ends: a whole one would have a look more than steps
        looks = f"[{piece.ms - 1}ms:{step_ms}ms]"
        capacity = f"max by (cluster, node, model) ({self._rows(CAPACITY)})"
        for found in await self._ask(f"sum_over_time({capacity}{looks})", piece):
            where = found.labels.get("node", ""), found.labels.get("model", "")
            facts.capacity[where] = facts.capacity.get(where, 0.0) + found.points[-1][1] * step_ms / 1000
        for found in await self._ask(f"count_over_time(max by (node) ({self._rows(CAPACITY)}){looks})", piece):
            node = found.labels.get("node", "")
            seen_ms = min(found.points[-1][1] * step_ms, piece.ms)
            facts.seen_ms[node] = facts.seen_ms.get(node, 0.0) + seen_ms
        gaps = f"sum by (reason) (increase({self._rows('pod_gpu_accounting_gap_seconds_total')}[{piece.ms}ms]))"
        for found in await self._ask(gaps, piece):
            reason = found.labels.get("reason", "")
            facts.gaps[reason] = facts.gaps.get(reason, 0.0) + found.points[-1][1]

    async def end(self, span: Span) -> None:
        """Add what is known of the whole span."""
        last = Span(max(span.from_ms, span.to_ms - 86_400_000), span.to_ms)
        self.facts.retention = await self._api.retention()
        nodes = selector("kube_node_status_capacity", (*self._matchers, 'resource=~"nvidia_com_.*"'))
        for found in await self._ask(f"max by (node) (last_over_time({nodes}[{last.ms}ms])) > 0", last):
            self.facts.nodes_elsewhere.add(found.labels.get("node", ""))
        build = selector("pod_gpu_exporter_build_info", self._matchers)
        self.facts.has_exporter = bool(await self._ask(f"count(last_over_time({build}[{last.ms}ms])) > 0", last))

    def _rows(self, family: str, *more: str) -> str:
        return selector(family, (*self._matchers, *more))

    async def _ask(self, expression: str, piece: Span) -> Sequence[Found]:
        try:
            return (await self._api.query(expression, piece.to_ms)).series
        except (SourceError, TooMuch) as error:
            self.facts.unanswered[type(error).__name__] = str(error)
            return ()
