"""What each owner used, of processes, containers and the kubelet's word."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment, DeviceKey, Holder, Inventory, InventoryGpu, Match, MigInstance, Owners
from exporter.model.driver import DriverReading, GpuProcess, Kind
from exporter.model.measured import HostProcesses, Measured, Process, ProcessPlace, Total, Use
from exporter.model.pods import Owner, PodInfo
from exporter.usage.owner_use import each_once, measure
from exporter.usage.process_owners import Containers, containers_of_pods

GIB = 2**30
GPU, CUT = "GPU-11111111-2222-3333-4444-555566667777", "GPU-99999999-2222-3333-4444-555566667777"
WHOLE, PARENT = DeviceKey(uuid=GPU), DeviceKey(uuid=CUT)
ONE, TWO = DeviceKey(uuid=CUT, instance="1"), DeviceKey(uuid=CUT, instance="2")
INVENTORY = Inventory(
    gpus=(
        InventoryGpu(uuid=GPU, index="0", device="nvidia0"),
        InventoryGpu(
            uuid=CUT,
            index="1",
            device="nvidia1",
            mig=(MigInstance(uuid="MIG-1", instance_id="1"), MigInstance(uuid="MIG-2", instance_id="2")),
        ),
    )
)
READ_AT = 1000.0


def owner(number: int) -> Owner:
    return Owner(namespace="ml", pod=f"pod-{number}", container="main")


A, B, C = owner(1), owner(2), owner(3)


def id_of(number: int) -> str:
    return f"{number:064x}"


def uid_of(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def tables(*numbers: int) -> list[Containers]:
    return [
        containers_of_pods(
            PodInfo(
                namespace="ml",
                name=f"pod-{number}",
                uid=uid_of(number),
                labels={},
                container_ids={"main": f"containerd://{id_of(number)}"},
            )
            for number in numbers
        )
    ]


def host(**places: ProcessPlace | None) -> dict[int, Process]:
    """Processes by `pid_<pid>`, each started before the driver was asked."""
    return {int(name[4:]): Process(pid=int(name[4:]), started_at=1.0, place=place) for name, place in places.items()}


def of_pod(number: int) -> ProcessPlace:
    return ProcessPlace(container_id=id_of(number), pod_uid=uid_of(number))


def on(
    device: DeviceKey, pid: int, memory: int | None = GIB, sm: float | None = 0.25, kind: Kind = "compute"
) -> GpuProcess:
    return GpuProcess(pid=pid, device=device, memory_bytes=memory, sm_ratio=sm, kinds=frozenset({kind}))


def reading(*processes: GpuProcess) -> DriverReading:
    return DriverReading(inventory=INVENTORY, processes=processes, read_at=READ_AT)


def owners(holders: dict[DeviceKey, tuple[Owner, ...]]) -> Owners:
    return Owners(
        holders={
            key: tuple(Holder(owner=one, resource="nvidia.com/gpu", shared=len(of_key) > 1) for one in of_key)
            for key, of_key in holders.items()
        }
    )


def use(memory: int | None, sm: float | None, processes: int | None) -> Use:
    return Use(memory_bytes=memory, sm_ratio=sm, processes=processes)


NOT_KNOWN = use(None, None, None)
SHARED = owners({WHOLE: (A, B)})
# the driver says of every device that no kernel had to run
QUIET = {device: Total(least_sm_ratio=0.0) for device in (WHOLE, PARENT, ONE, TWO)}
HOST = host(
    pid_11=of_pod(1),
    pid_12=of_pod(1),
    pid_21=of_pod(2),
    pid_31=of_pod(3),
    pid_40=None,
    pid_50=ProcessPlace(container_id=id_of(5), is_of_pod=False, engine="docker"),
    pid_60=of_pod(6),
)


def seen(by_pid: dict[int, Process] = HOST) -> HostProcesses:
    """What was looked for: 77 has ended."""
    return HostProcesses(by_pid=by_pid, asked_for=frozenset({*HOST, 77}), read_at=READ_AT)


def measured(of: DriverReading, who: Owners = SHARED, totals: dict[DeviceKey, Total] | None = None) -> Measured:
    result = measure(of, seen(), tables(1, 2, 3), who, QUIET if totals is None else totals)
    assert result is not None
    return result


def test_an_owner_has_the_sum_of_its_processes() -> None:
    result = measured(reading(on(WHOLE, 11, 2 * GIB, 0.5), on(WHOLE, 12, GIB, 0.125)))
    assert result.uses == {(WHOLE, A): use(3 * GIB, 0.625, 2), (WHOLE, B): use(0, 0.0, 0)}
    assert result.unowned == ()


def test_what_is_not_known_is_not_nothing() -> None:
    assert measure(DriverReading(inventory=INVENTORY, read_at=READ_AT), seen(), tables(1), SHARED) is None
    assert measure(reading(on(WHOLE, 11)), None, tables(1), SHARED) is None
    before = replace(seen(), read_at=READ_AT - 0.1)
    assert measure(reading(on(WHOLE, 11)), before, tables(1), SHARED) is None
    result = measured(reading(on(WHOLE, 11, None, 0.5), on(WHOLE, 12), on(WHOLE, 21, GIB, None)))
    assert result.uses == {(WHOLE, A): use(None, 0.75, 2), (WHOLE, B): use(GIB, None, 1)}
    assert result.unexplained == {WHOLE: "memory_of_processes"}
    assert measured(reading(on(WHOLE, 11, sm=None), on(WHOLE, 12))).unexplained == {WHOLE: "kernels_of_processes"}
    # no driver measures kernels on instances, so there is nothing to explain
    assert measured(reading(on(ONE, 11, sm=None)), owners({ONE: (A,)})).unexplained == {}


def test_a_gpu_whose_processes_were_not_read_may_have_some() -> None:
    who = owners({WHOLE: (A, B), ONE: (B,), TWO: (C,)})
    listed = replace(reading(on(TWO, 31)), unknown=frozenset({CUT}))
    assert measured(listed, who).uses == {
        (WHOLE, A): use(0, 0.0, 0),
        (WHOLE, B): use(0, 0.0, 0),
        (ONE, B): NOT_KNOWN,
        (TWO, C): use(GIB, 0.25, 1),
    }


# issue 18, line 5
@pytest.mark.parametrize(
    ("processes", "used_gib", "a", "b"),
    [
        pytest.param((), 28.0, NOT_KNOWN, NOT_KNOWN, id="NVML lists nothing"),
        pytest.param((), 0.6, use(0, 0.0, 0), use(0, 0.0, 0), id="what the driver itself takes"),
        pytest.param((), 1.0, NOT_KNOWN, NOT_KNOWN, id="1 GiB is more than that"),
        pytest.param((on(WHOLE, 77, 20 * GIB),), 28.0, NOT_KNOWN, NOT_KNOWN, id="pids of another namespace"),
        pytest.param((on(WHOLE, 11, 14 * GIB),), 28.0, use(14 * GIB, 0.25, 1), NOT_KNOWN, id="it lists one of two"),
        pytest.param((on(WHOLE, 11, 71 * GIB),), 80.0, use(71 * GIB, 0.25, 1), NOT_KNOWN, id="a tenth is lacking"),
        pytest.param((on(WHOLE, 11, 73 * GIB),), 80.0, use(73 * GIB, 0.25, 1), use(0, 0.0, 0), id="less is lacking"),
        pytest.param((on(WHOLE, 11, 26 * GIB),), 28.0, use(26 * GIB, 0.25, 1), use(0, 0.0, 0), id="one has it all"),
        pytest.param((on(WHOLE, 40, 26 * GIB),), 28.0, use(0, 0.0, 0), use(0, 0.0, 0), id="it is the host's own"),
        pytest.param((on(WHOLE, 11, None),), 28.0, use(None, 0.25, 1), use(0, 0.0, 0), id="its memory is not known"),
    ],
)
def test_memory_that_no_process_explains_makes_nobody_idle(
    processes: tuple[GpuProcess, ...], used_gib: float, a: Use, b: Use
) -> None:
    of = measured(reading(*processes), totals={WHOLE: Total(memory_bytes=round(used_gib * GIB))})
    assert (of.uses[WHOLE, A], of.uses[WHOLE, B]) == (a, b)
    of_process = {WHOLE: "memory_of_processes"} if a.memory_bytes is None and a.processes else {}
    assert of.unexplained == ({WHOLE: "memory"} if b == NOT_KNOWN else of_process)
    # a device of which the driver says that nothing happens
    assert measured(reading(*processes)).unexplained == of_process


IDLE = use(GIB, 0.0, 1)


# issue 18, line 5
@pytest.mark.parametrize(
    ("processes", "least", "a", "b"),
    [
        pytest.param((), 0.85, NOT_KNOWN, NOT_KNOWN, id="NVML lists nothing"),
        pytest.param((), 0.08, use(0, 0.0, 0), use(0, 0.0, 0), id="hardly anything runs"),
        pytest.param((), 0.1, NOT_KNOWN, NOT_KNOWN, id="a tenth of the time is more than that"),
        pytest.param((), None, NOT_KNOWN, NOT_KNOWN, id="NVML says nothing at all"),
        pytest.param((on(WHOLE, 11),), None, use(GIB, 0.25, 1), use(0, 0.0, 0), id="it says only one process"),
        pytest.param((on(WHOLE, 77, 0, 0.8),), 0.85, NOT_KNOWN, NOT_KNOWN, id="pids of another namespace"),
        pytest.param((on(WHOLE, 11),), 0.85, use(GIB, 0.25, 1), NOT_KNOWN, id="it lists one of two"),
        pytest.param((on(WHOLE, 11, GIB, 0.5),), 0.85, use(GIB, 0.5, 1), use(0, 0.0, 0), id="one has most of it"),
        pytest.param((on(WHOLE, 11, GIB, 0.5),), 1.0, use(GIB, 0.5, 1), use(0, 0.0, 0), id="one has half of it"),
        pytest.param((on(WHOLE, 11, GIB, 0.4),), 0.85, use(GIB, 0.4, 1), NOT_KNOWN, id="one has less than half of it"),
        pytest.param((on(WHOLE, 11, GIB, 0.04),), 0.09, use(GIB, 0.04, 1), use(0, 0.0, 0), id="little runs"),
        pytest.param((on(WHOLE, 40, GIB, 0.5),), 0.85, use(0, 0.0, 0), use(0, 0.0, 0), id="it is the host's own"),
        pytest.param((on(WHOLE, 11, GIB, None),), 0.85, use(GIB, None, 1), use(0, 0.0, 0), id="not supported"),
        pytest.param((on(WHOLE, 11, GIB, 0.0), on(WHOLE, 21)), 0.2, IDLE, use(GIB, 0.25, 1), id="the other's kernels"),
        pytest.param(
            (on(WHOLE, 11, GIB, 0.0), on(WHOLE, 21, GIB, 0.0)),
            0.85,
            use(GIB, None, 1),
            use(GIB, None, 1),
            id="no kernel has a process",
        ),
        pytest.param(
            (on(WHOLE, 11, GIB, 0.0), on(WHOLE, 21)),
            0.85,
            use(GIB, None, 1),
            use(GIB, 0.25, 1),
            id="some kernels have one",
        ),
    ],
)
def test_kernels_that_no_process_explains_make_nobody_idle(
    processes: tuple[GpuProcess, ...], least: float | None, a: Use, b: Use
) -> None:
    of = measured(reading(*processes), totals={WHOLE: Total(least_sm_ratio=least)})
    assert (of.uses[WHOLE, A], of.uses[WHOLE, B]) == (a, b)
    is_doubted = NOT_KNOWN in (a, b) or (a.sm_ratio, b.sm_ratio) in ((None, None), (None, 0.25))
    of_process = {WHOLE: "kernels_of_processes"} if a.sm_ratio is None and not is_doubted else {}
    assert of.unexplained == ({WHOLE: "kernels" if least is not None else "all"} if is_doubted else of_process)


# issue 18, line 5
def test_kernels_of_the_server_of_mps_are_its_clients() -> None:
    server = Process(pid=70, started_at=1.0, place=None, name="nvidia-cuda-mps")
    hosts = HostProcesses(by_pid={**HOST, 70: server}, asked_for=frozenset({*HOST, 70}), read_at=READ_AT)
    clients = on(WHOLE, 11, GIB, 0.0, "mps"), on(WHOLE, 21, GIB, 0.0, "mps")
    listed = reading(*clients, on(WHOLE, 70, 30 * 2**20, 0.85))
    result = measure(listed, hosts, tables(1, 2), SHARED, {WHOLE: Total(memory_bytes=5 * GIB // 2)})
    assert result is not None
    assert result.uses == {(WHOLE, A): use(GIB, None, 1), (WHOLE, B): use(GIB, None, 1)}
    assert result.unexplained == {WHOLE: "kernels"}
    not_measured = reading(*clients, on(WHOLE, 70, 30 * 2**20, None))
    result = measure(not_measured, hosts, tables(1, 2), SHARED, {WHOLE: Total(memory_bytes=5 * GIB // 2)})
    assert result is not None
    assert result.uses == {(WHOLE, A): use(GIB, 0.0, 1), (WHOLE, B): use(GIB, 0.0, 1)}


def test_a_device_that_the_driver_does_not_know_has_no_values() -> None:
    lost = DeviceKey(uuid=GPU.replace("1", "8"))
    assert measured(reading(), owners({lost: (A,), WHOLE: (B,)})).uses == {(WHOLE, B): use(0, 0.0, 0)}


@pytest.mark.parametrize(
    ("pid", "reason", "whose"),
    [
        (40, "no_container", None),
        (50, "other_container", None),
        (60, "unknown_container", None),
        (31, "not_assigned", C),
        (77, "gone", None),
        (88, "unread", None),
    ],
)
def test_processes_that_count_for_nobody_are_kept_apart(pid: int, reason: str, whose: Owner | None) -> None:
    result = measured(reading(on(WHOLE, 11), on(WHOLE, pid)))
    (other,) = result.unowned
    assert (other.process.pid, other.reason, other.owner) == (pid, reason, whose)
    assert other.place == (HOST[pid].place if pid in HOST else None)
    assert result.uses[WHOLE, A] == use(GIB, 0.25, 1)
    assert result.nobodys == {WHOLE: use(GIB, 0.25, 1)}
    # it may be its process that nobody can name
    assert result.uses[WHOLE, B] == (NOT_KNOWN if pid in (60, 88) else use(0, 0.0, 0))


# issue 18, line 5
@pytest.mark.parametrize("place", [None, of_pod(3), of_pod(6), HOST[50].place])
def test_the_server_of_mps_is_overhead_of_its_clients_and_no_stranger(place: ProcessPlace | None) -> None:
    server = Process(pid=70, started_at=1.0, place=place, name="nvidia-cuda-mps")
    hosts = HostProcesses(by_pid={**HOST, 70: server}, asked_for=frozenset({*HOST, 70}), read_at=READ_AT)
    clients = [on(WHOLE, 11, 9 * GIB, 0.5, "mps"), on(WHOLE, 21, 9 * GIB, 0.25, "mps")]
    of_server = on(WHOLE, 70, 30 * 2**20, 0.0)
    totals = {WHOLE: Total(memory_bytes=19 * GIB)}
    result = measure(reading(*clients, of_server), hosts, tables(1, 2, 3), SHARED, totals)
    assert result is not None
    assert result.uses == {(WHOLE, A): use(9 * GIB, 0.5, 1), (WHOLE, B): use(9 * GIB, 0.25, 1)}
    assert [each.reason for each in result.unowned] == ["mps_server"]
    assert result.nobodys == {WHOLE: use(30 * 2**20, 0.0, 0)}
    # before Volta it has the memory of clients that NVML does not list
    alone = measure(reading(replace(of_server, memory_bytes=18 * GIB)), hosts, tables(1, 2, 3), SHARED, totals)
    assert alone is not None
    assert alone.uses == {(WHOLE, A): NOT_KNOWN, (WHOLE, B): NOT_KNOWN}


def test_the_server_of_mps_in_a_holders_own_container_is_the_holders() -> None:
    server = replace(HOST[11], name="nvidia-cuda-mps")
    hosts = HostProcesses(by_pid={**HOST, 11: server}, asked_for=frozenset(HOST), read_at=READ_AT)
    result = measure(reading(on(WHOLE, 11), on(WHOLE, 12)), hosts, tables(1, 2, 3), SHARED)
    assert result is not None
    assert result.uses[WHOLE, A] == use(2 * GIB, 0.5, 2)
    assert result.unowned == ()


def test_a_process_started_after_the_driver_was_asked_is_another_one() -> None:
    late = {11: replace(HOST[11], started_at=READ_AT + 0.01)}
    result = measure(reading(on(WHOLE, 11)), seen(late), tables(1, 2), SHARED, QUIET)
    assert result is not None
    assert [(other.reason, other.place) for other in result.unowned] == [("gone", None)]
    assert result.uses[WHOLE, A] == use(0, 0.0, 0)
    just_before = {11: replace(HOST[11], started_at=READ_AT)}
    result = measure(reading(on(WHOLE, 11)), seen(just_before), tables(1, 2), SHARED, QUIET)
    assert result is not None
    assert result.uses[WHOLE, A] == use(GIB, 0.25, 1)


def test_a_process_that_computes_and_draws_counts_once() -> None:
    result = measured(reading(on(WHOLE, 11), on(WHOLE, 11, GIB, None, "graphics"), on(WHOLE, 11, None, 0.25, "mps")))
    assert result.uses[WHOLE, A] == use(GIB, 0.25, 1)
    (merged,) = each_once([on(WHOLE, 11), on(WHOLE, 11, kind="graphics")])
    assert merged.kinds == {"compute", "graphics"}
    # what grew between two lists of the driver
    (merged,) = each_once([on(WHOLE, 11, GIB, 0.25), on(WHOLE, 11, 2 * GIB, 0.5, "graphics")])
    assert (merged.memory_bytes, merged.sm_ratio) == (2 * GIB, 0.5)


def test_a_process_on_an_instance_does_not_count_for_the_gpu_as_well() -> None:
    who = owners({ONE: (A,), TWO: (B,)})
    result = measured(reading(on(PARENT, 11), on(ONE, 11), on(PARENT, 21), on(TWO, 21, 2 * GIB)), who)
    assert result.uses == {(ONE, A): use(GIB, 0.25, 1), (TWO, B): use(2 * GIB, 0.25, 1)}
    assert result.unowned == ()


def test_an_unnamed_instance_is_the_only_one_that_the_container_holds() -> None:
    who = owners({ONE: (A,), TWO: (B,)})
    assert measured(reading(on(PARENT, 11)), who).uses[ONE, A] == use(GIB, 0.25, 1)
    who = owners({ONE: (A,), TWO: (A, B)})
    result = measured(reading(on(PARENT, 11)), who)
    assert result.uses == {
        (ONE, A): NOT_KNOWN,
        (TWO, A): NOT_KNOWN,
        (TWO, B): use(0, 0.0, 0),
    }
    assert [other.reason for other in result.unowned] == ["unknown_instance"]


def test_an_unnamed_instance_is_none_of_another_gpu() -> None:
    of_other = DeviceKey(uuid=GPU, instance="1")
    both = replace(INVENTORY, gpus=tuple(replace(gpu, mig=INVENTORY.gpus[1].mig) for gpu in INVENTORY.gpus))
    listed = replace(reading(on(PARENT, 11)), inventory=both)
    totals = {**QUIET, of_other: Total(least_sm_ratio=0.0)}
    result = measured(listed, owners({ONE: (A,), of_other: (A,)}), totals)
    assert result.uses == {(ONE, A): use(GIB, 0.25, 1), (of_other, A): use(0, 0.0, 0)}


def test_a_process_on_anothers_instance_leaves_the_owners_own_idle() -> None:
    result = measured(reading(on(ONE, 31)), owners({ONE: (B,), TWO: (C,)}))
    assert result.uses == {(ONE, B): use(0, 0.0, 0), (TWO, C): use(0, 0.0, 0)}
    assert [(other.reason, other.owner) for other in result.unowned] == [("not_assigned", C)]


def test_instances_of_a_gpu_that_is_held_as_a_whole_count_for_the_gpu() -> None:
    result = measured(
        reading(on(ONE, 11), on(TWO, 11, 2 * GIB, None)),
        owners({PARENT: (A,)}),
        {ONE: Total(memory_bytes=1), PARENT: Total(memory_bytes=4 * GIB), TWO: Total(memory_bytes=1)},
    )
    assert result.uses == {(PARENT, A): use(3 * GIB, None, 1)}


@pytest.mark.parametrize(
    ("key", "device"),
    [
        (DeviceKey(uuid="MIG-1"), ONE),
        (DeviceKey(uuid="nvidia1", instance="1"), ONE),
        (DeviceKey(uuid="1", instance="1"), ONE),
        (DeviceKey(uuid="nvidia0"), WHOLE),
        (DeviceKey(uuid=GPU.removeprefix("GPU-")), WHOLE),
        (DeviceKey(uuid="GPU-new"), DeviceKey(uuid="GPU-new")),
    ],
)
def test_owners_may_know_a_device_by_another_name(key: DeviceKey, device: DeviceKey) -> None:
    result = measured(reading(on(device, 11)), owners({key: (A,)}), {device: Total(memory_bytes=GIB // 2)})
    assert result.uses == {(key, A): use(GIB // 2, 0.25, 1)}


def test_parts_that_exceed_the_device_are_scaled_down() -> None:
    listed = reading(on(WHOLE, 11, 6 * GIB, 0.75), on(WHOLE, 21, 3 * GIB, 0.75), on(WHOLE, 40, 3 * GIB, 0.5))
    result = measured(listed, totals={WHOLE: Total(memory_bytes=8 * GIB)})
    assert result.uses == {(WHOLE, A): use(4 * GIB, 0.375, 1), (WHOLE, B): use(2 * GIB, 0.375, 1)}
    assert result.unowned[0].process.memory_bytes == 3 * GIB
    assert result.nobodys == {WHOLE: use(2 * GIB, 0.25, 1)}
    of_nobody = measured(listed, owners({}), {WHOLE: Total(memory_bytes=11 * GIB)})
    assert of_nobody.nobodys == {WHOLE: use(11 * GIB, 1.0, 3)}
    assert measured(listed).uses[WHOLE, A].memory_bytes == 6 * GIB


_DEVICES = (WHOLE, PARENT, ONE, TWO)
_LISTED = st.lists(
    st.builds(
        on,
        st.sampled_from(_DEVICES),
        st.sampled_from([*HOST, 77]),
        st.none() | st.integers(0, 80 * GIB),
        st.none() | st.floats(0, 1),
        st.sampled_from(("compute", "graphics", "mps")),
    ),
    max_size=15,
)
_HOLDERS = st.dictionaries(
    st.sampled_from(_DEVICES), st.lists(st.sampled_from((A, B, C)), min_size=1, unique=True).map(tuple)
).map(owners)
_TOTALS = st.dictionaries(
    st.sampled_from(_DEVICES),
    st.builds(lambda memory, sm: Total(memory_bytes=memory, sm_ratio=sm), st.integers(0, 80 * GIB), st.floats(0.01, 1)),
)


# issue 10, "Must show" 3
@given(_LISTED, _HOLDERS, _TOTALS, st.randoms(use_true_random=False))
def test_whatever_runs_nothing_counts_twice_and_no_device_is_exceeded(
    listed: list[GpuProcess], who: Owners, totals: dict[DeviceKey, Total], random: Random
) -> None:
    result = measured(reading(*listed), who, totals)
    assert set(result.uses) == {(key, holder.owner) for key, holders in who.holders.items() for holder in holders}
    once = each_once(listed)
    counted = {other.process for other in result.unowned}
    assert len({(each.device, each.pid) for each in once}) == len(once)
    assert len(counted) == len(result.unowned)
    merged = [each for each in once if each not in counted]
    assert sum(of.processes or 0 for of in result.uses.values()) <= len(merged)
    assert sum(of.memory_bytes or 0 for of in result.uses.values()) <= sum(each.memory_bytes or 0 for each in merged)
    assert sum(of.memory_bytes or 0 for of in result.nobodys.values()) <= sum(
        process.memory_bytes or 0 for process in counted
    )
    for key in who.holders:
        parts = [of for (of_key, _), of in result.uses.items() if of_key == key]
        parts += [of for of_key, of in result.nobodys.items() if of_key == key]
        total = totals.get(key, Total())
        if total.memory_bytes is not None:
            assert sum(of.memory_bytes or 0 for of in parts) <= total.memory_bytes
        assert sum(of.sm_ratio or 0.0 for of in parts) <= total.sm_ratio * (1 + 1e-9)
    # an order, or a second list with the same processes, changes nothing
    again = [*listed, *(replace(each, kinds=frozenset({"graphics"})) for each in listed)]
    random.shuffle(again)
    assert of_rounded(measured(reading(*again), who, totals)) == of_rounded(result)


def of_rounded(result: Measured) -> object:
    """The uses, whatever the order of additions made of the last digits."""
    return {
        place: (of.memory_bytes, None if of.sm_ratio is None else round(of.sm_ratio, 9), of.processes)
        for place, of in result.uses.items()
    }


# issue 10, B: tencent.com/vcuda-core counts as a resource
def test_a_process_of_a_holder_of_units_counts_on_any_gpu() -> None:
    """gpu-manager chooses the GPU by itself: the kubelet does not know which one it is."""
    held = Assignment(owner=A, resource="tencent.com/vcuda-core", device_id="tencent.com/vcuda-core-3", units=50)
    found = measured(reading(on(WHOLE, 11), on(PARENT, 12), on(WHOLE, 21)), replace(owners({}), units=(held,)))
    assert found.uses == {(WHOLE, A): use(GIB, 0.25, 1), (PARENT, A): use(GIB, 0.25, 1)}
    assert [(each.process.pid, each.reason) for each in found.unowned] == [(21, "not_assigned")]
    # NVML does not list all: a GPU that nobody is seen to use may be its own
    totals = {**QUIET, PARENT: Total(memory_bytes=9 * GIB)}
    unlisted = measured(reading(on(WHOLE, 11)), replace(owners({}), units=(held,)), totals)
    assert (unlisted.unexplained, unlisted.lists_all) == ({PARENT: "memory"}, False)
    # beside a holder that the kubelet knows of
    both = measured(reading(on(WHOLE, 11), on(WHOLE, 21)), replace(owners({WHOLE: (B,)}), units=(held,)))
    assert both.uses == {(WHOLE, B): use(GIB, 0.25, 1), (WHOLE, A): use(GIB, 0.25, 1)}
    assert both.unowned == ()


SIDECAR = replace(A, container="sidecar")


# issue 18, line 4
@pytest.mark.parametrize(
    ("device", "unresolved", "reason"),
    [
        (WHOLE, frozenset(), "not_assigned"),
        (PARENT, frozenset(), "not_assigned"),  # a device that nobody holds
        (WHOLE, frozenset({("ml", "pod-1")}), "not_assigned"),
        (WHOLE, frozenset({("ml", "pod-3")}), "unresolved"),
        (WHOLE, None, "unresolved"),
    ],
)
def test_a_container_that_surely_holds_no_device_is_a_stranger(
    device: DeviceKey, unresolved: frozenset[tuple[str, str]] | None, reason: str
) -> None:
    processes = [on(WHOLE, 11), on(device, 31), on(device, 40, sm=0.5)]
    found = measure(reading(*processes), seen(), tables(1, 2, 3), SHARED, {}, unresolved)
    assert found is not None
    assert [each.reason for each in found.unowned] == [reason, "no_container"]
    assert found.uses[WHOLE, A] == use(GIB, 0.25, 1)
    assert found.nobodys == {device: use(2 * GIB, 0.75, 2)}
    is_stranger = reason == "not_assigned"
    assert found.strangers == ({(device, C): use(GIB, 0.25, 1)} if is_stranger else {})
    assert found.unnamed == {device: use(GIB, 0.5, 1) if is_stranger else use(2 * GIB, 0.75, 2)}


# issue 18, line 4
@pytest.mark.parametrize(("known_at", "reason"), [(1.0, "not_assigned"), (0.9, "unresolved")])
def test_who_came_after_the_kubelets_last_answer_is_no_stranger(known_at: float, reason: str) -> None:
    """A dead mount of the kubelet's socket: pods come, and nobody says what they hold."""
    found = measure(reading(on(WHOLE, 31)), seen(), tables(1, 2, 3), SHARED, known_at=known_at)
    assert found is not None
    assert [each.reason for each in found.unowned] == [reason]


def test_holders_strangers_and_the_rest_add_up_to_the_device_at_most() -> None:
    processes = (on(WHOLE, 11, 3 * GIB), on(WHOLE, 31, 2 * GIB, sm=None), on(WHOLE, 40, GIB))
    of = measured(reading(*processes), totals={WHOLE: Total(memory_bytes=3 * GIB)})
    parts = (of.uses[WHOLE, A], of.strangers[WHOLE, C], of.unnamed[WHOLE])
    assert [part.memory_bytes for part in parts] == [3 * GIB // 2, GIB, GIB // 2]
    assert of.nobodys[WHOLE] == use(3 * GIB // 2, None, 2)


# issue 18, line 4
def test_another_container_of_the_holders_pod_is_no_stranger() -> None:
    found = measured(reading(on(WHOLE, 11)), owners({WHOLE: (SIDECAR, B)}))
    assert found.uses == {(WHOLE, SIDECAR): use(GIB, 0.25, 1), (WHOLE, B): use(0, 0.0, 0)}
    both = measured(reading(on(WHOLE, 11)), owners({WHOLE: (SIDECAR, A)}))
    assert both.uses == {(WHOLE, SIDECAR): use(0, 0.0, 0), (WHOLE, A): use(GIB, 0.25, 1)}
    several = measured(reading(on(WHOLE, 11)), owners({WHOLE: (SIDECAR, replace(A, container="other"))}))
    assert [(each.reason, each.owner) for each in several.unowned] == [("unresolved", A)]
    assert several.strangers == {}


# issue 22, line 1
def test_a_process_shows_which_gpu_the_holder_of_a_token_uses() -> None:
    """HAMi's scheduler chose the GPU, and the kubelet's id does not say which."""
    token = DeviceRef(form="a token of HAMi", uuid="GPU-of-the-id", shared=True, allocator="HAMi")
    held = Assignment(owner=A, resource="nvidia.com/gpu", device_id="GPU-of-the-id-3")
    who = replace(owners({}), matches=(Match(assignment=held, ref=token, key=None, reason="allocator"),))
    result = measured(reading(on(WHOLE, 11), on(WHOLE, 21)), who)
    assert result.uses == {(WHOLE, A): use(GIB, 0.25, 1)}
    assert [(each.process.pid, each.reason) for each in result.unowned] == [(21, "not_assigned")]
