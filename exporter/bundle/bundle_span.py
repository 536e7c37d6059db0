"""How long a bundle is collected for: the value of --for, of doctor and of `kubectl gpu bundle` alike. Pure.

Tests: tests/doctor/test_bundling.py.
"""

from exporter.config.parsers import positive_duration
from exporter.errors import ConfigError, read_flag

MOST_SECONDS = 600.0


def seconds_of(duration: str | None) -> float:
    """The seconds from the first look to the last; 0, so one look, for None.

    Raises ConfigError: the text is no duration, such as 30s or 2m, or one of more than MOST_SECONDS.
    """
    if duration is None:
        return 0.0

    seconds = read_flag("--for", duration, positive_duration, "a duration such as 30s or 2m")
    if seconds > MOST_SECONDS:
        raise ConfigError(f"--for: {duration!r} is not allowed; it takes at most 10m")

    return seconds
