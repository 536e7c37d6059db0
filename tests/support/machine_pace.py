"""How quick the machine is at this moment: by which a time is judged on any machine, busy or not."""

import time


def seconds_of(pieces: float) -> float:
    """The CPU seconds of so many pieces of work that is always the same.

    A piece takes 3 ms on the machine of docs/developers/performance.md. The middle of nine counts, since others use
    the machine.
    """
    return pieces * sorted(_a_piece() for _ in range(9))[4]


def _a_piece() -> float:
    before = time.thread_time()
    texts = {number: f"{number}" for number in range(20_000)}
    assert sum(map(len, texts.values())) == 88_890
    return time.thread_time() - before
