"""Metrics as OTLP's messages, by the official classes, and a receiver's answers. Pure. Only a push imports this module.

https://opentelemetry.io/docs/specs/otlp/#otlphttp describes messages and answers.

Tests: tests/outputs/test_otlp.py.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import nan
from struct import Struct
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
from exporter.outputs.otlp.points import SCHEMA_URL, Attributes, Instrument, MetricPoints, Number, PointSubject

_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_POINTS_A_PIECE = 2 * ITEMS_A_SLICE  # some 2 ms to write
_POINTS_LAID_OUT_A_SLICE = ITEMS_A_SLICE // 4
MOST_POINTS_KEPT = 6_000  # of some 400 bytes each; 112 MIG instances with their accounts are 3,500 points


class PartialSuccess(NamedTuple):
    """The number of points that a receiver rejects in a request that it accepts, and its reason."""

    rejected: int
    message: str


# NumberDataPoint's start_time_unix_nano, time_unix_nano and value (as_double or as_int), each behind its tag. They are
# fixed64, and stand before the attributes: official classes write fields by their numbers.
_START = 0x11
_TIME = 0x19
_DOUBLE = 0x21
_INT = 0x31
_COUNTED = Struct("<BQBQBd")
_COUNTED_WHOLE = Struct("<BQBQBq")
_MEASURED = Struct("<BQBd")
_MEASURED_WHOLE = Struct("<BQBq")
_PLACEHOLDER = 2**64 - 1  # no text has these bytes: they are not UTF-8


class _Kept(NamedTuple):
    """A written message: `layout` says what its points describe, `places` where each point's times and value begin."""

    layout: Sequence[object]
    message: bytearray
    places: Sequence[int]


_NOTHING_KEPT = _Kept((), bytearray(), ())


class Messages:
    """Makes one process' messages. It keeps the written messages, as mostly only times and values change in them."""

    def __init__(self, resource: Mapping[str, str], version: str) -> None:
        """`resource` describes the exporter, by OpenTelemetry's names."""
        self._resource = _key_values(tuple(resource.items()))
        self._version = version
        self._kept: dict[int, _Kept] = {}

    @property
    def kept(self) -> int:
        """The number of points that are kept for the next push."""
        return sum(len(kept.places) for kept in self._kept.values())

    def pieces(self, metrics: Sequence[MetricPoints], now_ns: int) -> Iterator[Work[bytes]]:
        """A request with these metrics, dated `now_ns` (nanoseconds since 1970), in pieces.

        Each piece is a whole message. Put one after the other, the pieces are one message with all metrics.
        """
        parts: list[list[MetricPoints]] = [[]]
        for metric in metrics:
            if sum(len(before.values) for before in parts[-1]) >= _POINTS_A_PIECE:
                parts.append([])
            parts[-1].append(metric)
        self._kept = {number: kept for number, kept in self._kept.items() if number < len(parts)}
        return (self._piece(number, part, now_ns) for number, part in enumerate(parts))

    def _piece(self, number: int, metrics: Sequence[MetricPoints], now_ns: int) -> Work[bytes]:
        """The bytes of a message. If its points are those of the last push, only times and values are written anew."""
        layout: list[object] = [(metric.instrument, metric.also, *metric.values) for metric in metrics]
        yield
        kept = self._kept.get(number, _NOTHING_KEPT)
        if layout != kept.layout:
            self._kept.pop(number, None)
            kept = _Kept(layout, *(yield from self._lay_out(metrics)))
            if self.kept + len(kept.places) <= MOST_POINTS_KEPT:
                self._kept[number] = kept
        yield
        places = iter(kept.places)
        for metric in metrics:
            values: Iterable[Number] = metric.values.values()
            tag = _DOUBLE
            if metric.instrument.is_whole:
                values = map(round, values)
                tag = _INT
            write = _form_of(metric.instrument).pack_into
            if metric.instrument.kind == "gauge":
                for value, place in zip(values, places, strict=False):
                    write(kept.message, place, _TIME, now_ns, tag, value)
            else:
                began_ns = metric.began_ns
                for point, place, value in zip(metric.values, places, values, strict=False):
                    write(kept.message, place, _START, began_ns.get(point, 0), _TIME, now_ns, tag, value)
            yield
        return bytes(kept.message)

    def _lay_out(self, metrics: Sequence[MetricPoints]) -> Work[tuple[bytearray, Sequence[int]]]:
        """A message with these points, and the offsets at which each point's times and value begin."""
        message = ExportMetricsServiceRequest()
        of_resource = message.resource_metrics.add()
        of_resource.resource.attributes.extend(self._resource)
        of_scope = of_resource.scope_metrics.add()
        of_resource.schema_url = of_scope.schema_url = SCHEMA_URL
        of_scope.scope.name = "pod-gpu-metrics-exporter"
        of_scope.scope.version = self._version
        starts: list[bytes] = []
        packed: dict[PointSubject, bytes] = {}
        for metric in metrics:
            instrument = metric.instrument
            points = _points_of(of_scope.metrics.add(name=instrument.name, unit=instrument.unit), instrument)
            also = _packed(metric.also)
            start = _start_of(instrument)
            for count, point in enumerate(metric.values, 1):
                if point not in packed:
                    packed[point] = _packed(point.attributes)
                points.add().MergeFromString(start + packed[point] + also)
                if not count % _POINTS_LAID_OUT_A_SLICE:
                    yield
            starts += [start] * len(metric.values)
            yield
        written = message.SerializeToString()
        places: list[int] = []
        end = 0
        for start in starts:
            places.append(written.index(start, end))
            end = places[-1] + len(start)
        return bytearray(written), places


def _points_of(metric: Any, instrument: Instrument) -> Any:  # noqa: ANN401 - see above
    if instrument.kind == "gauge":
        return metric.gauge.data_points
    metric.sum.aggregation_temporality = _CUMULATIVE
    metric.sum.is_monotonic = instrument.kind == "counter"
    return metric.sum.data_points


def _start_of(instrument: Instrument) -> bytes:
    """The first bytes of a point of an instrument: placeholders for its times and its value."""
    form = _form_of(instrument)
    value = (_INT, -1) if instrument.is_whole else (_DOUBLE, nan)
    if instrument.kind == "gauge":
        return form.pack(_TIME, _PLACEHOLDER, *value)
    return form.pack(_START, _PLACEHOLDER, _TIME, _PLACEHOLDER, *value)


def _form_of(instrument: Instrument) -> Struct:
    """The bytes of a point's times and value: a gauge's have no start."""
    if instrument.kind == "gauge":
        return _MEASURED_WHOLE if instrument.is_whole else _MEASURED
    return _COUNTED_WHOLE if instrument.is_whole else _COUNTED


def _packed(attributes: Attributes) -> bytes:
    return NumberDataPoint(attributes=_key_values(attributes)).SerializeToString()


def _key_values(attributes: Attributes) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=text)) for key, text in attributes]


def partial_success(body: bytes) -> PartialSuccess:
    """The points that a receiver says it rejects; none if its answer is not OTLP's."""
    try:
        partial = ExportMetricsServiceResponse.FromString(body).partial_success
    except DecodeError:
        return PartialSuccess(0, "")
    return PartialSuccess(max(0, partial.rejected_data_points), partial.error_message)


def refusal(body: bytes) -> Mapping[str, Any]:
    """A receiver's reason to refuse, as `error`.

    The body is a google.rpc.Status, which has its message in the same field as ExportMetricsPartialSuccess, or a text.
    """
    try:
        text = ExportMetricsPartialSuccess.FromString(body).error_message
    except DecodeError:
        text = ""
    return {"error": text or body.decode("utf-8", "replace")}
