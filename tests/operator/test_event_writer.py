"""Events as they are written, beside one that a real API server took; it refused others (72- to 74-event-*.json)."""

import json

import pytest

from exporter.operator.api.event_writer import Events
from exporter.operator.api.writer import Writer
from exporter.operator.event_texts import Event
from tests.operator.made import Object
from tests.support.places import DATA

TAKEN: Object = json.loads((DATA / "kubernetes-1.36" / "operator" / "70-event-create.request.json").read_text())


class KeepsEvents(Writer):
    """Keeps what it is asked to make."""

    def __init__(self) -> None:
        self.events: list[Object] = []

    async def create(self, item: Object, *, tries: int = 5) -> Object:  # noqa: ARG002 - as a Writer has it
        self.events.append(item)
        return item


@pytest.mark.parametrize(("namespace", "written_in"), [("ml", "ml"), ("", "default")])
async def test_an_event_has_what_a_real_api_server_asks_for(namespace: str, written_in: str) -> None:
    about = {**TAKEN["regarding"], "metadata": {"name": "main", "namespace": namespace, "uid": "u-1"}}
    event, writer = Event("Warning", "Degraded", "Look", "one exporter does not answer"), KeepsEvents()
    events = Events(writer, "operator-0", lambda: 1_700_000_000.5)
    await events.tell(about, event)
    await events.write(about, event, "a-name", 1_700_000_000.5)
    assert len(writer.events) == 2
    for item in writer.events:
        assert item.keys() == TAKEN.keys()
        regarding = {**TAKEN["regarding"], "namespace": namespace, "uid": "u-1"}
        assert (item["regarding"], item["metadata"]["namespace"]) == (regarding, written_in)
        # six digits after the second: with others it cannot be read
        assert item["eventTime"] == "2023-11-14T22:13:20.500000Z"
        assert (item["reportingInstance"], bool(item["reportingController"])) == ("operator-0", True)
        assert Event(*(item[name] for name in Event._fields)) == event
