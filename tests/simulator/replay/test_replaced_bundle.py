"""A bundle of a lively node, with its names replaced, is played back: what the exporter says is what it said there."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import zip_longest
from math import isclose
from pathlib import Path

import pytest

from exporter.bundle import archive
from exporter.bundle.collecting.looking import collect
from exporter.bundle.names.replacing import replaced
from exporter.bundle.recording import RecordedMoment, Recording
from exporter.simulator.simulated_node import SAMPLE_SECONDS
from tests.simulator.replay.test_replay_node import PAGES, REPORT, simulated
from tests.support.bundles import (
    MomentsMade,
    config_of_node,
    findings_in,
    in_recorded_words,
    recording_of,
    replay_of,
    without_times,
)
from tests.support.exporter import running
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import until

EVERY_SECONDS = 1.0
HERE = {"web.listen-address": ("127.0.0.1:0",)}


TOKEN = re.compile(r"\w(?:[\w.:/-]*\w)?")
SHORT_NUMBER = re.compile(r"[+-]?[0-9.]{1,9}(e[+-]?[0-9]+)?")


def old_names(recording: Recording, without_names: Recording) -> Mapping[str, str]:
    """The users' own names by those that replaced them, as the answers of an exporter in both bundles show them.

    Nothing but names was replaced, and no two by the same.
    """
    old: dict[str, str] = {}
    for moment, other in zip(recording.moments, without_names.moments, strict=True):
        for path in PAGES:
            tokens = TOKEN.findall(moment.outputs[path].decode())
            for name, new in zip(tokens, TOKEN.findall(other.outputs[path].decode()), strict=True):
                if name != new:
                    assert not SHORT_NUMBER.fullmatch(name), (name, new)
                    assert old.setdefault(new, name) == name, new
    return old


def back(old: Mapping[str, str]) -> Callable[[str], str]:
    """Puts the users' own names into a text."""
    return lambda text: TOKEN.sub(lambda match: old.get(match[0], match[0]), text)


async def alive(node: SimulatedNode) -> None:
    """Let processes work: the driver has new samples of them."""
    while True:
        node.write_processes()
        await asyncio.sleep(SAMPLE_SECONDS)


async def recorded(made: MomentsMade) -> tuple[Recording, str]:
    """What `doctor --bundle --for` collects of a node whose pods come and go, and which loses a GPU; its root."""
    world = World(gpus=8, mig=1, shared=2, claims=2, dynamic=1, seed=11)
    async with simulated(world, "hal9000-anna") as node:
        # an error's holders are said once the kubelet was asked after it
        config = config_of_node(node, kubelet_max_age="100ms")
        config = replace(config, node=replace(config.node, name="hal9000-host"))
        living = asyncio.create_task(alive(node))
        over = asyncio.Event()
        collecting = asyncio.create_task(collect(config, for_seconds=600.0, every_seconds=EVERY_SECONDS, is_over=over))
        await made.more(2)
        node.failure.fail()
        node.failure.look(node.processes.pids)
        assert node.failure.gpu
        node.write_processes()
        await made.more(2)
        world.step()
        node.write_processes()
        await made.more(2)
        made.end(over)
        collected = await collecting
        living.cancel()
        return recording_of(config, collected), str(node.root)


def holders(page: bytes) -> set[bytes]:
    """The pods on a page."""
    return set(re.findall(rb',pod="([^"]+)"', page))


async def test_what_was_said_comes_back_under_the_users_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording, root = await recorded(MomentsMade(monkeypatch))
    assert len(recording.moments) > 3
    first, *_, last = (moment.outputs["/gpu/metrics"] for moment in recording.moments)
    assert holders(first) != holders(last)
    assert b"fallen off the bus" not in recording.moments[0].outputs[REPORT]
    assert b"fallen off the bus" in recording.moments[-1].outputs[REPORT]
    without_names, _ = replaced(recording)
    packed = BytesIO()
    archive.write(without_names, packed)
    file = tmp_path / "bundle.tar.gz"
    file.write_bytes(packed.getvalue())
    in_users_words = back(old_names(recording, without_names))

    async with replay_of(archive.read(file)) as replayed, running(replayed.config(HERE)) as exporter:

        async def differences(moment: RecordedMoment) -> Mapping[str, Sequence[str]]:
            """What the exporter in front of the replay says otherwise than the one that was recorded, by path."""
            lines = {}
            for path in PAGES:
                _, answer = await exporter.get(path)
                was = comparable(path, moment.outputs[path].decode().replace(root, ""))
                again = comparable(path, in_users_words(in_recorded_words(replayed, answer.encode())))
                lines[path] = different(was, again)
            return {path: of_path for path, of_path in lines.items() if of_path}

        async def neither(moment: RecordedMoment, next_one: RecordedMoment) -> Mapping[str, Sequence[str]]:
            """The differences from a moment, unless it is said what the next one has.

            A record that the kernel's log wrote amid a look is in its moment; that look may have said nothing of it.
            """
            of_moment = await differences(moment)
            return of_moment and await differences(next_one) and of_moment

        moments = recording.moments
        for number, (moment, next_one) in enumerate(zip(moments, [*moments[1:], moments[-1]], strict=True)):
            await replayed.show(number)
            await until_there_is_none(partial(neither, moment, next_one))


async def until_there_is_none(differences: Callable[[], Awaitable[Mapping[str, Sequence[str]]]]) -> None:
    seen: Mapping[str, Sequence[str]] = {}

    async def is_none() -> bool:
        nonlocal seen
        seen = await differences()
        return not seen

    await until(is_none, why=lambda: seen)


NUMBER = re.compile(r"(?<=[ :])-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?(?=[,}]|$)")
TOLERANCE = 0.02


def different(recorded: Sequence[str], replayed: Sequence[str]) -> list[str]:
    """The lines that differ. Of numbers that are measured over a time, some percent count as nothing."""
    lines = []
    for was, again in zip_longest(recorded, replayed, fillvalue=""):
        numbers = zip_longest(map(float, NUMBER.findall(was)), map(float, NUMBER.findall(again)), fillvalue=-1.0)
        is_same = NUMBER.sub("", was) == NUMBER.sub("", again)
        if not (is_same and all(isclose(one, other, rel_tol=TOLERANCE) for one, other in numbers)):
            lines += [f"- {was}", f"+ {again}"]
    return lines[:10]


# Whether a holder has left its device idle is known once a page was read after it came. Both may come in the same
# millisecond, in either order.
STATE = re.compile(r'"idle_since":(?:null|"[^"]*"),"state":"(?:held|idle|used)"')

# what happened, happens again when it is played
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z| UTC)")


def comparable(path: str, text: str) -> list[str]:
    """The samples, objects or findings of an answer, sorted, since new names may sort otherwise."""
    text = TIME.sub("then", text)
    if path == REPORT:
        return sorted(json.dumps(finding, sort_keys=True) for finding in findings_in(text))
    return sorted(STATE.sub("", without_times(text)).replace("},{", "},\n{").splitlines())
