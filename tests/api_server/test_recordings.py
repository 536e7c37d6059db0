"""The simulated API server's answers to a scenario that a real one was recorded in."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.api_server.comparing import Words, differences
from tests.support.api_server.answers import Object
from tests.support.api_server.server import SimulatedApiServer
from tests.support.places import DATA

RECORDED = DATA / "kubernetes-1.36" / "operator"
CALLS = [json.loads(line) for line in (RECORDED / "calls.jsonl").read_text().splitlines()]
# The watches, and the calls that are left to a real API server, by their numbers: dry runs; wrong applies; schemas and
# their rules; JSON patches and tables; the scale subresource; events that are invalid; finalizers, and deletion in the
# foreground, which is one.
APART = re.compile(r"crd-|gc-|watch|17|19|2[0-2]|3[0-6]|39b|43|4[67]|6[0-5]|7[2-4]|9[0-26-9]")
# This call makes an object that later calls need. Only a real server warns that it has an unknown field.
MADE = "37-unknown-field-warn.json"
# What this server leaves out: defaults, what Go writes of structs that are empty, and what the server itself adds.
LEFT_OUT = re.compile(
    r"left out: \.body"
    r"(\.spec\.(collectors|intervalSeconds|resources|conversion|strategy|revisionHistoryLimit|progressDeadlineSeconds)"
    r"|\.spec\.names\.listKind"
    r"|\.spec\.template\.spec\.(restartPolicy|dnsPolicy|securityContext|schedulerName)"
    r"|\.spec\.template\.spec\.containers\[0\]\.(resources|terminationMessagePath|terminationMessagePolicy)"
    r"|\.status"
    r"|(\.deprecated|\.first|\.last)\w*|\.source"
    r"|\.metadata\.managedFields\.recorder Update\.fieldsV1\.f:spec\.(f:conversion|f:names\.f:listKind)"
    r")"
)


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
            kept = {name: response.headers[name] for name in ("Warning", "Retry-After") if name in response.headers}
            kept["type"] = response.content_type
            text = await response.text()
            return response.status, kept, json.loads(text) if response.content_type == "application/json" else text

    async def replay(self, call: Object) -> list[str]:
        """Make one call, and learn of its answer. Returns what is different in it."""
        if call["file"].startswith(("03", "51")):
            self._write_as_controller(call["file"])
        status, headers, body = await self.call(call)
        text = (RECORDED / call["file"]).read_text()
        recorded = json.loads(text) if call["file"].endswith(".json") else text
        self._learn(recorded, body)
        if call["file"] == MADE:
            return []
        theirs = {"code": call["status"], **call["headers"], "type": call["answer_type"], "body": recorded}
        ours = {"code": status, **headers, "body": body}
        return list(differences(self.answered.plain(ours), self.recorded.plain(theirs)))

    def _in_our_words(self, text: str) -> str:
        for theirs, ours in self.ours.items():
            text = text.replace(theirs, ours)
        return text

    def _learn(self, recorded: Any, answered: Any) -> None:
        """Remember which of our uids and versions stand for theirs."""
        if isinstance(recorded, dict) and isinstance(answered, dict):
            for key, value in recorded.items():
                if key == "uid" and key in answered:
                    self.ours[str(value)] = str(answered[key])
                elif key == "resourceVersion" and key in answered:
                    self.ours[f'"resourceVersion": "{value}"'] = f'"resourceVersion": "{answered[key]}"'
                else:
                    self._learn(value, answered.get(key))
        elif isinstance(recorded, list) and isinstance(answered, list):
            for theirs, ours in zip(recorded, answered, strict=False):
                self._learn(theirs, ours)

    def _write_as_controller(self, answer: str) -> None:
        """Write what the controller of a definition or a Deployment had written before an answer was recorded."""
        recorded = json.loads((RECORDED / answer).read_text())
        about = recorded["metadata"]
        live = self.server.get(recorded["kind"], about.get("namespace", ""), about["name"])
        assert live is not None
        managed = [entry for entry in about["managedFields"] if entry["manager"].startswith("kube-")]
        more = {"annotations": about["annotations"]} if "annotations" in about else {}
        more["managedFields"] = [*live["metadata"]["managedFields"], *managed]
        self.server.put({**live, "metadata": {**live["metadata"], **more}, "status": recorded["status"]})


@pytest.fixture
async def scenario() -> AsyncIterator[Scenario]:
    server = SimulatedApiServer()
    server.background.clear()  # nothing is collected before the scenario is over
    await server.start()
    async with aiohttp.ClientSession() as session:
        yield Scenario(server, session)
    await server.stop()


async def test_every_answer_is_a_real_ones(scenario: Scenario) -> None:
    different: dict[str, list[str]] = {}
    calls = [call for call in CALLS if not APART.match(call["file"])]
    for call in calls:
        lines = [line for line in await scenario.replay(call) if not LEFT_OUT.fullmatch(line)]
        different |= {call["file"]: lines} if lines else {}
    assert different == {}
    assert len(calls) == 36


async def test_a_watch_of_the_scenario_is_a_real_ones(scenario: Scenario) -> None:
    """The events of the custom resource before its deletion, in their order, each with the object it had."""
    for call in CALLS:
        if not APART.match(call["file"]) and call["file"] < "90":
            await scenario.replay(call)
    ours: list[Object] = [
        {"type": change.what, "body": change.item}
        for change in scenario.server.store.since(0)
        if change.key.resource == "gpuexporters.gpu.example.com"
    ]
    events = [json.loads(line) for line in (RECORDED / "watch.jsonl").read_text().splitlines()[: len(ours)]]
    theirs = [{"type": event["type"], "body": event["object"]} for event in events]
    assert [event["type"] for event in ours] == ["ADDED", *["MODIFIED"] * 4, "ADDED", *["MODIFIED"] * 2]
    words, their_words = Words(), Words()
    for one, other in zip(ours, theirs, strict=True):
        if one["body"]["metadata"]["name"] == "main":
            lines = differences(words.plain(one), their_words.plain(other))
            assert [line for line in lines if not LEFT_OUT.fullmatch(line)] == []
