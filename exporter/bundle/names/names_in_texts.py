"""Names and ids that stand in a text: in the program's own words, in a path, in a URL.

Tests: tests/bundle/names/test_hostile_names.py.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

from exporter.bundle.names.disguise import HEX, Disguise
from exporter.bundle.names.kept_keys import KEPT_DOMAINS, KEPT_KEYS, is_well_known
from exporter.bundle.names.name_table import WORD, NameTable
from exporter.bundle.names.names_in_places import NamesInPlaces, Replacement

_UUID = r"[0-9a-fA-F]{8}(?:[-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{12}"
# forms that begin behind a letter, too
_ANYWHERE = r"""(?P<key>-----BEGIN[\s\S]*?(?:-----END[^-]*-----|\Z))|(?P<home>/(?:home|Users)/[^/\s"':,;]+)"""
# All others begin where a word may. This is asked once at each place, since most places are in a word.
_FORMS = rf"""(?P<secret>(?<!\w)(?:(?i:authorization)["']?\s*[:=]\s*["']?(?:\w+\s+)?[^\s"']+
    |(?i:bearer)\s+[\w.~+/=-]{{16,}}
    |(?i:password|passwd|pwd|token|secret|api_?key|access_?key)=[^\s"'&,;]+
    |eyJ[\w-]{{8,2000}}\.[\w-]+\.[\w-]+|AKIA[0-9A-Z]{{16}}(?![\w]))
    |(?<![\w/.])[\w.-]{{1,64}}:[^\s@/:"']{{1,256}}(?=@[\w.-]))
    |(?P<url>(?<![\w])[a-zA-Z][a-zA-Z0-9+.-]{{0,30}}://[^\s"'<>`\\,;)\]}}]*)
    |(?P<host>(?<![\w.-])(?:ip-[0-9]{{1,3}}(?:-[0-9]{{1,3}}){{3}}(?:\.[\w-]+)*
    |[\w-]+(?:\.[\w-]+)*\.internal)(?![\w-]))
    |(?P<email>(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
    |(?P<id>{_UUID}(?![0-9a-zA-Z])
    |[0-9a-fA-F]{{32,}}(?![0-9a-zA-Z])
    |(?<![0-9a-zA-Z])[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{8}}){{2,}}(?![0-9a-zA-Z]))
    |(?P<stays>(?<!\w)[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T[0-9:.]{{5,}}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})?
    |(?<![0-9a-zA-Z:])[0-9a-fA-F]{{4,8}}:[0-9a-fA-F]{{2}}:[0-9a-fA-F]{{2}}(?:\.[0-7])?(?![0-9a-zA-Z:]))
    |(?P<mac>(?<![0-9a-zA-Z:])[0-9a-fA-F]{{2}}(?::[0-9a-fA-F]{{2}}){{5,7}}(?![0-9a-zA-Z:]))
    |(?P<address>(?<![\w.])[0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{3}}(?!\.?[0-9a-zA-Z])
    |(?<![\w:.-])(?=[0-9a-fA-F]{{0,4}}:[0-9a-fA-F]{{0,4}}:)[0-9a-fA-F:]+(?:[0-9.]+)?(?![\w:]))
    |(?P<cut>(?<![0-9a-zA-Z])[0-9a-f]{{8,63}}(?:-[0-9a-f]{{1,4}}){{0,5}}(?![0-9a-zA-Z]))"""
_BEGINS = r"(?:(?<![0-9a-zA-Z])|(?<=pod))(?=[\w.+:-]\S\S)"
_SPECIAL = re.compile(rf"{_ANYWHERE}|{_BEGINS}(?:{_FORMS})", re.VERBOSE)
# a path, or words of a peer, in a text of the program
_SPECIAL_OF_TEXT = re.compile(
    rf"""(?P<path>/(?<![\w/.:*}}]/)[^\s"'<>`,;:()]+)
    |(?P<quoted>"(?<!\w")[^"\n]{{1,300}}"|'(?<!\w')[^'\n]{{1,300}}'(?!\w))
    |{_ANYWHERE}|{_BEGINS}(?:{_FORMS})""",
    re.VERBOSE,
)
_LONG_WORD = re.compile(r"[^\W_]{3,}")  # initials are nobody's words
_LOCAL = frozenset({"", "localhost", "localhost.localdomain", "*"})
_CUT = 8
_PARTS_OF_ID = re.compile(r"(?P<kind>(?:MIG-|GPU-)+)(?P<id>[^:\s]+)(?P<share>(?:::.*)?)", re.DOTALL)
_LONG_NUMBER = re.compile(r"[0-9]{8}")
_SHORTEST = 4
# of names that are looked for in texts; longer values go word by word
_LONGEST = 512
_INDEXED = 16  # characters by which a longer name is looked up
GONE = "left-out"


class NamesInTexts:
    """Replaces names and ids in texts. It learns ids and hosts as long as the table is not settled."""

    def __init__(self, table: NameTable, disguise: Disguise) -> None:
        self._table = table
        self._disguise = disguise
        self._ids: defaultdict[str, set[str]] = defaultdict(set)  # their digits, by the first few
        self._lengths: dict[str, list[int]] = {}
        self._weak: frozenset[str] = frozenset()
        self._has_plain = False
        self._places = NamesInPlaces(table)
        self._cached = lru_cache(maxsize=50_000)(self._scan)

    def settle(self) -> None:
        """Take the names of the table, which is settled."""
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        weak = set()
        for name, new in self._table.names.items():
            words = WORD.findall(name)
            if not words or name == new or len(name) > _LONGEST:
                continue
            if self._table.kinds(name) and self._table.is_plain(name):
                self._has_plain = True
                continue
            if len(words) == 1 and len(name) < _SHORTEST:
                continue
            if len(name) < _SHORTEST or all(map(self._table.is_common, words)):
                weak.add(name)
            if name.startswith(words[0]):
                lengths[words[0] if len(name) <= _INDEXED else name[:_INDEXED]].add(len(name))
        self._weak = frozenset(weak)
        self._lengths = {word: sorted(of_word, reverse=True) for word, of_word in lengths.items()}
        self._cached.cache_clear()

    def text(self, text: str) -> str:
        """A text of this program or of a peer: names and ids in it are replaced, and other words stay."""
        return self._cached(text, False)

    def strict(self, text: str) -> str:
        """A text in which only words of the vocabulary stay: a path, a setting, an unknown field."""
        return self._cached(text, True)

    def words(self, text: str) -> str:
        """A text without ids, such as a version: only words that are a part of some name are replaced."""
        return WORD.sub(lambda match: self._table.swept(match[0]), text)

    def wordwise(self, text: str) -> str:
        """A text whose words are replaced one by one, so that patterns for it can be: a resource, a label's name."""
        return self._table.rewrite(text, self._by_words)

    def opaque(self, text: str) -> str:
        """A text that is an id as a whole, whatever its form is. One of common words and small numbers stays."""
        is_plain = all(map(self._table.is_common, WORD.findall(text))) and not _LONG_NUMBER.search(text)
        if is_plain or self.is_partly_special(text):
            return self.strict(text)
        return self._table.rewrite(text, self._opaque)

    def _opaque(self, text: str) -> str:
        """The text with a name for what identifies the device: what is around it says what the id is."""
        match = _PARTS_OF_ID.fullmatch(text)
        if match is None:
            return self._table.name("uid", text)
        return f"{match['kind']}{self._table.name('uid', match['id'])}{match['share']}"

    def serial(self, text: str) -> str:
        """A serial number."""
        return self._disguise.serial(text)

    def is_special(self, text: str) -> bool:
        """Whether a text is, as a whole, an id, an address or a URL."""
        match = _SPECIAL.fullmatch(text)
        return match is not None and self._of_special(match) is not None

    def is_partly_special(self, text: str) -> bool:
        """Whether there is an id, an address or a URL in a text."""
        return any(self._of_special(match) is not None for match in _SPECIAL.finditer(text))

    def host(self, text: str) -> str:
        """A host, with or without a port."""
        bare = text.removeprefix("[")
        name, colon, port = bare.rpartition("]" if text.startswith("[") else ":")
        if not colon or (port and not port.removeprefix(":").isdigit()):
            name, port, colon = text, "", ""
        if name.lower() in _LOCAL:
            return text
        if self.is_special(name):  # such as an id behind containerd://
            return f"{self.strict(name)}{colon}{port}"
        try:
            new = self._disguise.address(name)
        except ValueError:
            new = self._table.name("host", name)
        return f"[{new}]{port}" if text.startswith("[") else f"{new}{colon}{port}"

    def url(self, text: str) -> str:
        """A URL, without the user and the password in it."""
        scheme, _, rest = text.partition("://")
        place, slash, path = rest.partition("/")
        place = place.rpartition("@")[2]
        question = ""
        if not slash and "?" in place:
            place, slash, path = place.partition("?")
        if "?" in path:
            path, question, query = path.partition("?")
            question += self.strict(query)
        new_host = self.host(place) if scheme != "file" else self.strict(place)
        return f"{self.strict(scheme)}://{new_host}{self.strict(slash + path)}{question}"

    def _by_words(self, text: str) -> str:
        """The text with every word of its own replaced. What belongs to an allocator or a vendor stays."""
        domain, slash, name = text.partition("/")
        if text in KEPT_KEYS or is_well_known(text):
            return text
        if slash and domain in KEPT_DOMAINS:
            return f"{domain}/{WORD.sub(lambda match: self._table.word(match[0]), name)}"
        return WORD.sub(lambda match: self._table.word(match[0]), text)

    def _scan(self, text: str, is_strict: bool) -> str:
        """The text with every span replaced, and what is between them by words."""
        of_word = self._table.word if is_strict else self._table.swept
        pieces: list[str] = []
        end = 0
        for span in self._spans(text, _SPECIAL if is_strict else _SPECIAL_OF_TEXT):
            pieces += (_LONG_WORD.sub(lambda match: of_word(match[0]), text[end : span.start]), span.new)
            end = span.end
        pieces.append(_LONG_WORD.sub(lambda match: of_word(match[0]), text[end:]))
        return "".join(pieces)

    def _spans(self, text: str, forms: re.Pattern[str]) -> Iterator[Replacement]:
        """The names and ids, from left to right. Of two that begin at one place the longer one counts."""
        names = self._names_in(text)
        name = next(names, None)
        end = 0
        for match in forms.finditer(text):
            new = self._of_special(match)
            if new is None:
                continue
            special = Replacement(match.start(), match.end(), new)
            while name and (name.start, -name.end) <= (special.start, -special.end):
                if name.start >= end:
                    yield name
                    end = name.end
                name = next(names, None)
            if special.start >= end:
                yield special
                end = special.end
        while name:
            if name.start >= end:
                yield name
                end = name.end
            name = next(names, None)

    def _names_in(self, text: str) -> Iterator[Replacement]:
        """The longest known name at each word's beginning, and names where the text says what they are.

        They may overlap.
        """
        places = self._places.names_in(text) if self._has_plain else []
        if not places:
            return self._known_in(text)
        return iter(sorted((*self._known_in(text), *places), key=lambda name: (name.start, -name.end)))

    def _known_in(self, text: str) -> Iterator[Replacement]:
        """The longest known name at each word's beginning, but for common words."""
        if not self._lengths:
            return
        for match in WORD.finditer(text):
            start = match.start()
            begins = self._lengths.get(text[start : start + _INDEXED], ())
            for length in (*begins, *self._lengths.get(match[0], ())):
                end = start + length
                name = text[start:end]
                new = self._table.names.get(name)
                if new is not None and len(name) == length and self._stands_alone(text, start, end, name):
                    yield Replacement(start, end, new)
                    break

    def _stands_alone(self, text: str, start: int, end: int, name: str) -> bool:
        """Whether no word goes on behind a name. One of common words must not be a part of a longer name, too."""
        if text[end : end + 1].isalnum():
            return False
        if name not in self._weak:
            return True
        is_behind = start > 0 and text[start - 1] in ("-._" if "_" in name else "-.")
        return not is_behind and not (text[end : end + 1] in tuple("-.") and text[end + 1 : end + 2].isalnum())

    def _of_special(self, match: re.Match[str]) -> str | None:
        """What takes the place of an id, an address, a URL or a secret; None if it is none after all."""
        text = match[0]
        match match.lastgroup:
            case "secret" | "key":
                return GONE
            case "url":
                return self.url(text)
            case "email":
                user, _, host = text.partition("@")
                return f"{self._table.name('user', user)}@{self.host(host)}"
            case "host":  # as clouds name their machines
                return self._table.name("host", text)
            case "home":
                folder, user = text.rsplit("/", 1)
                return f"{folder}/{self._table.name('user', user)}"
            case "id" | "mac":
                self._learn(text)
                return self._disguise.id(text)
            case "address":
                return self._address(text)
            case "path" | "quoted":
                return self.strict(text)
            case "cut":
                return self._disguise.id(text) if self._is_cut(text) else None
        return text

    def _address(self, text: str) -> str | None:
        """The new address; None if the text, such as a version, is none."""
        try:
            return self._disguise.address(text)
        except ValueError:
            return None

    def _learn(self, text: str) -> None:
        """Remember an id, so that its beginning alone is known again."""
        digits = "".join(char for char in text.lower() if char in HEX)
        self._ids[digits[:_CUT]].add(digits)

    def _is_cut(self, text: str) -> bool:
        """Whether a text is the beginning of an id that was met."""
        digits = text.replace("-", "")
        return any(known_id.startswith(digits) for known_id in self._ids.get(digits[:_CUT], ()))
