"""The log keeps its last lines, and not more memory than that takes."""

import json
import logging
import sys

import pytest

from exporter import log
from exporter.log import MOST_CHARS_KEPT, MOST_LINES_KEPT, KeepingHandler, LastLines, last_lines


def kept(*lines: str) -> tuple[str, ...]:
    ring = LastLines()
    for line in lines:
        ring.add(line)
    return ring.all()


def test_the_last_thousand_lines_are_kept() -> None:
    lines = [f"line {number}" for number in range(3 * MOST_LINES_KEPT)]
    assert kept(*lines) == tuple(lines[-1_000:])


def test_long_lines_are_fewer() -> None:
    lines = kept(*(f"{number:03}" + "x" * 10_000 for number in range(200)))
    assert MOST_CHARS_KEPT - 20_000 < sum(len(line) + 1 for line in lines) <= MOST_CHARS_KEPT == 512 * 1024
    assert lines[-1].startswith("199")


def test_a_line_that_is_longer_than_all_is_cut() -> None:
    assert kept("before", "x" * 10**7) == ("x" * (MOST_CHARS_KEPT - 1),)


@pytest.mark.parametrize("log_format", ["logfmt", "json"])
def test_what_is_written_is_kept_and_a_reload_keeps_it(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    log.start_logging("info", log_format)
    log.info("a source\nfailed", source="\x1b[31mü", error=ValueError("x"))
    log.debug("this is below the level")
    log.start_logging("info", log_format)
    log.warning("again")
    written = capsys.readouterr().err.splitlines()
    assert len(written) == 2
    assert last_lines()[-2:] == tuple(written)
    assert all(line.isascii() and line.isprintable() for line in written)


def test_a_stream_that_is_closed_costs_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe whose reader is gone: the handler reports that, and the line is kept."""
    log.start_logging("info", "json")
    (handler,) = (each for each in logging.getLogger().handlers if isinstance(each, KeepingHandler))
    reader = open(sys.executable)  # noqa: PTH123, SIM115 - a stream that cannot be written
    handler.setStream(reader)
    log.info("nobody reads this")
    reader.close()
    assert json.loads(last_lines()[-1])["msg"] == "nobody reads this"
    assert "not writable" in capsys.readouterr().err
