"""How a kind of custom resource is taken care of: what is to be written for it, and what its status is."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Protocol

from exporter.errors import SourceError
from exporter.operator.decisions import Event
from exporter.operator.objects.edits import Change
from exporter.operator.objects.kinds import Key, Kind
from exporter.operator.objects.parts import AnyObject
from exporter.operator.objects.plan import Plan
from exporter.operator.objects.reading import Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What is to be written for a custom resource.

    `live` are its objects as they are, by what they are called. While `waits_for` says what is still there, `plan` is
    to delete, and to apply nothing. `known` is what the care knows besides, for the status.
    """

    plan: Plan
    live: Mapping[Key, AnyObject]
    waits_for: str = ""
    known: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it went with a custom resource this time.

    `aim` is None where it is not known what is to be written; `problem` says why, or why it could not be written.
    `live` are the objects as they are now, `changes` what was written of them. `refused` are those that the API server
    did not take, or does not let the operator write.
    """

    owner: AnyObject
    aim: Aim | None
    live: Mapping[Key, AnyObject]
    changes: Sequence[Change] = field(default=())
    problem: Invalid | SourceError | None = None
    refused: Sequence[tuple[Key, SourceError]] = field(default=())


class Care(Protocol):
    """Of one kind."""

    @property
    def kind(self) -> Kind:
        """The custom resource's."""

    @property
    def look_again_seconds(self) -> float:
        """How often it is looked at though nothing is told: for what the API server tells nobody."""

    async def aim(self, owner: AnyObject, served: AbstractSet[Kind]) -> Aim:
        """What is to be written for it, in order. `served` are the kinds that come and go, and that are there now.

        Raises:
            Invalid: its spec cannot be used: what it has stays as it is.
            SourceError: it is not known what there is.
        """

    async def status(self, outcome: Outcome) -> Mapping[str, object]:
        """Its status, whole; equal where nothing has changed.

        Raises:
            SourceError: it cannot be known now.
        """

    def events(self, old: AnyObject, new: AnyObject, changes: Sequence[Change]) -> Sequence[Event]:
        """What people are told: from the status before and now, and from what was written."""

    def keep_only(self, keys: AbstractSet[Key]) -> None:
        """Forget what is known of custom resources other than these. `keys` has those of every kind."""

    async def gone(self, key: Key) -> Sequence[AnyObject]:
        """What is to be deleted, now that there is no such custom resource: what nobody could own.

        Raises:
            SourceError: it is not known.
        """
