"""Each allocator with each source of its word, on one GPU and on eight: the right owners everywhere, or none, and why.

Everything that names owners is asked of each node: /gpu/metrics, /container/metrics, the page, `top`, /debug/mapping,
`doctor`, /metrics and /processes. A node has pods of all shapes that its allocator knows.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from exporter.doctor import checkup
from exporter.simulator.allocators import (
    AckGpushare,
    Ascend,
    Gpushare,
    Hami,
    Kai,
    Koordinator,
    OlderHami,
    RunAi,
    SimulatedAllocator,
    Volcano,
)
from exporter.sources.nvml import nvml_source
from tests.support.allocators import allocated_node, fill_with_all_shapes, given_to
from tests.support.components import real
from tests.support.exporter import Exporter, config_of, running
from tests.support.nvml import loads, until_nobody_uses_it
from tests.support.same_answer import Held, Told, told_by
from tests.support.simulated import SimulatedNode
from tests.support.waiting import until

# where an exporter may learn which GPU a container has; with PODS_API and API it also measures processes
PODS_API, API = "the kubelet's Pods API", "the Kubernetes API"
NOTHING = "nothing"
CHECKPOINT, ENVIRON, NVML = "the kubelet's checkpoint", "the environment", "NVML"
SOURCES = (PODS_API, API, NOTHING, CHECKPOINT, ENVIRON, NVML)
_OF_PODS = (PODS_API, API)

ONE, SEVERAL, INIT, SIDECAR = "one container", "several containers", "init container", "sidecar"
NOT_FIRST = "first container without a device"
TWO, DEVICES, IN_INIT = "several with devices", "several devices", "init container with a device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An allocator, and the shapes of pods on its node with eight GPUs.

    `wrote` is what says who has what, as /debug/mapping has it, where pods are read. `is_token`: the kubelet lists ids
    of which each is a token, so that evidence, or a node with one GPU, says it, too.
    """

    kind: Callable[[], SimulatedAllocator]
    wrote: str
    is_token: bool = True
    shapes: frozenset[str] = frozenset({SEVERAL, NOT_FIRST, SIDECAR})


_OF_CONTAINERS = frozenset({SEVERAL, NOT_FIRST, INIT, SIDECAR, TWO, DEVICES})
_OF_ONE_GPU = frozenset({SEVERAL, NOT_FIRST, INIT, TWO})
_OF_ONE_CONTAINER = frozenset({SEVERAL, NOT_FIRST, SIDECAR, DEVICES})
TABLE: Mapping[str, Row] = {
    "HAMi": Row(kind=Hami, wrote="the annotation hami.io/vgpu-devices-allocated", shapes=_OF_CONTAINERS | {IN_INIT}),
    "older HAMi": Row(kind=OlderHami, wrote="the annotation 4pd.io/vgpu-ids-new", shapes=_OF_CONTAINERS),
    "Volcano": Row(kind=Volcano, wrote="the annotation volcano.sh/vgpu-ids-new", shapes=_OF_CONTAINERS),
    "gpushare": Row(kind=Gpushare, wrote="the annotation ALIYUN_COM_GPU_MEM_IDX", shapes=_OF_ONE_GPU),
    "ACK": Row(kind=AckGpushare, wrote="the annotation scheduler.framework.gpushare.allocation", shapes=_OF_ONE_GPU),
    "Ascend": Row(kind=Ascend, wrote="the annotation huawei.com/AscendReal", shapes=_OF_ONE_CONTAINER),
    "KAI": Row(kind=Kai, wrote="the label runai-gpu-group", is_token=False, shapes=_OF_ONE_CONTAINER),
    "Run:ai": Row(kind=RunAi, wrote="the label runai-gpu-group", is_token=False, shapes=_OF_ONE_CONTAINER),
    "Koordinator": Row(
        kind=Koordinator,
        wrote="the annotation scheduling.koordinator.sh/device-allocated",
        is_token=False,
        shapes=_OF_ONE_CONTAINER,
    ),
}


def cases() -> list[tuple[str, str, int]]:
    """Each allocator with each source on eight GPUs; on one GPU, the only device, by pods or by nothing.

    NVML knows no NPU.
    """
    return [
        (name, source, count)
        for name in TABLE
        for source in SOURCES
        for count in ((1, 8) if source in (PODS_API, NOTHING) else (8,))
        if not (name == "Ascend" and source == NVML)
    ]


def is_told(name: str, source: str, gpus: int) -> bool:
    """Whether anything says who has what. A token is true on a node with one GPU."""
    return source in _OF_PODS or (TABLE[name].is_token and (source != NOTHING or gpus == 1))


@asynccontextmanager
async def node_of(
    name: str, source: str, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[SimulatedNode, Exporter]]:
    """The node of a row, and an exporter on it that has this source and nothing else."""
    node = allocated_node(TABLE[name].kind(), gpus=gpus)
    shapes = fill_with_all_shapes(node.world)
    assert shapes >= TABLE[name].shapes or gpus == 1, TABLE[name].shapes - shapes
    node.has_device_checkpoint = source == CHECKPOINT
    has_nvml = node.has_nvidia and source in (*_OF_PODS, NVML)
    if has_nvml:
        real("gcc")
        assert node.nvml.build()
        loads(monkeypatch, node.nvml)
        monkeypatch.setattr(nvml_source, "AGAIN_SECONDS", 0.1)
    await node.start()
    try:
        async with running(config_of(**settings(node, source, has_nvml=has_nvml))) as exporter:
            yield node, exporter
    finally:
        await until_nobody_uses_it()
        await node.stop()


def settings(node: SimulatedNode, source: str, *, has_nvml: bool) -> dict[str, str]:
    """An exporter's settings on this node."""
    of_allocator = {flag.replace(".", "_").replace("-", "_"): value for flag, value in node.settings.items()}
    usual = {
        "kubelet_socket": str(node.socket),
        "kubelet_max_age": "0s",
        "dcgm_url": node.url,
        "root": str(node.root),
        "accounting_interval": "100ms",
        **of_allocator,
    }
    if source == PODS_API:
        usual["kubelet_pods_socket"] = str(node.pods_socket)
    if source == API:
        usual |= {"kubernetes_url": node.api_url, "pods_source": "api"}
    if source == ENVIRON:
        usual["allocators_environ"] = "on"
    if has_nvml:
        usual |= {"nvml_mode": "on", "processes_expose": "on"}
    if isinstance(node.world.allocator, Koordinator):
        usual["allocators_pods"] = "on"
    return usual


def truth_of(node: SimulatedNode) -> frozenset[Held]:
    return frozenset(
        (owner.namespace, owner.pod, owner.container, part.uuid)
        for owner, parts in given_to(node.world).items()
        for part in parts
    )


async def once(exporter: Exporter, is_settled: Callable[[Told], object]) -> Told:
    """What an exporter tells once it is settled."""
    answers: Told | None = None

    async def settled() -> bool:
        nonlocal answers
        answers = await told_by(exporter)
        return bool(is_settled(answers))

    await until(settled, why=lambda: answers)
    assert answers is not None
    return answers


def wrongs_in(answers: Told) -> list[Mapping[str, Any]]:
    """What `doctor` finds wrong, but that there is no source of pods."""
    return [finding for finding in answers.problems if finding["about"] != "pods"]


def strangers_in(metrics: str) -> list[str]:
    """The series of containers that use a device which they do not hold."""
    return re.findall(r'^pod_gpu_\w+\{.*holds="false".*', metrics, re.MULTILINE)


def pods_in(answers: Told, node: SimulatedNode) -> set[str]:
    """The pods of the node that the table of `top` names."""
    return {pod.name for pod in node.world.pods if f"{pod.namespace}/{pod.name}" in answers.table}


# issue 24, "Must show" 1
@pytest.mark.parametrize(("name", "source", "gpus"), [case for case in cases() if is_told(*case)])
async def test_who_is_told_has_the_right_owners_in_every_answer(
    name: str, source: str, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = TABLE[name]
    async with node_of(name, source, gpus, monkeypatch) as (node, exporter):
        truth = truth_of(node)
        measures = node.has_nvidia and source in (*_OF_PODS, NVML)
        answers = await once(
            exporter,
            lambda answers: (
                all(held == truth for path, held in answers.held.items())
                and (not measures or answers.used_by == truth)
                and wrongs_in(answers) == []
            ),
        )
        # nobody has a part of the last of several GPUs, though its tokens are handed out
        held = {uuid for *_, uuid in truth}
        assert {uuid for uuid, state in answers.states.items() if state == "free"} == set(answers.states) - held
        assert gpus == 1 or len(held) < gpus
        assert answers.states.keys() == {gpu.uuid for gpu in node.world.gpus}
        assert "unknown" not in answers.states.values()
        assert answers.unmatched == []
        # a sentence that every answer repeats
        assert pods_in(answers, node) == {pod for _, pod, *_ in truth}
        assert [stranger for stranger in answers.strangers if stranger[-1] != "unresolved"] == []
        assert strangers_in(answers.metrics) == []
        _, _, attributed = answers.summary.partition(" of ")
        assert answers.summary.split()[0] == attributed.split()[0], answers.summary
        if source in _OF_PODS or not row.is_token:
            by = {entry["said_by"] for entry in answers.assigned if entry["reason"] == ""}
            assert by == {row.wrote}
        elif gpus > 1:
            assert {entry["said_by"] for entry in answers.assigned} == {source}
        if (source, gpus) == (PODS_API, 8):
            await doctor_in_the_exporters_place_says_the_same(node)


# issue 24, "Must show" 1
@pytest.mark.parametrize(("name", "source", "gpus"), [case for case in cases() if not is_told(*case)])
async def test_who_is_told_nothing_names_no_owner_and_says_what_is_needed(
    name: str, source: str, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_of(name, source, gpus, monkeypatch) as (node, exporter):
        measures = source == NVML
        answers = await once(exporter, lambda answers: not measures or len(answers.strangers) == len(truth_of(node)))
        # npu-exporter's own page names containers, and what came in stays
        by_page = answers.held["/container/metrics"]
        assert by_page == (truth_of(node) if name == "Ascend" else frozenset())
        assert {path: held for path, held in answers.held.items() if held not in (frozenset(), by_page)} == {}
        assert answers.held["/debug/mapping, assigned"] == frozenset()
        held_by_page = {uuid for *_, uuid in by_page}
        assert {state for uuid, state in answers.states.items() if uuid not in held_by_page} == {"unknown"}
        assert len(answers.reasons) == 1
        assert pods_in(answers, node) == {pod for _, pod, *_ in by_page}
        assert answers.used_by == frozenset()
        # nobody is accused of the use of a GPU that may well be its own
        assert {stranger[-1] for stranger in answers.strangers} == ({"unresolved"} if measures else set())
        assert strangers_in(answers.metrics) == []
        of_pods = [finding["remedy"] for finding in answers.problems if finding["about"] == "pods"]
        assert name == "Ascend" or "list and watch pods" in " ".join(of_pods)
        if name == "Koordinator":
            assert answers.assigned == ()
            return
        assert {entry["reason"] for entry in answers.assigned} == {"allocator"}
        explained = {entry["explanation"] for entry in answers.assigned}
        assert all("--pods.source" in explanation for explanation in explained)
        assert answers.summary.startswith("0 of ")
        assert [finding for finding in answers.problems if finding["level"] == "problem"]


async def doctor_in_the_exporters_place_says_the_same(node: SimulatedNode) -> None:
    report = (await checkup.examine(config_of(**settings(node, PODS_API, has_nvml=node.has_nvidia)))).report
    assert report.works(strict=True), report.render()
