"""A trigger's metadata → what is asked, whatever they are; and what the log says of triggers, however many."""

import re
from collections.abc import Mapping
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.cluster.keda.scaler import MOST_ERROR_CHARS, MOST_LINES, MOST_REMEMBERED, PERIOD_SECONDS, Notes
from exporter.cluster.keda.trigger import (
    KEDAS_KEYS,
    KEYS,
    LEAST_TARGET,
    MOST_KEYS,
    MOST_TARGET,
    Trigger,
    read_trigger,
)
from exporter.cluster.scaling import Unanswerable
from exporter.log import LOG
from exporter.outputs.device_rows import METRICS_TO_ASK

GOOD = {"metric": "gpu_utilization", "target": "70"}
TEXTS = st.text(max_size=40) | st.sampled_from(["70", "0.5", "1e9", "NaN", "gpu_utilization", "deployment:trainer"])


def trigger(name: str = "trainer", **metadata: str) -> Trigger:
    return read_trigger("ml", name, {**GOOD, **metadata})


def read(namespace: str, name: str, metadata: Mapping[str, str]) -> Trigger | Unanswerable:
    try:
        return read_trigger(namespace, name, metadata)
    except Unanswerable as error:
        return error


def test_what_keda_sends() -> None:
    found = trigger(
        scalerAddress="x:9401", enableTLS="true", workload=" deployment:trainer ", activationThreshold="2.5"
    )
    assert (found.namespace, found.scaled_object, found.metric) == ("ml", "trainer", "gpu_utilization")
    assert (found.target, found.threshold, found.workload) == (70.0, 2.5, "deployment:trainer")
    asked = found.question(found.workload)
    assert (asked.namespace, asked.kind, asked.workload, asked.metric) == (
        "ml",
        "deployment",
        "trainer",
        "gpu_utilization",
    )
    assert trigger().threshold == 0.0


@given(
    TEXTS,
    TEXTS,
    st.dictionaries(st.sampled_from(KEYS) | TEXTS, TEXTS, max_size=8),
)
def test_any_texts_are_a_trigger_within_its_limits_or_refused(
    namespace: str, name: str, metadata: dict[str, str]
) -> None:
    for texts in (metadata, {**GOOD, **metadata}):
        for of in ((namespace, name), ("ml", "trainer")):
            found = read(*of, texts)
            if isinstance(found, Unanswerable):
                assert found.status == HTTPStatus.BAD_REQUEST
                assert len(str(found)) < MOST_ERROR_CHARS
            else:
                assert found.metric in METRICS_TO_ASK
                assert LEAST_TARGET <= found.target <= MOST_TARGET
                assert 0 <= found.threshold <= MOST_TARGET
                assert found.question(found.workload or "x").namespace == found.namespace


@pytest.mark.parametrize("metric", METRICS_TO_ASK)
def test_every_metric_of_autoscale_can_be_asked(metric: str) -> None:
    assert trigger(metric=metric).metric == metric


# noted in issue 25
def test_a_value_that_is_cut_keeps_its_closing_quote() -> None:
    refused = read("ml", "trainer", {"metric": "x" * 300, "target": "70"})
    assert re.fullmatch(r"metric: 'x{30,}…' is no metric's name", str(refused))


@given(st.text(max_size=30))
def test_a_key_is_refused_only_where_another_is_meant(key: str) -> None:
    if key in KEYS:
        return
    found = read("ml", "trainer", {**GOOD, key: "x"})
    if isinstance(found, Unanswerable):
        assert any(f"did you mean {known}?" in str(found) for known in KEYS)
    else:
        assert found == trigger()


@pytest.mark.parametrize("key", sorted(KEDAS_KEYS))
def test_kedas_own_keys_are_none_of_ours(key: str) -> None:
    assert trigger(**{key: "x"}) == trigger()


# issue 15, line 27
def test_a_trigger_may_have_the_most_keys_and_not_one_more() -> None:
    others = {f"of-somebody-{number}": "x" for number in range(MOST_KEYS - len(GOOD))}
    assert trigger(**others) == trigger()
    with pytest.raises(Unanswerable, match=f"there are {MOST_KEYS + 1} keys"):
        trigger(**others, more="x")


def test_the_log_has_a_line_for_each_change_and_a_most_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", LOG.name)
    now = 0.0
    notes = Notes(lambda: now)

    def lines() -> int:
        found = len(caplog.records)
        caplog.clear()
        return found

    of = trigger()
    notes.answered(of, "trainer", 3)
    assert lines() == 0, "all is well"
    for _ in range(3):
        notes.refused(of, "UNAVAILABLE", "n2 is missing")
    assert lines() == 1
    notes.refused(of, "FAILED_PRECONDITION", "two kinds")
    notes.answered(of, "trainer", 3)
    notes.answered(of, "trainer", 2)
    assert lines() == 2
    for number in range(MOST_REMEMBERED + 10):
        notes.refused(trigger(name=f"x-{number}"), "UNAVAILABLE", "n2 is missing")
    assert (len(notes), lines()) == (MOST_REMEMBERED, MOST_LINES - 3)
    now = PERIOD_SECONDS
    notes.refused(of, "UNAVAILABLE", "n2 is missing")
    (record,) = caplog.records
    assert record.__dict__["fields"]["left_out_since_the_last"] == MOST_REMEMBERED + 10 - (MOST_LINES - 3)
