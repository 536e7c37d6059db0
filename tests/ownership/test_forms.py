"""Every form of device id, from the kubelet's word to the rows that go out, with sharing copy and device.

One node: GPU 0 whole, GPU 1 cut into two instances of one profile (7, 8) and one of another (2).
"""

import pytest

from exporter.exposition.join import Joiner
from exporter.exposition.lines import SampleLine, read_line
from exporter.model.devices import Assignment, Inventory, InventoryGpu, MigInstance
from exporter.model.pods import Owner
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.owners import Knowledge
from exporter.ownership.sample_rows import Attribution
from tests.support.owners import build_owners

X, Y = "9567a9e7-341e-bb7e-fcf5-788d8caa50f9", "40f717b2-d09e-4a1f-b8e7-0f5ef53b8a9f"
SEVEN, EIGHT, TWO = (f"{number}1111111-2222-5333-8444-555555555555" for number in range(3))
PAGE = f"""
temp{{gpu="0",UUID="GPU-{X}",device="nvidia0"}} 40
temp{{gpu="1",UUID="GPU-{Y}",device="nvidia1"}} 41
temp{{gpu="1",UUID="GPU-{Y}",device="nvidia1",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"}} 41
temp{{gpu="1",UUID="GPU-{Y}",device="nvidia1",GPU_I_PROFILE="1g.10gb",GPU_I_ID="8"}} 41
temp{{gpu="1",UUID="GPU-{Y}",device="nvidia1",GPU_I_PROFILE="3g.40gb",GPU_I_ID="2"}} 41
temp{{cpu="0"}} 50
""".encode()
INVENTORY = Inventory(
    gpus=(
        InventoryGpu(uuid=f"GPU-{X}", index="0"),
        InventoryGpu(
            uuid=f"GPU-{Y}",
            index="1",
            mig=(
                MigInstance(uuid=f"MIG-{SEVEN}", instance_id="7", profile="1g.10gb"),
                MigInstance(uuid=f"MIG-{EIGHT}", instance_id="8", profile="1g.10gb"),
                MigInstance(uuid=f"MIG-{TWO}", instance_id="2", profile="3g.40gb"),
            ),
        ),
    )
)
GPU, SMALL, BIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"


# each: what containers hold, as "pod: resource id"; with an inventory or without; the owned rows as (device, pod),
# with an s after the pod for a share, with --sharing copy and with device
CASES: list[tuple[str, list[str], bool, str, str | None]] = [
    ("bare uuid", [f"a: {GPU} {X}"], False, "0 a", None),
    ("GPU-", [f"a: {GPU} GPU-{X}"], False, "0 a", None),
    ("GPU- with instances", [f"a: {GPU} GPU-{Y}"], False, "1 a, 1/7 a, 1/8 a, 1/2 a", None),
    (":: with a number", [f"a: {GPU}.shared GPU-{X}::3"], False, "0 as", None),
    (":: without a number", [f"a: {GPU}.shared GPU-{X}::"], False, "0 as", None),
    ("bare :: with a number", [f"a: {GPU}.shared {X}::3"], False, "0 as", None),
    ("MIG- with inventory", [f"a: {SMALL} MIG-{EIGHT}"], True, "1/8 a", None),
    ("MIG- share with inventory", [f"a: {SMALL} MIG-{EIGHT}::1"], True, "1/8 as", None),
    ("MIG- single strategy with inventory", [f"a: {GPU} MIG-{SEVEN}"], True, "1/7 a", None),
    ("MIG- unknown to the inventory", [f"a: {BIG} MIG-{X}"], True, "", None),
    ("MIG- without, one of two", [f"a: {SMALL} MIG-{SEVEN}"], False, "", None),
    ("MIG- without, the only one", [f"a: {BIG} MIG-{TWO}"], False, "1/2 a", None),
    ("MIG- without, profile not said", [f"a: {GPU} MIG-{TWO}"], False, "", None),
    ("MIG-GPU-", [f"a: {SMALL} MIG-GPU-{Y}/7/0"], False, "1/7 a", None),
    ("MIG-GPU- malformed gi", [f"a: {SMALL} MIG-GPU-{Y}/xx/0"], False, "", None),
    ("MIG-GPU- without ci", [f"a: {SMALL} MIG-GPU-{Y}/7"], False, "", None),
    ("MIG-GPU- without gi", [f"a: {SMALL} MIG-GPU-{Y}//0"], False, "", None),
    ("MIG-GPU- alone", [f"a: {SMALL} MIG-GPU-{Y}"], False, "", None),
    ("MIG-GPU-x/xx/0", [f"a: {SMALL} MIG-GPU-x/xx/0"], False, "", None),
    ("empty", [f"a: {GPU} "], False, "", None),
    ("nvidiaN", [f"a: {GPU} nvidia0"], False, "0 a", None),
    ("nvidiaN/giM", [f"a: {GPU} nvidia1/gi8"], False, "1/8 a", None),
    ("nvidiaN/vgpuK", [f"a: {GPU} nvidia0/vgpu2"], False, "0 as", None),
    ("nvidiaN/giM/vgpuK", [f"a: {GPU} nvidia1/gi7/vgpu2"], False, "1/7 as", None),
    ("N/vgpu", [f"a: {GPU} 0/vgpu"], False, "0 as", None),
    ("a number that is not there", [f"a: {GPU} nvidia5"], False, "", None),
    ("HAMi, which names no GPU of two", [f"a: {GPU} GPU-{X}-4"], False, "", None),
    ("gpushare, which names no GPU of two", [f"a: aliyun.com/gpu-mem GPU-{X}-_-11"], False, "", None),
    ("two GPUs of two NUMA nodes", [f"a: {GPU} GPU-{X}", f"a: {GPU} GPU-{Y}"], False,
     "0 a, 1 a, 1/7 a, 1/8 a, 1/2 a", None),
    ("several shares in one container", [f"a: {GPU} GPU-{X}::{n}" for n in range(3)], False, "0 as", None),
    ("a GPU shared by three", [f"{pod}: {GPU} GPU-{X}::{n}" for n, pod in enumerate("abc")], False,
     "0 as, 0 bs, 0 cs", ""),
    ("an instance shared by two", [f"{pod}: {SMALL} MIG-{SEVEN}::{n}" for n, pod in enumerate("ab")], True,
     "1/7 as, 1/7 bs", ""),
    ("an unknown form", [f"a: {GPU} quantum-7"], False, "", None),
]  # fmt: skip


def owned_rows(held: list[str], *, with_inventory: bool, sharing: str) -> str:
    assignments = []
    for word in held:
        pod, _, device = word.partition(": ")
        resource, _, device_id = device.partition(" ")
        owner = Owner(namespace="ml", pod=pod, container="main")
        assignments.append(Assignment(owner=owner, resource=resource, device_id=device_id))
    policy = LabelPolicy(sharing=sharing)
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    knowledge = Knowledge(inventory=INVENTORY) if with_inventory else Knowledge()
    body = joiner.join_for(
        [PAGE], lambda subjects: Attribution(build_owners(assignments, subjects, knowledge), policy)
    ).body
    found = []
    samples = [line for line in map(read_line, body.splitlines()) if isinstance(line, SampleLine)]
    for sample in samples:
        labels = {name.decode(): value.decode() for name, value in sample.labels}
        assert len(labels) == len(sample.labels)
        if labels["pod"]:
            device = "/".join(labels[name] for name in ("gpu", "GPU_I_ID") if name in labels)
            found.append(f"{device} {labels['pod']}{'s' * ('gpu_shared' in labels)}")
    assert len(samples) >= 6  # nothing is lost, whoever owns it
    return ", ".join(found)


@pytest.mark.parametrize(
    ("held", "with_inventory", "copy", "device"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_form(held: list[str], with_inventory: bool, copy: str, device: str | None) -> None:
    assert owned_rows(held, with_inventory=with_inventory, sharing="copy") == copy
    assert owned_rows(held, with_inventory=with_inventory, sharing="split") == copy
    assert owned_rows(held, with_inventory=with_inventory, sharing="device") == (copy if device is None else device)
