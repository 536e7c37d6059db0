"""The program's own words: those that it writes itself, in every bundle alike. All others came from outside. Pure.

They are made of the program's own files as they are installed: the texts in the code that a node's exporter and doctor
run, the names of fields and arguments there, and the tables. Docstrings and comments are no part of them, and neither
is the simulator: its pods and nodes have names such as users give. A word has three letters or more, in lower case;
digits and signs part words.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

# Rooms whose words no bundle has: what is simulated, and what other programs say.
_OTHER_ROOMS = frozenset({"simulator", "_gen", "report", "top", "operator", "cluster", "kubectl", "__pycache__"})
_TABLES = (".json", ".tsv")
_CODE = re.compile(
    r'"""[\s\S]*?"""'  # docstrings, as all long texts are here
    r"|#[^\n]*"
    r"|(?P<text>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|^ +(?P<field>\w+):"
    r"|(?P<argument>\w+)="
    r"|^(?P<constant>[A-Z_]+) =",
    re.MULTILINE,
)
# of a table, in which texts are such as users give
_EXAMPLES = re.compile(r'"examples?": (?:"(?:\\.|[^"\\])*"|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|\[[^\]]*\])')
_ESCAPE = re.compile(r"\\[nrtbfx]")
_WORD = re.compile(r"[^\W\d_]{3,}")
_PHRASE = re.compile(
    r"(?<![\w./-])(?P<token>[a-z]+(?:/[a-z]+){1,2})(?![\w/])|(?<!\w)(?P<kind>[A-Za-z]+?)s?[ ](?=(?P<next>[a-z]+))"
)
# Words of peers that the program does not name itself.
_OF_PEERS = (
    "bios blacklisted builder buildd collected cpython dma epoch excluded fds gcc implementation maximum patchlevel"
    " uncollectable resident virtual"
    " asserts bound boot bytes cmdline comm compute core cpu cuda debug devices driver error events exporter false"
    " gib gpu gpus graphics gsp host image info inf int interface irq kernel kernels kib kubelet library linux"
    " list loaded major mib mig minor mode module model name nan node none null number nvidia nvidiactl nvlink"
    " nvml nvrm nvswitch open pcie persistence pid proc product production rate release retired sbe dbe serial"
    " source status system tesla total true type unix unknown usage utc uuid uvm video version volatile xid"
)


def words_of(text: str) -> Iterator[str]:
    """The words of a text, in lower case, as often as they are there."""
    return (match[0].lower() for match in _WORD.finditer(text))


@cache
def own_words() -> frozenset[str]:
    """The program's own words, in small letters."""
    root = files("exporter")
    words = set(words_of(_OF_PEERS))
    for file in _files(root):
        content = file.read_text("utf-8")
        if file.name.endswith(_TABLES):
            words.update(words_of(_EXAMPLES.sub(" ", content)))
        else:
            words.update(_words_of_code(content))

    return frozenset(words)


@cache
def own_phrases() -> frozenset[str]:
    """What the program's own texts say where another text has a name: "pod has", "driver/pool/device"."""
    phrases: set[str] = set()
    for file in _files(files("exporter")):
        content = file.read_text("utf-8")
        texts = [content]
        if not file.name.endswith(_TABLES):
            texts = [match["text"] for match in _CODE.finditer(content) if match["text"]]
        for text in texts:
            for match in _PHRASE.finditer(text):
                phrases.add(match["token"] or f"{match['kind']} {match['next']}".lower())

    return frozenset(phrases)


def foreign_words(text: str) -> list[str]:
    """The words of a text that are not the program's own, in their order."""
    own = own_words()
    return [word for word in words_of(text) if word not in own]


def _files(folder: Traversable) -> Iterator[Traversable]:
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name not in _OTHER_ROOMS:
                yield from _files(entry)
        elif entry.name.endswith((".py", *_TABLES)):
            yield entry


def _words_of_code(code: str) -> Iterable[str]:
    """The words of texts, fields and arguments in a file of Python."""
    for match in _CODE.finditer(code):
        kind = match.lastgroup
        if kind is not None:
            yield from words_of(_ESCAPE.sub(" ", match[kind]).replace("_", " "))
