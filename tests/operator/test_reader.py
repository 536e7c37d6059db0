"""What is read for the worker: the neighbours of an object are listed once for all who look at them in a row.

# issue 15, line 15
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import Malformed, SourceError, Unavailable
from exporter.operator.api import reader as module
from exporter.operator.api.reader import Reader
from exporter.operator.autoscalers.choice import older, used_of, whose
from exporter.operator.objects.kinds import AUTOSCALER, GPU_AUTOSCALER, Key, uid_of
from exporter.operator.objects.resources import read_autoscaler
from exporter.sources.kubernetes.api import KubernetesApi, as_it_is
from tests.operator.autoscaling import OTHER_UID, UID, applied, as_stored, by_hand, by_keda, gpu_autoscaler
from tests.operator.made import Object, hostile
from tests.support.virtual_time import run

LIST_SECONDS = 0.1


class Lists(KubernetesApi):
    """So many objects in each namespace; a list of them takes a while."""

    def __init__(self, count: int = 3) -> None:
        self.count = count
        self.asked: list[str] = []
        self.failure: SourceError | None = None
        self.namespaces: Sequence[str] = ("ml",)

    async def list(
        self,
        path: str,
        parameters: Mapping[str, str],  # noqa: ARG002 - as a KubernetesApi has it
        read: Callable[[Any], Any] = as_it_is,
        *,
        metadata_only: bool = False,
        most: int | None = None,
    ) -> tuple[Sequence[Any], str]:
        self.asked.append(f"{path}{' metadata' if metadata_only else ''}")
        await asyncio.sleep(LIST_SECONDS)
        if self.failure:
            raise self.failure
        if most is not None and self.count > most:
            raise Malformed("oversize", "too many", remedy="")
        names = [(namespace, f"a{number}") for namespace in self.namespaces for number in range(self.count)]
        return [read({"metadata": {"namespace": namespace, "name": name}}) for namespace, name in names], "1"


def now() -> float:
    return asyncio.get_running_loop().time()


async def look(reader: Reader, named_at: float | None, namespace: str = "ml") -> Sequence[Mapping[str, Any]]:
    reader.named_at_seconds = named_at
    return await reader.neighbours(AUTOSCALER, namespace, as_it_is)


def test_a_thousand_that_were_named_together_are_listed_for_once() -> None:
    async def scenario() -> None:
        api = Lists()
        reader, named = Reader(api), now()
        for _ in range(1000):
            assert len(await look(reader, named)) == 3
        assert len(api.asked) == 1
        await look(reader, now())  # something has happened since
        assert len(api.asked) == 2
        await look(reader, now(), "dev")
        assert api.asked[2:] == [AUTOSCALER.path("dev")]

    run(scenario())


def test_periodic_looks_leave_most_of_the_time_to_others() -> None:
    async def scenario() -> None:
        api = Lists()
        reader = Reader(api)
        while now() < 60:
            await look(reader, None)
            await asyncio.sleep(0.01)
        assert 10 < len(api.asked) <= 60 / LIST_SECONDS / 10

    run(scenario())


async def test_of_too_many_the_reader_says_what_to_do() -> None:
    api = Lists(module.MOST_NEIGHBOURS + 1)
    reader = Reader(api)
    named = now()
    for _ in range(3):
        with pytest.raises(Malformed) as raised:
            await look(reader, named)
        assert "the namespace ml has more than 2000 HorizontalPodAutoscalers" in str(raised.value.trouble)
        assert "spread them over several namespaces" in raised.value.trouble.remedy
    assert len(api.asked) == 1, "that they are too many is remembered, too"
    api.failure = Unavailable("unreachable", "nobody answers", remedy="wait")
    with pytest.raises(Unavailable):
        await look(reader, now())
    api.failure, api.count = None, 1
    assert len(await look(reader, now() + 1)) == 1


def test_what_is_kept_of_many_namespaces_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 20)

    async def scenario() -> None:
        api = Lists(9)
        reader, named = Reader(api), now()
        for namespace in ("a", "b", "a", "c", "a"):
            await look(reader, named, namespace)
        assert len(api.asked) == 3, "the one that was used last stays"
        await look(reader, named, "b")
        assert len(api.asked) == 4

    run(scenario())


def test_names_are_asked_for_alone_and_of_no_namespace_are_there_too_many() -> None:
    async def scenario() -> None:
        api = Lists(module.MOST_NAMES_OF_NAMESPACE + 5)
        api.namespaces = ("crowd", "mob")
        found = await Reader(api).keys(GPU_AUTOSCALER, None)
        assert len(found) == 2 * module.MOST_NAMES_OF_NAMESPACE
        assert Key("GPUAutoscaler", "mob", "a0") in found
        assert api.asked == [f"{GPU_AUTOSCALER.path(None)} metadata"]

    run(scenario())


SCALED = as_stored(applied(keda=True))
NEAR = (
    as_stored(applied(keda=False)),
    SCALED,
    by_keda(SCALED, "by-keda"),
    by_hand("HorizontalPodAutoscaler", "mine"),
    by_hand("ScaledObject", "theirs"),
    gpu_autoscaler("trainer", UID),
    gpu_autoscaler("older", OTHER_UID, "2026-11-22T09:00:00Z"),
)


# the API server holds metadata to their form, and not what a definition of somebody else's lets into a spec
ANY = st.builds(
    lambda sample, other: {**sample, "spec": other.get("spec")},
    st.sampled_from(NEAR),
    hostile(*({"spec": item["spec"]} for item in NEAR)),
)


@given(st.lists(ANY, max_size=6), st.booleans())
def test_what_is_kept_of_an_object_tells_as_much_as_the_whole(items: list[Object], keda: bool) -> None:
    ref = read_autoscaler(gpu_autoscaler("trainer", UID)).scale_target_ref
    used = [used_of(item) for item in items]

    def parted(of: Sequence[Any]) -> list[list[str]]:
        return [[uid_of(item) for item in part] for part in whose(ref, "trainer", UID, of, keda=keda)]

    assert parted(used) == parted(items)
    first = [older(ref, UID, of) for of in (used, items)]
    assert [item and uid_of(item) for item in first[:1]] == [item and uid_of(item) for item in first[1:]]


def test_what_is_kept_of_an_object_is_small() -> None:
    huge = deepcopy(gpu_autoscaler("trainer", UID))
    huge["metadata"] |= {"annotations": {"a": "x" * 10**6}, "labels": {"b": "x" * 10**6}, "finalizers": ["x"] * 10**5}
    huge["spec"]["scaleTargetRef"]["name"] = "x" * 10**6
    assert len(str(used_of(huge))) < 1000
