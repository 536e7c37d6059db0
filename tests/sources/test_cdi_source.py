"""The CDI specs of a node: files that come, change, go and mean harm."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from exporter.model.snapshot import Health
from exporter.simulator import driver_files
from exporter.sources.cdi import cdi_source as cdi
from exporter.sources.cdi import specs as cdi_specs
from exporter.sources.cdi.cdi_source import CdiInventory
from exporter.sources.cdi.specs import MOST_BYTES, SpecsReading, read
from exporter.sources.source import is_absent
from tests.support.places import ROOT
from tests.support.simulated import World
from tests.support.waiting import until

NONE = SpecsReading(files={})
GPU = "GPU-{:08d}-3897-f599-d088-ccd04ae45ec1".format
MIG = "MIG-{:08d}-a75d-5afc-978f-d2f1294409fd".format


def spec(*uuids: str, node: str = "/dev/nvidia0") -> str:
    devices = [{"name": uuid, "containerEdits": {"deviceNodes": [{"path": node}]}} for uuid in uuids]
    return json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices})


def in_yaml(*uuids: str) -> str:
    node = "      containerEdits:\n        deviceNodes:\n          - path: /dev/nvidia0\n"
    return "kind: nvidia.com/gpu\ndevices:\n" + "".join(f"    - name: {uuid}\n{node}" for uuid in uuids)


def look(folders: tuple[str, ...], before: SpecsReading, most: int = 100) -> SpecsReading:
    return read(folders, "/nonexistent", before, most)


def uuids(specs: SpecsReading) -> dict[str, list[str]]:
    return {Path(path).name: [device.uuid for device in of.devices] for path, of in specs.files.items()}


def refused(specs: SpecsReading) -> dict[str, str]:
    return {Path(path).name: of.refused for path, of in specs.files.items() if of.refused}


def test_both_folders_and_both_forms(tmp_path: Path) -> None:
    etc, run = tmp_path / "etc", tmp_path / "run"
    folders = (str(etc), str(run))
    assert look(folders, NONE) is NONE
    etc.mkdir()
    run.mkdir()
    assert look(folders, NONE) is NONE
    (etc / "nvidia.yaml").write_text("---\n" + in_yaml(GPU(0), MIG(0)))
    (run / "k8s.device-plugin.nvidia.com-gpu.json").write_text(spec(GPU(1)))
    (run / "flow.yaml").write_text("# of a program\n{kind: x/y, devices: []}")
    for other in ("spec.12345.tmp", "nvidia.yml", "README", "nvidia.json~", "un\x07printable.json"):
        (run / other).write_text(spec(GPU(2)))
    (run / "folder.json").mkdir()
    specs = look(folders, NONE)
    assert uuids(specs) == {
        "nvidia.yaml": [GPU(0), MIG(0)],
        "flow.yaml": [],
        "folder.json": [],
        "k8s.device-plugin.nvidia.com-gpu.json": [GPU(1)],
    }
    assert refused(specs) == {"folder.json": "it is a directory, not a file"}


def test_only_what_has_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        (tmp_path / f"{name}.json").write_text(spec(GPU(0)))
    first = look((str(tmp_path),), NONE)
    opened: list[str] = []

    def text(path: str) -> str:
        opened.append(Path(path).name)
        return Path(path).read_text()

    monkeypatch.setattr(cdi_specs, "_text", text)
    assert look((str(tmp_path),), first) is first
    assert opened == []
    (tmp_path / "b.json").write_text(spec(GPU(1), GPU(2)))
    second = look((str(tmp_path),), first)
    assert (opened, uuids(second)) == (["b.json"], {"a.json": [GPU(0)], "b.json": [GPU(1), GPU(2)]})
    (tmp_path / "a.json").unlink()
    assert uuids(look((str(tmp_path),), second)) == {"b.json": [GPU(1), GPU(2)]}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "it is empty"),
        ("[]", "it has no list `devices`"),
        ("root:x:0:0:root:/root:/bin/bash", "no list `devices`"),
        ('{"devices": [', "expected"),
        ('{"devices": [], "devices": []}', "the key 'devices' is there twice"),
        ("devices: &a [*a]", "an anchor or an alias"),
        ("devices: !!python/object/apply:os.abort []", "a tag"),
        ('{"devices":' * 50_000, "nest"),
        ("[" * 100_000, "nest"),
        ("x" * (MOST_BYTES + 1), f"more than {MOST_BYTES} bytes"),
        (b"\xff\xfe", "utf-8"),
        ('{"devices": [], "a": ' + "9" * 5000 + "}", "integer string conversion"),
    ],
    ids=lambda content: repr(content[:30]),
)
def test_a_bad_file_is_refused_and_what_it_said_last_counts(
    tmp_path: Path, content: str | bytes, complaint: str
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(in_yaml(GPU(0)))
    (tmp_path / "b.json").write_text(spec(GPU(1)))
    good = look((str(tmp_path),), NONE)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    bad = look((str(tmp_path),), good)
    assert uuids(bad) == {"a.yaml": [GPU(0)], "b.json": [GPU(1)]}
    assert complaint in refused(bad)["a.yaml"]
    assert "\n" not in refused(bad)["a.yaml"]
    assert look((str(tmp_path),), bad) is bad, "it is not read again"
    assert uuids(look((str(tmp_path),), NONE))["a.yaml"] == []
    path.write_text(in_yaml(GPU(2)))
    assert refused(look((str(tmp_path),), bad)) == {}


def test_what_is_no_file_is_refused_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "device.json").symlink_to("/dev/zero")
    (tmp_path / "dangling.json").symlink_to(tmp_path / "nowhere")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s.json"))
        specs = look((str(tmp_path),), NONE)
    assert refused(specs)["fifo.json"] == "it is a FIFO, not a file"
    assert set(refused(specs)) == {"fifo.json", "s.json"}
    assert set(uuids(specs)) == {"fifo.json", "s.json"}


def test_a_link_is_followed_inside_its_folder_alone(tmp_path: Path) -> None:
    folder, outside = tmp_path / "cdi", tmp_path / "cdi-not"
    for each in (folder, folder / "..data", outside):
        each.mkdir()
    (folder / "..data" / "in.json").write_text(spec(GPU(0)))
    (outside / "secret.json").write_text(spec(GPU(1)))
    (folder / "inside.json").symlink_to("..data/in.json")
    (folder / "outside.json").symlink_to("../cdi-not/secret.json")
    (folder / "passwd.json").symlink_to("/etc/passwd")
    assert uuids(look((str(folder),), NONE)) == {"inside.json": [GPU(0)]}
    # the folder itself may be a link, as /var/run is
    (tmp_path / "link").symlink_to(folder)
    assert uuids(look((str(tmp_path / "link"),), NONE)) == {"inside.json": [GPU(0)]}


def test_no_more_files_and_devices_than_the_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdi_specs, "MOST_FILES", 3)
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(spec(GPU(number), GPU(10 + number)))
    specs = look((str(tmp_path),), NONE, 4)
    assert [len(of) for of in uuids(specs).values()] == [2, 2, 0]
    assert "too many" in refused(specs)["2.json"]
    assert specs.devices == 4
    monkeypatch.setattr(cdi_specs, "MOST_BYTES_TOGETHER", 2 * (tmp_path / "0.json").stat().st_size)
    specs = look((str(tmp_path),), NONE)
    assert [len(of) for of in uuids(specs).values()] == [2, 2, 0]
    assert "all specs together have more than" in refused(specs)["2.json"]
    (tmp_path / "0.json").write_text(spec())
    specs = look((str(tmp_path),), specs)
    assert [len(of) for of in uuids(specs).values()] == [0, 2, 0]
    (tmp_path / "1.json").write_text(spec())
    assert [len(of) for of in uuids(look((str(tmp_path),), specs)).values()] == [0, 0, 2]
    for number in range(3, 9):
        (tmp_path / f"{number}.json").write_text(spec())
    specs = look((str(tmp_path),), NONE)
    assert (len(specs.files), specs.wrong) == (3, (f"{tmp_path} has more than 3 specs: some are left out",))


def test_a_folder_that_cannot_be_read_leaves_what_was_known(tmp_path: Path) -> None:
    folder = tmp_path / "cdi"
    folder.mkdir()
    (folder / "a.json").write_text(spec(GPU(0)))
    known = look((str(folder),), NONE)
    folder.rename(tmp_path / "away")
    folder.write_text("no folder")
    gone = look((str(folder),), known)
    assert gone.wrong == (f"{folder} cannot be read: Not a directory",)


def test_json_alone_needs_no_yaml(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(spec(GPU(0)))
    code = f"""
import sys
from exporter.sources.cdi.specs import read
assert read(({str(tmp_path)!r},), "/nonexistent", None, 9).devices == 1
assert "yaml" not in sys.modules
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


class Followed:
    """A source that looks all the time, on a root of its own, with the healths that it told."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.healths: list[Health] = []
        self.source = CdiInventory(
            folders=tuple(f"{root}{folder}" for folder in cdi.FOLDERS),
            minors=f"{root}{cdi.MINORS}",
            on_health=lambda _, health: self.healths.append(health),
            again_seconds=0.01,
        )

    async def begin(self) -> None:
        first = self.source.begin()
        assert first is not None
        assert self.source.begin() is first
        await first
        assert self.source.begin() is None, "no later look is waited for"

    def places(self) -> dict[str, tuple[str, str]]:
        return {mig.uuid: (gpu.device, mig.instance_id) for gpu in self.source.inventory.gpus for mig in gpu.mig}


def expected(world: World) -> dict[str, tuple[str, str]]:
    return {one.device_id: (f"nvidia{gpu.index}", str(one.instance_id)) for gpu in world.gpus for one in gpu.instances}


async def test_a_node_from_nothing_to_a_new_cut_and_back(tmp_path: Path) -> None:
    seen = Followed(tmp_path)
    await seen.begin()
    source: Any = seen.source
    assert (is_absent(source.health), source.inventory.gpus, seen.healths) == (True, (), [])
    world = World(gpus=4, mig=2, seed=3)
    driver_files.write_spec(tmp_path, world.gpus)
    await until(lambda: seen.healths)
    health = source.health
    assert (health.up, health.reason) == (True, "missing"), "no list of capabilities yet"
    assert "mig-minors does not list" in health.message
    assert seen.places() == {}
    minors = Path(f"{tmp_path}{cdi.MINORS}")
    minors.parent.mkdir(parents=True)
    minors.write_text(driver_files.mig_minors())
    await until(seen.places)
    assert seen.places() == expected(world)
    assert (source.health.up, source.health.trouble) == (True, None)
    known, last_success = source.inventory, source.health.last_success_at_seconds
    await until(lambda: source.health.last_success_at_seconds > last_success)
    assert source.inventory is known, "the same object as long as nothing changed"
    assert {health.reason for health in seen.healths} == {"missing", ""}

    world.recut(world.gpus[3], ["3g.40gb", "2g.20gb", "1g.10gb"])
    driver_files.write_spec(tmp_path, world.gpus)
    await until(lambda: seen.places() == expected(world))
    (tmp_path / driver_files.CDI_SPEC).write_text("devices: *a")
    await until(lambda: source.health.up is False)
    assert source.health.reason == "garbage"
    assert "nvidia.yaml is refused: " in source.health.message
    assert seen.places() == expected(world), "the last good content counts"
    (tmp_path / driver_files.CDI_SPEC).unlink()
    await until(lambda: not seen.places())
    assert is_absent(source.health)
    await source.close()
    driver_files.write_spec(tmp_path, world.gpus)
    await asyncio.sleep(0.1)
    assert seen.places() == {}, "nobody looks any more"
