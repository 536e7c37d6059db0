"""What is made of a page's and NVML's word on links, and what stays the same object while nothing changes."""

import pytest

from exporter.model.devices import Inventory, Owners
from exporter.model.driver import DriverReading
from exporter.model.gpu_links import Fabric, GpuLinks, PcieLink
from exporter.model.link_events import WENT_DOWN
from exporter.model.pages import JoinedPage
from exporter.model.slices import at_once
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.link_health import LinkHealth
from exporter.ownership.sample_rows import Attribution
from tests.support.looks import GPU, Looks, row

NOW = 1_000_000.0


def states(gpu: int, states_of_links: str) -> list[str]:
    """The rows of a GPU's links from link 0 on: `1` is up, `0` down."""
    family = "DCGM_FI_DEV_NVLINK_GET_STATE"
    return [row(family, state, gpu, nvlink=str(link)) for link, state in enumerate(states_of_links)]


def page_of(*rows: str) -> JoinedPage:
    return Looks().joiner.join(["".join(rows).encode()], Attribution(Owners(), LabelPolicy()))


def test_what_happened_is_told_at_one_look() -> None:
    health = LinkHealth()
    assert not [*health.happened]
    at_once(health.read(page_of(*states(0, "11")), None, NOW))
    page = page_of(*states(0, "10"))
    at_once(health.read(page, None, NOW + 30))
    assert [(uuid, name) for uuid, name, _ in health.happened] == [(GPU(0), WENT_DOWN)]
    at_once(health.read(page, None, NOW + 31))
    assert not [*health.happened]
    reasons = health.reasons
    at_once(health.read(page_of(*states(0, "10")), None, NOW + 60))
    assert not [*health.happened]
    assert health.reasons is reasons, "what did not change is the same object"


def test_time_alone_brings_a_reason_within_ten_seconds() -> None:
    health, page = LinkHealth(), page_of(row("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "2"))
    at_once(health.read(page, None, NOW))
    at_once(health.read(page, None, NOW + 295))
    at_once(health.read(page, None, NOW + 304.9))
    assert not health.reasons, "it was looked at a moment ago"
    at_once(health.read(page, None, NOW + 305))
    assert {reason.reason for _, reason in health.reasons} == {"fabric"}


def test_advice_stays_the_same_object() -> None:
    health, links = LinkHealth(), GpuLinks(pcie=PcieLink(highest_generation=4, generation_of_card=5))
    readings = [DriverReading(inventory=Inventory(), links={GPU(0): links}, read_at=float(at)) for at in range(2)]
    at_once(health.read(None, readings[0], NOW))
    advice = health.advice
    assert advice.keys() == {GPU(0)}
    at_once(health.read(None, readings[1], NOW + 60))
    assert health.advice is advice
    at_once(health.read(None, None, NOW + 120))
    assert health.advice == {}


def test_a_long_page_is_read_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.ownership.link_health.ITEMS_A_SLICE", 2)
    assert len([*LinkHealth().read(page_of(*states(0, "11111")), None, NOW)]) == 2


def test_a_new_word_of_nvml_counts_at_once() -> None:
    health = LinkHealth()
    for seconds, manager, count in ((0.0, 3, 0), (1.0, 4, 1), (2.0, 3, 0)):
        links = {GPU(0): GpuLinks(fabric=Fabric(manager=manager))}
        at_once(health.read(None, DriverReading(inventory=Inventory(), links=links, read_at=0.0), NOW + seconds))
        assert len(health.reasons) == count
