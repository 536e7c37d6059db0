"""A recording: what the peers of an exporter answered at several moments, and what the exporter said then.

`doctor --bundle` makes one, `names` replaces the names in it, `archive` writes it to a file and reads it again, and the
simulator's `replay` plays it back.

Tests: tests/bundle/test_archive.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.errors import Trouble
from exporter.model.nothing import nothing

# The version of a bundle's form. A program reads this version and all before it.
FORM = 1
# page: a source of GPU samples, by its name; the question is its URL or its path.
# kubelet: pod-resources; the question is the method, such as v1.PodResourcesLister/List, the body a serialised message.
# pods: the kubelet's Pods API; the question is the method, the body {"items": [pods as protobuf's JSON]}.
# kubernetes: the API server; the question is a path. The body of a collection is {"items": [objects]}, as the watch
# has kept it up to now; of a single object, that object.
# Every object has only what the exporter reads of it.
Peer = Literal["page", "kubelet", "pods", "kubernetes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAnswer:
    """The last answer to a question, at a moment, or the trouble in its place.

    Attributes:
        peer: the kind of the peer.
        name: the source's name, as in labels of /metrics.
        question: what was asked; see `Peer`.
        body: the answer, unpacked; b"" if it failed.
        trouble: why it failed; None if it did not.
    """

    peer: Peer
    name: str
    question: str
    body: bytes = b""
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """A call of NVML and its result.

    Attributes:
        function: the name in NVIDIA's bindings, such as nvmlDeviceGetSerial.
        arguments: numbers and texts as they are; a handle is the call that returned it, such as
            "nvmlDeviceGetHandleByIndex(0)"; a struct is an object of its fields.
        result: likewise; None if it failed.
        code: nvmlReturn_t; 0 if it succeeded.
    """

    function: str
    arguments: tuple[object, ...] = ()
    result: object = None
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMoment:
    """One look at the node.

    Attributes:
        at_seconds: its time, in seconds since 1970 (UTC).
        answers: the last answer to each question.
        files: the content of each file that the exporter may read, by its place (see below), if it is there.
        calls: those of NVML since the moment before, in their order.
        kernel_log: the records of /dev/kmsg since the moment before that are about GPUs, a line each.
        outputs: what an exporter with these settings answers, by path, such as /gpu/metrics.

    A file's place is "root/…" below the node's root, "kubelet/…" below the kubelet's folder, "inventory" for the file
    of --inventory.file, "rules" for that of --device-rules, or "page/NAME" for the file of a source of GPU samples,
    by the source's name. The content of a link, as the kubelet makes them to containers' logs, is what it links to.
    """

    at_seconds: float
    answers: tuple[PeerAnswer, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=nothing)
    calls: tuple[RecordedCall, ...] = ()
    kernel_log: tuple[str, ...] = ()
    outputs: Mapping[str, bytes] = field(default_factory=nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """Something that a recording lacks, such as "the kernel's log", and why."""

    what: str
    why: Trouble


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What the peers of one exporter answered at several moments, with all else that a bundle has.

    Attributes:
        made_by: the program's version.
        settings: those that differ from their defaults, by flag without dashes, as a configuration file has them;
            secrets are left out.
        node: the node's name, as the exporter had it: of --node-name, else the host's.
        moments: in the order of their times; at least one.
        report: doctor's report of the last moment, as text.
        of_exporter: what the running exporter answered, by path; empty if it did not answer.
        log: the last lines of that exporter's log, oldest first.
        versions: of the kernel, the driver, Python and libraries, by their names.
        absences: what the recording lacks, and why.
        is_plain: whether the names are the users' own.
    """

    made_by: str
    settings: Mapping[str, tuple[str, ...]]
    moments: tuple[RecordedMoment, ...]
    node: str = ""
    report: str = ""
    of_exporter: Mapping[str, bytes] = field(default_factory=nothing)
    log: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=nothing)
    absences: tuple[Absence, ...] = ()
    is_plain: bool = True
