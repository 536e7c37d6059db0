"""The page of a node with NPUs, against the one that was made of npu-exporter's source."""

import re

import pytest

from exporter.simulator.allocators import Ascend, given
from tests.simulator.test_node import Time, families
from tests.support.places import ROOT
from tests.support.simulated import SimulatedDcgm, World

_SHAPE = re.compile(r'^(\w+\{(?:\w+="[^"]*",?)+\}) \S+ \d{13}$')


def heads(page: str) -> list[str]:
    return sorted(line for line in page.splitlines() if line.startswith("#"))


def label_names(page: str) -> set[str]:
    return set(re.findall(r'(\w+)="', page))


def test_the_page_has_npu_exporters_families_and_labels() -> None:
    real = (ROOT / "tests/data/vendors/huawei.prom").read_text()
    page = SimulatedDcgm(World(gpus=2, allocator=Ascend())).page()
    assert heads(page) == heads(real)
    assert label_names(page) == label_names(real)
    samples = [line for line in page.splitlines() if not line.startswith("#")]
    assert samples[0] == "machine_npu_nums 2"
    assert all(_SHAPE.match(line) for line in samples[1:])
    assert re.search(r'vdie_id="[0-9A-F]{8}(-[0-9A-F]{8}){4}"', page)


def test_an_npu_has_values_of_its_board_and_the_name_of_its_holder() -> None:
    time = Time()
    world = World(gpus=8, allocator=Ascend(), clock=time, seed=3)
    time.sleep(300)
    page = re.sub(r" \d{13}$", "", SimulatedDcgm(world).page(), flags=re.MULTILINE)
    holders = {part.uuid: pod for (_, pod, _), parts in given(world.pods).items() for part in parts}
    assert holders
    busy = families(page)["npu_chip_info_utilization"]
    assert len(busy) == 8
    for labels, value in busy.items():
        vdie_id = re.findall(r'vdie_id="([^"]+)"', labels)[0]
        assert f'pod_name="{holders.get(vdie_id, "")}"' in labels
        assert float(value) == pytest.approx(world.machine.boards[vdie_id].activity * 100, abs=0.5)
        assert vdie_id in holders or float(value) == 0
