"""Errors of links: whose they are, and that none counts twice, whatever the names on the page."""

from collections.abc import Mapping, Sequence

import pytest

from exporter.accounts.state_bytes import restore
from tests.support.ledgers import dump
from tests.support.link_names import LEGACY, OF_LINK_5, TOTALS
from tests.support.looks import SECOND, Held, Looks, energy, row, whole

# what a page says of links, and who holds the GPU; one look after the other, 10 s apart
Step = tuple[str, str]


def held(pods: str) -> Held:
    return {pod: whole(0) for pod in pods}


def errors(looks: Looks) -> Mapping[str, Mapping[str, int]]:
    """What was counted, by pod ("" for nobody), by kind and link."""
    return {
        account.owner.pod if account.owner else "": dict(account.by_label["link_errors"])
        for account in looks.ledger.accounts.rows
        if account.by_label.get("link_errors")
    }


def after(*steps: Step) -> Mapping[str, Mapping[str, int]]:
    looks = Looks()
    for number, (page, pods) in enumerate(steps):
        looks.at(10 * number, energy(f"{number}") + page, held(pods))
    return errors(looks)


@pytest.mark.parametrize("generation", TOTALS)
def test_totals_of_every_generation_give_the_same_accounts(generation: str) -> None:
    for kind, family in TOTALS[generation].items():
        steps = [(row(family, value), "a") for value in ("7", "7", "207")]
        assert after(*steps) == {"a": {f"{kind}/": 200}}, family


@pytest.mark.parametrize("generation", OF_LINK_5)
def test_rows_of_one_link_count_and_the_total_beside_them_does_not(generation: str) -> None:
    family, link = OF_LINK_5[generation]
    total = "DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY" if "Hopper" in generation else f"{LEGACY}_COUNT_TOTAL"
    steps = [(row(family, value, nvlink=link) + row(total, value), "a") for value in ("7", "9")]
    assert after(*steps) == {"a": {"replay/5": 2}}


def test_both_generations_names_of_a_counter_are_one_counter() -> None:
    def page(value: str) -> str:
        return row(f"{LEGACY}_COUNT_TOTAL", value) + row(f"{LEGACY}_TOTAL", value)

    upgraded = (row(f"{LEGACY}_TOTAL", "12"), "a")
    assert after((page("5"), "a"), (page("9"), "a"), upgraded) == {"a": {"replay/": 7}}


LINK = f"{LEGACY}_COUNT_L5"


@pytest.mark.parametrize(
    ("steps", "counted"),
    [
        # the first look counts nothing, and an error never counts for who came after it
        ([("5", "a"), ("5", "a")], {}),
        ([("5", "a"), ("8", "b")], {"a": {"replay/5": 3}}),
        ([("5", "a"), ("5", "b"), ("9", "b")], {"b": {"replay/5": 4}}),
        ([("5", "a"), ("8", "")], {"a": {"replay/5": 3}}),
        ([("5", ""), ("8", "")], {"": {"replay/5": 3}}),
        ([("5", "ab"), ("8", "ab")], {"a": {"replay/5": 2}, "b": {"replay/5": 1}}),
        # a reset of the GPU, and two pages of which one is late
        ([("500", "a"), ("3", "a"), ("4", "a")], {"a": {"replay/5": 4}}),
        ([("500", "a"), ("499", "a"), ("500", "a")], {}),
        # a page without the counter
        ([("5", "a"), ("", "a"), ("9", "a")], {"a": {"replay/5": 4}}),
        ([("5", "a"), ("9223372036854775794", "a"), ("9", "a")], {"a": {"replay/5": 4}}),
    ],
)
def test_whose_the_errors_of_a_link_are(steps: Sequence[Step], counted: Mapping[str, Mapping[str, int]]) -> None:
    pages = [(row(LINK, value) if value else "", pods) for value, pods in steps]
    assert after(*pages) == counted


def test_who_came_while_the_page_stood_still_has_a_part() -> None:
    looks = Looks().at(0, energy("1") + row(LINK, "5"), held("a"))
    looks.at(10, energy("1") + row(LINK, "5"), held("b"))
    looks.at(20, energy("2") + row(LINK, "9"), held("b"))
    assert errors(looks) == {"a": {"replay/5": 2}, "b": {"replay/5": 2}}


def test_a_sum_that_dcgm_read_after_the_link_counts_nothing_twice() -> None:
    def page(link: int, total: int) -> str:
        return row(LINK, str(link)) + row(f"{LEGACY}_COUNT_TOTAL", str(total))

    steps = [(page(7, 7), "a"), (page(9, 10), "a"), (page(10, 10), "a")]
    # which link the third one was on, the first page did not say
    assert after(*steps) == {"a": {"replay/5": 2, "replay/": 1}}
    steps = [(page(7, 7), "a"), (page(10, 9), "a"), (page(10, 10), "a")]
    assert after(*steps) == {"a": {"replay/5": 3}}


def test_errors_of_links_that_the_page_does_not_list_count_by_the_sum() -> None:
    def page(link: int, total: int) -> str:
        return row(LINK, str(link)) + row(f"{LEGACY}_COUNT_TOTAL", str(total))

    steps = [(page(0, 0), "a"), (page(1, 10), "a"), (page(2, 11), "a")]
    assert after(*steps) == {"a": {"replay/5": 2, "replay/": 9}}


def test_replays_of_pcie_count_and_bandwidths_do_not() -> None:
    def page(value: int) -> str:
        families = ("PCIE_REPLAY_COUNTER", "NVLINK_BANDWIDTH_L0", "NVLINK_COUNT_SYMBOL_BER", "FABRIC_HEALTH_MASK")
        return "".join(row(f"DCGM_FI_DEV_{family}", str(value)) for family in families)

    assert after((page(1), "a"), (page(4), "a")) == {"a": {"pcie_replay/": 3}}


def test_errors_count_while_other_counters_of_the_page_stand_still() -> None:
    replays = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
    first, then = row(replays, "1") + row(LINK, "1"), row(replays, "4") + row(LINK, "1")
    assert after((first, "a"), (then, "a")) == {"a": {"pcie_replay/": 3}}


def test_metrics_have_kind_and_link_as_labels() -> None:
    looks = Looks().at(0, row(LINK, "1"), held("a")).at(10, row(LINK, "3"), held("a"))
    labels = 'kind="replay",link="5",namespace="ns-a",pod="a",container="main",UUID='
    (line,) = [line for line in looks.text().splitlines() if line.startswith("pod_gpu_link_errors_total{")]
    assert line.startswith(f"pod_gpu_link_errors_total{{{labels}")
    assert line.endswith(" 2")


def test_counters_go_on_after_a_restart_of_the_exporter() -> None:
    looks = Looks().at(0, row(LINK, "1"), held("a")).at(10, row(LINK, "3"), held("a"))
    data = dump(looks.ledger, 1_000 * SECOND)
    looks = Looks(ledger=restore(data, 1_010 * SECOND, 5 * SECOND))
    looks.at(6, row(LINK, "8"), held("a"))
    assert errors(looks) == {"a": {"replay/5": 7}}


def test_a_page_of_any_links_has_bounded_rows() -> None:
    def page(value: int) -> str:
        names = (*map(str, range(100)), "x", "-1", "5.0", "9" * 99)
        return "".join(row(f"{LEGACY}_PER_LINK_TOTAL", str(value), nvlink=name) for name in names)

    counted = after((page(1), "a"), (page(2), "a"))["a"]
    assert counted == {f"replay/{link}": 1 for link in range(64)}
