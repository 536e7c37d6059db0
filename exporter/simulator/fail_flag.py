"""`demo --fail`: what fails, and when.

Tests: tests/simulator/test_links.py.
"""

import math
from typing import NamedTuple

_USUAL_SECONDS = 30.0
_KINDS = ("gpu", "link")


class Fails(NamedTuple):
    """After how many seconds what fails; never if it is infinite."""

    gpu_seconds: float = math.inf
    link_seconds: float = math.inf


NEVER = Fails()


def fails_of(text: str) -> Fails:
    """What fails by the value of --fail: SECONDS, `gpu`, `link`, `gpu:SECONDS` or `link:SECONDS`.

    Raises ValueError: it is none of these.
    """
    kind, _, after = text.partition(":")
    if kind not in _KINDS:
        kind = "gpu"
        after = text
    seconds = _seconds_of(after) if after else _USUAL_SECONDS
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{text!r} is neither seconds nor gpu, link, gpu:SECONDS or link:SECONDS")
    return Fails(**{f"{kind}_seconds": seconds})


def _seconds_of(text: str) -> float:
    """NaN if it is no number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
