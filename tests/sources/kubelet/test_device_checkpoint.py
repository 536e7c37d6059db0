"""The kubelet's device-manager checkpoint: its forms, files that cannot be used, and a file that is replaced."""

import asyncio
import base64
import json
import os
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import given as having
from hypothesis import strategies as st

from exporter.errors import Malformed
from exporter.model.device_ref import DeviceRef
from exporter.model.grants import Given, Grant
from exporter.ownership.counted_ids import grouped
from exporter.sources.kubelet import device_checkpoint as source_of_checkpoint
from exporter.sources.kubelet.device_checkpoint import (
    CHECKPOINT,
    MOST_BYTES,
    SOURCE,
    DeviceCheckpoint,
    device_checkpoint_beside,
    parse,
)
from exporter.sources.source import is_absent
from tests.support.device_checkpoint import alloc_resp, checkpoint, entry, write

X, Y = "GPU-9567a9e7-341e-bb7e-fcf5-788d8caa50f9", "GPU-40f717b2-d09e-4a1f-b8e7-0f5ef53b8a9f"
GPU = "nvidia.com/gpu"
OF_Y = alloc_resp({"NVIDIA_VISIBLE_DEVICES": Y, "CUDA_DEVICE_MEMORY_LIMIT_0": "1024m"})
ON_Y = Given(
    source=SOURCE,
    refs=(DeviceRef(form="NVIDIA_VISIBLE_DEVICES", uuid=Y),),
    grants=(Grant(allocator="", memory_mib=1024),),
)
ONE = entry("u-1", "main", GPU, [f"{X}-3", f"{X}-4"], OF_Y)


@pytest.mark.parametrize("is_old", [False, True])
def test_an_entry_has_ids_and_what_the_plugin_gave(*, is_old: bool) -> None:
    """Before Kubernetes 1.20 the ids were a list; since then they are by NUMA node."""
    (one,) = parse(checkpoint(entry("u-1", "main", GPU, [f"{X}-3", f"{X}-4"], OF_Y, is_old=is_old)))
    assert (one.pod_uid, one.container, one.resource) == ("u-1", "main", GPU)
    assert one.ids == {f"{X}-3", f"{X}-4"}
    assert one.given == ON_Y


# issue 24, part 4
def test_ids_that_count_memory_are_kept_as_those_of_list() -> None:
    """Ids join the two: of a GPU's ids that a container has, List keeps the least alone."""
    ids = [*(f"{X}-_-{number}" for number in range(5, 45)), f"{Y}-_-3"]
    (one,) = parse(checkpoint(entry("u-1", "main", "aliyun.com/gpu-mem", ids, OF_Y)))
    assert one.ids == grouped("aliyun.com/gpu-mem", frozenset(ids)).keys() == {f"{X}-_-10", f"{Y}-_-3"}


def test_a_kubelet_that_gave_nothing_yet_has_no_entries() -> None:
    assert parse(checkpoint()) == ()


def test_registered_devices_cost_nothing() -> None:
    """They come after the entries, and are not even parsed."""
    whole = checkpoint(ONE, registered={"aliyun.com/gpu-mem": [f"{X}-_-{n}" for n in range(80_000)]})
    assert len(parse(whole)) == 1
    cut = whole[: whole.index(b'"RegisteredDevices"') + 40]
    assert len(parse(cut)) == 1


@pytest.mark.parametrize(
    "broken",
    [
        {**ONE, "AllocResp": "?"},
        {**ONE, "AllocResp": base64.b64encode(b"\xff\xff").decode()},
        {**ONE, "DeviceIDs": None},
        {**ONE, "DeviceIDs": {"0": [7]}},
        {**ONE, "PodUID": 7},
        {**ONE, "ResourceName": ""},
        {},
    ],
)
def test_a_broken_entry_costs_no_other(broken: Any) -> None:
    assert [one.pod_uid for one in parse(checkpoint(broken, ONE))] == ["u-1"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b'{"Data": []}',
        b'{"Data": {}}',
        b'{"Data": {"PodDeviceEntries": {}}}',
        b'{"Data": {"PodDeviceEntries": 7}}',
        b'{"Data": {"PodDeviceEntries": [7]}}',
        b'{"Data": {"PodDeviceEntries": [' + b"[" * 100_000,
        checkpoint(ONE)[:200],
    ],
)
def test_what_is_no_checkpoint_is_refused_in_words(content: bytes) -> None:
    with pytest.raises(Malformed) as error:
        parse(content)
    assert "kubelet's log" in error.value.trouble.remedy


def test_a_checkpoint_has_a_most_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_of_checkpoint, "MOST_ENTRIES", 2)
    with pytest.raises(Malformed, match="more than 2 entries") as error:
        parse(checkpoint(ONE, ONE, ONE))
    assert error.value.reason == "oversize"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*ONE, "0", "x"]), inner, max_size=4),
)


@having(st.binary(max_size=200) | st.builds(lambda raw: json.dumps({"Data": raw}).encode(), _JSON))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with suppress(Malformed):
        parse(content)


@having(st.lists(_JSON, max_size=3), st.binary(max_size=64))
def test_any_entries_are_read_or_left_out(entries: list[Any], answer: bytes) -> None:
    objects = [each for each in entries if isinstance(each, dict)]
    raw = {**ONE, "AllocResp": base64.b64encode(answer).decode()}
    assert {one.pod_uid for one in parse(checkpoint(*objects, raw, ONE))} >= {"u-1"}


@having(st.integers(0, 5), st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused(at: int, byte: int) -> None:
    content = bytearray(checkpoint(ONE))
    content[at * len(content) // 6] = byte
    with suppress(Malformed):
        parse(bytes(content))


def test_an_empty_answer_gives_nothing() -> None:
    """Volcano's vgpu-memory answers so."""
    assert [one.given for one in parse(checkpoint({**ONE, "AllocResp": None}))] == [None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / CHECKPOINT


@pytest.fixture
async def source(path: Path) -> AsyncIterator[DeviceCheckpoint]:
    made = DeviceCheckpoint(path=str(path), on_health=lambda *_: None)
    yield made
    await made.close()


async def look(source: DeviceCheckpoint) -> None:
    attempt = source.begin()
    if attempt is not None:
        await attempt


def test_the_file_is_beside_the_folder_of_the_socket() -> None:
    assert device_checkpoint_beside("/var/lib/kubelet/pod-resources/kubelet.sock") == f"/var/lib/kubelet/{CHECKPOINT}"
    assert device_checkpoint_beside("/kubelet/kubelet.sock") == f"/kubelet/{CHECKPOINT}"


async def test_without_the_file_the_source_is_absent_and_says_what_to_mount(
    source: DeviceCheckpoint, path: Path
) -> None:
    assert is_absent(source.health)
    await look(source)
    assert is_absent(source.health)
    assert "mount" in source.health.remedy
    write(path, ONE)
    await look(source)
    assert source.health.up
    assert [one.given for one in source.entries] == [ON_Y]
    path.unlink()
    await look(source)
    assert is_absent(source.health)
    assert source.entries == ()


async def test_the_file_is_read_again_only_when_it_has_changed(source: DeviceCheckpoint, path: Path) -> None:
    write(path, ONE)
    await look(source)
    entries = source.entries
    assert source.begin() is None
    assert source.entries is entries
    assert abs(source.changed_at - path.stat().st_mtime) < 1
    write(path, ONE, {**ONE, "PodUID": "u-2"})
    await look(source)
    assert {one.pod_uid for one in source.entries} == {"u-1", "u-2"}


async def test_a_file_that_cannot_be_used_leaves_nothing_of_before(source: DeviceCheckpoint, path: Path) -> None:
    """What it said before may be of containers that have ended."""
    write(path, ONE)
    await look(source)
    path.write_text("{")
    await look(source)
    assert source.health.reason == "garbage"
    assert str(path) in source.health.message
    assert source.entries == ()
    write(path, ONE)
    await look(source)
    assert source.health.up
    assert len(source.entries) == 1


async def test_a_file_that_is_too_large_is_not_read(source: DeviceCheckpoint, path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    os.truncate(path, MOST_BYTES + 1)
    await look(source)
    assert source.health.reason == "oversize"
    assert str(MOST_BYTES) in source.health.message


async def test_what_is_no_file_is_not_read(source: DeviceCheckpoint, path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)
    await look(source)
    assert source.health.reason == "unreachable"
    assert "FIFO" in source.health.message


async def test_a_file_of_root_says_as_whom_to_run(
    source: DeviceCheckpoint, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, ONE)
    path.chmod(stat.S_IRUSR)

    def refuse(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(source_of_checkpoint, "read_at_most", refuse)
    await look(source)
    assert source.health.reason == "permission"
    assert "uid 0" in source.health.remedy


async def test_what_has_passed_is_forgotten_though_the_file_is_the_same(
    source: DeviceCheckpoint, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet may not write the file again for days."""
    write(path, ONE)

    def refuse(*_: object) -> bytes:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as while_it_lasts:
        while_it_lasts.setattr(source_of_checkpoint, "read_at_most", refuse)
        await look(source)
        assert (source.health.reason, source.entries) == ("unreachable", ())
    await look(source)
    assert source.health.up
    assert len(source.entries) == 1


async def test_a_file_that_is_replaced_while_it_is_read_is_whole(source: DeviceCheckpoint, path: Path) -> None:
    """The kubelet renames: whoever opened the old file reads it to its end, and the next look reads the new one."""
    files = [[{**ONE, "PodUID": f"u-{n}-{k}"} for k in range(50)] for n in range(2)]
    write(path, *files[0])
    is_over = Event()

    def replace() -> None:
        turn = 0
        while not is_over.is_set():
            turn += 1
            write(path, *files[turn % 2])

    writer = asyncio.get_running_loop().run_in_executor(None, replace)
    try:
        for _ in range(100):
            await look(source)
            assert source.health.up, source.health.message
            assert len({one.pod_uid[:4] for one in source.entries}) == 1
            assert len(source.entries) == 50
    finally:
        is_over.set()
        await writer
    last = {one["PodUID"] for one in json.loads(path.read_bytes())["Data"]["PodDeviceEntries"]}
    await look(source)
    assert {one.pod_uid for one in source.entries} == last
