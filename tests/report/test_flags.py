"""What `report` makes of its flags, from a connection in memory: its form and notes, and why it refuses."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

import pytest

from exporter.cli.main import run
from exporter.errors import ConfigError, ExporterError, Unavailable
from exporter.report.command import Progress, make

FLAGS: Mapping[str, Any] = {
    "since": "2m", "start": None, "end": None, "month": None, "time_zone": "UTC", "compare": False,
    "wants_advice": False, "by": "namespace", "per_token": False, "top": None, "form": "table",
    "price_per_gpu_hour": (), "price_per_kwh": None, "currency": None, "match": (), "cluster_label": "cluster",
    "timeout": "60s",
}  # fmt: skip
ROW = {"namespace": "shop", "pod": "p-0", "container": "c", "UUID": "GPU-1", "node": "n", "job": "j"}
Answer = Callable[[str, float], list[tuple[Mapping[str, str], float]]]


def held(expression: str, at_seconds: float) -> list[tuple[Mapping[str, str], float]]:
    """A pod has held a GPU since 1970, a second a second."""
    is_asked = "allocated_seconds" in expression and "resets" not in expression
    return [(ROW, at_seconds)] if is_asked else []


@dataclass
class Connection:
    answer: Answer = held
    asked: list[tuple[str, float]] = field(default_factory=list)
    seconds: float = 0.0
    is_closed: bool = False

    def __call__(self, seconds: float) -> "Connection":
        self.seconds = seconds
        return self

    async def query(self, expression: str, *, at_seconds: float | None) -> bytes:
        self.asked.append((expression, at_seconds or 0.0))
        rows = [{"metric": labels, "value": [0, str(value)]} for labels, value in self.answer(*self.asked[-1])]
        return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()

    async def get(self, path: str, parameters: Mapping[str, str]) -> bytes:
        raise Unavailable("http_status", f"no {path} {parameters}", remedy="look")

    async def close(self) -> None:
        self.is_closed = True


def made(capsys: pytest.CaptureFixture[str], connection: Connection | None = None, **flags: object) -> tuple[str, str]:
    """What it writes to the standard output and to the standard error."""
    make(connection or Connection(), **{**FLAGS, **flags})
    written = capsys.readouterr()
    return written.out, written.err


def test_a_report_closes_its_connection_and_waits_as_long_as_it_may(capsys: pytest.CaptureFixture[str]) -> None:
    connection = Connection()
    made(capsys, connection, timeout="90s")
    assert (connection.seconds, connection.is_closed) == (90.0, True)
    assert connection.asked


@pytest.mark.parametrize(
    ("flags", "begins"),
    [
        ({}, "GPUs from "),
        ({"form": "csv"}, "from,to,namespace,"),
        ({"form": "json"}, "{\n"),
        ({"form": "html"}, "<!doctype html>"),
        ({"form": "focus", "currency": "EUR", "price_per_gpu_hour": ("2",)}, "AllocatedMethodDetails,"),
        ({"wants_advice": True}, "What would have sufficed"),
        ({"wants_advice": True, "form": "json"}, '{\n  "advice"'),
    ],
)
def test_notes_stand_beside_what_has_no_place_for_them(
    flags: Mapping[str, Any], begins: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = made(capsys, **flags)
    assert out.startswith(begins)
    has_no_place = flags.get("form") in {"csv", "focus"} or "wants_advice" in flags
    assert err.startswith("note: no energy was counted") is has_no_place


def test_two_minutes_of_one_gpu_cost_what_the_price_says(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = made(capsys, form="json", price_per_gpu_hour=("30",))
    total = json.loads(out)["total"]
    assert (total["gpu_hours_held"], total["cost"]) == (pytest.approx(2 / 60, abs=1e-6), pytest.approx(1, abs=1e-3))


def test_a_label_of_clusters_tells_them_apart(capsys: pytest.CaptureFixture[str]) -> None:
    def of_site(expression: str, at: float) -> list[tuple[Mapping[str, str], float]]:
        return [({**labels, "site": "berlin"}, value) for labels, value in held(expression, at)]

    out, _ = made(capsys, Connection(of_site), form="json", by="cluster", cluster_label="site")
    assert [group["name"] for group in json.loads(out)["groups"]] == ["berlin"]


def test_every_query_has_the_matchers(capsys: pytest.CaptureFixture[str]) -> None:
    connection = Connection()
    made(capsys, connection, match=("job=gpu", "zone!=b"), wants_advice=True)
    assert all('{job="gpu", zone!="b"' in expression for expression, _ in connection.asked)
    assert any("pod_gpu_memory_used_bytes" in expression for expression, _ in connection.asked)
    without = Connection()
    made(capsys, without)
    assert not any("pod_gpu_memory_used_bytes" in expression for expression, _ in without.asked)


def test_the_span_before_is_asked_for_only_to_compare(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = made(capsys, form="json", compare=True)
    assert json.loads(out)["total"]["gpu_hours_held_before"] == pytest.approx(2 / 60, abs=1e-6)
    out, _ = made(capsys, form="json")
    assert "compared_from" not in out
    connection = Connection()
    make(connection, **{**FLAGS, "month": "2026-10", "since": None, "compare": True, "time_zone": "Europe/Berlin"})
    assert capsys.readouterr().out.startswith("GPUs from 2026-10-01T00:00:00+02:00")
    assert min(at for _, at in connection.asked) == 1_788_213_600  # 2026-09-01 in Berlin


def test_the_groups_that_held_most_are_as_many_as_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    def three(expression: str, at: float) -> list[tuple[Mapping[str, str], float]]:
        names = "abc" if held(expression, at) else ""
        return [({**ROW, "namespace": name, "UUID": name}, at) for name in names]

    out, _ = made(capsys, Connection(three), form="json", top=1)
    assert [group["name"] for group in json.loads(out)["groups"]] == ["a", "(2 others)"]


@pytest.mark.parametrize("form", ["table", "json", "csv"])
@pytest.mark.parametrize("more", [{"compare": True}, {"per_token": True}])
def test_advice_is_of_one_span_and_of_all_workloads(form: str, more: Mapping[str, object]) -> None:
    with pytest.raises(ConfigError, match="--advise: it is of one span"):
        make(Connection(), **{**FLAGS, **more, "wants_advice": True, "form": form})


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"wants_advice": True, "form": "html"}, "--advise: it is of one span, as table, json, csv"),
        ({"currency": "EURO"}, "--currency: 'EURO' is not allowed"),
        ({"form": "focus", "currency": "EUR"}, "--format focus: rows are charges"),
        ({"form": "focus", "price_per_kwh": "1"}, "--format focus: rows are charges"),
        ({"by": "namspace"}, "did you mean namespace"),
        ({"by": "team"}, "of a label of pods, label:team"),
        ({"cluster_label": "1a"}, "--cluster-label: '1a' is not allowed"),
        ({"timeout": "0s"}, "--timeout: '0s' is not allowed"),
        ({"time_zone": "Mars/Olympus"}, "--time-zone: 'Mars/Olympus' is not allowed"),
        ({"match": ("x",)}, "--match: 'x' is not allowed"),
    ],
)
def test_flags_that_do_not_fit_are_refused_before_anything_is_asked(flags: Mapping[str, object], says: str) -> None:
    connection = Connection()
    with pytest.raises(ConfigError, match=re.escape(says)):
        make(connection, **{**FLAGS, **flags})
    assert not connection.asked


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost:9090", "needs http:// or https:// before it: http://localhost:9090"),
        ("http://u:p@localhost:9090", "without a password in it"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", f"--prometheus={url}"]) == 2
    assert says in capsys.readouterr().err


def test_a_server_without_accounts_or_tokens_is_said_so() -> None:
    with pytest.raises(ExporterError, match=re.escape("(pod_gpu_allocated_seconds_total) ->")):
        make(Connection(lambda *_: []), **FLAGS)
    with pytest.raises(ExporterError, match="or nothing fits --match"):
        make(Connection(lambda *_: []), **{**FLAGS, "match": ("a=b",)})
    with pytest.raises(ExporterError, match="--per-token: no tokens are counted there"):
        make(Connection(), **{**FLAGS, "per_token": True})


def test_what_a_server_refuses_ends_a_report_in_words_with_the_remedy() -> None:
    def refuse(*_: object) -> list[tuple[Mapping[str, str], float]]:
        raise Unavailable("refused", "nobody listens there", remedy="start it")

    connection = Connection(refuse)
    with pytest.raises(ExporterError, match="--prometheus: nobody listens there -> start it"):
        make(connection, **FLAGS)
    assert connection.is_closed


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_part_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "61")
    stream = Terminal()
    progress = Progress(stream)
    progress.note(1, 4)
    line = "asking Prometheus  ######..................  1 of 4"
    assert stream.getvalue() == f"\r{line:60}\r{line}"
    progress.say("busy;\x1b asked again")
    assert stream.getvalue().endswith("\r" + " " * 60 + "\rbusy;\\x1b asked again\n")
    progress.close()
    assert stream.getvalue().endswith("\r" + " " * 60 + "\r")


def test_a_file_has_the_messages_without_the_progress() -> None:
    stream = StringIO()
    progress = Progress(stream)
    progress.note(1, 4)
    progress.say("busy")
    progress.close()
    assert stream.getvalue() == "busy\n"
