"""The service runs whatever role it is given, and exchanges one for the next."""

from collections.abc import Set as AbstractSet

import aiohttp

from exporter.config.node import Config
from exporter.model.snapshot import Snapshot
from exporter.outputs.output import NOTHING_SEEN, PLAIN, Answer, Look, Need, Output, answer
from exporter.service import Role, Service
from exporter.telemetry import Telemetry
from tests.support.exporter import config_of


class Greeting:
    """A role that knows no node."""

    def __init__(self, before: Role | None) -> None:
        self.telemetry = before.telemetry if before else Telemetry()
        self.instance = "a-greeting"
        self.outputs = (Output(path="/hello", says="a greeting", make=self._hello),)
        self.gave_way_to: object = None
        self.looks = 0

    def _hello(self, _: Look) -> Answer:
        return answer(PLAIN, b"hello\n" * self.looks)

    async def look(self, wait_seconds: float | None, needs: AbstractSet[Need]) -> Snapshot:  # noqa: ARG002 - it sees nothing, whoever asks
        self.looks += 1
        return NOTHING_SEEN

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
    service = Service(config, lambda: config, make=make)
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
