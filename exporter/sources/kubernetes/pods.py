"""The pods of this node, by the Kubernetes API."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from math import inf

from exporter.attribution.workloads import read_owners
from exporter.model.pods import Bearers, PodInfo
from exporter.model.snapshot import Health
from exporter.sources.any_pods import PODS
from exporter.sources.kubernetes.api import KubernetesApi, Object
from exporter.sources.kubernetes.list_watch import ListWatch
from exporter.sources.pod_table import PodTable
from exporter.sources.source import PATIENCE_SECONDS, Bound, OnHealth


def read_pod(pod: Object) -> PodInfo:
    """A Pod of core/v1 as JSON, as far as this program reads it."""
    metadata, status = pod.get("metadata", {}), pod.get("status", {})
    phase = status.get("phase", "")
    return PodInfo(
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        labels=dict(metadata.get("labels") or {}),
        owners=read_owners(metadata.get("ownerReferences")),
        phase=phase,
        ip=status.get("podIP", ""),
        created_at_seconds=_seconds(metadata.get("creationTimestamp")),
        container_ids={
            container["name"]: container["containerID"]
            for statuses in ("initContainerStatuses", "containerStatuses")
            for container in status.get(statuses) or ()
            if container.get("containerID")
        },
        # startTime is when the kubelet acknowledged the pod; the scheduler leaves it and the statuses empty
        is_acknowledged=bool(status.get("startTime") or status.get("containerStatuses"))
        or phase not in ("", "Pending"),
    )


def _seconds(time: object) -> float | None:
    """A Time of meta/v1 (RFC 3339) in seconds since 1970; None where it says nothing."""
    try:
        seconds = datetime.fromisoformat(str(time)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if seconds > 0 else None


class ApiPods:
    """The pods of this node, kept up to date by the API server.

    A list that could forget something is asked for without a resourceVersion, which means the newest state there is:
    what it lacks is gone. Only an empty one is not believed at once (see PodTable.replace).
    """

    name = PODS
    patience_seconds = PATIENCE_SECONDS

    def __init__(
        self,
        *,
        api: KubernetesApi,
        node_name: str,
        on_health: OnHealth,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = PodTable()
        self.bounds: Mapping[str, Bound] = self._table.bounds(clock)
        self._clock = clock
        self._api = api
        self._listed = ListWatch(
            PODS,
            api,
            paths=("/api/v1/pods",),
            selector=f"spec.nodeName={node_name}",
            read=read_pod,
            replace=lambda pods: self._table.replace(pods, now=clock()),
            put=lambda pod: self._table.put(pod, now=clock()),
            remove=lambda pod: self._table.remove(pod.uid, now=clock()),
            on_health=self._note_health,
        )
        self._on_health = on_health
        self.begin = self._listed.watch.begin

    @property
    def health(self) -> Health:
        """How the watch is."""
        return self._listed.watch.health

    @property
    def pods(self) -> Mapping[tuple[str, str], PodInfo]:
        """By namespace and name; the same object as long as nothing changed."""
        return self._table.by_name(now=self._clock())

    @property
    def bearers(self) -> Bearers:
        """Who bears a name, and who did; the same object as long as nothing changed."""
        return self._table.bearers(now=self._clock())

    def _note_health(self, name: str, health: Health) -> None:
        self._table.cut_off(inf if health.up else self._clock())
        self._on_health(name, health)

    async def close(self) -> None:
        """End the watch and the connections."""
        await self._listed.watch.close()
        await self._api.close()
