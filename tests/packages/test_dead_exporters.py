"""Whatever the chart's release is called, and whatever finds the exporters: a dead one is told of, by promtool."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rules.shipped import run
from tests.support import quick_yaml
from tests.support.chart import rendered
from tests.support.manifests import Object, of_kind
from tests.support.places import ROOT

PROMETHEUS = ROOT / "deploy" / "prometheus"
RELEASES = ("pod-gpu-metrics-exporter", "gpu", "monitoring-of-team-a")
# Of each of them; by its node one dead exporter is told from the others.
NODES = ("n-1", "n-2", "n-3", "n-4")
pytestmark = pytest.mark.real


def target_labels(relabelings: list[Object], **discovered: str) -> Mapping[str, str]:
    """The labels that these rules give a target, of which it has those that discovery gave it."""
    labels = dict(discovered)
    for rule in relabelings:
        sources = rule.get("sourceLabels", rule.get("source_labels", []))
        assert rule.keys() <= {"sourceLabels", "source_labels", "targetLabel", "target_label", "replacement"}
        value = ";".join(labels.get(source, "") for source in sources) if sources else rule["replacement"]
        labels[rule.get("targetLabel") or rule["target_label"]] = value
    return {name: value for name, value in labels.items() if not name.startswith("__")}


def of_monitor(monitor: Object, node: str) -> list[Mapping[str, str]]:
    """The targets that the Prometheus operator makes of a monitor's endpoints on a node."""
    metadata, spec = monitor["metadata"], monitor["spec"]
    # jobs are named after the PodMonitor, or after the Service, which the chart names like the monitor
    is_of_pods = monitor["kind"] == "PodMonitor"
    job = f"{metadata['namespace']}/{metadata['name']}" if is_of_pods else metadata["name"]
    return [
        target_labels(
            endpoint["relabelings"],
            __metrics_path__=endpoint["path"],
            __meta_kubernetes_pod_node_name=node,
            job=job,
            instance=f"{node}:9400",
        )
        for endpoint in spec["podMetricsEndpoints" if is_of_pods else "endpoints"]
    ]


def exporters_down() -> str:
    """What Grafana shows under this title, of all clusters."""
    panels = json.loads((ROOT / "deploy" / "grafana" / "cluster.json").read_text())["panels"]
    (panel,) = (panel for panel in panels if panel["title"] == "Exporters down")
    return str(panel["targets"][0]["expr"]).replace("$cluster", ".*")


def told_of(promtool: Path, folder: Path, rules: list[Object], targets: list[Mapping[str, str]]) -> None:
    """Every target is dead: promtool finds the alert for each, and no other one, and Grafana counts all of them."""
    series = [
        {"series": f"up{{{','.join(f'{name}={value!r}' for name, value in labels.items())}}}", "values": "0x20"}
        for labels in targets
    ]
    (rule,) = (rule for group in rules for rule in group["rules"] if rule.get("alert") == "PodGpuExporterDown")
    expected = [
        {
            "exp_labels": {**labels, **rule["labels"]},
            "exp_annotations": {
                name: text.replace("{{ $labels.instance }}", labels["instance"])
                for name, text in rule["annotations"].items()
            },
        }
        for labels in targets
        if labels["metrics_path"] == "/metrics"
    ]
    assert len(expected) == len(targets) / 2
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": rules}))
    test = {"alertname": rule["alert"], "eval_time": "10m", "exp_alerts": expected}
    counted = {"expr": exporters_down(), "eval_time": "10m", "exp_samples": [{"value": len(expected)}]}
    case: dict[str, Any] = {
        "interval": "1m",
        "input_series": series,
        "alert_rule_test": [test],
        "promql_expr_test": [counted],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [case]}))
    run(promtool, "test", "rules", folder / "test.yaml")


# issue 15, line 24, and "Must show" 6
@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_a_dead_exporter_of_any_release_is_told_of(promtool: Path, tmp_path: Path, kind: str) -> None:
    targets, rules = [], []
    on = {kind[0].lower() + kind[1:]: {"enabled": True}, "prometheusRule": {"enabled": True}}
    for release in RELEASES:
        objects = rendered(on, release)
        monitor = of_kind(objects, kind)
        rules = of_kind(objects, "PrometheusRule")["spec"]["groups"]
        targets += [labels for node in NODES for labels in of_monitor(monitor, f"{release}-{node}")]
    assert len({labels["job"] for labels in targets}) == len(RELEASES)
    told_of(promtool, tmp_path, rules, targets)


# issue 15, line 24; issue 22, line 23
@pytest.mark.parametrize(
    ("runbooks", "annotation", "page"),
    [
        ("", "runbook", "docs/alerts.md"),
        ("https://git.example/a.md", "runbook_url", "https://git.example/a.md"),
    ],
)
def test_runbooks_are_pages_that_came_along_or_those_of_a_copy(runbooks: str, annotation: str, page: str) -> None:
    objects = rendered({"prometheusRule": {"enabled": True, "runbooks": runbooks}})
    groups = of_kind(objects, "PrometheusRule")["spec"]["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert len(alerts) > 30
    for rule in alerts:
        assert rule["annotations"].keys() == {"summary", "description", annotation}
        assert rule["annotations"][annotation] == f"{page}#{rule['alert'].lower()}"


# issue 15, line 24
@pytest.mark.parametrize("name", ["scrape-config", "scrape-config-kubernetes"])
def test_a_dead_exporter_of_a_job_of_any_name_is_told_of(promtool: Path, tmp_path: Path, name: str) -> None:
    rules = quick_yaml.load((PROMETHEUS / "rules" / "alerts-exporter.yaml").read_text())["groups"]
    jobs = quick_yaml.load((PROMETHEUS / f"{name}.yaml").read_text())["scrape_configs"]
    targets = [
        target_labels(
            [rule for rule in job["relabel_configs"] if rule.get("action") not in {"keep", "drop"}],
            __metrics_path__=job["metrics_path"],
            __meta_kubernetes_pod_node_name=node,
            job=f"of-team-a-{job['job_name']}",
            instance=f"{node}:9400",
        )
        for job in jobs
        for node in NODES
    ]
    told_of(promtool, tmp_path, rules, targets)
