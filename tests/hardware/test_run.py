"""The whole run, without a GPU: in front of the simulator's stand-in for NVML, with a program in nvidia-smi's place."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from exporter.simulator.nvml import SimulatedNvml
from tests.cuda.programs import kept
from tests.hardware import children, judging, report, verdicts
from tests.hardware.children import Children, output_of
from tests.hardware.moments import read_moments
from tests.support.components import nvcc
from tests.support.nvml import GPU, stand_in
from tests.support.places import ROOT
from tests.support.simulated import SimulatedGpu
from tests.support.waiting import until, wait_until

SCALE = "0.1"
HERE = Path(__file__).parent


@pytest.fixture
def nvml(tmp_path: Path) -> SimulatedNvml:
    return stand_in(tmp_path, [SimulatedGpu(index=index, uuid=GPU(index)) for index in range(2)])


def hardware(*arguments: str | Path) -> Sequence[str | Path]:
    return (sys.executable, "-m", "tests.hardware", *arguments)


def test_a_run_without_load_agrees_and_says_that_there_was_no_gpu(nvml: SimulatedNvml, tmp_path: Path) -> None:
    out = tmp_path / "report"
    command = hardware("--library", nvml.library, "--out", out, "--scale", SCALE)
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=150)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "no GPU: a library that says" in ended.stdout
    assert "0 fails" in ended.stdout

    verdict_of = {row.what: row.verdict for row in verdicts.judge(out)}
    assert verdict_of["DCGM_FI_DEV_FB_TOTAL"] == "ok"
    for phase in ("held", "shared"):
        assert verdict_of[f"owners of the GPU, {phase}"] == "ok"
    assert "no GPU" in (out / "report.md").read_text()
    assert json.loads((out / "results.json").read_text())["about"]["left_behind"] == []

    # another second of what nvidia-smi says, and the table shows it
    for document in out.glob("moments/*/smi.xml"):
        document.write_text(document.read_text().replace(" MiB</total>", "7 MiB</total>"))
    again = subprocess.run(
        hardware("--judge", "--out", out), cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert again.returncode == 1
    assert "fails: DCGM_FI_DEV_FB_TOTAL" in again.stdout


def test_a_run_that_is_broken_off_leaves_nothing_behind(nvml: SimulatedNvml, tmp_path: Path) -> None:
    out = tmp_path / "report"
    command = hardware("--library", nvml.library, "--out", out)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        try:
            wait_until(
                lambda: "listening" in (out / "serve.log").read_text() if (out / "serve.log").exists() else False
            )
            served = [int(pid) for pid in _children_of(run.pid)]
            run.send_signal(signal.SIGTERM)
            assert run.wait(60) == 1
        finally:
            run.kill()
    assert served
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in served))
    assert json.loads((out / "about.json").read_text())["left_behind"] == []


def _children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_without_a_gpu_one_line_says_what_is_missing(tmp_path: Path) -> None:
    command = hardware("--library", tmp_path / "libnvidia-ml.so.1", "--out", tmp_path / "report")
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("make hardware: no GPU here, and no LIBRARY=")
    assert not (tmp_path / "report").exists()


def test_a_folder_that_holds_something_else_is_left_alone(nvml: SimulatedNvml, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    command = hardware("--library", nvml.library, "--out", tmp_path / "mine")
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


async def test_programs_end_with_whoever_started_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "_PATIENCE_SECONDS", 0.5)
    deaf = "trap '' TERM; sleep 1000 & echo $!; wait; wait"
    environment = dict(os.environ)
    async with Children() as these:
        started = await these.start(["sh", "-c", deaf], environment=environment, output=tmp_path / "out")
        await until(lambda: (tmp_path / "out").read_text().strip())
        below = int((tmp_path / "out").read_text())
    assert started.returncode == -signal.SIGKILL
    await until(lambda: not Path(f"/proc/{below}").exists() or _is_dead(below))
    assert await output_of(["sleep", "1000"], environment=environment, seconds=0.1) == (124, b"")
    assert await output_of(["/nonexistent/nvidia-smi"], environment=environment, seconds=9) == (127, b"")


def _is_dead(pid: int) -> bool:
    """Whether only its exit code is left, which nobody may have asked for."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


async def test_the_program_of_the_loads_says_what_fails_without_a_gpu() -> None:
    compiler = nvcc()
    source = HERE / "load.cu"

    def make(folder: Path) -> None:
        subprocess.run([compiler, "-arch=sm_80", "-cudart", "shared", source, "-o", folder / "load"], check=True)

    program = kept([source], make) / "load"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(compiler.parents[1] / "lib64")}
    for mode in (("matmul", "1"), ("copy", "1"), ("hold", "4", "1"), ("launches", "1")):
        failing = await asyncio.create_subprocess_exec(
            program, *mode, env=environment, stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
        )
        _, says = await failing.communicate()
        assert failing.returncode == 3, "a GPU is here: `make hardware` uses it"
        assert b"cuda" in says


def test_the_table_shows_what_fails_first_and_breaks_no_cell() -> None:
    rows = [judging.fact("fine | and", "1"), judging.equal("launches", 1, 2)]
    table = report.markdown("a title", rows).splitlines()
    assert table[4].startswith("| launches | 1 | 2 |")
    assert "fine \\| and" in table[5]
    assert report.summary(rows)[-1] == "0 ok, 1 fails, 1 not judged"


def test_a_page_with_a_broken_line_is_no_page(tmp_path: Path) -> None:
    folder = tmp_path / "moments" / "0001"
    folder.mkdir(parents=True)
    (folder / "gpu_metrics.txt").write_text('DCGM_FI_DEV_GPU_TEMP{UUID="GPU-1" 41\n')
    (folder / "smi.xml").write_bytes(b"")
    (folder / "processes.json").write_text("not known")
    times = {"smi": [1, 2], "/gpu/metrics": [1, 1.5, 200], "/processes": [1, 1.5, 503]}
    (folder / "moment.json").write_text(json.dumps(times))
    (moment,) = read_moments(tmp_path)
    assert (moment.at, moment.samples, moment.smi, moment.no_processes) == (1.25, (), None, "not known")
