"""The figures of docs/cluster.md#scale: the pages of nodes, and their cost for the exporter and for a real Prometheus.

python -m benchmarks.scale pages                     series, bytes, bytes with gzip, by kind of node
python -m benchmarks.scale cpu                       CPU of the exporter for one scrape of each page
python -m benchmarks.scale prometheus 10 30          Prometheus with so many nodes in turn, 4 minutes or --seconds each;
                                                     --without-rules shows what the rules cost

Prometheus' time is 30 times as fast: it scrapes every second, evaluates the rules every 2 s over windows that are 30
times shorter, and after 4 minutes its head has the samples of 2 hours. Its CPU is divided by 30. All nodes are copies
of one simulated node, each with UUIDs of its own. A pod comes or goes there every 17 s, which stands for 8 minutes.
"""

import argparse
import asyncio
import contextlib
import json
import re
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from benchmarks.scrape import Process, peers

ROOT = Path(__file__).parent.parent
GPU, OWN = "/gpu/metrics", "/metrics"
FASTER = 30
SECONDS = 240.0
KINDS = {
    "8 whole GPUs": ("--shared=0", "--mig=0"),
    "8 GPUs, 2 of them shared, 1 cut into 7": (),
    "8 GPUs cut into 56 instances": ("--shared=0", "--mig=8"),
}
LISTENING = re.compile(r"msg=listening address=127\.0\.0\.1:(\d+)")
# the windows of the rules, and their lengths for a Prometheus whose time is faster
WINDOWS = {"1m": "2s", "5m": "10s", "10m": "20s", "15m": "30s", "30m": "1m", "1h": "2m", "6h": "12m", "1d": "48m"}
CPU_SCRAPES = 1000


@contextmanager
def demo(*flags: str) -> Iterator[Process]:
    """A simulated node behind the exporter."""
    process = Process(["exporter", "demo", "--web.listen-address=127.0.0.1:0", *flags], LISTENING, GPU)
    try:
        yield process
    finally:
        process.end()


def series(page: bytes) -> int:
    return sum(1 for line in page.splitlines() if line and not line.startswith(b"#"))


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


def print_pages() -> None:
    """Print a line for each kind of node, list of fields and mode of sharing."""
    for kind, flags in KINDS.items():
        for counters in ("default", "full"):
            for sharing in ("copy", "split", "device"):
                with demo(*flags, f"--counters={counters}", f"--sharing={sharing}") as process:
                    time.sleep(1.5)
                    cells = []
                    for path in (GPU, OWN):
                        process.path = path
                        page = fetch(f"http://127.0.0.1:{process.port}{path}")
                        packed = process.size(**{"Accept-Encoding": "gzip"})
                        cells.append(f"{path} {series(page):5} series {len(page):7} bytes {packed:6} with gzip")
                    print(f"{kind:40} {counters:8} {sharing:7} {'   '.join(cells)}", flush=True)


def print_cpu() -> None:
    """Print the CPU of the exporter for a scrape of each page, measured as in `make bench`: 8 GPUs and 25 families."""
    for mig in ((), ("mig",)):
        with peers(*mig) as (_, _, exporter):
            for path in (GPU, OWN):
                exporter.path = path
                for how in ("identity", "gzip"):
                    for _ in range(100):
                        exporter.scrape(**{"Accept-Encoding": how})
                    before = exporter.cpu_seconds()
                    for _ in range(CPU_SCRAPES):
                        exporter.scrape(**{"Accept-Encoding": how})
                    spent = (exporter.cpu_seconds() - before) / CPU_SCRAPES
                    print(f"{'112 MIG instances' if mig else '8 GPUs'} {path} {how}: {spent * 1e3:.2f} ms", flush=True)
            print(f"resident memory {exporter.resident_mib():.1f} MiB", flush=True)


class Nodes:
    """A server with both pages of many nodes, under /<number>/…. The pages change once a second."""

    def __init__(self, port_of_demo: int) -> None:
        self._pages: dict[str, bytes] = {}
        self._upstream = port_of_demo
        self._loop = asyncio.new_event_loop()
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._thread.start()
        self._ready.wait(10)

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_get("/{node}/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        with contextlib.suppress(OSError):  # the demo has ended
            while True:
                for path in (GPU, OWN):
                    url = f"http://127.0.0.1:{self._upstream}{path}"
                    self._pages[path] = await asyncio.to_thread(fetch, url)
                self._ready.set()
                await asyncio.sleep(1)

    async def _answer(self, request: web.Request) -> web.Response:
        number = int(request.match_info["node"])
        page = self._pages["/" + request.match_info["path"]]
        node = b"gpu-node-%04d" % number
        body = page.replace(b'"GPU-', b'"GPU-%04d' % number).replace(b'node="gpu-node-1"', b'node="%b"' % node)
        return web.Response(body=body, content_type="text/plain")


def jobs(port: int, nodes: int) -> Iterator[dict[str, Any]]:
    for name, path in (("gpu", GPU), ("gpu-exporter", OWN)):
        targets = [
            {
                "targets": [f"127.0.0.1:{port}"],
                "labels": {
                    "__metrics_path__": f"/{number}{path}",
                    "metrics_path": path,
                    "node": f"gpu-node-{number:04}",
                    "instance": f"gpu-node-{number:04}:9400",
                },
            }
            for number in range(nodes)
        ]
        yield {"job_name": name, "honor_labels": True, "static_configs": targets}


def quick_rules(folder: Path) -> Sequence[Path]:
    found = []
    for path in sorted((ROOT / "deploy" / "prometheus" / "rules").glob("*.yaml")):
        text = re.sub(r"\[(\w+)\]", lambda window: f"[{WINDOWS.get(window[1], window[1])}]", path.read_text())
        text = re.sub(r"offset (\w+)", lambda offset: f"offset {WINDOWS[offset[1]]}", text)
        (folder / path.name).write_text(text.replace("interval: 1m", "interval: 2s"))
        found.append(folder / path.name)
    return found


def own_metrics(base: str) -> dict[str, float]:
    """Prometheus' own metrics without labels, and those of rule groups, summed."""
    found: dict[str, float] = {}
    for name, value in re.findall(r"^(\w+)(?:\{[^}]*\})? (\S+)$", fetch(f"{base}/metrics").decode(), re.MULTILINE):
        found[name] = found.get(name, 0.0) + float(value)
    return found


def print_prometheus(nodes: int, for_seconds: float, *, with_rules: bool) -> None:
    from tests.support.prometheus import started  # noqa: PLC0415 # the other figures need no Prometheus

    flags = ("--counters=full", "--speed=0.3", "--node-name=gpu-node-1")
    with demo(*flags) as process, tempfile.TemporaryDirectory() as made:
        server, folder = Nodes(process.port), Path(made)
        rules = quick_rules(folder) if with_rules else ()
        with started(folder, list(jobs(server.port, nodes)), "1s", rule_files=rules) as base:
            time.sleep(15)
            before, began, most = own_metrics(base), time.monotonic(), 0.0
            while time.monotonic() - began < for_seconds:
                time.sleep(5)
                with contextlib.suppress(OSError):
                    most = max(most, own_metrics(base)["process_resident_memory_bytes"])
            now, seconds = own_metrics(base), time.monotonic() - began
            samples = (
                now["prometheus_tsdb_head_samples_appended_total"]
                - before["prometheus_tsdb_head_samples_appended_total"]
            )
            head = now["prometheus_tsdb_head_series"]
            found = {
                "nodes": nodes,
                "series scraped at a time": sum(
                    series(fetch(f"http://127.0.0.1:{process.port}{path}")) for path in (GPU, OWN)
                )
                * nodes,
                "series in the head": head,
                "samples a second": samples / seconds,
                "resident memory, MiB": most / 2**20,
                "heap in use, MiB": now["go_memstats_heap_inuse_bytes"] / 2**20,
                "CPU cores": (now["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]) / seconds,
                "rule evaluation, seconds": now.get("prometheus_rule_group_last_duration_seconds", 0.0),
                "missed evaluations": now.get("prometheus_rule_group_iterations_missed_total", 0.0),
                "WAL, bytes a sample": sum(path.stat().st_size for path in (folder / "data" / "wal").glob("0*"))
                / now["prometheus_tsdb_head_samples_appended_total"],
                "chunks on disk, bytes": sum(
                    path.stat().st_size for path in (folder / "data" / "chunks_head").glob("0*")
                ),
                "chunks": now["prometheus_tsdb_head_chunks"],
            }
            print(json.dumps(found, indent=1), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("pages", "cpu", "prometheus"))
    parser.add_argument("nodes", nargs="*", type=int, default=[])
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--without-rules", action="store_true")
    asked = parser.parse_args()
    if asked.what == "pages":
        print_pages()
    elif asked.what == "cpu":
        print_cpu()
    else:
        for count in asked.nodes or (10, 30):
            print_prometheus(count, asked.seconds, with_rules=not asked.without_rules)
    sys.exit(0)
