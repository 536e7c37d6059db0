"""How an attempt at a source went, as every source notes it."""

from exporter.errors import SourceError
from exporter.model.snapshot import Health


def health_after(last: Health, error: SourceError | None, *, took_seconds: float, now_seconds: float) -> Health:
    """The health after an attempt; `error` is None where it succeeded, `now_seconds` counts from 1970."""
    return Health(
        up=error is None,
        trouble=error.trouble if error else None,
        duration_seconds=took_seconds,
        last_success_at_seconds=last.last_success_at_seconds if error else now_seconds,
    )
