"""OTLP at its other end: a receiver that answers as it is told, what came in, and what a page should make."""

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fractions import Fraction

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

PATH = "/v1/metrics"
Name = tuple[str, frozenset[tuple[str, str]]]  # of a metric, with a point's attributes
# Written down from DCGM's and the conventions' documents, beside the program's own table: the metric, the attribute
# that says which of its values it is, and what one of the page's unit is in the metric's.
RATIO, MIB, MILLI = Fraction(1, 100), Fraction(1024 * 1024), Fraction(1, 1000)
OF_PAGE: Mapping[str, tuple[str, tuple[tuple[str, str], ...], Fraction]] = {
    "DCGM_FI_DEV_ENC_UTIL": ("hw.gpu.utilization", (("hw.gpu.task", "encoder"),), RATIO),
    "DCGM_FI_DEV_DEC_UTIL": ("hw.gpu.utilization", (("hw.gpu.task", "decoder"),), RATIO),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("hw.gpu.utilization", (("hw.gpu.task", "general"),), Fraction(1)),
    "DCGM_FI_DEV_FB_USED": ("hw.gpu.memory.usage", (), MIB),
    "DCGM_FI_DEV_FB_TOTAL": ("hw.gpu.memory.limit", (), MIB),
    "DCGM_FI_DEV_GPU_TEMP": ("hw.temperature", (("hw.sensor_location", "gpu"),), Fraction(1)),
    "DCGM_FI_DEV_MEMORY_TEMP": ("hw.temperature", (("hw.sensor_location", "memory"),), Fraction(1)),
    "DCGM_FI_DEV_POWER_USAGE": ("hw.power", (), Fraction(1)),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("hw.energy", (), MILLI),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("hw.errors", (("error.type", "corrected"),), Fraction(1)),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("hw.errors", (("error.type", "uncorrected"),), Fraction(1)),
    "DCGM_FI_DEV_FB_USED_BYTES": ("hw.gpu.memory.usage", (), Fraction(1)),
    "DCGM_FI_DEV_FB_CAPACITY_BYTES": ("hw.gpu.memory.limit", (), Fraction(1)),
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": ("hw.gpu.utilization", (("hw.gpu.task", "general"),), Fraction(1)),
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": ("hw.temperature", (("hw.sensor_location", "gpu"),), Fraction(1)),
    "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS": ("hw.temperature", (("hw.sensor_location", "memory"),), Fraction(1)),
    "DCGM_FI_DEV_ENC_UTIL_RATIO": ("hw.gpu.utilization", (("hw.gpu.task", "encoder"),), Fraction(1)),
    "DCGM_FI_DEV_DEC_UTIL_RATIO": ("hw.gpu.utilization", (("hw.gpu.task", "decoder"),), Fraction(1)),
    "DCGM_FI_DEV_BOARD_POWER_WATTS": ("hw.power", (), Fraction(1)),
    "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL": ("hw.energy", (), Fraction(1)),
}
ACCOUNTS: Mapping[str, str] = {
    "pod_gpu_allocated_seconds_total": "pod_gpu.allocated",
    "pod_gpu_active_seconds_total": "pod_gpu.active",
    "pod_gpu_observed_seconds_total": "pod_gpu.observed",
    "pod_gpu_idle_seconds_total": "pod_gpu.idle",
    "pod_gpu_idle_unknown_seconds_total": "pod_gpu.idle_unknown",
    "pod_gpu_energy_joules_total": "pod_gpu.energy",
    "pod_gpu_throttled_seconds_total": "pod_gpu.throttled",
    "pod_gpu_xid_errors_total": "pod_gpu.xid_errors",
    "pod_gpu_suspected_out_of_memory_total": "pod_gpu.suspected_out_of_memory",
    "pod_gpu_allocated_ratio": "pod_gpu.allocated.ratio",
}
_ALSO = {"reason": "pod_gpu.reason", "xid": "error.type", "suspicion": "pod_gpu.suspicion"}
_CONTAINER = {"namespace": "k8s.namespace.name", "pod": "k8s.pod.name", "container": "k8s.container.name"}


def samples(page: str) -> Iterator[tuple[str, dict[str, str], Fraction]]:
    """Family, labels and value of each sample of a page."""
    for family, labels, value in re.findall(r"^(\w+)\{(.*)\} (\S+)$", page, re.MULTILINE):
        yield family, dict(re.findall(r'(\w+)="([^"]*)"', labels)), Fraction(value)


def key_of(name: str, labels: Mapping[str, str], also: tuple[tuple[str, str], ...] = ()) -> Name:
    """A metric by what tells its points apart: the device and the container."""
    of_device = labels["UUID"] + (f"/{labels['GPU_I_ID']}" if labels.get("GPU_I_ID") else "")
    of_container = {named: labels[label] for label, named in _CONTAINER.items() if labels.get(label)}
    return name, frozenset({("hw.id", of_device), *of_container.items(), *also})


def expected_of(page: str) -> dict[Name, float]:
    """What a page with owners should make."""
    found: dict[Name, float] = {}
    for family, labels, value in samples(page):
        if family in OF_PAGE:
            name, also, times = OF_PAGE[family]
            # under two names the first counts: divided among owners, they differ by less than what is printed
            found.setdefault(key_of(name, labels, also), float(value * times))
    usage, limit = (
        {key[1]: value for key, value in found.items() if key[0] == f"hw.gpu.memory.{of}"} for of in ("usage", "limit")
    )
    return found | {("hw.gpu.memory.utilization", of): value / limit[of] for of, value in usage.items() if of in limit}


def expected_of_accounts(metrics: str) -> dict[Name, float]:
    """What /metrics should make."""
    return {
        key_of(
            ACCOUNTS[family], labels, tuple((_ALSO[label], labels[label]) for label in _ALSO if label in labels)
        ): float(value)
        for family, labels, value in samples(metrics)
        if family in ACCOUNTS
    }


def metrics_in(request: ExportMetricsServiceRequest) -> Iterator[Metric]:
    for of_resource in request.resource_metrics:
        for of_scope in of_resource.scope_metrics:
            yield from of_scope.metrics


@dataclass(frozen=True)
class Point:
    """A point: its attributes, value and moments, of a metric of this name, unit and kind."""

    name: str
    unit: str
    kind: str
    attributes: dict[str, str]
    value: float
    at_ns: int
    began_ns: int

    @property
    def key(self) -> Name:
        """As `key_of`: without what follows from the device and the container."""
        follow = ("hw.name", "hw.model", "hw.vendor", "hw.type", "hw.parent", "hw.driver_version", "hw.serial_number")
        kept = ((name, text) for name, text in self.attributes.items() if name not in follow)
        return self.name, frozenset(kept)


def points_in(request: ExportMetricsServiceRequest) -> Iterator[Point]:
    for metric in metrics_in(request):
        of = metric.gauge if metric.HasField("gauge") else metric.sum
        kind = "gauge"
        if metric.HasField("sum"):
            assert metric.sum.aggregation_temporality == 2, "cumulative"
            kind = "counter" if metric.sum.is_monotonic else "updowncounter"
        for point in of.data_points:
            attributes = {pair.key: pair.value.string_value for pair in point.attributes}
            assert len(attributes) == len(point.attributes), "an attribute is there twice"
            value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
            yield Point(
                metric.name, metric.unit, kind, attributes, value, point.time_unix_nano, point.start_time_unix_nano
            )


def values_in(request: ExportMetricsServiceRequest) -> dict[Name, float]:
    """The values by name; none is there twice."""
    points = list(points_in(request))
    values = {point.key: point.value for point in points}
    assert len(values) == len(points), "a point is there twice"
    return values


@dataclass
class Receiver:
    """What came in. `status`, `headers` and `body` are its answer; while `goes_on` is not set, it does not answer."""

    url: str = ""
    requests: list[ExportMetricsServiceRequest] = field(default_factory=list)
    headers_seen: list[Mapping[str, str]] = field(default_factory=list)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)

    def reject(self, points: int, why: str) -> None:
        """Accept all but so many points from now on."""
        answer = ExportMetricsServiceResponse()
        answer.partial_success.rejected_data_points, answer.partial_success.error_message = points, why
        self.body = answer.SerializeToString()

    async def answer(self, request: web.Request) -> web.Response:
        packed = await request.read()  # aiohttp's server has taken the gzip off
        self.headers_seen.append(dict(request.headers))
        body = zlib.decompress(packed, wbits=31) if packed.startswith(b"\x1f\x8b") else packed
        self.requests.append(ExportMetricsServiceRequest.FromString(body))
        await self.goes_on.wait()
        return web.Response(status=self.status, body=self.body, headers=dict(self.headers))


@asynccontextmanager
async def receiving(port: int = 0) -> AsyncIterator[Receiver]:
    """A receiver on loopback."""
    receiver = Receiver()
    receiver.goes_on.set()
    app = web.Application()
    app.router.add_post(PATH, receiver.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        receiver.goes_on.set()
        await runner.cleanup()
