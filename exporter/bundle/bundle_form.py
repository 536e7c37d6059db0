"""The form of a bundle: the files of its archive, and what bundle.json has of them. Pure.

    bundle.json     what the bundle is, and which file has what
    report.txt      doctor's report
    log.txt         the exporter's last lines
    exporter/…      what the running exporter answered, such as gpu-metrics.prom for /gpu/metrics
    moments/00/…    the first look at the node:
      page-dcgm.prom, kubelet-v1-List.pb, kubernetes-….json      what its peers answered
      files/…                                                    what it read, such as files/proc/driver/nvidia/version
      nvml.jsonl                                                 calls of NVML, a line each
      kernel.log                                                 the kernel's records of GPUs, a line each
      gpu-metrics.prom, debug-mapping.json, …                    what an exporter answers then

Names are for people: only bundle.json says what a file is.

Tests: tests/bundle/test_archive.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from exporter.bundle.recording import Peer
from exporter.errors import Trouble
from exporter.reading import Invalid, by_key, each, flag, group, of, one_of, text

DOCUMENT = "bundle.json"
# What reading a bundle costs in bytes of memory: contents, texts (up to 4 bytes for each), values of JSON.
MOST_COST = 56 * 1024 * 1024
MOST_ENTRIES = 20_000
_COST_OF_TEXT = 4
COST_OF_VALUE = 200
_MOST_MOMENTS = 10_000
_MOST_CHARS = 1024 * 1024
_LARGEST_TIME = 1e11
any_text = text(r"[\s\S]*", "a text", _MOST_CHARS)
_names = by_key(any_text, any_text, MOST_ENTRIES)


def cost_of_text(content: bytes) -> int:
    """The memory of a text: one character outside of the first 65,536 makes each of its characters take 4 bytes."""
    return _COST_OF_TEXT * len(content)


def cost_of_json(content: bytes) -> int:
    """The memory of JSON, as its text and as values: a list, a mapping, or an entry of one with its key."""
    values = sum(map(content.count, (b",", b"[", b"{", b"\n")))
    return _COST_OF_TEXT * len(content) + COST_OF_VALUE * values


def _a_time(value: object, path: str) -> float:
    """The reader of a time."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _LARGEST_TIME:  # type: ignore[operator] # is_number says so
        raise Invalid(path, "it is no time; give seconds since 1970")

    return float(value)  # type: ignore[arg-type] # as above


@dataclass(frozen=True, slots=True)
class WrittenTrouble:
    """A trouble, as bundle.json has it."""

    reason: str = of(any_text, "")
    message: str = of(any_text, "")
    remedy: str = of(any_text, "")

    def made(self) -> Trouble:
        """The trouble."""
        return Trouble(self.reason, self.message, self.remedy)


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """A PeerAnswer, as bundle.json has it: `body` names a file; "" is an empty body."""

    peer: Peer = of(one_of(*get_args(Peer)))
    name: str = of(any_text)
    question: str = of(any_text)
    body: str = of(any_text, "")
    trouble: WrittenTrouble | None = of(group(WrittenTrouble), None)


@dataclass(frozen=True, slots=True)
class WrittenMoment:
    """A RecordedMoment, as bundle.json has it: contents are names of files; "" is an empty content."""

    at_seconds: float = of(_a_time)
    answers: tuple[WrittenAnswer, ...] = of(each(group(WrittenAnswer), MOST_ENTRIES), ())
    files: Mapping[str, str] = of(_names, {})
    calls: str = of(any_text, "")
    kernel_log: str = of(any_text, "")
    outputs: Mapping[str, str] = of(_names, {})


@dataclass(frozen=True, slots=True)
class WrittenAbsence:
    """An absence, as bundle.json has it."""

    what: str = of(any_text)
    why: WrittenTrouble = of(group(WrittenTrouble))


@dataclass(frozen=True, slots=True)
class WrittenRecording:
    """All of bundle.json but its form."""

    made_by: str = of(any_text)
    settings: Mapping[str, tuple[str, ...]] = of(by_key(any_text, each(any_text, MOST_ENTRIES), MOST_ENTRIES))
    moments: tuple[WrittenMoment, ...] = of(each(group(WrittenMoment), _MOST_MOMENTS, least=1))
    node: str = of(any_text, "")
    report: str = of(any_text, "")
    of_exporter: Mapping[str, str] = of(_names, {})
    log: str = of(any_text, "")
    versions: Mapping[str, str] = of(_names, {})
    absences: tuple[WrittenAbsence, ...] = of(each(group(WrittenAbsence), MOST_ENTRIES), ())
    is_plain: bool = of(flag, True)
