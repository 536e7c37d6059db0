"""What happened to a GPU's links: errors that began, and links that went down.

Tests: tests/ownership/test_link_states.py.
"""

from dataclasses import dataclass
from typing import Final

from exporter.errors import Trouble
from exporter.model.pods import Owner

ERRORS_BEGAN: Final = "errors of NVLink began"
WENT_DOWN: Final = "a link of NVLink went down"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkEvent:
    """An event at a moment in seconds since 1970; `name` is one of the two above.

    `trouble` says which links, and what to do. `holders` held the GPU then, and at the look before; None if it changed
    hands in between, so that nobody can say whose it was. `index` is the GPU's number, "" if nobody says it.
    """

    at_seconds: float
    name: str
    uuid: str
    index: str
    trouble: Trouble
    holders: tuple[Owner, ...] | None
