"""An output: a path, what it needs, and the pure function that makes its answer of a look at the node.

A role's outputs are a table (node.py). The web's paths, the links of the page for people, the paths that need no
password and the tests' lists of paths are made of it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from functools import cached_property
from typing import Any, Generic, NamedTuple, Self, TypeVar

from exporter.accounts.cards import FAMILIES_OF_CARDS, Cards, cards_by_owner
from exporter.model.devices import Owners
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.model.slices import Work, at_once
from exporter.model.snapshot import Snapshot, all_devices
from exporter.telemetry import Telemetry

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS_FORMAT = "application/openmetrics-text; version=1.0.0; charset=utf-8"
JSON_FORMAT = "application/json; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"


class Need(StrEnum):
    """What an answer is made of. The exporter reads only what the output needs."""

    NODE = auto()  # a look at the node (`Look.snapshot`), or at all of them (`ClusterLook.view`)
    WORKLOADS = auto()  # what its pods belong to: `Look.snapshot.workloads`
    ACCOUNTS = auto()  # what containers have had of GPUs: `Look.snapshot.accounts`
    IDLE_SINCE = auto()  # the same, of which only since when holders are idle is shown
    VERDICTS = auto()  # how its devices are: `Look.snapshot.verdicts`
    PROCESSES = auto()  # the processes on its GPUs as they are known now: `Look.snapshot.measured`
    DIAGNOSIS = auto()  # the program's settings, and what `doctor` finds: `Look.about`, `Look.snapshot.device_files`
    READINESS = auto()  # `Look.not_ready`


LOOK_AT_NODE = frozenset({Need.NODE})
OF_OBJECTS = frozenset({Need.NODE, Need.WORKLOADS, Need.IDLE_SINCE, Need.VERDICTS})  # those of /container/metrics
NOTHING: frozenset[Need] = frozenset()
NOTHING_SEEN = Snapshot(node="", owners=Owners(), joined=None, health={}, assignments_age_seconds=None)


class Answer(NamedTuple):
    """An answer, in pieces of `size` bytes in all: large ones are never copied whole.

    `is_packed`: clients that accept gzip get it as gzip. `headers` go out beside the usual ones.
    """

    content_type: str
    pieces: Sequence[bytes]
    size: int
    status: int = 200
    is_packed: bool = True
    headers: Sequence[tuple[str, str]] = ()


class Question(NamedTuple):
    """What an output may know of a request.

    `query` holds the parameters, by name and in order; one may be there twice. `is_own`: this process itself asks, as
    its own upstream. `rest` is what follows the path of an output that answers below its path, too.
    `is_open`: the client prefers OpenMetrics, and the output has it.
    """

    query: tuple[tuple[str, str], ...] = ()
    is_own: bool = False
    rest: str = ""
    is_open: bool = False


NO_QUESTION = Question()


# not frozen: every scrape makes one, and frozen costs a microsecond
@dataclass(kw_only=True, eq=False)
class AnyLook:
    """What the answers of every role share: what the program knows of itself.

    What was not needed, or not given, is empty. `not_ready` is the reason, or "" for ready; `outputs` is the table
    that the output is in.
    """

    telemetry: Telemetry = field(default_factory=Telemetry)
    question: Question = NO_QUESTION
    about: Mapping[str, Any] = field(default_factory=dict)
    not_ready: str = ""
    outputs: Sequence["Output[Any]"] = ()


@dataclass(kw_only=True, eq=False)
class Look(AnyLook):
    """What an answer of the node role is made of: a look at the node, and what the program says of itself."""

    snapshot: Snapshot

    @classmethod
    def of(cls, snapshot: Snapshot | None, **rest: Any) -> Self:  # noqa: ANN401 - the fields of AnyLook
        """A look at what was seen, if anything was."""
        return cls(snapshot=snapshot or NOTHING_SEEN, **rest)

    @cached_property
    def devices(self) -> Sequence[Subject]:
        """Every device that samples or the kubelet speak of (`all_devices`), computed once for all outputs."""
        return all_devices(self.snapshot)

    @cached_property
    def cards(self) -> Mapping[Owner, Cards]:
        """What each container asked for in GPUs, and what it uses of them, computed once for all its families."""
        return at_once(self._cards())

    def work_out(self) -> Work[None]:
        """Work out in slices what families share."""
        if "cards" not in vars(self):
            self.cards = yield from self._cards()

    def _cards(self) -> Work[Mapping[Owner, Cards]]:
        snapshot, joined = self.snapshot, self.snapshot.joined
        return cards_by_owner(
            snapshot.owners,
            joined.subjects if joined else (),
            joined.readings(FAMILIES_OF_CARDS) if joined else (),
            snapshot.inventory,
            snapshot.measured,
            {
                **{gpu.uuid: gpu.index for gpu in snapshot.inventory.gpus if gpu.index},
                **{device.key.uuid: device.index for device in self.devices if device.index},
            },
        )


LookT = TypeVar("LookT", bound=AnyLook)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output(Generic[LookT]):
    """A path and what answers there; `is_below`: and at every path that begins with it.

    `make` answers at once, or in slices where it goes through all devices: what it makes of 2,000 takes 100 ms.
    `says` is what the page for people says of it, "" where that does not name it. `refuse` answers wrong questions
    without a look at the node. The kubelet asks a probe's path: that needs no password, and is never refused under
    load. `has_open`: clients that prefer OpenMetrics get it.
    """

    path: str
    says: str
    make: Callable[[LookT], Answer | Work[Answer]]
    needs: frozenset[Need] = LOOK_AT_NODE
    refuse: Callable[[Question], Answer | None] | None = None
    is_probe: bool = False
    is_below: bool = False
    has_open: bool = False


def answer(content_type: str, *pieces: bytes) -> Answer:
    """A good answer."""
    return Answer(content_type, pieces, sum(map(len, pieces)))


def metrics_answer(look: AnyLook, *families: bytes) -> Answer:
    """A role's own families, in the format that the client prefers, and what every process says of itself."""
    is_open = look.question.is_open
    process = look.telemetry.render_process(is_open=is_open)
    made = answer(OPEN_METRICS_FORMAT if is_open else TEXT_FORMAT, *families, process)
    return made._replace(headers=(("Vary", "Accept"),))


def line(text: str, status: int) -> Answer:
    """One line of plain text."""
    body = f"{text}\n".encode("utf-8", "replace")
    return Answer(PLAIN, (body,), len(body), status, is_packed=False)


def json_refusal(text: str, status: int, **more: object) -> Answer:
    """Why there is no answer, as JSON: `error`, and what `more` there is to say."""
    body = json.dumps({"error": text, **more}).encode() + b"\n"
    return Answer(JSON_FORMAT, (body,), len(body), status, is_packed=False)
