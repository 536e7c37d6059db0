"""The listener of a bundle: it keeps the newest answer to each question, with only what the exporter reads of it.

A bundle of two minutes has 24 moments, and most peers answer alike at each of them. So what has not changed stays the
same object, and takes memory once. A page, a kubelet's List and single objects come whole; pods and ResourceSlices come
as a list and then as changes, and a moment has the objects as they stand then.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from exporter.bundle.collecting.needed_parts import IsWanted, name_of, pod_parts, single_parts, slice_parts
from exporter.bundle.nvml_calls import CallRecorder
from exporter.bundle.recording import Peer, PeerAnswer, RecordedCall
from exporter.errors import Trouble
from exporter.lenient import AnyObject
from exporter.model.nothing import NOTHING

# A look at a node of 8 GPUs makes some 500 calls.
MOST_CALLS = 200_000
MOST_RECORDS = 10_000
_MOST_KEPT_CALLS = 20_000
_Question = tuple[str, str, str]  # peer, source's name, and what was asked


def every(_: str) -> bool:
    """Whether a label or an annotation is wanted: each of them is."""
    return True


@dataclass(slots=True)
class _Collection:
    """The objects of a collection, by what tells them apart."""

    items: dict[str, AnyObject] = field(default_factory=dict)
    body: bytes | None = None  # as JSON; None if an object has changed since

    def as_json(self) -> bytes:
        if self.body is None:
            items = [item for _, item in sorted(self.items.items())]
            self.body = json.dumps({"items": items}, separators=(",", ":")).encode()
        return self.body


class NewestAnswers:
    """A `Listener`. Unchanged answers, and NVML's equal calls, are the same objects from moment to moment.

    Attributes:
        left_out_calls: how many calls of NVML did not fit.
        left_out_records: how many records of the kernel's log did not fit.
    """

    def __init__(self, is_label: IsWanted = every, is_annotation: IsWanted = every) -> None:
        """Nothing is known before the first answer.

        Args:
            is_label: says by its name whether a label of a pod is kept.
            is_annotation: says by its name whether an annotation of a pod is kept.
        """
        self.left_out_calls = self.left_out_records = 0
        self._is_label = is_label
        self._is_annotation = is_annotation
        self._answers: dict[_Question, PeerAnswer] = {}
        self._collections: dict[_Question, _Collection] = {}
        self._recorder = CallRecorder()
        self._calls: deque[RecordedCall] = deque()  # a thread of NVML appends
        self._kept_calls: dict[str, RecordedCall] = {}
        self._records: list[str] = []

    def answered(self, peer: str, name: str, question: str, body: bytes) -> None:
        """Keep a whole answer. Of a Kubernetes object only the parts that the exporter reads stay."""
        if peer == "kubernetes":
            body = _single(body)
        before = self._answers.get((peer, name, question))
        if before is None or before.body != body or before.trouble is not None:
            self._keep(peer, name, question, body=body)

    def failed(self, peer: str, name: str, question: str, trouble: Trouble) -> None:
        """Keep the failure in the place of the answer.

        A collection's objects stay: a watch that goes on tells only what has changed.
        """
        self._keep(peer, name, question, trouble=trouble)

    def listed(self, peer: str, name: str, question: str, items: list[Mapping[str, Any]]) -> None:
        """Keep these objects in the place of those before."""
        parts = self._parts_of(peer, question)
        kept = {name_of(item): parts(item) for item in items}
        before = self._collections.get((peer, name, question))
        if before is None or before.items != kept:
            self._collections[peer, name, question] = _Collection(kept)
        self._answers.pop((peer, name, question), None)

    def changed(self, peer: str, name: str, question: str, item: Mapping[str, Any], *, is_gone: bool) -> None:
        """Keep an object in its collection, or drop it."""
        collection = self._collections.setdefault((peer, name, question), _Collection())
        if is_gone:
            collection.items.pop(name_of(item), None)
        else:
            collection.items[name_of(item)] = self._parts_of(peer, question)(item)
        collection.body = None
        self._answers.pop((peer, name, question), None)

    def called(self, function: str, arguments: tuple[object, ...], result: object, code: int) -> None:
        """Keep a call, as JSON has its values.

        NVML's own thread calls this, right after the call.
        """
        if len(self._calls) >= MOST_CALLS:
            self.left_out_calls += 1
            return
        call = self._recorder.recorded_call(function, arguments, result, code)
        key = repr(call)
        kept = self._kept_calls.get(key)
        if kept is None and len(self._kept_calls) < _MOST_KEPT_CALLS:
            self._kept_calls[key] = call
        self._calls.append(kept or call)

    def logged(self, record: bytes) -> None:
        """Keep a record of the kernel's log."""
        if len(self._records) >= MOST_RECORDS:
            self.left_out_records += 1
        else:
            self._records.append(record.decode("utf-8", "replace"))

    def answers_now(self) -> tuple[PeerAnswer, ...]:
        """The newest answers, in the order of peers, names and questions."""
        for (peer, name, question), collection in self._collections.items():
            if (peer, name, question) not in self._answers:
                self._keep(peer, name, question, body=collection.as_json())
        return tuple(answer for _, answer in sorted(self._answers.items()))

    def take_calls(self) -> tuple[RecordedCall, ...]:
        """The calls since this was asked last."""
        return tuple(self._calls.popleft() for _ in range(len(self._calls)))

    def take_records(self) -> tuple[str, ...]:
        """The records since this was asked last."""
        records, self._records = self._records, []
        return tuple(records)

    def _keep(self, peer: str, name: str, question: str, *, body: bytes = b"", trouble: Trouble | None = None) -> None:
        of_peer = cast("Peer", peer)
        answer = PeerAnswer(peer=of_peer, name=name, question=question, body=body, trouble=trouble)
        self._answers[peer, name, question] = answer

    def _parts_of(self, peer: str, question: str) -> Callable[[AnyObject], AnyObject]:
        if peer == "kubernetes" and question.endswith("/resourceslices"):
            return slice_parts
        return lambda pod: pod_parts(pod, self._is_label, self._is_annotation)


def _single(body: bytes) -> bytes:
    """The parts of an object; of what is no JSON object, nothing."""
    try:
        item = json.loads(body)
    except (ValueError, RecursionError):
        item = None
    return json.dumps(single_parts(item if isinstance(item, dict) else NOTHING), separators=(",", ":")).encode()
