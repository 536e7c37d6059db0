"""The part of the exporter's own families that ends every page of GPU metrics: the health of the sources.

Tests: tests/outputs/test_families.py.
"""

import math
from functools import lru_cache

from exporter.exposition.families import render, render_number
from exporter.model.devices import Owners
from exporter.model.snapshot import Health, Snapshot
from exporter.outputs.families.family import filled
from exporter.outputs.families.health import ASSIGNMENTS_AGE, SOURCE_DURATION, SOURCE_UP
from exporter.outputs.output import Look

SLIM = (SOURCE_UP, SOURCE_DURATION, ASSIGNMENTS_AGE)


def slim(snapshot: Snapshot) -> bytes:
    """The text of SLIM. Scrapes only have other numbers in it, so the rest is made once: 2 us instead of 6."""
    sources: list[tuple[str, bool | None, bool]] = []
    numbers: list[bytes] = []
    for name, state in snapshot.health.items():
        sources.append((name, state.up, state.duration_seconds is not None))
        if state.up is not None and state.duration_seconds is not None:
            numbers.append(render_number(state.duration_seconds))
    age = snapshot.assignments_age_seconds
    if age is not None:
        numbers.append(render_number(age))
    return _slim_text(tuple(sources), age is not None) % tuple(numbers)


_MOVES = math.nan


@lru_cache(maxsize=16)
def _slim_text(sources: tuple[tuple[str, bool | None, bool], ...], has_age: bool) -> bytes:
    """The text with a %b for each number. `sources` has, for each, its name, whether it is up and has a duration."""
    snapshot = Snapshot(
        node="",
        owners=Owners(),
        joined=None,
        health={name: Health(up=up, duration_seconds=_MOVES if timed else None) for name, up, timed in sources},
        assignments_age_seconds=_MOVES if has_age else None,
    )
    text = render(filled(SLIM, Look(snapshot=snapshot)))
    # names of sources have no line end, so only a number can end a line in this way
    return text.replace(b"%", b"%%").replace(b" nan\n", b" %b\n")
