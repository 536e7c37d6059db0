"""The live table. One thread asks the exporter; the other shows the answers and reads keys."""

import signal
import threading
import time

from exporter.errors import ExporterError
from exporter.top.columns import Glyphs, Painter
from exporter.top.history import DeviceHistory
from exporter.top.screen import frame
from exporter.top.shown_devices import ShownExporter
from exporter.top.state import State, View, press
from exporter.top.terminal import Ended, Keys, Terminal, opened
from exporter.top.transport import TopReader

_ESCAPE_SECONDS = 0.05  # if the next byte of a sequence takes longer than this, it was the Escape key
_AGE_SECONDS = 1.0
# The pause after an answer is this many times as long as the answer took. So asking takes at most a third of the time.
_REST = 2


class _Poller(threading.Thread):
    """The thread that asks the exporter at every interval, and wakes the terminal after each answer."""

    answer: tuple[ShownExporter | None, str] = (None, "")

    def __init__(self, asking: TopReader, terminal: Terminal, interval_seconds: float, view: View) -> None:
        super().__init__(daemon=True)  # the program does not wait for an answer when it ends
        self._asking = asking
        self._terminal = terminal
        self._interval_seconds = interval_seconds
        self._at_once = threading.Event()
        self.view: View = view
        self.is_paused = False
        self.answered_at = time.monotonic()
        self.error: Exception | None = None

    def ask(self, view: View) -> None:
        """Ask at once instead of at the next interval."""
        self.view = view
        self._at_once.set()

    def run(self) -> None:
        try:
            while True:
                began = time.monotonic()
                if not self.is_paused:
                    self._read()
                took = time.monotonic() - began
                self._at_once.wait(max(self._interval_seconds, took * _REST))
                self._at_once.clear()
        except Exception as error:  # noqa: BLE001 - raised again where it ends the program
            self.error = error
            self._terminal.wake()

    def _read(self) -> None:
        try:
            self.answer = (self._asking.ask(self.view).shown, "")
            self.answered_at = time.monotonic()
        except ExporterError as error:
            self.answer = (self.answer[0], str(error))
        self._terminal.wake()


def run(asking: TopReader, state: State, interval_seconds: float, painter: Painter, glyphs: Glyphs) -> int:
    """Show the table until the user quits. Return the exit code."""
    with opened() as terminal:
        reader = _Poller(asking, terminal, interval_seconds, state.view)
        reader.start()
        try:
            _show(terminal, reader, state, interval_seconds, painter, glyphs)
        except Ended as ended:
            # Ctrl-C is a way to quit
            return 0 if ended.signum == signal.SIGINT else 128 + ended.signum
    return 0


def _show(
    terminal: Terminal, reader: _Poller, state: State, interval_seconds: float, painter: Painter, glyphs: Glyphs
) -> None:
    """Draw answers and obey keys until the user quits. Raises the reader's error, if it has one."""
    keys = Keys()
    history = DeviceHistory()
    answer = reader.answer
    while not state.quits:
        if reader.error:
            raise reader.error
        if not state.paused and answer is not reader.answer:
            answer = reader.answer
            shown, trouble = answer
            if shown and not trouble:
                history.add(shown.devices, reader.answered_at)
        lines, state = frame(*_with_age(answer, reader), state, terminal.size(), interval_seconds, glyphs, history)
        terminal.show([painter.text(line) for line in lines])
        timeout = _AGE_SECONDS if answer[1] else None
        if keys.is_waiting:
            timeout = _ESCAPE_SECONDS
        data = terminal.wait(timeout)
        for key in keys.feed(data) if data else keys.flush():
            state = _pressed(reader, state, key)


def _with_age(answer: tuple[ShownExporter | None, str], reader: _Poller) -> tuple[ShownExporter | None, str]:
    """The answer; if it is one of before, its trouble says for how long there is no newer one."""
    shown, trouble = answer
    if shown and trouble:
        trouble = f"not updated for {time.monotonic() - reader.answered_at:.0f} s: {trouble}"
    return shown, trouble


def _pressed(reader: _Poller, before: State, key: str) -> State:
    """The state after a key; what it shows that is not there yet is asked for at once."""
    state = press(before, key)
    reader.is_paused = state.paused
    if state.view != before.view or (before.paused and not state.paused):
        reader.ask("devices" if state.view == "devices" else "processes")
    return state
