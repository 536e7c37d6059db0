"""The simulated jobs that hang and starve, on dcgm-exporter's pages, through the watch over hangs; in virtual time."""

from math import inf

from exporter.accounts.hang_watch import HangWatch
from exporter.accounts.ledger import Rules
from exporter.model.slices import at_once
from exporter.simulator.failure import GpuFailure
from exporter.simulator.job_phases import HUNG, STARVING
from exporter.simulator.kernel_log import SimulatedKernelLog
from exporter.simulator.scheduler import Scheduler
from tests.accounts.test_hangs import EVERY
from tests.support.ledgers import note
from tests.support.looks import SECOND, Looks
from tests.support.simulated import SimulatedDcgm, World

MINUTES = 26


def test_a_hang_and_a_wait_for_data_are_told_apart() -> None:
    now = [0]
    world = World(gpus=6, seed=4, clock=lambda: now[0])
    for idle in world.pods:
        world.remove(idle)
    world.add_stuck(1)
    dcgm = SimulatedDcgm(world, counters="full")
    hung, starving = world.pods
    works = world.make.pod("ml", "train-resnet", world.make.containers("ml", "trainer", [next(world.free())[1][0]]))
    world.pods = (hung, starving, works)
    held = {pod.name: list(pod.containers[0].devices) for pod in world.pods}
    looks, watch = Looks(), HangWatch()
    began_after: dict[tuple[str, str], int] = {}
    for look in range(MINUTES * 60 // EVERY):
        now[0] = look * EVERY * SECOND
        snapshot = looks.snapshot(dcgm.page(), held)
        note(looks.ledger, snapshot, now[0], Rules())
        at_once(watch.work_for(snapshot, looks.ledger.holders, now[0]))
        for hang in watch.hangs.suspected:
            ((_, name),) = hang.pods
            began_after.setdefault((name, hang.reason), look * EVERY)
    assert began_after.keys() == {(hung.name, "waiting_kernel"), (starving.name, "waiting_for_data")}
    assert 750 <= began_after[hung.name, "waiting_kernel"] <= 850
    assert 1350 <= began_after[starving.name, "waiting_for_data"] <= 1450
    assert (hung.work, starving.work) == ((HUNG, hung.name), (STARVING, starving.name))


def test_what_is_stuck_outlives_the_crashes_of_its_node() -> None:
    now = [0]
    world = World(gpus=6, seed=4, clock=lambda: now[0])
    for idle in world.pods:
        world.remove(idle)
    world.add_stuck(1)
    stuck = world.pods
    scheduler = Scheduler([world], [GpuFailure(world, SimulatedKernelLog(()), after_seconds=inf)], seed=2)
    for look in range(720):
        now[0] = look * 10 * SECOND
        scheduler.live()
    assert len(stuck) == 2
    assert [pod for pod in stuck if pod not in world.pods] == []


def test_two_hours_of_a_node_where_teams_work_raise_no_suspicion() -> None:
    """Trainings with checkpoints and tests, services, notebooks, jobs with pauses, crashes: all make progress."""
    now = [0]
    world = World(gpus=8, seed=2, clock=lambda: now[0])
    scheduler = Scheduler([world], [GpuFailure(world, SimulatedKernelLog(()), after_seconds=inf)], seed=2)
    dcgm = SimulatedDcgm(world, counters="full")
    looks, watch = Looks(), HangWatch()
    for look in range(240):
        now[0] = look * 30 * SECOND
        scheduler.live()
        pods = [pod for pod in world.pods if pod.devices and not pod.has_ended]
        snapshot = looks.snapshot(dcgm.page(), {pod.name: list(pod.containers[0].devices) for pod in pods})
        note(looks.ledger, snapshot, now[0], Rules())
        at_once(watch.work_for(snapshot, looks.ledger.holders, now[0]))
    assert looks.ledger.look == 240
    assert watch.hangs.events == ()
