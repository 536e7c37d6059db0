"""/static/page.css and /static/page.js: the two files of the page, as they are in this package.

A file is read when somebody first asks for the page: most exporters are only ever scraped. Its address holds a hash of
its content, so that a browser asks once for each version.
"""

from functools import cache
from hashlib import sha256
from pkgutil import get_data
from typing import Any

from exporter.outputs.output import NOTHING, Answer, AnyLook, Output

_FOLDER = "/static/"
_FOR_GOOD = ("Cache-Control", "max-age=31536000, immutable")
# whoever asks for no version gets the present one, and must ask again
_FOR_NOW = ("Cache-Control", "no-cache")


@cache
def _content(name: str) -> tuple[bytes, str]:
    """The file, and its version."""
    content = get_data(__package__, name) or b""
    return content, sha256(content).hexdigest()[:12]


def address(output: Output[Any]) -> str:
    """Where the page finds a file: relative to the page, which a proxy may have moved."""
    name = output.path.removeprefix(_FOLDER)
    return f"{output.path.removeprefix('/')}?v={_content(name)[1]}"


def _output(name: str, content_type: str) -> Output[Any]:
    def make(look: AnyLook) -> Answer:
        content, version = _content(name)
        cached = _FOR_GOOD if ("v", version) in look.question.query else _FOR_NOW
        return Answer(content_type, (content,), len(content), headers=(cached,))

    return Output(path=_FOLDER + name, says="", make=make, needs=NOTHING)


STYLE = _output("page.css", "text/css; charset=utf-8")
SCRIPT = _output("page.js", "text/javascript; charset=utf-8")
