"""The facts that explanations need, as they are now. They move with the kubelet's answers, not with the scrapes."""

from dataclasses import replace

from exporter.attribution.current import CurrentOwners, same
from exporter.model.snapshot import Facts
from exporter.sources.kubelet.assignments import KubeletSource
from exporter.sources.kubernetes.slices import Slices
from exporter.sources.late import Late
from exporter.sources.source import is_absent


class FactsOfNow:
    """The same object as long as nothing moved."""

    def __init__(self, settings: Facts, kubelet: KubeletSource, slices: Late[Slices], owners: CurrentOwners) -> None:
        """`settings` are the facts that never move."""
        self._settings = settings
        self._kubelet = kubelet
        self._slices = slices
        self._owners = owners
        self._facts: Facts | None = None
        self._made_from: tuple[object, ...] = ()

    def now(self) -> Facts:
        """All of them."""
        kubelet, slices = self._kubelet, self._slices.now
        slices_up = None if is_absent(slices.health) else slices.health.up is not False
        moving = (kubelet.outside, kubelet.version, self._owners.label_problems, slices.devices, slices_up)
        if self._facts is None or not same(moving, self._made_from):
            self._made_from = moving
            self._facts = replace(
                self._settings,
                outside=kubelet.outside,
                kubelet_version=kubelet.version,
                label_problems=self._owners.label_problems,
                slice_devices=slices.devices,
                slices_up=slices_up,
            )
        return self._facts
