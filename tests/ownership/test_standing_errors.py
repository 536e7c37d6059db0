"""Which errors of a GPU still count against its health: those that are heard, and those of before the start."""

from dataclasses import replace

import pytest

from exporter.dcgm.xids import XIDS
from exporter.model.devices import DeviceKey, Holder, Inventory, InventoryGpu, Owners
from exporter.model.kernel import DeviceEvent, KernelEvent
from exporter.model.pages import Subject
from exporter.ownership.kernel_events import KernelEvents, reason_of
from tests.ownership.test_kernel_events import ADDRESS, NUMBERS, UUID, A, xid

INVENTORY = Inventory(gpus=(InventoryGpu(uuid=UUID, index="3", address=ADDRESS),))
OTHER = Subject(uuid="GPU-2", address="00000000:66:00.0")
HELD = Owners(holders={DeviceKey(uuid=UUID): (Holder(owner=A, resource="nvidia.com/gpu", shared=False),)})


def well(
    text: str = "GPU recovery action changed from 0x1 (Reset) to 0x0 (None)", address: str = ADDRESS
) -> KernelEvent:
    return xid(154, text=text, address=address)


@pytest.mark.parametrize(
    ("heard", "standing"),
    [
        ([xid(79), xid(48)], [79, 48]),
        # of one number the last one counts, but for errors of several instances
        ([xid(48), xid(79), xid(48)], [79, 48]),
        ([xid(94, instance="5"), xid(94, instance="7"), xid(94, instance="5")], [94, 94]),
        ([xid(48), xid(48, address="0000:02:00.0")], [48, 48]),
        ([xid(None, kind="lost"), xid(None, kind="pcie", severity="fatal")], [None, None]),
        # errors of programs, and of a GPU that nobody knows
        ([xid(31), xid(79), xid(48, address="0000:01:00.0")], [79]),
        # the GPU is well again, and no other one
        ([xid(79), xid(48), well()], []),
        ([xid(79), well(address="0000:02:00.0"), well(address="0000:01:00.0")], [79]),
        ([xid(79), well("GPU recovery action changed from 0x0 (None) to 0x1 (Reset)")], [79, 154]),
        ([xid(79), well("no action")], [79]),
    ],
)
@pytest.mark.parametrize("is_recalled", [False, True])
def test_the_errors_that_count(heard: list[KernelEvent], standing: list[int | None], *, is_recalled: bool) -> None:
    """Whether they are heard, or were in the log when the exporter started: there nobody asks who held the GPU."""
    events, uuids = KernelEvents(), {ADDRESS: UUID, "0000:02:00.0": "GPU-2"}
    for event in heard:
        if is_recalled:
            events.recall(event, uuids, 1_000)
        else:
            anew = replace(event, booted_us=next(NUMBERS) * 2_000_000)
            events.hear(anew, uuids, at_seconds=1_000, heard_at=1, is_new=True)
    events.look(HELD, INVENTORY, asked_at=2, now=2)
    assert [error.event.code for error in events.standing] == standing
    assert {error.uuid for error in events.standing} <= {UUID, "GPU-2"}
    assert len(events.newest) == (0 if is_recalled else len(heard))
    assert not is_recalled or not events.take()


def test_an_earlier_error_waits_until_its_gpu_is_known() -> None:
    events = KernelEvents()
    events.recall(xid(79), {}, 1_000)
    events.recall(xid(48, address="0000:66:00.0"), {}, 1_000)
    events.look(HELD, Inventory(), asked_at=None, now=1)
    assert [*events.standing] == []
    events.look(HELD, INVENTORY, asked_at=None, now=2)
    assert [(error.event.code, error.uuid) for error in events.standing] == [(79, UUID)]
    events.hear(well(), {}, at_seconds=1_000, heard_at=3, is_new=True)
    events.look(HELD, INVENTORY, [OTHER], asked_at=3, now=3)
    assert [(error.event.code, error.uuid) for error in events.standing] == [(48, "GPU-2")], "no error comes back"


def test_only_the_last_errors_count_if_there_are_too_many() -> None:
    events = KernelEvents()
    for code in range(1_000, 1_257):
        events.hear(xid(code), {}, at_seconds=1_000, heard_at=1, is_new=True)
    events.look(HELD, INVENTORY, asked_at=1, now=1)
    assert [error.event.code for error in events.standing] == [*range(1_001, 1_257)]


@pytest.mark.parametrize(
    ("event", "text", "code", "verdict"),
    [
        (xid(79), f"Xid 79 ({XIDS[79].name})", "fell-off-bus", "gone"),
        (xid(48), f"Xid 48 ({XIDS[48].name})", "xid", "failing"),
        (xid(1_000), "Xid 1000 (Unknown Error)", "xid", "degraded"),
        (well("from 0x0 (None) to 0xa (Other)"), "Xid 154 (from 0x0 (None) to 0xa (Other))", "xid", "failing"),
        (xid(None, kind="lost"), "fallen off the bus", "fell-off-bus", "gone"),
        (xid(None, kind="pcie", severity="nonfatal"), "error of PCI Express", "pcie", "degraded"),
    ],
)  # fmt: skip
def test_the_reason_of_an_error_has_its_name_and_its_moment(
    event: KernelEvent, text: str, code: str, verdict: str
) -> None:
    reason = reason_of(DeviceEvent(event=event, at_seconds=86_399.0))
    assert reason is not None
    assert (reason.message, reason.reason, reason.verdict) == (f"{text}, 1970-01-01 23:59 UTC", code, verdict)
    if code == "fell-off-bus":
        assert reason.remedy == XIDS[79].remedy
