"""Pages of all vendors: facts of hardware stay, and names go."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from exporter.bundle.names.replacing import replaced
from exporter.bundle.recording import PeerAnswer, RecordedMoment, Recording
from tests.support.places import DATA

PAGES = sorted((*(DATA / "pages").glob("*.prom"), *(DATA / "vendors").glob("*.prom")))
LABEL = re.compile(r'(\w+)="((?:[^"\\\\]|\\\\.)*)"')
NAMES = re.compile(
    r"gpu-node|trainer-a|tw038|from-dcgm|by-dcgm|pod-of-dcgm|subnet-06a|i-09db|6922510011|6924090054|AN0|SN-0|us-east"
)
FACTS = [
    "modelName",
    "model_name",
    "device",
    "gpu",
    "GPU_I_ID",
    "GPU_I_PROFILE",
    "pci_bus_id",
    "pci_bdf",
    "pci_dev",
    "dev_file",
    "dev_name",
    "driver_version",
    "DCGM_FI_DRIVER_VERSION",
    "DCGM_FI_SYSTEM_DRIVER_VERSION",
    "card_model",
    "card_series",
    "card_vendor",
    "vbios_version",
    "model",
    "make",
    "vgpu",
    "gpu_compute_partition_type",
    "gpu_memory_partition_type",
    "hw_firmware_version",
    "hw_model",
    "hw_vendor",
    "instance_type",
    "vendor",
    "cpu",
    "tpu_topology",
    "pcie_bus_info",
    "nvlink",
    "nvswitch",
]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_only_names_of_a_real_page_are_replaced(path: Path) -> None:
    body = path.read_bytes()
    answer = PeerAnswer(peer="page", name="page", question="", body=body)
    recording, names = replaced(
        Recording(made_by="1", settings={}, moments=(RecordedMoment(at_seconds=1.0, answers=(answer,)),))
    )
    new = recording.moments[0].answers[0].body
    old_lines = body.decode().splitlines()
    new_lines = new.decode().splitlines()
    seen = defaultdict(set)
    for old_line, new_line in zip(old_lines, new_lines, strict=True):
        assert re.sub(r"\{.*\}", "", old_line) == re.sub(r"\{.*\}", "", new_line)
        for (label, value), (new_label, new_value) in zip(
            LABEL.findall(old_line), LABEL.findall(new_line), strict=True
        ):
            assert label == new_label
            seen[label, value].add(new_value)
            if label in FACTS and not NAMES.search(value):
                assert new_value == value, label
    assert not NAMES.search(new.decode())
    assert all(len(values) == 1 for values in seen.values())
    uuids = re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", body.decode())
    assert not set(uuids) & set(re.findall(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", new.decode()))
    assert bool(names) == bool(NAMES.search(body.decode()))
