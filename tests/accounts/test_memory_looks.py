"""The memory of devices as a look sees it, the failures of the last minute, and the suspicions that are kept."""

from dataclasses import replace

import pytest

from exporter.accounts.memory_looks import DeviceMemory, MemoryAtLook, MemoryLooks, newest_of
from exporter.model.accounts import SuspectedOutOfMemory, Suspicion
from exporter.model.cuda import CudaCounts, CudaUse, CudaUses
from exporter.model.devices import DeviceKey
from exporter.model.measured import Measured, Use
from exporter.model.pods import ContainerEnd, Owner
from exporter.model.slices import at_once
from exporter.model.snapshot import Snapshot
from tests.support.looks import GPU, SECOND, Looks, energy, owner, row, whole

USED, FREE, TOTAL = (f"DCGM_FI_DEV_FB_{name}" for name in ("USED", "FREE", "TOTAL"))
DEVICE = DeviceKey(uuid=GPU(0))


def looked(snapshot: Snapshot) -> MemoryAtLook:
    look = at_once(MemoryLooks().read(snapshot, {}, 0, 0))
    assert look is not None
    return look


def of(gpu: int = 0, instance: str = "") -> DeviceKey:
    return DeviceKey(uuid=GPU(gpu), instance=instance)


@pytest.mark.parametrize(
    ("page", "memory"),
    [
        (row(USED, "10") + row(TOTAL, "80"), {of(): (10, 80)}),
        (row(USED, "10") + row(FREE, "69"), {of(): (10, 79)}),
        (row(USED, "0") + row(TOTAL, "80"), {of(): (0, 80)}),
        (row("DCGM_FI_DEV_FB_USED_BYTES", "1234567") + row(TOTAL, "80.00049"), {of(): (1.177, 80)}),
        (row(TOTAL, "80"), {}),
        (row(USED, "10") + row(TOTAL, "0"), {}),
        (row(USED, "10"), {}),
        # of a GPU that is cut, the page may have what its instances use alone
        (
            row(TOTAL, "80") + row(USED, "1", 0, "7", "1g.10gb") + row(USED, "2", 0, "8", "1g.10gb"),
            {of(): (3, 80)},
        ),
        (
            row(TOTAL, "80") + row(USED, "5") + row(USED, "1", 0, "7", "1g.10gb") + row(TOTAL, "10", 0, "7", "1g.10gb"),
            {of(): (5, 80), of(0, "7"): (1, 10)},
        ),
        (row(USED, "1", 0, "7", "1g.10gb") + row(TOTAL, "10", 0, "8", "1g.10gb"), {}),
    ],
)  # fmt: skip
def test_the_memory_of_devices(page: str, memory: dict[DeviceKey, tuple[float, float]]) -> None:
    assert looked(Looks().snapshot(page)).values == {key: DeviceMemory(*both) for key, both in memory.items()}


def test_users_are_holders_and_strangers_that_use_any_memory() -> None:
    def use(mib: float | None) -> Use:
        return Use(memory_bytes=None if mib is None else round(mib * 2**20), sm_ratio=None, processes=1)

    measured = Measured(
        uses={(DEVICE, owner("a")): use(1.26), (DEVICE, owner("b")): use(0), (DEVICE, owner("c")): use(None)},
        strangers={(DEVICE, owner("s")): use(2), (of(1), owner("s")): use(3)},
    )
    look = looked(replace(Looks().snapshot(None), measured=measured))
    assert look.users == {DEVICE: [(owner("a"), 1.3), (owner("s"), 2)], of(1): [(owner("s"), 3)]}


def probe(*counts: tuple[Owner | None, str, int, int]) -> CudaUses:
    """By owner, UUID and instance: failed allocations, and errors for lack of memory."""
    return CudaUses(
        uses={
            (of_owner, DeviceKey(uuid=uuid, instance=f"{number}")): CudaUse(
                counts=CudaCounts(failed_allocations=failed, errors={2: errors, 3: 99})
            )
            for number, (of_owner, uuid, failed, errors) in enumerate(counts)
        }
    )


def test_failures_are_the_growth_of_the_last_minute() -> None:
    looks, reader, failed = Looks(), MemoryLooks(), []
    for seconds, number in ((0, 5), (20, 6), (30, 6), (60, 8), (61, 8), (81, 8), (121, 8)):
        snapshot = replace(looks.snapshot(None), cuda=probe((owner("a"), GPU(0), number, 99)))
        look = at_once(reader.read(snapshot, {}, seconds * SECOND, 0))
        assert look is not None
        failed.append(look.failed_of(owner("a"), GPU(0)))
    assert failed == [0, 1, 1, 3, 2, 2, 0]


def test_failures_of_a_container_on_a_gpu_are_those_of_all_its_rows() -> None:
    looks, reader = Looks(), MemoryLooks()
    none = replace(looks.snapshot(None), cuda=probe())
    at_once(reader.read(none, {}, 0, 0))
    rows = [(owner("a"), GPU(0), 1, 9), (owner("a"), GPU(0), 9, 2), (owner("a"), "", 4, 4), (owner("b"), GPU(0), 8, 8)]
    snapshot = replace(looks.snapshot(None), cuda=probe(*rows, (owner("a"), GPU(1), 16, 16), (None, GPU(0), 32, 32)))
    look = at_once(reader.read(snapshot, {}, SECOND, 0))
    assert look is not None
    assert look.failed_of(owner("a"), GPU(0)) == 1 + 2 + 4
    assert (look.failed_of(owner("b"), GPU(0)), look.failed_of(owner("b"), GPU(1))) == (8, 0)
    assert look.failed.keys() == {(owner("a"), GPU(0)), (owner("a"), ""), (owner("b"), GPU(0)), (owner("a"), GPU(1))}


def test_an_end_is_a_moment_of_the_looks_clock() -> None:
    end = ContainerEnd(id="", exit_code=1, reason="Error", at_seconds=50)
    look = at_once(MemoryLooks().read(Looks().snapshot(None), {}, 0, 20 * SECOND))
    assert look is not None
    assert look.moment(end) == 30 * SECOND


def test_without_pods_no_memory_is_read() -> None:
    assert at_once(MemoryLooks().read(Looks().snapshot(row(USED, "1")), None, 0, 0)) is None


def suspicion(ended: int, pod: str = "a", gpu: int = 0) -> SuspectedOutOfMemory:
    return SuspectedOutOfMemory(
        owner=owner(pod),
        device=of(gpu),
        ended_ns=ended,
        exit_code=1,
        suspicion=Suspicion.POSSIBLE,
        used_mib=1.0,
        all_mib=1.0,
        seen_before_ns=0,
    )


def test_the_newest_suspicions_come_first_and_a_hundred_at_most() -> None:
    old, of_b, of_a, on_another = suspicion(1), suspicion(2, "b"), suspicion(2), suspicion(2, "a", 1)
    assert newest_of([[of_b, old], [on_another, of_a]]) == (of_a, on_another, of_b, old)
    assert newest_of([[of_b, old], [on_another, of_a]], 2) == (of_a, on_another)
    assert len(newest_of([[suspicion(number) for number in range(200)]])) == 100


def two_gpus(seconds: int, *mib: float, xid: str = "0") -> str:
    """A page of two GPUs of 100 MiB; the second has reported this XID."""
    pages = [
        energy(f"{seconds}", gpu) + row(USED, f"{used}", gpu) + row(TOTAL, "100", gpu) for gpu, used in enumerate(mib)
    ]
    return "".join(pages) + row("DCGM_FI_DEV_XID_ERRORS", "0") + row("DCGM_FI_DEV_XID_ERRORS", xid, 1)  # fmt: skip


@pytest.mark.parametrize(
    ("full", "xid", "gpu"),
    [
        ((97, 99), "0", 1),
        ((97, 99), "31", 0),  # the fuller one is possible only
        ((98, 98), "0", 0),
    ],
)
def test_an_end_counts_on_the_device_that_speaks_most_for_it(full: tuple[int, int], xid: str, gpu: int) -> None:
    looks, held = Looks(), {"a": whole(1, 0)}
    end = ContainerEnd(id="1", exit_code=1, reason="Error", at_seconds=34)
    looks.at(10, two_gpus(10, 1, 1), held, {})
    looks.at(30, two_gpus(30, *full), held, {})
    looks.at(40, two_gpus(40, 1, 1, xid=xid), held, {owner("a"): [end]})
    (suspected,) = looks.ledger.accounts.suspicions
    assert (suspected.device, suspected.suspicion, suspected.more_devices) == (of(gpu), Suspicion.SUSPECTED, 1)


def test_of_a_crash_loop_the_last_eight_suspicions_are_kept() -> None:
    looks, held = Looks(), {"a": whole(0)}
    for number in range(10):
        end = ContainerEnd(id=f"{number}", exit_code=1, reason="Error", at_seconds=20 * number + 15)
        looks.at(20 * number, two_gpus(20 * number, 1), held, {})
        looks.at(20 * number + 10, two_gpus(20 * number + 10, 99), held, {})
        looks.at(20 * number + 19, two_gpus(20 * number + 19, 1), held, {owner("a"): [end]})
    ended = [suspected.ended_at_seconds for suspected in looks.ledger.accounts.suspicions]
    assert ended == [20 * number + 15 for number in range(9, 1, -1)]
    assert looks.account("a").by_label["out_of_memory"] == {"suspected": 10}
