"""The XIDs that data centres see: what each means, what causes it mostly, and what to do, which says how bad it is.

They are in xids.json, by NVIDIA's catalogue of XIDs (docs.nvidia.com/deploy/xid-errors, r590) in our own words; where
it tells GPUs apart, as for A100 and later. The names are dcgm-exporter's, which writes that of the last error beside
its number. Those of one long row are of copies, videos and bad commands, and those that the GPU survives. Nothing is
wrong with a GPU whose program is to be mended or started again.
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
    """An XID in short, its usual cause, what to do, and what it says of its GPU.

    One that only `informs` is no error: nobody counts it, and no alert or warning tells of it. `is_program_end`: it
    says that a program has come to its end, which the pod may want to know.
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


OTHER_XID = _meaning(UNKNOWN_XID, remedy="look up")
XIDS: Mapping[int, XidMeaning] = MappingProxyType(
    {xid: _meaning(**row) for xids, row in ((row.pop("xids"), row) for row in _CONTENT["xids"]) for xid in xids}
)


def verdict_of(code: int, *, is_fatal: bool = False) -> Verdict:
    """What an XID says of its GPU; `is_fatal` where its text says so, as that of NVLink's errors since Blackwell."""
    if code == _FALLEN_OFF:
        return "gone"
    return "failing" if is_fatal else XIDS.get(code, OTHER_XID).verdict


def is_error(code: int) -> bool:
    """Whether an XID is an error. XID 154 is none: it says what the driver recommends, mostly after one."""
    return not XIDS.get(code, OTHER_XID).informs


def error_on_page(last: float | None) -> int | None:
    """A page's last XID; None where the page has none (0), and for one that is no error."""
    return int(last) if last and is_error(int(last)) else None
