"""The queue of keys."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.operator.objects.kinds import Key
from exporter.operator.work_queue import (
    BURST,
    EVERYTHING,
    FORGIVEN_SECONDS,
    MOST_KEYS,
    PAUSE,
    WorkQueue,
)
from tests.support.virtual_time import run
from tests.support.waiting import PATIENCE_SECONDS

A, B = Key("GPUExporter", "ml", "a"), Key("GPUExporter", "ml", "b")


async def test_a_key_that_is_named_often_comes_once() -> None:
    work = WorkQueue()
    for key in (A, B, A, A):
        work.add(key)
    assert [await work.get(), await work.get()] == [A, B]
    assert len(work) == 0
    work.add(A)  # while it is worked on
    assert await work.get() == A


async def test_a_key_comes_at_its_time_or_before_where_it_is_named() -> None:
    work = WorkQueue()
    work.add_after(A, 0.05)
    work.add_after(B, 60)
    work.add_after(A, 30)  # sooner is enough
    assert await asyncio.wait_for(work.get(), PATIENCE_SECONDS) == A
    work.add(B)
    assert await work.get() == B
    assert len(work) == 0


async def test_who_waits_hears_of_a_key() -> None:
    work = WorkQueue()
    waiting = asyncio.create_task(work.get())
    await asyncio.sleep(0)
    work.add_after(B, 60)
    await asyncio.sleep(0)
    work.add(A)
    assert await asyncio.wait_for(waiting, PATIENCE_SECONDS) == A


@given(seed=st.integers(), asked=st.floats(0, 100))
def test_failures_come_later_and_later(seed: int, asked: float) -> None:
    async def pauses() -> list[float]:
        work = WorkQueue(seed)
        return [work.failed(A) for _ in range(12)]

    found = asyncio.run(pauses())
    longest = PAUSE.first_seconds
    for pause in found:
        assert longest / 2 <= pause <= longest
        longest = min(longest * 2, PAUSE.longest_seconds)
    assert asyncio.run(pauses()) == found

    async def after_success() -> float:
        work = WorkQueue(seed)
        for _ in range(5):
            work.failed(A)
        work.went_well(A)
        return work.failed(A, asked)

    assert asyncio.run(after_success()) <= max(PAUSE.first_seconds, asked)
    assert asyncio.run(after_success()) >= asked


# issue 15, line 15
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=60))
def test_namespaces_take_turns(named: list[tuple[str, int]]) -> None:
    async def taken() -> list[Key]:
        work = WorkQueue()
        for namespace, number in named:
            work.add(Key("GPUExporter", namespace, str(number)))
        return [await work.get() for _ in range(len(work))]

    found = asyncio.run(taken())
    wanted = {Key("GPUExporter", namespace, str(number)) for namespace, number in named}
    assert sorted(found) == sorted(wanted)
    # the n-th of a namespace comes before the (n + 1)-th of any
    turns = [[key.namespace for key in found[:index]].count(key.namespace) for index, key in enumerate(found)]
    assert turns == sorted(turns)


# issue 15, line 15
def test_a_key_of_another_namespace_waits_for_one_of_a_thousand() -> None:
    async def scenario() -> None:
        work = WorkQueue()
        for number in range(1000):
            work.add(Key("GPUAutoscaler", "crowd", str(number)))
        await work.get()
        work.add(A)
        assert A in [await work.get(), await work.get()]

    run(scenario())


# issue 15, line 15
def test_a_key_that_is_named_all_the_time_is_looked_at_less_often() -> None:
    """41 times a second for a minute, and a look takes no time: after a burst it is every two seconds."""

    async def scenario() -> list[float]:
        work, looks, now = WorkQueue(), list[float](), asyncio.get_running_loop().time

        async def worker() -> None:
            while await work.get():
                looks.append(now())

        working = asyncio.create_task(worker())
        while now() < 60:
            work.add(A)
            await asyncio.sleep(1 / 41)
        await asyncio.sleep(10)
        named_last = len(looks)
        work.add(A)  # it is forgiven
        await asyncio.sleep(1)
        assert len(looks) == named_last + 1
        working.cancel()
        return looks

    looks = run(scenario())
    assert len([at for at in looks if at < 1]) >= BURST, "a few edits in a row are seen at once"
    steady = [at for at in looks if 20 <= at < 60]
    assert len(steady) <= 1.2 * 40 / FORGIVEN_SECONDS
    assert max(after - before for before, after in pairwise(steady)) < 2 * FORGIVEN_SECONDS


# issue 15, line 15
def test_since_when_a_key_was_named_is_known() -> None:
    async def scenario() -> None:
        work, now = WorkQueue(), asyncio.get_running_loop().time
        work.add(A)
        await asyncio.sleep(1)
        work.add(A)
        named = now()
        await asyncio.sleep(1)
        assert (await work.get(), work.named_at_seconds) == (A, named)
        work.add_after(A, 5)
        assert (await work.get(), work.named_at_seconds) == (A, None)

    run(scenario())


# issue 15, line 15
async def test_a_namespace_that_is_full_leaves_room_to_others(caplog: pytest.LogCaptureFixture) -> None:
    work = WorkQueue()
    for namespace in ("crowd", "mob", "horde"):
        for number in range(MOST_KEYS):
            work.add(Key("GPUExporter", namespace, str(number)))
    assert MOST_KEYS / 2 <= len(work) < MOST_KEYS
    for number in range(200):
        work.add(Key("GPUExporter", f"ns-{number}", "gpu"))
    keys = {await work.get() for _ in range(203)}
    assert {key.namespace for key in keys} >= {f"ns-{number}" for number in range(200)}
    words = [record.getMessage() for record in caplog.records]
    assert [text[:35] for text in words] == ["too many custom resources wait in a"] * 3, "once each"


async def test_it_holds_no_more_than_it_may() -> None:
    work = WorkQueue()
    for number in range(MOST_KEYS + 5):
        work.add(Key("GPUExporter", "ml", str(number)))
        work.add_after(Key("GPUAutoscaler", "ml", str(number)), 60)
    assert len(work) <= MOST_KEYS
    work.forget(Key("GPUAutoscaler", "ml", "0"))
    assert await work.get() == Key("GPUExporter", "ml", "0")


async def test_a_look_at_all_is_never_left_out() -> None:
    """It would be the last: each look at all names the next one."""
    work = WorkQueue()
    for number in range(MOST_KEYS):
        work.add_after(Key("GPUExporter", "ml", str(number)), 60)
    work.add_after(EVERYTHING, 0)
    assert await asyncio.wait_for(work.get(), PATIENCE_SECONDS) == EVERYTHING
    work.add(EVERYTHING)
    assert await asyncio.wait_for(work.get(), PATIENCE_SECONDS) == EVERYTHING
    work.add_after(Key("GPUExporter", "ml", "7"), 0)  # sooner than it was to be
    assert await asyncio.wait_for(work.get(), PATIENCE_SECONDS) == Key("GPUExporter", "ml", "7")
