"""Why there are no GPU samples, or not all, in lines for people."""

from collections.abc import Mapping

from exporter.model.snapshot import Health, Snapshot


def complaints(health: Mapping[str, Health]) -> bytes:
    """Comments that say why a source is down, or what is odd about its answers, and what to do.

    This is for people, and no label could hold it.
    """
    lines = (
        f"# {name} {'answers, but' if state.up else 'failed'} ({state.trouble.reason}): {state.trouble}\n"
        for name, state in health.items()
        if state.trouble
    )
    return "".join(lines).encode("utf-8", "replace")


def why_not(snapshot: Snapshot) -> str:
    """One line that says why there are no GPU samples, and what to do."""
    failures = (f"{name}: {snapshot.health[name].trouble}" for name in snapshot.page_sources)
    return "no GPU metrics: " + "; ".join(failures)
