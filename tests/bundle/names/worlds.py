"""Random worlds with names of their own, and recordings of them, as `doctor --bundle` makes them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random

from exporter.bundle.bundle_writing import files_of
from exporter.bundle.names.common_words import listed, vocabulary
from exporter.bundle.recording import Absence, PeerAnswer, RecordedCall, RecordedMoment, Recording
from exporter.errors import Trouble
from exporter.exposition.families import pieces
from exporter.exposition.join import Joiner
from exporter.model.devices import Owners
from exporter.model.slices import at_once
from exporter.model.snapshot import KUBELET, Health, LookContext, Snapshot
from exporter.outputs import containers, device_rows, gpu_metrics, mapping, nodes
from exporter.outputs.families.mapping import MAP_INFO
from exporter.outputs.output import Look
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.owners import Knowledge
from exporter.ownership.sample_rows import Attribution
from exporter.simulator import driver_files
from exporter.simulator.dcgm import SimulatedDcgm
from exporter.simulator.kubelet import allocatable_response, list_response
from exporter.simulator.kubernetes import SimulatedApi, pod_object
from exporter.simulator.parts import Container, Pod
from exporter.simulator.pods_api import container_id
from exporter.sources.kubelet.pod_resources import parse
from tests.support.owners import build_owners
from tests.support.simulated import World

RESOURCES = ("nvidia.com/*",)
KUBELET_LIST = "v1.PodResourcesLister/List"
# no letters of hexadecimal numbers: an id must not have a word by chance
_SYLLABLES = ("jup", "lor", "mik", "ost", "wun", "zil", "gro", "puz", "hym", "quo", "ryk", "svo", "tox", "ly", "nu")
# names that are words of the program's own vocabulary, or short
COMMON = sorted(
    listed(
        "search main server agent metrics gpu memory node pod device health page doctor none true namespace container"
        " claim trainer research vision chat has the on idle ok ai ml x"
    )
)
SHARE_OF_COMMON = 0.3
POLICY = LabelPolicy()


class Namer:
    """Draws names and remembers them."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.words: set[str] = set()
        self.common: set[str] = set()

    def word(self) -> str:
        while True:
            word = "".join(self.chance.choices(_SYLLABLES, k=self.chance.randint(2, 3)))
            if len(word) >= 4 and word not in vocabulary():
                self.words.add(word)
                return word

    def name(self) -> str:
        """A name of one to three words, some of them short or numbers, and some of the vocabulary alone."""
        if self.chance.random() < SHARE_OF_COMMON:
            name = self.chance.choice(COMMON)
            self.common.add(name)
            return name
        words = [self.word()]
        short = ("a", "b1", "gpu", "7", "monitoring")
        more = self.chance.randint(0, 2)
        words += (self.chance.choice((self.word(), self.chance.choice(short))) for _ in range(more))
        self.chance.shuffle(words)
        return "-".join(words).strip("-0123456789") or words[0]

    def domain(self) -> str:
        return f"{self.word()}.{self.chance.choice(('com', 'io', 'example'))}"

    def hex(self, length: int) -> str:
        return "".join(self.chance.choices("0123456789abcdef", k=length))

    def uuid(self) -> str:
        return "-".join(map(self.hex, (8, 4, 4, 4, 12)))

    def address(self) -> str:
        return ".".join(str(self.chance.randint(11, 126)) for _ in range(4))


@dataclass(frozen=True)
class Made:
    """A recording, the words of the world's names in it, and its ids."""

    recording: Recording
    words: frozenset[str]
    common: frozenset[str]
    ids: frozenset[str]
    pods: tuple[Pod, ...]


def renamed_pods(world: World, names: Namer, node: str) -> tuple[Pod, ...]:
    """The world's pods with random names, of all kinds of controllers."""
    namespaces = [names.name() for _ in range(2)]
    pods = []
    for number, pod in enumerate(world.pods):
        kind = names.chance.choice(("ReplicaSet", "StatefulSet", "Job", "DaemonSet", "", "Pod"))
        namespace = names.chance.choice(namespaces)
        workload = names.chance.choice((names.name(), names.name(), namespace))
        name = {
            "ReplicaSet": f"{workload}-7c9f5d678-x2k4b",
            "StatefulSet": f"{workload}-{number}",
            "Job": f"{workload}-28374650-zz9qk",
            "DaemonSet": f"{workload}-x2k4b",
            "": f"{workload}-{node}",
            "Pod": workload,
        }[kind]
        owner = {"ReplicaSet": f"{workload}-7c9f5d678", "Job": f"{workload}-28374650"}.get(kind, workload)
        of_pod = tuple(_renamed(container, names, namespace, node) for container in pod.containers)
        pods.append(
            replace(
                pod,
                namespace=namespace,
                name=name,
                uid=names.uuid(),
                ip=names.address(),
                containers=of_pod,
                owner=(kind, owner) if kind not in ("", "Pod") else ("", ""),
                labels=((names.word(), names.name()), (f"{names.domain()}/{names.word()}", names.word())),
            )
        )
    return tuple(pods)


def _renamed(container: Container, names: Namer, namespace: str, node: str) -> Container:
    claims = tuple(
        replace(
            claim,
            namespace=namespace,
            name=names.name(),
            pool=node,
            cdi_names=tuple(f"k8s.gpu.nvidia.com/claim={names.uuid()}-{claim.device}" for _ in claim.cdi_names),
        )
        for claim in container.claims
    )
    name = names.chance.choice((names.name(), names.name(), namespace))
    return replace(container, name=name, claims=claims)


def world_of(seed: int) -> Made:
    """A recording of a random world: of one moment, or of two."""
    chance = Random(seed)
    names = Namer(chance)
    node = names.name()
    host = f"{names.word()}.{names.domain()}"
    world = World(gpus=chance.randint(2, 4), shared=chance.randint(0, 1), mig=chance.randint(0, 1), claims=1, seed=seed)
    world.pods = renamed_pods(world, names, node)
    answers = answers_of(world, node, host, names)
    outputs = outputs_of(answers[0].body, answers[2].body, node)
    moments = tuple(
        RecordedMoment(
            at_seconds=1_700_000_000.0 + number,
            answers=answers,
            files=node_files_of(world, names),
            calls=calls_of(world, names),
            kernel_log=kernel_log_of(world, names),
            outputs=outputs,
        )
        for number in range(chance.randint(1, 2))
    )
    recording = Recording(
        made_by="1.0",
        settings=settings_of(node, host, names),
        moments=moments,
        report=report_of(world, node, names),
        of_exporter=outputs,
        log=tuple(log_of(world, host, names)),
        versions={"kernel": "6.1.0-18-amd64", "uname": f"Linux {host} 6.1.0", "python": "3.13.1 (main, Dec  3 2024)"},
        absences=(
            Absence(
                what=f"answers of {host}",
                why=Trouble("refused", f"http://{names.word()}:pass@{host}:9400/metrics: refused", f"start {node}"),
            ),
        ),
    )
    ids = {gpu.uuid.removeprefix("GPU-") for gpu in world.gpus} | {pod.uid for pod in world.pods}
    ids |= {pod.ip for pod in world.pods}
    return Made(recording, frozenset(names.words), frozenset(names.common), frozenset(ids), world.pods)


def answers_of(world: World, node: str, host: str, names: Namer) -> tuple[PeerAnswer, ...]:
    """What the peers answer: the kubelet, dcgm-exporter and the Kubernetes API."""
    page = SimulatedDcgm(world, host_name=host).page().encode()
    slices = SimulatedApi(world, node_name=node).slices_now()
    pods = [pod_object(pod, node) for pod in world.pods]
    offers = [offer for gpu in world.gpus for offer in gpu.offers]
    pod = names.chance.choice(world.pods)
    replica_sets = f"/apis/apps/v1/namespaces/{pod.namespace}/replicasets/{pod.owner[1] or pod.name}"
    above = {"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": names.name()}]}}
    trouble = Trouble("unreachable", f"https://{host}:6443/api/v1/pods: no route to {host}", "is it up?")
    return (
        PeerAnswer(peer="kubelet", name="kubelet", question=KUBELET_LIST, body=list_response(world.listed)),
        PeerAnswer(
            peer="kubelet",
            name="kubelet",
            question="v1.PodResourcesLister/GetAllocatableResources",
            body=allocatable_response(offers),
        ),
        PeerAnswer(peer="page", name=f"dcgm:{host}:9400", question=f"http://{host}:9400/metrics", body=page),
        PeerAnswer(peer="kubernetes", name="pods", question="/api/v1/pods", body=json.dumps({"items": pods}).encode()),
        PeerAnswer(
            peer="kubernetes",
            name="resourceslices",
            question="/apis/resource.k8s.io/v1/resourceslices",
            body=json.dumps({"items": slices}).encode(),
        ),
        PeerAnswer(peer="kubernetes", name="workloads", question=replica_sets, body=json.dumps(above).encode()),
        PeerAnswer(peer="kubernetes", name="pods", question="/api/v1/nodes", trouble=trouble),
    )


def snapshot_of(listed: bytes, page: bytes, node: str) -> Snapshot:
    """A look at these answers by the exporter's own readers and its core."""
    assignments = parse(listed, resources=RESOURCES, claims=True).assignments
    joiner = Joiner(read_subject=POLICY.read_subject, is_owner_label=POLICY.is_owner_label, wanted=lambda _: True)
    subjects = joiner.join([page], Attribution(Owners(), POLICY)).subjects
    owners = build_owners(assignments, subjects, Knowledge())
    return Snapshot(
        node=node,
        owners=owners,
        joined=joiner.join([page], Attribution(owners, POLICY)),
        health={KUBELET: Health(up=True), "dcgm": Health(up=True)},
        assignments_age_seconds=1.0,
        page_sources=("dcgm",),
        context=LookContext(resources=RESOURCES),
    )


def outputs_of(listed: bytes, page: bytes, node: str) -> Mapping[str, bytes]:
    """What the exporter answers."""
    snapshot = snapshot_of(listed, page, node)
    rows = at_once(device_rows.rows(snapshot))
    joined = gpu_metrics.render(snapshot)
    assert joined is not None
    infos = at_once(pieces(at_once(nodes.node_families([(node, MAP_INFO.fill(Look(snapshot=snapshot)))]))))
    return {
        "/gpu/metrics": b"".join(joined[0]),
        "/container/metrics": b"".join(at_once(containers.render(rows, {}))),
        "/metrics/nodes": b"".join(infos),
        "/debug/mapping": json.dumps(mapping.debug(snapshot), indent=2).encode(),
    }


def node_files_of(world: World, names: Namer) -> Mapping[str, bytes]:
    files = {
        "root/var/run/cdi/nvidia.yaml": driver_files.spec(world.gpus).encode(),
        "root/proc/driver/nvidia-caps/mig-minors": b"config 1\nmonitor 2\n",
        "inventory": json.dumps(world.inventory()).encode(),
    }
    for number, pod in enumerate(world.pods):
        container = container_id(pod, pod.containers[0].name).removeprefix("containerd://")
        uid = pod.uid.replace("-", "_")
        files[f"root/proc/{number + 100}/cgroup"] = (
            f"0::/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-{container}.scope\n".encode()
        )
        files[f"root/proc/{number + 100}/stat"] = f"{number + 100} ({names.word()}) S 1 1 0 0\n".encode()
        for claim in pod.all_claims:
            uid = claim.cdi_names[0].partition("=")[2][:36]
            files[f"root/var/run/cdi/k8s.gpu.nvidia.com-claim_{uid}.yaml"] = claim.cdi_names[0].encode()
    return files


def calls_of(world: World, names: Namer) -> tuple[RecordedCall, ...]:
    return (
        RecordedCall(
            function="nvmlDeviceGetUUID", arguments=("nvmlDeviceGetHandleByIndex(0)",), result=world.gpus[0].uuid
        ),
        RecordedCall(function="nvmlDeviceGetSerial", result=str(names.chance.randint(10**12, 10**13 - 1))),
        RecordedCall(function="nvmlDeviceGetName", result="NVIDIA H100 80GB HBM3"),
        RecordedCall(
            function="nvmlSystemGetProcessName", arguments=(123,), result=f"/home/{names.word()}/{names.word()}.py"
        ),
    )


def kernel_log_of(world: World, names: Namer) -> tuple[str, ...]:
    return (
        f"3,1,100,-;NVRM: GPU at PCI:0000:07:00: {world.gpus[0].uuid}",
        f"3,2,200,-;NVRM: Xid (PCI:0000:07:00): 31, pid=123, name={names.word()}, Ch 00000010, intr 10000000",
    )


def settings_of(node: str, host: str, names: Namer) -> Mapping[str, tuple[str, ...]]:
    return {
        "node-name": (node,),
        "dcgm.url": (f"http://{host}:9400/metrics",),
        "resources": ("nvidia.com/*", f"{names.domain()}/*"),
        "labels.pod-labels": (f"{names.word()}.*|team",),
        "accounting.interval": ("10s",),
        "accounting.state": (f"/home/{names.word()}/{names.word()}/state",),
        "claims.admin-namespaces": (names.name(),),
    }


def report_of(world: World, node: str, names: Namer) -> str:
    lines = [f"The node {node} works. Write to {names.word()}@{names.domain()}."]
    for pod in world.pods:
        container = pod.containers[0].name
        lines += (f"{pod.namespace}/{pod.name}/{container} holds {pod.uid[:8]}", f"{container} is a container")
    return "\n".join(lines)


def log_of(world: World, host: str, names: Namer) -> Iterator[str]:
    for pod in world.pods:
        yield f'level=warning msg="a workload is not known" pod={pod.name} error="{host} refused 10.1.2.3:443"'
        yield json.dumps({"level": "info", "message": f"a pod {pod.name} is gone", "namespace": pod.namespace})
    yield f"level=info msg=started host={names.word()} path=/data/{names.word()}"


def bytes_of(recording: Recording) -> Iterator[bytes]:
    """All that a bundle of it holds: the names of its files, and what is in them."""
    files = files_of(recording)
    assert files is not None
    for name, content in files.items():
        yield name.encode()
        yield content
