"""What the kubelet can hand out, handed out or not: GetAllocatableResources of its pod-resources API.

It is asked beside the pulse, since only accounting needs how many shares a GPU has. A scrape asks again where the last
answer lacks a device that the kubelet does not call unhealthy: the answer may be older than that word
(ownership/device_health.py). Kubelets before 1.21 do not know the question, 1.21 and 1.22 mostly refuse it: then
nothing is known, and nothing fails.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from exporter import log
from exporter._gen import podresources_v1_pb2 as v1
from exporter.config.node import KubeletSettings
from exporter.errors import Malformed, SourceError, Unsupported
from exporter.model.devices import GPU_MANAGER_RESOURCES, Allocatable
from exporter.model.snapshot import Health
from exporter.ownership.owners import is_meant
from exporter.ownership.retention import offered_now
from exporter.sources.kubelet.assignments import KeptAssignments
from exporter.sources.kubelet.pod_resources import MOST_ASSIGNMENTS
from exporter.sources.kubelet.socket import POD_RESOURCES, PodResourcesClient, parsed
from exporter.sources.polled import Polled
from exporter.sources.source import Attempt, Bound, OnHealth, absent

METHOD = "/v1.PodResourcesLister/GetAllocatableResources"
_SAYS_NOTHING = absent("what the kubelet can hand out is only good to know", "nothing is to be done")


def parse(body: bytes, resources: Sequence[str]) -> Allocatable:
    """A serialised AllocatableResourcesResponse as the device ids of `resources`; ids that name no device are left out.

    A resource may have an entry for each NUMA node, or for each device; they add up. Raises Malformed: the bytes are no
    such message, or name too many devices.
    """
    wrong = "the kubelet's answer is no AllocatableResourcesResponse"
    response = parsed(v1.AllocatableResourcesResponse(), body, wrong, POD_RESOURCES)
    names = {of.resource_name for of in response.devices}
    is_wanted = {name: is_meant(name, resources) and name not in GPU_MANAGER_RESOURCES for name in names}
    wanted = [of for of in response.devices if is_wanted[of.resource_name]]
    count = sum(len(of.device_ids) for of in wanted)
    if count > MOST_ASSIGNMENTS:
        message = f"the kubelet offers {count} devices, and at most {MOST_ASSIGNMENTS} are read"
        raise Malformed("oversize", message, remedy="name with --resources the resources whose devices are GPUs")
    ids: dict[str, set[str]] = {}
    for of in wanted:
        ids.setdefault(of.resource_name, set()).update(of.device_ids)
    return {resource: frozenset(of_resource) for resource, of_resource in ids.items()}


def _count(allocatable: Allocatable) -> int:
    return sum(map(len, allocatable.values()))


class KubeletAllocatable(Polled):
    """The ids on offer as the kubelet last named them. What it does not say stays (ownership/retention.py)."""

    patience_seconds = None

    def __init__(
        self,
        *,
        settings: KubeletSettings,
        resources: Sequence[str],
        kept: KeptAssignments,
        on_health: OnHealth,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`kept` holds what is on offer beside what is in force, and outlives this source."""
        super().__init__(
            "offers",
            on_health,
            again_seconds=settings.max_age_seconds,
            is_awaited=True,
            placeholder=_SAYS_NOTHING,
            clock=clock,
        )
        self._resources = tuple(resources)
        self._kept = kept
        self._client = PodResourcesClient(settings.socket, settings.timeout_seconds)
        self._complained = False
        self.bounds: Mapping[str, Bound] = {
            "offered_devices": Bound(MOST_ASSIGNMENTS, lambda: _count(self.allocatable))
        }

    @property
    def allocatable(self) -> Allocatable:
        """The ids on offer, by resource. The same object as long as nothing changed."""
        return self._kept.allocatable

    @property
    def offered(self) -> Allocatable | None:
        """What the kubelet's last answer named, and nothing else; None before the first."""
        return self._kept.offered

    def ask_after(self, moment: float) -> Attempt | None:
        """An answer that is asked for after this moment of the clock; None where there is one, and it is fresh."""
        self.look_after(moment)
        return self.begin()

    async def close(self) -> None:
        """End the call in flight and the channel."""
        await super().close()
        await self._client.close()

    async def _look(self) -> Health:
        # its failures are the kubelet's, whose health says so
        try:
            answer = parse(await self._client.call(METHOD, versions="GetAllocatableResources"), self._resources)
        except SourceError as error:
            log.debug("what the kubelet can hand out is not known", reason=error.reason, error=str(error))
            if isinstance(error, Unsupported) and not self._complained:
                self._complained = True
                log.info("the kubelet does not say how many shares a GPU has: those held count as all")
        else:
            kept = self._kept
            now = offered_now(kept.allocatable, answer, kept.retained.assignments, kept.read)
            kept.offered = kept.offered if answer == kept.offered else answer
            kept.allocatable = now if _count(now) <= MOST_ASSIGNMENTS else answer
        return _SAYS_NOTHING
