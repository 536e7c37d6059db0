"""The questions of a look about new claims: their devices, and whether they have admin access."""

from typing import TYPE_CHECKING

from exporter.model.devices import NO_PLACES, Assignment, CdiPlaces, cdi_names_among
from exporter.node.part import Asking
from exporter.ownership.owners import needs_slices
from exporter.sources.cdi.cdi_source import CdiInventory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from exporter.node.handover import WantedStreams
    from exporter.node.shared_sources import Sources
    from exporter.ownership.current import CurrentOwners
    from exporter.sources.source import Attempt, Bound, Source


class ClaimLookUp:
    """Asks all sources that know claims, and tells the owners and the kubelet's source."""

    def __init__(self, sources: "Sources", owners: "CurrentOwners", wanted: "WantedStreams") -> None:
        self._kubelet = sources.kubelet
        self._slices = sources.slices
        self._access = access = sources.claims
        self._inventory = inventory = sources.inventory
        self._specs = next((part for part in inventory.parts if isinstance(part, CdiInventory)), None)
        self._owners = owners
        self._wanted = wanted
        self._seen_in: frozenset[Assignment] = frozenset()
        self._places_seen: CdiPlaces = NO_PLACES
        self._specs_read_for: frozenset[Assignment] = frozenset()
        self._reading_specs: Attempt | None = None
        self._noted = access.facts

    @property
    def bounds(self) -> "Mapping[str, Bound]":
        """Those of ResourceSlices, read or not."""
        return self._slices.bounds

    @property
    def shown(self) -> "Sequence[Source]":
        """The sources that it asks."""
        return self._slices.now, self._access

    def ask(self, asking: Asking) -> None:
        """Keep the stream of ResourceSlices open, once it was needed."""
        if self._slices.is_there:
            asking.begin(self._slices)

    async def follow_up(self, asking: Asking) -> None:
        """Ask for the devices of the claims that the kubelet names now. It waits for all that the look has begun."""
        await self._read_specs(asking)
        self._begin_slices(asking)
        if asking.awaited:
            # the first page should be complete, since a label that comes later makes another series
            await asking.hear()
        self._kubelet.follow(self._inventory.inventory.places)
        await self._ask_of_access(asking)

    async def _read_specs(self, asking: Asking) -> None:
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
            await asking.hear_one(specs, self._reading_specs)
            new = names - self._owners.knowledge.places.keys()
            self._owners.learn(specs.inventory.places, self._owners.knowledge.claims)
            self._kubelet.settle(new)

    async def _ask_of_access(self, asking: Asking) -> None:
        """Ask whether new claims have admin access, once it is decided which claims are followed.

        A claim without admin access may have taken the device of another pod.
        """
        answer = self._access.begin(self._kubelet.assignments)
        if answer is not None:
            await asking.hear_one(self._access, answer)
        before = self._noted
        self._noted = self._access.facts
        if self._noted is not before:
            self._owners.learn(self._owners.knowledge.places, self._noted)
            new = (self._noted.asked_of or frozenset()) - (before.asked_of or frozenset())
            self._kubelet.settle({name for claim in new for name in claim.cdi_names})

    def _begin_slices(self, asking: Asking) -> None:
        """Read ResourceSlices once a claim needs them."""
        slices = self._slices
        assignments = self._kubelet.assignments
        if slices.is_there or assignments is self._seen_in:
            return
        if self._reading_specs is not None and not self._reading_specs.done():
            return  # this look could not wait for the node's own CDI specs
        places = {**self._owners.knowledge.places, **self._inventory.inventory.places}
        seen = self._places_seen
        is_as_before = [places.get(name, place) for name, place in seen.items()] == list(seen.values())
        unseen = assignments - self._seen_in if is_as_before else assignments
        if not any(needs_slices(assignment, places) for assignment in unseen):
            self._seen_in = assignments
            self._places_seen = places
            return
        # every look tries again until the source is there, as a token may be mounted later
        asking.begin(slices)
        self._wanted.slices = slices.is_there
