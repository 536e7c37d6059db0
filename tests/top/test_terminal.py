"""The terminal's own rules, on a pseudo-terminal; how it looks from outside is in test_live.py."""

import os
import sys
from collections.abc import Iterator

import pytest

from exporter.top.terminal import opened


@pytest.fixture(autouse=True)
def pseudo_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    leader, follower = os.openpty()
    with os.fdopen(leader), os.fdopen(follower, "r+b", buffering=0) as file:
        monkeypatch.setattr(sys, "stdin", file)
        monkeypatch.setattr(sys, "stdout", file)
        yield


def test_a_wait_ends_when_another_thread_says_so() -> None:
    with opened() as terminal:
        terminal.wake()
        assert terminal.wait(30) == b""


def test_an_answer_that_comes_after_the_end_wakes_nobody() -> None:
    """Who asks the exporter may still wait for an answer when the user quits."""
    with opened() as terminal:
        pass
    terminal.wake()
    # the pipe's numbers are the next to be given out
    awake, waker = os.pipe()
    os.set_blocking(awake, False)
    terminal.wake()
    with pytest.raises(BlockingIOError):
        os.read(awake, 1)
    os.close(awake)
    os.close(waker)
