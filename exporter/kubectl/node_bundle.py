"""A bundle of the exporter on a node, made from afar: by doctor in its pod, else of what the API and the proxy tell.

Tests: tests/kubectl/test_bundle.py.
"""

import io
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path

from exporter import __version__
from exporter.bundle import archive
from exporter.bundle.names.replacing import replaced
from exporter.bundle.recording import Absence, PeerAnswer, RecordedMoment, Recording
from exporter.bundle.unpacking import DamagedBundle
from exporter.errors import ExporterError, Trouble
from exporter.kubectl import places
from exporter.kubectl.binary import Executed, Kubectl, place_of
from exporter.lenient import AnyObject, Object, mapping, mappings, text
from exporter.top.transport import Gone, OtherProtocol
from exporter.wording import one_line

_PROGRAM = "pod-gpu-metrics-exporter"
_MOST_LINES = 1_000
_MOST_SHOWN = 300
_LONGEST_SECONDS = 120.0  # of doctor in the pod, beside what --for says
_LOG = "/debug/log"
# The kubelet's words for a container that has not ended yet: then there is no log from before its last start.
_NEVER_ENDED = "previous terminated container"
# What a node's exporter answers by default, the one first that says whether it answers at all.
_PATHS = ("/debug/mapping", "/gpu/metrics", "/container/metrics", "/metrics", "/metrics/nodes", "/events", _LOG)
_WITHOUT_PROTOBUF = Trouble(
    "",
    "its names cannot be replaced here as doctor replaced them in the pod, since protobuf is missing",
    "look at kubectl logs, or use kubectl-gpu of the wheel",
)
_USER = re.compile(r"^(\S+) may not\b")
# What a pod's status says of how its containers are. Its spec may have secrets in commands and environments.
_OF_STATUS = ("phase", "reason", "message", "conditions", "containerStatuses", "initContainerStatuses")
_OF_EVENT = ("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBundle:
    """The bundle of the exporter in `pod`.

    Attributes:
        duration: doctor's --for; "" for one moment. `for_seconds` is the same in seconds.
        is_plain: whether names stay.
        say: takes a line about what could not be had.
    """

    kubectl: Kubectl
    pod: AnyObject
    duration: str
    for_seconds: float
    is_plain: bool
    say: Callable[[str], None]

    def collect(self) -> Recording:
        """The recording that doctor makes in the pod, or one made from here. Names are replaced unless `is_plain`."""
        try:
            recording = self._by_doctor()
        except ExporterError as error:
            lack = _absence(f"doctor in the pod {'/'.join(place_of(self.pod))}", error)
            self.say(f"The bundle lacks {lack.what}: {lack.why}")
            recording = self._without_doctor(lack)

        if not recording.log and _LOG not in recording.of_exporter:
            recording = self._with_log(recording)

        if self.is_plain or not recording.is_plain:
            return recording

        return self._replaced(recording)

    def _replaced(self, recording: Recording) -> Recording:
        """The recording with its names replaced. The pod, which texts name, is shown for that and taken away again."""
        namespace, name = place_of(self.pod)
        shown = _answer(f"/api/v1/namespaces/{namespace}/pods/{name}", _without_spec(self.pod))
        *before, last = recording.moments
        with_pod = replace(recording, moments=(*before, replace(last, answers=(*last.answers, shown))))
        disguised, _ = replaced(with_pod)
        *others, last = disguised.moments

        return replace(disguised, moments=(*others, replace(last, answers=last.answers[:-1])))

    def _by_doctor(self) -> Recording:
        """What doctor writes, run in the exporter's container. Raises ExporterError: it does not run there."""
        namespace, name = place_of(self.pod)
        command = [_PROGRAM, "doctor", "--bundle", "-"]
        # else names are replaced here, together with those in the pod's log
        if self.is_plain or _may_replace_all():
            command += ["--plain"]

        if self.duration:
            command += ["--for", self.duration]

        container = places.container_of(self.pod)[0]
        seconds = self.for_seconds + _LONGEST_SECONDS
        ended = self.kubectl.run_in(namespace, name, container, command, seconds)

        return _read(ended)

    def _without_doctor(self, lack: Absence) -> Recording:
        """What the API server tells of the pod, and what the exporter answers through the proxy."""
        asked = Lacks()
        namespace, name = place_of(self.pod)
        events = f"/api/v1/namespaces/{namespace}/events"
        answers = [_answer(f"/api/v1/namespaces/{namespace}/pods/{name}", _without_spec(self.pod))]
        with asked.absence(f"the events of the pod {namespace}/{name}"):
            items = self.kubectl.items("events", namespace, fieldSelector=f"involvedObject.name={name}")
            answers.append(_answer(events, {"items": [_only(item, _OF_EVENT) for item in items]}))

        outputs = self._outputs(asked)
        at_seconds = time.time()

        return Recording(
            made_by=__version__,
            settings={},
            moments=(RecordedMoment(at_seconds=at_seconds, answers=tuple(answers), outputs=outputs),),
            of_exporter=outputs,
            absences=(lack, *asked.absences),
        )

    def _outputs(self, asked: "Lacks") -> Mapping[str, bytes]:
        """What the exporter answers through the proxy, by path. If the first path fails, no other is asked for."""
        outputs: dict[str, bytes] = {}
        for way in places.ways_to_pod(self.kubectl, self.pod):
            try:
                for path in _PATHS:
                    status, body = way.get(path)
                    if status == HTTPStatus.OK:
                        outputs[path] = body
            except OtherProtocol:
                continue
            except Gone as error:
                asked.absences.append(_absence("what the running exporter answers", error))
            break

        return outputs

    def _with_log(self, recording: Recording) -> Recording:
        """The recording with what the container logged before its last start, and since."""
        if not (recording.is_plain or self.is_plain):
            return _lacking(recording, "the pod's log", _WITHOUT_PROTOBUF)

        namespace, name = place_of(self.pod)
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/log"
        wanted = {"container": places.container_of(self.pod)[0], "tailLines": str(_MOST_LINES)}
        asked = Lacks()
        lines: list[str] = []
        for what, previous in (("from before the last start", {"previous": "true"}), ("since the last start", {})):
            with asked.absence(f"the log of the pod {namespace}/{name} {what}", unless=_NEVER_ENDED):
                lines += self.kubectl.raw(path, **wanted, **previous).decode("utf-8", "replace").splitlines()

        absences = (*recording.absences, *asked.absences)

        return replace(recording, log=tuple(lines[-_MOST_LINES:]), absences=absences)


@dataclass
class Lacks:
    """What could not be had, as it is asked for."""

    absences: list[Absence] = field(default_factory=list)

    @contextmanager
    def absence(self, what: str, unless: str | None = None) -> Iterator[None]:
        """A block that asks for something: if it fails, that is an absence, unless these words are in the failure."""
        try:
            yield
        except ExporterError as error:
            if unless is None or unless not in str(error):
                self.absences.append(_absence(what, error))


def write(recording: Recording, file: Path, *, may_replace: bool) -> int:
    """Write a recording to a file. Returns the file's size.

    Raises ExporterError: the file is there and may not be replaced, or cannot be written.
    """
    packed = io.BytesIO()
    size = archive.write(recording, packed)
    try:
        with file.open("wb" if may_replace else "xb") as opened:
            opened.write(packed.getvalue())
    except FileExistsError as error:
        raise ExporterError(f"{file} is there already -> give another name, or --force") from error
    except OSError as error:
        raise ExporterError(f"{file} cannot be written: {error.strerror}") from error

    return size


def _read(ended: Executed) -> Recording:
    """The recording that doctor wrote to its standard output. Raises ExporterError: it wrote none that can be read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bundle.tar.gz"
        path.touch(0o600)
        path.write_bytes(ended.output)
        try:
            return archive.read(path)
        except DamagedBundle as error:
            why = one_line(error, _MOST_SHOWN).removeprefix(f"{path}: ")

    words = f" ({one_line(ended.words, _MOST_SHOWN)})" if ended.words else ""
    raise ExporterError(f"what it wrote is no bundle: {why}{words}")


def _may_replace_all() -> bool:
    """Whether names in the kubelet's messages can be replaced here, too: kubectl's plugin of krew has no protobuf."""
    return find_spec("google") is not None and find_spec("google.protobuf") is not None


def _lacking(recording: Recording, what: str, why: Trouble) -> Recording:
    return replace(recording, absences=(*recording.absences, Absence(what=what, why=why)))


def _absence(what: str, error: ExporterError) -> Absence:
    """What is missing, and why. A user's name stands in quotes: so it is no word of this program."""
    message, _, remedy = str(error).partition(" -> ")
    message = _USER.sub(r'the user "\1" may not', message)
    return Absence(what=what, why=Trouble("", message, remedy))


def _answer(question: str, item: AnyObject) -> PeerAnswer:
    return PeerAnswer(peer="kubernetes", name="kubectl", question=question, body=json.dumps(item).encode())


def _only(item: AnyObject, keys: Sequence[str]) -> Object:
    return {key: item[key] for key in keys if key in item}


def _without_spec(pod: AnyObject) -> Object:
    """What the API server tells of how a pod is."""
    spec = mapping(pod, "spec")
    containers = [_only(container, ("name", "image")) for container in mappings(spec, "containers")]
    return {
        "metadata": _only(mapping(pod, "metadata"), ("namespace", "name", "creationTimestamp")),
        "spec": {"nodeName": text(spec, "nodeName"), "containers": containers},
        "status": _only(mapping(pod, "status"), _OF_STATUS),
    }
