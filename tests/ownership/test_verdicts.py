"""One verdict by device, by all that speak of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.dcgm.xids import XIDS
from exporter.errors import Trouble
from exporter.model.devices import (
    DeviceHealth,
    DeviceKey,
    Inventory,
    InventoryGpu,
    MigInstance,
    Owners,
    SliceDevice,
    Taint,
)
from exporter.model.driver import DriverReading
from exporter.model.health import MOST_REASONS, VERDICTS, DeviceVerdict, DeviceVerdicts, HealthReason, Verdict
from exporter.model.kernel import DeviceEvent, KernelEvent
from exporter.model.pages import JoinedPage, Subject
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.model.snapshot import Health, LookContext, Snapshot
from exporter.ownership.kernel_events import reason_of
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from exporter.ownership.verdicts import Verdicts, verdict_by
from exporter.sources.nvml.library import GPU_IS_LOST, GPU_NOT_FOUND, LOST, RESET_REQUIRED, UNASKED, UNKNOWN
from tests.support.looks import GPU as GPU_AT
from tests.support.looks import Looks, row
from tests.support.xids import INFORMING

# as users know them
FAILING_SECONDS = 86_400.0
DEGRADED_SECONDS = 3_600.0
CLOCKS_SECONDS = 300.0
GRACE_SECONDS = 120.0
MISSING_SECONDS = 86_400.0
LATELY_SECONDS = 3_600.0

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


def look(
    verdicts: Verdicts,
    snapshot: Snapshot,
    errors: tuple[DeviceEvent, ...] | None = (),
    reading: DriverReading | None = None,
    at: float = NOW,
) -> DeviceVerdicts:
    return at_once(verdicts.look(snapshot, errors, reading, at))


def verdict_of(verdicts: Verdicts, snapshot: Snapshot, *errors: DeviceEvent, at: float = NOW) -> DeviceVerdict | None:
    return look(verdicts, snapshot, errors, None, at).get(KEY)


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
        (looked(), (error(None),), "ok", ""),
        (looked(), (error(31),), "ok", ""),
        (looked(), (error(68),), "ok", ""),
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
    verdicts = look(Verdicts(), snapshot)
    assert {key.instance: verdict.verdict for key, verdict in verdicts.items()} == {"": "ok", "3": "ok", "4": "ok"}


REASONS = st.builds(
    HealthReason,
    reason=st.sampled_from(("xid", "ecc", "kubelet")),
    verdict=st.sampled_from([verdict for verdict in VERDICTS if verdict != "ok"]),
    message=st.text(max_size=3),
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
    verdicts = look(Verdicts(), snapshot, (own,), reading, NOW)
    assert {key.instance: verdict.verdict for key, verdict in verdicts.items()} == {
        "": "ok",
        "3": "degraded",
        "4": "ok",
    }
    verdicts = look(Verdicts(), snapshot, (own, of_gpu), reading, NOW)
    assert {key.instance: len(verdict.reasons) for key, verdict in verdicts.items()} == {"": 1, "3": 2, "4": 1}
    assert {verdict.verdict for verdict in verdicts.values()} == {"failing"}


@pytest.mark.parametrize(("code", "seconds"), [(79, FAILING_SECONDS), (48, FAILING_SECONDS), (74, DEGRADED_SECONDS)])
def test_an_error_counts_for_its_time(code: int, seconds: float) -> None:
    verdicts, snapshot, errors = Verdicts(), looked(), (error(code),)
    for at, is_well in ((0.0, False), (seconds - 1, False), (seconds, True), (seconds + 1, True)):
        seen = look(verdicts, snapshot, errors, None, NOW + at)[KEY]
        assert (seen.verdict == "ok") is is_well, at


def test_a_source_that_is_late_changes_nothing_for_a_while() -> None:
    verdicts, without = Verdicts(), looked(None)
    first = look(verdicts, looked(), (), None, NOW)
    assert look(verdicts, looked(), (), None, NOW + 1000) is first
    for at in (1001, 1050, 1001 + GRACE_SECONDS - 1):
        assert look(verdicts, without, (), None, NOW + at) is first
    late = look(verdicts, without, (), None, NOW + 1001 + GRACE_SECONDS)[KEY]
    assert (late.verdict, late.code, late.gpu) == ("unknown", "unread", "0")
    assert look(verdicts, looked(), (), None, NOW + 2000) == first


# issue 22, line 5
def test_a_look_beside_another_has_the_verdicts_of_what_it_saw() -> None:
    """On a node of many devices the work has pauses, in which the looks of other scrapes go on."""
    well, ill = looked(word="Healthy"), looked(word="Unhealthy")
    pauses = 1 + len(list(Verdicts().look(ill, (), None, NOW)))
    for steps in range(pauses):
        verdicts = Verdicts()
        look(verdicts, well)
        slow = verdicts.look(ill, (), None, NOW)
        for _ in range(steps):
            next(slow)
        assert look(verdicts, ill)[KEY].verdict == "failing", steps
        newer = look(verdicts, well)
        assert newer[KEY].verdict == "ok"
        assert at_once(slow)[KEY].verdict == "failing"
        assert look(verdicts, well) == newer


# issue 30, line 14
@pytest.mark.parametrize(
    ("errors", "events", "gpu", "instance"),
    [
        ((), (), None, None),
        ((error(79),), (), 79, 79),
        ((error(48), error(79, at=NOW + 1)), (), 79, 79),
        ((error(79),), (error(31, at=NOW + 1),), 31, 31),
        ((error(79),), (error(31, at=NOW - 1),), 79, 79),
        ((error(79),), (error(154, at=NOW + 1, text="GPU recovery action changed from 0x0 to 0x1"),), 79, 79),
        ((), (error(31, instance="3"), error(13, at=NOW - 1)), 31, 31),
        ((), (error(31, instance="4"), error(13, at=NOW - 1)), 31, 13),
        ((), (error(31, instance="4"),), 31, None),
        ((error(None, kind="lost"),), (error(20034, kind="sxid"), error(None)), None, None),
    ],
)
def test_a_device_has_its_last_xid(
    errors: tuple[DeviceEvent, ...], events: tuple[DeviceEvent, ...], gpu: int | None, instance: int | None
) -> None:
    gpus = Inventory(gpus=(InventoryGpu(uuid=GPU, mig=(MigInstance(uuid="MIG-3", instance_id="3", profile="1g"),)),))
    cut = replace(PAGE, subjects={SUBJECT: 9, replace(SUBJECT, instance="3"): 9})
    verdicts = look(Verdicts(), replace(looked(cut, inventory=gpus), events=events), errors)
    assert (verdicts[KEY].last_xid, verdicts[INSTANCE].last_xid) == (gpu, instance)


# issue 22, line 7
@pytest.mark.parametrize("code", XIDS)
def test_an_xid_that_only_informs_is_no_reason_and_no_last_xid(code: int) -> None:
    event = error(code, text="")
    # by the log, as the driver that keeps taints has it, and by pages: as a new value, and as the one that was first
    by_log = look(Verdicts(), replace(looked(), events=(event,)), (event,))[KEY]
    by_taint = look(Verdicts(), tainted({GPU: [xid_taint(f"{code}", "None")]}))[KEY]
    by_page = of_page("0", f"{code}")
    first_on_page = of_page(f"{code}")
    said = (by_log, by_taint, by_page, first_on_page)
    if code in INFORMING:
        assert {(each.verdict, each.reasons, each.last_xid) for each in said} == {("ok", (), None)}
    else:
        assert {each.last_xid for each in (by_log, by_taint, by_page)} == {code}


def of_page(*values: str) -> DeviceVerdict:
    """The verdict by the values of a page's last XID, one after the other."""
    looks, verdicts = Looks(), Verdicts()
    for number, value in enumerate(values):
        verdict = look(verdicts, seen(looks, (XID, value)), None, at=NOW + 10 * number)
    (of_gpu,) = verdict.values()
    return of_gpu


def test_a_new_event_changes_the_last_xid_alone() -> None:
    verdicts = Verdicts()
    first = look(verdicts, looked())
    after = look(verdicts, replace(looked(), events=(error(31),)), at=NOW + 1)
    assert {key: each._replace(last_xid=None) for key, each in after.items()} == first
    assert after[KEY].last_xid == 31


def test_a_gpu_that_the_page_lacks_is_missing_for_a_day() -> None:
    verdicts = Verdicts()
    look(verdicts, looked(), (), None, NOW)
    assert verdict_of(verdicts, looked(EMPTY), at=NOW + 1) == DeviceVerdict(gpu="0")
    lacking = looked(EMPTY, word="Healthy")
    seen = verdict_of(verdicts, lacking, at=NOW + 1 + GRACE_SECONDS)
    assert seen is not None
    assert (seen.verdict, seen.code) == ("unknown", "missing")
    assert verdict_of(verdicts, looked(EMPTY), at=NOW + MISSING_SECONDS) is not None
    assert verdict_of(verdicts, looked(EMPTY), at=NOW + 1 + MISSING_SECONDS) is None


def test_an_instance_that_the_page_lacks_is_gone_after_the_grace() -> None:
    verdicts, instance = Verdicts(), Subject(uuid=GPU, instance="3", index="0")
    look(verdicts, looked(replace(PAGE, subjects={SUBJECT: 9, instance: 9})))
    assert INSTANCE in look(verdicts, looked(), at=NOW + 1)
    assert INSTANCE in look(verdicts, looked(), at=NOW + GRACE_SECONDS)
    assert look(verdicts, looked(), at=NOW + 1 + GRACE_SECONDS).keys() == {KEY}


# issue 27, part 3
@pytest.mark.parametrize(("at", "joules", "verdict"), [(10, 49, "failing"), (9.9, 49, "ok"), (9.9, 50, "failing")])
def test_a_reset_ends_errors_of_before_it_alone(at: float, joules: int, verdict: str) -> None:
    """The counter of energy begins anew, which falls to less than half, at second 10."""
    looks, verdicts = Looks(), Verdicts()
    look(verdicts, seen(looks, (ENERGY, "100")))
    after = look(
        verdicts, seen(looks, (ENERGY, str(joules))), (replace(error(48, at=NOW + at), uuid=GPU_AT(0)),), at=NOW + 10
    )
    assert [of_gpu.verdict for of_gpu in after.values()] == [verdict]


def test_every_xid_of_the_catalogue_has_a_verdict_that_fits_its_remedy() -> None:
    for code, xid in XIDS.items():
        reason = reason_of(error(code, text="changed from 0x0 (None) to 0x2 (Node Reboot Required)"))
        is_for_people = any(
            word in xid.remedy for word in ("reset the GPU and", "reset it", "drain", "free", "vendor of the")
        )
        assert (reason is not None) or not is_for_people or xid.remedy.startswith("start the program"), code


ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
XID = "DCGM_FI_DEV_XID_ERRORS"


def seen(looks: Looks, *values: tuple[str, str]) -> Snapshot:
    joined = (
        looks.joiner.join([("".join(row(*each) for each in values)).encode()], Attribution(Owners(), LabelPolicy()))
        if values
        else None
    )
    return replace(looked(joined), page_sources=())


@pytest.mark.parametrize(
    ("family", "values", "code"),
    [
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", "1", "row-remap-pending"),
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", "0", ""),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "1", "row-remap-failed"),
        ("DCGM_FI_DEV_ROW_REMAP_FAILED", "1", "row-remap-failed"),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "2", "ecc"),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "9223372036854775794", ""),
        ("DCGM_FI_DEV_RETIRED_PENDING", "1", "page-pending"),
        ("DCGM_FI_DEV_PAGE_RETIRED_PENDING", "1", "page-pending"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "4", ""),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "32", "hot"),
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "64", "hot"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "128", "power"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "8", "slowdown"),
        ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL", "7", ""),
        ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL", "7 8", "nvlink"),
        ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL", "7 8", "nvlink"),
        ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", "7 8", ""),
        # issue 22, line 34: the names that pages have, by generation of DCGM and of GPU
        ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "5 900", "nvlink"),
        ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "5 6", "nvlink"),
        ("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "5 6", ""),
        ("DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY", "5 6", "nvlink"),
        ("DCGM_FI_DEV_NVLINK_REPLAY_TOTAL", "5 6", "nvlink"),
        ("DCGM_FI_DEV_NVLINK_ERROR_DL_RECOVERY", "5 6", "nvlink"),
        ("DCGM_FI_DEV_NVLINK_RECOVERY_TOTAL", "5 6", "nvlink"),
        ("DCGM_FI_DEV_NVLINK_ERROR_DL_CRC", "5 6", ""),
        ("DCGM_FI_DEV_NVLINK_CRC_ERROR_TOTAL", "5 6", ""),
        ("DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS", "5 6", "nvlink"),
        ("DCGM_FI_DEV_NVLINK_RECOVERY_EVENT_TOTAL", "5 6", "nvlink"),
        ("DCGM_FI_DEV_NVLINK_RECOVERY_SUCCESSFUL_TOTAL", "5 6", "nvlink"),
        ("DCGM_FI_DEV_NVLINK_RECOVERY_FAILED_TOTAL", "5 6", "nvlink"),
        ("DCGM_FI_DEV_NVLINK_COUNT_RX_ERRORS", "5 6", "nvlink"),
        ("DCGM_FI_DEV_NVLINK_INTEGRITY_ERROR_TOTAL", "5 6", "nvlink"),
        ("DCGM_FI_DEV_GPU_NVLINK_ERRORS", "0", ""),
        ("DCGM_FI_DEV_GPU_NVLINK_ERRORS", "1", "nvlink-recovery"),
        ("DCGM_FI_DEV_NVLINK_ERROR", "2", "nvlink-fatal"),
        (XID, "0", ""),
        (XID, "79", "fell-off-bus"),
        (XID, "31", ""),
        (XID, "63", ""),
        (XID, "0 63", "xid"),
        (XID, "0 48", "xid"),
        (XID, "0 NaN", ""),
        (XID, "0 48 0", "xid"),
    ],
)
def test_what_a_page_says(family: str, values: str, code: str) -> None:
    looks, verdicts = Looks(), Verdicts()
    for number, value in enumerate(values.split()):
        verdict = look(verdicts, seen(looks, (family, value)), None, at=NOW + 10 * number)
    assert {key.uuid: of_gpu.code for key, of_gpu in verdict.items()} == {GPU_AT(0): code}


@pytest.mark.parametrize(
    ("family", "bad", "good", "seconds"),
    [
        ("DCGM_FI_DEV_ROW_REMAP_PENDING", "1", "0", 0),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "64", "0", CLOCKS_SECONDS),
        ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL", "8", "8", LATELY_SECONDS),
    ],
)
def test_how_long_a_page_s_word_counts(family: str, bad: str, good: str, seconds: float) -> None:
    looks, verdicts = Looks(), Verdicts()
    look(verdicts, seen(looks, (family, "0")), at=NOW - 10)

    def words(value: str, at: float) -> set[str]:
        return {each.verdict for each in look(verdicts, seen(looks, (family, value)), at=NOW + at).values()}

    assert words(bad, 0) == {"degraded"}
    assert words(good, seconds / 2) == ({"degraded"} if seconds else {"ok"})
    assert words(good, seconds) == {"ok"}


def test_a_page_that_is_away_leaves_its_last_word_for_a_while() -> None:
    looks, verdicts = Looks(), Verdicts()
    page = seen(looks, ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "1"))
    first = look(verdicts, page)
    assert look(verdicts, seen(looks), at=NOW + GRACE_SECONDS - 1) is first
    assert {each.code for each in look(verdicts, seen(looks), at=NOW + 2 * GRACE_SECONDS).values()} == {"unread"}
    assert look(verdicts, page, at=NOW + 3 * GRACE_SECONDS) == first


# what a reset, or the driver loaded anew, does to every counter
def test_an_error_counts_until_the_gpu_s_counters_begin_anew() -> None:
    looks, verdicts = Looks(), Verdicts()
    errors = (replace(error(48), uuid=GPU_AT(0)),)

    def word(joules: str, at: float) -> str:
        (verdict,) = look(verdicts, seen(looks, (ENERGY, joules)), errors, at=NOW + at).values()
        return verdict.verdict

    assert [word("9000", 1), word("9100", 2), word("9100", 3), word("10", 4), word("20", 5)] == [
        *("failing",) * 3,
        *("ok",) * 2,
    ]
    errors = (replace(error(48, at=NOW + 6), uuid=GPU_AT(0)),)
    assert word("30", 7) == "failing"


@pytest.mark.parametrize(
    ("why", "verdict", "code"),
    [
        (GPU_IS_LOST, "gone", "nvml-lost"),
        (GPU_NOT_FOUND, "gone", "nvml-lost"),
        (RESET_REQUIRED, "failing", "reset-required"),
        (UNKNOWN, "unknown", "nvml"),
    ],
)
def test_what_nvml_says(why: int, verdict: str, code: str) -> None:
    gpus = Inventory(gpus=(InventoryGpu(uuid=GPU, index="0"), InventoryGpu(uuid=OTHER, index="1")))
    snapshot, verdicts = looked(None, inventory=gpus), Verdicts()
    well = look(verdicts, snapshot, reading=DriverReading(inventory=gpus, read_at=0.0))
    assert {each.verdict for each in well.values()} == {"ok"}
    lost = DriverReading(inventory=gpus, lost={GPU: LOST.get(why, UNASKED)}, read_at=1.0)
    seen_lost = look(verdicts, snapshot, reading=lost)
    assert (seen_lost[KEY].verdict, seen_lost[KEY].code) == (verdict, code)
    assert seen_lost[DeviceKey(uuid=OTHER)].verdict == "ok"
    again = DriverReading(inventory=gpus, lost={GPU: LOST.get(why, UNASKED)}, read_at=2.0)
    assert look(verdicts, snapshot, reading=again, at=NOW + 1) is seen_lost
    fewer = DriverReading(inventory=Inventory(gpus=gpus.gpus[1:]), read_at=3.0)
    look(verdicts, snapshot, reading=fewer, at=NOW + 2)
    unlisted = look(verdicts, snapshot, reading=fewer, at=NOW + 2 + GRACE_SECONDS)[KEY]
    assert (unlisted.verdict, unlisted.code) == ("gone", "nvml-lost")


XID_TAINT, LOST_TAINT, UNMONITORED = (f"gpu.nvidia.com/{name}" for name in ("xid", "gpu-lost", "unmonitored"))


def xid_taint(xid: str, effect: str = "NoSchedule", added_at: float = NOW) -> Taint:
    return Taint(effect, XID_TAINT, xid, added_at)


# issue 22, line 39
@pytest.mark.parametrize(
    ("taints", "verdict", "code", "last_xid"),
    [
        # NVIDIA's driver knows no other keys and effects than these (its device_health.go); it takes none back
        ([xid_taint("79")], "gone", "fell-off-bus", 79),
        ([xid_taint("48")], "failing", "xid", 48),
        ([xid_taint("63")], "degraded", "taint", 63),
        ([xid_taint("31", "None")], "ok", "", 31),
        ([xid_taint("48", added_at=NOW - FAILING_SECONDS)], "degraded", "taint", 48),
        ([xid_taint("nonsense")], "degraded", "taint", None),
        ([xid_taint("\x1b63")], "degraded", "taint", None),
        ([Taint("NoSchedule", LOST_TAINT)], "gone", "taint", None),
        ([Taint("None", UNMONITORED)], "ok", "", None),
        # other drivers
        ([Taint("NoExecute", "acme.com/broken", "yes")], "failing", "taint", None),
        ([Taint("NoSchedule", "a"), Taint("NoExecute", "b")], "failing", "taint", None),
        ([Taint("None", "a", "b")], "ok", "", None),
        ([Taint("", "")], "ok", "", None),
        ([], "ok", "", None),
    ],
)
@pytest.mark.parametrize("is_cut", [False, True])
def test_taints_of_its_dra_driver(
    taints: list[Taint], verdict: str, code: str, last_xid: int | None, *, is_cut: bool
) -> None:
    strange = SliceDevice(uuid="GPU-of-another-node", taints=(Taint("NoExecute", "a", "b"), Taint("None", LOST_TAINT)))
    snapshot = tainted({"MIG-1" if is_cut else GPU: taints}, strange, is_cut=is_cut)
    seen_devices = look(Verdicts(), snapshot)
    seen = seen_devices[INSTANCE if is_cut else KEY]
    assert (seen.verdict, seen.code, seen.last_xid) == (verdict, code, last_xid)
    assert all(str(reason).isprintable() and reason.remedy for reason in seen.reasons)
    assert {key.uuid for key in seen_devices} == {GPU}


def tainted(taints: Mapping[str, Sequence[Taint]], *others: SliceDevice, is_cut: bool = False) -> Snapshot:
    """A look at a node whose ResourceSlices taint these devices; samples are of GPU alone."""
    of_slices = (*(SliceDevice(uuid=uuid, taints=tuple(of)) for uuid, of in taints.items()), *others)
    context = LookContext(slice_devices={("d", "p", f"gpu-{i}"): device for i, device in enumerate(of_slices)})
    cut = (MigInstance(uuid="MIG-1", instance_id="3"),) if is_cut else ()
    gpus = tuple(InventoryGpu(uuid=uuid, mig=cut) for uuid in dict.fromkeys((GPU, *taints)) if uuid.startswith("GPU"))
    page = replace(PAGE, subjects={Subject(uuid=GPU, index="0", instance="3" if is_cut else ""): 9})
    return replace(looked(page, inventory=Inventory(gpus=gpus)), context=context)


# issue 22, line 39
def test_if_the_driver_calls_several_gpus_lost_none_is_singled_out() -> None:
    """NVIDIA's driver taints all of a node as one is lost. What is read goes on; of the others one may be gone."""
    lost = [Taint("NoSchedule", LOST_TAINT)]
    seen = look(Verdicts(), tainted({GPU: lost, OTHER: lost}))
    assert (seen[KEY].verdict, seen[KEY].code) == ("degraded", "taint")
    assert (seen[DeviceKey(uuid=OTHER)].verdict, seen[DeviceKey(uuid=OTHER)].code) == ("unknown", "taint")


# issue 22, line 39
def test_a_device_that_nobody_watches_is_unknown() -> None:
    seen = look(Verdicts(), tainted({GPU: [], OTHER: [Taint("None", UNMONITORED)]}))[DeviceKey(uuid=OTHER)]
    assert (seen.verdict, seen.code) == ("unknown", "taint")
    assert "cannot watch" in seen.reasons[0].message


# issue 22, line 39
def test_an_xid_of_a_taint_ends_with_a_reset_though_the_taint_stays() -> None:
    looks, verdicts = Looks(), Verdicts()
    context = tainted({GPU_AT(0): [xid_taint("48", added_at=NOW - 60)]}).context
    verdict = verdict_by_energy(verdicts, looks, context, "5000000", NOW)
    assert verdict.verdict == "failing"
    verdict = verdict_by_energy(verdicts, looks, context, "12", NOW + 1)
    assert (verdict.verdict, verdict.code) == ("degraded", "taint")


def verdict_by_energy(verdicts: Verdicts, looks: Looks, context: LookContext, value: str, at: float) -> DeviceVerdict:
    snapshot = replace(seen(looks, ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", value)), context=context)
    return look(verdicts, snapshot, errors=None, at=at)[DeviceKey(uuid=GPU_AT(0))]


# issue 22, line 39
def test_an_xid_that_log_and_taint_have_is_one_reason() -> None:
    seen = look(Verdicts(), tainted({GPU: [xid_taint("48", added_at=NOW + 61)]}), errors=(error(48),))[KEY]
    assert [reason.reason for reason in seen.reasons] == ["xid", "taint"]
