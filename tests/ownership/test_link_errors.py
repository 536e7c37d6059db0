"""Errors of links on pages: one verdict and one sentence, whatever the names of the generation."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from exporter.dcgm.links import KINDS, LinkErrorKind, count_text
from exporter.model.devices import Owners
from exporter.model.health import DeviceVerdict
from exporter.model.slices import at_once
from exporter.model.snapshot import Snapshot
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.link_errors import reason_of_links
from exporter.ownership.sample_rows import Attribution
from exporter.ownership.verdicts import Verdicts
from tests.support.link_names import LEGACY, OF_LINK_5, TOTALS
from tests.support.looks import GPU, Looks, row

# as users know them
LATELY_SECONDS = 3_600.0

NOW = 1_000_000.0


class Pages:
    """One node's looks at pages, and its verdicts."""

    def __init__(self) -> None:
        self.looks = Looks()
        self.verdicts = Verdicts()

    def look(self, *rows: str, at: float = 0.0) -> DeviceVerdict:
        joined = (
            self.looks.joiner.join(["".join(rows).encode()], Attribution(Owners(), LabelPolicy())) if rows else None
        )
        snapshot = Snapshot(
            node="n", owners=Owners(), joined=joined, health={}, assignments_age_seconds=0.0, page_sources=()
        )
        (verdict,) = at_once(self.verdicts.look(replace(snapshot), (), None, NOW + at)).values()
        return verdict


def messages(verdict: DeviceVerdict) -> list[str]:
    return [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize("generation", TOTALS)
def test_totals_of_every_generation_give_one_verdict_and_one_sentence(generation: str) -> None:
    for kind, family in TOTALS[generation].items():
        pages = Pages()
        assert pages.look(row(family, "7")).verdict == "ok"
        verdict = pages.look(row(family, "207"), at=30)
        assert (verdict.verdict, verdict.code) == ("degraded", "nvlink")
        assert messages(verdict) == [f"errors of NVLink within the last hour: {count_text(kind, 200)}"]


@pytest.mark.parametrize("generation", OF_LINK_5)
def test_rows_of_one_link_name_it(generation: str) -> None:
    family, link = OF_LINK_5[generation]
    pages = Pages()
    pages.look(row(family, "7", nvlink=link), row(f"{LEGACY}_COUNT_TOTAL", "7"))
    verdict = pages.look(row(family, "207", nvlink=link), row(f"{LEGACY}_COUNT_TOTAL", "7"), at=30)
    assert messages(verdict) == ["errors of NVLink on link 5 within the last hour: 200 replays"]


def test_a_total_beside_its_links_and_a_second_name_count_nothing_twice() -> None:
    pages = Pages()

    def rows(five: int, seven: int) -> list[str]:
        return [
            row(f"{LEGACY}_COUNT_L5", str(five)),
            row(f"{LEGACY}_PER_LINK_TOTAL", str(five), nvlink="5"),
            row(f"{LEGACY}_COUNT_L7", str(seven)),
            row(f"{LEGACY}_COUNT_TOTAL", str(five + seven)),
            row(f"{LEGACY}_TOTAL", str(five + seven)),
        ]

    pages.look(*rows(1, 1))
    verdict = pages.look(*rows(3, 2), at=30)
    assert messages(verdict) == ["errors of NVLink within the last hour: 2 replays on link 5; 1 replay on link 7"]


def test_hopper_s_old_counters_that_stay_0_hide_nothing() -> None:
    pages = Pages()
    new = "DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY"
    pages.look(row(f"{LEGACY}_COUNT_TOTAL", "0"), row(new, "4"))
    verdict = pages.look(row(f"{LEGACY}_COUNT_TOTAL", "0"), row(new, "5"), at=30)
    assert messages(verdict) == ["errors of NVLink within the last hour: 1 replay"]


def test_a_dcgm_that_is_upgraded_goes_on_with_the_same_counter() -> None:
    pages = Pages()
    pages.look(row(f"{LEGACY}_COUNT_L5", "7"))
    assert messages(pages.look(row(f"{LEGACY}_L5_TOTAL", "9"), at=30)) == [
        "errors of NVLink on link 5 within the last hour: 2 replays"
    ]


def test_a_counter_that_falls_began_anew_and_a_late_page_says_nothing() -> None:
    pages = Pages()
    family = f"{LEGACY}_COUNT_TOTAL"
    pages.look(row(family, "100"))
    assert pages.look(row(family, "99"), at=30).verdict == "ok"
    assert pages.look(row(family, "100"), at=60).verdict == "ok"
    assert messages(pages.look(row(family, "3"), at=90)) == ["errors of NVLink within the last hour: 3 replays"]


def test_errors_add_up_for_an_hour_and_then_end() -> None:
    pages = Pages()
    family = f"{LEGACY}_COUNT_TOTAL"
    pages.look(row(family, "0"))
    for minute in range(1, 61):
        verdict = pages.look(row(family, str(minute)), at=60.0 * minute)
    assert messages(verdict) == ["errors of NVLink within the last hour: 60 replays"]
    assert pages.look(row(family, "60"), at=3600 + LATELY_SECONDS - 1).verdict == "degraded"
    assert pages.look(row(family, "60"), at=3600 + LATELY_SECONDS).verdict == "ok"


def test_errors_of_five_minutes_end_together_and_later_ones_by_themselves() -> None:
    pages = Pages()
    family = f"{LEGACY}_COUNT_TOTAL"
    pages.look(row(family, "0"))
    for at, replays in ((1000, "1"), (1299, "3"), (1300, "7")):
        pages.look(row(family, replays), at=at)

    def text(at: float) -> list[str]:
        return messages(pages.look(row(family, "7"), at=at))

    assert text(1000 + LATELY_SECONDS) == ["errors of NVLink within the last hour: 7 replays"]
    assert text(1299 + LATELY_SECONDS) == ["errors of NVLink within the last hour: 4 replays"]
    assert text(1300 + LATELY_SECONDS) == []


def test_a_counter_that_falls_to_half_is_of_a_late_page() -> None:
    for low, texts in (("50", []), ("49", ["errors of NVLink within the last hour: 49 replays"])):
        pages = Pages()
        family = f"{LEGACY}_COUNT_TOTAL"
        pages.look(row(family, "100"))
        assert messages(pages.look(row(family, low), at=30)) == texts


def test_a_gpu_that_comes_back_begins_anew() -> None:
    pages = Pages()
    family = f"{LEGACY}_COUNT_TOTAL"
    both = [row(family, "7"), row(family, "7", 1)]
    for at, rows in ((0, both), (30, both[1:]), (60, [row(family, "207"), both[1]])):
        joined = pages.looks.joiner.join(["".join(rows).encode()], Attribution(Owners(), LabelPolicy()))
        snapshot = Snapshot(
            node="n", owners=Owners(), joined=joined, health={}, assignments_age_seconds=0.0, page_sources=()
        )
        verdicts = at_once(pages.verdicts.look(snapshot, (), None, NOW + at))
        assert not any(verdict.reasons for verdict in verdicts.values()), at


def test_errors_stay_while_the_page_is_away() -> None:
    pages = Pages()
    family = f"{LEGACY}_COUNT_TOTAL"
    pages.look(row(family, "0"))
    pages.look(row(family, "1"), at=30)
    for at in (60, 300, 3000):
        assert "errors of NVLink within the last hour: 1 replay" in messages(pages.look(at=at))
    assert messages(pages.look(row(family, "2"), at=3100)) == ["errors of NVLink within the last hour: 2 replays"]


def test_the_row_of_a_virtual_gpu_has_no_errors_of_links() -> None:
    pages = Pages()
    family = f"{LEGACY}_COUNT_TOTAL"
    pages.look(row(family, "0"), row(family, "0", vgpu="5"))
    assert messages(pages.look(row(family, "0"), row(family, "9", vgpu="5"), at=30)) == []


def test_the_kinds_of_errors_of_one_link_are_told_together() -> None:
    errors: Mapping[tuple[LinkErrorKind, str], int] = {("replay", "5"): 2, ("recovery", "5"): 1, ("replay", "11"): 3}
    assert reason_of_links(errors).message == (
        "errors of NVLink within the last hour: 1 recovery and 2 replays on link 5; 3 replays on link 11"
    )


@pytest.mark.parametrize(
    "family",
    [
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0",
        "DCGM_FI_DEV_NVLINK_COUNT_SYMBOL_BER",
        "DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS",
        "DCGM_FI_DEV_NVLINK_COUNT_FEC_HISTORY_3",
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L5",
        "DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES",
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    ],
)
def test_what_is_no_fault_of_a_link_is_no_reason(family: str) -> None:
    pages = Pages()
    pages.look(row(family, "1"))
    assert pages.look(row(family, "9"), at=30).verdict == "ok"


@pytest.mark.parametrize("value", ["NaN", "9223372036854775794", "-1", "+Inf"])
@pytest.mark.parametrize("label", ["5", "64", "x", "9" * 5000])
def test_a_page_of_anything_is_no_error(value: str, label: str) -> None:
    pages = Pages()
    family = f"{LEGACY}_PER_LINK_TOTAL"
    pages.look(row(family, "1", nvlink=label))
    assert pages.look(row(family, value, nvlink=label), at=30).verdict == "ok"


def test_a_peer_is_named_and_only_the_worst_links_are() -> None:
    errors = {("replay", str(link)): 10 * link for link in (2, 5, 11, 17)}
    reason = reason_of_links(errors, {"17": "GPU 1"})  # type: ignore[arg-type]  # kinds are words here
    assert reason.message == (
        "errors of NVLink within the last hour: 170 replays on link 17 (to GPU 1); 110 replays on link 11;"
        " 50 replays on link 5; and 1 more"
    )


def test_the_rows_of_a_cut_gpu_s_instances_count_once() -> None:
    pages = Pages()
    family = f"{LEGACY}_COUNT_L5"

    def page(value: str) -> Snapshot:
        rows = [row(family, value, 0, instance, "1g.10gb") for instance in ("7", "8")]
        joined = pages.looks.joiner.join(["".join(rows).encode()], Attribution(Owners(), LabelPolicy()))
        return Snapshot(
            node="n", owners=Owners(), joined=joined, health={}, assignments_age_seconds=0.0, page_sources=()
        )

    at_once(pages.verdicts.look(page("1"), (), None, NOW))
    verdicts = at_once(pages.verdicts.look(page("2"), (), None, NOW + 30))
    assert {key.instance: messages(verdict) for key, verdict in verdicts.items() if key.uuid == GPU(0)} == {
        key: ["errors of NVLink on link 5 within the last hour: 1 replay"] for key in ("", "7", "8")
    }


def test_every_kind_has_words() -> None:
    assert {count_text(kind, 1) for kind in KINDS}.isdisjoint(count_text(kind, 2) for kind in KINDS)
