"""Since when devices are in the same hands, and when a page's values were read."""

from dataclasses import replace

from exporter.model.devices import DeviceKey, Holder, Owners
from exporter.model.pages import Page
from exporter.model.pods import Owner
from exporter.ownership.current import Tenures

A, B = (Owner(namespace="n", pod=pod, container="c") for pod in "ab")
GPU, OTHER = DeviceKey(uuid="GPU-0"), DeviceKey(uuid="GPU-1")
PAGE = Page(source="dcgm:x", body=b"a 1\n", read_at_seconds=100.0, moment=1.0)


def held(**pods: tuple[Owner, ...]) -> Owners:
    keys = {"gpu": GPU, "other": OTHER}
    return Owners(
        holders={
            keys[name]: tuple(Holder(owner=owner, resource="nvidia.com/gpu", shared=False) for owner in of)
            for name, of in pods.items()
        }
    )


# issue 15, line 25
def test_the_hands_of_the_first_look_have_no_beginning() -> None:
    tenures = Tenures()
    tenures.look(held(gpu=(A,)), [], 10.0)
    assert tenures.since == {}
    tenures.look(held(gpu=(A,)), [], 20.0)
    assert tenures.since == {}


# issue 15, line 25
def test_each_holder_and_nobody_has_a_beginning_of_its_own() -> None:
    tenures = Tenures()
    tenures.look(held(gpu=(A,)), [], 10.0)
    tenures.look(held(gpu=(A, B)), [], 20.0)
    assert tenures.since == {(GPU, B): 20.0}, "A was there before"
    tenures.look(held(gpu=(B,), other=(A,)), [], 30.0)
    assert tenures.since == {(GPU, B): 20.0, (OTHER, A): 30.0}
    tenures.look(held(), [], 40.0)
    assert tenures.since == {(GPU, None): 40.0, (OTHER, None): 40.0}
    tenures.look(held(gpu=(A,)), [], 50.0)
    assert tenures.since == {(GPU, A): 50.0, (OTHER, None): 40.0}
    tenures.look(held(gpu=(A,)), [], 3639.0)
    assert tenures.since == {(GPU, A): 50.0, (OTHER, None): 40.0}
    tenures.look(held(gpu=(A, B)), [], 3640.0)
    assert tenures.since == {(GPU, A): 50.0, (GPU, B): 3640.0}, "nobody's is forgotten after an hour"


# issue 15, line 25
def test_values_were_read_when_the_page_last_changed() -> None:
    tenures = Tenures()
    assert tenures.look(None, [], 0.0) is None
    assert tenures.look(None, [PAGE], 0.0) == 100.0
    same = replace(PAGE, read_at_seconds=110.0)
    assert tenures.look(None, [same], 0.0) == 100.0
    assert tenures.look(None, [replace(same, body=b"a 2\n", read_at_seconds=120.0)], 0.0) == 120.0
    still = replace(same, body=b"a 2\n", read_at_seconds=245.0)
    assert tenures.look(None, [still], 0.0) == 125.0, "dcgm-exporter has read the same values anew"


# issue 15, line 25
def test_of_several_pages_the_oldest_values_count() -> None:
    tenures = Tenures()
    large = b"a 1\n" * 300_000
    other = replace(PAGE, source="dcgm:y", body=large, read_at_seconds=90.0)
    assert tenures.look(None, [PAGE, other], 0.0) == 90.0
    assert tenures.look(None, [PAGE, replace(other, body=large[:-2] + b"2\n", read_at_seconds=130.0)], 0.0) == 100.0


def test_a_source_whose_place_another_took_is_forgotten() -> None:
    """Its page may come again with the same text."""
    tenures = Tenures()
    moved = replace(PAGE, source="dcgm:y", read_at_seconds=130.0)
    later = replace(PAGE, read_at_seconds=150.0)
    tenures.look(None, [PAGE], 0.0)
    assert tenures.look(None, [later], 0.0) == 100.0
    tenures.look(None, [PAGE, moved], 0.0)
    assert tenures.look(None, [later], 0.0) == 100.0, "a source that came beside it"
    tenures.look(None, [replace(PAGE, source="dcgm:z", read_at_seconds=140.0)], 0.0)
    assert tenures.look(None, [later], 0.0) == 150.0


def test_holders_of_one_device_that_stay_as_they_are_have_no_new_beginning() -> None:
    tenures, of_a = Tenures(), held(gpu=(A,))
    tenures.look(held(), [], 10.0)
    tenures.look(of_a, [], 20.0)
    same = tenures.since
    tenures.look(of_a, [], 30.0)
    assert tenures.since is same
    tenures.look(Owners(holders={**of_a.holders, **held(other=(B,)).holders}), [], 40.0)
    assert tenures.since == {(GPU, A): 20.0, (OTHER, B): 40.0}
    tenures.look(None, [], 50.0)
    tenures.look(of_a, [], 60.0)
    assert tenures.since == {(GPU, A): 20.0, (OTHER, None): 60.0}, "while the kubelet is silent nothing changes"
