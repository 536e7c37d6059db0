"""The links of GPUs as they are: NVLinks that are down, NVLink's fabric, and PCIe links that could be faster.

A link that is down may be no fault: a card without a bridge, NVLink switched off, a GPU that is cut into instances. So
a link is only called down if it was up before, or if the same link is up on every other GPU of the model on the node.
PCIe lowers its generation while a GPU is idle, so a low one counts only under load.

Pure, except for what it remembers. Moments are seconds since 1970.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from exporter.errors import Trouble
from exporter.model.gpu_links import Fabric, GpuLinks
from exporter.model.health import HealthReason
from exporter.wording import and_listed

LOAD_SECONDS = 120.0
"""A PCIe link under load has its full generation within this time: dcgm-exporter reads every 30 s."""
FABRIC_SECONDS = 300.0
"""The fabric takes a GPU in within this time after a start of the node."""
_BUSY = 0.1  # of activity: a GPU that works so much has raised its clocks and its link
_MOST_NAMED = 6
_LINK = "look at nvidia-smi nvlink -s and at switch or bridge; reset the GPU when it is free, and check the link"
_MANAGER = "look at nvidia-smi -q, and at the fabric manager on the node: systemctl status nvidia-fabricmanager"
_SEAT = "when it is free, have the card reseated; look at riser and slot, and at lspci -vv (LnkCap, LnkSta)"
_SLOT = "for more, put the card into another slot, or look at the firmware's settings for the slot"
DOWN = HealthReason("nvlink-down", "NVLinks are down", _LINK, "degraded")
NO_FABRIC = HealthReason("fabric", "it could not join NVLink's fabric", _MANAGER, "failing")
LATE_FABRIC = HealthReason("fabric", "it has not joined NVLink's fabric for minutes", _MANAGER, "degraded")
ILL_FABRIC = HealthReason("fabric", "NVLink's fabric is not well", _MANAGER, "degraded")
NARROW = HealthReason("pcie-width", "its PCIe link has fewer lanes than card and slot can have", _SEAT, "degraded")
SLOW = HealthReason(
    "pcie-generation",
    "under load its PCIe link stays below the generation that card and slot support",
    _SEAT,
    "degraded",
)
_NOT_STARTED, _IN_PROGRESS, _FAILED = 1, 2, 4  # dcgmFabricManagerStatus_t
_UNHEALTHY, _LIMITED = 2, 3  # NVML_GPU_FABRIC_HEALTH_SUMMARY_…
_TRUE = 1
# NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_…: two bits each, of which 1 means that it is so
_MASK = {
    0: "its bandwidth is lowered",
    2: "a route recovers",
    4: "a route is not well",
    6: "accesses that timed out are being mended",
}
_CONFIGURATION_SHIFT = 8
_CONFIGURATION_BITS = 0xF
# NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_…
_CONFIGURATION = {
    2: "the system's GUID is wrong",
    3: "the serial number of the chassis is wrong",
    4: "the GPU is in no partition",
    5: "the GPU has too few NVLinks",
    6: "the GPU's firmware does not fit",
    7: "the GPU's place is wrong",
    8: "the GPU's state is wrong",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAtWork:
    """A GPU with its links. `model` is "" and `activity` (0 to 1) is None if no source says it.

    `is_cut`: it has MIG instances, whose programs use no NVLink.
    """

    links: GpuLinks
    model: str = ""
    activity: float | None = None
    is_cut: bool = False


@dataclass(slots=True)
class LinkStates:
    """The states of links, from look to look.

    `down` are the NVLinks that are called down, by GPU, as they were at the last look.
    """

    down: Mapping[str, frozenset[str]] = field(default_factory=dict)
    _was_up: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _slow_since: dict[str, float] = field(default_factory=dict)
    _outside_since: dict[str, float] = field(default_factory=dict)

    def read(self, gpus: Mapping[str, GpuAtWork], at: float) -> None:
        """Take in all GPUs of the node at a look, by UUID."""
        self._note_down(gpus)
        slow = {uuid for uuid, gpu in gpus.items() if _is_slow(gpu)}
        outside = {uuid for uuid, gpu in gpus.items() if gpu.links.fabric.manager in (_NOT_STARTED, _IN_PROGRESS)}
        self._slow_since = {uuid: self._slow_since.get(uuid, at) for uuid in slow}
        self._outside_since = {uuid: self._outside_since.get(uuid, at) for uuid in outside}

    def _note_down(self, gpus: Mapping[str, GpuAtWork]) -> None:
        """Note which links are down, and which were up."""
        whole = {uuid: gpu for uuid, gpu in gpus.items() if gpu.links.states and not gpu.is_cut}
        up = {uuid: _up(gpu.links) for uuid, gpu in whole.items()}
        if not any(up.values()):
            # NVLink is switched off, or nobody says how links are
            self._was_up.clear()
            self.down = {}
            return
        down: dict[str, frozenset[str]] = {}
        for uuid, gpu in whole.items():
            others = [up[other] for other, of_other in whole.items() if other != uuid and of_other.model == gpu.model]
            up_elsewhere = set.intersection(*others) if others and gpu.model and up[uuid] else set()
            links = (self._was_up[uuid] | up_elsewhere) & (gpu.links.states.keys() - up[uuid])
            if links:
                down[uuid] = frozenset(links)
        for uuid, links_up in up.items():
            self._was_up[uuid] |= links_up
        for uuid in self._was_up.keys() - whole.keys():
            del self._was_up[uuid]
        self.down = down

    def reasons_of(self, uuid: str, gpu: GpuAtWork, at: float) -> Iterator[HealthReason]:
        """The reasons that the states of a GPU's links give against its health."""
        links = self.down.get(uuid)
        if links:
            yield reason_of_down(links, gpu.links.peers)
        fabric = _fabric_reason(gpu.links.fabric)
        if fabric is None and at - self._outside_since.get(uuid, at) >= FABRIC_SECONDS:
            fabric = LATE_FABRIC
        if fabric is not None:
            yield fabric
        pcie = gpu.links.pcie
        if pcie.lanes and pcie.most_lanes and pcie.lanes < pcie.most_lanes:
            text = f"its PCIe link has {pcie.lanes} lanes, of the {pcie.most_lanes} that card and slot can have"
            yield replace(NARROW, message=text)
        if at - self._slow_since.get(uuid, at) >= LOAD_SECONDS:
            can = f"below generation {pcie.highest_generation}, which card and slot support"
            yield replace(SLOW, message=f"under load its PCIe link stays {can}")


def advice_of(gpu: GpuAtWork, others: Mapping[str, GpuAtWork]) -> Iterator[Trouble]:
    """What could be faster with another slot: the card is well. `others` are all GPUs of the node."""
    pcie = gpu.links.pcie
    most = max((other.links.pcie.most_lanes or 0 for other in others.values() if other.model == gpu.model), default=0)
    if gpu.model and pcie.most_lanes and pcie.most_lanes < most:
        text = f"its slot gives it {pcie.most_lanes} lanes of PCIe; another GPU of this model has {most}"
        yield Trouble("", text, _SLOT)
    if pcie.generation_of_card and pcie.highest_generation and pcie.highest_generation < pcie.generation_of_card:
        text = f"its slot supports PCIe generation {pcie.highest_generation}, and the card {pcie.generation_of_card}"
        yield Trouble("", text, _SLOT)


def _up(links: GpuLinks) -> set[str]:
    return {link for link, state in links.states.items() if state}


def _is_slow(gpu: GpuAtWork) -> bool:
    """Whether a GPU works while its PCIe link is below the generation that it can."""
    pcie = gpu.links.pcie
    is_busy = gpu.activity is not None and gpu.activity >= _BUSY
    is_low = bool(pcie.generation and pcie.highest_generation and pcie.generation < pcie.highest_generation)
    return is_busy and is_low


def reason_of_down(links: frozenset[str], peers: Mapping[str, str]) -> HealthReason:
    """The reason that these links give against a GPU, since they are down. `peers` is as in `reason_of_links`."""
    return replace(DOWN, message=_down_text(links, peers))


def _down_text(links: frozenset[str], peers: Mapping[str, str]) -> str:
    names = [link_name(link, peers) for link in sorted(links, key=lambda link: (len(link), link))]
    if len(names) == 1:
        return f"link {names[0]} of NVLink is down"
    return f"links {and_listed(names, _MOST_NAMED)} of NVLink are down"


def link_name(link: str, peers: Mapping[str, str]) -> str:
    """A link's number, and to what it leads if that is known: `5 (to GPU 1)`."""
    peer = peers.get(link)
    return f"{link} (to {peer})" if peer else link


def _fabric_reason(fabric: Fabric) -> HealthReason | None:
    if fabric.manager == _FAILED:
        return NO_FABRIC
    wrong = [*_wrong(fabric.mask or 0)]
    if not wrong and fabric.summary not in (_UNHEALTHY, _LIMITED):
        return None
    if not wrong and fabric.summary == _LIMITED:
        wrong = ["its capacity is limited"]
    return replace(ILL_FABRIC, message=": ".join(filter(None, (ILL_FABRIC.message, and_listed(wrong, len(wrong))))))


def _wrong(mask: int) -> Iterator[str]:
    for shift, text in _MASK.items():
        if mask >> shift & 0b11 == _TRUE:
            yield text
    configuration = mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_BITS
    if configuration in _CONFIGURATION:
        yield _CONFIGURATION[configuration]
