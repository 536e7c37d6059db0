"""The writer, the events and the lease, against the API: a real one where there is one, else the simulated one."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from exporter.operator.api.event_writer import QUIET_SECONDS, SERIES_SECONDS, Events
from exporter.operator.api.writer import Refused, Writer
from exporter.operator.event_texts import Event
from exporter.operator.objects.kinds import CONFIG_MAP, EVENT, GPU_EXPORTER, LEASE, Key
from tests.operator.leading import Worker, leader
from tests.support.operator import LEASE_NAMESPACE, Api, Object, exporter
from tests.support.waiting import until

Answers = Counter[tuple[str, str]]


@pytest.fixture
def answers() -> Answers:
    return Counter()


@pytest.fixture
async def writer(api: Api, answers: Answers, folder: Path) -> AsyncIterator[Writer]:
    def count(verb: str, code: str) -> None:
        answers[verb, code] += 1

    (folder / "token").write_text(api.token_of("a"))
    made = Writer(url=api.url, token_file=str(folder / "token"), ca_file=str(api.ca_file), on_answer=count, seed=1)
    yield made
    await made.close()


@pytest.fixture
def item(namespace: str) -> Object:
    return config_map(namespace, a="1")


def config_map(namespace: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gpu", "namespace": namespace}, "data": data}


def there(api: Api, namespace: str) -> Any:
    return api.get(Key("ConfigMap", namespace, "gpu"))


async def test_an_object_is_made_changed_and_deleted(api: Api, writer: Writer, namespace: str, item: Object) -> None:
    made = await writer.apply(item, None)
    same = await writer.apply(item, made)
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    other = await writer.apply({**item, "data": {"b": "2"}}, same)
    assert other["data"] == {"b": "2"}
    await writer.delete(made)
    assert there(api, namespace) is None
    await writer.delete(made)  # it is gone already


async def test_another_object_of_its_name_is_neither_changed_nor_deleted(
    api: Api, writer: Writer, answers: Answers, namespace: str, item: Object
) -> None:
    old = await writer.apply(item, None)
    await writer.delete(old)
    with pytest.raises(Refused) as refused:
        await writer.apply(item, old)
    assert (refused.value.status, answers["apply", "409"]) == (409, 1)  # that does not pass: it is not tried again
    new = api.put(config_map(namespace, theirs="1"))
    with pytest.raises(Refused) as refused:
        await writer.apply(item, old)
    assert (refused.value.status, answers["apply", "422"]) == (422, 1)
    await writer.delete(old)
    assert there(api, namespace) == new


async def test_what_others_own_is_taken_only_of_our_own_objects(
    api: Api, writer: Writer, namespace: str, item: Object
) -> None:
    api.put(config_map(namespace, a="theirs"))
    theirs = await writer.merge(config_map(namespace, a="edited"))
    with pytest.raises(Refused):
        await writer.apply(item, None)
    assert (await writer.get(CONFIG_MAP.path(namespace, "gpu")))["data"] == {"a": "edited"}
    assert (await writer.apply(item, theirs))["data"] == {"a": "1"}


async def test_an_invalid_object_is_refused_at_once(writer: Writer, answers: Answers, item: Object) -> None:
    with pytest.raises(Refused) as refused:
        await writer.apply({**item, "metadata": {**item["metadata"], "name": "No Name"}}, None)
    assert "No Name" in refused.value.why or "metadata.name" in refused.value.why
    assert answers.total() == 1


async def test_the_status_of_what_is_gone_is_refused_at_once(
    api: Api, writer: Writer, answers: Answers, namespace: str
) -> None:
    owner = api.put(exporter("gpu", namespace))
    assert (await writer.apply_status(owner, {"nodesWanted": 1}))["status"] == {"nodesWanted": 1}
    api.remove(Key(GPU_EXPORTER.name, namespace, "gpu"))
    with pytest.raises(Refused):
        await writer.apply_status(owner, {"nodesWanted": 2})
    assert answers.total() == 2


@pytest.mark.kubernetes
async def test_a_namespace_that_is_going_takes_nothing_and_is_not_asked_again(
    api: Api, writer: Writer, answers: Answers, namespace: str, item: Object
) -> None:
    held = config_map(namespace)
    held["metadata"] |= {"name": "held", "finalizers": ["example.com/hold"]}
    api.put(held)
    api.ask("DELETE", f"/api/v1/namespaces/{namespace}", {})
    with pytest.raises(Refused, match="because it is being terminated"):
        await writer.apply(item, None)
    assert answers == {("apply", "403"): 1}


async def test_the_same_event_again_is_a_series(api: Api, writer: Writer, namespace: str) -> None:
    def told() -> list[Object]:
        answer: Object = api.ask("GET", EVENT.path(namespace))[1]
        return sorted(answer["items"], key=lambda event: str(event["eventTime"]))

    now = 1_790_000_000.0
    events = Events(writer, "operator-0", lambda: now)
    about = {"name": "gpu", "namespace": namespace, "uid": "u-1"}
    owner = {"apiVersion": GPU_EXPORTER.api_version, "kind": GPU_EXPORTER.name, "metadata": about}
    for _ in range(5):
        await events.tell(owner, Event("Normal", "Applied", "Apply", "created DaemonSet gpu"))
    (event,) = told()
    assert event["series"]["count"] == 2  # the others came too soon to be written
    now += QUIET_SECONDS
    await events.tell(owner, Event("Normal", "Applied", "Apply", "created DaemonSet gpu"))
    (event,) = told()
    assert event["series"]["count"] == 6
    assert event["note"] == "created DaemonSet gpu"
    assert event["regarding"]["uid"] == "u-1"
    now += SERIES_SECONDS
    await events.tell(owner, Event("Normal", "Applied", "Apply", "created DaemonSet gpu"))
    assert [event.get("series", {}).get("count") for event in told()] == [6, None]


async def test_a_lease_goes_from_hand_to_hand(api: Api, writer: Writer) -> None:
    first, second = Worker(), Worker()
    key = Key(LEASE.name, LEASE_NAMESPACE, "pod-gpu-metrics-operator")
    one, two = leader(writer, LEASE_NAMESPACE, "one"), leader(writer, LEASE_NAMESPACE, "two")
    tasks = [asyncio.create_task(one.lead(first))]
    await until(lambda: first.begun)
    tasks.append(asyncio.create_task(two.lead(second)))
    lease = api.get(key)
    await until(lambda: (api.get(key) or {})["spec"]["renewTime"] != (lease or {})["spec"]["renewTime"])
    assert (first.begun, second.begun, two.holder) == (1, 0, "one")
    tasks[0].cancel()
    await until(lambda: second.begun)
    lease = api.get(key)
    assert lease is not None
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("two", 1)
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
