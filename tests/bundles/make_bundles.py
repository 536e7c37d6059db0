"""Makes the bundles of this folder that no user sent: of captured answers in tests/data, and of simulated nodes.

`python -m tests.bundles.make_bundles [NAME …]` from the repository's folder writes them anew. The expectations beside
them are right by what the node really was, and were checked by hand: they stay as they are.
"""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.bundle import archive
from exporter.bundle.recording import PeerAnswer, RecordedMoment, Recording
from exporter.config.node_settings import Config
from exporter.errors import Trouble
from exporter.simulator.allocators import ALLOCATORS, Unkindness
from exporter.simulator.driver_files import CDI_SPEC
from tests.support.bundles import config_of_node, recorded_moments
from tests.support.simulated import SimulatedNode, World

HERE = Path(__file__).parent
DATA = HERE.parent / "data"
URL = "http://127.0.0.1:9401/metrics"
PAGE = "dcgm:127.0.0.1:9401"
FIRST_SECONDS = 1_790_000_000.0  # in September 2026
LIST = "v1.PodResourcesLister/List"
ALLOCATABLE = "v1.PodResourcesLister/GetAllocatableResources"
OLD_LIST = "v1alpha1.PodResourcesLister/List"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
PODS = "/api/v1/pods"


def page_of(generation: str, uuids: Sequence[str], cut: Mapping[str, Sequence[tuple[str, str]]] | None = None) -> bytes:
    """A captured page of a generation, with these GPUs in place of its own.

    `cut` has the instances of a GPU, each with its profile and its number.
    """
    lines = []
    for line in (DATA / f"pages/{generation}.prom").read_text().splitlines():
        if line.startswith("#"):
            lines.append(line)
        elif '{gpu="0"' in line:
            lines += (
                _with_instance(_of_gpu(line, index, uuid), *instance)
                for index, uuid in enumerate(uuids)
                for instance in (cut or {}).get(uuid, [("", "")])
            )
    return ("\n".join(lines) + "\n").encode()


def _of_gpu(line: str, index: int, uuid: str) -> str:
    line = re.sub(r'gpu="0"', f'gpu="{index}"', line, count=1)
    line = re.sub(r'device="nvidia0"', f'device="nvidia{index}"', line)
    return re.sub(r'UUID="[^"]*"', f'UUID="{uuid}"', line)


def _with_instance(line: str, profile: str, number: str) -> str:
    if not profile:
        return line
    return re.sub(r'(modelName="[^"]*")', rf'\1,GPU_I_PROFILE="{profile}",GPU_I_ID="{number}"', line)


def kubelet(question: str, body: bytes) -> PeerAnswer:
    """An answer of the kubelet."""
    return PeerAnswer(peer="kubelet", name="kubelet", question=question, body=body)


def page(body: bytes) -> PeerAnswer:
    """dcgm-exporter's page."""
    return PeerAnswer(peer="page", name=PAGE, question=URL, body=body)


def collection(name: str, path: str, items: Iterable[Any]) -> PeerAnswer:
    """A collection of the Kubernetes API."""
    body = json.dumps({"items": [*items]}).encode()
    return PeerAnswer(peer="kubernetes", name=name, question=path, body=body)


def recording(moments: Iterable[RecordedMoment], **settings: str) -> Recording:
    """A bundle with moments 5 s apart, of a node without NVML."""
    given = {"node_name": "node-1", "nvml_mode": "off", **settings}
    texts = {name.replace("_", "-").replace("-mode", ".mode"): (text,) for name, text in given.items()}
    timed = (replace(moment, at_seconds=FIRST_SECONDS + 5 * number) for number, moment in enumerate(moments))
    return Recording(made_by="0.1.0", settings=texts, moments=tuple(timed))


def moment(*answers: PeerAnswer, files: Mapping[str, bytes] | None = None) -> RecordedMoment:
    """A moment."""
    return RecordedMoment(at_seconds=0.0, answers=answers, files=files or {})


def data(path: str) -> bytes:
    """A captured answer."""
    return (DATA / path).read_bytes()


# --- of captured answers


async def kubelet_1_20() -> Recording:
    """A kubelet 1.20.2, which knows both versions of List: four GPUs of one pod; then one GPU is in MIG instances."""
    uuids = (
        "GPU-9567a9e7-341e-bb7e-fcf5-788d8caa50f9",
        "GPU-2b399198-c670-a848-173b-d3400051a200",
        "GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c",
        "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c",
    )
    migs = (
        "MIG-1e99852c-e624-57af-b97d-ec7d5e1f1a11",
        "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f",
        "MIG-8e5d7a10-3f0b-5a4e-8f6a-2b1d90c3e4f5",
    )
    instances = [{"uuid": uuid, "instance_id": 7 + number, "profile": "1g.5gb"} for number, uuid in enumerate(migs)]
    gpus = [{"uuid": uuid, "index": index} for index, uuid in enumerate(uuids)]
    inventory = {"gpus": [*gpus[:3], {**gpus[3], "mig": instances}]}
    cut = {uuids[3]: [("1g.5gb", str(7 + number)) for number in range(3)]}
    moments = []
    for step, cut_now in (("four-gpus-two-numa-nodes", None), ("init-and-crashing", cut)):
        answers = (
            kubelet(LIST, data(f"kubelet-1.20.2/{step}.v1.pb")),
            kubelet(OLD_LIST, data(f"kubelet-1.20.2/{step}.v1alpha1.pb")),
            page(page_of("3", uuids, cut_now)),
        )
        moments.append(moment(*answers, files={"inventory": json.dumps(inventory).encode()}))
    made = recording(moments)
    return replace(made, settings={**made.settings, "inventory.file": ("/etc/inventory.json",)})


async def kubelet_1_36_restarts() -> Recording:
    """A kubelet 1.36.2 restarts: it is down, lists nothing, a part, and all again. Nobody loses a GPU meanwhile."""
    uuids = (
        "GPU-02845b1c-7cc0-5ba7-a54f-d3fcbadb401e",
        "GPU-fc65b933-b9b9-5cbf-9b96-a8e990de6655",
        "GPU-5197c4dc-bb4c-53c1-8a4a-06778c1d6b08",
        "GPU-076cc9f9-24d6-5a22-9dc8-fa05ce1f2d54",
        "GPU-146611eb-844b-5232-9fa7-f487a6b2d553",
        "GPU-2d614816-15b6-5ccb-a176-2ce65d1c61a6",
        "GPU-8c701d17-6624-503e-ab7e-e06468d14741",
    )
    listed = (data("kubernetes-1.36/resourceslices-kubelet-restart.jsonl").splitlines())[0]
    slices = json.loads(listed)["list"]["items"]
    beside = (page(page_of("4.8", uuids)), collection("resourceslices", SLICES, slices))
    moments = [
        moment(
            kubelet(LIST, data(f"kubelet-1.36.2/{step}.pb")),
            kubelet(ALLOCATABLE, data("kubelet-1.36.2/allocatable.pb")),
            *beside,
        )
        for step in ("before", "starting-empty", "starting-partial", "started")
    ]
    nobody = Trouble("refused", "nobody listens on /var/lib/kubelet/pod-resources/kubelet.sock")
    down = [replace(kubelet(question, b""), trouble=nobody) for question in (LIST, ALLOCATABLE)]
    moments.insert(1, moment(*down, *beside))
    return recording(moments, dra="on", node_name="node1")


async def claims_of_nvidias_driver() -> Recording:
    """Claims of NVIDIA's DRA driver on 1.36.2. The device minors of its GPUs 2 and 3 are exchanged."""
    uuids = [f"GPU-01000100-0000-0000-0000-00000000000{number}" for number in range(8)]
    slices = json.loads(data("claims-1.36.2/resourceslices.json"))["items"]
    specs = {f"root/var/run/cdi/{path.name}": path.read_bytes() for path in (DATA / "claims-1.36.2").glob("*.yaml")}
    pods = [json.loads(data("claims-1.36.2/pair-0.json"))]
    moments = [
        moment(
            kubelet(LIST, data(f"claims-1.36.2/{step}.list.pb")),
            page(page_of("4.9", uuids)),
            collection("resourceslices", SLICES, slices),
            collection("pods", PODS, pods),
            files=specs,
        )
        for step in ("two-requests", "shares")
    ]
    return recording(moments, dra="on")


async def sick_devices() -> Recording:
    """A device plugin says that a held GPU is unhealthy, and then leaves it out of its list."""
    uuids = [f"GPU-1a2b3c4{number}-0000-4000-8000-00000000000{number}" for number in range(8)]
    moments = []
    for step in ("healthy", "unhealthy", "left-out"):
        answers = (
            kubelet(LIST, data(f"device-health-1.36.2/{step}.list.pb")),
            kubelet(ALLOCATABLE, data(f"device-health-1.36.2/{step}.allocatable.pb")),
            page(page_of("4.8", uuids)),
            collection("pods", PODS, [json.loads(data(f"device-health-1.36.2/{step}.pod.json"))]),
        )
        moments.append(moment(*answers))
    made = recording(moments)
    return replace(made, settings={**made.settings, "pods.source": ("api",), "labels.pod-uid": ("on",)})


# --- of simulated nodes


async def of_node(node: SimulatedNode, *steps: Callable[[], object], **settings: str) -> Recording:
    """A bundle of a simulated node, with a moment after each of these steps, as if at the usual places."""
    await node.start()
    try:
        node.nvml.load()
        config: Config = config_of_node(node, **settings)
        made = await recorded_moments(node, config, (list, *steps))
    finally:
        await node.stop()
    return _at_usual_places(made, node)


def _at_usual_places(made: Recording, node: SimulatedNode) -> Recording:
    """The bundle without places of this machine, and without what an exporter said: the tests make that anew."""
    left_out = {"dcgm.url", "kubelet.socket", "kubelet.pods-socket", "kubernetes.url", "nvml.mode"}
    settings = {name: texts for name, texts in made.settings.items() if name not in left_out}
    moments = []
    for number, recorded in enumerate(made.moments):
        answers = [
            replace(answer, name=PAGE, question=URL) if answer.peer == "page" else answer for answer in recorded.answers
        ]
        moments.append(
            replace(
                recorded,
                at_seconds=FIRST_SECONDS + 5 * number,
                answers=tuple(_without_places(answer, node) for answer in answers),
                outputs={},
            )
        )
    return Recording(made_by=made.made_by, settings={**settings, "nvml.mode": ("auto",)}, moments=tuple(moments))


def _without_places(answer: PeerAnswer, node: SimulatedNode) -> PeerAnswer:
    if answer.trouble is None:
        return answer
    message = answer.trouble.message.replace(str(node.socket.parent), "/var/lib/kubelet")
    return replace(answer, trouble=replace(answer.trouble, message=message))


async def claim_listed_twice() -> Recording:
    """Pods that start together on a claim: the kubelet names its device twice for each (kubernetes 1.36.2)."""
    node = SimulatedNode(World(gpus=4, claims=2, seed=11))
    prepared = node.kubelet.prepared

    def twice() -> None:
        prepared.times = dict.fromkeys(prepared.times, 2)
        prepared.look = lambda pods: None  # type: ignore[method-assign] # noqa: ARG005 - as it is called

    return await of_node(node, twice)


async def hami_before_and_after_its_annotation() -> Recording:
    """HAMi's ids name no GPU: its annotation does, which comes a moment after the kubelet lists the pod."""
    world = World(gpus=4, seed=5, allocator=ALLOCATORS["hami"](unkindness=Unkindness(late_seconds=1e6), seed=5))
    node = SimulatedNode(world)

    def annotate() -> None:
        world.pods = tuple(replace(pod, note=replace(pod.note, at_ns=0)) if pod.note else pod for pod in world.pods)

    return await of_node(node, annotate, allocators_pods="on")


async def gpu_off_the_bus() -> Recording:
    """A GPU falls off the bus while a pod holds it."""
    node = SimulatedNode(World(gpus=4, seed=3))

    def fail() -> None:
        node.failure.fail()
        node.failure.look(node.processes.pids)

    return await of_node(node, fail)


async def mig_without_cdi() -> Recording:
    """MIG instances on a node of which nothing says what their UUIDs mean: no CDI spec, no NVML, no inventory."""
    node = SimulatedNode(World(gpus=2, mig=2, seed=2))

    def lose_the_spec() -> None:
        (node.root / CDI_SPEC).unlink()

    made = await of_node(node, lose_the_spec, nvml_mode="off")
    moments = tuple(replace(recorded, calls=()) for recorded in made.moments[1:])
    return replace(made, moments=moments, settings={**made.settings, "nvml.mode": ("off",)})


async def page_of_another_node() -> Recording:
    """The page is that of another node: nobody owns its GPUs, and those of the kubelet have no samples."""
    node = SimulatedNode(World(gpus=2, seed=21))
    other = SimulatedNode(World(gpus=2, seed=22), host_name="gpu-node-2")
    await other.start()
    try:
        made = await of_node(node, dcgm_url=other.url, nvml_mode="off")
    finally:
        await other.stop()
    return replace(made, settings={**made.settings, "nvml.mode": ("off",)})


BUNDLES: Mapping[str, Callable[[], Coroutine[Any, Any, Recording]]] = {
    "claim-listed-twice": claim_listed_twice,
    "claims-of-nvidias-driver": claims_of_nvidias_driver,
    "gpu-off-the-bus": gpu_off_the_bus,
    "hami-before-and-after-its-annotation": hami_before_and_after_its_annotation,
    "kubelet-1.20": kubelet_1_20,
    "kubelet-1.36-restarts": kubelet_1_36_restarts,
    "mig-without-cdi": mig_without_cdi,
    "page-of-another-node": page_of_another_node,
    "sick-devices": sick_devices,
}


def main(names: Sequence[str]) -> None:
    """Write these bundles, or all."""
    for name in names or BUNDLES:
        made = asyncio.run(BUNDLES[name]())
        with (HERE / f"{name}.tar.gz").open("wb") as file:
            size = archive.write(made, file)
        sys.stdout.write(f"{name}: {size / 1024:.0f} KiB\n")


if __name__ == "__main__":
    main(sys.argv[1:])
