"""/container/metrics: rows of JSON per second, compared with prometheus_client's parser, and the CPU of a request."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.join import owners_of
from benchmarks.scrape import Process, peers
from benchmarks.table import Row, median_seconds, rounds
from exporter.dcgm.fields import FIELDS, METRICS
from exporter.exposition.join import Joiner
from exporter.model.devices import DeviceKey, Owners
from exporter.model.slices import at_once
from exporter.model.snapshot import Health, Snapshot
from exporter.outputs import containers, device_rows
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from exporter.simulator.dcgm import SimulatedDcgm
from exporter.simulator.machine import TICK_NS
from tests.support.simulated import World

REQUESTS = 1000


def with_the_library(page: str, owners: Owners) -> str:
    """The JSON, made in the obvious way with prometheus_client's parser."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            known = FIELDS.get(sample.name)
            if known is None or not known.json:
                continue
            key = (sample.labels.get("UUID", ""), sample.labels.get("GPU_I_ID", ""))
            row = rows.get(key)
            if row is None:
                held = owners.of(DeviceKey(uuid=key[0], instance=key[1]))
                row = rows[key] = {
                    **dict.fromkeys(METRICS),
                    "device_uuid": key[0],
                    "device_id": sample.labels.get("gpu", ""),
                    "model_name": sample.labels.get("modelName", ""),
                    "pod": held[0].owner.pod if held else "",
                }
            row[known.json] = sample.value * known.times / known.per
    return json.dumps(list(rows.values()))


def run(effort: float) -> list[Row]:
    # the clock goes on by a second with each reading, so that no two pages are the same
    world = World(gpus=8, seed=1, clock=itertools.count(step=TICK_NS).__next__)
    dcgm = SimulatedDcgm(world)
    pages = [dcgm.page().encode(), dcgm.page().encode()]
    policy, owners = LabelPolicy(), owners_of(world)
    attribution = Attribution(owners, policy)
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)

    def render() -> bytes:
        pages.reverse()
        rows = device_rows.rows(
            Snapshot(
                node="n",
                owners=owners,
                joined=joiner.join(pages[:1], attribution),
                health={"kubelet": Health(up=True)},
                assignments_age_seconds=0.0,
                read_at_seconds=0.0,
                attribute=attribution,
            )
        )
        return b"".join(at_once(containers.render(at_once(rows), {})))

    count = len(json.loads(render()))
    ours = median_seconds(render, rounds=rounds(500, effort))
    theirs = median_seconds(lambda: with_the_library(pages[0].decode(), owners), rounds=rounds(40, effort))
    return [
        Row(
            f"JSON, {count} rows from a page of 8 GPUs",
            f"{count / ours:.0f} rows a second ({ours * 1e3:.2f} ms)",
            None,
            count / ours,
        ),
        Row("the same with prometheus_client's parser / JSON", f"{theirs / ours:.0f} times", None, theirs / ours),
        *_requests(rounds(REQUESTS, effort)),
    ]


def _requests(count: int) -> Iterator[Row]:
    """The CPU of requests that come so fast that only a few of them call the kubelet (--kubelet.max-age)."""
    with peers() as (_, _, exporter):
        for path in ("/container/metrics", "/gpu/metrics"):
            exporter.path = path
            yield Row(f"CPU of a request to {path} after another", f"{_cpu(exporter, count) * 1e3:.2f} ms", None, 0.0)


def _cpu(exporter: Process, count: int) -> float:
    for _ in range(100):
        exporter.scrape()
    before = exporter.cpu_seconds()
    for _ in range(count):
        exporter.scrape()
    return (exporter.cpu_seconds() - before) / count
