"""The links of GPUs as NVML says them: NVLinks with their states and peers, the fabric, and PCIe's limits.

What never changes is asked for once, and the rest once a minute. A call that a driver or a GPU lacks is not made again
until the library is loaded anew. All of it runs on the worker thread.
"""

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from exporter.dcgm.links import MOST_LINKS, counter_name
from exporter.dcgm.table import FIELD_VALUES
from exporter.model.gpu_links import Fabric, GpuLinks, PcieLink
from exporter.model.kernel import pci_address
from exporter.sources.nvml.gpus import NvmlGpu
from exporter.sources.nvml.library import LACKS, Failed, Library

LINKS_SECONDS = 60.0
_LINK_COUNT = 91  # NVML_FI_DEV_NVLINK_LINK_COUNT
_STATE = 165  # NVML_FI_DEV_NVLINK_GET_STATE; its scope is the link
# NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY and …_RECOVERY: the same scope
_COUNTERS = {161: "replay", 162: "recovery"}
_BY_FIELD = "states by a field"
_COUNTED = "counters by link"
_GPU, _SWITCH = 0, 2  # NVML_NVLINK_DEVICE_TYPE_…
_COMPLETED = 3  # NVML_GPU_FABRIC_STATE_COMPLETED
_FAILED = 4  # DcgmFMStatusFailure; NVML's other states have DCGM's numbers
_PEER_TYPE = "nvmlDeviceGetNvLinkRemoteDeviceType"
_PEER_ADDRESS = "nvmlDeviceGetNvLinkRemotePciInfo"
# the newest version has the summary, too
_FABRIC_VERSIONS = ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t")
_OF_FABRIC = "nvmlDeviceGetGpuFabricInfoV"


@dataclass(slots=True)
class _GpuFacts:
    """What is certain of a GPU, and the calls that it lacks."""

    address: str = ""
    link_count: int = 0
    peers: dict[str, str] = field(default_factory=dict)
    asked_peers: set[str] = field(default_factory=set)
    limits: PcieLink = field(default_factory=PcieLink)
    lacks: set[str] = field(default_factory=set)


class NvmlLinks:
    """A reader of the links of all GPUs."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.forget()

    def forget(self) -> None:
        """Forget everything, since the library was loaded again: the driver may be another one."""
        self._facts: dict[str, _GpuFacts] = {}
        self._names: dict[str, str] = {}  # by address on PCI
        self._read_at: float | None = None

    def is_due(self, gpus: Iterable[NvmlGpu], now: float) -> bool:
        """Whether links are to be read again: a GPU is new, or a minute has passed. If so, `now` counts as read."""
        is_new = any(gpu.in_inventory.uuid not in self._facts for gpu in gpus)
        if not is_new and self._read_at is not None and now - self._read_at < LINKS_SECONDS:
            return False
        self._read_at = now
        return True

    def know(self, gpu: NvmlGpu) -> None:
        """Ask for what never changes, so that links to this GPU have its name. Raises Failed: see `optional`."""
        uuid = gpu.in_inventory.uuid
        if uuid not in self._facts:
            self._facts[uuid] = self._first_read(gpu)
        address = self._facts[uuid].address
        if address:
            self._names[address] = f"GPU {gpu.in_inventory.index}"

    def _first_read(self, gpu: NvmlGpu) -> _GpuFacts:
        """What never changes of a GPU."""
        facts = _GpuFacts()
        pci = self._ask(facts, "nvmlDeviceGetPciInfo_v3", gpu.handle)
        facts.address = pci_address(pci.busId) if pci else ""
        count = self._field_values(facts, gpu, (_LINK_COUNT,)).get((_LINK_COUNT, 0), 0)
        facts.link_count = min(count, MOST_LINKS)
        facts.limits = PcieLink(
            most_lanes=self._ask(facts, "nvmlDeviceGetMaxPcieLinkWidth", gpu.handle),
            highest_generation=self._ask(facts, "nvmlDeviceGetMaxPcieLinkGeneration", gpu.handle),
            generation_of_card=self._ask(facts, "nvmlDeviceGetGpuMaxPcieLinkGeneration", gpu.handle),
        )
        return facts

    def of(self, gpu: NvmlGpu) -> GpuLinks:
        """The links of a GPU that `know` has asked. One that is cut uses no NVLink, and is not asked for it.

        Raises Failed: see `optional`.
        """
        facts = self._facts[gpu.in_inventory.uuid]
        pcie = replace(
            facts.limits,
            lanes=self._ask(facts, "nvmlDeviceGetCurrPcieLinkWidth", gpu.handle),
            generation=self._ask(facts, "nvmlDeviceGetCurrPcieLinkGeneration", gpu.handle),
        )
        if gpu.is_cut or not facts.link_count:
            return GpuLinks(pcie=pcie)
        states = self._states(facts, gpu)
        counters = self._counters(facts, gpu)
        for link, state in states.items():
            if state and link not in facts.asked_peers:
                facts.asked_peers.add(link)
                peer = self._peer(facts, gpu, int(link))
                if peer:
                    facts.peers[link] = peer
        return GpuLinks(
            states=states,
            counters=counters,
            peers=dict(facts.peers),
            pcie=pcie,
            fabric=self._fabric(facts, gpu),
        )

    def _states(self, facts: _GpuFacts, gpu: NvmlGpu) -> dict[str, int]:
        """The states of a GPU's links by number: in one call, or for older drivers in one for each link."""
        links = range(facts.link_count)
        if _BY_FIELD not in facts.lacks:
            answers = self._field_values(facts, gpu, tuple((_STATE, link) for link in links))
            if answers:
                return {str(link): state for (_, link), state in answers.items()}
            facts.lacks.add(_BY_FIELD)
        states = {str(link): self._ask(facts, "nvmlDeviceGetNvLinkState", gpu.handle, link) for link in links}
        return {link: state for link, state in states.items() if state is not None}

    def _counters(self, facts: _GpuFacts, gpu: NvmlGpu) -> dict[str, int]:
        """The replays and recoveries of each link, where the GPU counts them so: on Hopper."""
        if _COUNTED in facts.lacks:
            return {}
        links = range(facts.link_count)
        answers = self._field_values(facts, gpu, tuple((number, link) for number in _COUNTERS for link in links))
        if not answers:
            facts.lacks.add(_COUNTED)
        return {counter_name(_COUNTERS[number], str(link)): count for (number, link), count in answers.items()}

    def _peer(self, facts: _GpuFacts, gpu: NvmlGpu, link: int) -> str:
        """To what a link leads, in words; "" if NVML does not say it."""
        kind = self._ask(facts, _PEER_TYPE, gpu.handle, link)
        if kind == _SWITCH:
            return "the NVSwitch"
        if kind != _GPU:
            return ""
        pci = self._ask(facts, _PEER_ADDRESS, gpu.handle, link)
        return self._names.get(pci_address(pci.busId), "") if pci else ""

    def _fabric(self, facts: _GpuFacts, gpu: NvmlGpu) -> Fabric:
        for version in _FABRIC_VERSIONS:
            if version in facts.lacks:
                continue
            info = self._library.call(version)  # the struct, which only the bindings know
            if self._ask(facts, _OF_FABRIC, gpu.handle, ctypes.pointer(info), lacking=version) is not None:
                return _fabric_of(info)
        return Fabric()

    def _field_values(self, facts: _GpuFacts, gpu: NvmlGpu, wanted: tuple[Any, ...]) -> dict[tuple[int, int], int]:
        """The values of numbered fields, by number and scope; without those that the GPU does not support."""
        answered = self._ask(facts, FIELD_VALUES, gpu.handle, wanted) or ()
        values = [answer for answer in answered if answer.nvmlReturn == 0]
        return {(answer.fieldId, answer.scopeId): int(answer.value.uiVal) for answer in values}

    def _ask(self, facts: _GpuFacts, call: str, *arguments: object, lacking: str = "") -> Any | None:  # noqa: ANN401 - the bindings have no types
        """The answer; None if only this call fails. Raises Failed: the GPU or the library is gone.

        A call that the GPU lacks is noted under `lacking`, or under its own name, and not made again.
        """
        name = lacking or call
        if name in facts.lacks:
            return None
        try:
            return self._library.call(call, *arguments)
        except Failed as failed:
            if failed.scope != "call":
                raise
            if failed.code in LACKS:
                facts.lacks.add(name)
            return None


def _fabric_of(info: Any) -> Fabric:  # noqa: ANN401 - the bindings have no types
    """The fabric by a struct nvmlGpuFabricInfo_v2_t or …_v3_t. Its status counts only once the state is completed."""
    state = info.state & 0xFF  # an unsigned char in nvml.h, and an int in the bindings
    has_failed = state == _COMPLETED and info.status != 0
    return Fabric(
        manager=_FAILED if has_failed else state,
        mask=info.healthMask,
        summary=getattr(info, "healthSummary", None),
    )
