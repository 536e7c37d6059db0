"""What a process sees as its CUDA devices."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model.devices import DeviceKey
from exporter.probe.cuda_owners import VisibleDevice, visible

UUIDS = (
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    "GPU-8940aaaa-0000-4106-c12f-20bd9faed9f6",
    "GPU-40f717b2-1111-4106-c12f-20bd9faed9f6",
    "GPU-5d8e3c55-2222-4106-c12f-20bd9faed9f6",
)


def mig_uuid(gpu: int, instance: str) -> str:
    return f"MIG-{gpu}{instance}aaaaaa-d1f2-d08c-b40e-0812b597ae69"


def whole(number: int) -> VisibleDevice:
    return VisibleDevice(DeviceKey(uuid=UUIDS[number]), UUIDS[number])


def instance(gpu: int, instance: str) -> VisibleDevice:
    return VisibleDevice(DeviceKey(uuid=UUIDS[gpu], instance=instance), UUIDS[gpu], mig_uuid(gpu, instance), instance)


GPUS = tuple(whole(number) for number in range(4))
CUT = (instance(0, "1"), instance(0, "2"), instance(1, "1"), whole(2))
ALL = [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (None, ALL),
        ("", []),
        ("   ", []),
        ("0", [0]),
        ("2,1", [2, 1]),
        (" 3 ,\t0", [3, 0]),
        ("0,2,-1,1", [0, 2]),
        ("-1", []),
        ("-1,0", []),
        ("NoDevFiles", []),
        ("0,4,1", [0]),
        ("9" * 5000, []),
        ("0" * 5000 + "1", [1]),
        ("3,,1", [3]),
        (",3", []),
        ("1gpu2,2ampere", [1, 2]),
        ("3,2,two,1", [3, 2]),
        ("+1", [1]),
        ("0x1", [0]),
        ("0,1,0", []),
        ("0,00", []),
        ("1,-1,1", [1]),
        ("0 1", [0]),
        ("٣", []),  # a digit of Unicode's, which C does not know
        (UUIDS[2], [2]),
        (f"{UUIDS[2]},{UUIDS[0]}", [2, 0]),
        ("GPU-4,GPU-8932", [2, 0]),
        ("GPU-4, GPU-5", [2, 3]),
        ("GPU-89", []),
        ("GPU-4,GPU-89,GPU-5", [2]),
        ("GPU-", []),
        ("GPU-4,GPU-nothere,GPU-5", [2]),
        ("GPU-4,GPU-40", []),
        ("gpu-4", []),
        ("4", []),
        (UUIDS[2].removeprefix("GPU-"), []),  # 40f717b2-… is the number 40
        (UUIDS[2] + "0", []),
        ("GPU-4,3", [2]),
        ("3,GPU-4", [3]),
        (mig_uuid(0, "1"), []),
        ("0," * 100_000, []),
    ],
)
def test_whole_gpus(text: str | None, seen: list[int]) -> None:
    assert visible(GPUS, text) == tuple(GPUS[number].key for number in seen)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (None, CUT[0]),  # one instance, and nothing beside it
        ("", None),
        ("0", CUT[0]),
        ("1", CUT[2]),
        ("2", CUT[3]),
        ("2,1,0", CUT[2]),
        ("3", None),
        ("GPU-8940", CUT[2]),
        (mig_uuid(0, "2"), CUT[1]),
        (f" {mig_uuid(1, '1')},{mig_uuid(0, '1')}", CUT[2]),
        (f"{mig_uuid(0, '2')},{mig_uuid(0, '2')}", None),
        (f"{mig_uuid(0, '2')},MIG-gone,{mig_uuid(0, '2')}", CUT[1]),
        (mig_uuid(0, "2")[:12], None),
        (f"MIG-{UUIDS[0]}/2/0", CUT[1]),
        (f"MIG-{UUIDS[0]}/2/0,MIG-{UUIDS[0]}/2/1", CUT[1]),
        (f"MIG-{UUIDS[0]}/2/0,MIG-{UUIDS[0]}/2/0", None),
        (f"MIG-{UUIDS[0]}/3/0", None),
        (f"MIG-{UUIDS[2]}/0/0", None),
        (f"MIG-{UUIDS[0]}/2", None),
        ("MIG-", None),
    ],
)
def test_with_instances_a_process_sees_one(text: str | None, seen: VisibleDevice | None) -> None:
    assert visible(CUT, text) == (() if seen is None else (seen.key,))


def test_an_instance_whose_gpu_is_not_known() -> None:
    device = VisibleDevice(DeviceKey(uuid=mig_uuid(0, "1")), "", mig_uuid(0, "1"))
    assert visible([device], None) == visible([device], "0") == visible([device], device.mig) == (device.key,)
    assert visible([device], "GPU-8") == visible([device], "1") == ()


def test_an_instance_of_a_gpu_that_is_held_as_a_whole_counts_for_the_gpu() -> None:
    held = [VisibleDevice(DeviceKey(uuid=UUIDS[0]), UUIDS[0], mig_uuid(0, "1"), "1")]
    assert visible(held, None) == (DeviceKey(uuid=UUIDS[0]),)


DEVICES = st.lists(st.sampled_from((*GPUS, *CUT[:3])), unique=True, max_size=7)
ENTRIES = st.sampled_from(
    ("0", "1", "2", "-1", "", " 3", "GPU-8", "GPU-4", *UUIDS, mig_uuid(0, "1"), mig_uuid(1, "1"), f"MIG-{UUIDS[0]}/2/0")
)
TEXTS = st.lists(ENTRIES, max_size=6).map(",".join) | st.text()


@settings(deadline=None)
@given(DEVICES, TEXTS)
def test_each_device_is_seen_once_and_none_that_the_container_has_not(devices: list[VisibleDevice], text: str) -> None:
    keys = [device.key for device in devices]
    seen = visible(devices, text)
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(keys)
    # one instance at most, and then nothing else
    assert len(seen) < 2 or not any(key.instance for key in seen)


@settings(deadline=None)
@given(DEVICES, st.lists(ENTRIES, max_size=4), ENTRIES)
def test_a_longer_list_shows_no_other_devices_first_or_none_at_all(
    devices: list[VisibleDevice], entries: list[str], last: str
) -> None:
    whole_gpus = [device for device in devices if not device.instance]
    before, after = (visible(whole_gpus, ",".join(these)) for these in (entries, [*entries, last]))
    assert after == () or after[: len(before)] == before


@settings(deadline=None)
@given(st.permutations(range(4)), st.data())
def test_what_numbers_and_uuids_say_is_the_same(order: list[int], data: st.DataObject) -> None:
    named = order[: data.draw(st.integers(1, 4))]
    cuts = [data.draw(st.integers(len("GPU-8932"), len(UUIDS[0]))) for _ in named]
    by_uuid = ",".join(UUIDS[number][:cut] for number, cut in zip(named, cuts, strict=True))
    assert visible(GPUS, by_uuid) == visible(GPUS, ",".join(map(str, named))) == tuple(GPUS[n].key for n in named)
