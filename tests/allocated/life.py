"""A world in which an allocator's pods come and go, and all that was true of it at any moment.

Pods come and go at random moments: some of a Deployment, whose names never come again, and some of a StatefulSet, which
are made anew under their names on other GPUs. Some end and stay for a while. The kubelet hands out any free ids, often
those that were free last. While the kubelet is down nothing begins and nothing ends, but a pod may be deleted by force,
and its successor waits for the kubelet.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from exporter.model.pods import Owner
from exporter.simulator.allocators import SimulatedAllocator, given
from exporter.simulator.allocators.simulated_allocator import HELPERS
from exporter.simulator.parts import Part, Pod, Slot
from tests.support.simulated import World

SECOND = 1_000_000_000
# recorded of a kubelet: a pod that has ended is DELETED so long after its end
DELETED_SECONDS = 1.5
_OF_STATEFUL_SETS = 0.35
_LAST_FREED = 0.5
_LATELY_SECONDS = 30.0


class Reusing(SimulatedAllocator):
    """The kubelet of this allocator often hands out the ids that were given back last."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.freed: dict[Slot, int] = {}
        self._numbers = count(1)

    def give_back(self, pod: Pod) -> None:
        for container in pod.containers:
            for token in container.devices:
                self.freed[token] = next(self._numbers)

    def picked(self, parts: Sequence[Part], taken: set[Slot]) -> tuple[Slot, ...]:
        usual = super().picked(parts, taken)
        if self.random.random() >= _LAST_FREED:
            return usual
        free = sorted(self.free_tokens(taken), key=lambda token: self.freed.get(token, 0), reverse=True)
        picked: list[Slot] = []
        for resource in dict.fromkeys(resource for resource, _ in usual):
            wanted = sum(token[0] == resource for token in usual)
            picked += [token for token in free if token[0] == resource][:wanted]
        return tuple(picked)


def reusing(kind: type[SimulatedAllocator], **more: Any) -> Any:
    """An allocator of this kind whose kubelet often hands out the ids that were given back last."""
    return type(f"Reusing{kind.__name__}", (Reusing, kind), {})(**more)


@dataclass(frozen=True)
class Truth:
    """What is true from a moment on (seconds): the parts of each container, and the UID of each pod with parts."""

    since: float
    parts: Mapping[Owner, tuple[Part, ...]]
    uids: Mapping[tuple[str, str], str]


@dataclass
class Spell:
    """The time in which a container of a pod has its parts: from `since` to `until`. `fault` is that of its word."""

    owner: Owner
    uid: str
    parts: tuple[Part, ...]
    since: float
    written_at: float
    fault: str
    comes_again: bool
    until: float = field(default=float("inf"))


class Life(World):
    """The world. `history` is what was true, oldest first; `spells` are by the pod's UID and the container."""

    crashes = 0.0

    def __init__(self, **more: Any) -> None:
        self.history: list[Truth] = []
        self.spells: dict[tuple[str, str], Spell] = {}
        self.lasting: dict[tuple[str, str], Spell] = {}  # those that go on, and those that ended lately
        self.pods_made = 0
        self.hidden = frozenset[str]()
        self._changed = asyncio.Event()
        self._ids = count()
        super().__init__(**more)
        # nobody asks what the hardware does meanwhile
        vars(self.machine)["change"] = lambda *_: None
        self._note()

    @property
    def now(self) -> float:
        return self.machine.clock() / SECOND

    @property
    def pods(self) -> tuple[Pod, ...]:
        return super().pods

    @pods.setter
    def pods(self, pods: tuple[Pod, ...]) -> None:
        before = self._pods
        World.pods.fset(self, pods)  # type: ignore[attr-defined]
        kept = {pod.uid for pod in self._pods if not pod.has_ended}
        for pod in before:
            if pod.uid not in kept and not pod.has_ended and isinstance(self.allocator, Reusing):
                self.allocator.give_back(pod)
        self._note()

    @property
    def of_api(self) -> tuple[Pod, ...]:
        """The pods as the API server shows them."""
        return tuple(pod for pod in self.seen if pod.uid not in self.hidden)

    def changes(self) -> Coroutine[Any, Any, bool]:
        """What waits until somebody may see something else than now."""
        return self._changed.wait()

    def wake(self) -> None:
        """Let those see the world who wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    def true_between(self, begin: float, end: float) -> Iterator[Truth]:
        """All that was true at some moment from `begin` to `end`."""
        for truth, after in zip(reversed(self.history), (None, *reversed(self.history)), strict=False):
            if truth.since > end:
                continue
            if after is None or after.since >= begin:
                yield truth
            else:
                return

    # What happens.

    def come(self) -> None:
        """A pod comes, if there is room."""
        if pod := self._new_pod():
            self.pods += (pod,)

    def go(self) -> Pod | None:
        """A pod goes, or ends and stays for a while."""
        pods = self._holders()
        if not pods:
            return None
        pod = self._random.choice(pods)
        if self._random.random() < 0.4:
            self.end(pod, self._random.choice(("Succeeded", "Failed")))
        else:
            self.remove(pod)
        return pod

    def sweep(self) -> None:
        """Pods that have ended are removed."""
        self.pods = tuple(pod for pod in self.pods if not pod.has_ended)

    def exchange(self) -> None:
        """A pod goes, and at once another one comes, which may get its ids."""
        if pods := self._holders():
            self.remove(self._random.choice(pods))
            self.come()

    def take_stateful(self) -> Pod | None:
        """A pod of a StatefulSet goes. Its successor is `successor`."""
        pods = [pod for pod in self._holders() if pod.owner[0] == "StatefulSet"]
        if not pods:
            return None
        pod = self._random.choice(pods)
        self.remove(pod)
        return pod

    def successor(self, old: Pod, *, is_acknowledged: bool = True) -> Pod | None:
        """The new pod of this name comes, if there is room."""
        free = [slot for _, slots in self.free() for slot in slots]
        if not free or any(pod.name == old.name and pod.uid not in self.hidden for pod in self.pods):
            return None
        name = next(container.name for container in old.containers if container.name not in HELPERS)
        containers = self.make.containers(old.namespace, name, self.make.some_of(free))
        made = self.make.pod(old.namespace, old.name, containers, old.owner[0])
        made = replace(made, name=old.name, owner=old.owner, is_acknowledged=is_acknowledged)
        self.pods_made += 1
        self.pods += (made,)
        return made

    def delete_by_force(self) -> None:
        """While the kubelet is down a StatefulSet's pod is deleted from the API, and its successor is bound."""
        pods = [pod for pod in self._holders() if pod.owner[0] == "StatefulSet" and pod.uid not in self.hidden]
        if pods:
            old = self._random.choice(pods)
            self.hidden |= {old.uid}
            self.successor(old, is_acknowledged=False)

    def kubelet_learns(self) -> None:
        """The kubelet has reached the API server: what was deleted by force ends, and what was bound begins."""
        hidden, self.hidden = self.hidden, frozenset()
        kept = (pod for pod in self.pods if pod.uid not in hidden)
        self.pods = tuple(pod if pod.is_acknowledged else replace(pod, is_acknowledged=True) for pod in kept)

    def _holders(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.is_acknowledged and any(one.parts for one in pod.running)]

    def _new_pod(self) -> Pod | None:
        free = [slot for _, slots in self.free() for slot in slots]
        if not free:
            return None
        is_stateful = self._random.random() < _OF_STATEFUL_SETS
        workload = self._random.choice(sorted(self._teams.workloads))
        namespace = self._random.choice(self._teams.namespaces)
        containers = self.make.containers(namespace, self._teams.workloads[workload], self.make.some_of(free))
        self.pods_made += 1
        if not is_stateful:
            return self.make.pod(namespace, f"{workload}-{next(self._ids)}", containers)
        name = f"{workload}-set{next(self._ids)}"
        pod = self.make.pod(namespace, name, containers, kind="StatefulSet")
        return replace(pod, name=f"{name}-0")

    # What is noted.

    def _note(self) -> None:
        """Note what is true now, and wake who looks at the world when it changes."""
        now = self.now
        pods = [pod for pod in self._pods if pod.is_acknowledged]
        parts = {Owner(namespace=ns, pod=pod, container=one): of for (ns, pod, one), of in given(pods).items()}
        uids = {(pod.namespace, pod.name): pod.uid for pod in pods if not pod.has_ended}
        if not self.history or self.history[-1].parts != parts or self.history[-1].uids != uids:
            self.history.append(Truth(now, parts, uids))
        self._note_spells(pods, now)
        loop = asyncio.get_running_loop()
        loop.call_soon(self.wake)
        for pod in self._pods:
            if pod.note is not None and pod.note.at_ns >= now * SECOND:
                loop.call_at(pod.note.at_ns / SECOND + 1e-6, self.wake)
        if any(pod.has_ended for pod in self._pods):
            loop.call_later(DELETED_SECONDS + 1e-6, self.wake)

    def _note_spells(self, pods: Sequence[Pod], now: float) -> None:
        there = {(pod.uid, one.name) for pod in pods for one in pod.running if one.parts}
        for key, spell in tuple(self.lasting.items()):
            if key not in there and spell.until == float("inf"):
                spell.until = now
            if spell.until < now - _LATELY_SECONDS:
                del self.lasting[key]
        for pod in pods:
            for container in pod.running:
                if container.parts and (pod.uid, container.name) not in self.spells:
                    note = pod.note
                    spell = Spell(
                        owner=Owner(namespace=pod.namespace, pod=pod.name, container=container.name),
                        uid=pod.uid,
                        parts=container.parts,
                        since=now,
                        written_at=note.at_ns / SECOND if note else now,
                        fault=note.fault if note else "",
                        comes_again=pod.owner[0] == "StatefulSet",
                    )
                    self.spells[pod.uid, container.name] = self.lasting[pod.uid, container.name] = spell
