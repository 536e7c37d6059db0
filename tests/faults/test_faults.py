"""Every fault's promise, in CI. `make faults` shows the same as a table."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tests.faults.black_hole import lines_of_a_fall
from tests.faults.catalogue import FAULTS
from tests.faults.endings import ENDINGS
from tests.faults.judge import Verdict, judge_all, run_alone
from tests.faults.load import LOADS
from tests.faults.soak import growth, soak


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What came of the faults, by their names, and of the black hole."""

    verdicts: Mapping[str, Verdict]
    black_hole: Mapping[str, str] | BaseException


@pytest.fixture(scope="module")
def seen() -> Seen:
    """All side by side, since most of it is waiting."""

    async def run() -> Seen:
        # where it cannot be made here, its own test says so
        verdicts, hole = await asyncio.gather(judge_all(FAULTS), lines_of_a_fall(), return_exceptions=True)
        if isinstance(verdicts, BaseException):
            raise verdicts
        return Seen(verdicts={found.name: found for found in verdicts}, black_hole=hole)

    return asyncio.run(run())


@pytest.mark.timeout(400)  # the first one waits for all
@pytest.mark.parametrize("name", [fault.name for fault in FAULTS])
def test_fault(seen: Seen, name: str) -> None:
    assert not seen.verdicts[name].broken


# issue 7, line 6
@pytest.mark.real
@pytest.mark.timeout(400)
def test_a_watch_into_a_black_hole_is_noticed_within_45_seconds(seen: Seen) -> None:
    if isinstance(seen.black_hole, BaseException):
        raise seen.black_hole
    assert seen.black_hole.keys() == {"watch", "request"}
    for what, line in seen.black_hole.items():
        seconds, _, says = line.partition(" ")
        assert 10 < float(seconds) < 45, (what, line)
        assert "the Kubernetes API at http://192.0.2.2:6443" in says
    assert "nothing has come back for 30 s" in seen.black_hole["watch"]


@pytest.mark.parametrize("case", [*ENDINGS, *LOADS])
def test_case(case: object) -> None:
    assert not asyncio.run(run_alone(case)).broken  # type: ignore[arg-type]


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.timeout(180)
def test_soak() -> None:
    """Half a minute in CI, ten seconds elsewhere; `make soak MINUTES=10` is where a slow leak would show."""
    run = asyncio.run(soak(0.5 if os.environ.get("CI") == "true" else 10 / 60, pause_seconds=0.25))
    assert growth(run) == []
    assert run.restarts > 0
    assert run.answers > 100
