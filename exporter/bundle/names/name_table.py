"""The names that were learned, and the new ones.

Tests: tests/bundle/names/test_hostile_names.py.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

from exporter.bundle.names.common_words import KEPT_NAMES
from exporter.bundle.names.disguise import GENERATED, Disguise

# A name that was met as several kinds is of the first of these.
KINDS: Final = (
    "node",
    "namespace",
    "pod",
    "workload",
    "claim",
    "request",
    "container",
    "pool",
    "user",
    "process",
    "image",
    "host",
    "object",
    "uid",
    "value",
)
# Names of these kinds may end in a number or in letters that were generated; the part before is then a name of its own.
_MADE = frozenset({"pod", "workload", "claim", "object"})
_ENDING = re.compile(
    rf"(?P<base>.*[^-])(?P<ending>-[{GENERATED}]{{5}}|-[{GENERATED}]{{8,10}}|-[0-9]{{8}}|-[0-9]{{1,3}})", re.DOTALL
)
_ORDINAL = re.compile(r"-[0-9]{1,3}")
WORD = re.compile(r"[^\W_]+")
_LETTER = re.compile(r"[^\W\d_]")
_WITH_UNIT = re.compile(
    r"[0-9]{1,15}(?:[KMGTkmgt]?i?[bB]?|[cgGsmhd]|ms|me|g[0-9]{1,4}gb)|[vV][0-9]{1,3}(?:(?:alpha|beta)[0-9]{1,2})?"
)
_SHORTEST = 4
_INITIALS = 2
_LONGEST = 253  # of a name of Kubernetes
# Words of the vocabulary are no names of these kinds.
_IDS = frozenset({"uid"})
# A text that is a fact of hardware is no name of these kinds, wherever else it stands.
_WEAK_KINDS = frozenset({"object", "uid", "value"})
_TRUTHS = frozenset({"true", "false", "yes", "no", "on", "off"})
_TIMES_OR_NUMBERS = re.compile(
    r"[+-]?[0-9]{1,4}|[+-]?[0-9]*\.[0-9]+|"
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]+)|v?[0-9]{1,3}(?:\.[0-9]{1,4}){1,3}|(?:[0-9.]+(?:ms|[smhd]))+",
    re.IGNORECASE,
)


class NameTable:
    """Learns names until `settle`, and then gives the new ones. Before, every name stays as it is."""

    def __init__(self, disguise: Disguise, vocabulary: AbstractSet[str], taken: Collection[str]) -> None:
        """`vocabulary` are words in small letters that stay, `taken` are texts that no new name may be."""
        self.vocabulary = vocabulary
        self.is_settled = False
        self.is_common = lru_cache(maxsize=20_000)(self._is_common)
        self._disguise = disguise
        self._taken = taken
        self._kinds: dict[str, str] = {}
        self._all_kinds: defaultdict[str, set[str]] = defaultdict(set)
        self._selected: set[str] = set()
        self._rewritten: dict[str, Callable[[str], str]] = {}
        self._denied: set[str] = set()
        self._families: set[str] = set()
        self._families_met: set[str] = set()
        self._own: set[str] = set()
        self._facts: set[str] = set()
        self._whole_facts: set[str] = set()
        self._words: dict[str, str] = {}
        self._new: dict[str, str] = {}
        self._of_parts: dict[str, str] = {}
        self._names: dict[str, str] = {}

    @property
    def names(self) -> Mapping[str, str]:
        """The new names by the old ones."""
        return self._names

    def name(self, kind: str, text: str) -> str:
        """A name of one of `KINDS`."""
        if self._stays(kind, text):
            return text
        if not self.is_settled:
            before = self._kinds.get(text, kind)
            self._kinds[text] = min(before, kind, key=KINDS.index)
            self._all_kinds[text].add(kind)
        return self._new.get(text, text)

    def kinds(self, text: str) -> AbstractSet[str]:
        """The kinds of names that a text was met as."""
        return self._all_kinds.get(text, frozenset())

    def select(self, value: str) -> None:
        """Learn a label's value by which a setting chooses. If it is a common word, it stays as a value."""
        if self.is_plain(value):
            self._selected.add(value)

    def is_plain(self, name: str) -> bool:
        """Whether a name is one word that is of the vocabulary, or short: in a text it may be no name at all."""
        if len(name) >= _SHORTEST and not self.is_common(name):
            return False
        return WORD.fullmatch(name) is not None

    def _stays(self, kind: str, text: str) -> bool:
        """Whether a name is nobody's own: a number, a time, or one that every cluster has."""
        if not text or text in KEPT_NAMES or _TIMES_OR_NUMBERS.fullmatch(text):
            return True
        if kind == "value" and (text in self._selected or text.lower() in _TRUTHS or _WITH_UNIT.fullmatch(text)):
            return True
        return kind in _IDS and self.is_plain(text) and self.is_common(text)

    def _is_common(self, word: str) -> bool:
        """Whether a word is of the vocabulary, with or without a number behind it, or a number with a unit."""
        lower = word.lower()
        if lower in self.vocabulary or not _LETTER.search(word) or _WITH_UNIT.fullmatch(word):
            return True
        without_number = lower.rstrip("0123456789")
        return len(without_number) > 1 and without_number in self.vocabulary

    @property
    def rewritten(self) -> Mapping[str, str]:
        """The new texts of those whose replacement follows from their parts."""
        return self._of_parts

    def rewrite(self, text: str, new: Callable[[str], str]) -> str:
        """A text that is a name as a whole, and whose replacement follows from its parts by `new`."""
        if not self.is_settled:
            self._rewritten[text] = new
            new(text)
            return text
        return self._of_parts.get(text) or new(text)

    def word(self, word: str) -> str:
        """A word that is no text of the program: replaced unless it is of the vocabulary, or of one or two letters."""
        if len(word) <= _INITIALS or self.is_common(word):
            return word
        if not self.is_settled:
            self._denied.add(word.lower())
        return self._words.get(word.lower(), word)

    def swept(self, word: str) -> str:
        """A word of a text of the program: replaced if it is a part of some name, or in letters that it never uses."""
        if not word.isascii():
            return self.word(word)
        return self._words.get(word.lower(), word) if len(word) > _INITIALS else word

    def family(self, name: str) -> None:
        """Learn the name of a family of samples. Its words are the vendor's."""
        if name in self._families_met:
            return
        self._families_met.add(name)
        self._families.update(word.lower() for word in WORD.findall(name))

    def own(self, text: str) -> None:
        """Learn a text whose words are the user's even where they stand in names of families or of their labels."""
        self._own.update(word.lower() for word in WORD.findall(text) if len(word) > _INITIALS)

    def fact(self, text: str) -> None:
        """Learn a text about hardware. Its words may stay elsewhere, too, unless they are a part of some name."""
        self._facts.update(word.lower() for word in WORD.findall(text))
        self._whole_facts.add(text)

    def settle(self) -> None:
        """Make the new names. From now on nothing is learned."""
        self._families -= self._own
        for text in self._whole_facts:
            if self._kinds.get(text) in _WEAK_KINDS:
                del self._kinds[text]
        parts = {text: self._parts(text, kind) for text, kind in self._kinds.items()}
        roots: dict[str, str] = {}
        for text, (root, *_) in parts.items():
            kind = self._kinds[text]
            roots[root] = min(roots.get(root, kind), kind, key=KINDS.index)
            self._all_kinds[root].add(kind)
        self._new = dict(self._numbered(roots))
        # the names of nodes first, with which others end
        for text in sorted(parts, key=lambda text: KINDS.index(self._kinds[text])):
            root, *endings = parts[text]
            self._new[text] = "".join((self._new.get(root, root), *map(self._new_ending, endings)))
        self._words = dict(self._new_words())
        self.is_settled = True
        self._names = self._new
        self._of_parts = {text: new(text) for text, new in self._rewritten.items()}
        # a text may also be a name; where it stands alone in a text, that counts
        self._names = {**self._of_parts, **self._new}

    def _parts(self, text: str, kind: str) -> Sequence[str]:
        """The part of a name that is replaced by a number, and its endings of forms of their own."""
        if kind not in _MADE or len(text) > _LONGEST:
            return (text,)
        for dash in range(1, len(text)):  # a static pod's name ends with its node's
            if text[dash] == "-" and self._kinds.get(text[dash + 1 :]) == "node":
                return text[:dash], text[dash:]
        endings: list[str] = []
        while match := _ENDING.fullmatch(text):
            endings.insert(0, match["ending"])
            text = match["base"]
        return (text, *endings)

    def _new_ending(self, ending: str) -> str:
        """The ending in a form that decides the same: a number, a node's name, or generated letters."""
        if not ending or _ORDINAL.fullmatch(ending):
            return ending
        node = self._new.get(ending[1:])
        if node:
            return f"-{node}"
        return ending if ending[1:].isdigit() else self._disguise.generated(ending)

    def _numbered(self, kinds: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """New names with numbers, in the order of the old ones, so that sorted names stay sorted."""
        of_kind: defaultdict[str, list[str]] = defaultdict(list)
        for text, kind in kinds.items():
            if not self._stays(kind, text):
                of_kind[kind].append(text)
        for kind, texts in of_kind.items():
            width = len(str(len(texts)))
            new = self._free(f"{kind}-", width)
            yield from zip(sorted(texts), new, strict=False)

    def _new_words(self) -> Iterator[tuple[str, str]]:
        """New words for all words of names, and for those that were denied."""
        words = self._own | (self._denied - self._facts)
        for text in (*self._kinds, *self._rewritten):
            words.update(word.lower() for word in WORD.findall(text) if len(word) >= _SHORTEST)
        words = {word for word in words - self._families if not self.is_common(word)}
        return zip(sorted(words), self._free("word", len(str(len(words)))), strict=False)

    def _free(self, start: str, width: int) -> Iterator[str]:
        """Names that begin so, with numbers, which nobody has."""
        number = 0
        while True:
            number += 1
            new = f"{start}{number:0{width}}"
            if new not in self._taken:
                yield new
