"""The cost of measuring as a whole: 8 shared GPUs with 60 processes, compared with the same exporter without NVML.

python -m benchmarks.measuring node FOLDER        a page on a free port (printed), a kubelet, and the machine's files
python -m benchmarks.measuring serve FOLDER URL MODE
                                                  the exporter there, whose looks all read NVML

NVML is the simulator's stand-in, which answers at once. So the figures do not include the time of the driver itself.
"""

import asyncio
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from benchmarks.scrape import Process
from benchmarks.table import Row, at_most, rounds
from exporter.simulator.nvml import SimulatedNvml

GPUS, PROCESSES, SAMPLES = 8, 60, 10
TURNS, LOOKS, PAUSE_SECONDS = 3, 200, 0.05


def run(effort: float) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        if not SimulatedNvml(Path(name) / "tried").build():
            return []
    # the processes are started several times, as in scrape.py
    figures = [_beside_one_without(rounds(LOOKS, effort)) for _ in range(TURNS)]
    loop, cpu, mib = (statistics.median(each) for each in zip(*figures, strict=True))
    what = f"measured use, {GPUS} GPUs and {PROCESSES} processes, on top of an exporter without NVML"
    return [
        Row(f"{what}: a look", f"{loop * 1e3:.2f} ms", at_most(2, "ms", 1e-3), loop),
        Row(f"{what}: CPU of a reading with its look", f"{cpu * 1e3:.2f} ms, threads included", None, cpu),
        Row(f"{what}: memory", f"{mib:.1f} MiB", at_most(10, "MB", 1e6 / 2**20), mib),
    ]


def _beside_one_without(looks: int) -> tuple[float, float, float]:
    """The additional CPU seconds of a look, in the event loop and in all threads; and the additional MiB resident."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        node = _started(stack, ["benchmarks.measuring", "node", folder], r"^(\d+)$", "/metrics")
        url = f"http://127.0.0.1:{node.port}/metrics"
        both = [
            _started(stack, ["benchmarks.measuring", "serve", folder, url, mode], r"^(\d+)$", "/gpu/metrics")
            for mode in ("off", "on")
        ]
        _look(both, 40)
        before = [_cpu(process) for process in both]
        _look(both, looks)
        without, measured = (
            [(now - then) / looks for now, then in zip(_cpu(process), of, strict=True)]
            for process, of in zip(both, before, strict=True)
        )
        _check(both[1])
        mib = both[1].resident_mib() - both[0].resident_mib()
        return measured[0] - without[0], measured[1] - without[1], mib


def _cpu(process: Process) -> tuple[float, float]:
    """The CPU seconds so far of the event loop's thread, and of all threads."""
    of_loop = Path(f"/proc/{process.pid}/task/{process.pid}/schedstat").read_text()
    return int(of_loop.split()[0]) / 1e9, process.cpu_seconds()


def _started(stack: ExitStack, arguments: list[str], port: str, path: str) -> Process:
    process = Process(arguments, re.compile(port), path)
    stack.callback(process.end)
    return process


def _look(processes: Sequence[Process], times: int) -> None:
    for _ in range(times):
        for process in processes:
            process.scrape()
        time.sleep(PAUSE_SECONDS)  # a reading ends before the next look


def _check(process: Process) -> None:
    """Check that the exporter measures. Otherwise the figures would be those of something else."""
    import http.client  # noqa: PLC0415

    with closing(http.client.HTTPConnection("127.0.0.1", process.port)) as connection:
        connection.request("GET", "/metrics")
        told = connection.getresponse().read().decode()
    counts = re.findall(r"^pod_gpu_processes{.*} (\d+)$", told, re.MULTILINE)
    assert sum(map(int, counts)) == PROCESSES, counts


async def _node(folder: Path) -> None:
    from aiohttp import web  # noqa: PLC0415

    from benchmarks.peers import page_of, serve  # noqa: PLC0415
    from exporter.simulator.dcgm_pages import FAMILIES  # noqa: PLC0415
    from exporter.simulator.gpu_processes import SimulatedProcesses  # noqa: PLC0415
    from exporter.simulator.kubelet import SimulatedKubelet  # noqa: PLC0415
    from tests.support.simulated import World  # noqa: PLC0415

    world = World(gpus=GPUS, shared=GPUS, seed=1)
    while world.used_share < 0.7:
        world.step()
    nvml = SimulatedNvml(folder / "nvml")
    nvml.build()
    lines = SimulatedProcesses([folder]).look(world)
    nvml.write(world.gpus, _lines(folder, [line for line in lines if line.startswith("process")]))
    pages = [page_of(world, FAMILIES, seconds).encode() for seconds in range(20)]
    await SimulatedKubelet(folder / "kubelet.sock", lambda: world.pods).start()

    async def answer(_: web.Request) -> web.Response:
        pages.append(pages.pop(0))
        return web.Response(body=pages[0])

    app = web.Application()
    app.router.add_get("/metrics", answer)
    await serve(app)


def _lines(folder: Path, processes: Sequence[str]) -> Iterator[str]:
    """The lines for the given processes, in the node's containers, and for their samples."""
    for number in range(PROCESSES):
        fields = processes[number % len(processes)].split()
        gpu, pid = fields[1], 30_000 + number
        shutil.copytree(folder / "proc" / fields[4], folder / f"proc/{pid}")
        yield " ".join((*fields[:4], str(pid), *fields[5:]))
        yield from (f"sample {gpu} {pid} {at} 50" for at in range(1, SAMPLES + 1))


async def _serve(folder: Path, url: str, mode: str) -> None:
    from exporter import service  # noqa: PLC0415
    from exporter.config.load import load  # noqa: PLC0415
    from exporter.node.role import NODE  # noqa: PLC0415

    if mode == "on":
        from exporter.sources import container_logs  # noqa: PLC0415
        from exporter.sources.nvml import library, nvml_reader, nvml_source  # noqa: PLC0415
        from exporter.sources.nvml.gpus import Busy, busy  # noqa: PLC0415

        library.NAME = str(folder / "nvml/libnvidia-ml.so.1")
        nvml_source.AGAIN_SECONDS = container_logs.AGAIN_SECONDS = 0.0

        def all_new(library: library.Library, handle: object, last: Busy | None, now: float) -> Busy:  # noqa: ARG001
            """Answer with samples that are all newer than the last reading."""
            return busy(library, handle, None, now)

        vars(nvml_reader)["busy"] = all_new
    flags = {
        "kubelet.socket": [str(folder / "kubelet.sock")],
        "dcgm.url": [url],
        "nvml.mode": [mode],
        "web.listen-address": ["127.0.0.1:0"],
    }
    config = replace(load(flags, {}, None, "gpu-node-1"), root=str(folder))
    await service.serve(config, NODE, on_listening=lambda addresses: print(addresses[0].port, flush=True))


if __name__ == "__main__":
    _, role, place, *more = sys.argv
    asyncio.run(_node(Path(place)) if role == "node" else _serve(Path(place), *more))
