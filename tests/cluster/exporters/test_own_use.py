"""What an exporter says is measured of a container."""

import json
from typing import Any

import pytest

from exporter.cluster.exporters.node_answer import read_answer
from exporter.errors import Malformed
from exporter.model.cluster_view import HeldDevice
from exporter.model.device_row import OwnUse
from exporter.model.node_answers import OWN_FAMILIES
from exporter.outputs.device_rows import METRICS_TO_ASK

ROW = {
    "node_name": "n",
    "model_name": "NVIDIA H100",
    "device_id": "3",
    "device_uuid": "GPU-1",
    "namespace": "ml",
    "pod": "a",
    "container": "main",
    "gpu_shared": True,
    "gpu_utilization": 90,
}


def device(**more: Any) -> HeldDevice:
    work = read_answer(json.dumps([{**ROW, **more}]).encode(), "n")
    while True:
        try:
            next(work)
        except StopIteration as ended:
            (found,) = ended.value.devices
            assert isinstance(found, HeldDevice)
            return found


def test_it_is_the_containers_own_by_the_families_names() -> None:
    found = device(measured={"memory_used_bytes": 2**30, "utilization_ratio": 0.25, "processes": 2, "later": "x"})
    assert found.row.measured == OwnUse(memory_used_bytes=2**30, utilization_ratio=0.25, processes=2)
    assert found.row.gpu_utilization == 90
    assert {*OWN_FAMILIES.values()} < {*METRICS_TO_ASK}
    assert (found.row.model_name, found.row.device_id) == ("NVIDIA H100", "3")


@pytest.mark.parametrize("more", [{}, {"measured": None}, {"measured": {}}, {"measured": {"processes": None}}])
def test_what_is_not_measured_is_not_known(more: dict[str, Any]) -> None:
    found = device(**more)
    assert found.row.gpu_utilization == 90
    assert found.row.measured in (None, OwnUse())


@pytest.mark.parametrize(
    "measured", [[], "x", 3, {"processes": "2"}, {"processes": True}, {"processes": -1}, {"utilization_ratio": 1e301}]
)
def test_nonsense_is_refused(measured: object) -> None:
    with pytest.raises(Malformed):
        device(measured=measured)
