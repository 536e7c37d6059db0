"""What is kept while claims come and go: it is that of a new start, and one claim is worked on, not all."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter._gen import podresources_v1_pb2 as v1
from exporter.exposition import plain_block
from exporter.exposition.join import Joiner
from exporter.model.devices import Assignment, CdiPlace, Inventory, InventoryGpu, MigInstance
from exporter.ownership import owners as of_owners
from exporter.ownership.current import CurrentOwners
from exporter.ownership.inventories import CdiDevice, CutPlace, inventory_of
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from exporter.sources import node_inventory
from exporter.sources.kubelet import pod_resources
from exporter.sources.kubelet.pod_resources import ListReader, parse
from exporter.sources.node_inventory import Inventories, NoInventory

CLAIMS = 40
GPUS = tuple(InventoryGpu(uuid=f"GPU-{number}", device=f"nvidia{number}") for number in range(4))
FAMILIES = ("DCGM_FI_DEV_FB_USED",)
PAGE = "".join(
    f'{family}{{gpu="{at % 4}",UUID="GPU-{at % 4}",GPU_I_ID="{at // 4}",GPU_I_PROFILE="1g.10gb"}} {at}\n'
    for family in FAMILIES
    for at in range(CLAIMS)
).encode()


def cdi_name(claim: int) -> str:
    return f"k8s.gpu.nvidia.com/claim=uid-{claim}-gpu"


def pod(claim: int, *, seconds: bool = False) -> v1.PodResources:
    """A pod with a claim; `seconds`: a second container has it, too."""
    of_claim = v1.DynamicResource(
        claim_name=f"claim-{claim}",
        claim_namespace="ml",
        claim_resources=[
            v1.ClaimResource(
                driver_name="gpu.nvidia.com",
                pool_name="n",
                device_name=f"gpu-{claim}",
                cdi_devices=[v1.CDIDevice(name=cdi_name(claim))],
            )
        ],
    )
    names = ("main", "side")[: 1 + seconds]
    containers = [v1.ContainerResources(name=name, dynamic_resources=[of_claim]) for name in names]
    return v1.PodResources(namespace="ml", name=f"train-{claim}", containers=containers)


def answer(pods: list[v1.PodResources], seed: int = 0) -> bytes:
    """In another order each time, as a kubelet's answers are."""
    shuffled = random.Random(seed).sample(pods, len(pods))
    body: bytes = v1.ListPodResourcesResponse(pod_resources=shuffled).SerializeToString()
    return body


def places_of(claims: list[int]) -> dict[str, CdiPlace | None]:
    """Claim n has the instance n modulo CLAIMS of the page."""
    return {
        cdi_name(claim): CdiPlace(minor=str(claim % CLAIMS % 4), instance=str(claim % CLAIMS // 4)) for claim in claims
    }


def shown(attribution: Attribution, joiner: Joiner) -> bytes:
    return joiner.join([PAGE], attribution).body


claims_at = st.lists(st.integers(0, 2 * CLAIMS), max_size=6, unique=True)
states = st.tuples(
    claims_at,
    claims_at,  # those that two containers have
    claims_at,  # those whose spec is not there, or in doubt
    st.sampled_from((Inventory(gpus=GPUS), Inventory(gpus=GPUS[:2]))),
    st.lists(st.sampled_from(("GPU-0", "GPU-1::0", "GPU-1::1", "MIG-x", "nvidia3")), max_size=3, unique=True),
)


@pytest.mark.history
@settings(max_examples=50, deadline=None)
@given(st.lists(states, min_size=2, max_size=6))
def test_after_any_changes_everything_is_that_of_a_new_start(history: list[tuple]) -> None:  # type: ignore[type-arg] # as drawn
    policy = LabelPolicy(has_claims=True)

    def new_joiner() -> Joiner:
        return Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)

    reader, current, joiner = ListReader(claims=True), CurrentOwners(policy), new_joiner()
    subjects = new_joiner().join([PAGE], Attribution(current.owners, policy)).subjects
    for seed, (claims, in_two, unclear, inventory, ids) in enumerate(history):
        plugin = v1.ContainerResources(
            name="main", devices=[v1.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=ids)]
        )
        pods = [pod(claim, seconds=claim in in_two) for claim in claims]
        pods.append(v1.PodResources(namespace="ml", name="plain", containers=[plugin]))
        read = reader.read(answer(pods, seed))
        afresh = parse(answer(pods, seed + 1), claims=True)
        assert read == afresh
        places = places_of([claim for claim in claims if claim not in unclear])
        known = Inventory(gpus=inventory.gpus, places=places | dict.fromkeys(map(cdi_name, unclear)))
        attribution = current.update(read.assignments, subjects, inventory=known)
        new = CurrentOwners(policy, places=current.knowledge.places)
        expected = new.update(afresh.assignments, subjects, inventory=known)
        assert current.owners.holders == new.owners.holders
        assert current.owners.matches == new.owners.matches
        assert shown(attribution, joiner) == shown(expected, new_joiner())


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often what a claim costs was done."""
    done: Counter[str] = Counter()

    def count(where: object, name: str) -> None:
        real: Callable[..., object] = getattr(where, name)

        def counted(*given: object, **named: object) -> object:
            done[name] += 1
            return real(*given, **named)

        monkeypatch.setattr(where, name, counted)

    count(pod_resources, "Assignment")
    count(of_owners, "read_assignment")
    count(Attribution, "_rows")
    count(plain_block, "render_labels")
    count(node_inventory, "put_together")
    return done


def test_a_claim_that_comes_for_another_one_is_the_only_one_worked_on(work: Counter[str]) -> None:
    policy = LabelPolicy()
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    reader, current, driver, specs = ListReader(claims=True), CurrentOwners(policy), NoInventory(), NoInventory()
    driver.inventory = Inventory(gpus=GPUS)
    node = Inventories((driver, specs))

    def look(claims: list[int]) -> bytes:
        devices = [
            CdiDevice(uuid="", minors=frozenset({claim % CLAIMS % 4}), caps=frozenset({claim % CLAIMS}), name=name)
            for claim in claims
            for name in [cdi_name(claim)]
        ]
        caps = {at: CutPlace(at % 4, at // 4) for at in range(CLAIMS)}
        specs.inventory = inventory_of({"spec": devices}, caps)
        read = reader.read(answer([pod(claim) for claim in claims], claims[0]))
        joined = joiner.join_for(
            [PAGE], lambda subjects: current.update(read.assignments, subjects, inventory=node.inventory)
        )
        return joined.body

    look(list(range(CLAIMS)))
    assert work == dict.fromkeys(("Assignment", "read_assignment", "_rows", "render_labels"), CLAIMS) | {
        "put_together": 1
    }
    work.clear()
    page = look([*range(1, CLAIMS), CLAIMS])
    assert work == dict.fromkeys(("Assignment", "read_assignment", "_rows", "render_labels"), 1)
    assert page.count(b'pod="train-40"') == len(FAMILIES)
    assert b'pod="train-0"' not in page


def test_a_new_instance_puts_the_inventory_together_anew(work: Counter[str]) -> None:
    part = NoInventory()
    node = Inventories((part,))
    part.inventory = Inventory(gpus=GPUS)
    assert not node.inventory.gpus[0].mig
    mig = MigInstance(uuid="MIG-1", instance_id="7")
    part.inventory = Inventory(gpus=(InventoryGpu(uuid="GPU-0", device="nvidia0", mig=(mig,)), *GPUS[1:]))
    assert [instance.uuid for instance in node.inventory.gpus[0].mig] == ["MIG-1"]
    assert work["put_together"] == 2


def test_pods_that_are_gone_are_not_kept() -> None:
    reader = ListReader(claims=True)
    first = {each.owner.pod: each for each in reader.read(answer([pod(1), pod(2)])).assignments}
    again = {each.owner.pod: each for each in reader.read(answer([pod(2), pod(3)])).assignments}
    assert again["train-2"] is first["train-2"]
    back: frozenset[Assignment] = reader.read(answer([pod(1), pod(2)])).assignments
    assert {each.owner.pod: each for each in back}["train-1"] is not first["train-1"]
