"""No word of a user's names is in a recording whose names were replaced, and it decides as the old one does."""

import json
import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from exporter.bundle.names.replacing import replaced
from exporter.bundle.recording import Recording
from exporter.model.pods import Owner
from exporter.model.snapshot import Snapshot
from exporter.sources.kubelet.pod_resources import parse
from tests.bundle.names.worlds import Made, bytes_of, outputs_of, snapshot_of, world_of

WORLDS = int(os.environ.get("WORLDS", "12"))


@cache
def replaced_world(seed: int) -> tuple[Made, Recording, Mapping[str, str]]:
    made = world_of(seed)
    return made, *replaced(made.recording)


def words_left(made: Made, new: bytes) -> list[str]:
    lower = new.lower()
    return [word for word in (*made.words, *made.ids) if word.encode() in lower]


@pytest.mark.parametrize("seed", range(WORLDS))
def test_no_word_of_the_worlds_names_is_left(seed: int) -> None:
    made, recording, _ = replaced_world(seed)
    assert not recording.is_plain
    for body in bytes_of(recording):
        assert words_left(made, body) == [], body


# where a name stands; name= is a process
KEYS = r'(?:\b(?:pod|namespace|container|node|node_name|nodeName|[hH]ostname|workload_name|exported_\w+)|"name)'


@pytest.mark.parametrize("seed", range(WORLDS))
def test_no_common_word_is_left_in_the_place_of_a_name(seed: int) -> None:
    made, recording, _ = replaced_world(seed)
    names = "|".join(made.common) or "!"
    place = re.compile(
        rf"{KEYS}\"?(?:=|: ?)\"?(?:{names})(?![\w.:-])|(?<![\w./-])(?:{names})/(?:{names}|[a-z]+-[0-9][a-z0-9-]*)\b"
    )
    for body in bytes_of(recording):
        assert not place.search(body.decode("utf-8", "replace")), body
    for moment in recording.moments:
        owners = {assignment.owner for assignment in parse(moment.answers[0].body).assignments}
        assert made.common.isdisjoint(
            {text for owner in owners for text in (owner.namespace, owner.pod, owner.container)}
        )


def owners_of(snapshot: Snapshot) -> dict[str, list[Owner]]:
    return {
        f"{key.uuid} {key.instance}": sorted(holder.owner for holder in of_key)
        for key, of_key in snapshot.owners.holders.items()
    }


def renamed(owner: Owner, names: Mapping[str, str]) -> Owner:
    def new(name: str) -> str:
        return names.get(name, name)

    return Owner(namespace=new(owner.namespace), pod=new(owner.pod), container=new(owner.container))


@pytest.mark.parametrize("seed", range(WORLDS))
def test_owners_are_the_same_but_for_their_names(seed: int) -> None:
    made, recording, names = replaced_world(seed)
    before = made.recording.moments[0]
    after = recording.moments[0]
    old = owners_of(snapshot_of(before.answers[0].body, before.answers[2].body, "n"))
    new = owners_of(snapshot_of(after.answers[0].body, after.answers[2].body, "n"))
    mapped = [sorted(renamed(owner, names) for owner in owners) for owners in old.values()]
    assert sorted(mapped) == sorted(new.values())
    assert any(old.values())
    assert [len(page.splitlines()) for page in before.outputs.values()] == [
        len(page.splitlines()) for page in after.outputs.values()
    ]


def in_any_order(value: Any) -> Any:
    """JSON without the order of lists, which is by name."""
    if isinstance(value, dict):
        return {key: in_any_order(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted(map(in_any_order, value), key=lambda item: json.dumps(item, sort_keys=True))
    return value


@pytest.mark.parametrize("seed", range(WORLDS))
def test_what_was_replaced_gives_the_outputs_that_were_replaced(seed: int) -> None:
    _, recording, _ = replaced_world(seed)
    moment = recording.moments[0]
    (node,) = recording.settings["node-name"]
    outputs = outputs_of(moment.answers[0].body, moment.answers[2].body, node)
    for path, body in outputs.items():
        if path in ("/gpu/metrics", "/metrics/nodes"):
            assert sorted(body.splitlines()) == sorted(moment.outputs[path].splitlines())
        else:
            assert in_any_order(json.loads(body)) == in_any_order(json.loads(moment.outputs[path]))
