"""The writer and the events, where the API server fails: the simulated one, in one process with them."""

import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from exporter.errors import SourceError
from exporter.operator.api import writer as writing
from exporter.operator.api.event_writer import MOST_REMEMBERED, Events
from exporter.operator.api.writer import Refused, Writer
from exporter.operator.event_texts import Event
from exporter.operator.objects.kinds import Key
from exporter.sources.pause import Pause
from tests.support.api_server.server import SimulatedApiServer
from tests.support.real_api import IS_REAL

pytestmark = pytest.mark.skipif(IS_REAL, reason="a real API server does not fail on demand")
ITEM: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "gpu", "namespace": "default"},
    "data": {"a": "1"},
}


@pytest.fixture
async def server() -> AsyncIterator[SimulatedApiServer]:
    made = SimulatedApiServer()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def answers() -> Counter[tuple[str, str]]:
    return Counter()


@pytest.fixture
async def writer(server: SimulatedApiServer, answers: Counter[tuple[str, str]]) -> AsyncIterator[Writer]:
    def count(verb: str, code: str) -> None:
        answers[verb, code] += 1

    made = Writer(url=server.url, token_file="/nonexistent/t", ca_file="/nonexistent/c", on_answer=count, seed=1)
    yield made
    await made.close()


@pytest.mark.parametrize("answer", ["busy", "initializing", "unavailable", "error", "conflict"])
async def test_what_passes_is_waited_for(
    server: SimulatedApiServer, writer: Writer, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PAUSE", Pause(0.01))
    fault = server.faults.add(answer, times=2, seconds=0)
    assert (await writer.apply(ITEM, None))["data"] == ITEM["data"]
    assert fault.times == 0


async def test_it_does_not_try_for_ever(
    server: SimulatedApiServer, writer: Writer, answers: Counter[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PAUSE", Pause(0.01))
    server.faults.add("unavailable")
    with pytest.raises(SourceError) as failed:
        await writer.apply(ITEM, None)
    assert failed.value.reason == "http_status"
    assert answers == {("apply", "503"): writing.TRIES}


async def test_an_object_that_is_not_admitted_is_not_sent_again(
    server: SimulatedApiServer, writer: Writer, answers: Counter[tuple[str, str]]
) -> None:
    server.faults.add("terminating")
    with pytest.raises(Refused, match="because it is being terminated"):
        await writer.apply(ITEM, None)
    assert answers == {("apply", "403"): 1}


async def test_an_object_whose_answer_was_lost_is_sent_again(
    server: SimulatedApiServer,
    writer: Writer,
    answers: Counter[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "PAUSE", Pause(0.01))
    server.faults.add("lost", times=1)
    assert (await writer.apply(ITEM, None))["data"] == ITEM["data"]
    assert answers == {("apply", "none"): 1, ("apply", "200"): 1}


async def test_whoever_asks_for_patience_gets_it(server: SimulatedApiServer, writer: Writer) -> None:
    server.faults.add("busy", times=1, seconds=1)
    began = time.monotonic()
    await writer.apply(ITEM, None)
    assert time.monotonic() - began >= 1
    server.faults.add("busy", times=1, seconds=30)
    with pytest.raises(SourceError) as failed:  # so long it is left to a later attempt
        await writer.apply(ITEM, None)
    assert failed.value.retry_after_seconds == 30


async def test_nobody_answers(
    server: SimulatedApiServer, writer: Writer, answers: Counter[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PAUSE", Pause(0.01))
    await server.stop()
    with pytest.raises(SourceError) as failed:
        await writer.apply(ITEM, None)
    assert failed.value.reason == "refused"
    assert answers == {("apply", "none"): writing.TRIES}


OWNER = {
    "apiVersion": "pod-gpu-metrics.dev/v1alpha1",
    "kind": "GPUExporter",
    "metadata": {"name": "gpu", "namespace": "default", "uid": "u-1"},
}


async def test_it_remembers_no_more_events_than_it_may(server: SimulatedApiServer, writer: Writer) -> None:
    events = Events(writer, "operator-0")
    server.faults.add("unavailable", verbs=())
    for number in range(30):
        await events.tell(OWNER, Event("Normal", "Applied", "Apply", f"created {number}"))
    assert len(events) == 30 <= MOST_REMEMBERED


def test_keys_say_what_they_are() -> None:
    assert str(Key("GPUExporter", "ml", "gpu")) == "GPUExporter ml/gpu"
