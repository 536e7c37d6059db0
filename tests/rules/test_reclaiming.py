"""The query of docs/promql.md for those who reclaim GPUs, by promtool."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.rules.shipped import run
from tests.support.places import ROOT

pytestmark = pytest.mark.real

SINCE = "pod_gpu_idle_since_timestamp_seconds"
# of each pod: since when (seconds) it holds each of its devices idle; None for one at work
PODS: Mapping[str, Sequence[int | None]] = {
    "long": [1_800],
    "late": [5_000],
    "partly": [600, None],
    "wholly": [600, 3_000],
    "at-work": [None],
}


# issue 20, "Idle since"
def test_pods_that_hold_nothing_but_idle_devices_for_two_hours(promtool: Path, tmp_path: Path) -> None:
    (query,) = re.findall(r"for two hours:\n\n```\n(.*?)\n```", (ROOT / "docs" / "promql.md").read_text(), re.DOTALL)
    series = []
    for pod, devices in PODS.items():
        for number, since in enumerate(devices):
            labels = f'{{namespace="ml",pod="{pod}",container="c",UUID="GPU-{pod}-{number}"}}'
            series.append({"series": f"pod_gpu_allocated_ratio{labels}", "values": "1x180"})
            if since is not None:
                series.append({"series": f"{SINCE}{labels}", "values": f"{since}x180"})
    reclaimed = [
        {"labels": f'{{namespace="ml",pod="{pod}"}}', "value": since}
        for pod, since in (("long", 1_800), ("wholly", 3_000))
    ]
    asked = {"expr": query, "eval_time": "3h", "exp_samples": reclaimed}
    case = tmp_path / "test.yaml"
    block = {"interval": "1m", "input_series": series, "promql_expr_test": [asked]}
    case.write_text(json.dumps({"rule_files": [], "evaluation_interval": "1m", "tests": [block]}))
    run(promtool, "test", "rules", case)
