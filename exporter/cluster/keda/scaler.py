"""The four calls of KEDA's external scaler, answered from the cluster role's last look.

If there is no number, the answer is an error. KEDA calls GetMetricSpec when it makes the HorizontalPodAutoscaler (HPA).
It calls GetMetrics and IsActive together: at its polling interval, to scale from 0 to 1 and back, and whenever the HPA
asks, to scale further. An error of these calls is an error for the HPA, which then does not scale in. If GetMetricSpec
failed, KEDA would leave this trigger out of the HPA, and other triggers would scale in alone. So GetMetricSpec needs
only the trigger's own metadata. (kedacore/keda, pkg/scaling/scale_handler.go and pkg/scalers/external_scaler.go.)

Tests: tests/cluster/keda/test_conversation.py, tests/cluster/keda/test_trigger.py.
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
from exporter.sources.source import Bound, Clock
from exporter.wording import one_line

MOST_REMEMBERED = 4096
MOST_LINES = 60
PERIOD_SECONDS = 60.0
_GOOD = "good"

_Key = tuple[str, str, str, str]
# KEDA keeps a stream for each trigger `external-push`, as long as its ScaledObject is there.
MOST_STREAMS = 512
# gRPC sends an error's text in a header, with percent-encoding for all but ASCII. Many clients take 8 KiB of headers.
MOST_ERROR_CHARS = 1200
_MOST_INT = 2**63 - 1
_CODES = {
    HTTPStatus.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    HTTPStatus.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    HTTPStatus.CONFLICT: grpc.StatusCode.FAILED_PRECONDITION,
    HTTPStatus.SERVICE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}


class Notes:
    """The kind of each trigger's last answer. If it changes, the log gets a line."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._last: OrderedDict[_Key, str] = OrderedDict()
        self._period_began = clock()
        self._lines = self._left_out = 0

    def __len__(self) -> int:
        return len(self._last)

    def answered(self, trigger: Trigger, workload: str, pods: int) -> None:
        """Note that a trigger got a value, from so many pods."""
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
        """Note that a trigger got an error, so that KEDA leaves the replicas as they are."""
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
            self._period_began = now
            self._lines = 0
        self._lines += 1
        if self._lines > MOST_LINES:
            self._left_out += 1
            return False
        return True


class NoAnswer(Exception):
    """A call ends with the status `code`. The text is one line that says why, and what to do."""

    def __init__(self, code: grpc.StatusCode, why: str) -> None:
        line = one_line(why).encode("ascii", "backslashreplace").decode()
        super().__init__(line if len(line) <= MOST_ERROR_CHARS else f"{line[:MOST_ERROR_CHARS]}...")
        self.code = code


class Scaler:
    """The four calls, answered by the current cluster role, which `current` gives.

    Every call raises NoAnswer if the trigger's metadata is wrong. All but `metric_spec` also raise it if the value is
    not known.
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
        """End every stream without an error. KEDA opens it again at once, if a server answers."""
        self._ending.set()

    async def metric_spec(self, asked: messages.ScaledObjectRef) -> messages.GetMetricSpecResponse:
        """The name of the metric, and the target for one pod."""
        trigger = _trigger(asked)
        # KEDA before 2.17 reads only the whole number. With 0 its HPA is refused: that is better than a rounded target.
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
        # KEDA before 2.17 reads only the whole number, rounded up so that a value above 0 does not become 0
        whole = max(-_MOST_INT, min(_MOST_INT, ceil(value)))
        metric = messages.MetricValue(metricName=trigger.metric, metricValue=whole, metricValueFloat=value)
        return messages.GetMetricsResponse(metricValues=[metric])

    async def is_active(self, asked: messages.ScaledObjectRef) -> messages.IsActiveResponse:
        """Whether the value is above the activation threshold."""
        trigger = _trigger(asked)
        return messages.IsActiveResponse(result=(await self._scaled(trigger)).value > trigger.threshold)

    async def stream_is_active(self, asked: messages.ScaledObjectRef) -> AsyncGenerator[messages.IsActiveResponse]:
        """Whether the value is above the threshold: now, and after each change.

        After NoAnswer KEDA waits for a while, and opens another stream.
        """
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
                # the nodes are asked with each pulse, and not more often
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), self._current().pulse_seconds or 1.0)
        finally:
            self._streams -= 1

    async def _scaled(self, trigger: Trigger) -> Scaled:
        """Return the answer or raise NoAnswer. Both are noted for the log."""
        try:
            cluster = self._current()
            workload = trigger.workload or await _scaled_by(cluster, trigger)
            question = trigger.question(workload)
            answer = scaled(await cluster.look(None), question)
            # the target of a ScaledObject exists, with pods or without
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
    """The target of the trigger's ScaledObject, as `<kind>:<name>`.

    Raises:
        SourceError: the target is not known.
    """
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
    """Log a fault of this program that ended a call. Return the call's status."""
    log.error("a call of KEDA failed by a fault of the exporter", error, call=of)
    return NoAnswer(grpc.StatusCode.INTERNAL, "a fault of the exporter: its log has the trace")
