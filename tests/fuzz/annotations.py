"""Fuzzes what allocators write on pods: any text in, devices that are in the text or `Unreadable` out."""

import random
from collections.abc import Callable

from exporter.model.pods import PodContainer
from exporter.ownership.allocators.allocator_table import ALLOCATORS, Annotation
from exporter.ownership.allocators.positions import places
from exporter.ownership.allocators.said import MOST_MIB, MOST_PERCENT, Unreadable, WrittenDevice
from exporter.ownership.device_ids import read_rules

A = "GPU-9567a9e7-341e-bb7e-fcf5-788d8caa50f9"
B = "GPU-40f717b2-d09e-4a1f-b8e7-0f5ef53b8a9f"
OURS = {
    "name": "ours",
    "resource": "example.com/gpu",
    "annotation": "example.com/gpus",
    "containers": "/",
    "device": r"(?P<device>card[0-9]+)(?:=(?P<fraction>[0-9.]+))?",
}
ANNOTATIONS: tuple[Annotation, ...] = tuple(
    annotation
    for allocator in (*ALLOCATORS.values(), *read_rules({"allocators": [OURS]}).allocators)
    for annotation in allocator.annotations
)
# what allocators write, by the key of the annotation or of what adds to it
WRITTEN = {
    "hami.io/vgpu-devices-allocated": f";{A},NVIDIA,10240,45:{B},NVIDIA,10240,45:;{B},NVIDIA,0,0:;",
    "4pd.io/vgpu-ids-new": f"{A},NVIDIA,10240,45:;",
    "volcano.sh/vgpu-ids-new": f"{A},NVIDIA,2000,30:;{B},NVIDIA,2000,30:",
    "hami.io/vgpu-mig-allocations": (
        f'[{{"containerIndex":1,"deviceIndex":0,"gpuUUID":"{A}","profile":"1g.10gb","gpuInstanceID":7}}]'
    ),
    "ALIYUN_COM_GPU_MEM_IDX": "3",
    "scheduler.framework.gpushare.allocation": '{"0":{"1":1},"1":{"1":7}}',
    "gpushare.alibabacloud.com/core-percentage": '{"0":{"1":50},"1":{"1":40}}',
    "huawei.com/AscendReal": "Ascend910-4,Ascend910-2c-111-5",
    "gas-container-cards": "|card0,card1|card2",
    "gas-container-tiles": "card0:gt0+gt1|card1:gt1,card2:gt0",
    "scheduling.koordinator.sh/device-allocated": (
        '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"11520Mi"}}]}'
    ),
    "example.com/gpus": "card1=0.5/card2",
}
PODS = ("M", "MN", "sM", "i|M", "I|MN", "i|sMN")


def seeds() -> list[bytes]:
    """What allocators write, for each annotation and pod."""
    return [
        bytes([number, pod]) + WRITTEN.get(annotation.key, "").encode()
        for number, annotation in enumerate(ANNOTATIONS)
        for pod in range(len(PODS))
    ]


def one_input(data: bytes) -> None:
    """The first byte chooses the annotation, the second the pod. A zero byte stands before what adds to a text."""
    if len(data) > 1:
        texts = data[2:].decode("utf-8", "replace").split("\0")
        check(ANNOTATIONS[data[0] % len(ANNOTATIONS)], texts, PODS[data[1] % len(PODS)])


def check(annotation: Annotation, texts: list[str], pod: str) -> bool:
    """Whether the texts of an annotation, and of those that add to it, are a word that names devices of a pod."""
    keys = (annotation.key, *(key for key, _ in annotation.also))
    annotations = dict(zip(keys, texts, strict=False))
    resource = annotation.resources[0].replace("*", "gpu")
    try:
        written = annotation.read(annotations)
        assert written is not None
        of_containers = places(written, annotation, resource, _containers(pod, resource))
    except Unreadable as error:
        _check_message(str(error))
        return False
    assert of_containers.keys() == {name for name in pod if name.isupper()}
    for devices in of_containers.values():
        assert devices
        for device in devices:
            _check_device(device, "\0".join(texts))
    return True


def _containers(pod: str, resource: str) -> list[PodContainer]:
    init, _, _ = pod.rpartition("|")
    return [
        PodContainer(name=name, is_init=name in init, resources=frozenset({resource} if name.isupper() else ()))
        for name in pod.replace("|", "")
    ]


def _check_message(message: str) -> None:
    assert message.isprintable(), ascii(message)
    assert len(message) < 300, message


def _check_device(device: WrittenDevice, text: str) -> None:
    ref, grant = device.ref, device.grant
    names = [ref.uuid.removeprefix("GPU-"), ref.mig, ref.device, ref.index, ref.minor, ref.instance]
    assert any(names)
    assert not ref.is_no_gpu
    assert not ref.allocator
    for name in filter(None, names):
        assert name in text, f"{name!r} is not in {text!r}"
    assert grant.memory_mib is None or 0 < grant.memory_mib <= MOST_MIB
    assert grant.cores_percent is None or 0 < grant.cores_percent <= MOST_PERCENT
    assert grant.fraction is None or 0 < grant.fraction <= 1
    assert device.memory_units is None or 0 < device.memory_units <= MOST_MIB


_PIECES: tuple[str, ...] = (
    *";:,|/[]{}()\"'=+-.0159 \t\r\n\0\x1b",
    *(A, B, "MIG-" + A.removeprefix("GPU-"), "card7", "Ascend910-7", "NVIDIA", "null", "true", "NaN", "1e999", "-1"),
    *("9" * 30, "é", "\u0663", "\u202e", "\ud800"),
)
_HUGE: tuple[str, ...] = ("9" * 5000, "[" * 30_000, '{"0":' * 6000, "x" * 40_000, ";" * 200, f"{A},NVIDIA,1,2:" * 350)


def check_mutated(count: int, seed: int) -> int:
    """Check so many annotations that nobody wrote, and return how many of them name devices all the same."""
    chance = random.Random(seed)
    words = 0
    for _ in range(count):
        annotation = chance.choice(ANNOTATIONS)
        keys = (annotation.key, *(key for key, _ in annotation.also if chance.random() < 0.5))
        written = [WRITTEN.get(key) or WRITTEN["hami.io/vgpu-devices-allocated"] for key in keys]
        texts = [mutated(text, chance) for text in written]
        words += check(annotation, texts, chance.choice(PODS))
    return words


def mutated(text: str, chance: random.Random) -> str:
    """A text with a few changes; one of ten has none, and one of a hundred is huge."""
    for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 5, 8, 30))):
        text = chance.choice(_CHANGES)(text, chance)[:5000]
    if chance.random() < 0.01:
        place = chance.randrange(len(text) + 1)
        text = text[:place] + chance.choice(_HUGE) + text[place:]
    return text


def _without(text: str, chance: random.Random) -> str:
    start = chance.randrange(len(text) + 1)
    return text[:start] + text[start + chance.choice((1, 1, 2, 8, 50)) :]


def _with(text: str, chance: random.Random) -> str:
    start = chance.randrange(len(text) + 1)
    return text[:start] + chance.choice(_PIECES) + text[start:]


def _exchanged(text: str, chance: random.Random) -> str:
    start = chance.randrange(len(text) + 1)
    return text[:start] + chance.choice(_PIECES) + text[start + 1 :]


def _repeated(text: str, chance: random.Random) -> str:
    first, second = sorted(chance.randrange(len(text) + 1) for _ in range(2))
    return text[:second] + text[first:second] * chance.choice((1, 1, 2, 20)) + text[second:]


def _moved(text: str, chance: random.Random) -> str:
    first, second = sorted(chance.randrange(len(text) + 1) for _ in range(2))
    return text[first:second] + text[:first] + text[second:]


_CHANGES: tuple[Callable[[str, random.Random], str], ...] = (_without, _with, _exchanged, _repeated, _moved)
