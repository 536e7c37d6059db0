"""What the kubelet can hand out, handed out or not: GetAllocatableResources of its pod-resources API.

It is asked beside the pulse and never in a scrape's way, since only accounting needs it: how many shares a GPU has.
Kubelets before 1.21 do not know the question, and those of 1.21 and 1.22 mostly refuse it. Then nothing is known, and
nothing fails.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from google.protobuf.message import DecodeError

from exporter._gen import podresources_v1_pb2 as v1
from exporter.accounting.units import are_units
from exporter.attribution.offers import offered_now
from exporter.attribution.owners import is_meant
from exporter.config.node import KubeletSettings
from exporter.errors import Malformed, SourceError, Unsupported
from exporter.log import debug, log
from exporter.model.devices import Offers
from exporter.model.snapshot import Health
from exporter.sources.kubelet.assignments import Kept
from exporter.sources.kubelet.pod_resources import MOST_ASSIGNMENTS
from exporter.sources.kubelet.socket import POD_RESOURCES, PodResourcesClient
from exporter.sources.single_flight import SingleFlight
from exporter.sources.source import Bound, OnHealth, absent

METHOD = "/v1.PodResourcesLister/GetAllocatableResources"
_SAYS_NOTHING = absent("what the kubelet can hand out is only good to know", "nothing is to be done")


def parse(body: bytes, resources: Sequence[str]) -> Offers:
    """A serialised AllocatableResourcesResponse as the device ids of `resources`; ids that name no device are left out.

    A resource may have an entry for each NUMA node, or for each device; they add up.

    Raises:
        Malformed: the bytes are no such message, or name too many devices.
    """
    response = v1.AllocatableResourcesResponse()
    try:
        response.ParseFromString(body)
    except DecodeError as error:
        raise Malformed(
            "garbage",
            f"the kubelet's answer is no AllocatableResourcesResponse: {error}",
            remedy=POD_RESOURCES.is_this_it,
        ) from error
    names = {of.resource_name for of in response.devices}
    is_wanted = {name: is_meant(name, resources) and not are_units(name) for name in names}
    wanted = [of for of in response.devices if is_wanted[of.resource_name]]
    count = sum(len(of.device_ids) for of in wanted)
    if count > MOST_ASSIGNMENTS:
        raise Malformed(
            "oversize",
            f"the kubelet offers {count} devices, and at most {MOST_ASSIGNMENTS} are read",
            remedy="name with --resources the resources whose devices are GPUs",
        )
    ids: dict[str, set[str]] = {}
    for of in wanted:
        ids.setdefault(of.resource_name, set()).update(of.device_ids)
    return {resource: frozenset(of_resource) for resource, of_resource in ids.items()}


def _count(offers: Offers) -> int:
    return sum(map(len, offers.values()))


class KubeletOffers:
    """The ids on offer as the kubelet last named them. What it does not say stays (attribution/offers.py)."""

    name = "offers"
    health: Health = _SAYS_NOTHING
    patience_seconds = None

    def __init__(
        self,
        *,
        settings: KubeletSettings,
        resources: Sequence[str],
        kept: Kept,
        on_health: OnHealth,  # noqa: ARG002 - its failures are the kubelet's, whose health says so
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`kept` holds what is on offer beside what is in force, and outlives this source."""
        self._settings = settings
        self._resources = tuple(resources)
        self._kept = kept
        self._clock = clock
        self._flight = SingleFlight(self._refresh)
        self._asked_at: float | None = None
        self._client = PodResourcesClient(settings.socket, settings.timeout_seconds)
        self._complained = False
        self.bounds: Mapping[str, Bound] = {"offered_devices": Bound(MOST_ASSIGNMENTS, lambda: _count(self.offers))}

    @property
    def offers(self) -> Offers:
        """The ids on offer, by resource. The same object as long as nothing changed."""
        return self._kept.offers

    def begin(self) -> asyncio.Task[None] | None:
        """The call in flight, or a new one; None while the last one is younger than --kubelet.max-age.

        The task raises nothing for the kubelet's sake.
        """
        is_fresh = self._asked_at is not None and self._clock() - self._asked_at < self._settings.max_age_seconds
        return None if is_fresh else self._flight.begin()

    async def close(self) -> None:
        """End the call in flight and the channel."""
        await self._flight.close()
        await self._client.close()

    async def _refresh(self) -> None:
        try:
            answer = parse(await self._client.call(METHOD, versions="GetAllocatableResources"), self._resources)
        except SourceError as error:
            debug("what the kubelet can hand out is not known", reason=error.reason, error=str(error))
            if isinstance(error, Unsupported) and not self._complained:
                self._complained = True
                log(logging.INFO, "the kubelet does not say how many shares a GPU has: those held count as all")
        else:
            kept = self._kept
            now = offered_now(kept.offers, answer, kept.retained.assignments, kept.read)
            kept.offers = now if _count(now) <= MOST_ASSIGNMENTS else answer
        self._asked_at = self._clock()
