"""Annotations as allocators write them are read as they were written; what nobody wrote raises nothing unexpected."""

import json

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from exporter.ownership.allocators.allocator_table import ALLOCATORS
from exporter.ownership.allocators.said import LONGEST
from tests.fuzz import annotations
from tests.ownership.allocators.spelling import given

UUIDS = st.uuids().map(lambda uuid: f"GPU-{uuid}")
# as HAMi's encoder has them: uuid, MiB, percent
DEVICES = st.tuples(UUIDS, st.integers(0, 10**7), st.integers(0, 1000))
PODS = st.lists(st.lists(DEVICES, max_size=4), min_size=1, max_size=6).filter(any)


def written(devices: list[tuple[str, int, int]]) -> str:
    return "".join(f"{uuid},NVIDIA,{memory},{cores}:" for uuid, memory, cores in devices)


def spelt(pod: list[list[tuple[str, int, int]]], init: int) -> str:
    letters = [("ABCDEF" if devices else "abcdef")[place] for place, devices in enumerate(pod)]
    return f"{''.join(letters[:init])}|{''.join(letters[init:])}"


@pytest.mark.parametrize(
    ("allocator", "key", "resource", "end"),
    [
        ("HAMi", "hami.io/vgpu-devices-allocated", "nvidia.com/gpu", ";"),
        ("HAMi", "4pd.io/vgpu-ids-new", "nvidia.com/gpu", ""),
        ("Volcano", "volcano.sh/vgpu-ids-new", "volcano.sh/vgpu-number", ""),
    ],
)
@drawn(pod=PODS, init=st.integers(0, 6))
def test_vgpus_are_read_as_they_were_written(
    allocator: str, key: str, resource: str, end: str, pod: list[list[tuple[str, int, int]]], init: int
) -> None:
    text = ";".join(map(written, pod)) + end
    devices = given(allocator, resource, {key: text}, spelt(pod, init))
    expected = [[(uuid, memory or None, cores or None) for uuid, memory, cores in place] for place in pod if place]
    assert [
        [(device.ref.uuid, device.grant.memory_mib, device.grant.cores_percent) for device in place]
        for _, place in sorted(devices.items())
    ] == expected


@drawn(pod=PODS)
def test_volcano_leaves_out_containers_without_devices(pod: list[list[tuple[str, int, int]]]) -> None:
    text = ";".join(written(place) for place in pod if place)
    devices = given("Volcano", "volcano.sh/vgpu-number", {"volcano.sh/vgpu-ids-new": text}, spelt(pod, 0))
    assert [[device.ref.uuid for device in place] for _, place in sorted(devices.items())] == [
        [uuid for uuid, _, _ in place] for place in pod if place
    ]


@drawn(pod=st.lists(st.dictionaries(st.integers(0, 99), st.integers(1, 200), max_size=3), min_size=1).filter(any))
def test_acks_allocation_is_read_as_it_was_written(pod: list[dict[int, int]]) -> None:
    pod = pod[:6]
    if not any(pod):
        return
    text = json.dumps({place: gpus for place, gpus in enumerate(pod) if gpus})
    letters = "".join(("ABCDEF" if gpus else "abcdef")[place] for place, gpus in enumerate(pod))
    devices = given("gpushare", "aliyun.com/gpu-mem", {"scheduler.framework.gpushare.allocation": text}, letters)
    assert [
        {int(device.ref.index): device.memory_units for device in place} for _, place in sorted(devices.items())
    ] == [gpus for gpus in pod if gpus]


# issue 24, "Must show" 4; tests/fuzz has twenty thousand of them, and `make fuzz` more
@pytest.mark.parametrize("seed", range(3))
def test_mutated_annotations(seed: int) -> None:
    assert annotations.check_mutated(1000, seed) > 0


@drawn(number=st.integers(0, 255), pod=st.integers(0, 9), text=st.text(max_size=200))
def test_any_text(number: int, pod: int, text: str) -> None:
    annotations.one_input(bytes([number, pod]) + text.encode("utf-8", "surrogatepass"))


def test_every_allocators_text_is_one_that_is_mutated() -> None:
    keys = {annotation.key for allocator in ALLOCATORS.values() for annotation in allocator.annotations}
    of_vendors = {key for key in keys if key.startswith("hami.io/")}
    assert keys - of_vendors <= annotations.WRITTEN.keys()
    assert all(len(text) < LONGEST for text in annotations.WRITTEN.values())
    for annotation in annotations.ANNOTATIONS:
        text = annotations.WRITTEN.get(annotation.key) or annotations.WRITTEN["hami.io/vgpu-devices-allocated"]
        assert any(annotations.check(annotation, [text], pod) for pod in annotations.PODS), annotation.key
