"""The command `report`: its flags, and a server that has nothing, or is none."""

import http.server
import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from exporter.cli import main
from tests.support.components import free_port

PROGRAM = [sys.executable, "-m", "exporter", "report"]


@dataclass
class Ended:
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Ended]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """The command, in this process."""

    def run_it(*arguments: str) -> Ended:
        code = main.run(["report", *arguments])
        return Ended(code, *capsys.readouterr())

    return run_it


def counter(value: float, **labels: str) -> dict[str, object]:
    of = {"namespace": "a", "pod": "p", "container": "c", "UUID": "GPU-1", "node": "n", "job": "j", "instance": "i"}
    return {"metric": {**of, **labels}, "value": [0, str(value)]}


@contextmanager
def server(answer: Any) -> Iterator[str]:
    """A server whose result of a query is what `answer` says of its text and its moment."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            result = answer(query.get("query", [""])[0], float(query.get("time", ["0"])[0]))
            body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        yield url


class Server(http.server.ThreadingHTTPServer):
    """A server that is silent about a client that has gone: its words would stand among those of the command."""

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # typeshed's type of a request is private


@contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    with Server(("127.0.0.1", 0), handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}"
        finally:
            listening.shutdown()
            thread.join()


def held(expression: str, at_seconds: float) -> list[dict[str, object]]:
    """A pod that has held a GPU since the beginning of time, a second a second."""
    if "allocated_seconds" not in expression or "resets" in expression:
        return []
    return [counter(at_seconds, pod="\x1b[2Jp", namespace="=a")]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--prometheus"),
        (["--prometheus=localhost:9090"], "before it: http://localhost:9090"),
        (["--prometheus=http://u:p@localhost:9090"], "without a password"),
        (["--prometheus=http://x", "--by=team"], "--by: 'team' is not allowed; it takes namespace,"),
        (["--prometheus=http://x", "--since=soon"], "--since: 'soon' is not allowed"),
        (["--prometheus=http://x", "--since=1h", "--from=2026-01-01"], "give one of them"),
        (["--prometheus=http://x", "--price-per-gpu-hour=x"], "--price-per-gpu-hour: 'x' is not allowed"),
        (["--prometheus=http://x", "--price-per-kwh=x"], "--price-per-kwh: 'x' is not allowed"),
        (["--prometheus=http://x", "--match=x"], "--match: 'x' is not allowed"),
        (["--prometheus=http://x", "--timeout=0s"], "--timeout: '0s' is not allowed"),
        (["--prometheus=http://x", "--format=xml"], "--format"),
        (["--prometheus=http://x", "--month=2026-13"], "--month: '2026-13' is not allowed; it takes a month"),
        (["--prometheus=http://x", "--month=2026-01", "--to=now"], "--month says where the span begins and ends"),
        (["--prometheus=http://x", "--time-zone=Mars/Olympus"], "--time-zone: 'Mars/Olympus' is not allowed"),
        (["--prometheus=http://x", "--time-zone=../etc"], "--time-zone: '../etc' is not allowed"),
        (["--prometheus=http://x", "--time-zone="], "--time-zone: '' is not allowed"),
        (["--prometheus=http://x", "--cluster-label=a b"], "--cluster-label: 'a b' is not allowed"),
        (["--prometheus=http://x", "--top=0"], "--top"),
        (["--prometheus=http://x", "--currency=euro"], "--currency: 'euro' is not allowed"),
        (["--prometheus=http://x", "--format=focus", "--currency=EUR"], "--format focus: rows are charges"),
        (["--prometheus=http://x", "--format=focus", "--price-per-kwh=1"], "--format focus: rows are charges"),
        (["--prometheus=http://x", "--prometheus.http-config=/no/such"], "--prometheus.http-config: '/no/such' cannot"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_one_line(run: Run, arguments: list[str], says: str) -> None:
    ended = run(*arguments)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr
    assert says in ended.stderr


def test_a_server_that_is_not_there_is_said_with_what_to_do(run: Run) -> None:
    ended = run(f"--prometheus=http://127.0.0.1:{free_port()}")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert "nobody listens there -> is Prometheus running" in ended.stderr


# issue 22, line 20
def test_the_exporter_itself_in_place_of_prometheus_is_named(run: Run) -> None:
    class Exporter(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Exporter) as url:
        ended = run(f"--prometheus={url}")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert "a Prometheus server (usually port 9090), and not the exporter itself?" in ended.stderr


def test_an_answer_that_is_no_json_is_the_only_thing_said() -> None:
    class NoJson(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_: object) -> None:
            pass

    with serving(NoJson) as url:
        ended = subprocess.run([*PROGRAM, f"--prometheus={url}"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1), ended.stderr
    assert "it is no JSON -> is this the address of a Prometheus server" in ended.stderr


def test_a_server_without_accounts_is_said_with_what_to_do(run: Run) -> None:
    with server(lambda *_: []) as url:
        ended = run(f"--prometheus={url}", "--since=1m", "--match=cluster=a")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "no accounts of that span (pod_gpu_allocated_seconds_total), or nothing fits --match ->" in ended.stderr
    with server(lambda text, _: [counter(1)] if "build_info" in text else []) as url:
        ended = run(f"--prometheus={url}", "--since=1m")
    assert "the exporter is scraped, and keeps no accounts -> update it" in ended.stderr


@pytest.mark.parametrize("form", ["table", "csv", "json", "html", "focus"])
def test_every_form_is_written_and_nothing_else(run: Run, form: str) -> None:
    with server(held) as url:
        ended = run(
            f"--prometheus={url}", "--since=1m", "--price-per-gpu-hour=180", f"--format={form}", "--currency=EUR"
        )
    assert ended.returncode == 0, ended.stderr
    assert "\x1b" not in ended.stdout + ended.stderr
    assert {"table": "3.00", "csv": "'=a", "json": '"gpu_hours_held": 0.016667', "html": "<svg", "focus": "3.00000006"}[
        form
    ] in ended.stdout
    # a file of rows has no place for what could not be known
    assert ("note: " in ended.stderr) is (form in ("csv", "focus"))


def test_names_in_any_script_are_written_in_any_locale() -> None:
    def named(expression: str, at: float) -> list[dict[str, object]]:
        return [{**one, "metric": {**one["metric"], "namespace": "名前"}} for one in held(expression, at)]  # type: ignore[dict-item]

    with server(named) as url:
        ended = subprocess.run(
            [*PROGRAM, f"--prometheus={url}", "--since=1m"],
            capture_output=True,
            encoding="utf-8",
            check=True,
            env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
        )
    assert "名前" in ended.stdout


def test_a_password_of_the_server_stands_in_a_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "http.yaml"
    path.write_text("basic_auth: {username: u, password_file: secret}\n")
    ended = run("--prometheus=http://127.0.0.1:1", f"--prometheus.http-config={path}")
    assert ended.returncode == 2
    assert "secret' cannot be read" in ended.stderr


def test_a_terminal_shows_how_far_it_is_and_is_left_clean() -> None:
    with server(held) as url:
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [*PROGRAM, f"--prometheus={url}", "--since=3m"], stdout=subprocess.DEVNULL, stderr=theirs
        ) as process:
            os.close(theirs)
            shown = b""
            while piece := _read(ours):
                shown += piece
            os.close(ours)
    assert process.returncode == 0
    assert b"3 of 3" in shown
    assert shown.decode().split("\r")[-2:] == [" " * 79, ""]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""
