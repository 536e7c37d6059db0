"""The four calls of KEDA's external scaler, answered from what the cluster role knows.

Where there is no number there is an error. KEDA asks GetMetricSpec while it makes the HorizontalPodAutoscaler (HPA),
and GetMetrics and IsActive together: at its polling interval, to go from 0 to 1 and back, and whenever the HPA wants to
know, to go further. An error of these is an error for the HPA, which then does not scale in. GetMetricSpec needs only
the trigger's own metadata: while it fails, KEDA leaves this trigger out of the HPA, and the others would scale in
alone. (kedacore/keda, pkg/scaling/scale_handler.go and pkg/scalers/external_scaler.go.)
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from http import HTTPStatus
from math import ceil

import grpc

from exporter import log
from exporter._gen import externalscaler_pb2 as messages
from exporter.cluster.cluster import Cluster
from exporter.cluster.keda.trigger import Trigger, read_trigger
from exporter.cluster.scaling import Scaled, Unanswerable, scaled
from exporter.errors import SourceError, Unsupported
from exporter.sources.source import Bound

MOST_REMEMBERED = 4096
MOST_LINES = 60
PERIOD_SECONDS = 60.0
_GOOD = "good"

_Key = tuple[str, str, str, str]
# Each stream is a trigger `external-push`, held for as long as its ScaledObject is there.
MOST_STREAMS = 512
# grpc sends it in a header, percent-encoded where it is not ASCII; many clients take 8 KiB of headers.
MOST_ERROR_CHARS = 1200
_MOST_INT = 2**63 - 1
_CODES = {
    HTTPStatus.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    HTTPStatus.CONFLICT: grpc.StatusCode.FAILED_PRECONDITION,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}


class Notes:
    """Remembers how each trigger's last answer was."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: OrderedDict[_Key, str] = OrderedDict()
        self._period_began = clock()
        self._lines = self._left_out = 0

    def __len__(self) -> int:
        return len(self._last)

    def answered(self, trigger: Trigger, workload: str, pods: int) -> None:
        """There was a value, over so many pods."""
        if pods:
            self._turn(trigger, _GOOD, log.info, "KEDA is answered again", workload=workload)
            return
        self._turn(
            trigger,
            "no pods",
            log.warning,
            "no pod of a workload that KEDA scales has a GPU: its value is 0",
            workload=workload,
            remedy="without a pod there is no GPU metric: from 0 to 1 another trigger is needed. If there are pods,"
            " name their topmost owner with `workload`",
        )

    def refused(self, trigger: Trigger, code: str, why: str) -> None:
        """There was an error: KEDA leaves the replicas as they are."""
        self._turn(trigger, code, log.warning, "KEDA is answered with an error", code=code, error=why)

    def _turn(self, trigger: Trigger, now: str, write: Callable[..., None], message: str, **fields: object) -> None:
        key = (trigger.namespace, trigger.scaled_object, trigger.metric, trigger.workload)
        before = self._last.get(key, _GOOD)
        self._last[key] = now
        self._last.move_to_end(key)
        while len(self._last) > MOST_REMEMBERED:
            self._last.popitem(last=False)
        if before != now and self._may_write():
            if self._left_out:
                fields["left_out_since_the_last"] = self._left_out
                self._left_out = 0
            where = f"{trigger.namespace}/{trigger.scaled_object}"
            write(message, scaled_object=where, metric=trigger.metric, **fields)

    def _may_write(self) -> bool:
        now = self._clock()
        if now - self._period_began >= PERIOD_SECONDS:
            self._period_began, self._lines = now, 0
        self._lines += 1
        if self._lines > MOST_LINES:
            self._left_out += 1
            return False
        return True


class NoAnswer(Exception):
    """The call ends with this status. The text is one line that says why, and what to do."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        line = " ".join(why.split()).encode("ascii", "backslashreplace").decode()
        super().__init__(line if len(line) <= MOST_ERROR_CHARS else f"{line[:MOST_ERROR_CHARS]}...")
        self.code = code


class Scaler:
    """Answers by the cluster role of the moment, which `current` gives.

    The calls raise NoAnswer: the metadata cannot be meant, or (all but `metric_spec`) the value is not known.
    """

    def __init__(self, current: Callable[[], Cluster]) -> None:
        self._current = current
        self._notes = Notes()
        self._streams = 0
        self._ending = asyncio.Event()
        self.bounds = {
            "keda_streams": Bound(MOST_STREAMS, lambda: self._streams),
            "keda_triggers": Bound(MOST_REMEMBERED, lambda: len(self._notes)),
        }

    def end_streams(self) -> None:
        """End every stream without an error: KEDA opens it again at once, where somebody answers."""
        self._ending.set()

    async def metric_spec(self, asked: messages.ScaledObjectRef) -> messages.GetMetricSpecResponse:
        """The name of the metric, and what one pod may have of it."""
        trigger = _trigger(asked)
        # KEDA before 2.17 reads the whole number alone. With 0 its HPA is refused: better than a rounded target.
        whole = int(trigger.target) if trigger.target.is_integer() else 0
        spec = messages.MetricSpec(metricName=trigger.metric, targetSize=whole, targetSizeFloat=trigger.target)
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    async def metrics(self, asked: messages.GetMetricsRequest) -> messages.GetMetricsResponse:
        """The value: the sum over the workload's pods, which the HPA divides by their number."""
        trigger = _trigger(asked.scaledObjectRef)
        if asked.metricName != trigger.metric:
            raise NoAnswer(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"metricName: {asked.metricName[:100]!r} is not the metric of this trigger, {trigger.metric!r}",
            )
        value = (await self._scaled(trigger)).value
        # KEDA before 2.17 reads the whole number: rounded up, since a value above 0 must not become 0
        whole = max(-_MOST_INT, min(_MOST_INT, ceil(value)))
        metric = messages.MetricValue(metricName=trigger.metric, metricValue=whole, metricValueFloat=value)
        return messages.GetMetricsResponse(metricValues=[metric])

    async def is_active(self, asked: messages.ScaledObjectRef) -> messages.IsActiveResponse:
        """Whether the value is above the activation threshold."""
        trigger = _trigger(asked)
        return messages.IsActiveResponse(result=(await self._scaled(trigger)).value > trigger.threshold)

    async def stream_is_active(self, asked: messages.ScaledObjectRef) -> AsyncGenerator[messages.IsActiveResponse]:
        """The same now, and whenever it has changed. After NoAnswer KEDA opens another stream after a while."""
        trigger = _trigger(asked)
        if self._streams >= MOST_STREAMS:
            raise NoAnswer(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"there are {MOST_STREAMS} streams already -> use triggers of type external, which KEDA polls",
            )
        self._streams += 1
        try:
            last: bool | None = None
            while not self._ending.is_set():
                now = (await self._scaled(trigger)).value > trigger.threshold
                if now is not last:
                    last = now
                    yield messages.IsActiveResponse(result=now)
                # the nodes are not asked more often than this
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), self._current().pulse_seconds or 1.0)
        finally:
            self._streams -= 1

    async def _scaled(self, trigger: Trigger) -> Scaled:
        """The answer, or NoAnswer; the log hears of both."""
        try:
            cluster = self._current()
            workload = trigger.workload or await _scaled_by(cluster, trigger)
            question = trigger.question(workload)
            answer = scaled(await cluster.look(None), question)
            # what a ScaledObject scales is there, with pods or without
            if trigger.workload:
                cluster.handover.workloads.check(question, answer)
        except Unanswerable as error:
            failed = NoAnswer(_CODES.get(error.status, grpc.StatusCode.UNAVAILABLE), str(error))
        except SourceError as error:
            is_not_there = isinstance(error, Unsupported)
            code = grpc.StatusCode.FAILED_PRECONDITION if is_not_there else grpc.StatusCode.UNAVAILABLE
            failed = NoAnswer(
                code, f"it is not known what ScaledObject {trigger.scaled_object} scales: {error.trouble}"
            )
        else:
            self._notes.answered(trigger, workload, answer.pods)
            return answer
        self._notes.refused(trigger, failed.code.name, str(failed))
        raise failed


async def _scaled_by(cluster: Cluster, trigger: Trigger) -> str:
    """What the trigger's ScaledObject scales, as `<kind>:<name>`. Raises SourceError where that is not known."""
    if cluster.scaled_objects is None:
        raise Unsupported(
            "there is no Kubernetes API to ask",
            remedy="name the workload with `workload` in the trigger's metadata, or the API with --kubernetes.url",
        )
    target = await cluster.scaled_objects.target(trigger.namespace, trigger.scaled_object)
    return f"{target.kind.lower()}:{target.name}"


def _trigger(asked: messages.ScaledObjectRef) -> Trigger:
    try:
        return read_trigger(asked.namespace, asked.name, asked.scalerMetadata)
    except Unanswerable as error:
        raise NoAnswer(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None


def fault(error: Exception, of: str) -> NoAnswer:
    """The status of a call that a fault of this program ended."""
    log.error("a call of KEDA failed by a fault of the exporter", error, call=of)
    return NoAnswer(grpc.StatusCode.INTERNAL, "a fault of the exporter: its log has the trace")
