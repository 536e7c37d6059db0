"""The generations of DCGM that a page can be of. exposition/generations.py finds them.

Tests: tests/exposition/test_generations.py.
"""

from dataclasses import dataclass
from typing import Any

SHELL = "1.x"
OLDER = "4.8"
NEWER = "4.9"
BOTH = "both"


@dataclass(frozen=True, slots=True)
class PageGeneration:
    """The oldest and the newest DCGM that a page can be of, as versions; "" where nothing is known of it.

    `names` are SHELL, OLDER (those up to dcgm-exporter 4.8), NEWER (since DCGM 4.6, by default since dcgm-exporter 4.9)
    or BOTH; "" if no name of the page tells.
    `contradicts`: no generation has all that the page has, as on a page that several exporters made.
    """

    first: str = ""
    last: str = ""
    names: str = ""
    contradicts: bool = False

    def says(self) -> str:
        """A few words on it; "" if nothing is known."""
        if self.names == SHELL:
            return "the shell version of dcgm-exporter (1.x)"
        if self.contradicts:
            return "several generations of DCGM: none of them has all its names and labels"
        if not self.last:
            return ""
        names = {
            OLDER: ", with the names up to dcgm-exporter 4.8",
            NEWER: ", with the newer names",
            BOTH: ", with older and newer names",
        }
        span = self.first if self.first == self.last else f"{self.first} to {self.last}"
        return f"DCGM {span}{names.get(self.names, '')}"

    def as_json(self) -> dict[str, Any]:
        """For /debug/mapping: the oldest and the newest DCGM, and whose names the page has."""
        return {"first": self.first, "last": self.last, "names": self.names, "contradicts": self.contradicts}
