"""The files of a bundle's archive, made of a recording, and a recording made of files that nobody vouches for. Pure.

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
"""

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import get_args

from exporter import __version__
from exporter.bundle.recording import FORM, Absence, Peer, PeerAnswer, RecordedCall, RecordedMoment, Recording
from exporter.bundle.unpacking import DamagedBundle
from exporter.errors import Trouble
from exporter.lenient import Object
from exporter.reading import Invalid, a_mapping, by_key, each, flag, group, of, one_of, read, text, whole
from exporter.wording import escaped

DOCUMENT = "bundle.json"
# What reading a bundle costs in bytes of memory: contents, texts (up to 4 bytes for each), values of JSON.
MOST_COST = 56 * 1024 * 1024
_COST_OF_TEXT = 4
_COST_OF_VALUE = 200
_MOST_ENTRIES = 20_000
_MOST_MOMENTS = 10_000
_MOST_CHARS = 1024 * 1024
_MOST_DIGITS = 40
_LONGEST_NAME = 80
_LARGEST_TIME = 1e11
_MOST_SHOWN = 300
_AGAIN = "copy the file again, or take the bundle again"
_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")
_ENDINGS = {b"{": ".json", b"[": ".json", b"<": ".html", b"#": ".prom"}
_SETTLED = (".json", ".html", ".prom", ".txt")
_any_text = text(r"[\s\S]*", "a text", _MOST_CHARS)
_names = by_key(_any_text, _any_text, _MOST_ENTRIES)


# ---- the form


def _a_time(value: object, path: str) -> float:
    """The reader of a time."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _LARGEST_TIME:  # type: ignore[operator]
        raise Invalid(path, "it is no time; give seconds since 1970")
    return float(value)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class WrittenTrouble:
    """A trouble, as bundle.json has it."""

    reason: str = of(_any_text, "")
    message: str = of(_any_text, "")
    remedy: str = of(_any_text, "")

    def made(self) -> Trouble:
        """The trouble."""
        return Trouble(self.reason, self.message, self.remedy)


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """A PeerAnswer, as bundle.json has it: `body` names a file; "" is an empty body."""

    peer: Peer = of(one_of(*get_args(Peer)))
    name: str = of(_any_text)
    question: str = of(_any_text)
    body: str = of(_any_text, "")
    trouble: WrittenTrouble | None = of(group(WrittenTrouble), None)


@dataclass(frozen=True, slots=True)
class WrittenMoment:
    """A RecordedMoment, as bundle.json has it: contents are names of files; "" is an empty content."""

    at_seconds: float = of(_a_time)
    answers: tuple[WrittenAnswer, ...] = of(each(group(WrittenAnswer), _MOST_ENTRIES), ())
    files: Mapping[str, str] = of(_names, {})
    calls: str = of(_any_text, "")
    kernel_log: str = of(_any_text, "")
    outputs: Mapping[str, str] = of(_names, {})


@dataclass(frozen=True, slots=True)
class WrittenAbsence:
    """An absence, as bundle.json has it."""

    what: str = of(_any_text)
    why: WrittenTrouble = of(group(WrittenTrouble))


@dataclass(frozen=True, slots=True)
class WrittenRecording:
    """All of bundle.json but its form."""

    made_by: str = of(_any_text)
    settings: Mapping[str, tuple[str, ...]] = of(by_key(_any_text, each(_any_text, _MOST_ENTRIES), _MOST_ENTRIES))
    moments: tuple[WrittenMoment, ...] = of(each(group(WrittenMoment), _MOST_MOMENTS, least=1))
    report: str = of(_any_text, "")
    of_exporter: Mapping[str, str] = of(_names, {})
    log: str = of(_any_text, "")
    versions: Mapping[str, str] = of(_names, {})
    absences: tuple[WrittenAbsence, ...] = of(each(group(WrittenAbsence), _MOST_ENTRIES), ())
    is_plain: bool = of(flag, True)


# What makes a document of a form out of one of the form before, by the form before.
_NEXT_FORM: Mapping[int, Callable[[Object], Object]] = {}


# ---- writing


def files_of(recording: Recording) -> dict[str, bytes] | None:
    """The archive's files by name, bundle.json first; None if `recording_of` would refuse so much."""
    files = _Files()
    # before the exporter's own answers, which are often the same: so a moment has all of its own
    moments = [_written_moment(files, number, moment) for number, moment in enumerate(recording.moments)]
    written = {
        "form": FORM,
        "madeBy": recording.made_by,
        "isPlain": recording.is_plain,
        "settings": {key: list(values) for key, values in sorted(recording.settings.items())},
        "versions": dict(sorted(recording.versions.items())),
        "absences": [{"what": absence.what, "why": _written_trouble(absence.why)} for absence in recording.absences],
        "report": files.add_text("report.txt", recording.report),
        "log": files.add_text("log.txt", _of_lines(recording.log)),
        "ofExporter": _written_outputs(files, "exporter", recording.of_exporter),
        "moments": moments,
    }
    document = json.dumps(written, indent=1).encode()
    cost = files.cost + len(document) + _cost_of_json(document)
    contents = {DOCUMENT: document, **files.contents}
    return contents if cost <= MOST_COST and len(contents) <= _MOST_ENTRIES else None


class _Files:
    """The files that are written: each content once.

    Attributes:
        contents: by name.
        cost: what reading them costs, as MOST_COST counts it.
    """

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.cost = 0
        self._names: dict[bytes, str] = {}
        self._taken = Counter((DOCUMENT,))

    def add(self, name: str, content: bytes) -> str:
        """Take a content, and give the name of the file that has it: this one, or one with a number; "" for none."""
        if not content:
            return ""
        if content not in self._names:
            self._names[content] = self._own(_short(name))
            self.contents[self._names[content]] = content
            self.cost += len(content)
        return self._names[content]

    def add_text(self, name: str, content: str) -> str:
        """Take a text, as `add` does."""
        return self._add_read(name, content.encode("utf-8", "surrogatepass"), _cost_of_text)

    def add_calls(self, name: str, calls: Iterable[RecordedCall]) -> str:
        """Take calls of NVML as lines of JSON, as `add` does."""
        return self._add_read(name, "".join(map(_written_call, calls)).encode(), _cost_of_json)

    def _add_read(self, name: str, content: bytes, cost: Callable[[bytes], int]) -> str:
        if content not in self._names:
            self.cost += cost(content)
        return self.add(name, content)

    def _own(self, name: str) -> str:
        """The name, or with a number if another file has it, in capitals or not."""
        stem, dot, ending = name.rpartition(".") if "." in name.rpartition("/")[2] else (name, "", "")
        own = name
        while self._taken[own.lower()]:
            self._taken[name.lower()] += 1
            own = f"{stem}-{self._taken[name.lower()]}{dot}{ending}"
        self._taken[own.lower()] += 1
        return own


def _written_moment(files: _Files, number: int, moment: RecordedMoment) -> Object:
    """A moment for bundle.json. Its contents go into the folder moments/NUMBER."""
    folder = f"moments/{number:02}"
    places = {place: f"{folder}/files/{_of_words(place.removeprefix('root/'))}" for place in sorted(moment.files)}
    return {
        "atSeconds": moment.at_seconds,
        "answers": [_written_answer(files, folder, answer) for answer in moment.answers],
        "files": {place: files.add(name, moment.files[place]) for place, name in places.items()},
        "calls": files.add_calls(f"{folder}/nvml.jsonl", moment.calls),
        "kernelLog": files.add_text(f"{folder}/kernel.log", _of_lines(moment.kernel_log)),
        "outputs": _written_outputs(files, folder, moment.outputs),
    }


def _written_answer(files: _Files, folder: str, answer: PeerAnswer) -> Object:
    """An answer for bundle.json. kubelet-v1-List.pb is that of v1.PodResourcesLister/List."""
    question = answer.name if answer.peer == "page" else answer.question
    ending = {"page": "prom", "kubelet": "pb"}.get(answer.peer, "json")
    words = re.sub(r"^(v\w+)\.\w+/", r"\1-", question).strip("/").replace("/", "-")
    written: Object = {"peer": answer.peer, "name": answer.name, "question": answer.question}
    written["body"] = files.add(f"{folder}/{_of_words(f'{answer.peer}-{words}')}.{ending}", answer.body)
    if answer.trouble is not None:
        written["trouble"] = _written_trouble(answer.trouble)
    return written


def _written_outputs(files: _Files, folder: str, outputs: Mapping[str, bytes]) -> Object:
    """Outputs for bundle.json: the one of /gpu/metrics is gpu-metrics.prom in the folder."""
    written: Object = {}
    for path, content in sorted(outputs.items()):
        name = _of_words(path.strip("/").replace("/", "-") or "index")
        ending = "" if name.endswith(_SETTLED) else _ENDINGS.get(content[:1], ".txt")
        written[path] = files.add(f"{folder}/{name}{ending}", content)
    return written


def _written_trouble(trouble: Trouble) -> Object:
    """A trouble for bundle.json."""
    return {"reason": trouble.reason, "message": trouble.message, "remedy": trouble.remedy}


def _written_call(call: RecordedCall) -> str:
    """A call of NVML as a line of JSON."""
    written = {"function": call.function, "arguments": call.arguments, "result": call.result, "code": call.code}
    return json.dumps(written) + "\n"


def _of_lines(lines: Iterable[str]) -> str:
    """A text of lines, each with its end: no line is another text than an empty line."""
    return "".join(f"{line}\n" for line in lines)


def _of_words(place: str) -> str:
    """A place as a file's name that every system takes."""
    parts = (_UNUSUAL.sub("-", part).strip("-.") or "-" for part in place.split("/") if part)
    return "/".join(parts) or "-"


def _short(name: str) -> str:
    """A name that fits into a tar's header."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:40]}-{sha256(name.encode()).hexdigest()[:8]}-{name[-30:]}"


# ---- reading


def recording_of(contents: Mapping[str, bytes]) -> Recording:
    """The recording of an archive's files. Raises DamagedBundle: they are not what a bundle has."""
    read_contents = _Contents(contents)
    document = read_contents.json(DOCUMENT)
    if not isinstance(document, dict):
        raise DamagedBundle(f"its {DOCUMENT} is no mapping -> {_AGAIN}")
    try:
        written = read(WrittenRecording, _of_this_form(document), "")
    except Invalid as error:
        raise DamagedBundle(f"its {DOCUMENT}: {_shown(str(error).lstrip('.'))} -> {_AGAIN}") from None
    return Recording(
        made_by=written.made_by,
        settings=written.settings,
        moments=tuple(_moment(read_contents, moment) for moment in written.moments),
        report=read_contents.text(written.report),
        of_exporter=read_contents.each(written.of_exporter),
        log=read_contents.lines(written.log),
        versions=written.versions,
        absences=tuple(Absence(what=absence.what, why=absence.why.made()) for absence in written.absences),
        is_plain=written.is_plain,
    )


def _of_this_form(document: Object) -> Object:
    """The document in the form of this program. Raises DamagedBundle: it is of a newer form, or of none."""
    form = document.get("form")
    if isinstance(form, bool) or not isinstance(form, int) or form < 1:
        raise DamagedBundle(f"its {DOCUMENT} has no form, so it is no bundle of this program")
    if form > FORM:
        maker = _shown(str(document.get("madeBy", "a newer version")))
        raise DamagedBundle(
            f"it is of form {_shown(str(form))}, made by version {maker}; this program, version {__version__}, reads"
            f" forms up to {FORM} -> upgrade this program to {maker}"
        )
    for number in range(form, FORM):
        document = _NEXT_FORM[number](document)
    return document


def _moment(contents: "_Contents", written: WrittenMoment) -> RecordedMoment:
    """Fill a moment with the contents that it names. Raises DamagedBundle."""
    return RecordedMoment(
        at_seconds=written.at_seconds,
        answers=tuple(_answer(contents, answer) for answer in written.answers),
        files=contents.each(written.files),
        calls=contents.calls(written.calls),
        kernel_log=contents.lines(written.kernel_log),
        outputs=contents.each(written.outputs),
    )


def _answer(contents: "_Contents", written: WrittenAnswer) -> PeerAnswer:
    """Fill an answer with the content that it names. Raises DamagedBundle."""
    return PeerAnswer(
        peer=written.peer,
        name=written.name,
        question=written.question,
        body=contents.content(written.body),
        trouble=None if written.trouble is None else written.trouble.made(),
    )


class _Contents:
    """The contents of files, as bundle.json refers to them. All methods raise DamagedBundle."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self._contents = contents
        self._left = MOST_COST - sum(map(len, contents.values()))
        self._lines: dict[str, tuple[str, ...]] = {}
        self._calls: dict[str, tuple[RecordedCall, ...]] = {}

    def content(self, name: str) -> bytes:
        """The content of a file; b"" for the name ""."""
        if not name:
            return b""
        if name not in self._contents:
            raise DamagedBundle(f"it lacks its file {_shown(name)} -> {_AGAIN}")
        return self._contents[name]

    def each(self, names: Mapping[str, str]) -> Mapping[str, bytes]:
        """The contents of files, by the same keys."""
        return {key: self.content(name) for key, name in names.items()}

    def text(self, name: str) -> str:
        """The text of a file."""
        content = self.content(name)
        self._pay(name, _cost_of_text(content))
        try:
            return content.decode("utf-8", "surrogatepass")
        except ValueError:
            raise DamagedBundle(f"its file {_shown(name)} is no text -> {_AGAIN}") from None

    def lines(self, name: str) -> tuple[str, ...]:
        """The lines of a text. A file that many moments name is read once."""
        if name not in self._lines:
            content = self.text(name)
            self._pay(name, content.count("\n") * _COST_OF_VALUE)
            lines = tuple(content.removesuffix("\n").split("\n")) if content else ()
            self._lines[name] = lines
        return self._lines[name]

    def json(self, name: str) -> object:
        """The JSON of a file."""
        content = self.content(name) if name in self._contents else b""
        if not content:
            raise DamagedBundle(f"it has no {name}, so it is no bundle of this program, or one of its first versions")
        self._pay(name, _cost_of_json(content))
        return _json(name, content)

    def calls(self, name: str) -> tuple[RecordedCall, ...]:
        """The calls of NVML in a file, a line each. A file that many moments name is read once."""
        if name not in self._calls:
            content = self.content(name)
            self._pay(name, _cost_of_json(content))
            lines = content.splitlines()
            self._calls[name] = tuple(_call(f"{name}, line {number}", line) for number, line in enumerate(lines, 1))
        return self._calls[name]

    def _pay(self, name: str, cost: int) -> None:
        self._left -= cost
        if self._left < 0:
            raise DamagedBundle(f"its file {_shown(name)} makes it larger than any bundle is")


def _call(where: str, line: bytes) -> RecordedCall:
    """A call of NVML. Raises DamagedBundle."""
    item = _json(where, line)
    try:
        call = a_mapping(item, "")
        function = _any_text(call.get("function"), "function")
        code = whole(-(2**31), 2**31 - 1)(call.get("code", 0), "code")
        arguments = each(lambda value, _: value, _MOST_ENTRIES)(call.get("arguments", []), "arguments")
    except Invalid as error:
        raise DamagedBundle(f"its file {_shown(where)}: {_shown(str(error))} -> {_AGAIN}") from None
    return RecordedCall(function=sys.intern(function), arguments=arguments, result=call.get("result"), code=code)


def _json(name: str, content: bytes) -> object:
    """Parse JSON. Raises DamagedBundle: it is none, is nested too deep, or has a number that is too large."""
    try:
        return json.loads(content.decode("utf-8"), parse_float=_finite, parse_int=_a_whole)
    except RecursionError:
        why = "is nested too deep"
    except ValueError as error:
        why = f"is no JSON that a bundle has ({_shown(str(error))})"
    raise DamagedBundle(f"its file {_shown(name)} {why} -> {_AGAIN}")


def _finite(digits: str) -> float:
    """A number of JSON. Raises ValueError: it is too large for a float, and so would be infinite."""
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:_MOST_DIGITS]} is too large")
    return number


def _a_whole(digits: str) -> int:
    """A whole number of JSON. Raises ValueError: it has more digits than any that a bundle has."""
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"the number {digits[:_MOST_DIGITS]}… is too large")
    return int(digits)


def _cost_of_text(content: bytes) -> int:
    """The memory of a text: one character outside of the first 65,536 makes each of its characters take 4 bytes."""
    return _COST_OF_TEXT * len(content)


def _cost_of_json(content: bytes) -> int:
    """The memory of JSON, as its text and as values: a list, a mapping, or an entry of one with its key."""
    values = sum(map(content.count, (b",", b"[", b"{", b"\n")))
    return _COST_OF_TEXT * len(content) + _COST_OF_VALUE * values


def _shown(words: str) -> str:
    """Words from a bundle, as an error shows them."""
    return escaped(words, _MOST_SHOWN)
