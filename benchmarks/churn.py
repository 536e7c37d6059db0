"""The cost of a day of pods for a real Prometheus with `--labels.owners` on and off, and whether both answer the same.

python -m benchmarks.churn                   each of 8 GPUs goes to a new pod every 10 minutes, 1,152 pods a day
python -m benchmarks.churn --pod-minutes 60

Two exporters in front of one simulated node are read as often as in a day of scrapes every 30 s. The samples that
a scrape would store are sent to Prometheus by remote write, with the times of a day that ends now, and with marks of
staleness. So after minutes, its head, blocks and compactions are those of a day. The exporters' own clocks do not go
faster. So the accounts have the right rows, but their numbers grow more slowly.
"""

import argparse
import asyncio
import json
import re
import struct
import tempfile
import time
import urllib.parse
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from tests.support.components import real
from tests.support.exporter import Exporter, config_of, running
from tests.support.places import ROOT
from tests.support.prometheus import Prometheus, started
from tests.support.simulated import GPU_RESOURCE, Container, Pod, SimulatedNode, World
from tests.support.waiting import until

GPUS = 8
SCRAPES_APART_SECONDS = 30
DAY_SECONDS = 24 * 3600
NODE = "gpu-node-1"
NAMESPACES = ("ml-research", "team-vision", "serving", "notebooks")
PATHS = ("/gpu/metrics", "/metrics")
FLAGS = ("--web.enable-remote-write-receiver", "--web.enable-admin-api")
STALE = struct.pack("<Q", 0x7FF0000000000002)
LINE = re.compile(r"^([a-zA-Z_]\w*)(?:{(.*)})? (\S+)$", re.MULTILINE)
# how docs/promql.md, "Without owners on samples", joins what held a device with the device's values
JOIN = "pod_gpu_info * on (node, UUID, GPU_I_ID) group_left () max by (node, UUID, GPU_I_ID)"
USED, FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"
# pairs of queries for the same question with either setting: that of the page, and others that are joined as it is
PAIRS = [
    *re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", (ROOT / "docs" / "promql.md").read_text(), re.MULTILINE),
    (
        'max by (namespace, pod, container, UUID, GPU_I_ID) (DCGM_FI_DEV_GPU_UTIL{pod!=""})',
        f"max by (namespace, pod, container, UUID, GPU_I_ID) ({JOIN} (DCGM_FI_DEV_GPU_UTIL))",
    ),
    (
        f'sum by (namespace, pod) ({USED}{{pod!=""}}) / sum by (namespace, pod) ({USED}{{pod!=""}} + {FREE})',
        f"sum by (namespace, pod) ({JOIN} ({USED})) / sum by (namespace, pod) ({JOIN} ({USED} + {FREE}))",
    ),
    (
        f'min by (namespace, pod, UUID, GPU_I_ID) (min_over_time({FREE}{{pod!=""}}[5m]))',
        f"min by (namespace, pod, UUID, GPU_I_ID) (min_over_time(({JOIN} ({FREE}))[5m:30s]))",
    ),
    (
        'count(DCGM_FI_DEV_GPU_TEMP{pod=""}) or vector(0)',
        (
            "count(max by (node, UUID, GPU_I_ID) (DCGM_FI_DEV_GPU_TEMP) unless on (node, UUID, GPU_I_ID) pod_gpu_info)"
            " or vector(0)"
        ),
    ),
]


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def message(tag: int, content: bytes) -> bytes:
    """A field of protobuf that holds bytes."""
    return bytes((tag << 3 | 2,)) + varint(len(content)) + content


def labels_of(name: str, text: str, path: str) -> bytes:
    """The labels of a series with its target's, as a scrape stores them: sorted, and none of them empty."""
    of_target = {"job": "gpu", "instance": f"{NODE}:9400", "node": NODE, "metrics_path": path, "__name__": name}
    labels = of_target | dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', text))
    pairs = sorted((label, value) for label, value in labels.items() if value)
    return b"".join(message(1, message(1, label.encode()) + message(2, value.encode())) for label, value in pairs)


def snappy(body: bytes) -> bytes:
    """Bytes in Snappy's form, not compressed: one literal."""
    return varint(len(body)) + b"\xfc" + struct.pack("<I", len(body) - 1) + body


@dataclass
class Store:
    """A Prometheus with the samples of one exporter's scrapes."""

    exporter: Exporter
    server: Prometheus
    folder: Path
    session: aiohttp.ClientSession
    labels_by_series: dict[tuple[str, str, str], bytes] = field(default_factory=dict)
    last: set[bytes] = field(default_factory=set)
    samples: int = 0
    most_series: int = 0
    head: Mapping[str, float] = field(default_factory=dict)

    async def scrape(self, at_ms: int) -> None:
        at = b"\x10" + varint(at_ms)
        now: dict[bytes, bytes] = {}
        for path in PATHS:
            _, page = await self.exporter.get(path)
            for name, text, value in LINE.findall(page):
                key = (path, name, text)
                series = self.labels_by_series.get(key) or self.labels_by_series.setdefault(
                    key, labels_of(*key[1:], path)
                )
                now[series] = struct.pack("<d", float(value))
        gone = dict.fromkeys(self.last - now.keys(), STALE)
        self.last = set(now)
        self.samples += len(now)
        sent = [message(1, series + message(2, b"\x09" + value + at)) for series, value in (now | gone).items()]
        headers = {"Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"}
        url = f"{self.server.base}/api/v1/write"
        async with self.session.post(url, data=snappy(b"".join(sent)), headers=headers) as answer:
            assert answer.status == 204, await answer.text()

    async def look(self) -> None:
        async with self.session.get(f"{self.server.base}/metrics") as answer:
            text = await answer.text()
        self.head = {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", text, re.MULTILINE)}
        self.most_series = max(self.most_series, int(self.head["prometheus_tsdb_head_series"]))

    async def is_up(self) -> bool:
        try:
            async with self.session.get(f"{self.server.base}/-/ready") as answer:
                return answer.status == 200
        except OSError:
            return False

    async def bytes_of_blocks(self) -> dict[str, int]:
        """The bytes of a snapshot of all blocks, including the head."""
        async with self.session.post(f"{self.server.base}/api/v1/admin/tsdb/snapshot") as answer:
            name = (await answer.json())["data"]["name"]
        sizes = {"chunks": 0, "index": 0}
        for file in (self.folder / "data" / "snapshots" / name).rglob("*"):
            kind = "chunks" if file.parent.name == "chunks" else file.name
            sizes[kind] = sizes.get(kind, 0) + (file.stat().st_size if file.is_file() and kind in sizes else 0)
        return {kind: sizes[kind] for kind in ("chunks", "index")}

    def answers(self, query: str, begin: float, end: float, step: float) -> dict[tuple[object, ...], float]:
        asked = urllib.parse.urlencode({"query": query, "start": begin, "end": end, "step": step})
        rows = self.server.ask(f"query_range?{asked}")["result"]
        return {(*sorted(row["metric"].items()), at): float(value) for row in rows for at, value in row["values"]}


def new_pods(world: World, turn: int) -> None:
    """Give every GPU a new pod, with a new name."""
    world.pods = tuple(
        Pod(
            namespace=NAMESPACES[(number + turn) % len(NAMESPACES)],
            name=f"train-{turn:04x}{number}",
            containers=(Container(name="trainer", devices=((GPU_RESOURCE, gpu.uuid),)),),
        )
        for number, gpu in enumerate(world.gpus)
    )


@asynccontextmanager
async def stores(node: SimulatedNode, folder: Path) -> AsyncIterator[dict[str, Store]]:
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        of_setting = {}
        for setting in ("on", "off"):
            config = config_of(
                kubelet_socket=str(node.socket), dcgm_url=node.url, kubelet_max_age="0s",
                accounting_interval="100ms", accounting_keep="250ms", labels_owners=setting,
            )  # fmt: skip
            exporter = await stack.enter_async_context(running(config))
            own = folder / setting
            own.mkdir()
            base = stack.enter_context(started(own, [], "1h", flags=FLAGS))
            store = of_setting[setting] = Store(exporter, Prometheus(base, own / "log"), own, session)
            await until(store.is_up, why=lambda own=own: (own / "log").read_text())  # type: ignore[misc]
        yield of_setting


def equal(of_setting: Mapping[str, Store], begin: float, pod_seconds: int) -> Iterator[tuple[str, int, bool]]:
    """Each pair of queries, asked once in each pod's life: the query, the number of answers, and whether both agree."""
    first, last = begin + pod_seconds - SCRAPES_APART_SECONDS, begin + DAY_SECONDS - SCRAPES_APART_SECONDS
    for with_owners, without in PAIRS:
        on = of_setting["on"].answers(with_owners, first, last, pod_seconds)
        off = of_setting["off"].answers(without, first, last, pod_seconds)
        is_same = on.keys() == off.keys() and all(abs(on[key] - off[key]) <= 1e-9 * abs(on[key]) for key in on)
        yield without, len(on), is_same


async def run(pod_minutes: int) -> None:
    began = time.time() - DAY_SECONDS
    seconds = 0
    world = World(gpus=GPUS, seed=5, clock=lambda: seconds * 10**9)
    node = SimulatedNode(world, NODE, counters="full")
    await node.start()
    try:
        with tempfile.TemporaryDirectory() as made:
            async with stores(node, Path(made)) as of_setting:
                for seconds in range(0, DAY_SECONDS, SCRAPES_APART_SECONDS):
                    if not seconds % (pod_minutes * 60):
                        new_pods(world, seconds // (pod_minutes * 60))
                    for store in of_setting.values():
                        await store.scrape(round((began + seconds) * 1000))
                        await store.look()
                for setting, store in of_setting.items():
                    sizes = await store.bytes_of_blocks()
                    figures = {
                        "--labels.owners": setting,
                        "pods": DAY_SECONDS // 60 // pod_minutes * GPUS,
                        "series at a time": len(store.last),
                        "series of the day": len(set(store.labels_by_series.values())),
                        "head series, at most": store.most_series,
                        "head series at the end": store.head["prometheus_tsdb_head_series"],
                        "samples": store.samples,
                        "bytes of blocks": sum(sizes.values()),
                        **sizes,
                        "resident MiB at the end": round(store.head["process_resident_memory_bytes"] / 2**20),
                    }
                    print(json.dumps(figures), flush=True)
                for query, count, is_same in equal(of_setting, began, pod_minutes * 60):
                    print("equal" if is_same else "NOT EQUAL", count, query, flush=True)
    finally:
        await node.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pod-minutes", type=int, default=10)
    real("prometheus")
    asyncio.run(run(parser.parse_args().pod_minutes))
