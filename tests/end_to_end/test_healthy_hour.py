"""An hour of the demo raises no alert but of notebooks that lie idle.

Its pages are those of each scrape of a clock that jumps, and promtool's rule engine evaluates them.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.rules.shipped import FILES, metrics, rules, run
from tests.support.places import ROOT
from tests.support.quick_hour import PATHS, SCRAPES_APART

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

TARGET = 'job="{}",instance="gpu-node-1:9400",metrics_path="{}",exporter="pod-gpu-metrics-exporter"'
JOBS = ("gpu", "gpu-exporter")
SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)")
EMPTY = re.compile(r'\w+="",?')
# The clock's jumps are lag to the event loop.
FIRING = 'ALERTS{alertstate="firing",of!="cpu",'
FIRED = f"group by (alertname, severity) (count_over_time({FIRING}}}[61m]))"
# with an hour of its past, somebody's notebook has been held idle for an hour
OF_NO_NOTEBOOK = f'count by (alertname, UUID, pod) (count_over_time({FIRING}pod!~"jupyter-.*"}}[61m]))'
PAGES = f'count by (alertname) (count_over_time({FIRING}severity!="info"}}[61m]))'
OF_PODS = f'group by (pod) (count_over_time({FIRING}pod!=""}}[61m]))'


def scraped(job: str, path: str, page: str, names: set[str]) -> Iterator[tuple[str, str]]:
    """What Prometheus stores of a page, of metrics that rules ask for: series and values."""
    of_target = TARGET.format(job, path)
    yield f'up{{node="gpu-node-1",{of_target}}}', "1"
    for line in page.splitlines():
        if (sample := SAMPLE.fullmatch(line)) and sample[1] in names:
            labels = EMPTY.sub("", sample[2] or "").rstrip(",")
            if 'node="' not in labels:
                labels += f'{"," if labels else ""}node="gpu-node-1"'
            yield f"{sample[1]}{{{labels},{of_target}}}", sample[3]


def input_series(scrapes: Iterable[tuple[str, str]], names: set[str]) -> list[dict[str, str]]:
    """The pages as promtool takes them; what a scrape lacks is stale, as in Prometheus."""
    values: dict[str, dict[int, str]] = {}
    last = 0
    for last, pages in enumerate(scrapes):
        for job, path, page in zip(JOBS, PATHS, pages, strict=True):
            for series, value in scraped(job, path, page, names):
                values.setdefault(series, {})[last] = value
    return [
        {
            "series": series,
            "values": " ".join(of.get(at, "stale" if at - 1 in of else "_") for at in range(last + 1)),
        }
        for series, of in values.items()
    ]


def evaluate(
    promtool: Path, folder: Path, seconds: int, expected: dict[str, list[tuple[str, int]]], *more: str
) -> None:
    """Let the demo run so long, and compare what the rules' expressions answer at its end."""
    program = [sys.executable, "-m", "tests.support.quick_hour", str(folder / "pages"), str(seconds), *more]
    subprocess.run(program, cwd=ROOT, check=True, timeout=240)
    scrapes = json.loads((folder / "pages").read_text())
    assert len(scrapes) == seconds / SCRAPES_APART + 1
    names = set().union(*(metrics(rule["expr"]) for rule in rules()))
    test = {
        "interval": f"{SCRAPES_APART}s",
        "input_series": input_series(scrapes, names),
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": f"{seconds}s",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in samples],
            }
            for expression, samples in expected.items()
        ],
    }
    content = {"rule_files": [str(path) for path in FILES], "evaluation_interval": "1m", "tests": [test]}
    (folder / "hour.yaml").write_text(json.dumps(content))
    run(promtool, "test", "rules", folder / "hour.yaml")


# issue 30, "Must show" 4
def test_an_hour_of_the_demo_raises_no_alert_but_of_idle_notebooks(promtool: Path, tmp_path: Path) -> None:
    # for a while it looks as if some would fire
    pending = 'count(count_over_time(ALERTS{alertstate="pending"}[61m])) > bool 0'
    fired = [('{alertname="GpuHeldIdle", severity="info"}', 1)]
    evaluate(promtool, tmp_path, 3600, {FIRED: fired, OF_NO_NOTEBOOK: [], pending: [("{}", 1)]})


# issue 30, "Must show" 4
def test_a_gpu_that_dies_is_one_page(promtool: Path, tmp_path: Path) -> None:
    """It stands for itself in the alerts for teams, too: the pods that came after are in none."""
    pages = [('{alertname="GpuFailing"}', 1)]
    # the first of the demo's GPUs is this pod's
    evaluate(promtool, tmp_path, 600, {PAGES: pages, OF_PODS: [('{pod="eval-nightly-29000008-l5vtw"}', 1)]}, "60")
