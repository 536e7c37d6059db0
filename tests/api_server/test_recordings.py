"""The simulated API server's answers to a scenario that a real one was recorded in."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from tests.support.api_server.answers import Object
from tests.support.api_server.server import SimulatedApiServer
from tests.support.cel import reviewer
from tests.support.places import DATA

RECORDED = DATA / "kubernetes-1.36" / "operator"
CALLS = [json.loads(line) for line in (RECORDED / "calls.jsonl").read_text().splitlines()]
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
# The calls of a later hour, which have their own test, and the watches.
_APART = ("crd-", "gc-", "watch")
# Before a call, what the Deployment's controller had written by then: as an answer tells, but for the replicas.
_CONTROLLER = {
    "51": ("51-apply-deployment-unchanged.json", {}),
    "60": ("65-deployment-get.json", {"replicas": 1}),
    "61": ("65-deployment-get.json", {"replicas": 1}),
    "64": ("65-deployment-get.json", {}),
}
# A version that a request names and no answer does, which is that of the Deployment then.
_UNSEEN = '"resourceVersion": "1189"'


class Words:
    """The uids and versions of one side by when they were first seen, by which two sides can be compared."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}

    def plain(self, value: Any, name: str = "") -> Any:
        """The value with times, uids and versions that are the same on both sides."""
        if isinstance(value, dict):
            return {self._key(key): self.plain(inner, key) for key, inner in sorted(value.items())}
        if isinstance(value, list):
            told_of = [self.plain(inner) for inner in value]
            return sorted(told_of, key=json.dumps) if name == "managedFields" else told_of
        if name in ("uid", "resourceVersion") and value:
            known = sum(key.startswith(name) for key in self.seen)
            return self.seen.setdefault(f"{name} {value}", f"{name}-{known}")
        if isinstance(value, str) and _TIME.fullmatch(value):
            return "a time"
        return re.sub(r"in record \(\d+\)", "in record (N)", value) if isinstance(value, str) else value

    def _key(self, key: str) -> str:
        if not key.startswith('k:{"uid"'):
            return key
        uid = json.loads(key[2:])["uid"]
        return f"k:uid {self.seen.get(f'uid {uid}')}"


class Scenario:
    """A client that sends what was recorded, with the uids and versions of this server."""

    def __init__(self, server: SimulatedApiServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session
        self.recorded, self.answered = Words(), Words()
        self.ours: dict[str, str] = {}

    async def call(self, call: Object) -> tuple[int, Object, Any]:
        """Make one call. Returns status, the headers that matter and the body."""
        headers = {"User-Agent": "recorder/1", "Accept": call.get("accept", "application/json")}
        body = None
        if "body" in call:
            headers["Content-Type"] = call["content_type"]
            body = self._in_our_words((RECORDED / call["body"]).read_text())
        async with self.session.request(
            call["method"], self.server.url + call["path"], data=body, headers=headers
        ) as response:
            told = {name: response.headers[name] for name in ("Warning", "Retry-After") if name in response.headers}
            told["type"] = response.content_type
            text = await response.text()
            return response.status, told, json.loads(text) if response.content_type == "application/json" else text

    async def replay(self, call: Object) -> list[str]:
        """Make one call, and learn of its answer. Returns what is different in it."""
        number = call["file"].partition("-")[0]
        if number in _CONTROLLER:
            self.controller_writes(*_CONTROLLER[number])
        status, headers, body = await self.call(call)
        text = (RECORDED / call["file"]).read_text()
        recorded = json.loads(text) if call["file"].endswith(".json") else text
        self.learn(recorded, body)
        theirs = {"code": call["status"], **call["headers"], "type": call["answer_type"], "body": recorded}
        ours = {"code": status, **headers, "body": body}
        return list(differences(self.answered.plain(ours), self.recorded.plain(theirs)))

    def _in_our_words(self, text: str) -> str:
        for theirs, ours in self.ours.items():
            text = text.replace(theirs, ours)
        return text

    def learn(self, recorded: Any, answered: Any) -> None:
        """Remember which of our uids and versions stand for theirs."""
        if isinstance(recorded, dict) and isinstance(answered, dict):
            for key, value in recorded.items():
                if key == "uid" and key in answered:
                    self.ours[str(value)] = str(answered[key])
                elif key == "resourceVersion" and key in answered:
                    self.ours[f'"resourceVersion": "{value}"'] = f'"resourceVersion": "{answered[key]}"'
                else:
                    self.learn(value, answered.get(key))
        elif isinstance(recorded, list) and isinstance(answered, list):
            for theirs, ours in zip(recorded, answered, strict=False):
                self.learn(theirs, ours)

    def controller_writes(self, answer: str, status: Object) -> None:
        """Write what the Deployment's controller had written before an answer was recorded."""
        recorded = json.loads((RECORDED / answer).read_text())
        live = self.server.get("Deployment", "ml", "main-exporter")
        assert live is not None
        managed = [entry for entry in recorded["metadata"]["managedFields"] if entry["manager"].startswith("kube-")]
        ours = [entry for entry in live["metadata"]["managedFields"] if not entry["manager"].startswith("kube-")]
        annotations = recorded["metadata"].get("annotations")
        stored = self.server.put(
            {
                **live,
                "metadata": {**live["metadata"], "annotations": annotations, "managedFields": [*ours, *managed]},
                "status": {**recorded["status"], **status},
            }
        )
        self.ours[_UNSEEN] = f'"resourceVersion": "{stored["metadata"]["resourceVersion"]}"'


@pytest.fixture
async def scenario() -> AsyncIterator[Scenario]:
    server = SimulatedApiServer(reviewer=reviewer)
    server.add_namespace("ml")
    server.background.clear()  # nothing is collected before the scenario is over
    server.definitions.not_found_seconds = server.definitions.initializing_seconds = 0
    await server.start()
    async with aiohttp.ClientSession() as session:
        yield Scenario(server, session)
    await server.stop()


async def test_every_answer_is_a_real_ones(scenario: Scenario) -> None:
    different = {}
    calls = [call for call in CALLS if not call["file"].startswith(_APART)]
    for call in calls:
        found = await scenario.replay(call)
        if found:
            different[call["file"]] = found
    assert different == {}
    assert len(calls) == 68


async def test_a_watch_of_the_scenario_is_a_real_ones(scenario: Scenario) -> None:
    """The events of the custom resource in their order, each with the object it had."""
    began = 0
    for call in CALLS:
        if not call["file"].startswith(_APART):
            await scenario.replay(call)
        if call["file"] == "04-list-empty.json":
            began = scenario.server.store.version
    scenario.server.collector.sweep()
    ours = [
        {"type": change.what, "object": change.item}
        for change in scenario.server.store.since(began)
        if change.key.resource == "gpuexporters.gpu.example.com"
    ]
    theirs = [json.loads(line) for line in (RECORDED / "watch.jsonl").read_text().splitlines()]
    assert list(differences(Words().plain(ours), Words().plain(theirs))) == []


async def test_the_deletion_of_the_definition_is_answered_as_by_a_real_one(scenario: Scenario) -> None:
    made = next(call for call in CALLS if call["file"] == "02-crd-create.json")
    assert await scenario.replay(made) == []
    assert await scenario.replay(next(call for call in CALLS if call["file"] == "crd-delete.json")) == []


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """What is different, one line for each place."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            yield from differences(ours.get(key, "nothing"), theirs.get(key, "nothing"), f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: {str(ours)[:200]} | recorded: {str(theirs)[:200]}"
