"""Recordings of a simulated node, as `doctor --bundle` collects them."""

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from exporter.bundle.collecting.looking import collect
from exporter.bundle.names.common_words import vocabulary
from exporter.bundle.names.replacing import replaced
from exporter.bundle.recording import Recording
from exporter.ownership.allocators.gpu_groups import RESERVATION_NAMESPACES
from exporter.simulator.allocators import ALLOCATORS, SimulatedAllocator
from exporter.simulator.parts import Container, Pod
from tests.bundle.names.worlds import COMMON, Namer, bytes_of
from tests.support.exporter import config_of
from tests.support.simulated import SimulatedNode, World


def renamed(pod: Pod, names: Namer) -> Pod:
    """A pod with random names. What an allocator wrote on it stays, and so does a pod that reserves a GPU."""
    if pod.namespace in RESERVATION_NAMESPACES:
        return pod
    namespace, workload = names.name(), names.name()

    def renamed_container(container: Container) -> Container:
        claims = tuple(replace(claim, namespace=namespace, name=names.name()) for claim in container.claims)
        return replace(container, name=names.name(), claims=claims)

    return replace(
        pod,
        namespace=namespace,
        name=f"{workload}-x2k4b",
        containers=tuple(map(renamed_container, pod.containers)),
        labels=(*pod.labels[2:], (names.word(), names.name())),
        owner=(pod.owner[0], workload),
        work=("render", "1"),
    )


async def collected(simulated: SimulatedNode) -> Recording:
    """A recording of one look, over real sockets."""
    await simulated.start()
    try:
        simulated.kernel_log.write(simulated.world.gpus[0], 79, "GPU has fallen off the bus.", 123)
        settings = {
            "kubelet_socket": str(simulated.socket),
            "kubelet_pods_socket": str(simulated.pods_socket),
            "pods_source": "kubelet",
            "dcgm_url": simulated.url,
            "root": str(simulated.root),
            "kernel_log_mode": "on",
            "labels_pod_labels": ".*",
            "labels_pod_uid": "on",
        }
        seen = await collect(config_of(**settings))
    finally:
        await simulated.stop()
    return Recording(
        made_by="1",
        settings={"dcgm.url": (simulated.url,)},
        moments=seen.moments,
        report=seen.report.render(),
        versions=seen.versions,
        absences=seen.absences,
    )


def words_of(node: SimulatedNode) -> Iterator[str]:
    for pod in node.world.pods:
        texts = [pod.namespace, pod.name, pod.owner[1], pod.uid, *(text for label in pod.labels for text in label)]
        texts += (container.name for container in pod.containers)
        texts += (claim.name for container in pod.containers for claim in container.claims)
        for text in texts:
            # hexadecimal letters may stand in any id
            yield from (word for word in re.findall(r"[a-z]{4,}", text.lower()) if re.search("[g-z]", word))
    yield from (gpu.uuid.removeprefix("GPU-") for gpu in node.world.gpus)


@pytest.mark.parametrize("allocator", ["", "kai"])
async def test_a_node_that_was_collected_has_no_name_left(allocator: str) -> None:
    made: SimulatedAllocator | None = ALLOCATORS[allocator]() if allocator else None
    claims = 0 if allocator else 2
    world = World(
        gpus=5, shared=0 if allocator else 1, mig=1, claims=claims, dynamic=claims // 2, seed=3, allocator=made
    )
    world.pods = tuple(renamed(pod, Namer(random.Random(number))) for number, pod in enumerate(world.pods))
    simulated = SimulatedNode(world, host_name="zoltans-quixotry")
    words = {*words_of(simulated), "zoltans", "quixotry"} - vocabulary() - set(COMMON)
    recording = await collected(simulated)
    new, names = replaced(recording)
    old_text = b"\n".join(bytes_of(recording)).lower()
    new_text = b"\n".join(bytes_of(new)).lower()
    assert [word for word in words if word.encode() in new_text] == []
    assert len([word for word in words if word.encode() in old_text]) > len(words) / 2
    for before, after in zip(recording.moments, new.moments, strict=True):
        assert [len(body.splitlines()) for body in before.outputs.values()] == [
            len(body.splitlines()) for body in after.outputs.values()
        ]
        old_rows = json.loads(before.outputs["/container/metrics"])
        new_rows = json.loads(after.outputs["/container/metrics"])
        for old_row, new_row in zip(old_rows, new_rows, strict=True):
            assert new_row.keys() == old_row.keys()
            for field in ("pod", "namespace", "container", "node_name"):
                assert new_row[field] == names.get(old_row[field], old_row[field])
            assert replace_ids(old_row) == replace_ids(new_row)


def replace_ids(row: dict[str, object]) -> dict[str, object]:
    """A row without what may change: names and ids."""
    changed = {"pod", "namespace", "container", "node_name", "device_uuid", "pod_uid", "pod_labels", "other_users"}
    return {name: value for name, value in row.items() if name not in changed}
