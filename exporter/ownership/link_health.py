"""The health of GPUs by their links: what pages and NVML say of them, put together, and the reasons that they give.

Tests: tests/ownership/test_link_health.py, tests/ownership/test_link_states.py.
"""

import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from exporter.dcgm.fields import ACTIVITY, FIELDS, LINK_COUNTERS, Field
from exporter.dcgm.links import counter_name, link_number
from exporter.dividing.decimals import number
from exporter.model.driver import DriverReading
from exporter.model.gpu_links import Fabric, GpuLinks, PcieLink
from exporter.model.link_events import ERRORS_BEGAN, WENT_DOWN
from exporter.model.nothing import NOTHING
from exporter.model.pages import JoinedPage, Sampled
from exporter.model.slices import ITEMS_A_SLICE, Work
from exporter.ownership.link_errors import CountersOfPage, LinkErrors, reason_of_links
from exporter.ownership.link_states import GpuAtWork, LinkStates, advice_of, reason_of_down

if TYPE_CHECKING:
    from exporter.errors import Trouble
    from exporter.model.health import HealthReason

# as long as anything that a page says counts while the page is away
_GRACE_SECONDS = 120.0
# without another page or another word of NVML, time alone may bring or end a reason
_AGAIN_SECONDS = 10.0
_STATE = "DEV_NVLINK_GET_STATE"
_UTILIZATION = "DEV_GPU_UTIL"
_OF_PCIE = {
    "DEV_PCIE_LINK_WIDTH": "lanes",
    "DEV_PCIE_MAX_LINK_WIDTH": "most_lanes",
    "DEV_PCIE_LINK_GEN": "generation",
    "DEV_PCIE_MAX_LINK_GEN": "highest_generation",
}
_OF_FABRIC = {
    "DEV_FABRIC_MANAGER_STATUS": "manager",
    "DEV_FABRIC_HEALTH_MASK": "mask",
    "DEV_FABRIC_HEALTH_SUMMARY": "summary",
}
_NAMES = {_STATE, _UTILIZATION, *_OF_PCIE, *_OF_FABRIC}
_FIELD_OF: Mapping[bytes, Field] = {
    name.encode(): field for name, field in FIELDS.items() if field.name in _NAMES or name in ACTIVITY
}
_FAMILIES = frozenset((*LINK_COUNTERS, *_FIELD_OF))
_PERCENT = 100
_NO_LINKS = GpuLinks()


class _LinksOfPage:
    """What one page says of links: the counters of errors, and the GPUs by UUID."""

    def __init__(self) -> None:
        self.counters = CountersOfPage()
        self.models: dict[str, str] = {}
        self.cut: set[str] = set()
        self._values: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._states: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._activity: defaultdict[str, float] = defaultdict(float)

    def take(self, series: Sampled, text: bytes) -> None:
        """Take in a sample of `_FAMILIES`."""
        if series.name in LINK_COUNTERS:
            self.counters.take(series, text)
            return
        subject = series.subject
        field = _FIELD_OF[series.name]
        value = None if subject.vgpu else number(text, field)
        if value is None:
            return
        uuid = subject.key.uuid
        self.models.setdefault(uuid, subject.model)
        if subject.instance:
            self.cut.add(uuid)
        if field.name == _STATE:
            (label,) = series.own_labels or ("",)
            link = link_number(label)
            if link:
                self._states[uuid][link] = int(value)
        elif field.name in _NAMES - {_UTILIZATION}:
            self._values[uuid][field.name] = int(value)
        else:
            activity = value / _PERCENT if field.name == _UTILIZATION else value
            self._activity[uuid] = max(activity, self._activity[uuid])

    def gpus(self) -> Iterator[tuple[str, GpuAtWork]]:
        """The GPUs that the page says something of."""
        for uuid, model in self.models.items():
            values = self._values[uuid]
            links = GpuLinks(
                states=self._states.get(uuid, NOTHING),
                pcie=PcieLink(**{place: values[name] for name, place in _OF_PCIE.items() if name in values}),
                fabric=Fabric(**{place: values[name] for name, place in _OF_FABRIC.items() if name in values}),
            )
            activity = self._activity.get(uuid)
            yield uuid, GpuAtWork(links=links, model=model, activity=activity, is_cut=uuid in self.cut)


class LinkHealth:
    """The reasons of links by GPU, and what could be better. It remembers what it needs from look to look.

    `reasons` and `advice` stay the same objects while nothing changes. `errors` and `states` are what they come from.
    `happened` is what began at the last look: the GPU's UUID, the name of the event, and what is wrong.
    """

    def __init__(self) -> None:
        self.reasons: frozenset[tuple[str, HealthReason]] = frozenset()
        self.advice: Mapping[str, tuple[Trouble, ...]] = NOTHING
        self.happened: Sequence[tuple[str, str, Trouble]] = ()
        self.errors = LinkErrors()
        self.states = LinkStates()
        # a page of 112 MIG instances has megabytes, so nobody keeps one that is read
        self._last_page: weakref.ref[JoinedPage] | None = None
        self._page = _LinksOfPage()
        self._page_at = 0.0
        self._reading: Mapping[str, GpuLinks] = NOTHING
        self._due_at = 0.0

    def read(self, joined: JoinedPage | None, reading: DriverReading | None, at: float) -> Work[None]:
        """Take in the page and NVML's last reading at this moment; None: there is none."""
        self.happened = ()
        links = reading.links if reading else NOTHING
        is_new = joined is not (self._last_page() if self._last_page else None)
        if not is_new and links is self._reading and at < self._due_at:
            return
        if is_new and joined is not None:
            page = _LinksOfPage()
            for count, (series, text) in enumerate(joined.readings(_FAMILIES), start=1):
                if not count % ITEMS_A_SLICE:
                    yield
                page.take(series, text)
            self._page = page
        if joined is not None:
            self._page_at = at
        elif at - self._page_at >= _GRACE_SECONDS:
            self._page = _LinksOfPage()
        self._last_page = weakref.ref(joined) if joined is not None else None
        self._reading = links
        self._due_at = at + _AGAIN_SECONDS
        self.errors.read(self._counters() if is_new and joined is not None else None, at)
        self._judge(at)

    def _judge(self, at: float) -> None:
        """Work out reasons and advice from what is known now."""
        gpus = self._gpus()
        down_before = self.states.down
        self.states.read(gpus, at)
        reasons: set[tuple[str, HealthReason]] = set()
        for uuid, errors in self.errors.lately.items():
            peers = gpus[uuid].links.peers if uuid in gpus else NOTHING
            reasons.add((uuid, reason_of_links(errors, peers)))
        self.happened = [*self._begun(gpus, down_before)]
        advice: dict[str, tuple[Trouble, ...]] = {}
        for uuid, gpu in gpus.items():
            reasons.update((uuid, reason) for reason in self.states.reasons_of(uuid, gpu, at))
            of_gpu = tuple(advice_of(gpu, gpus))
            if of_gpu:
                advice[uuid] = of_gpu
        if reasons != self.reasons:
            self.reasons = frozenset(reasons)
        if advice != self.advice:
            self.advice = advice

    def _begun(
        self, gpus: Mapping[str, GpuAtWork], down_before: Mapping[str, frozenset[str]]
    ) -> Iterator[tuple[str, str, "Trouble"]]:
        """What began at this look."""
        for uuid, errors in self.errors.began:
            peers = gpus[uuid].links.peers if uuid in gpus else NOTHING
            yield uuid, ERRORS_BEGAN, reason_of_links(errors, peers)
        for uuid, links in self.states.down.items():
            new = links - down_before.get(uuid, frozenset())
            if new:
                yield uuid, WENT_DOWN, reason_of_down(new, gpus[uuid].links.peers)

    def _counters(self) -> Mapping[str, Mapping[str, int]]:
        """The counters by GPU. If NVML counts the errors of each link, the page's sum of them is left out."""
        counters = {uuid: dict(of_gpu) for uuid, of_gpu in self._page.counters.by_gpu.items()}
        for uuid, links in self._reading.items():
            if uuid in counters and links.counters:
                totals = {counter_name(name.partition("/")[0], "") for name in links.counters}
                of_page = {name: value for name, value in counters[uuid].items() if name not in totals}
                counters[uuid] = {**of_page, **links.counters}
        return counters

    def _gpus(self) -> Mapping[str, GpuAtWork]:
        """All GPUs, by what NVML and the page say of them."""
        gpus = dict(self._page.gpus())
        for uuid, links in self._reading.items():
            gpu = gpus.get(uuid) or GpuAtWork(links=_NO_LINKS)
            gpus[uuid] = replace(gpu, links=links.beside(gpu.links))
        return gpus
