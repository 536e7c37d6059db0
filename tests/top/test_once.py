"""`top --once` and `--json`: fixed answers over a real socket, and what a user sees of them.

`make golden` writes tests/data/top/golden anew.
"""

import io
import json
import locale
import os
import ssl
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from exporter.cli.main import run
from exporter.config.http_file import HttpConfig, Secret
from exporter.top.transport import Gone, HttpTransport, ShownReader
from tests.support.certificates import Authority
from tests.support.components import free_port
from tests.support.fixed_exporter import fixed_exporter
from tests.support.golden import Golden
from tests.support.places import DATA

FOLDER = DATA / "top" / "golden"
UTF8 = {"LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
# The name of a golden: the role, the flags, and what the environment says.
CASES: dict[str, tuple[str, list[str], dict[str, str]]] = {
    "node-80": ("node", [], {"COLUMNS": "80"}),
    "node-200": ("node", [], {"COLUMNS": "200"}),
    "node-40": ("node", [], {"COLUMNS": "40"}),
    "node-80-ascii": ("node", [], {"COLUMNS": "80", "LC_ALL": "C"}),
    "node-80-idle": ("node", ["--sort=memory", "--filter=IDLE notebook"], {"COLUMNS": "80"}),
    "node-80-processes": ("node", ["--processes", "--sort", "memory"], {"COLUMNS": "80"}),
    "cluster-80": ("cluster", [], {"COLUMNS": "80"}),
    "cluster-200": ("cluster", ["--sort=utilization"], {"COLUMNS": "200"}),
}
# what the interpreter makes of a locale is seen from outside alone
OF_PROCESSES = ("node-80", "node-80-ascii")


def top(*arguments: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    given = {name: text for name, text in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LANG")}
    return subprocess.run(
        [sys.executable, "-m", "exporter", "top", *arguments],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=30,
        check=False,
        env={**given, **UTF8, **environ},
    )


def top_here(*arguments: str, **environ: str) -> bytes:
    """The same without a process of its own, which is most of the time that it takes."""
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with (
        patch.dict(os.environ, {**UTF8, **environ}),
        patch.object(sys, "stdout", output),
        patch.object(locale, "getencoding", lambda: "UTF-8"),
        pytest.raises(SystemExit, match=r"^0$"),
    ):
        run(["top", *arguments])
    output.seek(0)
    return output.buffer.read()


# issue 12, "Must show" 2
@pytest.mark.parametrize("name", CASES)
def test_the_table_is_the_golden(name: str, golden: Golden) -> None:
    role, arguments, environ = CASES[name]
    with fixed_exporter(role) as exporter:
        command = ("--once", "--url", exporter.url, *arguments)
        if name in OF_PROCESSES:
            ended = top(*command, **environ)
            assert (ended.returncode, ended.stderr) == (0, b"")
            shown = ended.stdout
        else:
            shown = top_here(*command, **environ)
    golden.holds(FOLDER / f"{name}.txt", shown.decode())


def test_no_golden_is_stale(golden: Golden) -> None:
    golden.holds_no_other(FOLDER.iterdir(), (FOLDER / f"{name}.txt" for name in CASES))


def test_the_json_has_what_the_table_shows() -> None:
    with fixed_exporter("node") as exporter:
        ended = top("--json", "--url", exporter.url, "--processes", "--filter", "ml-research")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.isascii()
    found = json.loads(ended.stdout)
    assert found["exporter"] == {
        "url": exporter.url,
        "version": "1.2.3",
        "role": "node",
        "node": "gpu-node-1",
        "nodes": 1,
    }
    shared = next(device for device in found["devices"] if device["shared"])
    # GPU 2 has three owners, each measured: the device's are the sum of theirs
    assert [owner["utilization_percent"] for owner in shared["owners"]] == pytest.approx([2.3, 65.1, 32.6], abs=0.1)
    assert (shared["utilization_percent"], shared["memory_used_mib"]) == (100, 5505 + 15598 + 14680)
    assert [owner["idle"] for owner in shared["owners"]] == [True, False, False]
    cut, *instances = (device for device in found["devices"] if device["gpu"] == "3")
    assert (cut["entity"], cut["mig_instances"], cut["power_watts"]) == ("mig-parent", 7, 453.427)
    assert [(each["mig_instance_id"], each["power_watts"], each["held"]) for each in instances] == [("7", None, "held")]
    assert {process["owner"].split("/")[0] for process in found["processes"]} == {"ml-research"}


def test_it_says_in_one_line_that_nobody_answers() -> None:
    port = free_port()
    for arguments in (["--json"], []):
        ended = top("--url", f"http://127.0.0.1:{port}", *arguments)
        assert (ended.returncode, ended.stdout) == (1, b"")
        assert ended.stderr.decode().count("\n") == 1
        assert f"no exporter answers at http://127.0.0.1:{port}: Connection refused" in ended.stderr.decode()


def test_without_a_url_it_asks_the_exporter_of_this_machine() -> None:
    with fixed_exporter("cluster") as exporter:
        port = exporter.url.rpartition(":")[2]
        ended = top(HTTP_LISTEN_PORT=port)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(b"4 nodes")


def test_a_url_without_a_scheme_is_tried_by_http_and_https(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server = authority.issue("server", "localhost")
    context.load_cert_chain(server.cert, server.key)
    config = tmp_path / "http.yaml"
    config.write_text(json.dumps({"tls_config": {"ca_file": str(authority.ca)}}))
    for tls in (None, context):
        with fixed_exporter("node", tls) as exporter:
            where = exporter.url.partition("://")[2]
            document = json.loads(top_here("--json", "--url", where, "--http-config", str(config)))
        assert document["exporter"]["url"] == exporter.url


def test_an_address_that_breaks_before_its_first_answer_is_asked_again() -> None:
    """Such as `kubectl port-forward`, which takes a connection and drops it while the pod is not there."""
    with fixed_exporter("node") as exporter:
        urls = (exporter.url, exporter.url.replace("http:", "https:"))
        asking = ShownReader([HttpTransport(url, HttpConfig(), verifies=False) for url in urls])
        exporter.drops = True
        with pytest.raises(Gone):
            asking.ask("devices")
        exporter.drops = False
        assert asking.ask("devices").shown.role == "node"


def test_a_token_and_a_path_may_be_in_any_script() -> None:
    config = HttpConfig(scheme="Bearer", credentials=Secret(value="t€ken"))
    with fixed_exporter("node") as exporter:
        exporter.answers = {f"/%C3%BC{path}": answer for path, answer in exporter.answers.items()}
        assert ShownReader([HttpTransport(f"{exporter.url}/ü", config)]).ask("devices").shown.role == "node"
        assert exporter.asked[0]["Authorization"].encode("latin-1").decode() == "Bearer t€ken"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--url", "localhost:port"], "--url: 'localhost:port' is not allowed; it takes HOST:PORT, http://"),
        (["--url", "user:secret@host:9400"], "takes a password"),
        (["--url", "http://user:secret@host"], "takes a password"),
        (["--url", "http://a..b:9400"], "--url: 'http://a..b:9400' is not allowed"),
        (["--interval", "0s"], "--interval: '0s' is not allowed"),
        (["--interval", f"1{'0' * 20}h"], "is not allowed; at most 24h"),
        (["--sort", "size"], "'size' is not one of"),
        (["--http-config", "/no/such/file"], "--http-config: '/no/such/file' cannot be read"),
    ],
)
def test_a_wrong_flag_ends_it_with_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", *arguments]) == 2
    said = capsys.readouterr().err
    assert (said.count("\n"), says in said) == (1, True), said


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    with fixed_exporter("node") as exporter:
        command = f"{sys.executable} -m exporter top --once --url {exporter.url} | true"
        ended = subprocess.run(["sh", "-c", command], capture_output=True, timeout=30, check=False)
    assert ended.stderr == b""


def test_it_fails_where_the_exporter_has_no_gpus_to_tell_of_and_says_why() -> None:
    with fixed_exporter("node") as exporter:
        exporter.say("/container/metrics", {"error": "dcgm:127.0.0.1:9401: nobody listens there"}, 503)
        ended = top("--once", "--url", exporter.url)
    assert ended.returncode == 1
    assert "dcgm:127.0.0.1:9401: nobody listens there" in ended.stdout.decode()
