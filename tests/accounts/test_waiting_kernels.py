"""Kernels that no page covers yet: those between the last two looks count half for each of the pages beside them."""

import pytest

from exporter.accounts.entries import Entry
from exporter.accounts.kernels import KernelsOfGpu, Waiting
from exporter.model.devices import DeviceKey
from tests.support.looks import GPU, SECOND, Held, Looks, energy, kernels, row, seconds, whole

A, B = (Entry(None, pod, DeviceKey(uuid="GPU-1")) for pod in "ab")
SHARED = "nvidia.com/gpu.shared"
ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def after_a_page() -> Waiting:
    waiting = Waiting()
    assert waiting.take() is None
    return waiting


def test_before_the_first_page_the_kernels_are_not_known() -> None:
    waiting = Waiting()
    waiting.add({A: 4})
    assert waiting.take() is None
    assert waiting.take() == {A: 4}


def test_the_last_kernels_count_half_for_each_of_two_pages() -> None:
    waiting = after_a_page()
    waiting.add({A: 4})
    waiting.add({B: 6})
    assert waiting.take() == {A: 2 * 4, B: 6}
    waiting.add({B: 1})
    assert waiting.take() == {B: 6 + 1}
    assert waiting.take() == {B: 1}
    assert waiting.take() is None


def test_kernels_of_one_unknown_look_make_those_of_the_page_unknown() -> None:
    waiting = after_a_page()
    waiting.add({A: 4})
    waiting.add(None)
    waiting.add({A: 4})
    assert waiting.take() is None
    waiting.add({A: 1})
    assert waiting.take() == {A: 4 + 1}


def test_of_kernels_of_no_time_nothing_is_known() -> None:
    waiting = after_a_page()
    waiting.add({A: 0})
    assert waiting.take() is None


def test_what_is_counted_counts_no_more() -> None:
    waiting = after_a_page()
    waiting.add({B: 9})
    waiting.add({A: 4, B: 6})
    waiting.skip([A])
    assert waiting.take() == {B: 6}
    assert waiting.take() == {A: 4, B: 6}
    waiting.add({A: 4, B: 6})
    waiting.skip([A])
    waiting.add({A: 1})
    assert waiting.take() == {A: 4 + 1, B: 2 * 6}
    assert waiting.take() == {A: 1}
    unknown = Waiting()
    unknown.skip([])
    unknown.add({A: 1})
    assert unknown.take() == {A: 1}


def test_a_device_that_is_not_measured_has_unknown_kernels_for_all_amounts() -> None:
    of_gpu = KernelsOfGpu()
    of_gpu.note({"1": {A: 1}, "2": {B: 2}})
    assert of_gpu.ran == {"1": {A: 1}, "2": {B: 2}}
    for waiting in (of_gpu.activity, of_gpu.energy):
        assert waiting.keys() == {"1", "2"}
        assert waiting["1"].take() is None
    of_gpu.note({"1": {A: 3}})
    for waiting in (of_gpu.activity, of_gpu.energy):
        assert waiting["1"].take() == {A: 1 + 3}
        assert waiting["2"].take() is None
    of_gpu.note({"1": {A: 3}, "2": {B: 2}})
    of_gpu.lose()
    for waiting in (of_gpu.activity, of_gpu.energy):
        assert [waiting[number].take() for number in "12"] == [None, None]


SHARES: Held = {"a": [(SHARED, f"{GPU(0)}::0")], "b": [(SHARED, f"{GPU(0)}::1")]}
ALONE: Held = {"b": SHARES["b"]}


def ran(*looks: tuple[float, Held, dict[str, float]]) -> dict[str, float]:
    """For how long kernels ran before the last look, by pod; empty if that is not known."""
    node = Looks(offered={(SHARED, DeviceKey(uuid=GPU(0))): 4})
    for at, held, times in looks:
        of_pods = {pod: round(SECOND * of) for pod, of in times.items()}
        node.at(at, energy("0"), held, sm_ns=kernels(of_pods) if times else {})
    of_device = node.ledger._kernels.of_gpu(GPU(0)).ran.get("", {})
    return {entry.owner.pod if entry and entry.owner else "": ns / SECOND for entry, ns in of_device.items()}


# issue 22, "Must show" 0
@pytest.mark.parametrize(
    ("looks", "seconds"),
    [
        # nobody saw a come: it ran for half of the time of the step in which it left
        (
            [(0, SHARES, {"a": 1, "b": 0}), (10, SHARES, {"a": 5, "b": 1}), (15, ALONE, {"b": 1})],
            {"": 0, "b": 0, "a": 1},
        ),
        # it was seen to come: with the part before its first look, it has one step
        (
            [(0, ALONE, {"b": 0}), (10, SHARES, {"a": 3, "b": 0}), (15, ALONE, {"b": 0})],
            {"": 0, "b": 0, "a": 0},
        ),
        ([(0, ALONE, {"b": 0}), (10, SHARES, {"a": 3, "b": 0}), (20, ALONE, {"b": 0})], {"": 0, "b": 0, "a": 3}),
        # processes of nobody
        ([(0, ALONE, {"b": 0, "": 4}), (10, ALONE, {"b": 2, "": 9})], {"": 5, "b": 2}),
        ([(0, ALONE, {"b": 0, "": 4}), (10, ALONE, {"b": 2, "": 3})], {"": 0, "b": 2}),
        ([(0, ALONE, {"b": 0}), (10, ALONE, {"b": 2, "": 3})], {"": 3, "b": 2}),
        # what cannot be is not known
        ([(0, ALONE, {"b": 0}), (10, ALONE, {"b": 10})], {"": 0, "b": 10}),
        ([(0, ALONE, {"b": 0}), (10, ALONE, {"b": 10.5})], {}),
        ([(0, ALONE, {"b": 5}), (10, ALONE, {"b": 4})], {}),
        ([(0, ALONE, {"": 5}), (10, ALONE, {"b": 4})], {}),
        ([(0, ALONE, {"b": 5}), (10, ALONE, {"": 4})], {}),
        # a look that measured nothing
        ([(0, ALONE, {"b": 0}), (10, ALONE, {"b": 2}), (20, ALONE, {})], {}),
        ([(0, ALONE, {"b": 0}), (10, ALONE, {"b": 2}), (20, {}, {})], {}),
        ([(0, {}, {}), (10, ALONE, {"b": 2})], {}),
        (
            [
                (0, SHARES, {"a": 1, "b": 0}),
                (10, SHARES, {"a": 5, "b": 1}),
                (20, SHARES, {}),
                (30, SHARES, {"a": 0, "b": 0}),
                (40, ALONE, {"b": 0}),
            ],
            {},
        ),
        # a gap
        ([(0, ALONE, {"b": 0}), (30, ALONE, {"b": 2})], {}),
    ],
)
def test_for_how_long_kernels_ran_between_two_looks(
    looks: list[tuple[float, Held, dict[str, float]]], seconds: dict[str, float]
) -> None:
    assert ran(*looks) == seconds


def test_kernels_of_a_gpu_that_is_not_on_the_page_disturb_no_other() -> None:
    looks = Looks()
    for at, gpus in ((0, (0, 1)), (10, (0, 1)), (20, (0, 5)), (30, (0, 5))):
        measured = {key: times for gpu in gpus for key, times in kernels({"b": at * SECOND // 2}, gpu).items()}
        looks.at(at, row(ACTIVE, f"0.{at}1") + row(ACTIVE, "0", 1), {"b": whole(0, 1)}, sm_ns=measured)
    assert seconds(looks.account("b").amounts["active_ns"]) == pytest.approx(10 * (0.01 + 0.101 + 0.201))


def test_kernels_of_nobody_are_not_counted_on_a_gpu_that_nobody_holds() -> None:
    looks = Looks()
    for at in (0, 10, 20):
        looks.at(at, row(ACTIVE, f"0.{at}1"), sm_ns=kernels({"": at * SECOND // 2}))
    assert [account.amounts.get("active_ns") for account in looks.ledger.accounts.rows] == [None]
