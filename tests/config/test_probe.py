"""The settings of the CUDA probe, from a command line, an environment and a file."""

from collections.abc import Mapping, Sequence

import pytest

from exporter.config.load import load
from exporter.config.page_settings import ProbeSettings
from exporter.errors import ConfigError


def probe(
    flags: Mapping[str, Sequence[str]],
    environ: Mapping[str, str] | None = None,
    file: Mapping[str, object] | None = None,
) -> ProbeSettings:
    return load(flags, environ or {}, file, "host").probe


def test_the_probe_is_off_unless_it_is_asked_for() -> None:
    assert probe({}) == ProbeSettings(is_on=False, interval_seconds=5.0, max_programs=64, any_kernel=False)


def test_a_flag_wins_over_the_environment_and_that_over_the_file() -> None:
    """So the kill switch can be thrown in any of the three places, unless a stronger one speaks."""
    file = {"probe": {"mode": "on", "interval": "1m", "max-programs": 8}, "probe.any-kernel": "on"}
    found = probe(
        {"probe.mode": ("off",)},
        {"POD_GPU_EXPORTER_PROBE_MODE": "on", "POD_GPU_EXPORTER_PROBE_INTERVAL": "2s"},
        file,
    )
    assert found == ProbeSettings(is_on=False, interval_seconds=2.0, max_programs=8, any_kernel=True)


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("probe.mode", "auto", "off or on"),
        ("probe.interval", "0s", "above 0"),
        ("probe.max-programs", "0", "a whole number above 0"),
        ("probe.any-kernel", "yes", "on or off"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(name: str, text: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match=rf"--{name}: .*{allowed}"):
        probe({name: (text,)})
