"""Reading which containers processes are in: those of a busy node's GPUs, and as many as are read at most."""

import tempfile
from pathlib import Path

from benchmarks.table import Row, median_seconds, rounds
from exporter.sources.processes import MOST_PROCESSES, ProcFolder

USUAL = 60
OWN = f"0::/kubepods/besteffort/pod{'0' * 32}/{'f' * 64}\n"


def run(effort: float) -> list[Row]:
    """The files are this process' own in /proc, so that the kernel has to make them; each counts as another process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for one, cgroup in (("self", OWN), ("1", "0::/init.scope\n")):
            (folder / one).mkdir()
            (folder / one / "cgroup").write_text(cgroup)
        pids = range(100, 100 + 2 * MOST_PROCESSES)
        for pid in pids:
            (folder / str(pid)).symlink_to(Path("/proc/self").resolve())
        proc = ProcFolder(folder)
        few = median_seconds(lambda: proc.read(pids[:USUAL]), rounds=rounds(200, effort)) * 1e3
        most = median_seconds(lambda: proc.read(pids), rounds=rounds(20, effort)) * 1e3
    return [
        Row(f"{USUAL} processes on GPUs: which containers", f"{few:.2f} ms, on a thread", "at most 2 ms", few),
        Row(
            f"{len(pids):,} of them: {MOST_PROCESSES:,} are read", f"{most:.0f} ms, on a thread", "at most 100 ms", most
        ),
    ]
