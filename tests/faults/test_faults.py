"""Every fault's promise, in CI. `make faults` shows the same as a table."""

import asyncio
import os

import pytest

from tests.faults.catalogue import FAULTS
from tests.faults.endings import ENDINGS
from tests.faults.judge import Verdict, judge_all, run_alone
from tests.faults.load import LOADS
from tests.faults.soak import growth, soak


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    return {found.name: found for found in asyncio.run(judge_all(FAULTS))}


@pytest.mark.timeout(400)  # the first one waits for all: they run side by side
@pytest.mark.parametrize("name", [fault.name for fault in FAULTS])
def test_fault(verdicts: dict[str, Verdict], name: str) -> None:
    assert not verdicts[name].broken


@pytest.mark.parametrize("case", [*ENDINGS, *LOADS])
def test_case(case: object) -> None:
    assert not asyncio.run(run_alone(case)).broken  # type: ignore[arg-type]


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.timeout(180)
def test_soak() -> None:
    """A minute in CI, ten seconds elsewhere; `make soak MINUTES=10` is where a slow leak would show."""
    run = asyncio.run(soak(1.0 if os.environ.get("CI") == "true" else 10 / 60))
    assert growth(run) == []
    assert run.restarts > 0
    assert run.answers > 100
