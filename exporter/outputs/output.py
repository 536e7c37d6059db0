"""An output: a path, its needs, and the pure function that makes its answer of a look at the node.

A role's outputs are a table (node_outputs.py). The web's paths, the links of the page for people, the paths that need
no password and the tests' lists of paths are made of that table.

Tests: tests/outputs/test_node_outputs.py.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from functools import cached_property
from typing import Any, Generic, NamedTuple, Self, TypeVar

from exporter.accounts.cards import Cards, cards_by_owner
from exporter.accounts.device_values import FAMILIES_OF_DEVICES
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
    """The parts of a look that an answer is made of. The exporter reads only those that the output needs."""

    NODE = auto()  # a look at the node (`Look.snapshot`), or at all of them (`ClusterLook.view`)
    WORKLOADS = auto()  # the workloads of its pods: `Look.snapshot.workloads`
    ACCOUNTS = auto()  # the accounts of its containers: `Look.snapshot.accounts`
    IDLE_SINCE = auto()  # the same accounts, of which the output shows only since when holders are idle, and suspicions
    VERDICTS = auto()  # the verdicts on its devices: `Look.snapshot.verdicts`
    PROCESSES = auto()  # the processes on its GPUs: `Look.snapshot.measured`
    DIAGNOSIS = auto()  # the program's settings, and facts for `doctor`: `Look.about`, `Look.snapshot.device_files`
    READINESS = auto()  # `Look.not_ready`


LOOK_AT_NODE = frozenset({Need.NODE})
OF_OBJECTS = frozenset({Need.NODE, Need.WORKLOADS, Need.IDLE_SINCE, Need.VERDICTS})  # the needs of /container/metrics
NOTHING: frozenset[Need] = frozenset()
NOTHING_SEEN = Snapshot(node="", owners=Owners(), joined=None, health={}, assignments_age_seconds=None)


class Answer(NamedTuple):
    """An answer in pieces, so that nobody copies a large body whole. `size` is the sum of their bytes.

    `is_packed`: clients that accept gzip get the answer as gzip. `headers` go out beside the usual headers.
    """

    content_type: str
    pieces: Sequence[bytes]
    size: int
    status: int = 200
    is_packed: bool = True
    headers: Sequence[tuple[str, str]] = ()


class Question(NamedTuple):
    """The facts about a request that an output may know.

    Attributes:
        query: the parameters as name and value, in order; a name may be there twice.
        is_own: the request comes from this process itself, which is its own upstream.
        rest: the part of the request's path after the path of the output; "" if the output answers only at its path.
        is_open: the client prefers OpenMetrics, and the output has it.
    """

    query: tuple[tuple[str, str], ...] = ()
    is_own: bool = False
    rest: str = ""
    is_open: bool = False


NO_QUESTION = Question()


# not frozen: every scrape makes a look, and a frozen class costs a microsecond more
@dataclass(kw_only=True, eq=False)
class AnyLook:
    """The program's facts about itself, which the answers of every role share. Facts that nobody needed are empty.

    `not_ready` is the reason why the program is not ready, "" if it is; `outputs` is the table that has the output.
    """

    telemetry: Telemetry = field(default_factory=Telemetry)
    question: Question = NO_QUESTION
    about: Mapping[str, Any] = field(default_factory=dict)
    not_ready: str = ""
    outputs: Sequence["Output[Any]"] = ()


@dataclass(kw_only=True, eq=False)
class Look(AnyLook):
    """The look for an answer of the node role: a look at the node, and the program's facts about itself."""

    snapshot: Snapshot

    @classmethod
    def of(cls, snapshot: Snapshot | None, **rest: Any) -> Self:  # noqa: ANN401 - the fields of AnyLook
        """A look with this snapshot; None is for an output that needs no look at the node."""
        return cls(snapshot=snapshot or NOTHING_SEEN, **rest)

    @cached_property
    def devices(self) -> Sequence[Subject]:
        """Every device that a sample or the kubelet names (`all_devices`), computed once for all outputs."""
        return all_devices(self.snapshot)

    @cached_property
    def cards(self) -> Mapping[Owner, Cards]:
        """Each container's requests and use of GPUs, computed once for all its families."""
        return at_once(self._cards())

    def work_out(self) -> Work[None]:
        """Compute `cards`, which families share, in slices."""
        if "cards" not in vars(self):
            self.cards = yield from self._cards()

    def _cards(self) -> Work[Mapping[Owner, Cards]]:
        snapshot = self.snapshot
        joined = snapshot.joined
        indices = {gpu.uuid: gpu.index for gpu in snapshot.inventory.gpus if gpu.index}
        indices |= {device.key.uuid: device.index for device in self.devices if device.index}
        return cards_by_owner(
            snapshot.owners,
            joined.subjects if joined else (),
            joined.readings(FAMILIES_OF_DEVICES) if joined else (),
            snapshot.inventory,
            snapshot.measured,
            indices,
        )


LookT = TypeVar("LookT", bound=AnyLook)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output(Generic[LookT]):
    """A path, and the function that answers there.

    Attributes:
        path: the path.
        says: a few words about the output on the page for people; "" if the page does not name it.
        make: makes the answer at once, or in slices if it goes through all devices, since 2,000 devices take 100 ms.
        needs: the parts of a look that `make` reads.
        refuse: returns the refusal of a wrong question before the node is looked at, None for a right question.
        is_probe: the kubelet asks this path. It needs no password, and is never refused under load.
        is_below: the output also answers at every path that begins with `path`.
        has_open: clients that prefer OpenMetrics get OpenMetrics.
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
    """An answer with status 200."""
    return Answer(content_type, pieces, sum(map(len, pieces)))


def metrics_answer(look: AnyLook, *families: bytes) -> Answer:
    """A role's own families in the format that the client prefers, and the process' own metrics."""
    is_open = look.question.is_open
    process = look.telemetry.render_process(is_open=is_open)
    made = answer(OPEN_METRICS_FORMAT if is_open else TEXT_FORMAT, *families, process)
    return made._replace(headers=(("Vary", "Accept"),))


def line(text: str, status: int) -> Answer:
    """One line of plain text."""
    body = f"{text}\n".encode("utf-8", "replace")
    return Answer(PLAIN, (body,), len(body), status, is_packed=False)


def json_refusal(text: str, status: int, **more: object) -> Answer:
    """A refusal as JSON: the field `error` with the text, and the fields `more`."""
    body = json.dumps({"error": text, **more}).encode() + b"\n"
    return Answer(JSON_FORMAT, (body,), len(body), status, is_packed=False)
