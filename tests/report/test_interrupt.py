"""Ctrl-C ends `report`, whenever it comes: also where Python loses the exception that it makes of it."""

import http.server
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from exporter.report.interrupt import ends_at_once
from tests.report.test_command import serving
from tests.support.places import ROOT

START = """
import asyncio.events, os, signal, sys, weakref
# a shell starts what it runs in the background with the signal ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
"""
RUN = """
from exporter.__main__ import main
main()
"""
# an exception in a weak reference's callback is printed, and forgotten
IN_A_CALLBACK = """
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "exporter.sources.prometheus":
            weakref.ref(Interrupt(), interrupt)
sys.meta_path.insert(0, Interrupt())
"""
# the second one comes in the place of a task's waking: asyncio makes an exception of it, which loses that
TWICE = """
run, seen = asyncio.events.Handle._run, []
def run_later(handle):
    seen.append(handle)
    if len(seen) in ({at}, {at} + 1):
        interrupt()
    run(handle)
asyncio.events.Handle._run = run_later
"""
MOMENTS = {
    "in a callback whose errors nobody sees": IN_A_CALLBACK,
    **{f"twice, at {at} of the loop": TWICE.format(at=at) for at in (3, 5, 7)},
}


class Silent(http.server.BaseHTTPRequestHandler):
    """It takes a question, and answers when nobody waits for it any more."""

    ended = threading.Event()

    def do_GET(self) -> None:
        self.ended.wait()

    def log_message(self, *_: object) -> None:
        pass


# issue 22, line 18
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_ends_a_report_whenever_it_comes(moment: str) -> None:
    Silent.ended.clear()
    with serving(Silent) as url:
        try:
            command = [sys.executable, "-c", START + MOMENTS[moment] + RUN, "report", f"--prometheus={url}"]
            ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        finally:
            Silent.ended.set()
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.fixture
def sigint() -> Iterator[None]:
    """Ctrl-C as Python has it, and afterwards as it was: a shell's background process ignores it."""
    was = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, was)


def nothing() -> None:
    pass


@pytest.mark.usefixtures("sigint")
def test_ctrl_c_is_pythons_own_again_after_the_command() -> None:
    seen: list[object] = []

    def fail() -> None:
        seen.append(signal.getsignal(signal.SIGINT))
        raise KeyError

    with pytest.raises(KeyError), ends_at_once(nothing):
        fail()
    assert seen != [signal.default_int_handler]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("sigint")
def test_a_ctrl_c_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ends_at_once(nothing):
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.usefixtures("sigint")
def test_a_thread_leaves_ctrl_c_alone() -> None:
    seen: list[object] = []

    def run() -> None:
        with ends_at_once(nothing):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def failing() -> None:
    raise OSError


@pytest.mark.usefixtures("sigint")
@pytest.mark.parametrize("before", [nothing, failing])
def test_a_process_ends_with_130_even_if_its_last_words_fail(before: Callable[[], None]) -> None:
    process = os.fork()
    if not process:
        try:
            with ends_at_once(before):
                os.kill(os.getpid(), signal.SIGINT)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
