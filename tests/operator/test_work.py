"""The queue of keys."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from exporter.operator.objects.kinds import Key
from exporter.operator.work import EVERYTHING, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, MOST_KEYS, Work

A, B = Key("GPUExporter", "ml", "a"), Key("GPUExporter", "ml", "b")


async def test_a_key_that_is_named_often_comes_once() -> None:
    work = Work()
    for key in (A, B, A, A):
        work.add(key)
    assert [await work.get(), await work.get()] == [A, B]
    assert len(work) == 0
    work.add(A)  # while it is worked on
    assert await work.get() == A


async def test_a_key_comes_at_its_time_or_before_where_it_is_named() -> None:
    work = Work()
    work.add_after(A, 0.05)
    work.add_after(B, 60)
    work.add_after(A, 30)  # sooner is enough
    assert await asyncio.wait_for(work.get(), 5) == A
    work.add(B)
    assert await work.get() == B
    assert len(work) == 0


async def test_who_waits_hears_of_a_key() -> None:
    work = Work()
    waiting = asyncio.create_task(work.get())
    await asyncio.sleep(0)
    work.add_after(B, 60)
    await asyncio.sleep(0)
    work.add(A)
    assert await asyncio.wait_for(waiting, 5) == A


@given(seed=st.integers(), asked=st.floats(0, 100))
def test_failures_come_later_and_later(seed: int, asked: float) -> None:
    async def pauses() -> list[float]:
        work = Work(seed)
        return [work.failed(A) for _ in range(12)]

    found = asyncio.run(pauses())
    longest = FIRST_PAUSE_SECONDS
    for pause in found:
        assert longest / 2 <= pause <= longest
        longest = min(longest * 2, LONGEST_PAUSE_SECONDS)
    assert asyncio.run(pauses()) == found

    async def after_success() -> float:
        work = Work(seed)
        for _ in range(5):
            work.failed(A)
        work.went_well(A)
        return work.failed(A, asked)

    assert asyncio.run(after_success()) <= max(FIRST_PAUSE_SECONDS, asked)
    assert asyncio.run(after_success()) >= asked


async def test_it_holds_no_more_than_it_may() -> None:
    work = Work()
    for number in range(MOST_KEYS + 5):
        work.add(Key("GPUExporter", "ml", str(number)))
        work.add_after(Key("GPUAutoscaler", "ml", str(number)), 60)
    assert len(work) <= MOST_KEYS
    work.forget(Key("GPUAutoscaler", "ml", "0"))
    assert await work.get() == Key("GPUExporter", "ml", "0")


async def test_a_look_at_all_is_never_left_out() -> None:
    """It would be the last: each look at all names the next one."""
    work = Work()
    for number in range(MOST_KEYS):
        work.add_after(Key("GPUExporter", "ml", str(number)), 60)
    work.add_after(EVERYTHING, 0)
    assert await asyncio.wait_for(work.get(), 5) == EVERYTHING
    work.add(EVERYTHING)
    assert await asyncio.wait_for(work.get(), 5) == EVERYTHING
    work.add_after(Key("GPUExporter", "ml", "7"), 0)  # sooner than it was to be
    assert await asyncio.wait_for(work.get(), 5) == Key("GPUExporter", "ml", "7")
