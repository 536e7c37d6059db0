"""A recording made of an archive's files that nobody vouches for. Pure.

Tests: tests/bundle/test_damaged_bundles.py.
"""

import json
import math
import sys
from collections.abc import Callable, Mapping

from exporter import __version__
from exporter.bundle.bundle_form import (
    COST_OF_VALUE,
    DOCUMENT,
    MOST_COST,
    MOST_ENTRIES,
    WrittenAnswer,
    WrittenMoment,
    WrittenRecording,
    any_text,
    cost_of_json,
    cost_of_text,
)
from exporter.bundle.recording import FORM, Absence, PeerAnswer, RecordedCall, RecordedMoment, Recording
from exporter.bundle.unpacking import DamagedBundle
from exporter.lenient import Object
from exporter.reading import Invalid, a_mapping, each, read, whole
from exporter.wording import escaped

_MOST_DIGITS = 40
_MOST_SHOWN = 300
_AGAIN = "copy the file again, or take the bundle again"
# What makes a document of a form out of one of the form before, by the form before.
_NEXT_FORM: Mapping[int, Callable[[Object], Object]] = {}


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
        node=written.node,
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
        self._pay(name, cost_of_text(content))
        try:
            return content.decode("utf-8", "surrogatepass")
        except ValueError:
            raise DamagedBundle(f"its file {_shown(name)} is no text -> {_AGAIN}") from None

    def lines(self, name: str) -> tuple[str, ...]:
        """The lines of a text. A file that many moments name is read once."""
        if name not in self._lines:
            content = self.text(name)
            self._pay(name, content.count("\n") * COST_OF_VALUE)
            lines = tuple(content.removesuffix("\n").split("\n")) if content else ()
            self._lines[name] = lines

        return self._lines[name]

    def json(self, name: str) -> object:
        """The JSON of a file."""
        content = self.content(name) if name in self._contents else b""
        if not content:
            raise DamagedBundle(f"it has no {name}, so it is no bundle of this program, or one of its first versions")

        self._pay(name, cost_of_json(content))

        return _json(name, content)

    def calls(self, name: str) -> tuple[RecordedCall, ...]:
        """The calls of NVML in a file, a line each. A file that many moments name is read once."""
        if name not in self._calls:
            content = self.content(name)
            self._pay(name, cost_of_json(content))
            lines = content.splitlines()
            self._calls[name] = tuple(_call(f"{name}, line {number}", line) for number, line in enumerate(lines, 1))

        return self._calls[name]

    def _pay(self, name: str, cost: int) -> None:
        self._left -= cost
        if self._left < 0:
            raise DamagedBundle(f"its file {_shown(name)} makes it larger than any bundle is")


_code = whole(-(2**31), 2**31 - 1)
_arguments = each(lambda value, _: value, MOST_ENTRIES)


def _call(where: str, line: bytes) -> RecordedCall:
    """A call of NVML. Raises DamagedBundle."""
    item = _json(where, line)
    try:
        call = a_mapping(item, "")
        function = any_text(call.get("function"), "function")
        code = _code(call.get("code", 0), "code")
        arguments = _arguments(call.get("arguments", []), "arguments")
    except Invalid as error:
        raise DamagedBundle(f"its file {_shown(where)}: {_shown(str(error))} -> {_AGAIN}") from None

    return RecordedCall(function=sys.intern(function), arguments=arguments, result=call.get("result"), code=code)


def _json(name: str, content: bytes) -> object:
    """Parse JSON. Raises DamagedBundle: it is none, is nested too deep, or has a number that is too large."""
    try:
        return _JSON.decode(content.decode("utf-8"))
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


# made once: a bundle may have a hundred thousand lines
_JSON = json.JSONDecoder(parse_float=_finite, parse_int=_a_whole)


def _shown(words: str) -> str:
    """Words from a bundle, as an error shows them."""
    return escaped(words, _MOST_SHOWN)
