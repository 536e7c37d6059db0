"""The context of a look: the settings that decide, and what the kubelet and ResourceSlices say beside devices."""

from dataclasses import replace

from exporter.model.snapshot import LookContext
from exporter.ownership.current import CurrentOwners, same
from exporter.sources.kubelet.assignments import KubeletSource
from exporter.sources.kubernetes.node_objects import Slices
from exporter.sources.source import OptionalSource, is_absent


class CurrentContext:
    """The context of a look now. It changes with the kubelet's answers, and is otherwise the same object."""

    def __init__(
        self, settings: LookContext, kubelet: KubeletSource, slices: OptionalSource[Slices], owners: CurrentOwners
    ) -> None:
        """`settings` has the parts that never change."""
        self._settings = settings
        self._kubelet = kubelet
        self._slices = slices
        self._owners = owners
        self._context: LookContext | None = None
        self._made_from: tuple[object, ...] = ()

    def now(self) -> LookContext:
        """As it is at this moment."""
        kubelet, slices = self._kubelet, self._slices.now
        slices_up = None if is_absent(slices.health) else slices.health.up is not False
        moving = (kubelet.outside, kubelet.version, self._owners.label_problems, slices.devices, slices_up)
        if self._context is None or not same(moving, self._made_from):
            self._made_from = moving
            self._context = replace(
                self._settings,
                outside=kubelet.outside,
                kubelet_version=kubelet.version,
                label_problems=self._owners.label_problems,
                slice_devices=slices.devices,
                slices_up=slices_up,
            )
        return self._context
