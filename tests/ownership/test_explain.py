"""Why an id has no device: what the page for people and doctor say of a MIG instance that nothing resolves."""

import pytest

from exporter.errors import Trouble
from exporter.model.devices import Assignment, Inventory, InventoryDoubt, InventoryGpu, MigInstance
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.model.snapshot import LookContext
from exporter.ownership import explain
from exporter.ownership.explain import Explainer
from exporter.ownership.owners import Knowledge, Unmatched
from tests.support.owners import build_owners

A = Owner(namespace="ml", pod="train-0", container="main")
CUT = InventoryGpu(uuid="GPU-1", index="0", mig=(MigInstance(uuid="MIG-a", instance_id="7"),), sources=("cdi",))
WHOLE = InventoryGpu(uuid="GPU-2", index="1", sources=("cdi",))
BY_NVML = InventoryGpu(uuid="GPU-3", index="2", sources=("driver", "nvml"))
ODD = InventoryDoubt(trouble=Trouble("", "two files differ", "write one anew"), leaves_out=frozenset({"MIG-x"}))


@pytest.mark.parametrize(
    ("inventory", "has_file", "why"),
    [
        (Inventory(), False, explain._NO_INVENTORY),
        (Inventory(gpus=(WHOLE,)), False, explain._NO_INVENTORY),
        (Inventory(gpus=(WHOLE, CUT)), False, explain._SPECS_LACK_IT),
        (Inventory(gpus=(WHOLE, CUT)), True, explain._FILE_LACKS_IT),
        (Inventory(gpus=(WHOLE, BY_NVML)), True, explain._NVML_LACKS_IT),
        (
            Inventory(gpus=(BY_NVML,), doubts=(ODD,)),
            True,
            Trouble("", "the inventory leaves this MIG instance out: two files differ", "write one anew"),
        ),
    ],
)
def test_an_unresolved_mig_instance_is_explained(inventory: Inventory, has_file: bool, why: Trouble) -> None:
    held = Assignment(owner=A, resource="nvidia.com/mig-1g.10gb", device_id="MIG-x")
    seen = {Subject(uuid="GPU-1", index="0"): 3}
    owners = build_owners([held], seen, Knowledge(inventory=inventory))
    context = LookContext(has_inventory_file=has_file)
    (match,) = owners.matches
    assert match.reason == Unmatched.MIG_UNRESOLVED
    assert Explainer(owners, seen, context, inventory, kubelet_answered=True).assigned(match) == why
