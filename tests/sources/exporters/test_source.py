"""The exporters of many nodes against the exporter in front of a simulated one, and against servers on bad days."""

from tests.sources.exporters.conftest import Make
from tests.support.exporter import Start


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
