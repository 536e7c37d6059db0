"""The XIDs that data centres see: their meaning, usual cause, and what to do, which also tells how bad an XID is.

They are in xids.json, after NVIDIA's catalogue of XIDs (docs.nvidia.com/deploy/xid-errors, r590), in our own words.
If the catalogue has several texts for an XID, the text for A100 and later counts. The names are dcgm-exporter's, which
writes the name of the last error beside its number. A single long row has the XIDs of copies, videos and bad commands,
and the XIDs that the GPU survives. Nothing is wrong with a GPU if only its program must be mended or started again.

Tests: tests/ownership/test_verdicts.py.
"""

import json
from collections.abc import Mapping
from pkgutil import get_data
from types import MappingProxyType
from typing import Any, NamedTuple

from exporter.model.health import Verdict

UNKNOWN_XID = "Unknown Error"  # dcgm-exporter's own word
_FALLEN_OFF = 79
_CONTENT: Mapping[str, Any] = json.loads(get_data(__package__, "xids.json") or b"")


class XidMeaning(NamedTuple):
    """An XID's name, its usual cause, what to do, and the verdict on its GPU.

    An XID that only `informs` is no error: nobody counts it, and no alert or warning tells of it. `is_program_end`: it
    means that a program has ended, which the pod's owner may want to know.
    """

    name: str
    cause: str = ""
    remedy: str = ""
    verdict: Verdict = "ok"
    informs: bool = False
    is_program_end: bool = False


def _meaning(
    name: str, cause: str = "", remedy: str = "", *, informs: bool = False, is_program_end: bool = False
) -> XidMeaning:
    meaning = XidMeaning(name, cause, informs=informs, is_program_end=is_program_end)
    if not remedy:
        return meaning
    to_do = _CONTENT["remedies"][remedy]
    return meaning._replace(remedy=to_do["text"], verdict=to_do["verdict"])


def _meanings() -> dict[int, XidMeaning]:
    meanings: dict[int, XidMeaning] = {}
    for row in _CONTENT["xids"]:
        xids = row.pop("xids")
        meanings |= dict.fromkeys(xids, _meaning(**row))
    return meanings


OTHER_XID = _meaning(UNKNOWN_XID, remedy="look up")
XIDS: Mapping[int, XidMeaning] = MappingProxyType(_meanings())


def verdict_of(code: int, *, is_fatal: bool = False) -> Verdict:
    """The verdict of an XID on its GPU.

    `is_fatal`: its text says so, as texts of NVLink's errors do since Blackwell.
    """
    if code == _FALLEN_OFF:
        return "gone"
    return "failing" if is_fatal else XIDS.get(code, OTHER_XID).verdict


def is_error(code: int) -> bool:
    """Whether an XID is an error. XID 154 is none: it has the driver's recommendation, mostly after an error."""
    return not XIDS.get(code, OTHER_XID).informs


def error_on_page(last: float | None) -> int | None:
    """A page's last XID; None if the page has none (0), or if it is no error."""
    return int(last) if last and is_error(int(last)) else None
