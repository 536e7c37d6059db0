"""The targets of KEDA's ScaledObjects. The Kubernetes API is asked when KEDA names a ScaledObject; answers are kept.

`spec.scaleTargetRef` names a workload of the same namespace; without a kind it is a Deployment (KEDA's ParseGVKR).
"""

import asyncio
import time
from functools import partial
from typing import NamedTuple

from exporter.errors import Malformed, SourceError, Unavailable, Unsupported
from exporter.lenient import mapping
from exporter.ownership.workloads import is_object_name
from exporter.sources.kubernetes.api import Forgotten, KubernetesApi, Object
from exporter.sources.kubernetes.workloads import ExpiringCache
from exporter.sources.source import AskedSource, Attempt, Bound, Bounds, Clock, OnHealth

NAME = "scaled_objects"
MANIFEST = "deploy/keda/rbac.yaml"
MEANWHILE = "only ScaledObjects whose trigger names its `workload` are answered"
# KEDA asks twice about each ScaledObject, about every 15 s. A user's edit counts after this time at the latest.
KEPT_SECONDS = 30.0
FAILURE_KEPT_SECONDS = 5.0
MOST = 4096
AT_ONCE = 8
USUAL_KIND = "Deployment"
_PATH = "/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects/{name}"


class ScaledObjectTarget(NamedTuple):
    """The workload that a ScaledObject scales."""

    kind: str
    name: str


class ScaledObjects(AskedSource):
    """The targets of ScaledObjects. Only `target` asks the API. That a ScaledObject does not exist is kept, too."""

    def __init__(self, *, api: KubernetesApi, on_health: OnHealth, clock: Clock = time.monotonic) -> None:
        super().__init__(NAME, on_health)
        self._api = api
        self._targets: ExpiringCache[ScaledObjectTarget | SourceError] = ExpiringCache(MOST, clock)
        self._places = asyncio.Semaphore(AT_ONCE)
        self.bounds: Bounds = {NAME: Bound(MOST, lambda: len(self._targets))}

    def begin(self) -> Attempt | None:
        """Begin nothing: only `target` asks the API."""
        return None

    async def close(self) -> None:
        """End the questions in flight, and close the connections."""
        await self._targets.close()
        await self._api.close()

    async def target(self, namespace: str, name: str) -> ScaledObjectTarget:
        """The target of a ScaledObject. Callers that ask for the same one at the same time share the question.

        Raises SourceError: the target cannot be known now. Unsupported: the API has no such ScaledObject.
        """
        key = (namespace, name)
        target = self._targets.get(key)
        if target is None or not self._targets.is_fresh(key):
            task = self._targets.ask(key, partial(self._ask, namespace, name))
            await asyncio.wait({task})
            if task.cancelled():
                remedy = "ask again: the configuration changed"
                raise Unavailable("unreachable", "the question was given up", remedy=remedy)
            target = task.result()
        if isinstance(target, SourceError):
            raise target.with_traceback(None)
        return target

    async def _ask(self, namespace: str, name: str) -> ScaledObjectTarget | SourceError:
        target: ScaledObjectTarget | SourceError
        async with self._places:
            try:
                with self._attempts.noted():
                    target = await self._asked(namespace, name)
            except SourceError as error:
                target = error
        self._targets.put(
            (namespace, name), target, FAILURE_KEPT_SECONDS if isinstance(target, SourceError) else KEPT_SECONDS
        )
        return target

    async def _asked(self, namespace: str, name: str) -> ScaledObjectTarget | Unsupported:
        try:
            return _target(await self._api.get(_PATH.format(namespace=namespace, name=name)), namespace, name)
        except (Unsupported, Forgotten):
            remedy = "name the workload with `workload` in the trigger's metadata; a ScaledJob has no scaleTargetRef"
            return Unsupported(f"the Kubernetes API knows no ScaledObject {namespace}/{name}", remedy=remedy)


def _target(item: Object, namespace: str, name: str) -> ScaledObjectTarget:
    """The target of a ScaledObject. Raises Malformed: it names none."""
    reference = mapping(item, "spec", "scaleTargetRef")
    kind = reference.get("kind") or USUAL_KIND
    target = reference.get("name")
    if not isinstance(target, str) or not is_object_name(target) or not isinstance(kind, str) or not kind.isalnum():
        message = f"ScaledObject {namespace}/{name} names no workload in spec.scaleTargetRef"
        raise Malformed("garbage", message, remedy="give it the name, and the kind unless it is a Deployment")
    return ScaledObjectTarget(kind, target)
