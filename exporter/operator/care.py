"""How each of the two custom resources is taken care of: what it wants, what it may have, and what its status is."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from exporter.operator.kinds import AnyObject, Key, Kind, Object
from exporter.operator.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it went with a custom resource this time.

    `live` is what there is of its objects now, by what they are called. `reason` is one word and `why` a sentence for
    people, where something is not as it is wanted; both "" where all went well. `served` are the kinds that may come
    and go and that the API serves now. `plan` is None where it is not known what is wanted.
    """

    owner: AnyObject
    live: Mapping[Key, AnyObject]
    plan: Plan | None
    reason: str
    why: str
    served: AbstractSet[Kind]


class Unfit(Exception):
    """What a custom resource asks for cannot be. `reason` is one word; the text is a sentence for people.

    `again_seconds` is when it may be different though nobody changes the custom resource; None for never.
    """

    def __init__(self, reason: str, why: str, *, again_seconds: float | None = None) -> None:
        super().__init__(why)
        self.reason = reason
        self.again_seconds = again_seconds


class Care(Protocol):
    """Of one kind."""

    @property
    def kind(self) -> Kind:
        """The custom resource's."""

    @property
    def is_exclusive(self) -> bool:
        """Whether nothing new may be made while something old is still there."""

    @property
    def look_again_seconds(self) -> float | None:
        """How often its status is looked at though nothing is told of a change; None: with all others."""

    def may_have(self, owner: Key) -> Sequence[Key]:
        """Every object that a custom resource may have, whatever it says."""

    async def wanted(self, owner: AnyObject, served: AbstractSet[Kind]) -> Sequence[Object]:
        """The objects that it wants, in the order in which they are applied.

        Raises:
            Unfit: it cannot be used as it is; what it has stays as it is.
            SourceError: it is not known what it wants.
        """

    async def status(self, outcome: Outcome) -> Mapping[str, object]:
        """Its status, whole.

        Raises:
            SourceError: it cannot be known now.
        """
