"""The command line: exit codes and one clear line. Signals and what is imported need a process of their own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from exporter.cli.main import run as run_command
from exporter.cli.main import run_group
from exporter.kubectl.command import commands as kubectl_gpu
from tests.support.command import run_here
from tests.support.components import real
from tests.support.demo import demo as running_demo
from tests.support.exporter import config_from
from tests.support.forked import Forked
from tests.support.waiting import PATIENCE_SECONDS, wait_until

PROGRAM = [sys.executable, "-m", "exporter"]


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, text=True, timeout=30, check=False, env={**os.environ, **environ}
    )


@contextmanager
def listening(*words: str, log: Path) -> Iterator[tuple[Forked, str]]:
    """A command as a process, once it listens at any free port, and its address; until the block ends."""
    process = Forked(run_command, [*words, "--web.listen-address=127.0.0.1:0"], log)
    try:
        matched = wait_until(lambda: re.search(r"address=(\S+)\s", log.read_text()), why=log.read_text)
        assert matched
        yield process, matched[1]
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--no-such-flag"], "--no-such-flag: no such flag"),
        (["serve", "--kubelet.socket="], "it takes an absolute path"),
        (["serve", "--web.config.file=/no/such/web.yml"], "--web.config.file: '/no/such/web.yml' cannot be read"),
        (["--sharing=copy", "--sharing=device"], "--sharing is given 2 times"),
        (
            ["frobnicate"],
            "frobnicate: no such command; there are serve, demo, textfile, cluster, operator, top, report, doctor,",
        ),
        (["textfile"], "--output is missing; textfile needs it: pod-gpu-metrics-exporter textfile --output FILE"),
        # issue 22, line 24: before anybody waits for a source
        (["textfile", "--output=/no/such/gpu.prom"], "--output: there is no folder /no/such; make it, or name the one"),
        (["textfile", "--output=/proc/gpu.prom"], "--output: nothing can be written to the folder /proc"),
        (["demo", "--nodes=2", "--settings-file=x"], "--settings-file goes with one node"),
        (["cluster"], "--cluster.node, --cluster.service, --cluster.selector"),
        (["serve", "extra"], "extra"),
        (["demo", "--gpus=2", "--shared=3"], "more than --gpus 2"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_one_line(arguments: list[str], says: str) -> None:
    ended = run_here(*arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1


# issue 22, line 20
def test_a_path_on_the_command_line_is_relative_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for flag, name in (("--web.config.file", "web.yml"), ("--dcgm.file", "./gpu.prom"), ("--kubelet.socket", "x.sock")):
        config = config_from(["serve", flag, name])
        assert config.shown()[flag[2:]]["value"] == str(tmp_path / name)
    socket_url = config_from(["serve", "--kubelet.socket", "unix:///run/x.sock"])
    assert socket_url.kubelet.socket == "/run/x.sock"
    # the environment and the file are read where somebody else starts the program
    ended = run_here(POD_GPU_EXPORTER_WEB_CONFIG_FILE="web.yml")
    assert "it takes an absolute path" in ended.stderr


# issue 22, line 20
def test_kubectl_gpu_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_group(kubectl_gpu, [], "kubectl gpu") == 0
    asked = capsys.readouterr()
    assert run_group(kubectl_gpu, ["--help"], "kubectl gpu") == 0
    assert (asked.out, asked.err) == (capsys.readouterr().out, "")
    assert all(len(line) <= 80 for line in asked.out.splitlines())


def test_the_environment_is_named_in_the_errors_of_a_process() -> None:
    ended = run(LOG_LEVEL="loud")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "LOG_LEVEL: 'loud' is not allowed" in ended.stderr


@pytest.mark.parametrize("content", ["kubelet: [", "- a\n- b\n", "1: 2\n"])
def test_a_bad_file_ends_with_2_and_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content)
    ended = run_here(f"--config.file={path}")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr


# issue 7, line 11
@pytest.mark.parametrize("module", ["exporter.cli.main", "click", "grpc"])
def test_ctrl_c_while_the_program_is_being_read_ends_it_without_a_trace(module: str) -> None:
    """It is interrupted as it imports `module`, by a finder that is asked first."""
    script = f"""
import os, signal, sys
# a shell starts what it runs in the background with the signal ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from exporter.__main__ import main
main()
"""
    command = [sys.executable, "-c", script, "serve"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


# issue 7, line 25
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "flag", ["config.file", "web.config.file", "dcgm.http-config", "device-rules", "inventory.file"]
)
def test_a_fifo_in_place_of_a_file_ends_with_2_and_one_line(tmp_path: Path, flag: str) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    ended = run_here("serve", f"--{flag}={path}")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr
    assert f"--{flag}: '{path}' cannot be read: it is a FIFO, not a file" in ended.stderr


# issue 7, line 25
def test_a_fifo_in_place_of_samples_stops_neither_the_answers_nor_the_end(tmp_path: Path) -> None:
    path = tmp_path / "dcgm.prom"
    os.mkfifo(path)
    with listening("serve", f"--dcgm.file={path}", "--kubelet.socket=/no", log=tmp_path / "log") as (process, address):
        for _ in range(2):
            with pytest.raises(urllib.error.HTTPError) as answer:
                urllib.request.urlopen(f"http://{address}/gpu/metrics", timeout=30)
            assert answer.value.code == 503
            assert f"{path} cannot be read: it is a FIFO, not a file" in answer.value.read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.join(30) == 0


def test_help_and_version() -> None:
    assert "serve" in run_here("--help").stdout
    assert "--kubelet.socket" in run_here("serve", "--help").stdout
    # nobody would see the accounts of a command that does not look by itself
    names = ("serve", "demo", "textfile")
    assert [name for name in names if "--accounting." in run_here(name, "--help-all").stdout] == ["serve", "demo"]
    assert re.search(r"\d+\.\d+\.\d+", run("--version").stdout)


# issue 7, line 15
@pytest.mark.parametrize(
    ("arguments", "may_import"),
    [
        (["--version"], set()),
        (["healthcheck", "--web.listen-address=127.0.0.1:1"], set()),
        (["cluster"], {"aiohttp", "asyncio", "prometheus_client"}),
        (["textfile", "--output=/x"], {"aiohttp", "asyncio", "grpc", "prometheus_client"}),
    ],
)
def test_a_command_imports_what_it_needs_and_no_more(arguments: list[str], may_import: set[str]) -> None:
    """`healthcheck` runs every 30 s in the image: with the servers' libraries it took 0.8 s and 55 MB."""
    heavy = {
        "aiohttp",
        "asyncio",
        "bcrypt",
        "exporter.simulator",
        "exporter.doctor.checkup",
        "grpc",
        "prometheus_client",
        "yaml",
    }
    code = f"import sys; from exporter.cli.main import run; run({arguments!r}); print(*{heavy!r} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert set(ended.stdout.splitlines()[-1].split()) <= may_import


def test_a_healthcheck_takes_the_file_of_the_cluster_role(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("web.listen-address: 127.0.0.1:1\ncluster.node: http://a:9400\n")
    ended = run_here("healthcheck", POD_GPU_EXPORTER_CONFIG_FILE=str(path))
    assert (ended.returncode, "127.0.0.1:1 does not answer" in ended.stderr) == (1, True), ended.stderr
    path.write_text("web.listen-address: 127.0.0.1:1\nclutser.node: http://a:9400\n")
    ended = run_here("healthcheck", POD_GPU_EXPORTER_CONFIG_FILE=str(path))
    assert (ended.returncode, "'clutser.node' is not a key" in ended.stderr) == (2, True), ended.stderr


def test_a_taken_port_ends_with_a_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run(f"--web.listen-address=127.0.0.1:{port}")
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert f"127.0.0.1:{port}" in ended.stderr
    assert "one of the two must move" in ended.stderr


@pytest.fixture
def demo() -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [*PROGRAM, "demo", "--gpus=2", "--shared=1", "--web.listen-address=127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while not (found := re.search(r"http://localhost:(\d+)/", process.stderr.readline())):
        assert process.poll() is None
    yield process, f"http://127.0.0.1:{found[1]}"
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_shows_pods_and_ends_cleanly(demo: tuple[subprocess.Popen[str], str], number: signal.Signals) -> None:
    process, base = demo
    with urllib.request.urlopen(f"{base}/gpu/metrics", timeout=30) as answer:
        page = answer.read().decode()
    assert re.search(
        r'DCGM_FI_DEV_POWER_USAGE\{.*,pod="[a-z0-9-]+",namespace="[a-z-]+",container="[a-z]+".*\} [0-9.]+', page
    )
    process.send_signal(number)
    _, rest = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Traceback" not in rest


def all_explained(base: str) -> Any:
    """/debug/mapping, once each held device has samples, and each other device a reason; before, nothing.

    In the demo pods come and go: a device of one that has just ended is on the page no longer.
    """
    with urllib.request.urlopen(f"{base}/debug/mapping", timeout=PATIENCE_SECONDS) as answer:
        mapping = json.load(answer)
    are_held = all(row["matched"] and row["samples"] for row in mapping["assigned"])
    return mapping if are_held and all(row["owners"] or row["reason"] for row in mapping["seen"]) else None


def test_the_demo_shows_every_kind_of_device_and_explains_each() -> None:
    words = [
        "--mig",
        "--shared",
        "3",
        "--claims",
        "1",
        "--labels.pod-labels=team",
        "--counters",
        "full",
        "--speed",
        "60",
    ]
    with running_demo(*words) as base:
        mapping = wait_until(lambda: all_explained(base))
        with urllib.request.urlopen(f"{base}/gpu/metrics", timeout=PATIENCE_SECONDS) as answer:
            page = answer.read().decode()
    assert {row["resource"] for row in mapping["assigned"]} >= {"nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"}
    assert len(mapping["seen"]) == 7 + 7
    assert 'gpu_shared="true"' in page
    assert "label_team=" in page
    assert "DCGM_FI_DEV_CLOCKS_EVENT_REASONS{" in page


# issue 10, "Must show" 1
def test_the_demo_knows_its_mig_instances_by_nvml_alone() -> None:
    real("gcc")
    with (
        running_demo("--gpus=3", "--shared=0", "--mig=2", "--nvml.mode=on") as base,
        urllib.request.urlopen(f"{base}/debug/mapping", timeout=30) as answer,
    ):
        mapping = json.load(answer)
    instances = [row for row in mapping["assigned"] if row["resource"] == "nvidia.com/mig-1g.10gb"]
    assert len(instances) > 2
    assert all(row["matched"] and row["samples"] for row in instances)
    assert "inventory.file" not in mapping["settings"]
    told = {finding["about"]: finding["level"] for finding in mapping["doctor"]["findings"]}
    assert told["nvml"] == "ok"


# issue 10, "Must show" 5
def test_the_demo_does_without_dcgm_exporter() -> None:
    real("gcc")
    with running_demo("--gpus=2", "--shared=0", "--mig=1", "--dcgm.mode=off") as base:
        pages = []
        for path in ("gpu/metrics", "metrics"):
            with urllib.request.urlopen(f"{base}/{path}", timeout=30) as answer:
                pages.append(answer.read().decode())
    assert re.search(r'DCGM_FI_DEV_POWER_USAGE\{gpu="1".*GPU_I_ID="\d+".*pod="[^"]+".*\} \d', pages[0])
    assert 'source_up{source="nvml"} 1' in pages[1]
    assert 'source="dcgm' not in pages[1]


def test_the_demo_moves_to_another_port_when_its_own_is_taken() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        process = subprocess.Popen(
            [*PROGRAM, "demo", "--gpus=1", "--shared=0"],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HTTP_LISTEN_PORT": str(port)},
        )
        assert process.stderr is not None
        line = next(line for line in process.stderr if "http://localhost:" in line)
        process.terminate()
        process.communicate(timeout=30)
    assert not line.strip().startswith(f"http://localhost:{port}/")


def test_either_side_may_start_later(tmp_path: Path) -> None:
    """The exporter is up first: 503 until there is a page, and pods as soon as there is a kubelet."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ("serve", f"--kubelet.socket={tmp_path}/kubelet.sock", f"--dcgm.url=http://127.0.0.1:{port}/metrics")
    seen = []
    with listening(*words, log=tmp_path / "log") as (_, address):
        later = subprocess.Popen(
            [sys.executable, "-m", "tests.support.late_node", str(tmp_path / "kubelet.sock"), str(port)]
        )
        try:

            def has_pods() -> bool:
                seen.append(what_is_served(f"http://{address}/gpu/metrics"))
                return seen[-1] == "pods"

            wait_until(has_pods)
        finally:
            later.terminate()
            later.communicate(timeout=30)
    assert seen[0] == "503"
    assert "page" in seen


def what_is_served(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return "pods" if b'pod="late"' in answer.read() else "page"
    except urllib.error.HTTPError as error:
        return str(error.code)


def test_sigterm_lets_the_scrape_in_flight_end(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        of_page = f"--dcgm.url=http://127.0.0.1:{upstream.getsockname()[1]}/metrics"
        words = ("serve", f"--kubelet.socket={tmp_path}/kubelet.sock", of_page)
        with listening(*words, log=tmp_path / "log") as (process, address):
            scrape = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
            scrape.sendall(b"GET /gpu/metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            page, _ = upstream.accept()
            # the scrape is in flight: its upstream has the request and has not answered
            page.recv(4096)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert process.returncode is None
            page.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n")
            scrape.settimeout(10)
            answer = scrape.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200 OK")
            page.close()
            scrape.close()
            assert process.join(30) == 0


# issue 7, lines 11 and 14
def test_the_log_begins_with_the_places_that_will_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.prom"
    page.write_text('DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1"} 1\n')
    (tmp_path / "config.yaml").write_text("labels.names: legacy\n")
    words = (
        "serve", f"--dcgm.file={page}", "--dcgm.url=http://me:hunter2@127.0.0.1:9/m?token=hunter2",
        "--sharing=split", "--log.level=debug", f"--config.file={tmp_path}/config.yaml",
    )  # fmt: skip
    monkeypatch.setenv("POD_GPU_EXPORTER_LABELS_IDEL", "empty")
    monkeypatch.setenv("DCGM_PORT", "9400")
    with listening(*words, log=tmp_path / "log") as (process, address):
        with urllib.request.urlopen(f"http://{address}/gpu/metrics", timeout=30) as answer:
            size = len(answer.read())
        process.send_signal(signal.SIGTERM)
        assert process.join(30) == 0
    log = (tmp_path / "log").read_text()
    first, *_ = lines = log.splitlines()
    assert "address=" in first
    (reading,) = [line for line in lines if "msg=reading" in line]
    for part in (
        f'pages="dcgm:127.0.0.1:9 file:{page}"',
        "kubelet=/nonexistent/",
        "labels=pod_name,pod_namespace,container_name",
        "sharing=split",
        "dra=auto",
        "resources=nvidia.com/*,tencent.com/vcuda-*,volcano.sh/vgpu-number,aliyun.com/gpu-mem",
        "inventory=auto",
        "level=info",
    ):
        assert part in reading
    assert "POD_GPU_EXPORTER_LABELS_IDEL is no setting" in log
    assert "DCGM_PORT '9400' is ignored" in log
    assert re.search(
        r'level=debug msg=setting name=labels\.names value=legacy given_by="config file: labels\.names"', log
    )
    assert re.search(r"level=debug msg=read source=kubelet up=False reason=missing seconds=[0-9.e-]+", log)
    assert re.search(rf"level=debug msg=page source=file:{page} bytes={page.stat().st_size} up=True", log)
    assert re.search(r"level=debug msg=page source=dcgm:127\.0\.0\.1:9 up=False reason=refused", log)
    assert re.search(rf"level=debug msg=answered path=/gpu/metrics status=200 bytes={size} seconds=[0-9.]+", log)
    assert "hunter2" not in log


def test_the_cluster_role_as_a_process_takes_a_changed_file_over(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("cluster:\n  node: [gone=http://127.0.0.1:1]\n  interval: 200ms\n")
    words = ("cluster", f"--config.file={path}", "--log.level=debug")
    with listening(*words, log=tmp_path / "log") as (process, address):

        def nodes() -> dict[str, str]:
            with urllib.request.urlopen(f"http://{address}/debug/nodes", timeout=30) as answer:
                return {node["name"]: node["reason"] for node in json.load(answer)["nodes"]}

        assert nodes() == {"gone": "refused"}
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=30) as answer:
            assert answer.read().startswith(b"ready; 1 of 1 nodes are missing: gone: ")
        path.write_text("cluster:\n  node: [other=http://127.0.0.1:2]\n")
        wait_until(lambda: nodes() == {"other": "refused"})
        process.send_signal(signal.SIGTERM)
        assert process.join(30) == 0
    log = (tmp_path / "log").read_text()
    assert "configuration reloaded" in log
    assert "Traceback" not in log
