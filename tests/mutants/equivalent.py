"""Changes that no test can notice, or need not, as equivalent.toml lists them, each with the reason.

An entry names the file and the function ("exporter/usage/sm_times.py: SmTimes.add"), and the changed lines without the
space around them, so that it holds wherever these stand. Without `becomes` it is about every change of these lines.
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.changes import Change

FILE = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True, slots=True)
class Equivalent:
    """One entry; `scope` is the function or class around the line, "" for none."""

    path: str
    scope: str
    line: str
    becomes: str | None
    reason: str

    def is_about(self, change: Change) -> bool:
        """Whether it is about a change."""
        if (self.path, self.scope) != (change.path, change.scope):
            return False
        old, new = change.old_and_new()
        return old == self.line and self.becomes in {None, new}


def entries(room: str = "") -> list[Equivalent]:
    """The entries of a room; of all rooms without one."""
    tables = tomllib.loads(FILE.read_text()).get("equivalent", [])
    made = [_entry(table) for table in tables]
    return [entry for entry in made if entry.path.startswith(f"exporter/{room}")]


def of(change: Change, room_entries: Iterable[Equivalent]) -> Equivalent | None:
    """The entry about a change; None if there is none."""
    return next((entry for entry in room_entries if entry.is_about(change)), None)


def without_a_change(room_entries: Iterable[Equivalent], changes: Iterable[Change]) -> list[Equivalent]:
    """The entries that fit no change of the program any more."""
    changes = list(changes)
    return [entry for entry in room_entries if not any(entry.is_about(change) for change in changes)]


def _entry(table: dict[str, str]) -> Equivalent:
    path, _, scope = table["in"].partition(": ")
    return Equivalent(path, scope, table["line"], table.get("becomes"), table["reason"])
