"""What KEDA's ScaledObjects scale: the Kubernetes API is asked for each that comes up, which is remembered.

`spec.scaleTargetRef` names a workload of the ScaledObject's own namespace; without a kind it is a Deployment (KEDA's
ParseGVKR).
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from exporter.attribution.workloads import is_object_name
from exporter.errors import Malformed, SourceError, Unavailable, Unsupported
from exporter.model.snapshot import Health
from exporter.sources.kubernetes.api import Forgotten, KubernetesApi, Object
from exporter.sources.kubernetes.workloads import Remembered
from exporter.sources.source import PATIENCE_SECONDS, Attempt, Attempts, Bound, OnHealth

NAME = "scaled_objects"
MANIFEST = "deploy/keda/rbac.yaml"
MEANWHILE = "only ScaledObjects whose trigger names its `workload` are answered"
# Each ScaledObject is asked about twice every 15 s or so. Whoever edits one waits for no longer than this.
KEPT_SECONDS = 30.0
FAILURE_KEPT_SECONDS = 5.0
MOST = 4096
AT_ONCE = 8
USUAL_KIND = "Deployment"
_PATH = "/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects/{name}"


class Target(NamedTuple):
    """What a ScaledObject scales."""

    kind: str
    name: str


class ScaledObjects:
    """The targets of ScaledObjects. Nothing is asked before somebody asks here."""

    name = NAME
    patience_seconds = PATIENCE_SECONDS

    def __init__(self, *, api: KubernetesApi, on_health: OnHealth, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._attempts = Attempts(NAME, on_health)
        self._known: Remembered[Target | SourceError] = Remembered(MOST, clock)
        self._running: dict[tuple[str, str], asyncio.Task[Target | SourceError]] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self.bounds: Mapping[str, Bound] = {NAME: Bound(MOST, lambda: len(self._known))}

    @property
    def health(self) -> Health:
        """How the last question went. That there is no such ScaledObject is an answer."""
        return self._attempts.health

    def begin(self) -> Attempt | None:
        """Nothing is due by itself."""
        return None

    async def close(self) -> None:
        """End what is in flight."""
        running = tuple(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._api.close()

    async def target(self, namespace: str, name: str) -> Target:
        """What a ScaledObject scales. Everyone who asks for one at a time shares the question.

        Raises:
            SourceError: it cannot be known now. Unsupported where the API knows no such ScaledObject.
        """
        key = (namespace, name)
        known = self._known.get(key)
        if known is not None and known[1]:
            found = known[0]
        else:
            task = self._running.get(key)
            if task is None:
                task = self._running[key] = asyncio.create_task(self._ask(namespace, name))
                task.add_done_callback(lambda _: self._running.pop(key, None))
            await asyncio.wait({task})
            if task.cancelled():
                raise Unavailable(
                    "unreachable", "the question was given up", remedy="ask again: the configuration changed"
                )
            found = task.result()
        if isinstance(found, SourceError):
            raise found.with_traceback(None)
        return found

    async def _ask(self, namespace: str, name: str) -> Target | SourceError:
        found: Target | SourceError
        async with self._places:
            began = time.monotonic()
            failed: SourceError | None = None
            try:
                found = _target(await self._api.get(_PATH.format(namespace=namespace, name=name)), namespace, name)
            except (Unsupported, Forgotten):
                found = Unsupported(
                    "unimplemented",
                    f"the Kubernetes API knows no ScaledObject {namespace}/{name}",
                    remedy="name the workload with `workload` in the trigger's metadata; a ScaledJob has no"
                    " scaleTargetRef",
                )
            except SourceError as error:
                found = failed = error
            self._attempts.note(failed, took_seconds=time.monotonic() - began, now_seconds=time.time())
        self._known.put(
            (namespace, name), found, FAILURE_KEPT_SECONDS if isinstance(found, SourceError) else KEPT_SECONDS
        )
        return found


def _target(item: Object, namespace: str, name: str) -> Target:
    """The target of a ScaledObject.

    Raises:
        Malformed: it names none.
    """
    spec = item.get("spec")
    reference = spec.get("scaleTargetRef") if isinstance(spec, Mapping) else None
    reference = reference if isinstance(reference, Mapping) else {}
    kind, target = reference.get("kind") or USUAL_KIND, reference.get("name")
    if not isinstance(target, str) or not is_object_name(target) or not isinstance(kind, str) or not kind.isalnum():
        raise Malformed(
            "garbage",
            f"ScaledObject {namespace}/{name} names no workload in spec.scaleTargetRef",
            remedy="give it the name, and the kind where it is no Deployment",
        )
    return Target(kind, target)
