"""The service runs whatever role it is given, and exchanges one for the next."""

import asyncio
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest

from exporter.config.node_settings import Config
from exporter.model.snapshot import Snapshot
from exporter.node.role import NODE
from exporter.outputs.output import NOTHING_SEEN, PLAIN, Answer, Look, Need, Output, answer
from exporter.role import Role
from exporter.service import Service
from exporter.telemetry import Telemetry
from tests.support.exporter import config_of
from tests.support.waiting import until


class Greeting:
    """A role that knows no node."""

    def __init__(self, before: Role | None) -> None:
        self.telemetry = before.telemetry if before else Telemetry()
        self.instance = "a-greeting"
        self.looked = Look.of
        self.outputs = (Output(path="/hello", says="a greeting", make=self._hello),)
        self.gave_way_to: object = None
        self.looks = self.beats = 0
        self.pulse_seconds: float | None = None
        self.fails: Exception | None = None

    def _hello(self, _: Look) -> Answer:
        return answer(PLAIN, b"hello\n" * self.looks)

    async def look(self, wait_seconds: float | None, needs: AbstractSet[Need]) -> Snapshot:  # noqa: ARG002 - it sees nothing, whoever asks
        self.looks += 1
        return NOTHING_SEEN

    async def pulse(self) -> None:
        self.beats += 1
        if self.fails:
            raise self.fails

    async def why_not_ready(self) -> str:
        return ""

    async def give_way(self, successor: "Greeting") -> None:
        self.gave_way_to = successor

    async def close(self) -> None:
        pass


async def test_another_role_is_run_like_a_node() -> None:
    made: list[Greeting] = []

    def make(_: Config, before: Role | None) -> Greeting:
        made.append(Greeting(before))
        return made[-1]

    config = config_of()
    service = Service(config, replace(NODE, make=make), lambda: config)
    try:
        (address,) = await service.listen()
        async with aiohttp.ClientSession(f"http://{address}") as session:
            async with session.get("/hello") as response:
                assert (response.status, await response.text()) == (200, "hello\n")
            async with session.get("/gpu/metrics") as response:
                assert response.status == 404
        await service.reload()
        await service.collect(None)
    finally:
        await service.close()
    first, second = made
    assert (first.gave_way_to, second.looks) == (second, 1)
    assert second.telemetry is first.telemetry is service.telemetry


@asynccontextmanager
async def greeting(*seconds: float | None) -> AsyncIterator[tuple[Service[Config], list[Greeting]]]:
    """A service whose roles beat every so often, one after the other."""
    made: list[Greeting] = []

    def make(_: Config, before: Role | None) -> Greeting:
        made.append(Greeting(before))
        made[-1].pulse_seconds = seconds[len(made) - 1]
        return made[-1]

    config = config_of()
    service = Service(config, replace(NODE, make=make), lambda: config)
    try:
        await service.listen()
        yield service, made
    finally:
        await service.close()


def tasks_that_beat() -> int:
    return sum("Pulse" in repr(task) for task in asyncio.all_tasks())


async def test_a_role_beats_at_once_and_the_next_one_goes_on_in_its_own_time() -> None:
    async with greeting(3600.0, 0.01, None, 3600.0) as (service, made):
        await until(lambda: made[0].beats == 1)
        assert tasks_that_beat() == 1
        await service.reload()
        await until(lambda: made[1].beats > 3)
        assert (made[0].beats, tasks_that_beat()) == (1, 1)
        await service.reload()
        await until(lambda: not tasks_that_beat())
        assert made[2].beats <= 1  # that was due when the roles were exchanged
        await service.reload()
        await until(lambda: made[3].beats == 1)
    assert tasks_that_beat() == 0


async def test_a_role_that_is_not_to_beat_costs_no_task() -> None:
    async with greeting(None) as (_, made):
        assert tasks_that_beat() == 0
    assert made[0].beats == 0


async def test_nobody_beats_who_does_not_listen() -> None:
    config = config_of()
    made: list[Greeting] = []

    def make(_: Config, before: Role | None) -> Greeting:
        made.append(Greeting(before))
        made[-1].pulse_seconds = 0.01
        return made[-1]

    service = Service(config, replace(NODE, make=make), lambda: config)
    await service.collect(None)
    await service.reload()
    await asyncio.sleep(0.05)
    await service.close()
    assert [role.beats for role in made] == [0, 0]


@pytest.mark.parametrize("fault", [RuntimeError("out of order"), asyncio.CancelledError()])
async def test_a_beat_that_fails_is_logged_once_and_does_not_end_the_pulse(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with greeting(0.005) as (_, (role,)):
        role.fails = fault
        beats = role.beats
        await until(lambda: role.beats > beats + 5)
        assert caplog.text.count("a look of its own failed") == 1
        role.fails = None
        beats = role.beats
        await until(lambda: role.beats > beats + 2)
        role.fails = fault
        await until(lambda: caplog.text.count("a look of its own failed") == 2)
