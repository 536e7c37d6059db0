"""What doctor makes of a look at a node: levels, words, remedies, groups. Pure."""

from dataclasses import replace

import pytest

from exporter.errors import Trouble
from exporter.model.devices import (
    Assignment,
    Claim,
    DeviceKey,
    Holder,
    Inventory,
    InventoryGpu,
    MigInstance,
    Owners,
)
from exporter.model.driver import DeviceFile, Refusal
from exporter.model.health import HealthReason
from exporter.model.measured import Measured
from exporter.model.pages import JoinedPage, Subject
from exporter.model.pods import Owner
from exporter.model.snapshot import Health, LookContext, Snapshot
from exporter.outputs.diagnosis import Diagnosis, Level, problem, read_report
from exporter.outputs.findings import (
    grouped,
    of_attribution,
    of_device_files,
    of_devices,
    of_other_sources,
    summary,
)
from exporter.ownership.link_errors import reason_of_links
from exporter.ownership.verdicts import verdict_by
from tests.support.owners import build_owners

A = Owner(namespace="ml", pod="train-0", container="main")
B = Owner(namespace="ml", pod="train-1", container="main")


def given(device_id: str, owner: Owner = A, resource: str = "nvidia.com/gpu") -> Assignment:
    return Assignment(owner=owner, resource=resource, device_id=device_id)


def snapshot(
    *assigned: Assignment,
    seen: tuple[Subject, ...] = (),
    context: LookContext | None = None,
    health: dict[str, Health] | None = None,
    age: float | None = 0.5,
) -> Snapshot:
    subjects = dict.fromkeys(seen, 3)
    return Snapshot(
        node="ti",
        owners=build_owners(assigned, subjects),
        joined=JoinedPage(pieces=(), size=0, subjects=subjects, sample_count=3, rejected={}),
        health={"kubelet": Health(up=True), **(health or {})},
        assignments_age_seconds=age,
        context=context or LookContext(resources=("nvidia.com/*",)),
    )


# issue 7, lines 11 and 13: what a source says of its trouble is what doctor says of it
@pytest.mark.parametrize(
    ("health", "says", "remedy"),
    [
        (Health(up=False, trouble=Trouble("permission", "403", "apply rbac.yaml")), "403", "apply rbac.yaml"),
        (Health(), "has not answered yet", "drops packets"),
    ],
)
def test_a_source_that_fails_has_a_remedy(health: Health, says: str, remedy: str) -> None:
    (finding,) = of_other_sources(snapshot(health={"resourceslices": health}))
    assert (finding.level, finding.about, finding.trouble.message) == (Level.WARNING, "resourceslices", says)
    assert remedy in finding.trouble.remedy


# issue 7, line 13
@pytest.mark.parametrize(
    ("found", "says"),
    [
        (snapshot(age=None), "the kubelet has not said which devices containers hold"),
        (snapshot(seen=(Subject(uuid="GPU-1"),)), "no container holds a device"),
        (snapshot(given("GPU-1"), given("x"), seen=(Subject(uuid="GPU-1"),)), "1 of 2 devices attributed"),
        # two containers that share one device by one claim hold one device
        (snapshot(given("GPU-1"), given("GPU-1", B), seen=(Subject(uuid="GPU-1"),)), "1 of 1 devices attributed"),
    ],
)
def test_the_summary_counts_devices(found: Snapshot, says: str) -> None:
    assert summary(found) == says


# issue 7, line 13; line 41 (findings.py): a device is named with its instance, where it is one
def test_devices_that_fare_alike_are_one_finding() -> None:
    found = of_devices(
        snapshot(
            given("MIG-GPU-1/7/0"),
            given("GPU-2"),
            *(given(name, B) for name in ("quantum-1", "quantum-2")),
            seen=(Subject(uuid="GPU-1", instance="7"), Subject(uuid="GPU-2")),
        )
    )
    assert [(finding.level, finding.about, finding.trouble.message) for finding in found] == [
        (Level.OK, "GPU-2 (nvidia.com/gpu, ml/train-0/main)", "GPU-2, 3 samples"),
        (Level.OK, "MIG-GPU-1/7/0 (nvidia.com/gpu, ml/train-0/main)", "GPU-1 instance 7, 3 samples"),
        (Level.PROBLEM, "2 devices", "the form of this device id is not known"),
    ]
    assert [name.split()[0] for name in found[2].devices] == ["quantum-1", "quantum-2"]


def test_an_owner_that_the_page_names_counts_as_often_as_it_names_it() -> None:
    named = Subject(uuid="GPU-1", instance="7", came_with=A)
    both = (given("MIG-a"), given("MIG-b"))
    assert summary(snapshot(*both, seen=(named,))) == "0 of 2 devices attributed"
    assert summary(snapshot(given("MIG-a"), seen=(named,))) == "1 of 1 devices attributed"
    assert summary(snapshot(*both, seen=(named, Subject(uuid="GPU-1", instance="8", came_with=A)))).startswith("2 of 2")
    # a device that the kubelet gave to another is not this one's, whatever the page says
    taken = (given("MIG-a"), given("GPU-1", B))
    assert summary(snapshot(*taken, seen=(named,))) == "1 of 2 devices attributed"


# issue 7, line 12
def test_claims_left_out_are_problems_and_other_resources_warnings() -> None:
    claim = Claim(namespace="ml", name="one", driver="gpu.nvidia.com", pool="p", device="gpu-0")
    by_claim = Assignment(owner=A, resource=claim.driver, device_id=claim.device_id, claim=claim)
    outside = (by_claim, given("0000:c1:00.0", B, "amd.com/gpu"))
    seen = snapshot(context=LookContext(resources=("nvidia.com/*",), outside=outside, follows_claims=False))
    assert summary(seen) == "0 of 1 devices attributed"
    assert [(finding.level, finding.trouble.message.partition(",")[0]) for finding in of_devices(seen)] == [
        (Level.PROBLEM, "a DRA claim holds this device"),
        (Level.WARNING, "resource amd.com/gpu is outside --resources (nvidia.com/*)"),
    ]
    # the claim is no reason to look at --resources
    assert list(of_attribution(seen)) == []
    nothing_else = snapshot(context=LookContext(resources=("nvidia.com/*",), outside=outside[1:]))
    assert [finding.level for finding in of_attribution(nothing_else)] == [Level.PROBLEM]


def test_a_holder_of_units_holds_no_missing_device() -> None:
    units = Assignment(owner=A, resource="tencent.com/vcuda-core", device_id="tencent.com/vcuda-core-3", units=50)
    context = LookContext(resources=("nvidia.com/*",), outside=(given("0000:c1:00.0", B, "example.com/nic"),))
    seen = snapshot(units, seen=(Subject(uuid="GPU-1"),), context=context)
    assert summary(seen) == "no container holds a device by its name; some hold units of GPUs"
    assert list(of_attribution(seen)) == []
    found, _ = of_devices(seen)
    assert found.level is Level.WARNING
    assert found.about.startswith("50 of tencent.com/vcuda-core (")
    assert "--nvml.mode" in found.trouble.remedy
    measured, _ = of_devices(replace(seen, measured=Measured()))
    assert measured.level is Level.OK
    assert summary(snapshot(units, given("GPU-1"), seen=(Subject(uuid="GPU-1"),))) == "1 of 1 devices attributed"


# issue 30, line 15
def test_devices_that_are_not_ok_are_warnings_with_what_to_do() -> None:
    lost = HealthReason("fell-off-bus", "Xid 79 (GPU has fallen off the bus)", "restart the node", "gone")
    unread = HealthReason("unread", "no source has read it", "look at the sources", "unknown")
    verdicts = {
        DeviceKey(uuid="GPU-1"): verdict_by([lost, unread]),
        DeviceKey(uuid="GPU-2"): verdict_by([unread]),
        DeviceKey(uuid="GPU-3"): verdict_by([]),
    }
    (finding,) = of_devices(replace(snapshot(), verdicts=verdicts))
    assert (finding.level, finding.about, finding.trouble.remedy) == (Level.WARNING, "GPU-1", "restart the node")
    assert finding.trouble.message == "this device is gone: Xid 79 (GPU has fallen off the bus)"
    held = Owners(holders={DeviceKey(uuid="GPU-1"): (Holder(owner=A, resource="r", shared=False),)})
    (finding,) = of_devices(replace(snapshot(), verdicts=verdicts, owners=held))
    assert finding.about == "GPU-1 (ml/train-0/main)"


# issue 18, line 1
def test_a_claim_that_two_containers_share_asks_for_their_pods_status() -> None:
    def claimed(container: str, device: str) -> Assignment:
        names = (f"k/c={device}",)
        claim = Claim(namespace="ml", name="two", driver="gpu.nvidia.com", pool="p", device=device, cdi_names=names)
        owner = Owner(namespace="ml", pod="pair-0", container=container)
        return Assignment(owner=owner, resource=claim.driver, device_id=claim.device_id, claim=claim)

    def of_claims(seen: Snapshot) -> list[str]:
        return [finding.about for finding in of_devices(seen) if finding.about.startswith("claim ")]

    whole = [claimed(container, device) for container in ("main", "side") for device in ("gpu-1", "gpu-6")]
    assert of_claims(snapshot(*whole)) == ["claim two (ml/pair-0)"]
    assert of_claims(snapshot(*whole[:2])) == []
    assert of_claims(snapshot(whole[0], whole[2])) == []
    pods = Health(up=True)
    assert of_claims(replace(snapshot(*whole), health={"pods": pods})) == []


@pytest.mark.parametrize(
    ("slices_up", "remedy"),
    [(None, "access to the Kubernetes API"), (False, "mend that first"), (True, "the pod of the driver")],
)
def test_the_remedy_for_an_unresolved_claim_depends_on_the_source(slices_up: bool | None, remedy: str) -> None:
    claim = Claim(namespace="ml", name="one", driver="gpu.nvidia.com", pool="p", device="gpu-0")
    by_claim = Assignment(owner=A, resource=claim.driver, device_id=claim.device_id, claim=claim)
    (finding,) = of_devices(snapshot(by_claim, context=LookContext(slices_up=slices_up)))
    assert remedy in finding.trouble.remedy


def test_a_report_is_the_same_after_its_way_over_json() -> None:
    report = Diagnosis(
        summary="1 of 2 devices attributed",
        findings=grouped(problem(name, "x", "y") for name in ("a", "b")),
    )
    assert read_report(report.as_json()) == report
    assert (report.works(), report.findings[0].devices) == (False, ("a", "b"))


# issue 13, "Device access"
@pytest.mark.parametrize(
    ("refused", "asks_nvml", "levels", "remedy"),
    [
        ("", True, [Level.OK], ""),
        ("mode", True, [Level.OK, Level.WARNING], "run the exporter as root"),
        ("cgroup", True, [Level.OK, Level.WARNING], "device-access --unit NAME"),
        ("security_module", True, [Level.OK, Level.WARNING], "audit log"),
        # nobody needs them where NVML is off
        ("cgroup", False, [Level.OK, Level.OK], "runtimeClassName: nvidia"),
    ],
)
def test_device_files(refused: Refusal, asks_nvml: bool, levels: list[Level], remedy: str) -> None:
    files = (DeviceFile("/dev/nvidia0"), *(DeviceFile(f"/dev/nvidia{number}", refused) for number in (1, 2)))
    found = list(of_device_files(files, asks_nvml=asks_nvml))
    assert [finding.level for finding in found] == levels
    assert found[0].trouble.message == f"the exporter may open {1 if refused else 3} of NVIDIA's 3"
    if refused:
        assert found[1].devices == ("/dev/nvidia1", "/dev/nvidia2")
        assert remedy in found[1].trouble.remedy


def test_device_files_of_which_none_may_be_opened() -> None:
    """Each kind of refusal has a finding of its own, and nothing is well."""
    found = list(
        of_device_files((DeviceFile("/dev/nvidia0", "mode"), DeviceFile("/dev/nvidiactl", "cgroup")), asks_nvml=True)
    )
    assert [(finding.level, finding.about) for finding in found] == [
        (Level.WARNING, "/dev/nvidia0"),
        (Level.WARNING, "/dev/nvidiactl"),
    ]
    (none,) = of_device_files((), asks_nvml=True)
    assert none.level == Level.OK
    assert "exporter cannot ask NVML" in none.trouble.message
    assert "runtimeClassName" in none.trouble.remedy


# issue 15, line 2
@pytest.mark.parametrize(
    ("model", "by_nvml", "is_said"),
    [("NVIDIA H100 80GB HBM3", None, False), ("of next year", None, True), ("of next year", 8, False)],
)
def test_a_cut_gpu_whose_slices_nobody_knows_is_named(model: str, by_nvml: int | None, is_said: bool) -> None:
    look = snapshot(seen=(Subject(uuid="GPU-1", instance="3", profile="1g.10gb", model=model),))
    look = replace(look, inventory=Inventory(gpus=(InventoryGpu(uuid="GPU-1", slices=by_nvml),)))
    assert [finding.about for finding in of_attribution(look) if model in finding.trouble.message] == [
        "accounts"
    ] * is_said


# issue 15, line 26
@pytest.mark.parametrize(
    ("sources", "with_file", "says", "remedy"),
    [
        ((), False, "MIG id and no inventory", "mount /etc/cdi"),
        (("driver",), False, "MIG id and no inventory", "mount /etc/cdi"),
        (("driver", "cdi"), False, "the inventory does not name", "Have the CDI specs written anew"),
        (("driver", "nvml"), False, "NVML does not name", "restart the device plugin"),
        (("file:/x", "driver", "nvml"), True, "NVML does not name", "restart the device plugin"),
        (("file:/x", "driver"), True, "the inventory does not name", "Bring --inventory.file up to date"),
        ((), True, "the inventory does not name", "Bring --inventory.file up to date"),
    ],
)
def test_who_has_an_inventory_is_advised_by_where_it_comes_from(
    sources: tuple[str, ...], with_file: bool, says: str, remedy: str
) -> None:
    look = snapshot(
        given("MIG-x", resource="nvidia.com/mig-1g.10gb"), seen=(Subject(uuid="GPU-1", instance="7"),),
        context=LookContext(resources=("nvidia.com/*",), has_inventory_file=with_file),
    )  # fmt: skip
    mig = tuple(MigInstance(uuid="MIG-y", instance_id="7", sources=(name,)) for name in sources if name == "cdi")
    gpus = (InventoryGpu(uuid="GPU-1", mig=mig, sources=sources),) if sources else ()
    (finding,) = of_devices(replace(look, inventory=Inventory(gpus=gpus)))
    assert finding.trouble.message.startswith(says)
    assert remedy in finding.trouble.remedy


# issue 26, part 1
def test_errors_of_a_link_name_the_gpu_its_holder_and_the_peer() -> None:
    errors = reason_of_links({("replay", "5"): 200}, {"5": "GPU 1"})
    slot = Trouble("", "its slot supports PCIe generation 4, and the card 5", "put it into another slot")
    verdict = verdict_by([errors], "3")._replace(advice=(slot,))
    held = Owners(holders={DeviceKey(uuid="GPU-1"): (Holder(owner=A, resource="r", shared=False),)})
    findings = [*of_devices(replace(snapshot(), verdicts={DeviceKey(uuid="GPU-1"): verdict}, owners=held))]
    assert {finding.about for finding in findings} == {"GPU-1 (GPU 3 of ml/train-0/main)"}
    assert [(finding.level, finding.trouble.message) for finding in findings] == [
        (
            Level.WARNING,
            "this device is degraded: errors of NVLink on link 5 (to GPU 1) within the last hour: 200 replays",
        ),
        (Level.OK, slot.message),
    ]
