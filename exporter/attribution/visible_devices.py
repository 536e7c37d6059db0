"""What a process sees as its CUDA devices: CUDA_VISIBLE_DEVICES over the devices of its container.

The variable is a list of what the process may use, in its own order, which is that of cudaSetDevice (CUDA Programming
Guide, "CUDA Environment Variables"):

    2,0                                the container's third GPU, then its first
    GPU-8932f937,GPU-40f717b2-3f5c…    GPUs by UUID; so much of its beginning as means one GPU is enough
    MIG-<uuid>                         a MIG instance
    MIG-GPU-<uuid>/<gi>/<ci>           the same as drivers before R470 write it

The first entry says of which kind all are. One that means no device, or several, ends the list: what stands behind it
is invisible. A number is what C's strtoul makes of the entry, so `1gpu` is 1. A device that is named twice leaves none
visible. (The last three are what PyTorch knows of CUDA: torch/cuda/__init__.py.) Blanks around entries do not count;
whether CUDA would stop there makes no difference to what is counted, for a process cannot call a device that it does
not see.

With MIG a process sees one instance and nothing else: the first of those that it may see (MIG User Guide, "CUDA Device
Enumeration"). A GPU that is cut stands for the first of its instances.

CUDA_DEVICE_ORDER is not modelled. By default CUDA puts the fastest GPU first, which on a node with GPUs of one model is
the order of their indices.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from exporter.model.devices import DeviceKey

_NUMBER = re.compile(r"\+?([0-9]+)")
_MOST_DIGITS = 6
_MOST_ENTRIES = 256  # 16 GPUs in 7 compute instances each are 112
_OLD_MIG = re.compile(r"MIG-(GPU-[^/]+)/([0-9]{1,6})/([0-9]{1,6})")


class VisibleDevice(NamedTuple):
    """A device of a container: its key, the GPU's UUID (GPU-…) and, of a MIG instance, its UUID and GPU_I_ID."""

    key: DeviceKey
    gpu: str
    mig: str = ""
    instance: str = ""


# the device that an entry means, and by what it is told from another one
_Named = tuple[VisibleDevice, str]


def visible(devices: Sequence[VisibleDevice], text: str | None) -> tuple[DeviceKey, ...]:
    """The devices that a process sees, in the order in which it numbers them.

    Args:
        devices: the container's devices, in CUDA's order: by the GPU's index, then by instance.
        text: CUDA_VISIBLE_DEVICES as the process has it; None where it is not set.
    """
    seen = tuple(devices) if text is None else _named(devices, text)
    instance = next((device for device in seen if device.mig or device.instance), None)
    return tuple(device.key for device in seen) if instance is None else (instance.key,)


def is_by_uuid(text: str | None) -> bool:
    """Whether the order of the container's devices makes no difference to what the text means."""
    return text is not None and text.lstrip().startswith(("GPU-", "MIG-"))


def _named(devices: Sequence[VisibleDevice], text: str) -> tuple[VisibleDevice, ...]:
    find = _finder(devices, text)
    named: dict[str, VisibleDevice] = {}
    for entry in text.split(",", _MOST_ENTRIES)[:_MOST_ENTRIES]:
        found = find(entry.strip())
        if found is None:
            break
        device, name = found
        if name in named:
            return ()
        named[name] = device
    return tuple(named.values())


def _finder(devices: Sequence[VisibleDevice], text: str) -> Callable[[str], _Named | None]:
    """What finds the device of an entry: all are of the kind of the first."""
    first = text.lstrip()
    by_uuid: dict[str, VisibleDevice] = {}
    for device in devices:
        by_uuid.setdefault(device.gpu, device)  # a GPU that is cut stands for its first instance
    gpus = tuple(by_uuid.values())
    if first.startswith("MIG-"):
        return lambda entry: _instance(devices, entry)
    if first.startswith("GPU-"):
        return lambda entry: _by_uuid(gpus, entry)
    return lambda entry: _by_number(gpus, entry)


def _by_number(gpus: Sequence[VisibleDevice], entry: str) -> _Named | None:
    number = _NUMBER.match(entry)
    digits = number[1].lstrip("0") if number else ""
    index = int(digits or "0") if len(digits) <= _MOST_DIGITS else len(gpus)
    return (gpus[index], gpus[index].gpu) if number and index < len(gpus) else None


def _by_uuid(gpus: Sequence[VisibleDevice], entry: str) -> _Named | None:
    if not entry.startswith("GPU-"):
        return None
    fitting = [gpu for gpu in gpus if gpu.gpu.startswith(entry)]
    return (fitting[0], fitting[0].gpu) if len(fitting) == 1 else None


def _instance(devices: Sequence[VisibleDevice], entry: str) -> _Named | None:
    old = _OLD_MIG.fullmatch(entry)
    for device in devices:
        if (old and old[1] == device.gpu and old[2] == device.instance) or (device.mig and entry == device.mig):
            # several compute instances of one GPU instance are devices of their own
            return device, entry
    return None
