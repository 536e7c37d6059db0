"""Inventories and rules as users write them, and what is said about a wrong one."""

import re

import pytest

from exporter.model.devices import Assignment, DeviceKey, Inventory, InventoryGpu, MigInstance
from exporter.model.pods import Owner
from exporter.ownership.device_ids import read_device_id, read_rules
from exporter.ownership.inventories import read_inventory
from exporter.ownership.labels import LabelPolicy, SampleLabels
from exporter.ownership.owners import Knowledge
from exporter.reading import Invalid
from tests.support import quick_yaml
from tests.support.owners import build_owners
from tests.support.places import ROOT
from tests.support.simulated import World

A = Owner(namespace="ml", pod="train-0", container="main")


def test_an_inventory() -> None:
    content = quick_yaml.load(
        '{"gpus": [{"uuid": "GPU-1", "index": 0, "mig": [{"uuid": "MIG-1", "instance_id": 3, "profile": "1g.10gb"}]},'
        '{"uuid": "GPU-2", "mig": [{"uuid": "MIG-2", "instance_id": "4"}]}]}'
    )
    assert read_inventory(content) == Inventory(
        gpus=(
            InventoryGpu(uuid="GPU-1", index="0", mig=(MigInstance(uuid="MIG-1", instance_id="3", profile="1g.10gb"),)),
            InventoryGpu(uuid="GPU-2", mig=(MigInstance(uuid="MIG-2", instance_id="4"),)),
        )
    )
    assert len(read_inventory(World(gpus=4, mig=2).inventory()).gpus) == 4
    most = {"uuid": "a" * 256, "index": "007", "mig": [{"uuid": "b", "instance_id": 999_999_999, "profile": ""}]}
    mig = MigInstance(uuid="b", instance_id="999999999")
    assert read_inventory({"gpus": [most]}).gpus == (InventoryGpu(uuid="a" * 256, index="7", mig=(mig,)),)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "None is no mapping; give one with gpus"),
        ([], "a list is no mapping; give one with gpus"),
        ({}, "gpus: it is required"),
        ({"gpus": {}}, "gpus: a mapping is no list"),
        ({"gpus": [1]}, "gpus[0]: 1 is no mapping; give one with uuid"),
        ({"gpus": [{"uuid": 5}]}, "gpus[0].uuid: 5 is no text; give a name"),
        (
            {"gpus": [{"uuid": "a", "idx": 5}]},
            "gpus[0]: the key 'idx' is not known; there are uuid, index, device, mig",
        ),
        ({"gpus": [{"uuid": "a", "device": ""}]}, "gpus[0].device: '' is not allowed; give a name"),
        (
            {"gpus": [{"uuid": "a", "index": -1}]},
            "gpus[0].index: -1 is not allowed; give a whole number from 0 to 999999999",
        ),
        (
            {"gpus": [{"uuid": "a", "index": True}]},
            "gpus[0].index: True is not allowed; give a whole number from 0 to 999999999",
        ),
        (
            {"gpus": [{"uuid": "a", "index": "9" * 5000}]},
            f"gpus[0].index: '{'9' * 79}…' is not allowed; give a whole number from 0 to 999999999",
        ),
        (
            {"gpus": [{"uuid": "a", "index": 1_000_000_000}]},
            "gpus[0].index: 1000000000 is not allowed; give a whole number from 0 to 999999999",
        ),
        (
            {"gpus": [{"uuid": "a", "index": "-1"}]},
            "gpus[0].index: '-1' is not allowed; give a whole number from 0 to 999999999",
        ),
        ({"gpus": [{"uuid": "a" * 257}]}, "gpus[0].uuid: it has 257 characters; give at most 256"),
        (
            {"gpus": [{"uuid": "a", "mig": [{"uuid": "b", "instance_id": 1}]}, {"uuid": "b"}]},
            "'b' is there 2 times; name each GPU and each MIG instance once",
        ),
        ({"gpus": [{"uuid": "a", "mig": [{"uuid": "b"}]}]}, "gpus[0].mig[0].instance_id: it is required"),
        ({"gpus": [{"uuid": "a"}, {"uuid": "a"}]}, "'a' is there 2 times; name each GPU and each MIG instance once"),
    ],
)
def test_a_wrong_inventory(content: object, complaint: str) -> None:
    with pytest.raises(Invalid, match=f"^{re.escape(complaint)}$"):
        read_inventory(content)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "it must hold `devices`"),
        ({"rules": []}, "it must hold `devices`"),
        ({"samples": ["x"]}, "`samples` must hold lists"),
        ({"devices": "x"}, "`devices` must be a list"),
        ({"devices": [{"id": "x"}]}, "devices[0] must hold `resource`"),
        ({"devices": [{"resource": "x", "id": 5}]}, "devices[0]: `resource` and `id` must be texts"),
        ({"devices": [{"resource": "x", "id": "("}]}, "devices[0].id: '(' is no regular expression"),
        ({"devices": [{"resource": "x", "id": ".*"}]}, "devices[0].id: '.*' must name what it finds"),
        (
            {"devices": [{"resource": "x", "id": "(?P<uuid>.)(?P<y>.)"}]},
            "devices[0].id: '(?P<uuid>.)(?P<y>.)' must",
        ),
        ({"samples": {"bus": ["x"]}}, "samples: 'bus' is not known; the parts are address, device"),
        ({"samples": {"uuid": "x"}}, "samples.uuid: 'x' must be a list of label names"),
        ({"samples": {"uuid": ["a b"]}}, "samples.uuid: ['a b'] must be a list of label names"),
    ],
)
def test_wrong_rules(content: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}"):
        read_rules(content)


def test_a_users_rule_comes_first_for_its_resource_alone() -> None:
    rules = read_rules({"devices": [{"resource": "acme.example/*", "id": "(?P<uuid>.+)"}]}).rules
    ref = read_device_id("acme.example/npu", "nvidia0", rules)
    assert ref is not None
    assert (ref.uuid, ref.device) == ("nvidia0", "")
    builtin = read_device_id("nvidia.com/gpu", "nvidia0", rules)
    assert builtin is not None
    assert (builtin.uuid, builtin.device) == ("", "nvidia0")


def test_a_label_that_a_user_names_is_looked_at_first() -> None:
    labels = read_rules({"samples": {"device": ["dev_file"], "index": ["gpu_uuid"]}}).sample_labels
    assert labels == SampleLabels(device=("dev_file", "device"), index=("gpu_uuid", "gpu"), uuid=("UUID", "uuid"))


# issue 7, line 40
@pytest.mark.parametrize(
    ("name", "resource", "device_id", "labels", "gpu"),
    [
        # xpumd's labels, and those that AMD's exporter has today
        ("intel", "gpu.intel.com/xe", "card1-0",
         {"hw_id": "GPU-0", "pci_bdf": "0000:4d:00.0"}, {"uuid": "0000:4d:00.0", "device": "card1"}),
        ("amd", "amd.com/gpu", "0000:c1:00.0",
         {"gpu_id": "2", "gpu_uuid": "72ff740f-0000-1000-804c-3b58bf67050e"},
         {"uuid": "72ff740f-0000-1000-804c-3b58bf67050e", "device": "0000:c1:00.0"}),
    ],
)  # fmt: skip
def test_a_name_that_no_sample_knows_is_looked_up_in_the_inventory(
    name: str, resource: str, device_id: str, labels: dict[str, str], gpu: dict[str, str]
) -> None:
    rules = read_rules(quick_yaml.load((ROOT / "exporter" / "config" / "device_rules" / f"{name}.yaml").read_text()))
    policy = LabelPolicy(sample_labels=rules.sample_labels)
    subject, another = policy.read_subject(labels), policy.read_subject({**dict.fromkeys(labels, "other")})
    assignment = Assignment(owner=A, resource=resource, device_id=device_id)
    knowledge = Knowledge(rules=rules.rules, inventory=read_inventory({"gpus": [gpu]}))
    owners = build_owners([assignment], {subject: 1, another: 1}, knowledge)
    assert [holder.owner for holder in owners.of(subject.key)] == [A]
    assert owners.of(another.key) == ()
    without = build_owners([assignment], {subject: 1, another: 1}, Knowledge(rules=rules.rules))
    assert without.of(subject.key) == ()


@pytest.mark.parametrize(
    ("name", "resource", "device_id", "labels"),
    [
        ("amd", "amd.com/gpu", "0000:c1:00.0",
         {"gpu_id": "2", "gpu_uuid": "72ff740f-0000-1000-804c-3b58bf67050e", "pcie_bus_id": "0000:c1:00.0"}),
        ("amd", "amd.com/gpu", "72ff740f-0000-1000-804c-3b58bf67050e",
         {"gpu_id": "2", "gpu_uuid": "72ff740f-0000-1000-804c-3b58bf67050e"}),
        ("intel", "gpu.intel.com/i915", "card1-0",
         {"uuid": "00000000-0000-0000-0000-020a00000029", "dev_file": "card1", "pci_bdf": "0000:4d:00.0"}),
        ("intel", "gpu.intel.com/xe", "card1-3", {"dev_file": "card1"}),
    ],
)  # fmt: skip
def test_the_rules_that_are_shipped(name: str, resource: str, device_id: str, labels: dict[str, str]) -> None:
    rules = read_rules(quick_yaml.load((ROOT / "exporter" / "config" / "device_rules" / f"{name}.yaml").read_text()))
    policy = LabelPolicy(sample_labels=rules.sample_labels)
    subject, another = policy.read_subject(labels), policy.read_subject({**dict.fromkeys(labels, "other")})
    assignment = Assignment(owner=A, resource=resource, device_id=device_id)
    owners = build_owners([assignment], {subject: 1, another: 1}, Knowledge(rules=rules.rules))
    assert [holder.owner for holder in owners.of(subject.key)] == [A]
    assert owners.of(another.key) == ()
    assert owners.of(DeviceKey(uuid="")) == ()
