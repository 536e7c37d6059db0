"""NVML on a node of 8 GPUs and 60 processes: the cost of a reading with each look, and the memory of the bindings.

NVML is the simulator's stand-in, which answers at once. So the figures do not include the time of the driver itself.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.table import Row, at_most, median_seconds, rounds
from exporter.simulator.nvml import SimulatedNvml
from tests.support.simulated import World

GPUS, PROCESSES, SAMPLES = 8, 60, 10
# the samples of each process: as many as the driver may have for the time between two looks
MORE = [
    *(f"process {pid % GPUS} -1 -1 {pid} c 1000000000" for pid in range(1, PROCESSES + 1)),
    *(f"sample {pid % GPUS} {pid} {at} 50" for pid in range(1, PROCESSES + 1) for at in range(1, SAMPLES + 1)),
]


def run(effort: float) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        nvml = SimulatedNvml(Path(folder) / "nvml")
        if not nvml.build():
            return []
        nvml.write(World(gpus=GPUS).gpus, MORE)
        # in a process of its own, since imports of another benchmark would not be counted
        command = [sys.executable, "-m", "benchmarks.nvml", str(nvml.library), str(rounds(300, effort))]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
    mib, seconds = map(float, ended.stdout.split())
    what = f"NVML, {GPUS} GPUs and {PROCESSES} processes"
    return [
        Row(f"{what}: a reading", f"{seconds * 1e3:.2f} ms", at_most(2, "ms", 1e-3), seconds),
        Row(f"{what}: memory on top", f"{mib:.1f} MiB", at_most(10, "MB", 1e6 / 2**20), mib),
    ]


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1024**2


def _measure(library: str, times: int) -> None:
    import exporter.cli.serve  # noqa: F401, PLC0415 - imported in any case, and so not counted

    before = _resident_mib()

    from exporter.sources.nvml.library import Library  # noqa: PLC0415
    from exporter.sources.nvml.nvml_reader import NvmlReader  # noqa: PLC0415

    reader = NvmlReader(Library(library))

    def read() -> None:
        # all samples are new
        for gpu in reader._gpus.values():  # noqa: SLF001
            gpu.busy = None
        assert len(reader.read(0.0).processes or ()) == PROCESSES

    seconds = median_seconds(read, rounds=times)
    print(_resident_mib() - before, seconds)


if __name__ == "__main__":
    _measure(sys.argv[1], int(sys.argv[2]))
