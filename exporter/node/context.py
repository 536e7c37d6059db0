"""The context of a look: the settings that decide, and what the kubelet and ResourceSlices say beside devices."""

from dataclasses import dataclass, replace

from exporter.model.snapshot import LookContext
from exporter.ownership.current import CurrentOwners, same
from exporter.sources.kubelet.assignments import KubeletSource
from exporter.sources.kubernetes.node_objects import Slices
from exporter.sources.source import OptionalSource, is_absent


@dataclass(eq=False)
class CurrentContext:
    """The context of a look now: the same object as long as nothing changed. `settings` has what never changes."""

    settings: LookContext
    kubelet: KubeletSource
    slices: OptionalSource[Slices]
    owners: CurrentOwners
    _context: LookContext | None = None
    _made_from: tuple[object, ...] = ()

    def now(self) -> LookContext:
        """As it is at this moment."""
        kubelet, slices = self.kubelet, self.slices.now
        slices_up = None if is_absent(slices.health) else slices.health.up is not False
        moving = (kubelet.outside, kubelet.version, self.owners.label_problems, slices.devices, slices_up)
        if self._context is None or not same(moving, self._made_from):
            self._made_from = moving
            self._context = replace(
                self.settings,
                outside=kubelet.outside,
                kubelet_version=kubelet.version,
                label_problems=self.owners.label_problems,
                slice_devices=slices.devices,
                slices_up=slices_up,
            )
        return self._context
