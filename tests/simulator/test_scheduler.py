"""Teams at work on many nodes, by a clock that jumps: no sockets, and the same law as in the demo."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.model.states import IDLE_BELOW, IN_HAND, DeviceState
from exporter.simulator.failure import GpuFailure
from exporter.simulator.job_phases import DAY, MORNING
from exporter.simulator.kernel_log import SimulatedKernelLog
from exporter.simulator.scheduler import Scheduler
from exporter.simulator.world import World
from tests.simulator.test_node import Time

HOUR = 3600.0
IN_PARTS = {"shared": 2, "mig": 1}


class Cluster:
    """Nodes of 4 GPUs, every eighth with some in parts, and what pods do there from look to look."""

    def __init__(self, nodes: int, *, seed: int, speed: float, after: float = inf, **gpus: Any) -> None:
        self.time = Time()
        self.speed = speed
        self.worlds = [
            World(
                seed=seed + number,
                speed=speed,
                clock=self.time,
                **(gpus or ({"gpus": 4} | (IN_PARTS if number % 8 == 4 else {}))),
            )
            for number in range(nodes)
        ]
        self.failures = [GpuFailure(world, SimulatedKernelLog(()), after_seconds=after) for world in self.worlds]
        self.scheduler = Scheduler(self.worlds, self.failures, seed=seed)

    def live(self, seconds: float, *, apart: float) -> Counter[DeviceState]:
        """So many seconds of life go by. Returns how often devices were in each state."""
        states: Counter[DeviceState] = Counter()
        for _ in range(round(seconds / apart)):
            self.time.sleep(apart / self.speed)
            self.scheduler.live()
            for failure in self.failures:
                failure.look({})
            states += self.states()
        return states

    def states(self) -> Counter[DeviceState]:
        return Counter(state for world in self.worlds for state in states_of(world))


def states_of(world: World) -> Sequence[DeviceState]:
    """The states of a node's devices, as somebody sees them who knows at once what a GPU does.

    The exporter keeps the owners of a kubelet that is away: only a node that nobody held anything of has unknown ones.
    """
    world.machine.advance()
    held = {device.partition("::")[0] for device in world.held()}
    states = [DeviceState.CUT for gpu in world.gpus if gpu.instances]
    for gpu in world.gpus:
        for device in [mig.device_id for mig in gpu.instances] or [gpu.uuid]:
            is_active = world.machine.use_of(device).activity >= IDLE_BELOW
            if device in held:
                states.append(DeviceState.USED if is_active else DeviceState.IDLE)
            elif not world.kubelet_is_up and not held:
                states.append(DeviceState.UNKNOWN)
            elif is_active:
                states.append(DeviceState.OUTSIDE)
            else:
                states.append(DeviceState.FAILING if gpu.is_lost else DeviceState.FREE)
    return states


def used_of_held(states: Counter[DeviceState]) -> float:
    return states[DeviceState.USED] / sum(states[state] for state in IN_HAND)


# issue 21, "Must show" 6
def test_40_nodes_use_two_thirds_of_what_they_hold_and_show_the_states() -> None:
    cluster = Cluster(40, seed=0, speed=10)
    minutes = [cluster.live(60, apart=20) for _ in range(30)]
    assert all(0.4 <= used_of_held(states) <= 0.8 for states in minutes), [used_of_held(each) for each in minutes]
    # what a new holder does is not known until dcgm-exporter reads the GPU again: no world knows of that
    assert sum(minutes, Counter()).keys() == {*DeviceState} - {DeviceState.HELD}


def test_a_day_has_a_night_and_work_goes_on() -> None:
    cluster = Cluster(16, seed=1, speed=600)
    replicas, used = [], []
    for _ in range(48):
        used.append(used_of_held(cluster.live(HOUR / 2, apart=300)))
        pods = [pod for world in cluster.worlds for pod in world.pods if pod.owner[0] == "ReplicaSet"]
        replicas.append(len(pods))
    assert all(0.35 <= each <= 0.85 for each in used), used
    night = round((DAY - MORNING + 3 * HOUR) / (HOUR / 2))
    by_night, by_day = sum(replicas[night - 2 : night + 2]), sum(replicas[8:12])
    assert by_night < 0.6 * by_day
    assert min(replicas) >= 4


def test_the_pods_of_a_training_begin_and_end_together_and_work_in_step() -> None:
    cluster = Cluster(12, seed=3, speed=60)
    seen = 0
    for _ in range(60):
        cluster.live(120, apart=120)
        pods = defaultdict(list)
        for world in cluster.worlds:
            for pod in world.pods:
                if pod.owner[0] == "Job" and len(pod.devices) == 4:
                    pods[pod.owner[1]].append((world, pod))
        for of_job in pods.values():
            if any(pod.phase == "Failed" for _, pod in of_job):
                continue  # the others end in the next step
            seen += len(of_job) > 1
            uses = {world.machine.use_of(pod.devices[0]).memory for world, pod in of_job}
            assert len(uses) == 1
            names = {pod.name.rpartition("-")[0].rpartition("-")[2] for _, pod in of_job}
            assert names == {str(number) for number in range(len(of_job))}
    assert seen > 50


# issue 21: what is released is soon taken by the next
@pytest.mark.parametrize(
    "gpus",
    [{"gpus": 8, "shared": 2, "mig": 1}, {"gpus": 4, "mig": 4}, {"gpus": 3, "claims": 3, "dynamic": 1},
     {"gpus": 2, "units": 2}],
    ids=str,
)  # fmt: skip
def test_a_node_is_never_empty_and_pods_come_and_go(gpus: dict[str, int]) -> None:
    cluster = Cluster(1, seed=5, speed=10, **gpus)
    (world,) = cluster.worlds
    held, names = [], [{pod.uid for pod in world.pods}]
    for _ in range(60):
        cluster.live(60, apart=60)
        held.append(world.used_share)
        names.append({pod.uid for pod in world.pods})
    assert all(max(two) >= 0.5 for two in pairwise(held)), held
    assert len(set.union(*names)) > len(names[0])


def test_a_node_without_gpus_has_nothing_to_do() -> None:
    assert Cluster(1, seed=1, speed=1, gpus=0).live(60, apart=10) == Counter()


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_gpu_that_is_lost_is_well_again_and_its_pods_go_on_elsewhere(nodes: int) -> None:
    cluster = Cluster(nodes, seed=2, speed=1, after=30.0 if nodes == 1 else inf, gpus=8)
    world = cluster.worlds[0]
    if nodes > 1:
        cluster.failures[0].fail()
    cluster.live(40, apart=5)
    (lost,) = (gpu.uuid for gpu in world.gpus if gpu.is_lost)
    (failed,) = cluster.failures[0].holders
    cluster.live(20, apart=5)
    assert lost not in set(world.held())
    after = set()
    for _ in range(120):
        cluster.live(5, apart=5)
        after |= {pod.owner for each in cluster.worlds for pod in each.pods if not pod.has_ended}
    assert failed.owner in after
    assert not any(gpu.is_lost for gpu in world.gpus)
    assert world.kubelet_is_up
    assert world.used_share > 0


# issue 21, "Must show" 6
def test_the_node_of_a_lost_gpu_goes_through_these_states_in_order() -> None:
    cluster = Cluster(3, seed=1, speed=1, gpus=4)
    world, failure = cluster.worlds[1], cluster.failures[1]
    failure.fail()
    cluster.live(5, apart=5)
    seen: list[tuple[bool, frozenset[DeviceState]]] = []
    for _ in range(120):
        cluster.live(5, apart=5)
        now = world.kubelet_is_up, frozenset(states_of(world))
        if now != (seen[-1] if seen else None):
            seen.append(now)
    in_order = [states for _, states in seen]
    failing, unknown = {DeviceState.FAILING, DeviceState.FREE}, {DeviceState.UNKNOWN}
    # drained, away, tested, and filled again
    drained = in_order.index(frozenset(failing))
    assert in_order[drained + 1 : drained + 3] == [unknown, {DeviceState.OUTSIDE}], seen
    assert in_order[drained + 3] & IN_HAND, seen
    assert [states for is_up, states in seen if not is_up] == [unknown], seen


def test_the_same_seed_makes_the_same_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    # a container that ends says when, by the machine's clock: the twins live one after the other
    monkeypatch.setattr("exporter.simulator.world.time", SimpleNamespace(time=lambda: 1_800_000_000.0))
    twins = [Cluster(5, seed=7, speed=10) for _ in range(2)]
    for twin in twins:
        twin.live(600, apart=20)
    one, other = ([pod for world in twin.worlds for pod in world.pods] for twin in twins)
    assert one == other
