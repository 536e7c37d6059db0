"""The log: one line an event, once, in logfmt or JSON."""

import json
import logging
import os
import subprocess
import sys

import pytest

from exporter import __version__
from exporter.errors import Trouble
from exporter.log import LOG, log, start_logging
from exporter.model.snapshot import Health
from exporter.telemetry import Histogram, Telemetry

DOWN = Health(up=False, trouble=Trouble("refused", "nobody listens", "start it"))
GONE = Health(up=False, trouble=Trouble("missing", "no socket", "mount it"))
UP = Health(up=True)


@pytest.fixture(autouse=True)
def logging_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What start_logging sets ends with the test."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers[:])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(LOG, "level", LOG.level)


def test_logfmt_quotes_what_needs_it(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("info", "logfmt")
    log(logging.INFO, "two words", plain="x:1", odd='a "b"\n\x1b[31m', empty="", number=3)
    line = capsys.readouterr().err
    assert line.endswith('level=info msg="two words" plain=x:1 odd="a \\"b\\"\\n\\u001b[31m" empty="" number=3\n')
    assert line.count("\n") == 1


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("warn", "json")
    log(logging.INFO, "not this")
    log(logging.WARNING, "this", source="kubelet", number=3)
    (line,) = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert event.pop("ts").endswith("Z")
    assert event == {"level": "warning", "msg": "this", "source": "kubelet", "number": 3}


def test_a_failure_is_logged_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    own = Telemetry()
    with caplog.at_level(logging.INFO, LOG.name):
        for health in (UP, UP, DOWN, DOWN, DOWN, GONE, UP, UP):
            own.note_health("kubelet", health)
    assert [record.getMessage() for record in caplog.records] == [
        "source answers",
        "source failed",
        "source failed",
        "source is back",
    ]


# issue 7, line 11
def test_debug_shows_every_read(caplog: pytest.LogCaptureFixture) -> None:
    own = Telemetry()
    with caplog.at_level(logging.DEBUG, LOG.name):
        for health in (UP, Health(up=True, duration_seconds=0.25), DOWN):
            own.note_health("kubelet", health)
    reads = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "read"]
    assert [(read["up"], read["reason"], read["seconds"]) for read in reads] == [
        (True, "", None),
        (True, "", 0.25),
        (False, "refused", None),
    ]


# issue 7, line 3
def test_an_odd_answer_is_logged_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    own = Telemetry()
    odd = Health(up=True, trouble=Trouble("no_pods", "the kubelet lists no pod", "look at it"))
    with caplog.at_level(logging.INFO, LOG.name):
        for health in (UP, DOWN, odd, odd, UP):
            own.note_health("kubelet", health)
    assert [record.getMessage() for record in caplog.records] == [
        "source answers",
        "source failed",
        "source answers, but",
        "source is back",
    ]
    for record, what in ((caplog.records[1], "error"), (caplog.records[2], "says")):
        assert {"reason", "remedy", what} <= record.__dict__["fields"].keys()


def test_rejected_lines_are_counted_and_the_first_of_a_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    own = Telemetry()
    own.count_rejected({"syntax": 2})
    own.count_rejected({"syntax": 1, "value": 1})
    assert dict(own.rejected) == {"syntax": 3, "value": 1}
    assert len(caplog.records) == 2


# issue 7, line 18
@pytest.mark.parametrize(("environ", "revision"), [({"EXPORTER_REVISION": "3f2a91c"}, "3f2a91c"), ({}, "unknown")])
def test_the_revision_that_an_image_was_built_from(environ: dict[str, str], revision: str) -> None:
    usual = {name: value for name, value in os.environ.items() if name != "EXPORTER_REVISION"}
    code = (
        "from exporter.outputs import own_metrics; from exporter.outputs.output import NOTHING_SEEN, Look;"
        "from exporter.model.slices import at_once;"
        "print(b''.join(at_once(own_metrics.render(Look(snapshot=NOTHING_SEEN)))).decode())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30, env={**usual, **environ}
    )
    assert f'pod_gpu_exporter_build_info{{version="{__version__}",revision="{revision}"}} 1\n' in ended.stdout


def test_a_histogram_counts_up_to_each_bound_and_above() -> None:
    lag = Histogram((0.5, 1.0))
    for value in (0.25, 0.5, 0.75, 2.0):
        lag.observe(value)
    assert list(lag.cumulative()) == [("0.5", 2), ("1.0", 3), ("+Inf", 4)]
    assert lag.sum == 3.5


def test_a_contradiction_is_logged_once_and_again_when_it_is_another(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("info", "logfmt")
    telemetry = Telemetry()
    says = [Trouble("", f"the annotation says {gpu}, and NVML shows GPU-2", "look at it") for gpu in ("GPU-0", "GPU-1")]
    for now in ({"ml/a/main": says[0]}, {"ml/a/main": says[0]}, {"ml/a/main": says[1]}, {}, {"ml/a/main": says[1]}):
        telemetry.note_contradictions(now)
    logged = [line for line in capsys.readouterr().err.splitlines() if "an allocator is contradicted" in line]
    assert [("GPU-0" in line, "ml/a/main" in line) for line in logged] == [(True, True), (False, True), (False, True)]
