"""`doctor --bundle`: a bundle of a node, also beside an exporter that hangs, is dead, or has no rights."""

import asyncio
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import bcrypt
import pytest
import yaml

from exporter.bundle import archive
from exporter.bundle.recording import Recording
from exporter.cli.main import run
from exporter.config.settings import by_default as by_default_text
from exporter.doctor import asked_exporter, bundling
from exporter.doctor import command as doctor_command
from exporter.doctor.bundling import BundleFile, BundleMaking, BundleOrder
from exporter.doctor.running_settings import RunningExporter
from exporter.errors import ConfigError, ExporterError
from tests.support.doctor_here import doctor_in_thread
from tests.support.exporter import Start, config_of
from tests.support.forked import Forked
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import until

NOBODY = 65534


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """Eight GPUs: whole ones, shares, MIG instances and claims."""
    simulated = SimulatedNode(World(gpus=8, mig=1, shared=2, claims=2, seed=7))
    await simulated.start()
    yield simulated
    await simulated.stop()


def flags_of(node: SimulatedNode) -> list[str]:
    return [f"--kubelet.socket={node.socket}", f"--dcgm.url={node.url}", "--nvml.mode=off"]


async def doctor_as_process(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-m", "exporter", "doctor", *arguments]
    return await asyncio.to_thread(subprocess.run, words, capture_output=True, check=False, timeout=60)


def lacks(recording: Recording, what: str) -> str:
    """Why the recording lacks it."""
    (absence,) = [absence for absence in recording.absences if what in absence.what]
    return str(absence.why)


@asynccontextmanager
async def serving(node: SimulatedNode, *more: str) -> AsyncIterator[tuple[subprocess.Popen[bytes], str]]:
    """An exporter as a process of its own, once it listens, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
    words = [sys.executable, "-m", "exporter", "serve", f"--web.listen-address={address}", *flags_of(node), *more]
    process = subprocess.Popen(words, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        while b"listening" not in await asyncio.to_thread(process.stderr.readline):
            assert process.poll() is None, "it ended"
        yield process, address
    finally:
        process.kill()
        await asyncio.to_thread(process.communicate)


async def test_standard_output_has_the_bundle_alone(node: SimulatedNode, tmp_path: Path) -> None:
    done = await doctor_as_process("--bundle=-", *flags_of(node), "--web.listen-address=127.0.0.1:1")
    bundle = tmp_path / "bundle.tar.gz"
    bundle.write_bytes(done.stdout)
    recording = archive.read(bundle)
    words = done.stderr.decode()
    assert words.startswith("Collecting what the exporter reads and says: ")
    assert "Names are replaced." in words
    assert "at most 10 MiB" in words
    assert "Wrote the bundle to standard output: " in words
    assert "bundle show FILE" in words
    assert not recording.is_plain
    # a pod's name is in no part of it
    names = {pod.name for pod in node.world.pods}
    assert not any(name in repr(recording) for name in names)
    assert done.returncode == (0 if "The main job works" in words else 1)


@pytest.mark.parametrize("state", ["stopped", "dead"])
async def test_beside_an_exporter_that_does_not_answer(
    node: SimulatedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Stopped, its settings are known by its process; dead, by doctor's own flags."""
    monkeypatch.setattr(asked_exporter, "_ANSWER_SECONDS", 1.0)
    to = tmp_path / "bundle.tar.gz"
    async with serving(node, "--labels.pod-uid=on") as (process, address):
        process.send_signal(signal.SIGSTOP if state == "stopped" else signal.SIGKILL)
        if state == "dead":
            await asyncio.to_thread(process.wait)
        is_known = state == "dead"
        own = {"kubelet_socket": str(node.socket), "dcgm_url": node.url} if is_known else {}
        config = config_of(web_listen_address=address, **own)
        making = BundleMaking(BundleOrder(to=str(to), is_plain=True))
        seen = await asyncio.to_thread(making.collect, config, by_own_settings=is_known)
        making.write()
    recording = archive.read(to)
    assert recording.settings["kubelet.socket"] == (str(node.socket),)
    assert ("labels.pod-uid" in recording.settings) is (state == "stopped")
    assert b"DCGM_FI_DEV_GPU_TEMP" in recording.moments[0].outputs["/gpu/metrics"]
    why = lacks(recording, "the answers of the exporter that runs here")
    assert ("does not answer within 1 s" if state == "stopped" else "no exporter answers at") in why
    assert not recording.of_exporter
    says = "those of process" if state == "stopped" else "doctor's own"
    assert says in recording.report
    assert seen.report.render() == recording.report


async def test_beside_one_that_answers_and_shows_its_settings(
    start: Start, simulated: SimulatedNode, tmp_path: Path
) -> None:
    exporter = await start(inventory_file=str(simulated.inventory_file), sharing="split")
    to = tmp_path / "bundle.tar.gz"
    address = exporter.base.removeprefix("http://")
    done = await doctor_in_thread(f"--bundle={to}", "--plain", POD_GPU_EXPORTER_WEB_LISTEN_ADDRESS=address)
    assert done.stderr == ""
    recording = archive.read(to)
    assert "those that the exporter shows" in recording.report
    assert recording.settings["sharing"] == ("split",)
    assert recording.of_exporter.keys() >= {"/gpu/metrics", "/metrics", "/container/metrics", "/debug/mapping"}
    assert "/processes" not in recording.of_exporter
    assert recording.versions.keys() >= {"kernel", "python", "exporter", "grpcio", "protobuf", "aiohttp"}
    (moment,) = recording.moments
    assert moment.files["inventory"] == simulated.inventory_file.read_bytes()
    # what both say of the same page is alike
    ours, theirs = (json.loads(body["/container/metrics"]) for body in (moment.outputs, recording.of_exporter))
    assert [row["device_uuid"] for row in ours] == [row["device_uuid"] for row in theirs]


async def test_beside_one_with_a_password(start: Start, simulated: SimulatedNode, tmp_path: Path) -> None:
    web = tmp_path / "web.yaml"
    web.write_text(yaml.safe_dump({"basic_auth_users": {"me": bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()}}))
    exporter = await start(web_config_file=str(web))
    to = tmp_path / "bundle.tar.gz"
    address = exporter.base.removeprefix("http://")
    done = await doctor_in_thread(f"--bundle={to}", "--plain", *flags_of(simulated), f"--web.listen-address={address}")
    assert done.stderr == ""
    recording = archive.read(to)
    words = lacks(recording, "the answers of the exporter")
    assert "asks for a password" in words
    assert "kill -CONT" not in words
    assert "$2" not in repr(recording)
    assert recording.moments[0].answers


async def test_without_rights_each_lack_has_its_reason(node: SimulatedNode, tmp_path: Path) -> None:
    """No kubelet, no page, no kernel's log, no NVML and no token."""
    config = config_of(
        kubelet_socket=str(tmp_path / "nothing" / "kubelet.sock"),
        dcgm_url="http://127.0.0.1:2/metrics",
        kernel_log_mode="on",
        nvml_mode="on",
        kubernetes_url="https://127.0.0.1:1",
        web_listen_address="127.0.0.1:1",
        root=str(tmp_path),
    )
    to = tmp_path / "bundle.tar.gz"
    making = BundleMaking(BundleOrder(to=str(to), is_plain=True))
    seen = await asyncio.to_thread(making.collect, config, by_own_settings=True)
    making.write()
    assert not seen.report.works()
    recording = archive.read(to)
    for what in ("kubelet", "dcgm:127.0.0.1:2", "kernel-log", "nvml", "the Kubernetes API", "the answers of"):
        assert " -> " in lacks(recording, what), what
    assert recording.moments[0].answers
    assert all(answer.trouble is not None for answer in recording.moments[0].answers)


async def test_what_is_unsafe_is_off_and_told(node: SimulatedNode, tmp_path: Path) -> None:
    config = config_of(
        kubelet_socket=str(node.socket),
        dcgm_url=node.url,
        nvml_mode="auto",
        probe_mode="on",
        allocators_environ="on",
        processes_expose="on",
        accounting_state=str(tmp_path / "accounts.json"),
        otlp_endpoint="http://127.0.0.1:1",
        root=str(node.root),
    )
    to = tmp_path / "bundle.tar.gz"
    making = BundleMaking(BundleOrder(to=str(to), is_plain=True))
    await asyncio.to_thread(making.collect, config, by_own_settings=True)
    making.write()
    recording = archive.read(to)
    for flag in ("--probe.mode on", "--allocators.environ on", "--processes.expose on"):
        assert "off while a bundle is made" in lacks(recording, flag)
    assert recording.settings.keys().isdisjoint({"probe.mode", "accounting.state", "otlp.endpoint"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle.tar.gz"]


async def test_ctrl_c_ends_the_looks_and_keeps_what_there_is(node: SimulatedNode, tmp_path: Path) -> None:
    to = tmp_path / "bundle.tar.gz"
    log = tmp_path / "log"
    words = ["doctor", f"--bundle={to}", "--plain", "--for=10m", *flags_of(node), "--web.listen-address=127.0.0.1:1"]
    process = Forked(run, words, log)
    try:
        await until(lambda: "for 600 s" in log.read_text(), why=log.read_text)
        asked = node.kubelet.calls
        await until(lambda: node.kubelet.calls > asked)
        process.send_signal(signal.SIGINT)
        await process.wait()
    finally:
        process.kill()
    words_of_doctor = log.read_text()
    assert "Wrote the bundle" in words_of_doctor
    assert process.returncode == (0 if "The main job works" in words_of_doctor else 1)
    assert archive.read(to).moments


async def test_what_goes_with_a_bundle_alone_is_refused() -> None:
    done = await doctor_in_thread("--for=2m")
    assert "--for and --plain go with --bundle" in done.stderr
    assert (done.stdout, done.returncode) == ("", 2)


@pytest.mark.parametrize(
    ("to", "duration", "says"),
    [
        ("b.tar.gz", "11m", "at most 10m"),
        ("b.tar.gz", "601s", "at most 10m"),
        ("b.tar.gz", "soon", "--for: 'soon' is not allowed"),
        ("/nowhere/b.tar.gz", None, "--bundle: /nowhere/b.tar.gz cannot be written: No such file"),
        ("", None, "--bundle: '' is not allowed"),
        ("/", "2m", "--bundle: / cannot be written: Is a directory"),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_is_collected(to: str, duration: str | None, says: str) -> None:
    with pytest.raises(ExporterError, match=re.escape(says)):
        BundleMaking(BundleOrder.of_flags(to, duration, is_plain=True))


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = BundleFile("/dev/full")
    with pytest.raises(ExporterError, match="/dev/full cannot be written: No space left on device -> name a file"):
        file.write(b"x" * 100_000)
    to = tmp_path / "bundle.tar.gz"
    to.write_bytes(b"before")
    beside = BundleFile(str(to))
    # what ends the program while it collects leaves nothing either
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"before"]

    def fill_up(path: Path, _: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", fill_up)
        with pytest.raises(ExporterError, match="No space left on device"):
            beside.write(b"x")
    assert len([*tmp_path.iterdir()]) == 2
    beside.close()
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"before"]


def test_no_bundle_goes_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(ConfigError, match="is a terminal"):
        BundleOrder.of_flags("-", None, is_plain=False)
    assert BundleOrder.of_flags("b.tar.gz", "2m", is_plain=True).for_seconds == 120


def test_without_room_the_exporter_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_command, "room_bytes", lambda _: 30 * 2**20)
    with pytest.raises(ExporterError, match="leaves 30 MiB here, and a bundle takes 64 MiB or more -> raise"):
        doctor_command._spare_the_exporter()


def test_the_exporter_beside_it_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    monkeypatch.setattr(doctor_command, "room_bytes", lambda _: None)
    monkeypatch.setattr(os, "nice", given.append)
    monkeypatch.setattr(Path, "write_text", lambda path, text, **_: given.append((str(path), text)))
    doctor_command._spare_the_exporter()
    assert given == [10, ("/proc/self/oom_score_adj", "1000")]


async def test_the_only_process_that_serves_is_asked_where_it_listens(
    start: Start, simulated: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody named an address, and nobody listens at the default one."""
    exporter = await start()
    address = exporter.base.removeprefix("http://")
    config = config_of(web_listen_address=address, kubelet_socket=str(simulated.socket), dcgm_url=simulated.url)
    running = RunningExporter(pid=7, config=config, is_elsewhere=True)
    monkeypatch.setattr(bundling, "exporters_here", lambda: ([running], []))
    own = config_of(web_listen_address="127.0.0.1:1")
    by_default = replace(own, given=(("web.listen-address", by_default_text("--web.listen-address", ":9400")),))
    here = await asyncio.to_thread(bundling._exporter, by_default, by_own_settings=False)
    assert here.config is config
    assert here.answering is not None
    assert here.answering.url == exporter.base
    assert "those of process 7, which serves here, in a container" in here.finding.trouble.message
    # somebody named it, so it is none of those
    here = await asyncio.to_thread(bundling._exporter, own, by_own_settings=False)
    assert here.config is own
    assert "doctor's own settings" in here.finding.trouble.message


def test_several_exporters_here_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    own = config_of(web_listen_address="127.0.0.1:1")
    running = [RunningExporter(pid=pid, config=own) for pid in (7, 8)]
    monkeypatch.setattr(bundling, "exporters_here", lambda: (running, ["the settings of process 9 cannot be read"]))
    here = bundling._exporter(own, by_own_settings=False)
    says = here.finding.trouble.message
    assert "the settings of process 9 cannot be read" in says
    assert "of several exporters here (processes 7, 8), which one listens at 127.0.0.1:1 is not clear" in says


async def test_an_exporter_on_another_machine_is_bundled_there(tmp_path: Path) -> None:
    done = await doctor_in_thread(f"--bundle={tmp_path}/b.tar.gz", "--web.listen-address=gpu-7.example.org:9400")
    assert "gpu-7.example.org is another machine" in done.stderr
    assert done.returncode == 2
    assert [*tmp_path.iterdir()] == []


async def test_a_socket_that_may_not_be_opened_and_a_log_that_may_not_be_read(
    node: SimulatedNode, tmp_path: Path
) -> None:
    """As nobody, beside files of root's: everything else is had."""
    kmsg = tmp_path / "dev" / "kmsg"
    kmsg.parent.mkdir()
    os.mkfifo(kmsg, mode=0)
    folder = node.socket.parent / "pod-resources"
    folder.mkdir(mode=0)
    to = tmp_path / "bundle.tar.gz"
    making = BundleMaking(BundleOrder(to=str(to), is_plain=True))
    config = config_of(
        kubelet_socket=str(folder / "kubelet.sock"), dcgm_url=node.url, kernel_log_mode="on", root=str(tmp_path)
    )
    is_root = os.geteuid() == 0
    if is_root:
        # nobody may not import what is root's
        await asyncio.to_thread(making.collect, config, by_own_settings=True)
        tmp_path.chmod(0o755)
        os.seteuid(NOBODY)
    try:
        seen = await asyncio.to_thread(making.collect, config, by_own_settings=True)
    finally:
        if is_root:
            os.seteuid(0)
    making.write()
    assert not seen.report.works()
    recording = archive.read(to)
    whys = {absence.what: str(absence.why) for absence in recording.absences}
    assert "no right to open" in whys["kubelet"]
    assert "the kernel's log cannot be opened" in whys["kernel-log"]
    assert b"DCGM_FI_DEV_GPU_TEMP" in recording.moments[0].outputs["/gpu/metrics"]


async def test_the_report_is_of_the_last_look(
    node: SimulatedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked = asyncio.Event()
    page = node.dcgm.page

    def asked() -> str:
        is_asked.set()
        return page()

    monkeypatch.setattr(node.dcgm, "page", asked)
    to = tmp_path / "bundle.tar.gz"
    refused = "nobody listens there"
    async with serving(node) as (_, address):
        arguments = (f"--bundle={to}", "--plain", "--for=5s", f"--web.listen-address={address}")
        collecting = asyncio.create_task(doctor_as_process(*arguments))
        await asyncio.wait_for(is_asked.wait(), 60)
        await asyncio.sleep(1.0)  # by then doctor has the exporter's first report
        await node.dcgm.stop()
        done = await collecting
    recording = archive.read(to)
    assert done.returncode == 1
    assert refused in recording.moments[-1].outputs["/debug/mapping"].decode()
    assert refused in recording.report
