"""The reader of untrusted JSON, from left to right: it never makes a large object or array as a whole. Pure.

Tests: tests/cluster/exporters/test_node_answer.py.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from exporter.errors import Malformed

# the most characters of a name, or of another value around the rows
_MOST_OTHER_CHARS = 64 * 1024
_SPACE = re.compile(r"[ \t\r\n]*")


def garbage(what: str, remedy: str) -> Malformed:
    """The error for an answer that cannot be used. The caller raises it."""
    return Malformed("garbage", f"its answer cannot be used: {what}", remedy=remedy)


class JsonText:
    """The text of an answer. Each method raises Malformed if the text goes on with something else."""

    def __init__(
        self,
        body: bytes,
        remedy: str,
        object_pairs_hook: Callable[[Sequence[tuple[str, Any]]], dict[str, Any]] | None = None,
    ) -> None:
        """`remedy` is for an answer that cannot be used. `object_pairs_hook` may refuse an object by a ValueError."""
        self._remedy = remedy
        self._decode = json.JSONDecoder(object_pairs_hook=object_pairs_hook, parse_constant=_no_constants).raw_decode
        self._at = 0
        self.raw = ""  # the text of the last value
        try:
            self._text = body.decode()
        except UnicodeDecodeError as error:
            raise self.garbage(f"it is not UTF-8: {error.reason} at byte {error.start}") from error

    def garbage(self, what: str) -> Malformed:
        """The error of `garbage`, with this answer's remedy."""
        return garbage(what, self._remedy)

    def has(self, sign: str) -> bool:
        """Whether this sign comes next. If so, the position moves past it."""
        at = self._after_space()
        if self._text[at : at + 1] != sign:
            return False
        self._at = at + 1
        return True

    def expect(self, sign: str, otherwise: str) -> None:
        """Move past this sign. If it does not come next, the error says `otherwise`."""
        if not self.has(sign):
            raise self.garbage(otherwise)

    def names(self) -> Iterator[str]:
        """The names in the object whose first sign was passed. The caller reads the value after each name."""
        if self.has("}"):
            return
        while True:
            name = self.value(_MOST_OTHER_CHARS, "a name")
            if type(name) is not str:
                raise self.garbage("a name in an object is not text")
            self.expect(":", "a name in an object has no value")
            yield name
            if self.has("}"):
                return
            self.expect(",", "an object does not end")

    def objects(self, most_chars: int, what: str) -> Iterator[dict[str, Any]]:
        """The objects in the array whose first sign was passed, each of at most `most_chars` characters.

        `what` names an object in errors, with its number.
        """
        number = 0
        while number or not self.has("]"):
            where = f"{what} {number}"
            value = self.value(most_chars, where)
            if type(value) is not dict:
                raise self.garbage(f"{where} is not a JSON object")
            yield value
            if self.has("]"):
                return
            self.expect(",", f"after {where} there is neither a comma nor the array's end")
            number += 1

    def value(self, most_chars: int = _MOST_OTHER_CHARS, where: str = "a part of it") -> Any:  # noqa: ANN401 - any JSON
        """The next value, of at most `most_chars` characters. `where` names it in errors."""
        at = self._after_space()
        # what is left of a text that is not longer needs no copy
        is_rest = len(self._text) - at <= most_chars
        window, begin = (self._text, at) if is_rest else (self._text[at : at + most_chars], 0)
        try:
            value, end = self._decode(window, begin)
        except RecursionError as error:
            raise self.garbage(f"{where} is nested too deeply") from error
        except json.JSONDecodeError as error:
            if not is_rest:
                message = f"{where} is not JSON, or has more than {most_chars} characters"
                raise Malformed("oversize", message, remedy=self._remedy) from error
            # some of Python's messages end in "at"
            what = error.msg.removesuffix(" at")
            raise self.garbage(f"{where} is not JSON: {what} at character {at - begin + error.pos}") from error
        except ValueError as error:
            raise self.garbage(f"{where}: {error}") from error
        self._at = at - begin + end
        self.raw = window[begin:end]
        if "\\u" in self.raw:
            self._refuse_surrogates(value, where)
        return value

    def end(self) -> None:
        """Check that the text has ended."""
        if self._after_space() != len(self._text):
            raise self.garbage("there is more after its end")

    def _refuse_surrogates(self, value: object, where: str) -> None:
        """Refuse half a character (a lone surrogate, escaped). It is JSON, but most readers of outputs refuse it."""
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise self.garbage(f"{where} has half a character in its text") from error

    def _after_space(self) -> int:
        return _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr] # it matches everywhere


def _no_constants(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
