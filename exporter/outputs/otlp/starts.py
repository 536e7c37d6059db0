"""The start of each pushed sum: start_time_unix_nano of its points. Pure, but it remembers the last push.

A page does not say when its counters began. So a sum begins at the push that first sees it, and its first point begins
and ends at the same moment: OpenTelemetry's data model has this form for an unknown start. A counter that has fallen
began anew since the last push, and its new start is the time of that push.

Tests: tests/outputs/test_otlp.py.
"""

from collections.abc import Iterable
from typing import NamedTuple

from exporter.model.slices import Work
from exporter.outputs.otlp.points import Attributes, MetricPoints, Number, PointSubject


class _Seen(NamedTuple):
    """A sum at the last push: its start, and its value."""

    began_ns: int
    value: Number


class Starts:
    """Remembers the sums of the last push. A sum that a push lacks gets a new start when it comes back."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, Attributes], dict[PointSubject, _Seen]] = {}
        self._at_ns = 0

    def work_for(self, metrics: Iterable[MetricPoints], now_ns: int) -> Work[None]:
        """Fill in `began_ns`, in nanoseconds since 1970, for each sum that has no start yet."""
        before = self._seen
        self._seen = {}
        for points in metrics:
            if points.instrument.kind == "gauge":
                continue
            series = (points.instrument.name, points.also)
            at_last_push = before.get(series, {})
            now = self._seen[series] = {}
            for point, value in points.values.items():
                if point not in points.began_ns:
                    now[point] = self._note(at_last_push.get(point), points, value, now_ns)
                    points.began_ns[point] = now[point].began_ns
            yield
        self._at_ns = now_ns

    def _note(self, last: _Seen | None, points: MetricPoints, value: Number, now_ns: int) -> _Seen:
        if last is None:
            return _Seen(now_ns, value)
        has_begun_anew = points.instrument.kind == "counter" and value < last.value
        began_ns = self._at_ns if has_begun_anew else last.began_ns
        return _Seen(min(began_ns, now_ns), value)  # the machine's clock may have been set back
