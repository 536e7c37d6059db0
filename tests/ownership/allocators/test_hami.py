"""HAMi's annotation and its ancestor's: the texts are those of HAMi's encoder (pkg/device/devices.go) and its tests."""

import pytest

from exporter.model.grants import Grant
from exporter.model.pods import PodContainer
from exporter.ownership.allocators.allocator_table import ALLOCATORS, ANNOTATIONS
from exporter.ownership.allocators.positions import places
from exporter.ownership.allocators.said import LONGEST, Unreadable

GPU = "nvidia.com/gpu"
A = "GPU-9567a9e7-341e-bb7e-fcf5-788d8caa50f9"
B = "GPU-40f717b2-d09e-4a1f-b8e7-0f5ef53b8a9f"
MIG = "MIG-4cf18df2-0d7e-5f3c-9d8e-3b2d6a1f0c7e"
HAMI = "hami.io/vgpu-devices-allocated"
ANCESTOR = "4pd.io/vgpu-ids-new"
OF_HAMI = ALLOCATORS["HAMi"]


def containers(spelt: str) -> tuple[PodContainer, ...]:
    """Containers named by letters: those before | are init containers, capitals ask for a GPU."""
    init, _, rest = spelt.rpartition("|")
    return tuple(
        PodContainer(name=name, is_init=is_init, resources=frozenset({GPU}) if name.isupper() else frozenset())
        for names, is_init in ((init, True), (rest, False))
        for name in names
    )


def given(text: str, spelt: str, key: str = HAMI) -> dict[str, list[tuple[str, float | None, float | None]]]:
    written = OF_HAMI.said_in(GPU, {key: text})
    assert written is not None
    annotation, of_places = written
    assert annotation.key == key
    entries = places(of_places, annotation, GPU, containers(spelt))
    return {
        name: [(entry.ref.uuid or entry.ref.mig, entry.grant.memory_mib, entry.grant.cores_percent) for entry in those]
        for name, those in entries.items()
    }


@pytest.mark.parametrize(
    ("text", "spelt", "expected"),
    [
        (f"{A},NVIDIA,10240,45:;", "M", {"M": [(A, 10240, 45)]}),
        # 0 is no limit
        (f"{A},NVIDIA,0,0:;", "M", {"M": [(A, None, None)]}),
        (f"{A},NVIDIA,10240,45:{B},NVIDIA,10240,45:;", "M", {"M": [(A, 10240, 45), (B, 10240, 45)]}),
        (f"{A},NVIDIA,1,2:;{B},NVIDIA,3,4:;", "MN", {"M": [(A, 1, 2)], "N": [(B, 3, 4)]}),
        # an empty entry keeps the position
        (f";{A},NVIDIA,1,2:;", "mN", {"N": [(A, 1, 2)]}),
        (f"{A},NVIDIA,1,2:;;", "Mn", {"M": [(A, 1, 2)]}),
        # so did HAMi 2.4 and 2.5 write an empty entry (pkg/scheduler/score.go)
        (f"{A},NVIDIA,1,2:;,,0,0:;", "Mn", {"M": [(A, 1, 2)]}),
        # init containers count since PR 1650, and before they did not
        (f";{A},NVIDIA,1,2:;", "i|M", {"M": [(A, 1, 2)]}),
        (f"{A},NVIDIA,1,2:;", "i|M", {"M": [(A, 1, 2)]}),
        (f"{A},NVIDIA,1,2:;{B},NVIDIA,3,4:;", "I|M", {"I": [(A, 1, 2)], "M": [(B, 3, 4)]}),
        (f"{A},NVIDIA,1,2:;{B},NVIDIA,3,4:;", "i|MN", {"M": [(A, 1, 2)], "N": [(B, 3, 4)]}),
        # a field that a later version may add
        (f"{A},NVIDIA,1,2,more:;", "M", {"M": [(A, 1, 2)]}),
        # a whole MIG instance
        (f"{MIG},NVIDIA,9856,0:;", "M", {"M": [(MIG, 9856, None)]}),
        # a UUID without its prefix
        (f"{A.removeprefix('GPU-')},NVIDIA,1,2:;", "M", {"M": [(A, 1, 2)]}),
    ],
)
def test_what_hami_writes(text: str, spelt: str, expected: dict[str, object]) -> None:
    assert given(text, spelt) == expected


@pytest.mark.parametrize(
    ("text", "spelt", "expected"),
    [
        (f"{A},NVIDIA,10240,45:", "M", {"M": [(A, 10240, 45)]}),
        (f"{A},NVIDIA,1,2:;{B},NVIDIA,3,4:", "MN", {"M": [(A, 1, 2)], "N": [(B, 3, 4)]}),
        (f";{B},NVIDIA,3,4:", "mN", {"N": [(B, 3, 4)]}),
        # the ancestor separates containers: behind the last separator is a container
        (f"{A},NVIDIA,1,2:;", "Mn", {"M": [(A, 1, 2)]}),
    ],
)
def test_what_its_ancestor_writes(text: str, spelt: str, expected: dict[str, object]) -> None:
    assert given(text, spelt, ANCESTOR) == expected


@pytest.mark.parametrize(
    ("text", "spelt", "why"),
    [
        ("", "M", "it names no device"),
        (";", "M", "it names no device"),
        ("none", "M", "place 1, device 1: 'none' is not <uuid>,<type>,<MiB>,<percent of cores>"),
        (f"{A},NVIDIA,10240", "M", "place 1, device 1: 'GPU-9567"),
        (f"{A},NVIDIA,x,45:;", "M", "is not <uuid>"),
        (f"{A},NVIDIA,-1,45:;", "M", "place 1, device 1: memory_mib is -1; it must be from 0 to"),
        (f"{A},NVIDIA,99999999,45:;", "M", "memory_mib is 1e+08"),
        (f"{A},NVIDIA,1,1001:;", "M", "cores_percent is 1001"),
        (f"{A},NVIDIA,{'9' * 99},1:;", "M", "is no number"),
        (f"{'x' * 300},NVIDIA,1,1:;", "M", "is not <uuid>"),
        ("GPU-é,NVIDIA,1,1:;", "M", "characters that no device's name has"),
        # HAMi's mode mig, up to 2.9: the place tells no instance
        (f"{A}[0-1],NVIDIA,9856,0:;", "M", "names a place on a GPU that is cut for it"),
        # too many places, too few, or at containers that hold nothing
        (f"{A},NVIDIA,1,2:;{A},NVIDIA,1,2:;", "M", "it has 2 places, 2 of them with devices; the pod has 1 container"),
        (f"{A},NVIDIA,1,2:;;", "M", "it has 2 places, 1 of them with devices"),
        (f"{A},NVIDIA,1,2:;", "MN", "it has 1 place"),
        (f"{A},NVIDIA,1,2:;;", "mN", "do not stand at these places"),
        (f"{A},NVIDIA,1,2:;{B},NVIDIA,1,2:;", "Mn", "do not stand at these places"),
        (f"{A},NVIDIA,1,2:;" * 1000, "M", "more than 32768 are not read"),
    ],
)
def test_what_is_no_word(text: str, spelt: str, why: str) -> None:
    with pytest.raises(Unreadable) as raised:
        given(text, spelt)
    assert why in str(raised.value)
    assert len(str(raised.value)) < 250
    assert str(raised.value).isprintable()


def test_an_allocators_word_is_a_share_with_a_grant() -> None:
    written = OF_HAMI.said_in(GPU, {HAMI: f"{A},NVIDIA,10240,45:;"})
    assert written is not None
    (entry,) = written[1].containers[0]
    assert entry.grant == Grant(allocator="HAMi", memory_mib=10240, cores_percent=45)
    assert (entry.ref.shared, entry.ref.allocator) == (True, "")


def test_the_newer_annotation_counts_and_a_pod_without_any_has_no_word() -> None:
    both = {ANCESTOR: f"{B},NVIDIA,1,2:", HAMI: f"{A},NVIDIA,1,2:;"}
    written = OF_HAMI.said_in(GPU, both)
    assert written is not None
    assert written[0].key == HAMI
    assert OF_HAMI.said_in(GPU, {"other": "x"}) is None
    assert both.keys() <= ANNOTATIONS


def test_the_length_that_is_read_is_enough() -> None:
    text = ":".join([f"{A},NVIDIA,10240,45"] * 16) + ":;"
    assert len(text * 20) < LONGEST
