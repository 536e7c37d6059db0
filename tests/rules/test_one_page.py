"""One dead GPU of a node with four wakes somebody once, whatever else dies with it, and a healthy node nobody."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.rules.nodes import HISTORIES, Moment
from tests.rules.shipped import alerts, run, write_needed

pytestmark = pytest.mark.real
MOST_PAGES = 13
WAKES = {name for name, rule in alerts().items() if rule["labels"]["severity"] != "info"}


# issue 30, alerts that deserve a page
def test_about_twelve_alerts_wake_somebody() -> None:
    assert 10 <= len(WAKES) <= MOST_PAGES


def alerts_of(moment: Moment) -> Sequence[Mapping[str, str]]:
    """The labels of each alert that fires."""
    return [
        {"alertname": name, "severity": alerts()[name]["labels"]["severity"], **labels}
        for name, of_alert in moment.firing.items()
        for labels in of_alert
    ]


def as_promql(alert: Mapping[str, str]) -> str:
    """An alert's series."""
    labels = {"alertstate": "firing", **alert}
    return f"ALERTS{{{','.join(f'{name}={json.dumps(value)}' for name, value in labels.items())}}}"


# issue 30, "Must show" 4
@pytest.mark.parametrize("name", HISTORIES)
def test_a_dead_gpu_is_one_page_and_a_healthy_node_none(promtool: Path, tmp_path: Path, name: str) -> None:
    history = HISTORIES[name]
    pages = [[alert for alert in alerts_of(moment) if alert["alertname"] in WAKES] for moment in history.moments]
    assert max(map(len, pages)) == (1 if history.page else 0)
    assert {alert["alertname"] for of_moment in pages for alert in of_moment} == {history.page} - {""}
    tests = [
        {
            "expr": 'ALERTS{alertstate="firing"}',
            "eval_time": f"{moment.minute}m",
            "exp_samples": [{"labels": as_promql(alert), "value": 1} for alert in alerts_of(moment)],
        }
        for moment in history.moments
    ]
    case = {
        "group_eval_order": write_needed(tmp_path / "rules.yaml", " ".join(alerts())),
        "rule_files": [str(tmp_path / "rules.yaml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": values} for series, values in history.series.items()],
                "promql_expr_test": tests,
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(json.dumps(case))
    run(promtool, "test", "rules", tmp_path / "test.yaml")
