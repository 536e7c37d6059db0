"""Each alert of deploy/prometheus/rules fires when it should, once, and stays quiet when it should: by promtool."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rules.cases import EXPORTER, GPU, Cases, Firing, Quiet
from tests.rules.health_cases import HEALTH
from tests.rules.shipped import FILES, alerts, run, write_needed

pytestmark = pytest.mark.real
CASES: Cases = {**EXPORTER, **GPU, **HEALTH}
OF_OWNERS = re.compile(r',?(?:namespace|pod|container|gpu_shared)="[^"]*"')
# where the documentation is, for all that links to it


# what asks for the holders, of whom there are none in cases that do not say so
HOLDERS = re.compile(r"\s*\{\{- \$of := [^}]*\}\}\s*\{\{- range [^$]*\$of \| query .*?\{\{ else \}\}(.*?)\{\{ end \}\}")

# what is said of one value of a label
CHOICE = re.compile(r'\{\{ if (eq|ne) \$labels\.(\w+) "(\w+)" \}\}(.*?)\{\{ end \}\}')


def expanded(text: str, case: Firing) -> str:
    """An annotation, as Prometheus makes it of its template."""
    text = re.sub(r"\s*\{\{- if ", "{{ if ", HOLDERS.sub(r"\1", text))
    text = CHOICE.sub(
        lambda found: found[4] if (case.labels.get(found[2]) == found[3]) is (found[1] == "eq") else "", text
    )
    text = re.sub(
        r"\{\{ if \$labels\.(\w+) \}\}(.*?)\{\{ else \}\}(.*?)\{\{ end \}\}",
        lambda found: found[2] if case.labels.get(found[1]) else found[3],
        text,
    )
    text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: case.labels.get(found[1], ""), text)
    return re.sub(r"\{\{ \$value[^}]*\}\}", lambda _: case.value, text)


def expected(rule: dict[str, Any], case: Firing | Quiet) -> list[dict[str, Any]]:
    """The alerts that promtool is to find."""
    if isinstance(case, Quiet):
        return []
    annotations = {name: case.annotations.get(name, expanded(text, case)) for name, text in rule["annotations"].items()}
    return [{"exp_labels": {**case.labels, **rule["labels"]}, "exp_annotations": annotations}]


def block(name: str, number: int, case: Firing | Quiet) -> dict[str, Any]:
    rule = alerts()[name]
    tests = [{"alertname": name, "eval_time": case.at, "exp_alerts": expected(rule, case)}]
    if isinstance(case, Firing) and "for" in rule:
        waits_minutes = int(rule["for"].rstrip("mh")) * (60 if rule["for"].endswith("h") else 1)
        tests.append({"alertname": name, "eval_time": f"{waits_minutes - 1}m", "exp_alerts": []})
    return {
        "interval": "1m",
        "name": f"{name}, {number}",
        "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
        "alert_rule_test": tests,
    }


def blocks(name: str, cases: Sequence[Firing | Quiet], *, of_days: bool) -> list[dict[str, Any]]:
    """An alert's cases: with `of_days` those that last for days, else the others."""
    return [
        block(name, number, case) for number, case in enumerate(cases) if of_days is (int(case.at.rstrip("m")) > 120)
    ]


# issue 11, "Must show" 3
@pytest.mark.parametrize("name", alerts())
def test_an_alert_has_a_case_in_which_it_fires_and_a_quiet_one(name: str) -> None:
    assert {type(case) for case in CASES[name]} == {Firing, Quiet}


def test_an_alert_that_is_gone_has_no_case() -> None:
    assert CASES.keys() <= alerts().keys()


# A case of days is looked at twice an hour.
# issue 11, "Must show" 3
@pytest.mark.parametrize("of_days", [False, True])
@pytest.mark.parametrize("cases", [EXPORTER, GPU, HEALTH])
def test_alerts_fire_when_they_should_and_only_then(
    promtool: Path, tmp_path: Path, cases: Cases, of_days: bool
) -> None:
    files = []
    for name, of_alert in cases.items():
        if not (tests := blocks(name, of_alert, of_days=of_days)):
            continue
        needed = tmp_path / f"{name}.rules"
        settings = {
            "group_eval_order": write_needed(needed, name),
            "rule_files": [str(needed)],
            "evaluation_interval": "30m" if of_days else "1m",
        }
        files.append(tmp_path / f"{name}.yaml")
        files[-1].write_text(json.dumps({**settings, "tests": tests}))
    assert files
    run(promtool, "test", "rules", *files)


def without_owners(cases: Cases) -> Cases:
    """Those cases in which all of dcgm-exporter's samples are owners' copies, as `--labels.owners off` has them."""
    return {
        name: [
            replace(case, series={row: n for row, n in case.series.items() if row not in of_page} | of_devices)
            for case in of_alert
            if (of_page := [row for row in case.series if row.startswith("DCGM_") and 'pod="' in row])
            and all(row in of_page for row in case.series if row.startswith("DCGM_"))
            and (of_devices := {OF_OWNERS.sub("", row): case.series[row] for row in of_page})
            and all(case.series[row] == of_devices[OF_OWNERS.sub("", row)] for row in of_page)
        ]
        for name, of_alert in cases.items()
    }


# issue 28, churn-free series
@pytest.mark.parametrize("of_days", [False, True])
def test_alerts_do_the_same_where_samples_name_no_owner(promtool: Path, tmp_path: Path, of_days: bool) -> None:
    cases = without_owners(GPU)
    assert sum(map(len, cases.values())) > 12
    test_alerts_fire_when_they_should_and_only_then(promtool, tmp_path, cases, of_days)


# issue 11, "Must show" 3
def test_the_rules_are_what_promtool_takes(promtool: Path) -> None:
    assert run(promtool, "check", "rules", *FILES).count("SUCCESS") == len(FILES)


@pytest.mark.parametrize("name", alerts())
def test_an_alert_says_how_bad_it_is_and_where_to_read_on(name: str) -> None:
    rule = alerts()[name]
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    assert rule["annotations"]["runbook"] == f"docs/alerts.md#{name.lower()}"


def test_a_wrong_case_would_be_noticed(promtool: Path, tmp_path: Path) -> None:
    """What fires is compared with what is expected, annotations included."""
    case = tmp_path / "test.yaml"
    wrong = block("PodGpuExporterDown", 0, EXPORTER["PodGpuExporterDown"][0])
    wrong["alert_rule_test"][0]["exp_alerts"][0]["exp_annotations"]["summary"] += "!"
    write_needed(tmp_path / "rules.yaml", "PodGpuExporterDown")
    case.write_text(json.dumps({"rule_files": [str(tmp_path / "rules.yaml")], "tests": [wrong]}))
    with pytest.raises(AssertionError, match="n:9400 does not answer!"):
        run(promtool, "test", "rules", case)
