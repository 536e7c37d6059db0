"""A bundle's file has all of a recording, for people and for the program, and is never larger than 10 MiB."""

import gzip
import io
import json
import random
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from exporter.bundle import archive
from exporter.bundle.archive import read, write
from exporter.bundle.recording import RecordedMoment, Recording
from exporter.errors import ExporterError
from tests.support.recordings import RECORDINGS, SMALL, small_moment

MIB = 1024 * 1024


def packed(recording: Recording) -> bytes:
    file = io.BytesIO()
    assert write(recording, file) == len(file.getvalue())
    return file.getvalue()


def read_again(content: bytes, folder: Path) -> Recording:
    file = folder / "bundle.tar.gz"
    file.write_bytes(content)
    return read(file)


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes that nothing can pack."""
    return random.Random(seed).randbytes(size)


def unpacked(content: bytes) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(content))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert read_again(packed(SMALL), tmp_path) == SMALL


@given(recording=RECORDINGS)
@settings(max_examples=100)
def test_whatever_was_written_is_read(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert read_again(packed(recording), tmp_path_factory.getbasetemp()) == recording


def test_a_person_who_unpacks_it_recognises_the_files() -> None:
    with unpacked(packed(SMALL)) as tar:
        names = tar.getnames()
        members = tar.getmembers()
    assert names == [
        "gpu-bundle/bundle.json",
        "gpu-bundle/moments/00/page-dcgm.prom",
        "gpu-bundle/moments/00/kubelet-v1-List.pb",
        "gpu-bundle/moments/00/kubernetes-api-v1-pods.json",
        "gpu-bundle/moments/00/files/inventory",
        "gpu-bundle/moments/00/files/proc/driver/nvidia/version",
        "gpu-bundle/moments/00/nvml.jsonl",
        "gpu-bundle/moments/00/kernel.log",
        "gpu-bundle/moments/00/index.html",
        "gpu-bundle/moments/00/debug-mapping.json",
        "gpu-bundle/report.txt",
        "gpu-bundle/log.txt",
        "gpu-bundle/exporter/debug-log.txt",
    ]
    assert {(each.uid, each.gid, each.uname, each.gname, each.mtime, each.mode) for each in members} == {
        (0, 0, "", "", 1_790_000_000, 0o644)
    }


def test_names_that_only_differ_in_capitals_are_two_files() -> None:
    moment = replace(SMALL.moments[0], answers=(), files={"root/a.B": b"1", "root/A.b": b"2", "root/a-b": b"3"})
    with unpacked(packed(replace(SMALL, moments=(moment,)))) as tar:
        names = [name.lower() for name in tar.getnames()]
    assert len(names) == len(set(names))


def test_the_same_recording_makes_the_same_bytes() -> None:
    first = packed(SMALL)
    other_order = replace(SMALL, versions=dict(reversed(list(SMALL.versions.items()))))
    assert packed(other_order) == first
    assert first[3] == 0  # no flag of the gzip header: no file name, no comment
    assert first[4:8] == bytes(4)  # no time


def test_what_does_not_change_is_there_once(tmp_path: Path) -> None:
    page = noise(MIB)
    many = replace(SMALL, moments=tuple(small_moment(float(second), page) for second in range(50)))
    whole = packed(many)
    assert len(whole) < 1.1 * MIB
    assert read_again(whole, tmp_path) == many


@pytest.fixture
def tenth(monkeypatch: pytest.MonkeyPatch) -> int:
    """A tenth of the size that a bundle may have, for a tenth of the time."""
    assert archive.MOST_BYTES == 10 * MIB
    monkeypatch.setattr(archive, "MOST_BYTES", MIB)
    return MIB // 10


def test_a_larger_recording_loses_moments_from_the_middle(tmp_path: Path, tenth: int) -> None:
    moments = tuple(
        replace(small_moment(float(number), noise(tenth, number)), kernel_log=(f"{number}",)) for number in range(20)
    )
    packed_moments = packed(replace(SMALL, moments=moments))
    assert 8 * tenth < len(packed_moments) <= MIB
    kept = read_again(packed_moments, tmp_path)
    times = [moment.at_seconds for moment in kept.moments]
    assert times == [0, 1, 2, 3, 4, 16, 17, 18, 19]
    assert kept.moments[5].kernel_log == tuple(f"{number}" for number in range(5, 17))
    absence = kept.absences[-1]
    assert (absence.what, absence.why.message) == (
        "11 of 20 moments, 5 to 15",
        "the bundle would be larger than 10 MiB",
    )


def test_one_moment_that_is_too_large_loses_its_largest_outputs(tmp_path: Path, tenth: int) -> None:
    outputs = {"/small": noise(tenth), "/large": noise(8 * tenth), "/larger": noise(9 * tenth)}
    moment = RecordedMoment(at_seconds=1, outputs=outputs)
    kept = read_again(packed(replace(SMALL, moments=(moment, moment))), tmp_path)
    assert [*kept.moments[0].outputs] == ["/large", "/small"]
    assert [absence.what for absence in kept.absences[1:]] == ["1 of 2 moments, 1 to 1", "the output /larger"]


@pytest.mark.usefixtures("tenth")
def test_one_moment_that_is_too_large_without_outputs_says_what_is_largest() -> None:
    moment = RecordedMoment(at_seconds=1, files={"root/proc/x\x1b": noise(11 * MIB // 10)}, outputs={"/a": noise(MIB)})
    with pytest.raises(ExporterError, match=r"larger than 10 MiB; what takes most is the file root/proc/x\\x1b, 1.1"):
        packed(replace(SMALL, moments=(moment,)))


def test_nothing_is_written_that_would_not_be_read(tmp_path: Path) -> None:
    """Zeros: they pack well, and unpacked they are more than `read` takes."""
    moments = tuple(small_moment(float(number), bytes([number]) * 8 * MIB) for number in range(10))
    kept = read_again(packed(replace(SMALL, moments=moments)), tmp_path)
    assert 2 <= len(kept.moments) < 10


def with_document(change: dict[str, object]) -> bytes:
    """The small bundle with another bundle.json."""
    files = {}
    with unpacked(packed(SMALL)) as tar:
        for member in tar.getmembers():
            content = tar.extractfile(member)
            assert content is not None
            files[member.name] = content.read()
    document = json.loads(files["gpu-bundle/bundle.json"])
    files["gpu-bundle/bundle.json"] = json.dumps({**document, **change}).encode()
    packing = io.BytesIO()
    with tarfile.open(fileobj=packing, mode="w") as tar:
        for name, body in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(body)
            tar.addfile(header, io.BytesIO(body))
    return gzip.compress(packing.getvalue())


def test_what_a_later_version_adds_is_ignored(tmp_path: Path) -> None:
    assert read_again(with_document({"weather": {"is": "fine"}}), tmp_path) == SMALL


def test_a_newer_form_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ExporterError, match=r"form 7, made by version 99\.1; .* -> upgrade this program to 99\.1$"):
        read_again(with_document({"form": 7, "madeBy": "99.1", "moments": "in another way"}), tmp_path)
