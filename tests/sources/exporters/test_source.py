"""The exporters of many nodes against the exporter in front of a simulated one, and against servers on bad days."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from exporter.config.http_file import HttpConfig
from exporter.sources.exporters.places import Given
from exporter.sources.exporters.source import Exporters
from tests.support.exporter import Start

Make = Callable[..., Exporters]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[Exporters] = []

    def build(*nodes: tuple[str, str], **settings: Any) -> Exporters:
        defaults: dict[str, Any] = {
            "places": Given(nodes),
            "timeout_seconds": 2.0,
            "max_age_seconds": 30.0,
            "max_bytes": 1_000_000,
            "http": HttpConfig(),
            "on_health": lambda _name, _health: None,
        }
        made.append(Exporters(**{**defaults, **settings}))
        return made[-1]

    yield build
    for source in made:
        await source.close()


async def test_what_the_exporters_of_two_nodes_say(start: Start, make: Make) -> None:
    one, other = await start(node_name="a"), await start(node_name="b")
    source = make(("a", one.base), ("", other.base), ("c", "http://127.0.0.1:1"))
    assert source.view.missing == tuple(sorted(["a", other.base.removeprefix("http://"), "c"]))
    await source.begin()
    view = source.view
    assert view is source.view
    assert list(view.nodes) == ["a", "b", "c"]
    assert view.missing == ("c",)
    assert view.nodes["a"].devices
    assert view.nodes["c"].trouble is not None
    assert view.nodes["c"].trouble.reason == "refused"
