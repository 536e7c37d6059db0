"""The names that the demo's scheduler gives: namespaces, pods, workloads, and the cards of its nodes.

Made of the scheduler's own lists, so that a name which it no longer gives is none of these.
"""

import re
from collections.abc import Iterator

from exporter.simulator import scheduler, world
from exporter.simulator.job_phases import BATCH, NOTEBOOK, SERVING, TRAINING
from exporter.simulator.parts import H100

MODEL = H100.model
NODES = 5  # so many seeds are looked at: 1 is that of a demo of one node
CONTAINERS = frozenset(scheduler._CONTAINERS[each] for each in (TRAINING, SERVING, NOTEBOOK, BATCH))
_TAIL = f"[{world._ALPHABET}]{{5}}"
_PEOPLE = "|".join(scheduler._PEOPLE)


def _workloads() -> Iterator[tuple[str, str, str]]:
    """Each namespace with a pattern of its workloads' names, and of what comes after these in a pod's name."""
    yield from ((space, rf"{name}-\d+", rf"-\d-{_TAIL}") for space, name in scheduler._TRAININGS)
    yield from ((space, name, f"-{_TAIL}") for space, name in scheduler._SERVICES)
    yield from ((space, rf"{name}-\d+", f"-{_TAIL}") for space, name in scheduler._JOBS)
    yield from ((space, rf"jupyter-(?:{_PEOPLE})\d*", "-0") for space in scheduler._TEAMS)


WORKLOADS = tuple(_workloads())
NAMESPACES = frozenset(space for space, _, _ in WORKLOADS)


def forms_of(namespace: str, pod: str) -> tuple[str, ...]:
    """The patterns of workloads that such a pod may be of; empty for a pod that the scheduler never makes."""
    return tuple(
        workload
        for space, workload, rest in WORKLOADS
        if namespace in (space, "") and re.fullmatch(workload + rest, pod)
    )


def is_pod(namespace: str, pod: str) -> bool:
    """Whether the scheduler makes such a pod; with "" for the namespace, in any."""
    return bool(forms_of(namespace, pod))


def is_workload(namespace: str, name: str) -> bool:
    """Whether the scheduler makes such a controller, or Kubernetes one above it: a CronJob of jobs with numbers."""
    jobs = {(space, job) for space, job in scheduler._JOBS if job in scheduler._CRON_JOBS}
    return (namespace, name) in jobs or any(
        namespace in (space, "") and re.fullmatch(workload, name) for space, workload, _ in WORKLOADS
    )


def is_name(name: str) -> bool:
    """Whether it is a namespace, namespace/pod, namespace/Kind/workload, or one of them without its namespace."""
    namespace, slash, rest = name.partition("/")
    if not slash:
        return name in NAMESPACES or is_pod("", name) or is_workload("", name)
    _, has_kind, workload = rest.rpartition("/")
    return is_workload(namespace, workload) if has_kind else is_pod(namespace, rest)


def cards() -> frozenset[str]:
    """The UUIDs of the GPUs of the demo's first nodes, as far as docs show them: GPU- and eight digits."""
    nodes = (world.World(gpus=8, mig=1, seed=seed) for seed in range(1, NODES + 1))
    return frozenset(gpu.uuid[:12] for node in nodes for gpu in node.gpus)
