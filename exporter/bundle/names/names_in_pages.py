"""Pages of samples in Prometheus' text format: names are values of labels, and words of comments.

Tests: tests/bundle/names/test_real_pages.py.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from exporter.bundle.names.names_in_fields import NamesInFields
from exporter.bundle.names.names_in_texts import NamesInTexts

_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>(?:[^\"}]++|\"(?:[^\"\\]++|\\.)*+\")*+)\})?(?P<rest>[ \t].*)?",
    re.DOTALL,
)
_LABEL = re.compile(
    r"(?P<before>[ \t,]*)(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)(?P<is>[ \t]*=[ \t]*)\"(?P<value>(?:[^\"\\]++|\\.)*+)\""
)
_ESCAPES: Final[Mapping[str, str]] = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_ESCAPED = re.compile(r'\\[\\"n]')
_COMMENT = re.compile(r"# (?P<kind>HELP|TYPE|UNIT) (?P<name>\S+)(?P<rest>.*)")


class NamesInPages:
    """Replaces the names in pages."""

    def __init__(self, scanner: NamesInTexts, fields: NamesInFields) -> None:
        self._scanner = scanner
        self._fields = fields
        self._line: Callable[[str], str] = lru_cache(maxsize=20_000)(self._replaced_labels)

    def settle(self) -> None:
        """Forget what was replaced before the table was settled."""
        self._line = lru_cache(maxsize=20_000)(self._replaced_labels)

    def page(self, text: str) -> str:
        """A whole page."""
        return "\n".join(map(self._replaced_line, text.split("\n")))

    def _replaced_line(self, line: str) -> str:
        """A line, whose family is learned. Only samples and comments of a known form have words that may stay."""
        if not line.strip():
            return line
        if line.startswith("#"):
            comment = _COMMENT.fullmatch(line)
            if comment is None:
                return self._scanner.strict(line)
            self._fields.learn_family(comment["name"])
            return f"# {comment['kind']} {self._scanner.text(comment['name'])}{self._scanner.text(comment['rest'])}"
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            return self._scanner.strict(line)
        self._fields.learn_family(sample["name"])
        name = self._scanner.text(sample["name"])
        labels = "" if sample["labels"] is None else f"{{{self._line(sample['labels'])}}}"
        rest = sample["rest"] or ""
        return f"{name}{labels}{self._scanner.strict(rest) if '#' in rest else rest}"

    def _replaced_labels(self, labels: str) -> str:
        """The text between the braces. What is no label of a known form is taken for words."""
        pieces = []
        end = 0
        for match in _LABEL.finditer(labels):
            name = match["name"]
            value = _ESCAPED.sub(lambda escape: _ESCAPES[escape[0]], match["value"])
            new = self._fields.label(name, value)
            new = new.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") if new != value else match["value"]
            before = self._scanner.strict(labels[end : match.start()])
            pieces.append(f'{before}{match["before"]}{self._fields.label_name(name)}{match["is"]}"{new}"')
            end = match.end()
        return "".join((*pieces, self._scanner.strict(labels[end:])))
