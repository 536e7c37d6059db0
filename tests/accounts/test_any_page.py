"""Whatever pages say, and whoever holds what: the ledger goes on, its text is valid, and no counter falls."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporter.accounts.observation import FAMILIES
from exporter.accounts.state_bytes import restore
from exporter.model.devices import Assignment, Owners
from exporter.model.pods import Owner
from exporter.outputs.families import accounts
from exporter.ownership.labels import LabelPolicy
from tests.support.ledgers import dump, note
from tests.support.looks import Looks
from tests.support.owners import build_owners
from tests.support.strategies import UUIDS, Row, attribution_of, owner_states, rows

NAMES = st.sampled_from(sorted(family.decode() for family in FAMILIES))
XIDS = st.sampled_from((None, "", "0", "79", "079", "1e3", "-4", "31"))


@st.composite
def any_pages(draw: st.DrawFn) -> str:
    lines = []
    for sample in draw(st.lists(rows(), max_size=12)):
        xid = draw(XIDS)
        labels = sample.labels if xid is None else (*sample.labels, ("xid", xid))
        lines.append(Row(draw(NAMES), labels, sample.value).text + "\n")
    return 'x{cpu="0"} 1\n' + "".join(lines)


# A GPU of a container of which one name alone is not empty: beside it is nobody's row, whose names are all empty.
ONE_NAME = build_owners(
    [
        Assignment(owner=Owner(namespace="", pod="a", container=""), resource="nvidia.com/gpu", device_id=UUIDS[0]),
    ]
)
ENERGY = f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{UUID="{UUIDS[0]}"}} '


@pytest.mark.history
@settings(max_examples=40, deadline=None)
@example([(ENERGY + "1\n", ONE_NAME, 0), (ENERGY + "2\n", ONE_NAME, 10)])
@given(st.lists(st.tuples(any_pages(), owner_states(), st.integers(0, 40)), min_size=1, max_size=5))
def test_any_page(history: list[tuple[str, Owners, int]]) -> None:
    looks, policy, at, before = Looks(), LabelPolicy(), 0, dict[tuple[str, frozenset[tuple[str, str]]], float]()
    for page, owners, seconds in history:
        at += seconds
        joined = looks.joiner.join([page.encode()], attribution_of(owners, policy))
        note(looks.ledger, replace(looks.snapshot(None), owners=owners, joined=joined), at * 10**9, looks.rules)
        data = dump(looks.ledger, at)
        looks.ledger = restore(data, at, at * 10**9)
        assert dump(looks.ledger, at) == data
        samples = [sample for family in text_string_to_metric_families(looks.text()) for sample in family.samples]
        now = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
        assert len(now) == len(samples)
        counters = {family.name for family in accounts.FAMILIES if family.kind == "counter"}
        assert all(now[series] >= value for series, value in before.items() if series[0] in counters)
        ratios: dict[str, float] = {}
        for sample in samples:
            if sample.name == "pod_gpu_allocated_ratio":
                ratios[sample.labels["UUID"]] = ratios.get(sample.labels["UUID"], 0) + sample.value
        assert all(ratio <= 1 + 1e-9 for ratio in ratios.values())
        before = now
