"""Since when a container holds a device idle: by what is counted as idle time, and never where use is not known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.accounts.ledger import Rules
from exporter.accounts.state_bytes import Boot, restore
from tests.support.ledgers import dump
from tests.support.looks import GPU, SECOND, Looks, energy, kernels, row, whole

ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
A = {"a": whole(0)}
# a page without the field, no page, and no word of the kubelet
BLIND, AWAY, SILENT = "blind", "away", "silent"
State = float | str


def look(looks: Looks, at: float, state: State) -> Looks:
    page = energy("1") + (row(ACTIVE, str(state)) if isinstance(state, float) else "")
    return looks.at(at, None if state == AWAY else page, A, kubelet=state != SILENT)


def since(looks: Looks, pod: str = "a", gpu: int = 0, instance: str = "") -> float | None:
    ns = looks.account(pod, gpu, instance).idle_since_ns
    return None if ns is None else ns / SECOND


# issue 20, "Idle since"
@pytest.mark.parametrize(
    ("states", "shown"),
    [
        ([0.0, 0.0, 0.0], [None, 0, 0]),
        ([0.04, 0.04, 0.04], [None, 0, 0]),
        ([0.05, 0.05, 0.05], [None, None, None]),
        # it works: at once nothing is said, and it is idle again from the look that shows it
        ([0.0, 0.0, 0.9, 0.9, 0.0, 0.0, 0.0], [None, 0, None, None, None, 40, 40]),
        ([0.9, 0.9, 0.0, 0.0], [None, None, None, 20]),
        # nobody is idle by ignorance
        ([BLIND] * 4, [None] * 4),
        ([0.0, 0.0, BLIND, BLIND], [None, 0, None, None]),
        ([0.0, 0.0, AWAY, AWAY], [None, 0, None, None]),
        ([0.0, 0.0, SILENT, SILENT], [None, 0, None, None]),
        # what nobody saw for a moment begins nothing anew
        ([0.0, 0.0, BLIND, 0.0, 0.0], [None, 0, None, 0, 0]),
        ([0.0, 0.0, AWAY, 0.0, 0.0], [None, 0, None, 0, 0]),
        ([0.0, 0.0, SILENT, 0.0, 0.0], [None, 0, None, 0, 0]),
        # after five minutes it does
        ([0.0, 0.0, *[AWAY] * 31, 0.0, 0.0, 0.0], [None, 0, *[None] * 31, None, 330, 330]),
        ([0.0, 0.0, *[BLIND] * 31, 0.0, 0.0, 0.0], [None, 0, *[None] * 31, None, 330, 330]),
    ],
)
def test_it_begins_with_idle_time_and_ends_with_any_other(states: list[State], shown: list[float | None]) -> None:
    looks, got = Looks(), []
    for number, state in enumerate(states):
        got.append(since(look(looks, 10 * number, state)))
    assert got == shown


def test_what_is_idle_is_a_setting() -> None:
    looks = Looks(rules=Rules(idle_below=0.5))
    assert since(look(look(looks, 0, 0.4), 10, 0.4)) == 0


# issue 20, "Idle since": idle time and idle since are one definition
@given(st.lists(st.sampled_from([0.0, 0.04, 0.05, 0.9, BLIND, AWAY, SILENT]), min_size=2, max_size=40))
def test_since_then_all_that_was_seen_was_idle_time(states: list[State]) -> None:
    looks, counted = Looks(), {}
    for number, state in enumerate(states):
        account = look(looks, 10 * number, state).ledger.accounts.rows
        amounts = next((each.amounts for each in account if each.owner), {})
        counted[10.0 * number] = amounts.get("idle_ns", 0), amounts.get("observed_ns", 0)
        began = next((each.idle_since_ns for each in account if each.owner), None)
        if began is None:
            continue
        assert isinstance(state, float)
        assert state < 0.05
        idle, observed = (now - then for now, then in zip(counted[10.0 * number], counted[began / SECOND], strict=True))
        assert idle == observed > 0


def test_of_several_holders_each_has_its_own() -> None:
    def shared(share: int) -> list[tuple[str, str]]:
        return [("nvidia.com/gpu.shared", f"{GPU(0)}::{share}")]

    held, page = {"a": shared(0), "b": shared(1)}, row(ACTIVE, "0.8")
    looks = Looks()
    for number in range(4):
        looks.at(10 * number, page, held, sm_ns=kernels({"a": 8 * SECOND * number, "b": 0, "": 0}))
    assert (since(looks), since(looks, "b")) == (None, 0)
    # who comes is not idle before a page has described its time, and changes nothing of the other's
    looks = Looks().at(0, row(ACTIVE, "0.01"), held).at(10, row(ACTIVE, "0.01"), held)
    held = {"a": shared(0), "c": shared(1)}
    looks.at(20, row(ACTIVE, "0.01"), held)
    assert (since(looks), since(looks, "c")) == (0, None)
    looks.at(30, row(ACTIVE, "0.011"), held).at(40, row(ACTIVE, "0.012"), held)
    assert (since(looks), since(looks, "c")) == (0, 20)


def test_who_lets_go_begins_anew() -> None:
    looks = look(look(Looks(), 0, 0.0), 10, 0.0)
    looks.at(20, energy("1") + row(ACTIVE, "0.0"), {})
    assert since(looks) is None
    for at in (30, 40, 50, 60):
        look(looks, at, at / 10_000)
    assert since(looks) == 30


# issue 20, "Idle since"
@pytest.mark.parametrize(
    ("away", "boot", "at_once", "in_the_end"),
    [
        (2, "one", 0, 0),
        (60, "one", 0, 0),
        (290, "one", 0, 0),
        # another container may have that name by now, or nobody saw what it did for too long
        (400, "one", None, 410),
        (60, "two", None, 70),
    ],
)
def test_a_restart_keeps_it(away: int, boot: str, at_once: float | None, in_the_end: float) -> None:
    before = look(look(Looks(), 0, 0.0), 10, 0.0)
    data = dump(before.ledger, 1_000 * SECOND, Boot("one"))
    # the next process has a clock of its own, here one that goes on
    looks = Looks(ledger=restore(data, (1_000 + away) * SECOND, (10 + away) * SECOND, Boot(boot)))
    assert since(looks) == at_once
    for number in range(4):
        look(looks, 10 + away + 10 * number, number / 1_000)
    assert since(looks) == in_the_end
