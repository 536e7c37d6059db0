"""A regular expression of a bundle that may run for years is refused; those that users write are not."""

import pytest

from exporter.bundle.recording import RecordedMoment, Recording
from exporter.errors import ExporterError
from exporter.simulator.replay.endless_patterns import may_be_endless
from exporter.simulator.replay.replayed_settings import replayed_settings
from tests.support.bundles import replay_of

ENDLESS = [
    "(a+)+$",
    "(([A-Z_]+)+)+x",
    "(a|a)*b",
    "(?:x|xx){2,}y",
    "(.*a){20}",
    "([a-z]*[0-9]{1,9})+",
    ".*.*.*.*.*x",
    "(.*)(.*)(.*)(.*)(.*)x",
    "((a*)b)*",
    "(a?|b)+",
]
HARMLESS = [
    "",
    "DCGM_FI_DEV_.*",
    "DCGM_FI_DEV_.*|DCGM_FI_PROF_.*|DCGM_EXP_.*|a.*|b.*|c.*",
    "(DCGM_FI_DEV_(FB|GPU)_.*|DCGM_FI_PROF_.+)",
    "app|team|example.com/.*",
    r"[(+*)]+\(\*",
    "[]+*]{3}x*",
    "(abc)+d?",
    "a{2}b{1}",
    ".*util.*used.*",
    "([0-9a-f]{12}-)+",
    "(?P<uuid>GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})(::[0-9]+)?",
]


@pytest.mark.parametrize("pattern", ENDLESS)
def test_what_may_be_endless_is_refused(pattern: str) -> None:
    assert may_be_endless(pattern)
    for flag in ("families.allow", "families.deny", "labels.pod-labels"):
        recording = Recording(made_by="1", settings={flag: ("x", pattern)}, moments=(RecordedMoment(at_seconds=1),))
        with pytest.raises(ExporterError, match=f"--{flag} has a regular expression .* for years: .* -> have"):
            replayed_settings(recording, {})


@pytest.mark.parametrize("pattern", HARMLESS)
def test_what_users_write_is_played(pattern: str) -> None:
    assert not may_be_endless(pattern)
    recording = Recording(made_by="1", settings={"families.allow": (pattern,)}, moments=(RecordedMoment(at_seconds=1),))
    assert replayed_settings(recording, {}) == {"families.allow": (pattern,)}


def test_a_flag_without_regular_expressions_may_have_any_text() -> None:
    recording = Recording(made_by="1", settings={"node-name": ("(a+)+",)}, moments=(RecordedMoment(at_seconds=1),))
    assert replayed_settings(recording, {}) == {"node-name": ("(a+)+",)}


async def test_a_rule_for_ids_that_may_be_endless_is_refused() -> None:
    rules = b"devices: [{resource: 'acme.com/*', id: '(?P<uuid>(a+)+)b'}]"
    moment = RecordedMoment(at_seconds=1, files={"rules": rules})
    recording = Recording(made_by="1", settings={"device-rules": ("/etc/rules.yaml",)}, moments=(moment,))
    async with replay_of(recording) as node:
        with pytest.raises(ExporterError, match="--device-rules has a regular expression"):
            node.config()
