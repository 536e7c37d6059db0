"""The probe beside programs of nobody that are out to harm it: counts of a real one, fork() on the node, detaching."""

import asyncio
import signal
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from exporter.probe.elf import function_offsets
from exporter.probe.process_files import read_maps
from exporter.simulator.pods_api import container_id
from tests.cuda import hostile
from tests.cuda.containers import LIBRARIES, Container, cgroup_of, container
from tests.cuda.programs import Program, built
from tests.end_to_end.test_cuda_probe import LAST, WORK, Running, may_probe, node, same_but_times, serving, uses_in
from tests.probe.elves import opened
from tests.support.simulated import SimulatedNode
from tests.support.waiting import until

__all__ = ["may_probe", "node"]

MAPPINGS = 60_000
REASONS = ("too_many_mappings", "too_large")
PROBED = r'^pod_gpu_cuda_synchronizations_total{.*pod="\w.*} [1-9]'
# Forks, and beside each a vfork: what a busy machine does to one it does to both, and what the probe may do to the
# kernel's lock it does to the first alone. The last line is the part of the time that forks took beyond ten times as
# long as is usual, less what vforks took so.
FORKS = """
import os, select, statistics, sys, time
def took(begin):
    began = time.perf_counter()
    os.waitpid(begin(), 0)
    return time.perf_counter() - began
print(flush=True)
forks, others = [], []
while not forks or not select.select([sys.stdin], [], [], 0)[0]:
    forks.append(took(lambda: os.fork() or os._exit(0)))
    others.append(took(lambda: os.posix_spawn("/bin/true", ["true"], {})))
usual = 10 * statistics.median(others)
forks_beyond, others_beyond = (sum(max(0, each - usual) for each in those) / sum(those) for those in (forks, others))
print(forks_beyond - others_beyond)
"""


class Forks:
    """A process that forks until it is asked how long that took it."""

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-c", FORKS, stdin=pipe, stdout=pipe
        )
        assert self._process.stdout
        await self._process.stdout.readline()
        return self

    async def stopped(self) -> float:
        return float((await self._process.communicate(b"\n"))[0])

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


def is_probed(of: Container) -> bool:
    """Whether a function of the runtime begins otherwise in the memory of the container's program than in its file."""
    file = built().over_driver / "libcudart.so.13"
    with opened(file) as descriptor:
        ((offset,),) = function_offsets(descriptor, {"cudaStreamSynchronize"}).values()
    for pid in of.pids:
        for mapped in read_maps(Path(f"/proc/{pid}/maps").read_text()):
            if mapped.role == "cudart":
                with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
                    memory.seek(mapped.start + offset - mapped.offset)
                    return memory.read(4) != file.read_bytes()[offset : offset + 4]
    raise AssertionError("the program has ended")


async def detached(exporter: Running, of: Container, number: signal.Signals) -> None:
    """Return when the program is probed no more after a signal: some 0.03 s after a reload, 0.3 s after SIGTERM."""
    exporter.process.send_signal(number)
    await until(lambda: not is_probed(of), why=lambda: f"{_threads(exporter.process.pid)}; {exporter.log[-10:]}")


def _threads(pid: int) -> list[str]:
    """What each thread of a process does: its name, and where it is in the kernel."""
    with suppress(FileNotFoundError, ProcessLookupError):
        tasks = sorted(Path(f"/proc/{pid}/task").iterdir())
        return [" ".join((task / part).read_text().strip() for part in ("comm", "wchan", "syscall")) for task in tasks]
    return ["it has ended: another program probes what the container runs"]


# issue 15, line 12, and "Must show" 3
async def test_programs_that_harm_the_probe_cost_only_themselves(
    node: SimulatedNode, tmp_path: Path, may_probe: None
) -> None:
    train = node.world.pods[0]
    name = container_id(train, "main").removeprefix("containerd://")
    settings = tmp_path / "settings.yaml"
    settings.write_text("probe: {mode: 'on'}\n")
    (tmp_path / "root").mkdir()
    with ExitStack() as stack:
        files = stack.enter_context(hostile.files())
        made = stack.enter_context(container(tmp_path / "root", cgroup_of(train.uid, name), built().over_driver))
        work = "; ".join(WORK.format(ordinal) for ordinal, _ in enumerate(train.devices))
        program = Program(f"knock; {work}; knock", before=made.before, libraries=LIBRARIES)
        stack.enter_context(program)
        stack.enter_context(hostile.running(files.crowded, MAPPINGS))
        stack.enter_context(hostile.running(files.slow, 1))
        stack.enter_context(hostile.running(files.libc, 1, files.runtime))
        async with Forks() as forks, serving(node, mode=f"--config.file={settings}") as exporter:
            program.go()
            for reason in REASONS:
                await exporter.until(rf'attach_failures_total{{.*reason="{reason}"}} [1-9]')
            await exporter.until(PROBED)
            program.go()
            page = await exporter.until(LAST, times=2)
            assert is_probed(made)
            settings.write_text("probe: {mode: 'off'}\n")
            await detached(exporter, made, signal.SIGHUP)
            settings.write_text("probe: {mode: 'on'}\n")
            exporter.process.send_signal(signal.SIGHUP)
            await until(lambda: is_probed(made))
            await detached(exporter, made, signal.SIGTERM)
            stopped = await forks.stopped()
            truth = program.done()
        uses = {key: use for key, use in uses_in(page).items() if key[0]}
        for ordinal, index in enumerate((0, 2)):
            same_but_times(uses[train.name, node.world.gpus[index].uuid], truth.counts[ordinal])
        assert stopped < 0.2
        assert not [line for line in exporter.log if "level=error" in line]
