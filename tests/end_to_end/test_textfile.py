"""The drop, read by a real node-exporter: through updates while it is scraped, and after its producer's death."""

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.command import run_here
from tests.support.components import free_port, real
from tests.support.places import DATA
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.real

MAX_AGE_SECONDS = 2.0
PAGE = (DATA / "pages" / "1.prom").read_text()


def put(path: Path, number: int) -> None:
    """A page whose first GPU says `number`, renamed into place; some samples have timestamps, which may not go on."""
    text = re.sub(r'(dcgm_gpu_temp\{gpu="0".*\}) \S+', rf"\1 {number}", PAGE)
    text = re.sub(r"^(dcgm_fb_\w+\{.*\} \S+)$", r"\1 1700000000000", text, flags=re.MULTILINE)
    beside = path.with_suffix(".swp")
    beside.write_text(text)
    beside.replace(path)


@pytest.fixture
def drop(tmp_path: Path) -> Path:
    folder = tmp_path / "textfile"
    folder.mkdir()
    return folder / "gpu.prom"


@pytest.fixture
def node_exporter(drop: Path) -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [
            real("prometheus-node-exporter"),
            "--collector.disable-defaults",
            "--collector.textfile",
            f"--collector.textfile.directory={drop.parent}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}/metrics"
    try:
        wait_until(lambda: "node_textfile_scrape_error" in scrape(url))
        yield url
    finally:
        process.terminate()
        process.wait(20)


def scrape(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def textfile(source: Path, drop: Path, *arguments: str, max_age_seconds: float = MAX_AGE_SECONDS) -> list[str]:
    return [
        *("textfile", f"--output={drop}", f"--dcgm.file={source}"),
        *(f"--dcgm.file-max-age={max_age_seconds:g}s", f"--kubelet.socket={drop.parent}/none.sock", *arguments),
    ]


def test_ten_updates_and_the_producers_death(tmp_path: Path, drop: Path, node_exporter: str) -> None:
    source = tmp_path / "dcgm.prom"
    put(source, 0)
    command = [sys.executable, "-m", "exporter", *textfile(source, drop, "--interval=50ms")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    temperature = re.compile(r'^dcgm_gpu_temp\{.*gpu="0".*\} (\d+)$', re.MULTILINE)
    samples = set()
    written = time.monotonic()

    def is_shown(number: int) -> bool:
        nonlocal written
        if time.monotonic() - written > MAX_AGE_SECONDS / 2:
            # A producer goes on writing: a program that starts slowly must not meet a file past its age.
            written = time.monotonic()
            put(source, number)
        page = scrape(node_exporter)
        assert "node_textfile_scrape_error 0\n" in page
        found = temperature.search(page)
        if found:
            samples.add(sum(line.startswith("dcgm_") for line in page.splitlines()))
        return found is not None and int(found[1]) == number

    try:
        for number in range(1, 11):
            written = time.monotonic()
            put(source, number)
            wait_until(partial(is_shown, number))
        # never a half file: every scrape that had the drop had all of it
        assert samples == {sum(line.startswith("dcgm_") for line in PAGE.splitlines())}
        # the producer of the page has been dead since its last page
        down = f'pod_gpu_exporter_source_up{{source="file:{source}"}} 0\n'
        wait_until(lambda: down in scrape(node_exporter))
        assert time.monotonic() - written > MAX_AGE_SECONDS - 0.2
        page = scrape(node_exporter)
        assert "node_textfile_scrape_error 0\n" in page
        assert temperature.search(page) is None
    finally:
        process.terminate()
        assert process.wait(20) == 0


def test_once(tmp_path: Path, drop: Path) -> None:
    source = tmp_path / "dcgm.prom"
    put(source, 7)
    os.utime(source, (time.time() - 1, time.time() - 1))
    # the program may take longer to start than a file may be old in the other tests
    once = textfile(source, drop, "--once", max_age_seconds=60)
    assert run_here(*once).returncode == 0
    assert "dcgm_gpu_temp{" in drop.read_text()
    source.unlink()
    failed = run_here(*once)
    assert failed.returncode == 1
    assert "no GPU samples" in failed.stderr.splitlines()[-1]
    assert "dcgm_gpu_temp" not in drop.read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--interval=soon"], "--interval"),
        (["--output=/tmp/gpu.txt"], "end in .prom"),
        (["--output=/no/such/folder/x.prom", "--once"], "/no/such/folder"),
    ],
)
def test_wrong_arguments(tmp_path: Path, drop: Path, arguments: list[str], says: str) -> None:
    ended = run_here(*textfile(tmp_path / "dcgm.prom", drop, *arguments))
    assert ended.returncode in (1, 2)
    assert says in ended.stderr.splitlines()[-1]
