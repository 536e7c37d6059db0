"""What NVIDIA's driver and container toolkit leave on a node: /proc/driver and a CDI spec, below a root of its own."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from exporter.simulator.parts import Gpu, Instance

CDI_SPEC = "var/run/cdi/nvidia.yaml"  # where the toolkit's nvidia-cdi-refresh writes
_GPUS = "proc/driver/nvidia/gpus"
_VERSION = "proc/driver/nvidia/version"
_MINORS = "proc/driver/nvidia-caps/mig-minors"
# The driver numbers the capabilities of all instances that there could be, cut or not.
_MOST_GPUS, _GPU_INSTANCES, _COMPUTE_INSTANCES = 32, 15, 8
_FIRST_CAP = 3  # after those of the whole driver, config and monitor
_INFORMATION = """Model: \t\t {model}
IRQ:   \t\t {irq}
GPU UUID: \t {uuid}
Video BIOS: \t 96.00.74.00.01
Bus Type: \t PCIe
DMA Size: \t 52 bits
DMA Mask: \t 0xfffffffffffff
Bus Location: \t {location}
Device Minor: \t {minor}
GPU Firmware: \t 580.105.08
GPU Excluded:\t No
"""
_DRIVER = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build  (dvs-builder@simulated)
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)
"""


def write(root: Path, gpus: Sequence[Gpu]) -> None:
    """Write all of it anew: each file is renamed into place, as the toolkit does, and nobody sees half of it."""
    for gpu in gpus:
        location = f"0000:{0x19 + gpu.index * 0x12:02x}:00.0"
        _put(
            root / _GPUS / location / "information",
            _INFORMATION.format(
                model=gpu.card.model, irq=80 + gpu.index, uuid=gpu.uuid, location=location, minor=gpu.index
            ),
        )
    _put(root / _VERSION, _DRIVER)
    _put(root / _MINORS, mig_minors())
    write_spec(root, gpus)


def write_spec(root: Path, gpus: Sequence[Gpu]) -> None:
    """Write the CDI spec anew, as `nvidia-ctk cdi generate` does."""
    _put(root / CDI_SPEC, spec(gpus))


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
    """The number of a GPU instance's capability; those of its compute instances follow."""
    return _FIRST_CAP + (minor * _GPU_INSTANCES + instance) * (1 + _COMPUTE_INSTANCES)


def spec(gpus: Sequence[Gpu]) -> str:
    """A CDI spec in YAML: every device by its index and by its UUID, and all devices as one.

    A GPU that is cut has no name of its own in it. Each instance has one compute instance, 0.
    """
    devices: list[tuple[str, list[str]]] = []
    for gpu in gpus:
        own = f"/dev/nvidia{gpu.index}"
        if not gpu.instances:
            devices += ((str(gpu.index), [own]), (gpu.uuid, [own]))
        for number, instance in enumerate(gpu.instances):
            nodes = [own, *_caps(gpu, instance)]
            devices += ((f"{gpu.index}:{number}", nodes), (instance.device_id, nodes))
    everything = list(dict.fromkeys(node for _, nodes in devices for node in nodes))
    devices.append(("all", everything))
    return "\n".join(
        (
            "---",
            "cdiVersion: 0.5.0",
            "kind: nvidia.com/gpu",
            "devices:",
            *(line for name, nodes in devices for line in _device(name, nodes)),
            "containerEdits:",
            "    env:",
            "        - NVIDIA_VISIBLE_DEVICES=void",
            *_nodes(["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"], indent=4),
            "",
        )
    )


def _caps(gpu: Gpu, instance: Instance) -> Iterator[str]:
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
