"""All ids that the kubelet has, handed out or not: GetAllocatableResources of its pod-resources API.

The exporter asks it beside the pulse, since only accounting needs the number of a GPU's shares. A scrape asks again if
the last answer lacks a device that the kubelet does not call unhealthy, since the answer may be older than that word
(ownership/device_health.py). Kubelets before 1.21 do not know the question, and 1.21 and 1.22 mostly refuse it: then
nothing is known, and nothing fails.
"""

import time
from collections.abc import Sequence

from exporter import log
from exporter._gen import podresources_v1_pb2 as v1
from exporter.config.node_settings import KubeletSettings
from exporter.errors import Malformed, SourceError, Unsupported
from exporter.model.devices import GPU_MANAGER_RESOURCES, Allocatable
from exporter.model.snapshot import Health
from exporter.ownership.counted_ids import COUNTED, LEFT_OUT, counted
from exporter.ownership.owners import is_meant
from exporter.ownership.retention import offered_now
from exporter.sources.kubelet.assignments import KeptAssignments
from exporter.sources.kubelet.pod_resources import MOST_ASSIGNMENTS
from exporter.sources.kubelet.socket import POD_RESOURCES, PodResourcesClient, parsed
from exporter.sources.polled import Polled
from exporter.sources.source import Attempt, Bound, Bounds, Clock, OnHealth, absent

METHOD = "/v1.PodResourcesLister/GetAllocatableResources"
_SAYS_NOTHING = absent("what the kubelet can hand out is only good to know", "nothing is to be done")


def parse(body: bytes, resources: Sequence[str]) -> Allocatable:
    """The device ids of `resources` in a serialised AllocatableResourcesResponse, without ids that name no device.

    Each has the number of ids that it stands for. A resource may have an entry for each NUMA node, or for each device;
    they add up. Raises Malformed: the bytes are no such message, or name too many devices.
    """
    wrong = "the kubelet's answer is no AllocatableResourcesResponse"
    response = parsed(v1.AllocatableResourcesResponse(), body, wrong, POD_RESOURCES)
    names = {device.resource_name for device in response.devices}
    is_wanted = {name: is_meant(name, resources) and name not in GPU_MANAGER_RESOURCES | LEFT_OUT for name in names}
    wanted = [device for device in response.devices if is_wanted[device.resource_name]]
    of_counted: dict[str, set[str]] = {}
    for device in wanted:
        if device.resource_name in COUNTED:
            of_counted.setdefault(device.resource_name, set()).update(device.device_ids)
    groups = {resource: counted(ids) for resource, ids in of_counted.items()}
    others = [device for device in wanted if device.resource_name not in COUNTED]
    count = sum(map(len, groups.values())) + sum(len(device.device_ids) for device in others)
    if count > MOST_ASSIGNMENTS:
        message = f"the kubelet offers {count} devices, and at most {MOST_ASSIGNMENTS} are read"
        raise Malformed("oversize", message, remedy="name with --resources the resources whose devices are GPUs")
    ids: dict[str, set[str]] = {}
    for device in others:
        ids.setdefault(device.resource_name, set()).update(device.device_ids)
    return {**groups, **{resource: dict.fromkeys(of_resource, 1) for resource, of_resource in ids.items()}}


def _count(allocatable: Allocatable) -> int:
    return sum(map(len, allocatable.values()))


class KubeletAllocatable(Polled):
    """The ids on offer by the kubelet's last answer. Some ids that it lacks stay (ownership/retention.py)."""

    patience_seconds = None

    def __init__(
        self,
        *,
        settings: KubeletSettings,
        resources: Sequence[str],
        kept: KeptAssignments,
        on_health: OnHealth,
        clock: Clock = time.monotonic,
    ) -> None:
        """`kept` has the ids on offer and the assignments in force, and outlives this source."""
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
        self.bounds: Bounds = {"offered_devices": Bound(MOST_ASSIGNMENTS, lambda: _count(self.allocatable))}

    @property
    def allocatable(self) -> Allocatable:
        """The ids on offer, by resource. The same object as long as nothing changed."""
        return self._kept.allocatable

    @property
    def offered(self) -> Allocatable | None:
        """Only the ids that the kubelet's last answer named; None before the first answer."""
        return self._kept.offered

    def ask_after(self, moment: float) -> Attempt | None:
        """Ask for an answer after this moment of the clock; None if there is such an answer, and it is fresh."""
        self.look_after(moment)
        return self.begin()

    async def close(self) -> None:
        """End the call in flight and the channel."""
        await super().close()
        await self._client.close()

    async def _look(self) -> Health:
        """Ask the kubelet once. It never fails: the ids on offer stay as they are if no answer comes."""
        # its failures are the kubelet's, and the kubelet's health tells them
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
