"""A recording whose names are replaced.

Tests: tests/bundle/names/test_hostile_names.py, tests/bundle/names/test_random_worlds.py.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b

from exporter.bundle.names.common_words import vocabulary
from exporter.bundle.names.disguise import Disguise
from exporter.bundle.names.name_table import KINDS, NameTable
from exporter.bundle.names.names_in_fields import NamesInFields
from exporter.bundle.names.names_in_files import NamesInFiles
from exporter.bundle.names.names_in_messages import NamesInMessages
from exporter.bundle.names.names_in_objects import NamesInObjects, kind_of
from exporter.bundle.names.names_in_pages import NamesInPages
from exporter.bundle.names.names_in_settings import NamesInSettings
from exporter.bundle.names.names_in_texts import NamesInTexts
from exporter.bundle.recording import Absence, PeerAnswer, RecordedCall, RecordedMoment, Recording
from exporter.errors import Trouble

# by what they begin with, one character: all of a recording is searched
_TAKEN_WORD = re.compile(r"word[0-9]+")
_NUMBER = re.compile(r"-[0-9]+")
_LONGEST_KIND = max(map(len, KINDS))
_PAGE = re.compile(r"^# (?:TYPE|HELP) |\A[a-zA-Z_:][\w:]*(?:\{.*\})? [0-9.eE+-]+$", re.MULTILINE)
_NAMED = re.compile(r"(?P<key>\b[a-z_]+)=(?P<value>\"(?:[^\"\\]|\\.)*\"|[^\s,\"]+)")
_PROCESS = re.compile(r"(?P<key>\bname=)(?P<value>[^,<>]+)(?=,|$)")


def replaced(recording: Recording) -> tuple[Recording, Mapping[str, str]]:
    """The recording with names replaced, and the new names by the old ones."""
    walk = _Walk(recording)
    walk.recording(recording)
    walk.settle()
    return walk.recording(recording), walk.names


def _texts(recording: Recording) -> Iterator[bytes]:
    """All that stands in a recording, as bytes."""
    for moment in recording.moments:
        yield from (answer.body for answer in moment.answers)
        yield from (repr((answer.name, answer.question, answer.trouble)).encode() for answer in moment.answers)
        for files in (moment.files, moment.outputs):
            yield repr(sorted(files)).encode()
            yield from files.values()
        yield repr((moment.at_seconds, moment.calls, moment.kernel_log)).encode("utf-8", "replace")
    yield from recording.of_exporter.values()
    rest = (recording.settings, recording.node, recording.report, recording.log, recording.versions, recording.absences)
    yield repr(rest).encode("utf-8", "replace")


def _taken(text: str) -> Iterator[str]:
    """What looks like a new name in a text."""
    yield from _TAKEN_WORD.findall(text)
    for match in _NUMBER.finditer(text):
        before = text[max(0, match.start() - _LONGEST_KIND) : match.start()]
        if before.endswith(KINDS):
            yield from (kind + match[0] for kind in KINDS if before.endswith(kind))


class _Walk:
    """Walks over a recording: first to learn, after `settle` to replace."""

    def __init__(self, recording: Recording) -> None:
        secret = blake2b(digest_size=64)
        taken: set[str] = set()
        for body in _texts(recording):
            # whoever does not have the whole recording cannot try out names and ids
            secret.update(body)
            taken.update(_taken(body.decode("utf-8", "replace")))
        disguise = self._disguise = Disguise(secret.digest())
        self._table = NameTable(disguise, vocabulary(), taken)
        self._scanner = NamesInTexts(self._table, disguise)
        self._fields = NamesInFields(self._table, self._scanner)
        self._pages = NamesInPages(self._scanner, self._fields)
        self._objects = NamesInObjects(self._scanner, self._fields)
        self._messages = NamesInMessages(self._scanner, self._fields, self._objects)
        self._files = NamesInFiles(self._scanner, self._pages, self._objects, self._messages)
        self._settings = NamesInSettings(self._scanner, self._fields)
        self._forget()

    @property
    def names(self) -> Mapping[str, str]:
        """The new names by the old ones."""
        return {old: new for old, new in self._table.names.items() if old != new}

    def settle(self) -> None:
        """Make the new names."""
        self._disguise.settle()
        self._table.settle()
        self._scanner.settle()
        self._pages.settle()
        self._forget()

    def recording(self, recording: Recording) -> Recording:
        """The whole recording."""
        return replace(
            recording,
            settings=self._settings.all(recording.settings),
            moments=tuple(map(self._moment, recording.moments)),
            node=self._fields.name("node", recording.node),
            report=self._scanner.text(recording.report),
            of_exporter={path: self._output(body) for path, body in recording.of_exporter.items()},
            log=tuple(map(self._line, recording.log)),
            versions={name: self._version(name, version) for name, version in recording.versions.items()},
            absences=tuple(map(self._absence, recording.absences)),
            is_plain=False,
        )

    def _version(self, name: str, version: str) -> str:
        """A version. What `uname` says has the host's name, too."""
        is_of_host = name in ("uname", "host", "hostname", "platform")
        return self._scanner.strict(version) if is_of_host else self._scanner.text(version)

    def _forget(self) -> None:
        """Forget what bodies became: of several moments most are the same."""
        self._output: Callable[[bytes], bytes] = lru_cache(maxsize=64)(self._replaced_output)
        self._body: Callable[[str, str, bytes], bytes] = lru_cache(maxsize=256)(self._replaced_body)
        self._file: Callable[[str, bytes], bytes] = lru_cache(maxsize=1024)(self._files.file)

    def _moment(self, moment: RecordedMoment) -> RecordedMoment:
        """A look at the node."""
        return replace(
            moment,
            answers=tuple(map(self._answer, moment.answers)),
            files={self._scanner.strict(place): self._file(place, content) for place, content in moment.files.items()},
            calls=tuple(map(self._call, moment.calls)),
            kernel_log=tuple(map(self._kernel_line, moment.kernel_log)),
            outputs={path: self._output(body) for path, body in moment.outputs.items()},
        )

    def _answer(self, answer: PeerAnswer) -> PeerAnswer:
        """A peer's answer. What the kubelet was asked is a method, which has no names."""
        question = self._objects.question(answer.question)
        return replace(
            answer,
            name=self._scanner.strict(answer.name),
            question=question if answer.peer in ("kubernetes", "page") else answer.question,
            body=self._body(answer.peer, answer.question, answer.body) if answer.body else b"",
            trouble=self._trouble(answer.trouble) if answer.trouble else None,
        )

    def _replaced_body(self, peer: str, question: str, body: bytes) -> bytes:
        """The body of an answer. What cannot be read becomes something else that cannot."""
        if peer == "kubelet":
            return self._messages.answer(question, body)
        if peer == "page":
            return self._pages.page(body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        document = self._objects.document(body, "pod" if peer == "pods" else kind_of(question))
        return b"{" if document is None else document

    def _replaced_output(self, body: bytes) -> bytes:
        """What an exporter answered: JSON, a page of samples, or words."""
        document = self._objects.document(body)
        if document is not None:
            return document
        text = body.decode("utf-8", "replace")
        return (self._pages.page(text) if _PAGE.search(text) else self._scanner.text(text)).encode()

    def _call(self, call: RecordedCall) -> RecordedCall:
        """A call of NVML."""
        return replace(
            call,
            arguments=tuple(self._of_call(argument, "") for argument in call.arguments),
            result=self._of_call(call.result, call.function),
        )

    def _of_call(self, value: object, what: str) -> object:
        """A value of NVML: `what` is the function that returned it, or the field of a struct."""
        if isinstance(value, dict):
            return {name: self._of_call(item, name) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._of_call(item, what) for item in value)
        if not isinstance(value, str):
            return value
        if value.startswith("nvml"):  # a handle: the call that returned it
            return self._scanner.text(value)
        lower = what.lower()
        if lower.endswith("uuid"):
            return self._fields.device_id(value)
        if lower.endswith("serial"):
            return self._fields.serial(value)
        if lower.endswith("processname"):
            return self._fields.name("process", value)
        return self._scanner.text(value) if lower.endswith("name") else self._scanner.strict(value)

    def _line(self, line: str) -> str:
        """A line of the exporter's log: JSON, or words with key=value."""
        document = self._objects.document(line.encode("utf-8", "replace"))
        if document is not None:
            return document.decode()
        pieces: list[str] = []
        end = 0
        for match in _NAMED.finditer(line):
            pieces += (self._scanner.text(line[end : match.start()]), self._named(match))
            end = match.end()
        return "".join((*pieces, self._scanner.text(line[end:])))

    def _named(self, match: re.Match[str]) -> str:
        """A part key=value of a line of the log."""
        key, value = match["key"], match["value"]
        if not value.startswith('"'):
            return f"{key}={self._fields.field(key, value, self._scanner.strict)}"
        try:
            text = json.loads(value)
        except ValueError:
            return match[0]
        new = self._fields.field(key, text, self._scanner.text)
        return f"{key}={json.dumps(new, ensure_ascii=False)}"

    def _kernel_line(self, line: str) -> str:
        """A record of the kernel's log, which may name a process."""
        named = _PROCESS.sub(lambda match: match["key"] + self._fields.name("process", match["value"]), line)
        return self._scanner.text(named)

    def _absence(self, absence: Absence) -> Absence:
        """What a bundle lacks: `what` and `why` are texts of this program."""
        return Absence(what=self._scanner.text(absence.what), why=self._trouble(absence.why))

    def _trouble(self, trouble: Trouble) -> Trouble:
        """A trouble. Its reason is a word of the program's."""
        return Trouble(trouble.reason, self._scanner.text(trouble.message), self._scanner.text(trouble.remedy))
