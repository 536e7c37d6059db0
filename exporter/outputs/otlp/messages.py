"""Metrics as OTLP's messages, of the official classes, and what a receiver answers. Pure; nobody imports it in vain.

https://opentelemetry.io/docs/specs/otlp/#otlphttp describes both.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, NumberDataPoint

from exporter.model.slices import ITEMS_A_SLICE, Work
from exporter.outputs.otlp.metrics import Attributes, Instrument, MetricPoints, PointSubject

_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_POINTS_A_PIECE = 2 * ITEMS_A_SLICE  # these take some 2 ms to be written
_POINTS_LAID_OUT_A_SLICE = ITEMS_A_SLICE // 4
MOST_POINTS_KEPT = 6_000  # of 1 kB each: those of 112 MIG instances and their accounts are 3,500


class PartialSuccess(NamedTuple):
    """How many points a receiver rejects of a request that it accepts, and why."""

    rejected: int
    message: str


class _Kept(NamedTuple):
    """A message, its points, and what they are of."""

    layout: Sequence[object]
    message: ExportMetricsServiceRequest
    points: Sequence[NumberDataPoint]


_NOTHING_KEPT = _Kept((), ExportMetricsServiceRequest(), ())


class Messages:
    """Makes messages of one process. Their points stay for the next push: mostly only moments and values change."""

    def __init__(self, resource: Mapping[str, str], version: str) -> None:
        """`resource` describes who measures, by OpenTelemetry's names."""
        self._resource = _key_values(tuple(resource.items()))
        self._version = version
        self._kept: dict[int, _Kept] = {}

    @property
    def kept(self) -> int:
        """How many points stay for the next push."""
        return sum(len(each.points) for each in self._kept.values())

    def pieces(self, metrics: Sequence[MetricPoints], now_ns: int) -> Iterator[Work[bytes]]:
        """A request with these metrics as they are at this moment (nanoseconds since 1970), in pieces.

        Each piece is a whole message: one after the other they are one with all metrics.
        """
        parts: list[list[MetricPoints]] = [[]]
        for each in metrics:
            if sum(len(other.values) for other in parts[-1]) >= _POINTS_A_PIECE:
                parts.append([])
            parts[-1].append(each)
        self._kept = {number: self._kept[number] for number in range(len(parts)) if number in self._kept}
        return (self._piece(number, part, now_ns) for number, part in enumerate(parts))

    def _piece(self, number: int, metrics: Sequence[MetricPoints], now_ns: int) -> Work[bytes]:
        layout: list[object] = [(each.instrument, each.also, *each.values) for each in metrics]
        yield
        kept = self._kept.get(number, _NOTHING_KEPT)
        if layout != kept.layout:
            self._kept.pop(number, None)
            kept = _Kept(layout, *(yield from self._lay_out(metrics)))
            if self.kept + len(kept.points) <= MOST_POINTS_KEPT:
                self._kept[number] = kept
        yield
        points = iter(kept.points)
        for each in metrics:
            is_whole, counts = each.instrument.is_whole, each.instrument.kind == "counter"
            for of, value in each.values.items():
                point = next(points)
                point.time_unix_nano = now_ns
                if is_whole:
                    point.as_int = round(value)
                else:
                    point.as_double = value
                if counts:
                    point.start_time_unix_nano = each.began_ns.get(of, 0)
            yield
        return kept.message.SerializeToString()

    def _lay_out(
        self, metrics: Sequence[MetricPoints]
    ) -> Work[tuple[ExportMetricsServiceRequest, Sequence[NumberDataPoint]]]:
        """A message with these points, without their values."""
        message = ExportMetricsServiceRequest()
        of_resource = message.resource_metrics.add()
        of_resource.resource.attributes.extend(self._resource)
        of_scope = of_resource.scope_metrics.add()
        of_scope.scope.name, of_scope.scope.version = "pod-gpu-metrics-exporter", self._version
        laid_out: list[NumberDataPoint] = []
        packed: dict[PointSubject, bytes] = {}
        for each in metrics:
            instrument = each.instrument
            points = _points_of(of_scope.metrics.add(name=instrument.name, unit=instrument.unit), instrument)
            also = _packed(each.also)
            for count, of in enumerate(each.values, 1):
                if of not in packed:
                    packed[of] = _packed(of.attributes)
                point = points.add()
                point.MergeFromString(packed[of] + also)
                laid_out.append(point)
                if not count % _POINTS_LAID_OUT_A_SLICE:
                    yield
            yield
        return message, laid_out


def _points_of(metric: Any, instrument: Instrument) -> Any:  # noqa: ANN401 - see above
    if instrument.kind == "gauge":
        return metric.gauge.data_points
    metric.sum.aggregation_temporality = _CUMULATIVE
    metric.sum.is_monotonic = instrument.kind == "counter"
    return metric.sum.data_points


def _packed(attributes: Attributes) -> bytes:
    return NumberDataPoint(attributes=_key_values(attributes)).SerializeToString()


def _key_values(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in attributes]


def partial_success(body: bytes) -> PartialSuccess:
    """What a receiver says of points that it does not take; nothing where its answer is not OTLP's."""
    try:
        partial = ExportMetricsServiceResponse.FromString(body).partial_success
    except DecodeError:
        return PartialSuccess(0, "")
    return PartialSuccess(max(0, partial.rejected_data_points), partial.error_message)


def refusal(body: bytes) -> Mapping[str, Any]:
    """Why a receiver refuses, as `error`: google.rpc.Status, which has its message in the same place, or a text."""
    try:
        text = ExportMetricsPartialSuccess.FromString(body).error_message
    except DecodeError:
        text = ""
    return {"error": text or body.decode("utf-8", "replace")}
