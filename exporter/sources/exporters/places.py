"""Node exporters that are named in the configuration."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from urllib.parse import urlsplit

from exporter.model.snapshot import Health
from exporter.sources.any_places import Place
from exporter.sources.exporters.asking import PATH
from exporter.sources.source import Attempt, Bound

NAME = "exporters:given"


class Given:
    """URLs, each with the name of its node where the user gives one. Which nodes there are is known from the start."""

    name = NAME
    patience_seconds = None
    bounds: Mapping[str, Bound] = MappingProxyType({})
    health = Health()
    looked_for = "the list of --cluster.node"

    def __init__(self, nodes: Sequence[tuple[str, str]]) -> None:
        """`nodes` are names and URLs; without a name, the exporter is asked for it."""
        self.places: Mapping[str, Place] = MappingProxyType(
            {name or address_of(url): Place(url=_base(url), is_named=bool(name)) for name, url in nodes}
        )

    def follow(self, on_change: Callable[[], None]) -> None:
        """Nothing changes."""

    def begin(self) -> Attempt | None:
        """Nothing is asked for."""

    async def close(self) -> None:
        """Nothing is in flight."""


def address_of(url: str) -> str:
    """Host and port, and the path where there is one: a URL without what may be a secret."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] + parts.path.rstrip("/")


def _base(url: str) -> str:
    """A URL without the path that is put after it anyway."""
    return url.rstrip("/").removesuffix(PATH)
