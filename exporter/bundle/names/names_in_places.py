"""Where a text says that a word is a name, though it is a word of the vocabulary: in search/main, or in pod=main.

Elsewhere such a word stays: without it the program's own sentences would break.

Tests: tests/bundle/names/test_hostile_names.py.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from exporter.bundle.names.name_table import NameTable
from exporter.bundle.vocabulary import own_phrases

# the kinds of names behind a word
_KINDS: Final[Mapping[str, frozenset[str]]] = {
    "pod": frozenset({"pod"}),
    "node": frozenset({"node", "host"}),
    "host": frozenset({"node", "host"}),
    "namespace": frozenset({"namespace"}),
    "container": frozenset({"container"}),
    "claim": frozenset({"claim"}),
    "pool": frozenset({"pool"}),
    "user": frozenset({"user"}),
    "process": frozenset({"process"}),
    "processe": frozenset({"process"}),
    "command": frozenset({"process"}),
    "workload": frozenset({"workload"}),
    "deployment": frozenset({"workload"}),
    "statefulset": frozenset({"workload"}),
    "daemonset": frozenset({"workload"}),
    "replicaset": frozenset({"workload"}),
    "job": frozenset({"workload"}),
    "-n": frozenset({"namespace"}),
    "used by": frozenset({"process"}),
}
_WORDS = "|".join(kind for kind in _KINDS if kind[0].isalpha())
# pod=main, podName: main, "pod": "main", pod main, pods/main
_SAID = re.compile(
    rf"(?<![\w.-])[\w.-]{{0,64}}?(?P<kind>{_WORDS}|(?<!\w)-n)(?:[_-]?name)?s?(?![\w.-])"
    r"[\"']?(?P<is>[ \t]?(?:=|:|/|%3[Dd])[ \t]?|[ \t]+)(?=[\w\"'])",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?P<quote>[\"']?)(?P<name>\w[\w.-]*+)(?P=quote)")
_NEXT = re.compile(r",[ ]?|[ ]and[ ]|[ ]or[ ]")
_TOKEN = re.compile(r"(?<![\w./%-])[\w.-]++(?:/[\w.-]++){1,2}+(?!/)")
_HOST = re.compile(r"(?<![\w./-])(?P<name>\w++):[0-9]{2,5}(?![\w:.])")
_ACCOUNT = re.compile(r"(?<=\bsystem:serviceaccount:)(?P<namespace>[\w.-]++):(?P<name>[\w.-]++)")
_NAMESPACE = frozenset({"namespace"})
_POD = frozenset({"pod"})
_CONTAINER = frozenset({"container"})
# files and folders of containers' logs (kubernetes/pkg/kubelet/kuberuntime/legacy.go, helpers.go)
_LOG = re.compile(
    r"(?<![\w.-])(?P<pod>[a-z0-9.-]++)_(?P<namespace>[a-z0-9-]++)_(?P<container>[a-z0-9-]{1,63})-[0-9a-f]{64}"
)
_LOG_FOLDER = re.compile(
    r"(?<![\w.-])(?P<namespace>[a-z0-9-]++)_(?P<pod>[a-z0-9.-]++)_[0-9a-f-]{32,36}(?![\w-])(?:/(?P<container>[a-z0-9-]++))?"
)
_IN_NAMESPACE = frozenset({"pod", "claim", "workload", "object"})
_HOSTS = frozenset({"host", "node"})
_POOLS = frozenset({"pool", "node"})
_TOKEN_OF_POOL = 3


class Replacement(NamedTuple):
    """A part of a text, and what takes its place."""

    start: int
    end: int
    new: str


class NamesInPlaces:
    """Finds the names in texts that are words of the vocabulary. The table is settled."""

    def __init__(self, table: NameTable) -> None:
        self._table = table

    def names_in(self, text: str) -> list[Replacement]:
        """The names, in any order; they may overlap."""
        names = [*self._in_tokens(text), *self._behind_kinds(text), *self._of_hosts(text), *self._of_accounts(text)]
        if "_" in text:
            for pattern in (_LOG, _LOG_FOLDER):
                names += self._of_logs(pattern, text)

        return names

    def _new(self, name: str) -> str:
        return self._table.names.get(name, name)

    def _is(self, name: str, kinds: frozenset[str]) -> bool:
        """Whether a text was met as a name of one of these kinds."""
        return not kinds.isdisjoint(self._table.kinds(name))

    def _in_tokens(self, text: str) -> Iterator[Replacement]:
        """In namespace/pod/container, or a part of it, and in driver/pool/device."""
        if "/" not in text:
            return
        for match in _TOKEN.finditer(text):
            token = match[0].rstrip(".-")
            names = token.split("/")
            start = match.start()
            if token in own_phrases():
                continue
            if self._is_holder(names):
                yield Replacement(start, start + len(token), "/".join(map(self._new, names)))
            elif self._table.is_plain(names[0]) and self._is(names[0], _NAMESPACE):
                # a pod that is known from texts alone
                if not all(map(self._table.is_common, re.split(r"[/.-]", token))):
                    yield Replacement(start, start + len(names[0]), self._new(names[0]))
            elif len(names) == _TOKEN_OF_POOL and "." in names[0] and self._is(names[1], _POOLS):
                start += len(names[0]) + 1
                yield Replacement(start, start + len(names[1]), self._new(names[1]))

    def _is_holder(self, names: list[str]) -> bool:
        """Whether names are those of a namespace and what is in it, or of a pod and its container."""
        first, second, *third = names
        if self._is(first, _NAMESPACE) and self._is(second, _IN_NAMESPACE):
            return not third or self._is(third[0], _CONTAINER)
        return not third and self._is(first, _POD) and self._is(second, _CONTAINER)

    def _behind_kinds(self, text: str) -> Iterator[Replacement]:
        """Behind a word that says what they are; of a list each that is such a name."""
        for match in _SAID.finditer(text):
            kind = match["kind"].lower()
            start = match.start("is")
            place = match.end()
            while name := _NAME.match(text, place):
                quote = name["quote"]
                bare = name["name"].rstrip(".-")
                if not self._is_said(kind, match["is"].strip() or quote, bare):
                    break
                end = name.end() if quote else name.start("name") + len(bare)
                # it begins before the quote, so that it comes before what is taken for a peer's words
                yield Replacement(start, end, f"{text[start:place]}{quote}{self._new(bare)}{quote}")
                comma = _NEXT.match(text, end)
                if comma is None:
                    break
                start = end
                place = comma.end()

    def _is_said(self, kind: str, sign: str, name: str) -> bool:
        """Whether the text means a name behind this word and this sign, which is "" for a space."""
        if name not in self._table.names or not self._table.is_plain(name):
            return False
        if sign and sign != "/":
            return True
        return self._is(name, _KINDS[kind]) and f"{kind.rsplit(maxsplit=1)[-1]} {name.lower()}" not in own_phrases()

    def _of_hosts(self, text: str) -> Iterator[Replacement]:
        """Before a port."""
        for match in _HOST.finditer(text):
            if self._is(match["name"], _HOSTS):
                yield Replacement(match.start(), match.end("name"), self._new(match["name"]))

    def _of_accounts(self, text: str) -> Iterator[Replacement]:
        """In the name of a service account, as the API server says who may not."""
        for match in _ACCOUNT.finditer(text):
            if self._is(match["namespace"], _NAMESPACE):
                yield Replacement(
                    match.start(), match.end(), f"{self._new(match['namespace'])}:{self._new(match['name'])}"
                )

    def _of_logs(self, pattern: re.Pattern[str], text: str) -> Iterator[Replacement]:
        """In the names of files and folders of containers' logs."""
        for match in pattern.finditer(text):
            for kind, name in match.groupdict().items():
                if name and self._table.is_plain(name):
                    yield Replacement(match.start(kind), match.end(kind), self._new(name))
