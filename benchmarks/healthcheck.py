"""`healthcheck`, which the image runs every 30 s: its time from start to end and its memory.

It is measured with this Python, and for root, if `make test` has built the image, also with the image's Python.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from benchmarks.table import Row, at_most, median_seconds, rounds

FOLDER = Path(__file__).parent.parent / ".cache" / "image"
IMAGE = "localhost/pod-gpu-metrics-exporter"
# The process waits at its end, so that its memory can be read.
AND_WAIT = "import sys; from exporter.cli.main import run; print(run(sys.argv[1:]), flush=True); sys.stdin.read()"


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def _in_the_image() -> Iterator[list[str]]:
    """The words before a command that make it run in the image; nothing if there is no image."""
    store = ["--root", f"{FOLDER}/storage", "--runroot", f"{FOLDER}/run", "--storage-driver", "vfs"]

    def buildah(*arguments: str) -> str:
        return subprocess.run(
            ["buildah", *store, *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    if os.geteuid() != 0 or not (FOLDER / "storage").exists():
        yield []
        return
    container = buildah("from", "--quiet", IMAGE)
    try:
        root = buildah("mount", container)
        environment = ["PATH=/usr/local/bin:/usr/bin:/bin", "PYTHONPATH=/opt/exporter", "PYTHONDONTWRITEBYTECODE=1"]
        yield ["chroot", root, "env", "-i", *environment]
        buildah("umount", container)
    finally:
        buildah("rm", container)


def _rows(where: str, program: Sequence[str], python: Sequence[str], effort: float) -> list[Row]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Healthy)
    Thread(target=server.serve_forever, daemon=True).start()
    arguments = ["healthcheck", f"--web.listen-address=127.0.0.1:{server.server_port}"]
    try:
        seconds = median_seconds(lambda: subprocess.run([*program, *arguments], check=True), rounds=rounds(20, effort))
        peak = _peak_bytes([*python, "-c", AND_WAIT, *arguments])
    finally:
        server.shutdown()
        server.server_close()
    return [
        Row(f"healthcheck, {where}", f"{seconds:.3f} s", at_most(0.3, "s"), seconds),
        Row(f"its memory, {where}", f"{peak / 1e6:.1f} MB", at_most(25, "MB", 1e6), peak),
    ]


def _peak_bytes(command: Sequence[str]) -> float:
    """The most memory of a command, by VmHWM in /proc, since getrusage's maximum begins with that of the parent."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "0\n"
        status = Path(f"/proc/{process.pid}/status").read_text()
    mark = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert mark
    return int(mark[1]) * 1024.0


def run(effort: float) -> list[Row]:
    """The rows on time and memory, here and in the image."""
    rows = _rows("this Python", [sys.executable, "-m", "exporter"], [sys.executable], effort)
    with _in_the_image() as inside:
        if inside:
            rows += _rows("in the image", [*inside, "pod-gpu-metrics-exporter"], [*inside, "python3"], effort)
    return rows
