"""The questions of a look about new claims: their devices, and whether they have admin access."""

from typing import TYPE_CHECKING

from exporter.model.devices import NO_PLACES, Assignment, CdiPlaces, cdi_names_among
from exporter.node.waiting import Streams, begin, hear
from exporter.ownership.owners import needs_slices

if TYPE_CHECKING:
    from exporter.node.handover import WantedStreams
    from exporter.ownership.current import CurrentOwners
    from exporter.sources.cdi.cdi_source import CdiInventory
    from exporter.sources.claim_access import Claims
    from exporter.sources.kubelet.assignments import KubeletSource
    from exporter.sources.node_inventory import Inventories
    from exporter.sources.resource_slices import Slices
    from exporter.sources.source import Attempt, OptionalSource


class ClaimLookUp:
    """Asks all sources that know claims, and tells the owners and the kubelet's source."""

    def __init__(
        self,
        *,
        kubelet: "KubeletSource",
        specs: "CdiInventory | None",
        access: "Claims",
        slices: "OptionalSource[Slices]",
        owners: "CurrentOwners",
        wanted: "WantedStreams",
    ) -> None:
        """`kubelet` names the claims. `specs`, `access` and `slices` are the sources that it asks."""
        self._kubelet = kubelet
        self._specs = specs
        self._access = access
        self._slices = slices
        self._owners = owners
        self._wanted = wanted
        self._seen_in: frozenset[Assignment] = frozenset()
        self._places_seen: CdiPlaces = NO_PLACES
        self._specs_read_for: frozenset[Assignment] = frozenset()
        self._reading_specs: Attempt | None = None
        self._noted = access.facts

    async def look(self, inventory: "Inventories", wait_seconds: float | None, began: float) -> Streams:
        """Ask for the devices of the claims. Returns the streams whose first answer is awaited."""
        await self._read_specs(wait_seconds, began)
        return self._begin_slices(inventory)

    async def _read_specs(self, wait_seconds: float | None, began: float) -> None:
        """Read the CDI specs of new claims. The driver writes a spec before the kubelet names its devices."""
        assignments = self._kubelet.assignments
        if assignments is self._specs_read_for:
            return
        self._specs_read_for = assignments
        specs = self._specs
        if specs is None:
            return
        names = cdi_names_among(assignments)
        if not names <= specs.inventory.places.keys():
            self._reading_specs = specs.look_again()
            await hear([(specs, self._reading_specs)], None, wait_seconds, began)
            new = names - self._owners.knowledge.places.keys()
            self._owners.learn(specs.inventory.places, self._owners.knowledge.claims)
            self._kubelet.settle(new)

    async def ask_of_access(self, wait_seconds: float | None, began: float) -> None:
        """Ask whether new claims have admin access, once it is decided which claims are followed.

        A claim without admin access may have taken the device of another pod.
        """
        answer = self._access.begin(self._kubelet.assignments)
        if answer is not None:
            await hear([(self._access, answer)], None, wait_seconds, began)
        before = self._noted
        self._noted = self._access.facts
        if self._noted is not before:
            self._owners.learn(self._owners.knowledge.places, self._noted)
            new = (self._noted.asked_of or frozenset()) - (before.asked_of or frozenset())
            self._kubelet.settle({name for claim in new for name in claim.cdi_names})

    def _begin_slices(self, inventory: "Inventories") -> Streams:
        """Read ResourceSlices once a claim needs them. Returns the stream whose first answer is awaited."""
        streams: Streams = []
        slices = self._slices
        assignments = self._kubelet.assignments
        if slices.is_there or assignments is self._seen_in:
            return streams
        if self._reading_specs is not None and not self._reading_specs.done():
            return streams  # this look could not wait for the node's own CDI specs
        places = {**self._owners.knowledge.places, **inventory.inventory.places}
        seen = self._places_seen
        is_as_before = [places.get(name, place) for name, place in seen.items()] == list(seen.values())
        unseen = assignments - self._seen_in if is_as_before else assignments
        if not any(needs_slices(assignment, places) for assignment in unseen):
            self._seen_in = assignments
            self._places_seen = places
            return streams
        # every look tries again until the source is there, as a token may be mounted later
        begin(slices, streams)
        self._wanted.slices = slices.is_there
        return streams
