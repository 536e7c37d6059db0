"""The exporter's own families at the end of a page."""

import json
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.cluster.outputs.own_metrics import FAMILIES as OF_CLUSTER
from exporter.exposition.families import Family, render
from exporter.model.devices import Owners
from exporter.model.snapshot import Health, Snapshot
from exporter.operator.outputs import FAMILIES as OF_OPERATOR
from exporter.outputs.families.catalogue import FAMILIES
from exporter.outputs.families.family import filled
from exporter.outputs.families.slim import SLIM, slim
from exporter.outputs.output import NOTHING_SEEN, Look
from exporter.ownership.labels import LabelPolicy
from tests.support.ledgers import note
from tests.support.looks import Looks
from tests.support.places import ROOT
from tests.support.strategies import attribution_of, owner_states, pages

NUMBERS = st.none() | st.floats(0, 1e6) | st.sampled_from((0.0, 1.0, 2.5e-7))
STATES = st.builds(Health, up=st.none() | st.booleans(), duration_seconds=NUMBERS)
NAMES = st.sampled_from(("kubelet", "dcgm", "dcgm:a%b", "file:/a b", "x %d nan", "%b\n")) | st.text(max_size=8)


@settings(max_examples=50, deadline=None)
@given(health=st.dictionaries(NAMES, STATES, max_size=4), age=NUMBERS)
def test_the_text_that_is_kept_says_what_a_new_one_would(health: dict[str, Health], age: float | None) -> None:
    snapshot = Snapshot(node="n", owners=Owners(), joined=None, health=health, assignments_age_seconds=age)
    assert slim(snapshot) == render(filled(SLIM, Look(snapshot=snapshot)))


# of two series of the same labels Prometheus keeps the first alone, and says nothing of the other
@settings(max_examples=25, deadline=None)
@given(body=pages, owners=owner_states())
def test_any_page_and_owners_make_no_series_of_metrics_twice(body: bytes, owners: Owners) -> None:
    looks = Looks()
    joined = looks.joiner.join([body], attribution_of(owners, LabelPolicy()))
    snapshot = replace(looks.snapshot(None), owners=owners, joined=joined)
    note(looks.ledger, snapshot, 0, looks.rules)
    text = render(filled(FAMILIES, Look(snapshot=replace(snapshot, accounts=looks.ledger.accounts))))
    series = [line.rpartition(b" ")[0] for line in text.split(b"\n") if line and not line.startswith(b"#")]
    assert len(set(series)) == len(series)


def test_every_family_is_there_once_and_what_is_filled_fits_its_labels() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    assert set(SLIM) <= set(FAMILIES)
    for family in FAMILIES:
        # gpu-manager calls a gauge so
        is_total = family.name.endswith("_total") and family.name != "container_gpu_memory_total"
        assert is_total is (family.kind == "counter"), family.name
        if family.kind != "histogram":
            assert {len(values) for values, _ in family.fill(Look(snapshot=NOTHING_SEEN))} <= {len(family.labels)}


def test_families_json_has_no_row_that_no_role_fills() -> None:
    rows = json.loads((ROOT / "exporter/outputs/families/families.json").read_text())
    roles: Sequence[Sequence[Family]] = (FAMILIES, OF_CLUSTER, OF_OPERATOR)
    assert {row["name"] for row in rows} <= {family.name for families in roles for family in families}


def test_a_histogram() -> None:
    look = Look(snapshot=NOTHING_SEEN)
    for seconds in (0.001, 0.3, 7.0):
        look.telemetry.loop_lag.observe(seconds)
    lag = [family for family in FAMILIES if family.kind == "histogram"]
    assert render(filled(lag, look)).decode().splitlines()[1:] == [
        "# TYPE pod_gpu_exporter_event_loop_lag_seconds histogram",
        *(
            f'pod_gpu_exporter_event_loop_lag_seconds_bucket{{le="{upper}"}} {count}'
            for upper, count in [("0.0025", 1), ("0.005", 1), ("0.01", 1), ("0.025", 1), ("0.1", 1), ("0.5", 2)]
        ),
        'pod_gpu_exporter_event_loop_lag_seconds_bucket{le="1.0"} 2',
        'pod_gpu_exporter_event_loop_lag_seconds_bucket{le="5.0"} 2',
        'pod_gpu_exporter_event_loop_lag_seconds_bucket{le="+Inf"} 3',
        "pod_gpu_exporter_event_loop_lag_seconds_count 3",
        "pod_gpu_exporter_event_loop_lag_seconds_sum 7.301",
    ]
