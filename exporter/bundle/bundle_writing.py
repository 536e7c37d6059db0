"""A recording made into the files of a bundle's archive, each content once. Pure.

Tests: tests/bundle/test_archive.py.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256

from exporter.bundle.bundle_form import DOCUMENT, MOST_COST, MOST_ENTRIES, cost_of_json, cost_of_text
from exporter.bundle.recording import FORM, PeerAnswer, RecordedCall, RecordedMoment, Recording
from exporter.errors import Trouble
from exporter.lenient import Object

_LONGEST_NAME = 80
_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")
_ENDINGS = {b"{": ".json", b"[": ".json", b"<": ".html", b"#": ".prom"}
_SETTLED = (".json", ".html", ".prom", ".txt")


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
        "node": recording.node,
        "versions": dict(sorted(recording.versions.items())),
        "absences": [{"what": absence.what, "why": _written_trouble(absence.why)} for absence in recording.absences],
        "report": files.add_text("report.txt", recording.report),
        "log": files.add_text("log.txt", _of_lines(recording.log)),
        "ofExporter": _written_outputs(files, "exporter", recording.of_exporter),
        "moments": moments,
    }
    document = json.dumps(written, indent=1).encode()
    cost = files.cost + len(document) + cost_of_json(document)
    contents = {DOCUMENT: document, **files.contents}

    return contents if cost <= MOST_COST and len(contents) <= MOST_ENTRIES else None


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
        return self._add_read(name, content.encode("utf-8", "surrogatepass"), cost_of_text)

    def add_calls(self, name: str, calls: Iterable[RecordedCall]) -> str:
        """Take calls of NVML as lines of JSON, as `add` does."""
        return self._add_read(name, "".join(map(_written_call, calls)).encode(), cost_of_json)

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
