"""Families of the catalogue as text: what every output of them shares."""

import math
from collections.abc import Iterable
from functools import lru_cache

from exporter.exposition.families import Filled
from exporter.exposition.text import render_family, render_number
from exporter.model.snapshot import Health, Snapshot
from exporter.telemetry import age_family, health_families


def render(families: Iterable[Filled]) -> bytes:
    """The families one after the other; one without samples is left out: unknown yields no series."""
    return b"".join(
        [
            render_family(found.family.name, found.family.kind, found.family.help, found.family.labels, found.samples)
            for found in families
        ]
    )


def slim(snapshot: Snapshot) -> bytes:
    """The part of the exporter's own families that ends every page of GPU metrics: how its sources are.

    Every scrape ends with other numbers in the same text, which is therefore made once: 2 us instead of 6.
    """
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
    """The text with a %b for each number. A source: its name, whether it is up, whether how long it took is known."""
    health = {name: Health(up=up, duration_seconds=_MOVES if timed else None) for name, up, timed in sources}
    text = render((*health_families(health), age_family(_MOVES if has_age else None)))
    # the name of a source holds no line's end, so what ends a line so is a number
    return text.replace(b"%", b"%%").replace(b" nan\n", b" %b\n")


def complaints(snapshot: Snapshot) -> bytes:
    """Comments that say why a source is down, or what is odd about its answers, and what to do.

    This is for people, and no label could hold it.
    """
    lines = (
        f"# {name} {'answers, but' if state.up else 'failed'} ({state.trouble.reason}): {state.trouble}\n"
        for name, state in snapshot.health.items()
        if state.trouble
    )
    return "".join(lines).encode("utf-8", "replace")


def why_not(snapshot: Snapshot) -> str:
    """One line that says why there are no GPU samples, and what to do."""
    failures = (f"{name}: {snapshot.health[name].trouble}" for name in snapshot.page_sources)
    return "no GPU metrics: " + "; ".join(failures)
