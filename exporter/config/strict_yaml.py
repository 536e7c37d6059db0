"""YAML that refuses a key that is there twice. YAML forbids equal keys; PyYAML silently takes the last of them.

`load_once` reads files that people write. `load_plain` reads files that programs write. It refuses tags, and aliases,
by which a small file becomes large. It works on the parser's events: if PyYAML has libyaml's parser, a CDI spec of 8
GPUs with 7 instances each takes 7 ms instead of 67. This module is imported only if there is YAML to read.
"""

from collections.abc import Hashable

import yaml

from exporter.errors import DuplicateKey
from exporter.wording import one_line

_MERGE = "tag:yaml.org,2002:merge"
DEEPEST = 32
_PLAIN_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_ENDS = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
# the remedies, by a part of the parser's message
_REMEDIES = (
    ("'\\t'", "indent with spaces, not with tabs"),
    ("another document", "leave one document, without ---"),
    ("quoted scalar", "close the quote"),
    ("an alias", "put a text that begins with * or & into quotes"),
    ("found character", "put a text that begins with this character into quotes"),
    ("mapping values", "indent the keys of one level alike, and put a text with a colon and a space into quotes"),
)
_USUAL_REMEDY = "indent the keys of one level alike, and begin each entry of a list with a dash"


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        # checked before the keys of `<<` are merged in, which the mapping may override
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise DuplicateKey(key, key_node.start_mark.line + 1)
                seen.add(key)
        return super().construct_mapping(node, deep)


def load_once(text: str) -> object:
    """Read a YAML document.

    Raises DuplicateKey: a key is there twice; yaml.YAMLError, ValueError or RecursionError: it cannot be read.
    """
    content: object = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    return content


def explained(error: Exception) -> str:
    """An error of `load_once` in words: the fault, its line and a remedy. It shows no text, which may be secret."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return one_line(error)
    says = " ".join(filter(None, (error.context, error.problem)))
    remedy = next((remedy for part, remedy in _REMEDIES if part in says), _USUAL_REMEDY)
    return f"line {error.problem_mark.line + 1}: {error.problem}; {remedy}"


def load_plain(text: str) -> object:
    """Read a file of one plain YAML document. Scalars become texts.

    Raises DuplicateKey: a key is there twice; ValueError, with one line: the file is no YAML, or is not plain.
    """
    builder = _Builder()
    try:
        for event in yaml.parse(text, _PLAIN_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        raise ValueError(one_line(error)) from error
    if not builder.documents:
        raise ValueError("it is empty")
    return builder.documents[0]


class _Builder:
    """Builds documents of the parser's events. `documents` has at most one."""

    def __init__(self) -> None:
        self.documents: list[object] = []
        # the containers that the parser is in, each with its key in the mapping around it
        self._open: list[tuple[dict[str, object] | list[object], str | None]] = []
        self._key: str | None = None

    def take(self, event: object) -> None:
        """Take the parser's next event."""
        if isinstance(event, _ENDS):
            content, self._key = self._open.pop()
            self._put(content)
        elif isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            raise ValueError("it has an anchor or an alias")
        elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            raise ValueError("it has a tag")
        elif isinstance(event, yaml.ScalarEvent):
            self._take_text(event.value)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(self._open) >= DEEPEST:
                raise ValueError(f"it is nested more than {DEEPEST} deep")
            if self._wants_key:
                raise ValueError("it has a key that is no text")
            self._open.append(({} if isinstance(event, yaml.MappingStartEvent) else [], self._key))
            self._key = None

    @property
    def _wants_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1][0], dict) and self._key is None

    def _take_text(self, text: str) -> None:
        if not self._wants_key:
            self._put(text)
            return
        if text in self._open[-1][0]:
            raise DuplicateKey(text)
        self._key = text

    def _put(self, content: object) -> None:
        if not self._open:
            if self.documents:
                raise ValueError("it has several documents")
            self.documents.append(content)
            return
        inside = self._open[-1][0]
        if isinstance(inside, dict):
            inside[str(self._key)] = content
            self._key = None
        else:
            inside.append(content)
