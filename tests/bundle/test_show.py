"""`bundle show` prints what a bundle is, and every word in it that came from outside."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from exporter.bundle.archive import write
from exporter.bundle.outside_words import outside_words
from exporter.bundle.recording import Absence, PeerAnswer, RecordedCall, RecordedMoment, Recording
from exporter.bundle.show import shown
from exporter.cli.main import EXIT_FAILED, run
from exporter.errors import Trouble
from tests.bundle.names.worlds import bytes_of, world_of
from tests.support.recordings import RECORDINGS, SMALL

UUID = "GPU-1e2feb89-414c-443c-9027-c4d1c386bbc4"
PAGE = (
    "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n"
    f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{UUID}",modelName="NVIDIA H100 80GB HBM3",Hostname="jupiter",'
    'namespace="team-blue",pod="jupyter-mira-0",container="notebook",label_owner="Mira Meyer"} 7\n'
    "acme_gpu_level 3\n"
)
# field 1, a message: the pod's name, its namespace, a container with a device
KUBELET = b"\n\x2a\n\x0ejupyter-mira-0\x12\x09team-blue\x1a\x0d\n\x0bsidecar-xyz"
PODS = {
    "items": [
        {
            "metadata": {"name": "vllm-nora-5", "namespace": "team-blue", "labels": {"acme.io/cost": "4711"}},
            "spec": {"nodeName": "jupiter", "containers": [{"name": "server", "image": "registry.acme.io/vllm:1"}]},
            "status": {"podIP": "10.17.3.9", "phase": "Running"},
        }
    ]
}
MOMENT = RecordedMoment(
    at_seconds=1_790_000_000,
    answers=(
        PeerAnswer(peer="page", name="dcgm", question="http://exporter.acme:9400/metrics", body=PAGE.encode()),
        PeerAnswer(peer="kubelet", name="kubelet", question="v1.PodResourcesLister/List", body=KUBELET),
        PeerAnswer(peer="kubernetes", name="pods", question="/api/v1/pods", body=json.dumps(PODS).encode()),
    ),
    files={"root/proc/driver/nvidia/version": b"NVRM version: NVIDIA UNIX x86_64 (buildd@zaphod)"},
    calls=(RecordedCall(function="nvmlDeviceGetSerial", arguments=("nvmlDeviceGetHandleByIndex(0)",), result="16529"),),
    kernel_log=("4,1,2,-;NVRM: Xid (PCI:0000:01:00): 31, pid=77, name=blender",),
)
WORLD = Recording(
    made_by="9.9.9",
    settings={"dcgm.url": ("http://exporter.acme:9400/metrics",)},
    moments=(MOMENT,),
    log=('ts=1 level=warning msg="source failed" source=dcgm error="no host marvin"',),
    absences=(Absence(what="the kernel's log", why=Trouble("permission", "trillian may not read it", "ask arthur")),),
)


# issue 25, Must show 2
def test_every_word_from_outside_is_in_its_group() -> None:
    words, has_all = outside_words(WORLD)
    assert has_all
    assert words == {
        "namespaces": {"team-blue"},
        "pods": {"jupyter-mira-0"},
        "containers": {"notebook", "server"},
        "nodes": {"jupiter"},
        "images": {"registry.acme.io/vllm:1"},
        "objects": {"vllm-nora-5", "sidecar-xyz"},
        "labels and annotations": {"acme.io/cost=4711"},
        "serial numbers": {"16529"},
        "UUIDs and ids of containers": {UUID},
        "addresses": {"10.17.3.9", "http://exporter.acme:9400/metrics"},
        "words in texts": {
            "Mira",
            "Meyer",
            "acme_gpu_level",
            "buildd@zaphod",
            "blender",
            "marvin",
            "trillian",
            "arthur",
        },
    }


def test_it_says_first_what_the_bundle_is() -> None:
    lines = shown(WORLD, "b.tar.gz", 20_480).splitlines()
    assert lines[0] == "b.tar.gz: 20 KiB, made by version 9.9.9"
    assert "Names are kept" in lines[1]
    assert lines[2] == "Moments: 1, 2026-09-21 14:13:20 UTC"
    assert "Lacks the kernel's log: trillian may not read it -> ask arthur" in lines


def test_a_usual_node_fits_a_reader_and_all_is_all() -> None:
    labels = "".join(
        f'x{{pod="pod-{n}",namespace="ns-{n % 7}",UUID="{UUID[:-3]}{n:03}",k="odd{"xyz"[n % 3]}{n}"}} 1\n'
        for n in range(500)
    )
    moment = replace(MOMENT, outputs={"/gpu/metrics": labels.encode()})
    many = replace(WORLD, moments=(moment,) * 25)
    few = shown(many, "b.tar.gz", 1)
    assert len(few.splitlines()) <= 50
    assert "pod-0 to pod-499" in few
    every = shown(many, "b.tar.gz", 1, is_all=True)
    assert all(f"pod-{n}" in every and f"{UUID[:-3]}{n:03}" in every for n in range(500))


def test_terminal_escapes_are_shown_as_such() -> None:
    hostile = replace(
        WORLD, made_by="\x1b[2J", versions={"\x1b[1m": "\x07"}, log=("\x1b]0;owned\x07 \x9bevil",),
        settings={"x\x1b": ("\x1b[31mzaphod",)}, absences=(Absence(what="\x1b", why=Trouble("", "\r\x1b[3m", "")),),
    )  # fmt: skip
    for is_all in (True, False):
        text = shown(hostile, "\x1b.tar.gz", 1, is_all=is_all)
        assert text.replace("\n", "").isprintable()
    assert "\\x9bevil" in text


@given(recording=RECORDINGS)
@settings(max_examples=60)
def test_any_bundle_is_shown(recording: Recording) -> None:
    assert shown(recording, "x", 1, is_all=True).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "body", [b"[" * 5_000, b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\n\xff\xff", b"{", b"\n\x02" * 200]
)
def test_what_is_damaged_within_is_shown(body: bytes) -> None:
    answers = (PeerAnswer(peer="kubelet", name="kubelet", question="v1.PodResourcesLister/List", body=body),)
    assert shown(replace(SMALL, moments=(RecordedMoment(at_seconds=1, answers=answers),)), "x", 1)


@pytest.mark.parametrize("seed", range(10))
def test_no_name_of_a_world_is_passed_over(seed: int) -> None:
    made = world_of(seed)
    there = b"".join(bytes_of(made.recording)).lower()
    text = shown(made.recording, "x", 1, is_all=True).lower()
    words = [word for word in (*made.words, *made.ids) if word.encode() in there]
    assert len(words) > 20
    assert [word for word in words if word not in text] == []


def test_the_command_shows_a_file_and_refuses_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "b.tar.gz"
    with file.open("wb") as opened:
        write(WORLD, opened)
    assert run(["bundle", "show", str(file)]) == 0
    assert capsys.readouterr().out == shown(WORLD, "b.tar.gz", file.stat().st_size)
    file.write_bytes(b"\x1b[31m")
    assert run(["bundle", "show", str(file), "--all"]) == EXIT_FAILED
    ended = capsys.readouterr()
    assert (ended.out, len(ended.err.splitlines())) == ("", 1)
    assert "no .tar.gz" in ended.err
