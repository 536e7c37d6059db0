"""The files of NVIDIA's software on a simulated node, below a root of their own: /proc/driver, and CDI specs.

The container toolkit writes a spec for all devices. The DRA driver writes a spec for each claim, before the kubelet
names the claim's devices, and removes it when no pod has the claim. It has a checkpoint of all claims in the kubelet's
folder.

Tests: tests/simulator/test_dynamic_mig.py.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from exporter.model.devices import Claim
from exporter.simulator.parts import DRA_DRIVER, Instance, Pod, SimulatedGpu, bus_id

CDI_SPEC = "var/run/cdi/nvidia.yaml"  # written by the toolkit's nvidia-cdi-refresh
_CLAIMS = "var/run/cdi/k8s.gpu.nvidia.com-claim_{uid}.yaml"
_CLAIM_KIND = f"k8s.{DRA_DRIVER}/claim"
UID_LENGTH = 36
CHECKPOINT = f"plugins/{DRA_DRIVER}/checkpoint.json"  # below the kubelet's folder
_GPUS = "proc/driver/nvidia/gpus"
_VERSION = "proc/driver/nvidia/version"
_MINORS = "proc/driver/nvidia-caps/mig-minors"
# The driver numbers the capabilities of all possible instances, cut or not.
_MOST_GPUS = 32
_GPU_INSTANCES = 15
_COMPUTE_INSTANCES = 8
_FIRST_CAP = 3  # after the driver's own two, config and monitor
_INFORMATION = """Model: \t\t {gpu.card.model}
IRQ:   \t\t {irq}
GPU UUID: \t {gpu.uuid}
Video BIOS: \t 96.00.74.00.01
Bus Type: \t PCIe
DMA Size: \t 52 bits
DMA Mask: \t 0xfffffffffffff
Bus Location: \t {location}
Device Minor: \t {gpu.index}
GPU Firmware: \t 580.105.08
GPU Excluded:\t No
"""
_DRIVER = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build  (dvs-builder@simulated)
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)
"""


def write(root: Path, gpus: Sequence[SimulatedGpu]) -> None:
    """Write all files anew. Each is renamed into place, as the toolkit does, so that nobody sees half a file."""
    for gpu in gpus:
        location = bus_id(gpu.index)[4:].lower()
        text = _INFORMATION.format(gpu=gpu, irq=80 + gpu.index, location=location)
        _put(root / _GPUS / location / "information", text)
    _put(root / _VERSION, _DRIVER)
    _put(root / _MINORS, mig_minors())
    write_spec(root, gpus)


def write_spec(root: Path, gpus: Sequence[SimulatedGpu]) -> None:
    """Write the CDI spec anew, as `nvidia-ctk cdi generate` does."""
    _put(root / CDI_SPEC, spec(gpus))


def write_claims(root: Path, pods: Iterable[Pod], gpus: Iterable[SimulatedGpu]) -> None:
    """Write the specs of these pods' claims, and remove the specs of claims that are gone."""
    paths: dict[Path, list[str]] = {}
    for device in sorted(_claimed_devices(pods)):
        path = root / _CLAIMS.format(uid=device[:UID_LENGTH])
        paths.setdefault(path, []).append(device)
    for path in (root / _CLAIMS.format(uid="x")).parent.glob(Path(_CLAIMS.format(uid="*")).name):
        if path not in paths:
            path.unlink(missing_ok=True)
    nodes_of_instances: dict[str, list[str]] = {}
    for gpu in gpus:
        for mig in gpu.instances:
            nodes_of_instances[mig.cdi_name.partition("=")[2]] = [f"/dev/nvidia{gpu.index}", *_caps(gpu, mig)]
    for path, devices in paths.items():
        if path.exists():
            continue
        nodes = []
        for device in devices:
            number = device.rpartition("-")[2]
            nodes.append((device, nodes_of_instances.get(device) or [f"/dev/nvidia{number}"]))
        _put(path, _spec(_CLAIM_KIND, nodes))


def _claimed_devices(pods: Iterable[Pod]) -> set[str]:
    """The CDI names, without their kind, of all devices that these pods have by way of claims."""
    return {device for pod in pods for claim in pod.all_claims for device in _cdi_devices(claim)}


def _cdi_devices(claim: Claim) -> Iterator[str]:
    """The CDI names of a claim's device by NVIDIA's driver, without their kind."""
    for name in claim.cdi_names:
        kind, _, device = name.partition("=")
        if kind == _CLAIM_KIND:
            yield device


def claim_status(pods: Iterable[Pod], name: tuple[str, str]) -> dict[str, Any]:
    """The status of these pods' ResourceClaim of this namespace and name; empty if no pod has it."""
    results: dict[Claim, dict[str, Any]] = {}
    for container in (container for pod in pods for container in pod.containers):
        for claim in container.all_claims:
            if (claim.namespace, claim.name) != name:
                continue
            result = {"request": "gpu", "driver": claim.driver, "pool": claim.pool, "device": claim.device}
            results[claim] = {**result, "adminAccess": True} if claim in container.looks else result
    return {"allocation": {"devices": {"results": [*results.values()]}}} if results else {}


def write_checkpoint(kubelet: Path, pods: Sequence[Pod]) -> None:
    """Write the checkpoint of NVIDIA's DRA driver about these pods' claims, in both of its versions."""
    claims: dict[str, Any] = {}
    for claim in (claim for pod in pods for claim in pod.all_claims):
        for device in _cdi_devices(claim):
            status = claim_status(pods, (claim.namespace, claim.name))
            claims[device[:UID_LENGTH]] = {"status": status, "preparedDevices": []}
    v2 = {uid: {"checkpointState": "PrepareCompleted", **claim} for uid, claim in claims.items()}
    content = {
        "checksum": 1,
        "v1": {"preparedClaims": claims},
        "v2": {"checksum": 2, "preparedClaims": v2, "nodeBootID": "b7b4f0d1-8923-4e46-9aa6-e6da069ab135"},
    }
    text = json.dumps(content)
    path = kubelet / CHECKPOINT
    if not path.exists() or path.read_text() != text:
        _put(path, text)


@cache  # thousands of lines, the same for each node
def mig_minors() -> str:
    """The driver's list of MIG capabilities."""
    lines = ["config 1", "monitor 2"]
    for minor in range(_MOST_GPUS):
        for instance in range(_GPU_INSTANCES):
            lines.append(f"gpu{minor}/gi{instance}/access {_cap(minor, instance)}")
            lines += (
                f"gpu{minor}/gi{instance}/ci{compute}/access {_cap(minor, instance) + 1 + compute}"
                for compute in range(_COMPUTE_INSTANCES)
            )
    return "\n".join(lines) + "\n"


def _cap(minor: int, instance: int) -> int:
    """The number of a GPU instance's capability. The numbers of its compute instances follow."""
    return _FIRST_CAP + (minor * _GPU_INSTANCES + instance) * (1 + _COMPUTE_INSTANCES)


def spec(gpus: Sequence[SimulatedGpu]) -> str:
    """A CDI spec in YAML: every device by its index and by its UUID, and all devices together.

    A MIG GPU has no name of its own in it. Each instance has one compute instance, 0. The toolkit writes the spec at
    boot, so it lacks instances that are cut for claims later.
    """
    devices: list[tuple[str, list[str]]] = []
    for gpu in gpus:
        own = f"/dev/nvidia{gpu.index}"
        instances = () if gpu.dynamic else gpu.instances
        if not instances:
            devices += ((str(gpu.index), [own]), (gpu.uuid, [own]))
        for number, instance in enumerate(instances):
            nodes = [own, *_caps(gpu, instance)]
            devices += ((f"{gpu.index}:{number}", nodes), (instance.device_id, nodes))
    everything = list(dict.fromkeys(node for _, nodes in devices for node in nodes))
    devices.append(("all", everything))
    return _spec("nvidia.com/gpu", devices)


def _spec(kind: str, devices: Iterable[tuple[str, Iterable[str]]]) -> str:
    """A CDI spec in YAML. `devices` are names with the paths of their device nodes."""
    return "\n".join(
        (
            "---",
            "cdiVersion: 0.5.0",
            f"kind: {kind}",
            "devices:",
            *(line for name, nodes in devices for line in _device(name, nodes)),
            "containerEdits:",
            "    env:",
            "        - NVIDIA_VISIBLE_DEVICES=void",
            *_nodes(["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"], indent=4),
            "",
        )
    )


def _caps(gpu: SimulatedGpu, instance: Instance) -> Iterator[str]:
    cap = _cap(gpu.index, instance.instance_id)
    yield f"/dev/nvidia-caps/nvidia-cap{cap}"
    yield f"/dev/nvidia-caps/nvidia-cap{cap + 1}"


def _device(name: str, nodes: Iterable[str]) -> Iterator[str]:
    yield f'    - name: "{name}"'
    yield "      containerEdits:"
    yield from _nodes(nodes, indent=8)


def _nodes(nodes: Iterable[str], *, indent: int) -> Iterator[str]:
    yield f"{'':{indent}}deviceNodes:"
    for node in nodes:
        yield f"{'':{indent}}    - path: {node}"
        yield f"{'':{indent}}      hostPath: {node}"


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(text)
    beside.rename(path)
