"""The image, built without a container engine, run without a capability and on a read-only root file system."""

import asyncio
import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from exporter import __version__
from exporter.config.tls import ServerTls, server_context
from release.os_packages import packages
from tests.support.certificates import LaxAuthority
from tests.support.components import real
from tests.support.exporter import PATHS, STATUS
from tests.support.places import ROOT
from tests.support.simulated import SimulatedNode
from tests.support.simulated_api import SimulatedApi

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]  # the first one builds the image: 70 s of a CPU

FOLDER = ROOT / ".cache" / "image"
STORE = ["--root", str(FOLDER / "storage"), "--runroot", str(FOLDER / "run"), "--storage-driver", "vfs"]
IMAGE = "localhost/pod-gpu-metrics-exporter"
# What a container runtime does with `readOnlyRootFilesystem`, a mounted folder and `drop: [ALL]`, in a mount namespace
# of its own: nothing of it is left when the program ends.
RUN_LOCKED_DOWN = """
mount --make-rprivate /
mount --bind "$1" "$1"
mount --bind "$2" "$1/var/lib/kubelet/pod-resources"
mount -o remount,bind,ro "$1"
root=$1; shift 2
exec chroot "$root" setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all --no-new-privs \
    env -i PATH=/usr/local/bin:/usr/bin:/bin PYTHONPATH=/opt/exporter PYTHONDONTWRITEBYTECODE=1 "$@"
"""
MOST_MEMORY_BYTES = 25e6


def again(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """What a command says; buildah and podman start themselves anew from a sealed copy in memory, which may fail."""
    for _ in range(3):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if "sealing memfd copy" not in ended.stdout + ended.stderr:
            break
    return ended


def buildah(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    ended = again("buildah", *STORE, *arguments)
    assert not (check and ended.returncode), ended.stdout + ended.stderr
    return ended


@pytest.fixture(scope="module")
def image() -> str:
    for program in ("mmdebstrap", "podman", "buildah", "setpriv"):
        real(program)
    if os.geteuid() != 0:
        real("root-to-build-an-image-with")
    built = again(ROOT / "tests" / "build-image", FOLDER, IMAGE)
    assert built.returncode == 0, built.stdout + built.stderr
    return IMAGE


@dataclass(frozen=True)
class Container:
    """A copy of the image's file system: making one takes longer than any test."""

    name: str
    root: Path


@pytest.fixture(scope="module")
def container(image: str) -> Iterator[Container]:
    name = buildah("from", "--quiet", image).stdout.strip()
    root = Path(buildah("mount", name).stdout.strip())
    (root / "var/lib/kubelet/pod-resources").mkdir(parents=True)
    yield Container(name, root)
    buildah("umount", name)
    buildah("rm", name)


@dataclass
class Running:
    container: str
    root: Path
    process: asyncio.subprocess.Process
    base: str


@pytest.fixture
async def exporter(container: Container, simulated: SimulatedNode) -> AsyncIterator[Running]:
    root = container.root
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-euc", RUN_LOCKED_DOWN, "sh", str(root), str(simulated.socket.parent)),
        *("pod-gpu-metrics-exporter", "serve", "--web.listen-address=127.0.0.1:0"),
        f"--dcgm.url={simulated.url}",
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    line = (await process.stderr.readline()).decode()
    address = re.search(r"msg=listening address=(\S+)", line)
    assert address, line + (await process.stderr.read()).decode()
    yield Running(container.name, root, process, f"http://{address[1]}")
    process.kill()
    await process.wait()


async def test_it_serves_without_a_capability_and_on_a_read_only_root(exporter: Running) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{exporter.base}/gpu/metrics") as response:
        assert response.status == 200
        page = await response.text()
        for path in PATHS:
            async with session.get(f"{exporter.base}{path}") as other:
                assert other.status == STATUS.get(path, 200), path
    assert re.search(r'DCGM_FI_DEV_POWER_USAGE\{.*pod="[a-z0-9-]+"', page)
    assert 'source_up{source="kubelet"} 1\n' in page
    status = Path(f"/proc/{exporter.process.pid}/status").read_text()
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^CapBnd:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^Uid:\s+0\s", status, re.MULTILINE)
    mounts = Path(f"/proc/{exporter.process.pid}/mountinfo").read_text()
    assert re.search(r" / ro,", mounts), mounts


async def test_its_healthcheck_tells_a_healthy_one_from_a_stuck_one(exporter: Running) -> None:
    address = exporter.base.removeprefix("http://")

    def healthcheck() -> subprocess.CompletedProcess[str]:
        command = ["pod-gpu-metrics-exporter", "healthcheck", f"--web.listen-address={address}"]
        return buildah(
            "run", "--isolation", "chroot", "--cap-drop=ALL", exporter.container, "--", *command, check=False
        )

    healthy = await asyncio.to_thread(healthcheck)
    assert healthy.returncode == 0, healthy.stderr
    exporter.process.send_signal(signal.SIGSTOP)
    stuck = await asyncio.to_thread(healthcheck)
    assert stuck.returncode == 1
    assert "does not answer" in stuck.stderr
    exporter.process.send_signal(signal.SIGCONT)


async def locked_down(exporter: Running, folder: Path, *command: str) -> tuple[int, str]:
    """A command in the image, as its runtime would start it: exit code and output. `folder` is the kubelet's."""
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-euc", RUN_LOCKED_DOWN, "sh", str(exporter.root), str(folder), *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


# issue 7, line 15
async def test_doctor_runs_by_its_name(exporter: Running, simulated: SimulatedNode) -> None:
    folder = simulated.socket.parent
    code, said = await locked_down(
        exporter,
        folder,
        "pod-gpu-metrics-exporter",
        "doctor",
        f"--dcgm.url={simulated.url}",
        "--resources=nvidia.com/*",
    )
    assert "kubelet: answers (v1)" in said
    assert code in (0, 1), said
    _, said = await locked_down(exporter, folder, "pod-gpu-metrics-exporter", "--version")
    assert re.search(r"\d+\.\d+\.\d+", said)


# issue 7, lines 9 and 15: Python 3.13, and the Kubernetes API of many clusters
async def test_an_authority_without_key_usage_is_taken(
    exporter: Running, simulated: SimulatedNode, tmp_path: Path
) -> None:
    _, said = await locked_down(exporter, simulated.socket.parent, "python3", "--version")
    assert said.startswith("Python 3.13")
    pair = LaxAuthority(tmp_path).issue("server")
    (exporter.root / "ca.crt").write_bytes((tmp_path / "lax-ca.pem").read_bytes())
    (exporter.root / "token").write_text("token-1")
    api = SimulatedApi(simulated.world)
    tls = server_context(ServerTls(cert_file=str(pair.cert), key_file=str(pair.key)), "the API server")
    url = await api.start(tls=tls)
    try:
        _, said = await locked_down(
            exporter,
            simulated.socket.parent,
            *("pod-gpu-metrics-exporter", "doctor", f"--dcgm.url={simulated.url}", "--labels.pod-uid=on"),
            *("--pods.source=api", f"--kubernetes.url={url}", "--kubernetes.ca-file=/ca.crt"),
            *("--kubernetes.token-file=/token", "--node-name=gpu-node-1"),
        )
    finally:
        await api.stop()
    assert "certificate" not in said
    assert re.search(r"^ok +pods: ", said, re.MULTILINE), said


# issue 13, Parts: compiled by clang in the image build, loaded through libbpf.so.1
async def test_it_has_what_the_cuda_probe_needs_and_not_what_made_it(
    exporter: Running, simulated: SimulatedNode
) -> None:
    program = """
import ctypes, exporter.probe, pathlib
ctypes.CDLL("libbpf.so.1")
for path in sorted(pathlib.Path(exporter.probe.__file__).parent.glob("*.bpf.o")):
    print(path.name, path.read_bytes()[1:4].decode())
"""
    code, said = await locked_down(exporter, simulated.socket.parent, "python3", "-c", program)
    assert (code, said.splitlines()) == (0, ["cuda.aarch64.bpf.o ELF", "cuda.x86_64.bpf.o ELF"])
    assert not [*exporter.root.glob("usr/bin/clang*"), *exporter.root.glob("usr/include/bpf")]


# issue 26, "Less in the way"
async def test_it_has_no_simulator_and_says_how_to_get_one(exporter: Running, simulated: SimulatedNode) -> None:
    folder = simulated.socket.parent
    for command in (("demo",), ("bundle", "test", "/x.tar.gz")):
        code, said = await locked_down(exporter, folder, "pod-gpu-metrics-exporter", *command)
        assert (code, said.count("\n")) == (2, 1)
        assert "pip install 'pod-gpu-metrics-exporter[demo]'" in said
    installed = exporter.root / "opt/exporter"
    assert not [path for path in installed.rglob("*") if "simulator" in path.name]
    pages = {path.name for path in (installed / "docs").iterdir()}
    assert {"alerts.md", "troubleshooting.md", "health.md"} <= pages
    assert not pages & {"developers", "getting-started.md"}


# issue 7, line 15
async def test_a_healthcheck_is_small(exporter: Running, simulated: SimulatedNode) -> None:
    """25 MB and no more, every 30 s; its time is in `make bench`.

    How many pages of its libraries count depends on what else the machine does: the least of a few tries counts.
    """
    peaks = [await peak_of_a_healthcheck(exporter) for _ in range(5)]
    assert min(peaks) <= MOST_MEMORY_BYTES, peaks


async def peak_of_a_healthcheck(exporter: Running) -> int:
    code = "import sys; from exporter.cli.main import run; print(run(sys.argv[1:]), flush=True); sys.stdin.read()"
    process = await asyncio.create_subprocess_exec(
        *("chroot", str(exporter.root), "env", "-i", "PATH=/usr/bin", "PYTHONPATH=/opt/exporter"),
        *("python3", "-c", code),
        *("healthcheck", f"--web.listen-address={exporter.base.removeprefix('http://')}"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"0\n"
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    await process.communicate(b"")  # the end of its input
    assert peak
    return int(peak[1]) * 1024


def test_it_says_what_it_is_made_of(container: Container) -> None:
    written = (container.root / "opt/exporter/sbom.cdx.json").read_text()
    status = (container.root / "var/lib/dpkg/status").read_text()
    installed = {path.name for path in (container.root / "opt/exporter").glob("*.dist-info")}
    found = json.loads(written)
    python = [part for part in found["components"] if part["purl"].startswith("pkg:pypi/")]
    listed = {(part["name"].lower().replace("_", "-"), part["version"]) for part in python}
    locked = re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert listed <= {(name.lower(), version) for name, version in locked}
    assert len(listed) == len(installed) > 10
    about = found["metadata"]["component"]
    assert (about["name"], about["version"]) == ("pod-gpu-metrics-exporter", __version__)
    assert all(part.get("licenses") for part in found["components"] if part["name"] in ("aiohttp", "grpcio"))
    # issue 8, line 5
    debian = {part["name"] for part in found["components"] if part["purl"].startswith("pkg:deb/debian/")}
    assert debian == {name for name, _, _ in packages(status)} >= {"libc6", "libpython3.13-stdlib", "libbpf1"}
    assert any(part["purl"].startswith("pkg:generic/python@3.13.") for part in found["components"])
    assert "compositions" not in found
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(written) is None


def test_nothing_is_compiled_when_it_starts(container: Container) -> None:
    """A third of the modules were: a copy between two stages rounds the times by which Python compares files."""
    program = container.root / "opt/exporter"
    sources = [path for path in program.rglob("*.py") if "__pycache__" not in path.parts]
    assert len(sources) > 1000
    compiled = [*program.rglob("__pycache__/*.pyc")]
    assert {path.parent.parent / f"{path.name.partition('.')[0]}.py" for path in compiled} == {*sources}
    # PEP 552: 1 is a file that is taken without looking at its source
    assert {int.from_bytes(path.read_bytes()[4:8], "little") for path in compiled} == {1}


def test_the_image_says_what_it_is(image: str) -> None:
    text = buildah("inspect", "--type", "image", image).stdout
    for part in ("org.opencontainers.image.title", "Apache-2.0", "healthcheck", '"9400/tcp"'):
        assert part in text
    # issue 7, line 18
    revision = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert f"EXPORTER_REVISION={revision.stdout.strip() or 'unknown'}" in text
