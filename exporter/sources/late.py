"""A source that may come later than the first look: the socket or the token that it needs is not there yet."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from exporter.model.snapshot import Health
from exporter.sources.source import Attempt, Bound, Source

S = TypeVar("S", bound=Source)


class Late(Generic[S]):
    """`now` is the source, once there is one, and until then what stands in its place: it is looked for when begun."""

    def __init__(self, find: Callable[[], S | None], nothing: S) -> None:
        """`find` makes the source where it can be made now. `nothing` knows nothing, and its health says why."""
        self.now = nothing
        self._find = find
        self._nothing = nothing

    @property
    def name(self) -> str:
        """That of what is there now."""
        return self.now.name

    @property
    def health(self) -> Health:
        """That of what is there now."""
        return self.now.health

    @property
    def patience_seconds(self) -> float | None:
        """That of what is there now."""
        return self.now.patience_seconds

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """The same before and after it is there."""
        return {of: Bound(most, lambda of=of: self.now.bounds[of].used()) for of, (most, _) in self.now.bounds.items()}  # type: ignore[misc]

    @property
    def is_there(self) -> bool:
        """Whether it has been found."""
        return self.now is not self._nothing

    def look(self) -> None:
        """Look for it, unless it is there."""
        if not self.is_there:
            self.now = self._find() or self._nothing

    def begin(self) -> Attempt | None:
        """Look for it, and begin what is there."""
        self.look()
        return self.now.begin()

    async def close(self) -> None:
        """End what is in flight."""
        await self.now.close()
