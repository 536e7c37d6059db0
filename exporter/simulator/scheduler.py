"""The scheduler of simulated nodes, on which teams work: each takes what another releases. Drawn from one seed; no I/O.

- Some nodes are only for trainings: jobs of several pods, each with all GPUs of a node, that begin, end and fail
  together. They wait in a queue for nodes.
- On the other nodes there are notebooks, which hold much and use little; services, with more replicas by day than by
  night; and short jobs.
- Applications crash, run out of GPU memory, or are killed for the machine's memory, by turns.
- If there are several nodes, now and then a GPU falls off the bus: its node is drained, its kubelet restarts, an
  administrator tests the GPUs without asking the kubelet for them, and the node is filled anew.

Time is the pods' time (life), in seconds.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, cycle

from exporter.simulator.failure import GpuFailure
from exporter.simulator.job_phases import BATCH, BURN_IN, FILLING, NOTEBOOK, SERVING, STUCK, TRAINING, daytime
from exporter.simulator.parts import GPU_RESOURCE, Container, Pod, Slot
from exporter.simulator.world import XIDS, World

_TRAININGS = (("research", "pretrain-moe"), ("research", "finetune-70b"), ("vision", "train-detector"))
_SERVICES = (("chat", "chat-8b"), ("search", "embeddings"), ("search", "reranker"), ("speech", "transcribe"))
_JOBS = (("research", "eval-nightly"), ("search", "embed-corpus"), ("vision", "render"), ("research", "sweep"))
_CRON_JOBS = ("eval-nightly",)
_MINUTES_SINCE_1970 = 29_000_000  # the first number of a CronJob's Jobs
_TEAMS = ("research", "vision", "search", "speech")
_PEOPLE = (
    "anna",
    "ben",
    "chen",
    "dana",
    "emeka",
    "fatma",
    "hana",
    "ivan",
    "jun",
    "kofi",
    "lena",
    "mira",
    "noor",
    "priya",
)
_CONTAINERS = {TRAINING: "trainer", SERVING: "server", NOTEBOOK: "notebook", BATCH: "main"}
# the shortest and the longest work of each kind
_SECONDS = {TRAINING: (900.0, 10_000.0), NOTEBOOK: (900.0, 30_000.0), BATCH: (100.0, 700.0)}
_LEAST_SECONDS = 60.0  # the least time that is left to work that begins anew
_SERVICE_SECONDS = 20_000.0  # the largest age of the first replicas
_NODES_OF_TRAININGS = (1, 1, 2, 2, 3, 4)
_QUEUED = 4
_MOST_PASSED = 2  # the most smaller trainings that begin before the first of the queue
_MOST_HELD = 0.88  # the largest held part of a node that is for all
# parts of the pods on such nodes
_NOTEBOOKS = 0.42
_SERVING_BY_NIGHT = 0.1
_SERVING_BY_DAY = 0.35
_TOO_MANY = 1.15  # replicas go if there are so many times the wanted number
_WAVE = 0.3  # the load of services rises and falls by this part of it
_WAVE_SECONDS = 1_100.0
_CRASH_SECONDS = 400.0  # between two crashes on a node
_TURNS = 4  # of crashes: for lack of GPU memory, by an XID, for lack of the machine's memory, by an XID
_FULL_NS = 60_000_000_000  # of real time, in which every reader of the GPUs sees that one is full
_OOM_KILLED = 137
_FIRST_FAILURE = 240.0
_FAILURE_SECONDS = 900.0
_FEW_NODES = 20
# the steps after the loss of a GPU, in seconds since then
_PODS_END = 10.0
_REPAIRED_ALONE = 60.0
_DRAINED = 150.0
_KUBELET_GOES = 190.0
_REPAIRED = 260.0
_TESTED = 420.0
_Service = tuple[str, str]  # namespace and name


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A team's work: pods of a controller (kind and name). `does` is a workload of job_phases.py.

    With `nodes` it takes so many nodes, with a pod on each; with 0 a single pod takes free devices. Services go on for
    ever.
    """

    does: str
    namespace: str
    owner: tuple[str, str]
    seconds: float
    nodes: int


@dataclass(frozen=True, slots=True)
class _Filling:
    """A pod, by its UID, that takes all memory of its GPUs, and ends at a moment of its machine's clock.

    `work` is what it did before, and does again.
    """

    world: World
    uid: str
    ends_ns: int
    work: tuple[str, str] | None


class Scheduler:
    """Lets the pods of these nodes come and go."""

    def __init__(self, worlds: Sequence[World], failures: Sequence[GpuFailure], *, seed: int = 1) -> None:
        """Fill the empty nodes, as after hours of work. `failures` has a failure for each node."""
        self._worlds = tuple(worlds)
        self._failures = tuple(failures)
        self._random = random.Random(seed)
        self._numbers = count(1)
        self._running: dict[
            tuple[str, str], tuple[Work, float]
        ] = {}  # the work and its end, by namespace and controller
        self._queue: list[Work] = []  # trainings; `_passed` of them have begun before the first
        self._passed = 0
        self._again: list[Work] = []  # work that lost its place on the nodes for all
        self._filling: list[_Filling] = []
        self._crashes = 0
        self._are_several = len(worlds) > 1
        self._for_trainings: Sequence[World] = ()
        if self._are_several:
            self._for_trainings = [world for world in worlds if _has_whole_gpus(world)][::2]
        self._for_all = [world for world in worlds if world not in self._for_trainings]
        self.services = self._resources_of_services()
        self._ailing: tuple[int, float] | None = (
            None  # the number of the node with a lost GPU, and the time of the loss
        )
        self._next_failure = _FIRST_FAILURE
        self._now = self._life()
        self._fill(is_first=True)
        for world in worlds:
            for board in world.machine.boards.values():
                board.warm_up()

    def live(self) -> None:
        """Bring the nodes to the present."""
        before = self._now
        self._now = self._life()
        for world in self._worlds:
            world.recover()
        self._mend()
        self._run_out()
        self._end()
        crashes = (self._now - before) * (1 + len(self._worlds) / 20) / _CRASH_SECONDS
        if self._random.random() < -math.expm1(-crashes):
            self._crash()
        self._scale_in()
        self._fill()

    def _resources_of_services(self) -> dict[_Service, str]:
        """The resource that all replicas of a service ask for, by service.

        The first service has whole GPUs, if there are any.
        """
        resources = {resource for world in self._for_all for resource, _ in _slots_of(world)}
        in_order = sorted(resources, key=lambda resource: (resource != GPU_RESOURCE, resource))
        return dict(zip(_SERVICES, cycle(in_order), strict=False))

    def _life(self) -> float:
        machine = self._worlds[0].machine
        machine.advance()
        return machine.life

    def _end(self) -> None:
        """End work that is over, and work that has lost a pod, which begins anew with the rest of its time."""
        pods_of: dict[tuple[str, str], list[tuple[World, Pod]]] = {}
        for world in self._worlds:
            for pod in world.pods:
                pods_of.setdefault(_controller_of(pod), []).append((world, pod))
        for controller, (work, ends) in tuple(self._running.items()):
            pods = pods_of.get(controller, [])
            is_broken = len(pods) < max(1, work.nodes)
            if not is_broken and self._now < ends:
                continue
            del self._running[controller]
            phase = "Failed" if is_broken else "Succeeded"
            for world, pod in pods:
                if work.does == NOTEBOOK:
                    world.remove(pod)
                else:
                    world.end(pod, phase)
            if is_broken:
                rest = replace(work, seconds=max(_LEAST_SECONDS, ends - self._now))
                waiting = self._queue if work.nodes else self._again
                waiting.insert(0, rest)

    def _crash(self) -> None:
        """Let a pod with devices fail: by turns for lack of memory, the GPU's or the machine's, and by an XID."""
        world = self._random.choice(self._worlds)
        holders = [pod for pod in world.pods if pod.devices and not pod.has_ended and not _is_stuck(pod)]
        if not holders:
            return
        pod, xid = self._random.choice(holders), self._random.choice(XIDS)
        turn = self._crashes % _TURNS
        self._crashes += 1
        may_fill = [holder for holder in holders if _may_fill(holder)]
        if turn == 0 and may_fill:
            self._let_fill(world, pod if pod in may_fill else may_fill[0])
        elif turn == _TURNS // 2:
            world.fall(pod, _OOM_KILLED, "OOMKilled")
        else:
            world.crash(pod, xid)

    def _let_fill(self, world: World, pod: Pod) -> None:
        """Let a pod take more memory of its GPUs, until it has all."""
        ends_ns = world.machine.clock() + _FULL_NS
        self._filling.append(_Filling(world, pod.uid, ends_ns, pod.work))
        seed = pod.work[1] if pod.work else pod.name
        world.change(pod, replace(pod, work=(FILLING, seed), began=self._now))

    def _run_out(self) -> None:
        """End the containers that asked for more GPU memory than there is."""
        for filling in tuple(self._filling):
            world = filling.world
            pod = next((pod for pod in world.pods if pod.uid == filling.uid and not pod.has_ended), None)
            if pod is not None and world.machine.clock() < filling.ends_ns:
                continue
            self._filling.remove(filling)
            if pod is not None:
                world.fall(world.change(pod, replace(pod, work=filling.work)))

    def _mend(self) -> None:
        """Lose a GPU if it is time, and take the next step on a node with a lost GPU."""
        if self._ailing is None:
            self._lose()
            return
        number, since = self._ailing
        after = self._now - since
        world = self._worlds[number]
        failure = self._failures[number]
        world.kubelet_is_up = not (self._are_several and _KUBELET_GOES <= after < _REPAIRED)
        if after >= _PODS_END:
            failure.end_holders()
        if self._are_several:
            self._mend_among_others(world, failure, after)
        elif after >= _REPAIRED_ALONE:
            if _has_lost(world):
                failure.repair()
            self._ailing = None

    def _mend_among_others(self, world: World, failure: GpuFailure, after: float) -> None:
        """Drain the node, since the others have room, and test its GPUs before it takes pods again."""
        if after >= _DRAINED:
            world.pods = tuple(pod for pod in world.pods if not pod.devices)
        if after >= _REPAIRED and _has_lost(world):
            failure.repair()
            test = Container(name="burn", uses=tuple(gpu.uuid for gpu in world.gpus))
            pod = world.make.pod("kube-system", "burn-in", (test,), kind="")
            world.pods += (replace(pod, work=(BURN_IN, pod.name)),)
        if after >= _TESTED:
            world.pods = tuple(pod for pod in world.pods if pod.owner[1] != "burn-in")
            self._ailing = None

    def _lose(self) -> None:
        """Note the node that has lost a GPU. If there are several nodes, let one lose a GPU when it is time."""
        lost = [number for number, world in enumerate(self._worlds) if _has_lost(world)]
        if lost:
            self._ailing = (lost[0], self._now)
        elif self._are_several and self._now >= self._next_failure:
            self._next_failure = self._now + _FAILURE_SECONDS * max(1.0, _FEW_NODES / len(self._worlds))
            self._random.choice(self._failures).fail()

    def _scale_in(self) -> None:
        """If there are too many replicas of services, remove the newest of the largest service, but never its last."""
        for _ in self._for_all[::10]:
            doing, replicas = self._doing()
            most_serving = _TOO_MANY * self._wanted()[SERVING] * doing.total()
            if not replicas or doing[SERVING] <= most_serving:
                continue
            largest, most = replicas.most_common(1)[0]
            if most > 1:
                self._remove_newest(largest)

    def _remove_newest(self, service: _Service) -> None:
        for world in reversed(self._for_all):
            for pod in reversed(world.pods):
                if _controller_of(pod) == service:
                    world.remove(pod)
                    return

    def _fill(self, *, is_first: bool = False) -> None:
        """Let waiting work begin, as far as there is room."""
        while len(self._queue) < _QUEUED + 2 * is_first * len(self._for_trainings):
            self._queue.append(self._training())
        for work in tuple(self._queue):
            if work is self._queue[0]:
                passed = 0
            elif self._passed > _MOST_PASSED:
                break
            else:
                passed = self._passed + 1
            empty = [world for world in self._open(self._for_trainings) if _is_empty(world)]
            if len(empty) < work.nodes:
                continue
            self._passed = passed
            self._queue.remove(work)
            began = self._begin(work, is_first=is_first)
            for number, world in enumerate(self._random.sample(empty, work.nodes)):
                self._place(work, world, _slots_of(world), began, f"-{number}")
        for world in self._open(self._for_all):
            self._fill_shared(world, is_first=is_first)

    def _fill_shared(self, world: World, *, is_first: bool) -> None:
        """Fill a node that is for all."""
        while self._again or world.used_share < _MOST_HELD:
            free = [slot for _, slots in world.free() for slot in slots]
            if not free:
                return
            devices = world.make.some_of(free)
            work = self._again.pop(0) if self._again else self._next(devices[0][0])
            self._place(work, world, devices, self._begin(work, is_first=is_first))

    def _open(self, worlds: Sequence[World]) -> list[World]:
        """The nodes that take pods, in random order. A single node takes pods even while it has a lost GPU."""
        takers = list(worlds)
        if self._ailing and self._are_several:
            ailing = self._worlds[self._ailing[0]]
            takers = [world for world in worlds if world is not ailing]
        return self._random.sample(takers, len(takers))

    def _begin(self, work: Work, *, is_first: bool) -> float:
        """The time at which the work began: work of the start has gone on for a while."""
        began = self._now
        if is_first:
            began -= self._random.random() * min(work.seconds, _SERVICE_SECONDS)
        if work.does != SERVING:
            self._running[work.namespace, work.owner[1]] = (work, began + work.seconds)
        return began

    def _place(self, work: Work, world: World, devices: Sequence[Slot], began: float, number: str = "") -> None:
        kind, name = work.owner
        containers = world.make.containers(work.namespace, _CONTAINERS[work.does], devices)
        pod = world.make.pod(work.namespace, f"{name}{number}", containers, kind)
        own_name = f"{name}-0" if kind == "StatefulSet" else pod.name
        # the pods of a job work in step
        seed = name if number else own_name
        world.pods += (replace(pod, name=own_name, owner=work.owner, work=(work.does, seed), began=began),)

    def _doing(self) -> tuple[Counter[str], Counter[_Service]]:
        """The number of pods of each kind of work on the nodes for all, and of replicas of each service."""
        doing = Counter[str]()
        replicas = Counter[_Service]()
        for world in self._for_all:
            for pod in world.pods:
                if not pod.work or not pod.devices or pod.has_ended:
                    continue
                doing[pod.work[0]] += 1
                if pod.owner[0] == "ReplicaSet":
                    replicas[_controller_of(pod)] += 1
        return doing, replicas

    def _wanted(self) -> dict[str, float]:
        """The wanted part of each kind of work among the pods on the nodes for all."""
        wave = 1 + _WAVE * math.sin(2 * math.pi * self._now / _WAVE_SECONDS)
        serving = wave * (_SERVING_BY_NIGHT + (_SERVING_BY_DAY - _SERVING_BY_NIGHT) * daytime(self._now))
        return {NOTEBOOK: _NOTEBOOKS, SERVING: serving, BATCH: 1 - _NOTEBOOKS - serving}

    def _next(self, resource: str) -> Work:
        """The work for this resource that is missing most on the nodes for all."""
        doing, replicas = self._doing()
        services = [service for service, its_resource in self.services.items() if its_resource == resource]
        wanted = self._wanted()
        if not services:
            del wanted[SERVING]
        does = min(wanted, key=lambda does: doing[does] / wanted[does])
        if does == SERVING:
            namespace, name = min(services, key=replicas.__getitem__)
            return self._work(does, namespace, ("ReplicaSet", name))
        if does == NOTEBOOK:
            turn, person = divmod(next(self._numbers), len(_PEOPLE))
            name = f"jupyter-{_PEOPLE[person]}{turn or ''}"
            return self._work(does, self._random.choice(_TEAMS), ("StatefulSet", name))
        namespace, name = self._random.choice(_JOBS)
        number = next(self._numbers)
        if name in _CRON_JOBS:
            number += _MINUTES_SINCE_1970
        return self._work(does, namespace, ("Job", f"{name}-{number}"))

    def _training(self) -> Work:
        namespace, name = self._random.choice(_TRAININGS)
        nodes = min(self._random.choice(_NODES_OF_TRAININGS), max(1, len(self._for_trainings)))
        return self._work(TRAINING, namespace, ("Job", f"{name}-{next(self._numbers)}"), nodes)

    def _work(self, does: str, namespace: str, owner: tuple[str, str], nodes: int = 0) -> Work:
        """Make work of a random length, which is short more often than long."""
        seconds = math.inf
        if does in _SECONDS:
            least, most = _SECONDS[does]
            seconds = least * (most / least) ** self._random.random()
        return Work(does=does, namespace=namespace, owner=owner, seconds=seconds, nodes=nodes)


def _has_whole_gpus(world: World) -> bool:
    """Whether a node has GPUs, and hands all of them out whole."""
    return bool(world.gpus) and all(gpu.slots[0][0] == GPU_RESOURCE for gpu in world.gpus)


def _is_stuck(pod: Pod) -> bool:
    """Whether a pod was made to hang or to starve: it has to stay long enough to be suspected."""
    return pod.work is not None and pod.work[0] in STUCK


def _may_fill(pod: Pod) -> bool:
    """Whether a pod may take all memory of its devices.

    They are its own: whole GPUs or MIG instances, and neither shares nor units. It does not work in step with pods on
    other nodes.
    """
    is_chosen = any(container.chosen or container.parts for container in pod.containers)
    is_in_step = pod.work is not None and pod.work[0] == TRAINING
    return not is_chosen and not is_in_step and not any("::" in device for device in pod.devices)


def _has_lost(world: World) -> bool:
    return any(gpu.is_lost for gpu in world.gpus)


def _is_empty(world: World) -> bool:
    return not any(pod.devices for pod in world.pods)


def _controller_of(pod: Pod) -> tuple[str, str]:
    """The namespace and name of a pod's controller."""
    return pod.namespace, pod.owner[1]


def _slots_of(world: World) -> Sequence[Slot]:
    return [slot for gpu in world.gpus for slot in gpu.slots]
