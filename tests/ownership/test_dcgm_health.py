"""DCGM's own verdict on a GPU, as dcgm-exporter writes it: a row for each of its health watches."""

import re
from dataclasses import replace

import pytest

from exporter.dcgm.health_watches import HEALTH_ERRORS, WATCHES
from exporter.model.devices import DeviceKey, Inventory, InventoryGpu, MigInstance, Owners
from exporter.model.health import DeviceVerdict, DeviceVerdicts, HealthReason
from exporter.model.slices import at_once
from exporter.model.snapshot import Health, Snapshot
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from exporter.ownership.verdicts import GRACE_SECONDS, Verdicts, verdict_by
from tests.support.looks import GPU, Looks, row

STATUS = "DCGM_EXP_GPU_HEALTH_STATUS"
# as dcgm-exporter writes them, one after the other (internal/pkg/collector/gpu_health_collector.go)
WRITTEN = ("PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL")
OK = "DCGM_FR_OK"
KEY = DeviceKey(uuid=GPU(0))
NOW = 1_000_000.0
Said = dict[str, tuple[str, str]]


def page(said: Said, gpu: int = 0) -> str:
    """A row for each watch; `said` are an error and a value by watch, where DCGM has something to say."""
    rows = [(watch, *said.get(watch, (OK, "0"))) for watch in dict.fromkeys((*WRITTEN, *said))]
    return "".join(row(STATUS, value, gpu, health_error_code=error, health_watch=watch) for watch, error, value in rows)


def looked(looks: Looks, text: str | None, inventory: Inventory | None = None) -> Snapshot:
    joined = None if text is None else looks.joiner.join([text.encode()], Attribution(Owners(), LabelPolicy()))
    health = Health(up=True) if joined else Health(up=False)
    return Snapshot(
        node="n",
        owners=Owners(),
        joined=joined,
        health={"dcgm": health},
        assignments_age_seconds=0.0,
        inventory=inventory or Inventory(),
    )


def look(verdicts: Verdicts, snapshot: Snapshot, after: float = 0.0) -> DeviceVerdicts:
    return at_once(verdicts.look(snapshot, (), None, NOW + after))


def of(said: Said) -> DeviceVerdict:
    """The verdict on the one GPU of a page."""
    (verdict,) = look(Verdicts(), looked(Looks(), page(said))).values()
    return verdict


# issue 22, line 33
@pytest.mark.parametrize(
    ("said", "verdict", "code", "text"),
    [
        ({}, "ok", "", ""),
        # one replay within a minute, on Hopper ever: it wakes nobody
        (
            {"NVLINK": ("DCGM_FR_NVLINK_ERROR_CRITICAL", "20"), "ALL": ("DCGM_FR_NVLINK_ERROR_CRITICAL", "20")},
            "degraded",
            "dcgm-nvlink-error-critical",
            (
                "DCGM finds a failure of NVLink: NVLink had a replay, a recovery or a CRC error, on Hopper perhaps"
                " long ago (DCGM_FR_NVLINK_ERROR_CRITICAL)"
            ),
        ),
        (
            {"MEM": ("DCGM_FR_VOLATILE_DBE_DETECTED", "20")},
            "failing",
            "dcgm-volatile-dbe-detected",
            "DCGM finds a failure of memory: uncorrected memory errors (DCGM_FR_VOLATILE_DBE_DETECTED)",
        ),
        (
            {"THERMAL": ("DCGM_FR_CLOCK_THROTTLE_THERMAL", "10")},
            "degraded",
            "dcgm-clocks-event-thermal",
            "DCGM warns of temperature: heat lowered its clocks within the last minute (DCGM_FR_CLOCKS_EVENT",
        ),
        # nobody else says it: ALL is the GPU as a whole
        (
            {"ALL": ("DCGM_FR_FALLEN_OFF_BUS", "20")},
            "failing",
            "dcgm-fallen-off-bus",
            "DCGM finds a failure of the whole GPU: it has fallen off the bus (DCGM_FR_FALLEN_OFF_BUS)",
        ),
        # the newer name of the same error
        (
            {"THERMAL": ("DCGM_FR_CLOCKS_EVENT_THERMAL", "10")},
            "degraded",
            "dcgm-clocks-event-thermal",
            "heat lowered its clocks",
        ),
        # what dcgm-exporter writes of an error that its go-dcgm has no name for: the number in dcgm_errors.h
        (
            {"ALL": ("DCGM_FR_UNKNOWN(131)", "10")},
            "degraded",
            "dcgm-contained-error",
            "a contained memory error stopped a program",
        ),
        ({"ALL": ("DCGM_FR_UNKNOWN(999)", "20")}, "failing", "dcgm", "error 999 of DCGM"),
        # an error that no health watch of today has
        ({"SM": ("DCGM_FR_L1TAG_MISCOMPARE", "20")}, "failing", "dcgm", "l1tag miscompare (DCGM_FR_L1TAG_MISCOMPARE)"),
        ({"UNKNOWN(8192)": ("DCGM_FR_INTERNAL", "10")}, "degraded", "dcgm", "of its watch UNKNOWN(8192): internal"),
        ({"MEM": ("", "10")}, "degraded", "dcgm", "DCGM warns of memory: an error without a name"),
        # the worst of several, whichever row comes first
        (
            {"PCIE": ("DCGM_FR_PCI_REPLAY_RATE", "10"), "DRIVER": ("DCGM_FR_GPU_RECOVERY_RESET", "20")},
            "failing",
            "dcgm-gpu-recovery-reset",
            "the driver wants the GPU reset",
        ),
        # no value of DCGM's
        ({"MEM": ("DCGM_FR_VOLATILE_DBE_DETECTED", "9223372036854775794")}, "ok", "", ""),
        ({"MEM": ("DCGM_FR_VOLATILE_DBE_DETECTED", "NaN")}, "ok", "", ""),
        ({"MEM": ("DCGM_FR_VOLATILE_DBE_DETECTED", "1")}, "ok", "", ""),
    ],
)
def test_what_dcgm_finds_is_the_verdict_by_its_value(said: Said, verdict: str, code: str, text: str) -> None:
    seen = of(said)
    assert (seen.verdict, seen.code) == (verdict, code)
    assert not text or text in seen.reasons[0].message
    assert all(reason.remedy for reason in seen.reasons)


# issue 22, line 33
@pytest.mark.parametrize(
    ("said", "parts"),
    [
        # one incident, twice
        (
            {"MEM": ("DCGM_FR_ROW_REMAP_FAILURE", "20"), "ALL": ("DCGM_FR_ROW_REMAP_FAILURE", "20")},
            ["memory"],
        ),
        # the whole GPU is worse: it decides, and the watch says where
        (
            {"MEM": ("DCGM_FR_ROW_REMAP_FAILURE", "10"), "ALL": ("DCGM_FR_ROW_REMAP_FAILURE", "20")},
            ["the whole GPU", "memory"],
        ),
        # two incidents
        (
            {"THERMAL": ("DCGM_FR_CLOCK_THROTTLE_THERMAL", "10"), "ALL": ("DCGM_FR_UNCONTAINED_ERROR", "20")},
            ["the whole GPU", "temperature"],
        ),
    ],
)
def test_an_incident_of_the_whole_gpu_and_of_a_watch_is_one(said: Said, parts: list[str]) -> None:
    assert [re.split(" of |: ", reason.message)[1] for reason in of(said).reasons] == parts


# issue 22, line 33
def test_a_watch_says_how_it_is_now() -> None:
    looks, verdicts = Looks(), Verdicts()

    def codes(text: str | None, after: float) -> list[str]:
        return [
            reason.reason for each in look(verdicts, looked(looks, text), after).values() for reason in each.reasons
        ]

    failing: Said = {"MEM": ("DCGM_FR_ROW_REMAP_FAILURE", "20")}
    assert codes(page(failing), 0) == ["dcgm-row-remap-failure"]
    # another error takes the place of the first, and is not a second one
    assert codes(page({"MEM": ("DCGM_FR_PENDING_PAGE_RETIREMENTS", "10")}), 10) == ["dcgm-pending-page-retirements"]
    assert codes(page({}), 20) == []
    # a page that is away says what it said last, for a while
    assert codes(page(failing), 30) == ["dcgm-row-remap-failure"]
    assert codes(None, 30 + GRACE_SECONDS - 1) == ["dcgm-row-remap-failure"]
    assert "dcgm-row-remap-failure" not in codes(None, 30 + GRACE_SECONDS)


# issue 22, line 33
def test_what_dcgm_finds_of_a_gpu_counts_for_its_instances() -> None:
    """dcgm-exporter writes these rows of whole GPUs alone, also where a GPU is cut and has no other row."""
    instances = "".join(
        row("DCGM_FI_DEV_FB_USED", "1", instance=number, profile="1g.10gb") for number in ("7", "8")
    ) + row("DCGM_FI_DEV_FB_USED", "1", gpu=1)
    text = instances + page({"MEM": ("DCGM_FR_ROW_REMAP_FAILURE", "20")}) + page({}, gpu=1)
    mig = tuple(MigInstance(uuid=f"MIG-{number}", instance_id=number, profile="1g.10gb") for number in ("7", "8"))
    inventory = Inventory(gpus=(InventoryGpu(uuid=GPU(0), index="0", mig=mig), InventoryGpu(uuid=GPU(1), index="1")))
    verdicts = look(Verdicts(), looked(Looks(), text, inventory))
    assert {key: (each.verdict, each.code) for key, each in verdicts.items()} == {
        KEY: ("failing", "dcgm-row-remap-failure"),
        replace(KEY, instance="7"): ("failing", "dcgm-row-remap-failure"),
        replace(KEY, instance="8"): ("failing", "dcgm-row-remap-failure"),
        DeviceKey(uuid=GPU(1)): ("ok", ""),
    }


# issue 22, line 33
def test_rows_that_tell_more_of_a_device_make_no_further_device() -> None:
    """Else 16 GPUs with 11 watches and some XIDs each would take the room of 200."""
    text = "".join(
        row("DCGM_FI_DEV_FB_USED", "1", gpu)
        + page({"MEM": ("DCGM_FR_ROW_REMAP_FAILURE", "20")}, gpu)
        + "".join(row("DCGM_EXP_XID_ERRORS_COUNT", "1", gpu, xid=xid) for xid in ("31", "79"))
        for gpu in range(16)
    )
    looks = Looks()
    joined = looks.joiner.join([text.encode()], Attribution(Owners(), LabelPolicy()))
    assert list(joined.subjects.values()) == [1 + len(WRITTEN) + 2] * 16
    assert looks.joiner.devices == 16
    # and what came in goes out
    assert joined.body.decode().count(f"{STATUS}{{") == 16 * len(WRITTEN)
    assert 'health_error_code="DCGM_FR_ROW_REMAP_FAILURE",health_watch="MEM"' in joined.body.decode()


# issue 22, line 33
def test_what_the_exporter_reads_itself_comes_before_what_dcgm_makes_of_it() -> None:
    xid = HealthReason("xid", "Xid 48 Double Bit ECC Error", "reset it", "failing")
    dcgm = HealthReason("dcgm-xid-error", "DCGM", "look", "failing")
    assert verdict_by([dcgm, xid]).code == "xid"
    assert verdict_by([replace(xid, verdict="degraded"), dcgm]).code == "dcgm-xid-error"


def test_what_a_page_has_of_watches_is_bounded() -> None:
    """A page may name as many watches as it has lines, and as long ones as it likes."""
    many: Said = {f"{'W' * 5_000}{number}": ("E" * 5_000, "20") for number in range(50)}
    verdict = of(many)
    assert verdict.verdict == "failing"
    assert max(len(reason.message) for reason in verdict.reasons) < 300


def test_every_watch_and_error_has_its_words() -> None:
    assert set(WRITTEN) <= set(WATCHES)
    assert len({error.number for error in HEALTH_ERRORS.values()}) == len(HEALTH_ERRORS)
    for name, error in HEALTH_ERRORS.items():
        assert name == name.upper(), name
        assert error.text, name
        assert error.remedy, name
