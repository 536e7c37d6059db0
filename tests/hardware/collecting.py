"""The run on a GPU: `serve` in front of a stand-in kubelet, loads, and each second's answers in a folder.

Nothing is judged here: `verdicts.py` reads the folder, now or on another machine.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from exporter.simulator.parts import Pod
from tests.hardware.children import Children, output_of
from tests.hardware.machine import keep_kernel_log, keep_proc_driver, kernel_log_trouble, versions
from tests.hardware.moments import ENDS_SECONDS, SETTLES_SECONDS
from tests.hardware.smi import read_log
from tests.hardware.standing_in import Cgroups, Kubelet, holder

HERE = Path(__file__).parent
PATHS = {
    "/gpu/metrics": "gpu_metrics.txt",
    "/container/metrics": "container_metrics.json",
    "/metrics": "metrics.txt",
    "/processes": "processes.json",
}
LIBRARY = "libnvidia-ml.so.1"
SMI_SECONDS = 8.0
_ADDRESS = re.compile(r"address=(\S+)")
_START_SECONDS = 30.0
# PyTorch's import and cuBLAS' first product
_READY_SECONDS = 60.0
LAUNCHES = 4321
GIB = 1024**3
# GiB of the two processes that share the GPU, and as parts of a GPU that is too small for them
_SIZES = (4.0, 12.0)
_PARTS = (0.2, 0.5)
_LEAST_GIB = 24
_FEW_MOMENTS = 3
# a phase without load, about
_HELD_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long each phase takes, in seconds."""

    idle: float = 15.0
    matmul: float = 30.0
    copy: float = 10.0
    shared: float = 20.0
    after: float = 8.0

    def times(self, factor: float) -> "Lengths":
        """The same, longer or shorter."""
        return Lengths(
            idle=self.idle * factor,
            matmul=self.matmul * factor,
            copy=self.copy * factor,
            shared=self.shared * factor,
            after=self.after * factor,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line asks for.

    Attributes:
        folder: where all goes.
        library: libnvidia-ml.so.1 in the driver's place; None for the driver's.
        nvidia_smi: the program; "" for none.
        uuid: the GPU that works.
        uuids: all of them.
        lengths: of the phases.
    """

    folder: Path
    library: Path | None
    nvidia_smi: str
    uuid: str
    uuids: Sequence[str]
    lengths: Lengths


@dataclass(slots=True, kw_only=True)
class About:
    """What a report needs beside the moments; it becomes about.json."""

    library: str
    uuid: str
    began: float = field(default_factory=time.time)
    compared_with: str = ""
    load: str = ""
    cgroups: str = ""
    kernel_log: str = ""
    bundle: str = ""
    phases: list[dict[str, Any]] = field(default_factory=list)
    copied: list[tuple[float, int, int]] = field(default_factory=list)
    probe: dict[str, Any] = field(default_factory=dict)
    cost: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    left_behind: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What brings load: its command without the mode, and its environment. `says` is for people."""

    command: Sequence[str | Path]
    environment: Mapping[str, str]
    says: str


class LoadFailed(Exception):
    """A load ended, or does not go on; the text says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A load that was started, and how long it may take."""

    process: asyncio.subprocess.Process
    output: Path
    seconds: float

    async def line(self, event: str) -> dict[str, Any]:
        """Its first line of this event. Raises LoadFailed."""
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            has_ended = self.process.returncode is not None
            for line in _lines(self.output):
                if line["event"] == event:
                    return line
            if has_ended:
                break
            await asyncio.sleep(0.05)
        message = f"the load does not say {event!r}: see {self.output.with_suffix('.log').name}"
        raise LoadFailed(message)

    async def go_on(self) -> None:
        """Give it the line that it waits for."""
        assert self.process.stdin, "it was started with one"
        self.process.stdin.write(b"\n")
        with contextlib.suppress(ConnectionError):
            await self.process.stdin.drain()


class Collecting:
    """A run, with all that it has started."""

    def __init__(self, wanted: Wanted, children: Children, sockets: Path) -> None:
        self._wanted = wanted
        self._children = children
        self._sockets = sockets
        self._kubelet = Kubelet(sockets, wanted.uuids)
        self.cgroups = Cgroups()
        self.about = About(library=str(wanted.library or ""), uuid=wanted.uuid)
        self._number = 0
        self._base = ""
        self._sizes: Sequence[float] = _SIZES
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYTHONUNBUFFERED": "1",
        }
        if wanted.library:
            self._put_first(wanted.library)
        self._smi: Sequence[str | Path] = ()
        self._bundle: asyncio.subprocess.Process | None = None

    def _put_first(self, library: Path) -> None:
        """Have the loader find this library before the driver's, under the driver's name."""
        folder = library.absolute().parent
        if library.name != LIBRARY:
            folder = self._sockets
            (folder / LIBRARY).symlink_to(library.resolve())
        there = os.environ.get("LD_LIBRARY_PATH")
        self._environment["LD_LIBRARY_PATH"] = f"{folder}:{there}" if there else str(folder)

    async def run(self) -> None:
        """All of it."""
        folder = self._wanted.folder
        (folder / "moments").mkdir()
        self.about.cgroups = self.cgroups.why_not or "made"
        self.about.versions = versions()
        self.about.kernel_log = kernel_log_trouble()
        self._smi = await self._comparison()
        keep_proc_driver(folder / "driver")
        building = asyncio.create_task(self._load())
        await self._kubelet.start()
        try:
            server, self._base = await self._serve("serve", 0)
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SMI_SECONDS)) as session:
                sampling = asyncio.create_task(self._sample(session))
                try:
                    await self._phases(building)
                finally:
                    sampling.cancel()
                    building.cancel()
                    await asyncio.gather(sampling, building, return_exceptions=True)
            self.about.cost = {"serve": _of_process(server.pid)}
            await self._children.end(server)
            await self._measure_cost()
            await self._probe(building)
            await self._end_bundle()
        finally:
            await self._kubelet.stop()
            keep_kernel_log(folder / "kernel.log")

    async def _comparison(self) -> Sequence[str | Path]:
        """The command that writes nvidia-smi's document: nvidia-smi, or the bindings in a process of their own."""
        smi = self._wanted.nvidia_smi
        why = "there is no nvidia-smi"
        if smi:
            code, printed = await output_of((smi, "-q", "-x"), environment=self._environment, seconds=60)
            if code == 0 and printed.rstrip().endswith(b"</nvidia_smi_log>"):
                self.about.compared_with = f"nvidia-smi ({smi})"
                self._fit(printed)
                return smi, "-q", "-x"
            why = f"{smi} -q -x ended with {code}"
        self.about.compared_with = f"NVIDIA's bindings in another process, since {why}"
        return sys.executable, "-m", "tests.hardware.direct"

    def _fit(self, document: bytes) -> None:
        """Let the processes that share the GPU fit into it."""
        values = read_log(document).gpus[self._wanted.uuid].values
        gib = values.get("DCGM_FI_DEV_FB_TOTAL", 0.0) / 1024
        if 0 < gib < _LEAST_GIB:
            self._sizes = tuple(round(part * gib, 1) for part in _PARTS)

    async def _serve(self, name: str, probe: int) -> tuple[asyncio.subprocess.Process, str]:
        """The exporter, once it listens, and its address. Raises RuntimeError: it does not start."""
        log = self._wanted.folder / f"{name}.log"
        flags = [*self._flags(), "--web.listen-address=127.0.0.1:0", "--accounting.interval=5s"]
        if probe:
            flags += ["--probe.mode=on", "--probe.interval=1s"]
        command = [sys.executable, "-m", "exporter", "serve", *flags]
        process = await self._children.start(command, environment=self._environment, output=log)
        until = time.monotonic() + _START_SECONDS
        while time.monotonic() < until and process.returncode is None:
            matched = _ADDRESS.search(log.read_text(errors="replace"))
            if matched:
                return process, f"http://{matched.group(1)}"
            await asyncio.sleep(0.05)
        message = f"the exporter does not start: see {log}"
        raise RuntimeError(message)

    def _flags(self) -> list[str]:
        """The settings of both exporters."""
        flags = [
            "--dcgm.mode=off",
            "--nvml.mode=on",
            f"--kubelet.socket={self._kubelet.resources_socket}",
            f"--kubelet.pods-socket={self._kubelet.pods_socket}",
            "--pods.source=kubelet",
            "--labels.pod-uid=on",  # so that pods are read, by which containers are known
            "--processes.expose=on",
            "--node-name=hardware",
        ]
        return flags if self.about.kernel_log else [*flags, "--kernel-log.mode=on"]

    async def _sample(self, session: aiohttp.ClientSession) -> None:
        """Keep a moment every second, until cancelled."""
        due = time.monotonic()
        while True:
            await self._moment(session)
            due += 1
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due = max(due, time.monotonic() - 1)

    async def _moment(self, session: aiohttp.ClientSession) -> None:
        self._number += 1
        folder = self._wanted.folder / "moments" / f"{self._number:04d}"
        folder.mkdir()
        times: dict[str, list[float]] = {}
        await asyncio.gather(
            self._keep_smi(folder, times), *(self._keep(session, self._base, path, folder, times) for path in PATHS)
        )
        (folder / "moment.json").write_text(json.dumps(times))

    async def _keep_smi(self, folder: Path, times: dict[str, list[float]]) -> None:
        began = time.time()
        _, printed = await output_of(self._smi, environment=self._environment, seconds=SMI_SECONDS)
        (folder / "smi.xml").write_bytes(printed)
        times["smi"] = [began, time.time()]

    @staticmethod
    async def _keep(
        session: aiohttp.ClientSession, base: str, path: str, folder: Path, times: dict[str, list[float]]
    ) -> None:
        began = time.time()
        try:
            async with session.get(base + path) as response:
                status = response.status
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            status = 0
            body = f"{type(error).__name__}: {error}".encode()
        (folder / PATHS[path]).write_bytes(body)
        times[path] = [began, time.time(), status]

    async def _phases(self, building: "asyncio.Task[Load | str]") -> None:
        """Idle, each load with the pods that hold the GPU, and idle again."""
        lengths = self._wanted.lengths
        uuid = self._wanted.uuid
        async with self._phase("idle"):
            await asyncio.gather(asyncio.sleep(lengths.idle), self._keep_calls("idle"))
            load = await building
        self.about.load = load if isinstance(load, str) else load.says
        train, copy = (holder(name, uuid) for name in ("train", "copy"))
        small, large = (holder(name, uuid, share) for share, name in enumerate(("small", "large")))
        if isinstance(load, str):
            async with self._phase("held", train):
                await self._some_moments()
            await self._begin_bundle(_HELD_SECONDS)
            async with self._phase("shared", small, large):
                await self._some_moments()
        else:
            await self._works("matmul", load, {train: ("matmul", lengths.matmul)})
            await self._begin_bundle(lengths.copy + lengths.shared)
            await self._works("copy", load, {copy: ("copy", lengths.copy)})
            sizes = zip((small, large), self._sizes, strict=True)
            await self._works("shared", load, {pod: ("hold", size, lengths.shared) for pod, size in sizes})
        async with self._phase("after"):
            await asyncio.sleep(lengths.after)

    async def _some_moments(self) -> None:
        """Wait until there are a few moments in which the new owners count, however long each takes here."""
        await asyncio.sleep(SETTLES_SECONDS)
        enough = self._number + _FEW_MOMENTS + 1
        while self._number < enough:
            await asyncio.sleep(0.1)
        await asyncio.sleep(ENDS_SECONDS)

    @contextlib.asynccontextmanager
    async def _phase(self, name: str, *pods: Pod) -> AsyncIterator[dict[str, Any]]:
        """A phase, in which these pods hold the GPU."""
        self._kubelet.pods = pods
        phase: dict[str, Any] = {"name": name, "began": time.time(), "pods": [pod.name for pod in pods]}
        phase["processes"] = []
        sys.stdout.write(f"{time.strftime('%H:%M:%S')} {name}\n")
        sys.stdout.flush()
        try:
            yield phase
        finally:
            phase["ended"] = time.time()
            self.about.phases.append(phase)

    async def _works(self, name: str, load: Load, modes: Mapping[Pod, tuple[object, ...]]) -> None:
        """A phase in which a process of each pod works: from when all are ready until the first is done."""
        async with self._phase(name, *modes) as phase:
            started = {}
            for pod, mode in modes.items():
                started[pod] = await self._start_load(load, pod, mode)
            try:
                await self._follow(started, phase)
            except LoadFailed as failed:
                phase["failed"] = str(failed)
                for of_load in started.values():
                    await self._children.end(of_load.process)
        for of_load in started.values():
            self.about.copied += [(line["at"], line["to_gpu"], line["from_gpu"]) for line in _lines(of_load.output)]

    async def _start_load(self, load: Load, pod: Pod, mode: Sequence[object]) -> "Started":
        folder = self._wanted.folder
        output = folder / f"load-{pod.name}.jsonl"
        process = await self._children.start(
            [*load.command, *map(str, mode)],
            environment=load.environment,
            output=output,
            log=folder / f"load-{pod.name}.log",
            takes_input=mode[0] == "launches",
        )
        self._enter(process.pid, pod)
        return Started(process=process, output=output, seconds=_READY_SECONDS + float(str(mode[-1])))

    async def _follow(self, started: Mapping[Pod, "Started"], phase: dict[str, Any]) -> None:
        """Note what the loads of a phase say, until the first is done. Raises LoadFailed."""
        for pod, of_load in started.items():
            line = await of_load.line("ready")
            phase["processes"].append({"pod": pod.name, "pid": line["pid"], "allocated": line["allocated"]})
            phase["works_from"] = max(line["at"], phase.get("works_from", 0.0))
        calls = asyncio.create_task(self._keep_calls(phase["name"]))
        try:
            done = [await of_load.line("done") for of_load in started.values()]
        finally:
            await calls
        phase["works_until"] = min(line["at"] for line in done)

    def _enter(self, pid: int, pod: Pod) -> None:
        if self.about.cgroups != "made":
            return
        try:
            self.cgroups.enter(pid, pod)
        except OSError as error:
            self.about.cgroups = f"a process cannot be moved into one: {error.strerror}"

    async def _keep_calls(self, phase: str) -> None:
        command = (sys.executable, "-m", "tests.hardware.direct", "--calls")
        _, printed = await output_of(command, environment=self._environment, seconds=SMI_SECONDS)
        (self._wanted.folder / f"nvml-{phase}.json").write_bytes(printed)

    async def _load(self) -> Load | str:
        """What brings load: PyTorch, else the program of load.cu; else why there is none."""
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": self._wanted.uuid}
        environment.pop("PYTHONPATH", None)
        if self._wanted.library:
            return "none: the library that was named is not this machine's driver"
        asks = "import torch; assert torch.cuda.is_available(); print(torch.__version__, torch.version.cuda)"
        for python in dict.fromkeys((shutil.which("python3") or "", sys.executable)):
            code, printed = await output_of((python, "-c", asks), environment=environment, seconds=60)
            if code == 0:
                says = f"PyTorch {printed.decode().strip()}"
                return Load(command=(python, HERE / "load.py"), environment=environment, says=says)
        return await self._built(environment)

    async def _built(self, environment: Mapping[str, str]) -> Load | str:
        """The program of load.cu; else why there is none."""
        nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        if not Path(nvcc).exists():
            return "none: there is neither PyTorch nor nvcc"
        program = self._wanted.folder / "load"
        log = self._wanted.folder / "nvcc.log"
        command = (nvcc, "-O2", "-arch=native", "-cudart", "shared", HERE / "load.cu", "-o", program)
        compiling = await self._children.start(command, environment=environment, output=log)
        if await compiling.wait():
            return f"none: nvcc fails, see {log.name}"
        libraries = str(Path(nvcc).resolve().parents[1] / "lib64")
        there = environment.get("LD_LIBRARY_PATH")
        paths = f"{libraries}:{there}" if there else libraries
        return Load(
            command=(program,), environment={**environment, "LD_LIBRARY_PATH": paths}, says="load.cu, built by nvcc"
        )

    async def _begin_bundle(self, seconds: float) -> None:
        """Have doctor take a bundle of what follows, if this version can."""
        doctor = (sys.executable, "-m", "exporter", "doctor")
        _, says = await output_of((*doctor, "--help"), environment=self._environment, seconds=30)
        if b"--bundle" not in says:
            self.about.bundle = "this version has no doctor --bundle"
            return
        bundle = self._wanted.folder / "bundle.tar.gz"
        self.about.bundle = bundle.name
        # its settings are those of the exporter that listens there
        address = f"--web.listen-address={self._base.removeprefix('http://')}"
        command = [*doctor, address, f"--bundle={bundle}", f"--for={max(1, round(seconds))}s"]
        log = self._wanted.folder / "doctor.log"
        self._bundle = await self._children.start(command, environment=self._environment, output=log)

    async def _end_bundle(self) -> None:
        if self._bundle is None:
            return
        try:
            async with asyncio.timeout(30):
                code = await self._bundle.wait()
        except TimeoutError:
            self.about.bundle = "doctor --bundle did not end"
            return
        if not (self._wanted.folder / "bundle.tar.gz").exists():
            self.about.bundle = f"doctor --bundle ended with {code} and left no file: see doctor.log"

    async def _measure_cost(self) -> None:
        command = (sys.executable, "-m", "tests.hardware.cost")
        code, printed = await output_of(command, environment=self._environment, seconds=60)
        self.about.cost["reading"] = json.loads(printed) if code == 0 else {"failed": code}

    async def _probe(self, building: "asyncio.Task[Load | str]") -> None:
        """Count launches of a program over the real libcudart, in a pod, by a second exporter with the probe."""
        load = building.result()
        if isinstance(load, str):
            self.about.probe = {"why_not": f"no load ({load})"}
            return
        if load.command[0] != self._wanted.folder / "load":
            built = await self._built(load.environment)  # PyTorch does not say how often it launches
            if isinstance(built, str):
                self.about.probe = {"why_not": built}
                return
            load = built
        pod = holder("probed", self._wanted.uuid)
        self._kubelet.pods = (pod,)
        server, base = await self._serve("serve-with-probe", 1)
        try:
            program = await self._start_load(load, pod, ("launches", LAUNCHES))
            await program.line("ready")
            await asyncio.sleep(3)  # the probe looks for new processes once a second
            await program.go_on()
            await program.line("done")
            async with aiohttp.ClientSession() as session:
                self.about.probe = {"launches": LAUNCHES, **await self._counted(session, base)}
            await program.go_on()
        except LoadFailed as failed:
            self.about.probe = {"why_not": str(failed)}
        await self._children.end(server)

    async def _counted(self, session: aiohttp.ClientSession, base: str) -> dict[str, Any]:
        """The launches that the exporter has counted, once they no longer grow; or why it counts none."""
        before = -1
        for _ in range(10):
            await asyncio.sleep(1.2)
            async with session.get(f"{base}/metrics") as response:
                page = await response.text()
            (self._wanted.folder / "probe-metrics.txt").write_text(page)
            counted = sum(
                int(number)
                for number in re.findall(r"^pod_gpu_cuda_kernel_launches_total\{.*\} (\d+)$", page, re.MULTILINE)
            )
            if counted and counted == before:
                return {"counted": counted}
            before = counted
        lines = (self._wanted.folder / "serve-with-probe.log").read_text(errors="replace").splitlines()
        troubles = [line for line in lines if "source=probe" in line]
        return {"why_not": troubles[-1]} if troubles else {"counted": max(before, 0)}


def _lines(output: Path) -> list[dict[str, Any]]:
    """The whole lines of a load."""
    whole = output.read_text().rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def _of_process(pid: int) -> dict[str, float]:
    """The resident memory of a process, and the CPU time that it took so far, in seconds."""
    status = Path(f"/proc/{pid}/status").read_text()
    kib = int(re.findall(r"VmRSS:\s+(\d+)", status)[0])
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return {"rss_mib": round(kib / 1024, 1), "cpu_seconds": ticks / os.sysconf("SC_CLK_TCK")}


async def collect(wanted: Wanted) -> None:
    """Fill the folder. Whatever happens, all programs end, cgroups are removed, and about.json is written."""
    with tempfile.TemporaryDirectory(prefix="hardware-") as sockets:
        async with Children() as children:
            collecting = Collecting(wanted, children, Path(sockets))
            try:
                await collecting.run()
            finally:
                # the programs in the cgroups end first
                await children.__aexit__(None, None, None)
                about = collecting.about
                about.left_behind = collecting.cgroups.remove()
                _write_about(wanted.folder, about)


def _write_about(folder: Path, about: About) -> None:
    content = {name: getattr(about, name) for name in About.__slots__}
    content["ended"] = time.time()
    (folder / "about.json").write_text(json.dumps(content, indent=1, default=str))
