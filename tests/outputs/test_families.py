"""The exporter's own families at the end of a page."""

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model.devices import Owners
from exporter.model.snapshot import Health, Snapshot
from exporter.outputs.families import render, slim
from exporter.telemetry import age_family, health_families

NUMBERS = st.none() | st.floats(0, 1e6) | st.sampled_from((0.0, 1.0, 2.5e-7))
STATES = st.builds(Health, up=st.none() | st.booleans(), duration_seconds=NUMBERS)
NAMES = st.sampled_from(("kubelet", "dcgm", "dcgm:a%b", "file:/a b", "x %d nan", "%b\n")) | st.text(max_size=8)


@settings(max_examples=300, deadline=None)
@given(health=st.dictionaries(NAMES, STATES, max_size=4), age=NUMBERS)
def test_the_text_that_is_kept_says_what_a_new_one_would(health: dict[str, Health], age: float | None) -> None:
    snapshot = Snapshot(node="n", owners=Owners(), joined=None, health=health, assignments_age_seconds=age)
    assert slim(snapshot) == render((*health_families(health), age_family(age)))
