"""Complaints: lines for people that say why GPU samples are missing.

Tests: tests/outputs/test_mapping.py.
"""

from collections.abc import Mapping
from dataclasses import asdict

from exporter.errors import Trouble
from exporter.model.snapshot import Health, Snapshot

_NONE = Trouble("", "")


def complaints(health: Mapping[str, Health]) -> bytes:
    """Comment lines for people: why a source is down, or what is odd about its answers, and what to do."""
    lines = (
        f"# {name} {'answers, but' if state.up else 'failed'} ({state.trouble.reason}): {state.trouble}\n"
        for name, state in health.items()
        if state.trouble
    )
    return "".join(lines).encode("utf-8", "replace")


def in_parts(trouble: Trouble | None) -> dict[str, str]:
    """The parts of a trouble for JSON; all "" if there is no trouble."""
    return asdict(trouble or _NONE)


def why_not(snapshot: Snapshot) -> str:
    """One line that says why there are no GPU samples, and what to do."""
    failures = (f"{name}: {snapshot.health[name].trouble}" for name in snapshot.page_sources)
    return "no GPU metrics: " + "; ".join(failures)
