"""What verdicts remember from look to look: values of pages, devices that were read, and errors.

What one look says is in test_verdicts.py.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from exporter.model.devices import DeviceHealth, DeviceKey, Inventory, InventoryGpu, Owners, bare
from exporter.model.driver import DriverReading
from exporter.model.health import DeviceVerdict, DeviceVerdicts
from exporter.model.kernel import DeviceEvent, KernelEvent
from exporter.model.pages import JoinedPage, Subject
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.model.snapshot import Health, Snapshot
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from exporter.ownership.verdicts import PageWords, Verdicts
from exporter.sources.nvml.library import LOST, RESET_REQUIRED
from tests.support.looks import GPU as GPU_AT
from tests.support.looks import Looks, row

# as users know them
GRACE_SECONDS = 120.0

A = Owner(namespace="ml", pod="train-0", container="main")
GPU, OTHER = GPU_AT(0), GPU_AT(1)
KEY = DeviceKey(uuid=GPU)
XID, REMAP = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_ROW_REMAP_FAILURE"
UP, DOWN = Health(up=True), Health(up=False)
NOW = 1_000_000.0
DAY = 86_400.0


class Node:
    """A node's looks at a page, the kernel's log and NVML."""

    def __init__(self) -> None:
        self.looks = Looks()
        self.verdicts = Verdicts()

    def page(self, rows: Sequence[str]) -> JoinedPage:
        return self.looks.joiner.join(["".join(rows).encode()], Attribution(Owners(), LabelPolicy()))

    def look(
        self,
        rows: Sequence[str] = (),
        *errors: DeviceEvent,
        at: float = 0.0,
        gpus: Sequence[str] = (),
        nvml: DriverReading | None = None,
        is_well: bool = False,
        has_log: bool = True,
    ) -> DeviceVerdicts:
        """`gpus` are those of the inventory. `is_well`: the kubelet calls the first one healthy."""
        joined = self.page(rows) if rows else None
        snapshot = Snapshot(
            node="n",
            owners=Owners(),
            joined=joined,
            health={"dcgm": UP if joined else DOWN},
            assignments_age_seconds=0.0,
            page_sources=("dcgm",),
            inventory=inventory(*gpus),
            healths={(KEY, A): DeviceHealth(word="Healthy")} if is_well else {},
        )
        return at_once(self.verdicts.look(snapshot, errors if has_log else None, nvml, NOW + at))


def inventory(*gpus: str) -> Inventory:
    return Inventory(gpus=tuple(InventoryGpu(uuid=uuid) for uuid in gpus))


def listing(*gpus: str) -> DriverReading:
    return DriverReading(inventory=inventory(*gpus), read_at=0.0)


def error(code: int, uuid: str = GPU, at: float = 0.0, instance: str = "") -> DeviceEvent:
    event = KernelEvent(kind="xid", sequence=1, booted_us=1, address="", code=code, instance=instance)
    return DeviceEvent(event=event, at_seconds=NOW + at, uuid=uuid)


def codes(verdicts: DeviceVerdicts) -> dict[str, str]:
    return {key.uuid + key.instance: verdict.code for key, verdict in verdicts.items()}


WELL, OF_OTHER = [row(REMAP, "0")], [row(REMAP, "0", 1)]


@pytest.mark.parametrize(("value", "code"), [("999", "xid"), ("1000", ""), ("0.5", "")])
def test_an_xid_of_a_page_has_three_digits(value: str, code: str) -> None:
    node = Node()
    node.look([row(XID, "0")], has_log=False)
    assert codes(node.look([row(XID, value)], at=10, has_log=False)) == {GPU: code}


def test_an_xid_that_stays_on_the_page_is_an_error_once() -> None:
    node = Node()
    for seconds, code in ((0, ""), (10, "xid"), (3600, "xid"), (3610, ""), (9000, "")):
        assert codes(node.look([row(XID, "63" if seconds else "0")], at=seconds, has_log=False)) == {GPU: code}


def test_a_page_that_was_away_shows_no_xid_anew() -> None:
    node = Node()
    node.look([row(XID, "63")], has_log=False)
    node.look(at=10, has_log=False)
    assert codes(node.look([row(XID, "63")], at=20, has_log=False)) == {GPU: ""}


def test_the_errors_of_pages_are_the_last_ones_and_each_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.ownership.verdicts.MOST_ERRORS", 3)
    node, words = Node(), PageWords()

    def read(*xids: str, at: float) -> list[tuple[str, int | None, float]]:
        rows = [row(XID, xid, number, instance, "1g") for number, xid in enumerate(xids) for instance in "78"]
        at_once(words.read(node.page(rows), at))
        return [(error.uuid, error.event.code, error.at_seconds) for error in words.errors]

    assert read("0", "48", at=1) == [(OTHER, 48, 1)]
    assert read("31", "48", at=2) == [(OTHER, 48, 1), (GPU, 31, 2)]
    assert read("31", "79", at=3) == [(OTHER, 48, 1), (GPU, 31, 2), (OTHER, 79, 3)]
    assert read("31", "48", at=4) == [(GPU, 31, 2), (OTHER, 79, 3), (OTHER, 48, 4)], "the same error anew"
    assert read("13", "48", at=5) == [(OTHER, 79, 3), (OTHER, 48, 4), (GPU, 13, 5)]


def test_the_row_of_a_virtual_gpu_says_nothing_of_the_gpu() -> None:
    assert codes(Node().look([row(REMAP, "1", vgpu="7"), row(REMAP, "0")])) == {GPU: ""}


def test_a_long_page_is_read_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.ownership.verdicts.ITEMS_A_SLICE", 2)
    page = Node().page([row(REMAP, "0", number) for number in range(5)])
    assert len([*PageWords().read(page, NOW)]) == 2


def test_findings_of_dcgm_take_the_place_of_its_own_alone() -> None:
    node, status = Node(), "DCGM_EXP_GPU_HEALTH_STATUS"

    def rows(value: str) -> list[str]:
        return [row(REMAP, "1"), row(status, value, health_watch="MEM", health_error_code="DCGM_FR_X")]

    def reasons(verdicts: DeviceVerdicts) -> set[str]:
        return {reason.reason.partition("-")[0] for reason in verdicts[KEY].reasons}

    assert reasons(node.look(rows("20"))) == {"row", "dcgm"}
    assert reasons(node.look([*OF_OTHER, row(status, "0", 1, health_watch="MEM", health_error_code="DCGM_FR_OK")])) == {
        "row",
        "dcgm",
    }, "of another GPU"
    assert reasons(node.look(rows("0"))) == {"row"}


@pytest.mark.parametrize("values", [("0", "20"), ("20", "0")])
def test_of_two_rows_of_one_watch_the_worse_counts(values: tuple[str, str]) -> None:
    """As two pages have them of one GPU."""
    family = "DCGM_EXP_GPU_HEALTH_STATUS"
    rows = [
        row(family, value, health_watch="MEM", health_error_code="DCGM_FR_X", page=f"{number}")
        for number, value in enumerate(values)
    ]
    assert codes(Node().look(rows)) == {GPU: "dcgm"}


def test_a_gpu_that_nvml_never_listed_is_missing_and_not_lost() -> None:
    node = Node()
    node.look([*WELL, *OF_OTHER], nvml=listing(OTHER))
    node.look(OF_OTHER, at=1, nvml=listing(OTHER))
    assert codes(node.look(OF_OTHER, at=1 + GRACE_SECONDS, nvml=listing(OTHER))) == {GPU: "missing", OTHER: ""}


@pytest.mark.parametrize("nvml", [None, listing()])
def test_nvml_that_lists_nothing_has_lost_no_gpu(nvml: DriverReading | None) -> None:
    node = Node()
    node.look(nvml=listing(GPU), gpus=[GPU])
    node.look(at=1, nvml=nvml, gpus=[GPU])
    assert codes(node.look(at=1 + GRACE_SECONDS, nvml=nvml, gpus=[GPU])) == {GPU: "unread"}


def test_a_gpu_with_an_error_of_nvml_keeps_it_for_as_long_as_nvml_says_it() -> None:
    node = Node()
    node.look(nvml=listing(GPU, OTHER))
    reset = replace(listing(GPU, OTHER), lost={GPU: LOST[RESET_REQUIRED]})
    for at in (1.0, 2 * GRACE_SECONDS):
        verdicts = node.look(at=at, nvml=reset)
        assert [reason.reason for reason in verdicts[KEY].reasons] == ["reset-required"], at


def test_a_gpu_that_nothing_reads_is_unread_if_the_kubelet_is_silent() -> None:
    verdicts = Node().look(gpus=[GPU, OTHER], is_well=True)
    assert codes(verdicts) == {GPU: "", OTHER: "unread"}


def test_a_gpu_with_an_error_is_not_called_unread_as_well() -> None:
    verdicts = Node().look([], error(63), gpus=[GPU])
    assert [reason.reason for reason in verdicts[KEY].reasons] == ["xid"]


def test_a_gpu_of_the_inventory_is_missing_for_longer_than_a_day() -> None:
    node = Node()
    node.look([*WELL, *OF_OTHER], gpus=[GPU])
    for at in (1, 1 + DAY, 2 + 2 * DAY):
        verdicts = node.look(OF_OTHER, at=at, gpus=[GPU])
    assert codes(verdicts) == {GPU: "missing", OTHER: ""}


def test_a_gpu_that_came_back_is_missing_from_its_next_absence_on() -> None:
    node = Node()
    for at, rows in ((0, [*WELL, *OF_OTHER]), (1, OF_OTHER), (100, [*WELL, *OF_OTHER]), (200, OF_OTHER)):
        node.look(rows, at=at)
    assert codes(node.look(OF_OTHER, at=200 + GRACE_SECONDS - 1)) == {GPU: "", OTHER: ""}
    assert codes(node.look(OF_OTHER, at=200 + GRACE_SECONDS)) == {GPU: "missing", OTHER: ""}


def test_an_instance_by_its_own_uuid_is_forgotten_after_the_grace() -> None:
    node, instance = Node(), f'{REMAP}{{gpu="0",UUID="MIG-1"}} 0\n'
    assert codes(node.look([*WELL, instance])) == {GPU: "", "MIG-1": ""}
    assert codes(node.look(WELL, at=1)) == {GPU: "", "MIG-1": ""}
    assert codes(node.look(WELL, at=1 + GRACE_SECONDS)) == {GPU: ""}


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        # a GPU that the driver never reached, and an error of which nobody knows the GPU
        ([error(79, OTHER)], {GPU: "", OTHER: "fell-off-bus"}),
        ([error(79, "")], {GPU: ""}),
        # an instance that is no more
        ([error(94, instance="9")], {GPU: "xid"}),
    ],
)
def test_an_error_is_of_a_gpu_even_if_nothing_else_knows_it(
    errors: list[DeviceEvent], expected: dict[str, str]
) -> None:
    assert codes(Node().look(WELL, *errors)) == expected


def test_an_error_is_of_the_gpu_whose_samples_have_its_uuid_without_gpu() -> None:
    page = [f'{REMAP}{{gpu="0",UUID="{bare(GPU)}"}} 0\n']
    verdicts = Node().look(page, error(48))
    assert {key: (verdict.code, verdict.last_xid) for key, verdict in verdicts.items()} == {
        DeviceKey(uuid=bare(GPU)): ("xid", 48)
    }


def test_what_one_look_lacks_of_a_device_an_earlier_one_had() -> None:
    """Its number: the kubelet and the log do not say it."""
    node = Node()
    assert node.look(WELL)[KEY] == DeviceVerdict(gpu="0")
    assert node.look(at=1)[KEY] == DeviceVerdict(gpu="0")


def test_another_look_at_the_same_things_notices_a_new_event_alone() -> None:
    page = JoinedPage(pieces=(), size=0, subjects={Subject(uuid=GPU, index="0"): 1}, sample_count=1, rejected={})
    snapshot = Snapshot(node="n", owners=Owners(), joined=page, health={}, assignments_age_seconds=0.0)
    verdicts, errors = Verdicts(), ()
    first = at_once(verdicts.look(snapshot, errors, None, NOW))
    assert at_once(verdicts.look(snapshot, errors, None, NOW + 1)) is first
    after = at_once(verdicts.look(replace(snapshot, events=(error(31),)), errors, None, NOW + 1))
    assert after == {KEY: first[KEY]._replace(last_xid=31)}
    later = at_once(verdicts.look(replace(snapshot, events=(error(13),)), errors, None, NOW + 1))
    assert later == {KEY: first[KEY]._replace(last_xid=13)}
