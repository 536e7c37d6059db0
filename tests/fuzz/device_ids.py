"""Fuzzes the rules for device ids, and owners made of them: any text in, one device or a reason out."""

from exporter.model.devices import Assignment
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.ownership.device_ids import RULES, read_device_id
from exporter.ownership.inventories import read_inventory
from exporter.ownership.owners import Knowledge
from tests.support.owners import build_owners

A, B = (Owner(namespace="ml", pod=pod, container="main") for pod in "ab")
UUID = "GPU-11111111-2222-3333-4444-555555555555"
SUBJECTS = {
    Subject(uuid=UUID, index="0", device="nvidia0"): 3,
    Subject(uuid=UUID, index="0", device="nvidia0", instance="7", profile="1g.10gb"): 3,
    Subject(uuid="GPU-a", index="1", device="nvidia1"): 3,
}
KNOWLEDGE = Knowledge(
    rules=RULES,
    inventory=read_inventory(
        {"gpus": [{"uuid": UUID, "index": 0, "mig": [{"uuid": "MIG-b", "instance_id": 7, "profile": "1g.10gb"}]}]}
    ),
)


def one_input(data: bytes) -> None:
    """Ids, one a line."""
    ids = data.decode("utf-8", "replace").split("\n")[:50]
    assignments = [
        Assignment(owner=(A, B)[number % 2], resource="nvidia.com/gpu", device_id=text)
        for number, text in enumerate(ids)
    ]
    for text in ids:
        ref = read_device_id("nvidia.com/gpu", text)
        if ref is not None:
            assert ref.uuid or ref.mig or ref.device or ref.index, text
            assert not ref.uuid or ref.uuid.removeprefix("GPU-") in text, text
            assert not ref.mig or ref.mig in text, text
    owners = build_owners(assignments, SUBJECTS, KNOWLEDGE)
    assert {match.assignment for match in owners.matches} == set(assignments)
    for match in owners.matches:
        assert bool(match.reason) is not bool(match.samples), match
        if match.samples:
            assert match.key is not None
            assert match.assignment.owner in {holder.owner for holder in owners.of(match.key)}, match
    again = build_owners(list(reversed(assignments)), SUBJECTS, KNOWLEDGE)
    assert set(again.matches) == set(owners.matches), "the order of the kubelet's list makes a difference"
