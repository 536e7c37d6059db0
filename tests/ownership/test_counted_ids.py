"""Ids that are counted by GPU, and the memory that they stand for."""

import pytest

from exporter.model.devices import Assignment
from exporter.model.grants import Grant, Word
from exporter.model.pods import Owner
from exporter.ownership.counted_ids import counted, device_in, granted, grouped

MEMORY = "aliyun.com/gpu-mem"
IDS = frozenset({"GPU-a-_-7", "GPU-a-_-3", "GPU-a-_-5", "GPU-b-_-1", "else"})


def test_the_least_id_of_a_gpu_stands_for_all_of_it() -> None:
    expected = {"GPU-a-_-3": 3, "GPU-b-_-1": 1, "else": 1}
    assert counted(IDS) == expected
    assert grouped(MEMORY, IDS) == expected
    assert counted(frozenset()) == {}


@pytest.mark.parametrize("numbers", [(3, 5, 7), (7, 5, 3), (5, 3, 7)])
def test_the_order_of_ids_does_not_matter(numbers: tuple[int, ...]) -> None:
    ids = dict.fromkeys(f"GPU-a-_-{number}" for number in numbers).keys()
    assert counted(ids) == {"GPU-a-_-3": 3}


@pytest.mark.parametrize(
    ("device_id", "device"),
    [("GPU-a-_-7", "GPU-a"), ("a-_-b-_-7", "a-_-b"), ("GPU-a", "GPU-a"), ("-_-7", "-_-7"), ("", "")],
)
def test_the_gpu_in_a_counted_id(device_id: str, device: str) -> None:
    assert device_in(device_id) == device


def test_ids_of_other_resources_stand_for_themselves() -> None:
    assert grouped("nvidia.com/gpu", IDS) == dict.fromkeys(IDS, 1)
    assert grouped("volcano.sh/vgpu-number", IDS) == dict.fromkeys(IDS, 1)


@pytest.mark.parametrize("resource", ["volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"])
def test_ids_that_another_id_tells_are_left_out(resource: str) -> None:
    assert grouped(resource, IDS) == {}


PLAIN = Grant(allocator="gpushare")
WRITTEN = Grant(allocator="gpushare", memory_mib=5, cores_percent=50)


@pytest.mark.parametrize(
    ("resource", "grant", "offered", "expected"),
    [
        (MEMORY, PLAIN, 80, 8192),
        (MEMORY, PLAIN, 1, 8192),
        (MEMORY, PLAIN, 2048, 8192),
        # no GPU has as many GiB
        (MEMORY, PLAIN, 2049, 8),
        # nothing says how many there are
        (MEMORY, PLAIN, 0, None),
        (MEMORY, WRITTEN, 80, 5),
        ("nvidia.com/gpu", PLAIN, 80, None),
    ],
)
def test_the_memory_that_ids_count(resource: str, grant: Grant, offered: int, expected: float | None) -> None:
    owner = Owner(namespace="ml", pod="a", container="main")
    held = Assignment(owner=owner, resource=resource, device_id="GPU-a-_-0", count=8, word=Word(grant=grant))
    made = granted(held, offered)
    assert made is not None
    assert (made.allocator, made.memory_mib, made.cores_percent) == ("gpushare", expected, grant.cores_percent)


def test_without_a_word_nothing_is_granted() -> None:
    owner = Owner(namespace="ml", pod="a", container="main")
    assert granted(Assignment(owner=owner, resource=MEMORY, device_id="GPU-a-_-0", count=8), 80) is None
