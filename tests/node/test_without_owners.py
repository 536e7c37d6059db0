"""`--labels.owners off` beside `on`, both in front of one node: what they serve says the same."""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from exporter.ownership.labels import CLAIM_LABELS
from tests.support.exporter import Exporter, config_of, running
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import until

# issue 28, churn-free series
OF_DEVICE = ("UUID", "GPU_I_ID")
OF_OWNER = ("pod", "namespace", "container", "gpu_shared", "pod_uid", "label_team", *CLAIM_LABELS)
OWN = "pod_gpu_exporter_"
Labels = frozenset[tuple[str, str]]


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: str


@dataclass
class StoppedClock:
    """The clock of a world, which goes on only where a test says so."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


class Both(NamedTuple):
    """Two exporters of one node."""

    node: SimulatedNode
    clock: StoppedClock
    on: Exporter
    off: Exporter


def samples(page: str, prefix: str = "") -> Iterator[Sample]:
    for name, labels, value in re.findall(rf"^({prefix}\w*){{(.*)}} (\S+)$", page, re.MULTILINE):
        if not name.startswith(OWN):
            yield Sample(name, dict(re.findall(r'(\w+)="([^"]*)"', labels)), value)


def series(name: str, labels: dict[str, str]) -> tuple[str, Labels]:
    """A series as Prometheus sees it: an empty label is none."""
    return name, frozenset(label for label in labels.items() if label[1])


def device(labels: dict[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in OF_DEVICE)


def joined(off: str, own: str) -> dict[tuple[str, Labels], str]:
    """What a query makes of both pages: each sample with each owner of its device, or as it is."""
    owners: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for info in samples(own, "pod_gpu_info"):
        its = {name: info.labels[name] for name in OF_OWNER if name in info.labels}
        owners.setdefault(device(info.labels), []).append(its)
    return {
        series(name, {**labels, **owner}): value
        for name, labels, value in samples(off)
        for owner in owners.get(device(labels), [{}])
    }


@asynccontextmanager
async def both(**settings: str) -> AsyncIterator[Both]:
    """A node that stands still, with whole GPUs, shares, MIG instances and a GPU by DRA."""
    clock = StoppedClock()
    node = SimulatedNode(World(gpus=6, shared=1, mig=1, claims=3, seed=7, clock=clock))
    await node.start()
    try:
        async with AsyncExitStack() as stack:
            given = {
                "kubelet_socket": str(node.socket),
                "kubelet_pods_socket": str(node.pods_socket),
                "dcgm_url": node.url,
                "inventory_file": str(node.inventory_file),
                "kubelet_max_age": "0s",
                "labels_pod_uid": "on",
                "labels_pod_labels": "team",
                "kubernetes_url": node.api_url,
                **settings,
            }
            yield Both(
                node,
                clock,
                await stack.enter_async_context(running(config_of(**given))),
                await stack.enter_async_context(running(config_of(**given, labels_owners="off"))),
            )
    finally:
        await node.stop()


async def pages_agree(given: Both) -> None:
    """Until the page without owners, joined with pod_gpu_info, is the page with owners."""
    on: dict[tuple[str, Labels], str] = {}
    off: dict[tuple[str, Labels], str] = {}

    async def is_so() -> bool:
        nonlocal on, off
        on = {series(name, labels): value for name, labels, value in samples(await given.on.page())}
        off = joined(await given.off.page(), (await given.off.get("/metrics"))[1])
        return on == off

    await until(is_so, why=lambda: sorted(map(str, on.items() ^ off.items()))[:6])
    assert on


async def answers_agree(given: Both, path: str) -> object:
    """What both answer, once it is the same.

    Whether a holder uses its GPU is known from the first page that came while the exporter knew the holder. If one
    exporter knew it a page too late, it needs another page: so the time goes on between two tries.
    """
    answers: list[object] = []

    async def is_so() -> bool:
        given.clock.seconds += 1
        answers[:] = [without_moments((await each.get(path))[1]) for each in (given.on, given.off)]
        return answers[0] == answers[1]

    await until(is_so, why=lambda: (path, list(differences(answers[0], answers[1]))))
    return answers[0]


def differences(here: object, there: object, path: str = "") -> Iterator[str]:
    """Where two answers differ, a line each: both whole are too long to read."""
    if isinstance(here, dict) and isinstance(there, dict):
        for name in here.keys() | there.keys():
            yield from differences(here.get(name), there.get(name), f"{path}.{name}")
    elif isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        for number, pair in enumerate(zip(here, there, strict=True)):
            yield from differences(*pair, f"{path}[{number}]")
    elif here != there:
        yield f"{path}: {here} and {there}"


async def test_samples_joined_with_pod_gpu_info_are_samples_with_owners() -> None:
    async with both() as given:
        names: set[str] = set()
        for _ in range(4):
            await pages_agree(given)
            page = await given.off.page()
            assert not any(re.search(f'{name}="[^"]', page) for name in OF_OWNER)
            info = [sample.labels for sample in samples((await given.off.get("/metrics"))[1], "pod_gpu_info")]
            assert all(labels["samples"] == "without_owners" for labels in info)
            names.update(*info)
            given.node.world.step()
        assert names.issuperset(OF_OWNER)


async def test_no_series_of_a_device_comes_or_goes_with_a_pod() -> None:
    async with both() as given:
        ever: Counter[tuple[str, Labels]] = Counter()
        rounds = 6
        for _ in range(rounds):
            await pages_agree(given)
            page = await given.off.page()
            ever.update({series(name, labels): 1 for name, labels, _ in samples(page)})
            for pod in given.node.world.pods[:2]:
                given.node.world.recreate(pod)
        assert set(ever.values()) == {rounds}


@pytest.mark.parametrize("sharing", ["copy", "device"])
async def test_the_json_the_page_and_the_accounts_have_owners_all_the_same(sharing: str) -> None:
    async with both(sharing=sharing) as given:
        for path in ("/container/metrics", "/metrics/nodes", "/debug/mapping"):
            answer = await answers_agree(given, path)
            assert any(pod.name in str(answer) for pod in given.node.world.pods)


MOMENTS = {"timestamp", "read_at", "holder_since", "settings", "doctor", "health", "sources", "assignments_age_seconds"}


def without_moments(text: str) -> object:
    """An answer without its moments."""
    if not text.startswith(("{", "[")):
        return text

    def without(value: object) -> object:
        if isinstance(value, dict):
            return {name: without(inner) for name, inner in value.items() if name not in MOMENTS}
        return [without(inner) for inner in value] if isinstance(value, list) else value

    return without(json.loads(text))
