"""What `make mutants` works with (tests/mutants): its rules, its 31 faults, and the reasons why some changes live."""

import ast

import pytest

from tests.mutants import changes, equivalent, operators
from tests.mutants.faults import FAULTS, changes_of_faults
from tests.mutants.operators import changes_of_file
from tests.mutants.pool import ENDED, in_forks

CODE = '''"""A file: 1 < 2."""
LIMIT = 10


class Device:
    share: float = 0.5

    @property
    def is_free(self, most: int = 3) -> bool:
        if self.held and not self.gone:
            return self.held < most
        return True


def count(amounts: list[int]) -> int:
    total = 0
    for amount in amounts or ():
        total += amount
    total = max(total, LIMIT)
    return total - 1
'''
MADE = {
    ("", "LIMIT = 10", "LIMIT = 11"),
    ("Device", "share: float = 0.5", "share: float = 1.0"),
    ("Device.is_free", "def is_free(self, most: int = 3) -> bool:", "def is_free(self, most: int = 4) -> bool:"),
    ("Device.is_free", "if self.held and not self.gone:", "if self.held or not self.gone:"),
    ("Device.is_free", "if self.held and not self.gone:", "if True and not self.gone:"),
    ("Device.is_free", "if self.held and not self.gone:", "if self.held and True:"),
    ("Device.is_free", "if self.held and not self.gone:", "if self.held and (self.gone):"),
    ("Device.is_free", "return self.held < most", "return self.held <= most"),
    ("Device.is_free", "return self.held < most", "return self.held >= most"),
    ("Device.is_free", "return self.held < most", "return None"),
    ("Device.is_free", "return True", "return None"),
    ("Device.is_free", "return True", "return False"),
    ("count", "total = 0", "pass"),
    ("count", "total = 0", "total = 1"),
    ("count", "for amount in amounts or ():", "for amount in amounts and ():"),
    ("count", "for amount in amounts or ():", "for amount in False or ():"),
    ("count", "total += amount", "total -= amount"),
    ("count", "total += amount", "pass"),
    ("count", "total = max(total, LIMIT)", "pass"),
    ("count", "total = max(total, LIMIT)", "total = min(total, LIMIT)"),
    ("count", "return total - 1", "return total + 1"),
    ("count", "return total - 1", "return total - 2"),
    ("count", "return total - 1", "return None"),
}


@pytest.fixture
def in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of the repository is CODE."""
    monkeypatch.setattr(changes, "source_of", lambda _: CODE.encode())
    monkeypatch.setattr(operators, "source_of", lambda _: CODE.encode())
    monkeypatch.setattr(changes, "tree_of", lambda _: ast.parse(CODE))
    monkeypatch.setattr(operators, "tree_of", lambda _: ast.parse(CODE))


@pytest.mark.usefixtures("in_a_file")
def test_each_rule_makes_its_changes() -> None:
    made = [*changes_of_file("made.py")]
    assert all(change.is_valid() for change in made)
    assert {(change.scope, *change.old_and_new()) for change in made} == MADE
    assert len(made) == len(MADE)


@pytest.mark.usefixtures("in_a_file")
def test_a_change_is_shown_with_its_place() -> None:
    change = next(change for change in changes_of_file("made.py") if change.text == b"<=")
    assert change.diff().split("\n") == [
        "made.py:11 Device.is_free",
        "             if self.held and not self.gone:",
        "    -            return self.held < most",
        "    +            return self.held <= most",
        "             return True",
    ]
    assert [*changes.lines_that_reach(change)] == [11]


def test_each_fault_fits_its_file() -> None:
    assert all(change.is_valid() for change in changes_of_faults())
    assert len({fault.says for fault in FAULTS}) == len(FAULTS) == 31


def test_each_reason_is_about_a_change_that_can_be_made() -> None:
    entries = equivalent.entries()
    assert all(entry.reason for entry in entries)
    paths = {entry.path for entry in entries}
    assert equivalent.without_a_change(entries, [change for path in paths for change in changes_of_file(path)]) == []


def test_a_job_that_never_ends_is_ended() -> None:
    def run(number: int) -> str:
        while number:
            pass
        return "ran"

    assert dict(in_forks([5, 1], run, 2)) == {0: "ran", 1: ENDED}
