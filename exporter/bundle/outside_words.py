"""The words of a recording that came from outside, by what they are. Pure.

What stands in a known place (a label, a field, a setting) is what its place says, and is there whatever it is. In texts
those words are from outside that are no words of the program. Numbers and times alone are none.

Tests: tests/bundle/test_show.py.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Final

from exporter.bundle.bundle_form import cost_of_json
from exporter.bundle.recording import RecordedMoment, Recording
from exporter.bundle.vocabulary import foreign_words
from exporter.errors import Trouble

PODS, NAMESPACES, CONTAINERS, NODES, WORKLOADS = "pods", "namespaces", "containers", "nodes", "workloads"
OBJECTS, USERS, IMAGES, SERIALS = "objects", "users", "images", "serial numbers"
UUIDS, ADDRESSES, PATHS, MODELS = "UUIDs and ids of containers", "addresses", "paths", "models, drivers and versions"
LABELS, VALUES, KEYS, TEXTS = "labels and annotations", "other values", "names of fields", "words in texts"
# In the order in which they are shown. A word that is in a group before is in no later one.
KINDS: Final = (
    NAMESPACES, PODS, WORKLOADS, CONTAINERS, NODES, USERS, IMAGES, OBJECTS, LABELS, SERIALS, UUIDS, ADDRESSES, PATHS,
    MODELS, VALUES, KEYS, TEXTS,
)  # fmt: skip
# Groups whose words are left out where all of them are the program's own.
_ONLY_FOREIGN = frozenset({PATHS, VALUES, KEYS, TEXTS, MODELS})
# What the name of a label or a field says of its value, without signs and in small letters.
_BY_NAME = {
    "pod": PODS, "podname": PODS, "exportedpod": PODS, "namespace": NAMESPACES, "exportednamespace": NAMESPACES,
    "podnamespace": NAMESPACES, "container": CONTAINERS, "containername": CONTAINERS, "exportedcontainer": CONTAINERS,
    "node": NODES, "nodename": NODES, "hostname": NODES, "host": NODES, "instance": NODES, "workload": WORKLOADS,
    "workloadname": WORKLOADS, "ownername": WORKLOADS, "user": USERS, "username": USERS, "image": IMAGES,
    "imageid": IMAGES, "serial": SERIALS, "modelname": MODELS, "model": MODELS, "device": MODELS, "driver": MODELS,
    "driverversion": MODELS, "productname": MODELS, "version": MODELS,
}  # fmt: skip
_BY_PARENT = {"containers": CONTAINERS, "initContainers": CONTAINERS, "containerStatuses": CONTAINERS, "pods": PODS}
_BY_FUNCTION = {"nvmlDeviceGetSerial": SERIALS, "nvmlDeviceGetName": MODELS}
_MAPS = frozenset({"labels", "annotations", "pod_labels"})
_FORMS = (
    (UUIDS, re.compile(r"(?:GPU-|MIG-|MIG-GPU-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?:/\d+/\d+)?")),
    (UUIDS, re.compile(r"(?:[a-z-]+://)?[0-9a-f]{64}")),
    (ADDRESSES, re.compile(r"(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){5,7}")),
    (ADDRESSES, re.compile(r"[a-z][a-z0-9+.-]*://\S+")),
    (PATHS, re.compile(r"/\S+")),
)
_NO_WORD = re.compile(
    r"[\W\d_]*|0x[0-9a-fA-F]+|\d[\dTZ:.+-]*|[0-9a-fA-F]+:[0-9a-fA-F]+:[0-9a-fA-F.]+|\d+[a-zA-Zµ%]{1,4}"
)
_LABELS = re.compile(r"\{(.*)\}")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_TOKEN = re.compile(r"[^\s\"'`=,;()\[\]{}<>|]+")
_DEEPEST = 20
_LONGEST = 10_000  # of a text that is one word
_LONGEST_LINE = 64 * 1024
# What a hostile bundle may cost: words, with what each takes beside its letters; texts that are remembered; JSON.
_MOST_CHARS = 32 * 1024 * 1024
_CHARS_OF_A_WORD = 100
_MOST_TEXTS = 20_000
_MOST_COST = 48 * 1024 * 1024


def outside_words(recording: Recording) -> tuple[Mapping[str, set[str]], bool]:
    """The words by their kinds, and whether these are all: of a hostile bundle there may be too many."""
    words = _Gathered()
    for moment in recording.moments:
        words.add_moment(moment)

    for output in recording.of_exporter.values():
        words.add_content(output)

    for name, values in recording.settings.items():
        for value in values:
            words.add(VALUES, value)
        words.add_text(name)

    for text in (*recording.log, recording.report, *recording.versions):
        words.add_text(text)

    for version in recording.versions.values():
        words.add(MODELS, version)

    for absence in recording.absences:
        words.add_text(absence.what)
        words.add_trouble(absence.why)

    return words.grouped(), words.has_all


class _Gathered:
    """Gathers words; contents that were there before cost nothing.

    Attributes:
        has_all: whether no word had to be left out, since there are too many.
    """

    def __init__(self) -> None:
        self.has_all = True
        self._chars = 0
        self._words: dict[str, set[str]] = defaultdict(set)
        self._seen: set[bytes] = set()
        self._texts: set[str] = set()

    def grouped(self) -> Mapping[str, set[str]]:
        """The words by kind, each once."""
        shown: set[str] = set()
        grouped = {}
        for kind in KINDS:
            words = self._words[kind] - shown
            if kind == TEXTS:
                words = {word for word in words if not shown.issuperset(re.split(r"[/:@]", word))}
            if words:
                grouped[kind] = words
            shown |= words

        return grouped

    def add(self, kind: str, value: str) -> None:
        """Take a value from a place that says what it is."""
        if not value or len(value) > _LONGEST:
            self.add_text(value)
            return

        place = next((name for name, form in _FORMS if form.fullmatch(value)), kind)
        if place in _ONLY_FOREIGN and (_NO_WORD.fullmatch(value) or not foreign_words(value)):
            return

        if place == VALUES and " " in value:
            self.add_text(value)
        else:
            self._keep(place, value)

    def _keep(self, kind: str, word: str) -> None:
        if self.has_all and word not in self._words[kind]:
            self._words[kind].add(word)
            self._chars += len(word) + _CHARS_OF_A_WORD
            self.has_all = self._chars < _MOST_CHARS

    def _is_new(self, text: str) -> bool:
        """Whether a text was not there before. Of many texts only some are remembered."""
        if text in self._texts:
            return False
        if len(self._texts) >= _MOST_TEXTS:
            self._texts.clear()
        if len(text) <= _LONGEST:
            self._texts.add(text)

        return True

    def add_text(self, text: str) -> None:
        """Take the words of a text that are not the program's."""
        if not self._is_new(text):
            return

        for match in _TOKEN.finditer(text):
            token = match[0].strip(".:!?*#-+\\")
            is_whole = token.startswith("/") or "://" in token
            for part in (token,) if is_whole else token.split("/"):
                self.add(TEXTS, part[:_LONGEST])

    def add_trouble(self, trouble: Trouble | None) -> None:
        """Take the words of a trouble."""
        if trouble is not None:
            self.add_text(trouble.message)
            self.add_text(trouble.remedy)

    def add_moment(self, moment: RecordedMoment) -> None:
        """Take all words of a moment."""
        for answer in moment.answers:
            self.add_text(answer.name)
            self.add_text(answer.question)
            self.add_trouble(answer.trouble)
            self.add_content(answer.body)

        for place, content in moment.files.items():
            self.add(PATHS, f"/{place}")
            self.add_content(content)

        for path, content in moment.outputs.items():
            self.add_text(path)
            self.add_content(content)

        for call in moment.calls:
            kind = _BY_FUNCTION.get(call.function, VALUES)
            for _, value in _texts_of([*call.arguments, call.result]):
                if not value.startswith("nvml"):
                    self.add(kind, value)

        for record in moment.kernel_log:
            self.add_text(record)

    def add_content(self, content: bytes) -> None:
        """Take the words of JSON, a page, another text, or a message of protobuf."""
        if content in self._seen:
            return
        self._seen.add(content)
        if content[:1] in (b"{", b"[") and cost_of_json(content) < _MOST_COST:
            try:
                self._add_json(json.loads(content))
            except (ValueError, RecursionError):
                self._add_lines(content)
        elif _is_message(content):
            for value in _strings_of(content):
                self.add(OBJECTS if value.islower() and foreign_words(value) else VALUES, value)
        else:
            self._add_lines(content)

    def _add_lines(self, content: bytes) -> None:
        """Take the words of a text, line by line: as a whole it could take four times its bytes."""
        lines = BytesIO(content)
        while self.has_all:
            line = lines.readline(_LONGEST_LINE)
            if not line:
                break
            if line != b"\n":
                self._add_line(line.decode("utf-8", "replace"))

    def _add_line(self, line: str) -> None:
        """Take the words of a page's line, or of another text's."""
        labels = None if line.startswith("#") else _LABELS.search(line)
        if labels is None:
            self.add_text(line)
            return

        self.add_text(line[: labels.start()])
        if not self._is_new(labels[1]):
            return

        for name, value in _LABEL.findall(labels[1]):
            self.add_text(name)
            self.add(_kind_of(name), value)

    def _add_json(self, document: object) -> None:
        for path, value in _texts_of(document):
            *before, name = path or ("",)
            parent = next((key for key in reversed(before) if key), "")
            if parent in _MAPS:
                self._keep(LABELS, f"{name}={value}")
            elif name == "name":
                kind = OBJECTS if parent == "metadata" else VALUES
                self.add(_BY_PARENT.get(parent, kind), value)
            else:
                self.add(_kind_of(name), value)
            for key in path:
                if parent not in _MAPS and foreign_words(key):
                    self.add(KEYS, key)


def _is_message(content: bytes) -> bool:
    """Whether a content is no text: it has bytes that no text has."""
    begin = content[:_LONGEST_LINE]
    if any(byte < ord(" ") and byte not in b"\t\n\r\x1b" for byte in begin[:1_000]):
        return True
    try:
        begin.decode()
    except UnicodeDecodeError as error:
        return error.start < len(begin) - 4  # the cut may be in a character
    return False


def _kind_of(name: str) -> str:
    return _BY_NAME.get(name.replace("_", "").replace("-", "").lower(), VALUES)


def _texts_of(document: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each text of a document with the keys above it; "" stands for a place in a list."""
    waiting: list[tuple[tuple[str, ...], object]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, Mapping):
            waiting.extend(((*path[-3:], str(key)), inner) for key, inner in value.items())
        elif isinstance(value, list | tuple):
            waiting.extend((path or ("",), inner) for inner in value)


def _strings_of(message: bytes, depth: int = 0) -> Iterator[str]:
    """The texts of a serialised message (protobuf.dev/programming-guides/encoding), or of what looks like one.

    A field of bytes is a text if all of it can be printed, else a message.
    """
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        if tag & 7 == 0:
            _, place = _varint(message, place)
        elif tag & 7 in (1, 5):
            place += 8 if tag & 7 == 1 else 4
        elif tag & 7 == 2:  # noqa: PLR2004 - the wire type of bytes
            size, place = _varint(message, place)
            part = message[place : place + size]
            place += size
            text = part.decode("utf-8", "replace")
            if text.isprintable() and "\ufffd" not in text:
                yield text
            elif depth < _DEEPEST:
                yield from _strings_of(part, depth + 1)
        else:
            return


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    number = shift = 0
    while place < len(message):
        byte = message[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 63:  # noqa: PLR2004 - the last byte has no high bit; a number has 64 bits
            break
        shift += 7

    return number, place
