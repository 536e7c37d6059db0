"""One verdict by device, by all that speak of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.dcgm.xids import XIDS
from exporter.errors import Trouble
from exporter.model.devices import DeviceHealth, DeviceKey, Inventory, InventoryGpu, MigInstance, Owners
from exporter.model.driver import DriverReading
from exporter.model.health import MOST_REASONS, VERDICTS, DeviceVerdict, HealthReason, Verdict
from exporter.model.kernel import DeviceEvent, KernelEvent
from exporter.model.pages import JoinedPage, Subject
from exporter.model.pods import Owner
from exporter.model.snapshot import Health, Snapshot
from exporter.ownership.kernel_reasons import DEGRADED_SECONDS, FAILING_SECONDS, reason_of
from exporter.ownership.verdicts import GRACE_SECONDS, MISSING_SECONDS, Verdicts, verdict_by

A = Owner(namespace="ml", pod="train-0", container="main")
GPU, OTHER = "GPU-00000000-0000-0000-0000-000000000000", "GPU-00000001-0000-0000-0000-000000000000"
KEY, INSTANCE = DeviceKey(uuid=GPU), DeviceKey(uuid=GPU, instance="3")
SUBJECT = Subject(uuid=GPU, index="0")
PAGE = JoinedPage(pieces=(), size=0, subjects={SUBJECT: 9}, sample_count=9, rejected={})
EMPTY = replace(PAGE, subjects={Subject(uuid=OTHER, index="1"): 9})
UP, DOWN = Health(up=True), Health(up=False, trouble=Trouble("refused", "nobody listens"))
NOW = 1_000_000.0


def looked(
    joined: JoinedPage | None = PAGE, word: str = "", message: str = "", inventory: Inventory | None = None
) -> Snapshot:
    """A look at a node, and how the kubelet calls its GPU, which A holds."""
    healths = {(KEY, A): DeviceHealth(word=word, message=message)} if word else {}
    return Snapshot(
        node="n",
        owners=Owners(),
        joined=joined,
        health={"dcgm": UP if joined else DOWN},
        assignments_age_seconds=0.0,
        page_sources=("dcgm",),
        inventory=inventory or Inventory(),
        healths=healths,
    )


def error(code: int | None = 79, *, at: float = NOW, **fields: object) -> DeviceEvent:
    event = KernelEvent(kind="xid", sequence=1, booted_us=1, address="0000:65:00.0", code=code, text="text")
    return DeviceEvent(event=replace(event, **fields), at_seconds=at, uuid=GPU)  # type: ignore[arg-type]


def verdict_of(verdicts: Verdicts, snapshot: Snapshot, *errors: DeviceEvent, at: float = NOW) -> DeviceVerdict | None:
    return verdicts.look(snapshot, errors, None, at).get(KEY)


# issue 30, line 13
@pytest.mark.parametrize(
    ("snapshot", "errors", "verdict", "code"),
    [
        (looked(), (), "ok", ""),
        (looked(word="Healthy"), (), "ok", ""),
        (looked(None, word="Healthy", inventory=Inventory(gpus=(InventoryGpu(uuid=GPU),))), (), "ok", ""),
        (looked(None, inventory=Inventory(gpus=(InventoryGpu(uuid=GPU),))), (), "unknown", "unread"),
        (looked(word="Unhealthy", message="Xid 79"), (), "failing", "kubelet"),
        (looked(word="Unknown", message="no news for 30s"), (), "unknown", "kubelet"),
        (looked(word="Unknown"), (), "ok", ""),
        (looked(None, word="Unknown"), (), "unknown", "kubelet"),
        (looked(word="Unknown", message="its device plugin no longer offers it"), (), "unknown", "not-offered"),
        (looked(), (error(31),), "ok", ""),
        (looked(), (error(63),), "degraded", "xid"),
        (looked(), (error(48),), "failing", "xid"),
        (looked(), (error(79),), "gone", "fell-off-bus"),
        (looked(), (error(999),), "degraded", "xid"),
        (looked(), (error(145, severity="nonfatal"),), "degraded", "xid"),
        (looked(), (error(145, severity="fatal"),), "failing", "xid"),
        (looked(), (error(154, text="GPU recovery action changed from 0x0 (None) to 0x1 (Reset)"),), "failing", "xid"),
        (looked(), (error(154, text="GPU recovery action changed from 0x1 (Reset) to 0x0 (None)"),), "ok", ""),
        (looked(), (error(None, kind="lost"),), "gone", "fell-off-bus"),
        (looked(), (error(None, kind="pcie", severity="corrected"),), "ok", ""),
        (looked(), (error(None, kind="pcie", severity="nonfatal"),), "degraded", "pcie"),
        (looked(), (error(None, kind="pcie", severity="fatal"),), "failing", "pcie"),
        (looked(), (error(20034, kind="sxid", severity="fatal"),), "ok", ""),
        (looked(word="Healthy"), (error(48), error(79)), "gone", "fell-off-bus"),
        (looked(word="Unknown", message="no news for 30s"), (error(63),), "unknown", "kubelet"),
    ],
)
def test_what_is_said_of_a_device(snapshot: Snapshot, errors: tuple[DeviceEvent, ...], verdict: str, code: str) -> None:
    seen = verdict_of(Verdicts(), snapshot, *errors)
    assert seen is not None
    assert (seen.verdict, seen.code) == (verdict, code)
    assert all(reason.remedy for reason in seen.reasons)


def test_a_gpu_whose_instances_are_read_is_read() -> None:
    """A page has no row of a GPU that is cut into instances."""
    instances = {Subject(uuid=GPU, index="0", instance=number): 9 for number in ("3", "4")}
    mig = (MigInstance(uuid="MIG-1", instance_id="3"), MigInstance(uuid="MIG-2", instance_id="4"))
    snapshot = looked(replace(PAGE, subjects=instances), inventory=Inventory(gpus=(InventoryGpu(uuid=GPU, mig=mig),)))
    verdicts = Verdicts().look(snapshot, (), None, NOW)
    assert {key.instance: verdict.verdict for key, verdict in verdicts.items()} == {"": "ok", "3": "ok", "4": "ok"}


REASONS = st.builds(
    HealthReason,
    code=st.sampled_from(("xid", "ecc", "kubelet")),
    verdict=st.sampled_from([verdict for verdict in VERDICTS if verdict != "ok"]),
    text=st.text(max_size=3),
    remedy=st.text(max_size=3),
)


@given(reasons=st.lists(REASONS, max_size=20), data=st.data())
def test_the_worst_wins_in_any_order(reasons: list[HealthReason], data: st.DataObject) -> None:
    verdict = verdict_by(reasons)
    assert verdict == verdict_by(data.draw(st.permutations(reasons)))
    worst: Verdict = min((each.verdict for each in reasons), key=VERDICTS.index, default="ok")
    assert verdict.verdict == worst
    assert len(verdict.reasons) == min(len(set(reasons)), MOST_REASONS)
    ranks = [VERDICTS.index(each.verdict) for each in verdict.reasons]
    assert ranks == sorted(ranks)


def test_an_instance_has_its_own_reasons_and_those_of_its_gpu() -> None:
    gpu = InventoryGpu(
        uuid=GPU, mig=(MigInstance(uuid="MIG-1", instance_id="3"), MigInstance(uuid="MIG-2", instance_id="4"))
    )
    inventory = Inventory(gpus=(gpu,))
    reading = DriverReading(inventory=inventory, read_at=0.0)
    own, of_gpu = error(94, instance="3"), error(64)
    snapshot = looked(inventory=inventory)
    verdicts = Verdicts().look(snapshot, (own,), reading, NOW)
    assert {key.instance: verdict.verdict for key, verdict in verdicts.items()} == {
        "": "ok",
        "3": "degraded",
        "4": "ok",
    }
    verdicts = Verdicts().look(snapshot, (own, of_gpu), reading, NOW)
    assert {key.instance: len(verdict.reasons) for key, verdict in verdicts.items()} == {"": 1, "3": 2, "4": 1}
    assert {verdict.verdict for verdict in verdicts.values()} == {"failing"}


@pytest.mark.parametrize(("code", "seconds"), [(79, FAILING_SECONDS), (48, FAILING_SECONDS), (74, DEGRADED_SECONDS)])
def test_an_error_counts_for_its_time(code: int, seconds: float) -> None:
    verdicts, snapshot, errors = Verdicts(), looked(), (error(code),)
    for at, is_well in ((0.0, False), (seconds - 1, False), (seconds, True), (seconds + 1, True)):
        seen = verdicts.look(snapshot, errors, None, NOW + at)[KEY]
        assert (seen.verdict == "ok") is is_well, at


def test_a_source_that_is_late_changes_nothing_for_a_while() -> None:
    verdicts, without = Verdicts(), looked(None)
    first = verdicts.look(looked(), (), None, NOW)
    assert verdicts.look(looked(), (), None, NOW + 1000) is first
    for at in (1001, 1050, 1001 + GRACE_SECONDS - 1):
        assert verdicts.look(without, (), None, NOW + at) is first
    late = verdicts.look(without, (), None, NOW + 1001 + GRACE_SECONDS)[KEY]
    assert (late.verdict, late.code, late.index) == ("unknown", "unread", "0")
    assert verdicts.look(looked(), (), None, NOW + 2000) == first


def test_a_gpu_that_the_page_lacks_is_missing_for_a_day() -> None:
    verdicts = Verdicts()
    verdicts.look(looked(), (), None, NOW)
    assert verdict_of(verdicts, looked(EMPTY), at=NOW + 1) == DeviceVerdict(index="0")
    lacking = looked(EMPTY, word="Healthy")
    seen = verdict_of(verdicts, lacking, at=NOW + 1 + GRACE_SECONDS)
    assert seen is not None
    assert (seen.verdict, seen.code) == ("unknown", "missing")
    assert verdict_of(verdicts, looked(EMPTY), at=NOW + MISSING_SECONDS) is not None
    assert verdict_of(verdicts, looked(EMPTY), at=NOW + 1 + MISSING_SECONDS) is None


def test_every_xid_of_the_catalogue_has_a_verdict_that_fits_its_remedy() -> None:
    for code, xid in XIDS.items():
        reason = reason_of(error(code, text="changed from 0x0 (None) to 0x2 (Node Reboot Required)"))
        is_for_people = any(
            word in xid.remedy for word in ("reset the GPU and", "reset it", "drain", "free", "vendor of the")
        )
        assert (reason is not None) or not is_for_people or xid.remedy.startswith("start the program"), code
