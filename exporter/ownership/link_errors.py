"""The errors of links that pages have shown within the last hour, by GPU, kind and link, and the reason they give.

Pure, except for what it remembers. Moments are seconds since 1970.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.dcgm.fields import LINK_COUNTERS
from exporter.dcgm.links import (
    KINDS,
    LinkErrorKind,
    NewErrors,
    count_text,
    counter_name_of_row,
)
from exporter.dividing.decimals import is_amount
from exporter.model.health import HealthReason
from exporter.model.nothing import NOTHING
from exporter.model.pages import Sampled
from exporter.ownership.link_states import link_name
from exporter.wording import and_listed, listed

LATELY_SECONDS = 3_600.0
# errors within this time are kept as one number, so that an hour has few
_TOGETHER_SECONDS = 300.0
_MOST_NAMED = 3
_REMEDY = "look at nvidia-smi nvlink -e and at the switch; if errors go on, reset the GPU, and check the link"
NVLINK_ERRORS = HealthReason("nvlink", "errors of NVLink within the last hour", _REMEDY, "degraded")
"""The reason of a GPU whose links have errors. Its message goes on with the links and their errors."""
Counters = Mapping[str, int]  # by `counter_name`
ErrorsByLink = Mapping[tuple[LinkErrorKind, str], int]
_NO_ERRORS: ErrorsByLink = NOTHING


@dataclass(slots=True)
class _Errors:
    """Errors from one moment to another one."""

    first_at: float
    last_at: float
    numbers: Counter[tuple[LinkErrorKind, str]]


class CountersOfPage:
    """The counters of links on one page, by GPU. The rows of a GPU's instances repeat those of the GPU."""

    def __init__(self) -> None:
        self._by_gpu: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def take(self, series: Sampled, text: bytes) -> None:
        """Take in a sample of a family in LINK_COUNTERS."""
        if series.subject.vgpu or not is_amount(text):
            return
        counter = LINK_COUNTERS[series.name]
        (label,) = series.own_labels or ("",)
        name = counter_name_of_row(counter.counter, counter.link, label)
        if not name:
            return
        of_gpu = self._by_gpu[series.subject.key.uuid]
        of_gpu[name] = max(int(float(text)), of_gpu.get(name, 0))

    @property
    def by_gpu(self) -> Mapping[str, Counters]:
        """The counters by the GPU's UUID."""
        return self._by_gpu


class LinkErrors:
    """The errors of links within the last hour, by GPU. `began` are the GPUs and links whose errors began just now.

    `lately` stays the same object while nothing changes.
    """

    def __init__(self) -> None:
        self.lately: Mapping[str, ErrorsByLink] = NOTHING
        self.began: Sequence[tuple[str, ErrorsByLink]] = ()
        self._counters: dict[str, dict[str, int]] = {}
        self._behind: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._errors: defaultdict[str, list[_Errors]] = defaultdict(list)

    def read(self, page: Mapping[str, Counters] | None, at: float) -> None:
        """Take in the counters of a page by GPU; None if there is no page."""
        self.began = ()
        for uuid, values in (page or {}).items():
            self._take(uuid, values, at)
        if page is not None:
            for uuid in self._counters.keys() - page.keys():
                del self._counters[uuid]
                self._behind.pop(uuid, None)
        self._forget(at)
        lately = {uuid: _sum(errors) for uuid, errors in self._errors.items()}
        if lately != self.lately:
            self.lately = lately

    def _take(self, uuid: str, values: Counters, at: float) -> None:
        """Take in the counters of a GPU."""
        last = self._counters.setdefault(uuid, {})
        grown = dict.fromkeys(last, 0)
        for name, value in values.items():
            growth = _growth(last, name, value)
            if growth:
                grown[name] = growth
        if not any(grown.values()):
            return
        new = NewErrors(self._behind[uuid]).of(grown)
        errors = {place: number for place, number in new.items() if number}
        faults = Counter({place: number for place, number in errors.items() if KINDS[place[0]].is_fault})
        if not faults:
            return
        before = self._errors[uuid]
        if not before:
            self.began = (*self.began, (uuid, faults))
        if before and at - before[-1].first_at < _TOGETHER_SECONDS:
            before[-1].numbers += faults
            before[-1].last_at = at
        else:
            before.append(_Errors(at, at, faults))

    def _forget(self, at: float) -> None:
        for uuid, errors in tuple(self._errors.items()):
            lately = [part for part in errors if at - part.last_at < LATELY_SECONDS]
            if lately:
                self._errors[uuid] = lately
            else:
                del self._errors[uuid]


def _sum(errors: Sequence[_Errors]) -> ErrorsByLink:
    total: Counter[tuple[LinkErrorKind, str]] = Counter()
    for part in errors:
        total += part.numbers
    return total


def _growth(last: dict[str, int], name: str, now: int) -> int:
    """The growth of a counter, which is remembered in `last`; 0 for a new one.

    A fall to less than half is a restart from 0. After a smaller fall the larger value stays, since a page may be late.
    """
    before = last.setdefault(name, now)
    if now == before or now < before <= 2 * now:
        return 0
    last[name] = now
    return now - before if now > before else now


def reason_of_links(errors: ErrorsByLink, peers: Mapping[str, str] = NOTHING) -> HealthReason:
    """The reason that these errors within the last hour give against a GPU.

    `peers` says to what a link leads, by the link's number: `GPU 1`, `the NVSwitch`.
    """
    totals: Counter[str] = Counter()
    by_link: defaultdict[str, list[str]] = defaultdict(list)
    for (kind, link), number in sorted(errors.items()):
        totals[link] += number
        by_link[link].append(count_text(kind, number))
    # the worst link first
    links = sorted(by_link, key=lambda link: (-totals[link], len(link), link))
    texts = [and_listed(by_link[link], _MOST_NAMED) for link in links]
    places = [f" on link {link_name(link, peers)}" if link else "" for link in links]
    if len(links) == 1:
        return replace(NVLINK_ERRORS, message=f"errors of NVLink{places[0]} within the last hour: {texts[0]}")
    parts = map(str.__add__, texts, places)
    return replace(NVLINK_ERRORS, message=f"{NVLINK_ERRORS.message}: {listed([*parts], _MOST_NAMED, '; ')}")
