"""KEDA as it asks an external scaler, and as it and the HPA decide by the answers (kedacore/keda 2.20)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import grpc
import grpc.aio

from exporter._gen import externalscaler_pb2 as messages

METHOD = "/externalscaler.ExternalScaler/"
# What KEDA adds to every trigger's metadata of its own.
KEDAS_OWN = {"scalerAddress": "pod-gpu-metrics-cluster.pod-gpu-metrics.svc:9401", "enableTLS": "false"}


@dataclass
class Keda:
    """One trigger `external` of a ScaledObject, by a channel to the scaler.

    `polls` is a round of KEDA's own loop, which goes from 0 to 1 and back; `hpa` one of the HPA, which goes on from 1.
    """

    channel: grpc.aio.Channel
    metadata: Mapping[str, str]
    name: str = "trainer"
    namespace: str = "ml"
    replicas: int = 0
    least: int = 0
    most: int = 8
    errors: list[grpc.aio.AioRpcError] = field(default_factory=list)

    @property
    def ref(self) -> messages.ScaledObjectRef:
        return messages.ScaledObjectRef(
            name=self.name, namespace=self.namespace, scalerMetadata={**KEDAS_OWN, **self.metadata}
        )

    async def call(self, method: str, asked: Any, answer: Any) -> Any:
        return await self.channel.unary_unary(METHOD + method, type(asked).SerializeToString, answer.FromString)(
            asked, timeout=10
        )

    async def metric_spec(self) -> messages.MetricSpec:
        found: messages.GetMetricSpecResponse
        found = await self.call("GetMetricSpec", self.ref, messages.GetMetricSpecResponse)
        (spec,) = found.metricSpecs
        return spec

    async def value(self, metric: str) -> float:
        asked = messages.GetMetricsRequest(scaledObjectRef=self.ref, metricName=metric)
        (found,) = (await self.call("GetMetrics", asked, messages.GetMetricsResponse)).metricValues
        return found.metricValueFloat if found.metricValueFloat > 0 else float(found.metricValue)

    async def is_active(self) -> bool:
        found: messages.IsActiveResponse = await self.call("IsActive", self.ref, messages.IsActiveResponse)
        return found.result

    def stream(self) -> Any:
        return self.channel.unary_stream(
            METHOD + "StreamIsActive", messages.ScaledObjectRef.SerializeToString, messages.IsActiveResponse.FromString
        )(self.ref)

    async def _metrics_and_activity(self) -> tuple[float, bool] | None:
        """None after two errors, as KEDA makes its scaler anew and asks once more."""
        spec = await self.metric_spec()
        for _ in range(2):
            try:
                # in this order (external_scaler.go, GetMetricsAndActivity)
                value = await self.value(spec.metricName)
                return value, await self.is_active()
            except grpc.aio.AioRpcError as error:
                self.errors.append(error)
        return None

    async def polls(self) -> int:
        """The replicas after a round of KEDA's loop."""
        found = await self._metrics_and_activity()
        if found is not None:
            _, is_active = found
            if is_active and self.replicas == 0:
                self.replicas = max(1, self.least)
            elif not is_active and self.least == 0:
                self.replicas = 0  # after the cooldown period
        return self.replicas

    async def hpa(self) -> int:
        """The replicas after a round of the HPA with metricType AverageValue, which rests while there are none."""
        if self.replicas == 0:
            return 0
        spec = await self.metric_spec()
        found = await self._metrics_and_activity()
        if found is not None:
            target = spec.targetSizeFloat if spec.targetSizeFloat > 0 else float(spec.targetSize)
            wanted = ceil(round(found[0], 3) / round(target, 3))
            self.replicas = min(self.most, max(1, self.least, wanted))
        return self.replicas
