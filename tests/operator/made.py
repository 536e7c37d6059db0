"""Objects of the Kubernetes API as an operator meets them, made up for tests."""

import copy
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

Object = dict[str, Any]
NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
NOW_TEXT = "2026-11-22T12:00:00Z"


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def gpu_exporter(generation: int = 1, status: Object | None = None, **spec: Any) -> Object:
    metadata = {"name": "gpu", "namespace": "ml", "uid": "u-1", "generation": generation}
    return {
        "apiVersion": "pod-gpu-metrics.dev/v1alpha1",
        "kind": "GPUExporter",
        "metadata": metadata,
        "spec": spec,
        **({} if status is None else {"status": status}),
    }


def daemon_set(
    wanted: int = 3,
    ready: int | None = None,
    *,
    updated: int | None = None,
    available: int | None = None,
    misplaced: int = 0,
    generation: int = 1,
    observed: int | None = None,
) -> Object:
    """As the DaemonSet's controller writes it: numbers that are 0 are left out where the API leaves them out."""
    ready = wanted if ready is None else ready
    status: Object = {
        "currentNumberScheduled": wanted,
        "desiredNumberScheduled": wanted,
        "numberMisscheduled": misplaced,
        "numberReady": ready,
        "observedGeneration": generation if observed is None else observed,
        "updatedNumberScheduled": wanted if updated is None else updated,
        "numberAvailable": ready if available is None else available,
    }
    for name in ("updatedNumberScheduled", "numberAvailable", "observedGeneration"):
        if not status[name]:
            del status[name]
    return {"metadata": {"name": "gpu", "namespace": "ml", "generation": generation}, "status": status}


def container(name: str = "exporter", **state: Any) -> Object:
    """A container's status; running and ready unless it says otherwise."""
    return {"name": name, "image": f"registry.example/{name}:1", "ready": True, "restartCount": 0, **state}


def waiting(reason: str, message: str = "", name: str = "exporter", **more: Any) -> Object:
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    return container(name, ready=False, state=state, **more)


def ended(code: int = 1, reason: str = "Error", seconds_ago: float = 10) -> Object:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": ago(seconds_ago)}}


def pod(
    node: str = "a",
    *containers: Object,
    ready: bool = True,
    age: float = 3600,
    phase: str = "Running",
    ip: str = "10.0.0.1",
    conditions: dict[str, Object] | None = None,
    **metadata: Any,
) -> Object:
    said = {"Ready": {"status": str(ready)}, "ContainersReady": {"status": str(ready)}, **(conditions or {})}
    return {
        "metadata": {
            "name": f"gpu-{node}",
            "namespace": "ml",
            "uid": f"uid-{node}",
            "creationTimestamp": ago(age),
            **metadata,
        },
        "spec": {"nodeName": node},
        "status": {
            "phase": phase,
            "podIP": ip,
            "conditions": [{"type": kind, **what} for kind, what in said.items()],
            "containerStatuses": list(containers) or [container("dcgm-exporter"), container()],
        },
    }


def pending(node: str = "a", *containers: Object, age: float = 30, **more: Any) -> Object:
    return pod(node, *containers, ready=False, age=age, phase="Pending", **more)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.just(10**30),
    st.just(float("nan")),
    st.text(max_size=6),
    st.sampled_from([{}, [], [[]], [None], {"": {}}, {"reason": 1}, "\n", "x" * 9000, ago(5), "9999-99-99T00:00:00Z"]),
)


def _with_parts(sample: Object, parts: Sequence[tuple[int, object]]) -> Object:
    changed = copy.deepcopy(sample)
    for number, junk in parts:
        places = [*_places(changed)]
        if places:
            holder, key = places[number % len(places)]
            holder[key] = copy.deepcopy(junk)
    return dict(changed)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield value, key
        yield from _places(inner)


def hostile(*samples: Object) -> st.SearchStrategy[Object]:
    """One of the samples with a few of its parts, at any depth, in another shape than they should have."""
    return st.builds(_with_parts, st.sampled_from(samples), st.lists(st.tuples(st.integers(0, 999), JUNK), max_size=4))
