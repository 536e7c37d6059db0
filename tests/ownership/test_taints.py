"""What the taints of DRA devices say, taint by taint."""

from collections.abc import Sequence

import pytest

from exporter.model.devices import DeviceKey, Inventory, InventoryGpu, MigInstance, SliceDevice, Taint
from exporter.model.kernel import DeviceEvent, KernelEvent
from exporter.ownership.taints import ONE_GPU_LOST, UNWATCHED, by_taints, taints_of_devices, xids_of_taints

A, B, CUT = DeviceKey(uuid="GPU-1"), DeviceKey(uuid="GPU-2"), DeviceKey(uuid="GPU-1", instance="7")
INVENTORY = Inventory(gpus=(InventoryGpu(uuid="GPU-1", mig=(MigInstance(uuid="MIG-1", instance_id="7"),)),))


def taint(name: str, value: str = "", effect: str = "NoSchedule") -> Taint:
    key = name if "/" in name else f"gpu.nvidia.com/{name}"
    return Taint(key=key, value=value, effect=effect, added_at=9.0)


def test_the_taints_of_devices_that_are_asked_about() -> None:
    xid = (taint("xid", "48"),)
    slices = [
        SliceDevice(uuid="GPU-1", taints=xid),
        SliceDevice(uuid="MIG-1", taints=xid),
        SliceDevice(uuid="GPU-2"),
        SliceDevice(uuid="GPU-3", taints=xid),
    ]
    assert taints_of_devices(slices, INVENTORY, {A, CUT, B}) == {A: xid, CUT: xid}
    assert taints_of_devices(slices, INVENTORY, {B}) == {}


def test_an_xid_in_a_taint_is_an_error_of_its_moment() -> None:
    event = KernelEvent(kind="xid", sequence=0, booted_us=0, address="", code=48, instance="7")
    expected = DeviceEvent(event=event, at_seconds=9.0, uuid="GPU-1")
    taints = {CUT: [taint("xid", "48")]}
    assert xids_of_taints(taints, ()) == (expected,)
    # what tells more of the same error comes first
    assert xids_of_taints(taints, [expected]) == ()
    assert xids_of_taints({B: taints[CUT]}, [expected])[0].uuid == "GPU-2"


@pytest.mark.parametrize(
    "other", [taint("xid", text) for text in ("", "0", "048", "1000", "x", "-1")] + [taint("gpu-lost", "48")]
)
def test_what_is_no_xid(other: Taint) -> None:
    assert xids_of_taints({A: [other, taint("example.com/xid", "48")]}, ()) == ()
    assert [each.event.code for each in xids_of_taints({A: [other, taint("xid", "999")]}, ())] == [999]


@pytest.mark.parametrize(
    ("of_a", "of_b", "expected"),
    [
        ([taint("gpu-lost")], [], [(A, "gone")]),
        # what else a device has is said beside
        ([taint("gpu-lost"), taint("example.com/x")], [], [(A, "gone"), (A, "degraded")]),
        ([taint("gpu-lost")], [taint("example.com/x")], [(A, "gone"), (B, "degraded")]),
        # the driver does not say which one it is
        ([taint("gpu-lost")], [taint("gpu-lost")], [(A, "degraded"), (B, "unknown")]),
        # a source reads the one, and nobody the other
        ([taint("unmonitored", effect="None")], [taint("unmonitored", effect="None")], [(B, "unknown")]),
        ([taint("x/y", effect="NoExecute")], [taint("x/y", effect="None")], [(A, "failing")]),
    ],
)
def test_the_verdicts_of_taints(
    of_a: Sequence[Taint], of_b: Sequence[Taint], expected: list[tuple[DeviceKey, str]]
) -> None:
    assert [(key, reason.verdict) for key, reason in by_taints({A: of_a, B: of_b}, {A})] == expected


def test_reasons_say_what_the_driver_wrote() -> None:
    ((_, lost),) = by_taints({A: [taint("gpu-lost")]}, ())
    ((_, unwatched),) = by_taints({A: [taint("unmonitored")]}, ())
    assert (lost, unwatched) == (ONE_GPU_LOST, UNWATCHED)
    ((_, kept_off),) = by_taints({A: [taint("example.com/hot", "very")]}, ())
    assert kept_off.message.startswith("its DRA driver keeps new pods away from it: ")
    assert "example.com/hot" in kept_off.message
