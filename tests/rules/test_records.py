"""What the records say over hours, and of nodes that the simulated one is not: by promtool."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.rules.shipped import PROMETHEUS, run, write_needed

pytestmark = pytest.mark.real

HELD = "pod_gpu_allocated_seconds"
NODE = ',node="n"'


def check(
    promtool: Path, folder: Path, series: dict[str, str], *answers: dict[str, Any], file: str = "recording.yaml"
) -> None:
    """Each of the answers is an expression, when it is asked, and the samples that it should have."""
    check_files(promtool, folder, series, *answers, files=(file,))


def check_files(
    promtool: Path, folder: Path, series: dict[str, str], *answers: dict[str, Any], files: Sequence[str]
) -> None:
    """The same, by the rules of several files."""
    case = folder / "test.yaml"
    block = {
        "interval": "30s",  # as the scrape configs have it
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": list(answers),
    }
    expressions = " ".join(asked["expr"] for asked in answers)
    write_needed(folder / "rules.yaml", expressions, [PROMETHEUS / "rules" / file for file in files])
    settings = {"rule_files": [str(folder / "rules.yaml")], "evaluation_interval": "1m"}
    case.write_text(json.dumps({**settings, "tests": [block]}))
    run(promtool, "test", "rules", case)


def answer(at: str, expression: str, **samples: float) -> dict[str, Any]:
    """Samples by the value of the only label that the expression leaves; `nobody` has none."""
    label = expression.partition("by (")[2].partition(")")[0]
    found = [
        {"labels": "{}" if name == "nobody" else f'{{{label}="{name}"}}', "value": value}
        for name, value in samples.items()
    ]
    return {"expr": expression, "eval_time": at, "exp_samples": found}


def test_a_sum_over_the_samples_is_a_number_of_gpu_hours(promtool: Path, tmp_path: Path) -> None:
    """Half a GPU for two hours, and one for half an hour by a pod that comes and goes in between."""
    series = {
        f'{HELD}_total{{namespace="a",pod="p",UUID="G",node="n"}}': "0x60 0+15x240 3600x120",
        f'{HELD}_total{{namespace="b",pod="q",UUID="H",node="n"}}': "_x100 0+30x60 1800x10 stale",
    }
    hours = f"round(sum by (namespace) (sum_over_time(namespace:{HELD}:rate5m[4h]) / 60), 0.01)"
    energy = f"sum by (node) (node:{HELD}:rate5m)"
    check(promtool, tmp_path, series, answer("210m", hours, a=1.0, b=0.5), answer("60m", energy, n=1.5))


# issue 15, lines 7 and 8
@pytest.mark.parametrize(
    ("series", "hours"),
    [
        ({'pod="p"': "0+30x240"}, 2),
        # a rollout: the new one goes on where the old one was
        ({'pod="p",instance="x"': "0+30x120 stale", 'pod="p",instance="y"': "_x121 3630+30x119"}, 2),
        ({'pod="p",instance="x"': "0+30x240", 'pod="p",instance="y"': "_x60 1800+30x60 _x60 5400+30x60"}, 2),
        # without a state the counter begins at 0 again
        ({'pod="p"': "0+30x120 0+30x120"}, 2),
        ({'pod="p"': "0+30x9 stale", 'pod="p",workload_name="w",workload_kind="Job"': "_x10 300+30x230"}, 2),
        # nobody can tell when a new node's counter grew
        ({'pod="p",node="m"': "_x120 90000+30x120"}, 1),
    ],
    ids=["one", "a rollout", "two jobs, one away for a while", "a restart", "labels that come later", "a new node"],
)
def test_a_row_is_recorded_once_however_it_is_scraped(
    promtool: Path, tmp_path: Path, series: dict[str, str], hours: float
) -> None:
    rows = {
        f'{HELD}_total{{namespace="a",container="c",UUID="G",{labels}{"" if "node=" in labels else NODE}}}': values
        for labels, values in series.items()
    }
    there = {"n": "1x300", "m": "_x120 1x180"}
    rows |= {f'node_gpu_capacity{{model="H100",node="{node}"}}': values for node, values in there.items()}
    query = f"round(sum by (namespace) (sum_over_time(namespace:{HELD}:rate5m[3h])) / 60, 0.05)"
    check(promtool, tmp_path, rows, answer("150m", query, a=hours))


# issue 15, line 4
def test_used_is_divided_by_the_time_in_which_somebody_saw_it(promtool: Path, tmp_path: Path) -> None:
    """While the page is away, seconds are held and not observed; an exporter of before does not count that."""
    row = '{{namespace="{0}",pod="{0}",UUID="{0}",node="{0}"}}'
    series = {
        f"{HELD}_total{row.format('a')}": "0+30x60",
        f"pod_gpu_observed_seconds_total{row.format('a')}": "0+15x60",
        f"pod_gpu_active_seconds_total{row.format('a')}": "0+12x60",
        f"{HELD}_total{row.format('b')}": "0+30x60",
        f"pod_gpu_active_seconds_total{row.format('b')}": "0+12x60",
    }
    ratio = "pod_gpu_active_seconds_per_pod_gpu_allocated_seconds:ratio_rate5m"
    used = [f"round(sum by ({by}) ({by}:{ratio}), 0.01)" for by in ("namespace", "node")]
    check(promtool, tmp_path, series, *(answer("20m", each, a=0.8, b=0.4) for each in used))


def test_a_gpu_that_nobody_holds_has_the_only_model_of_its_node(promtool: Path, tmp_path: Path) -> None:
    """On a node of two models it has its owners', and where nothing tells of it none: nothing is lost in between."""
    watts, minutes = "0+3000x60", "1x60"
    series = {
        'node_gpu_capacity{model="H100",node="n"}': "2x60",
        'pod_gpu_device_owners{UUID="G",node="n"}': "0x60",
        'pod_gpu_energy_joules_total{UUID="G",node="n"}': watts,
        'node_gpu_capacity{model="H100",node="m"}': minutes,
        'node_gpu_capacity{model="L4",node="m"}': minutes,
        'pod_gpu_device_owners{UUID="H",node="m"}': minutes,
        'pod_gpu_device_owners{UUID="I",node="m"}': "0x60",
        'pod_gpu_info{UUID="H",node="m",namespace="a",pod="p",container="c",modelName="L4"}': minutes,
        # of two containers of one pod, and with another instance of the exporter
        'pod_gpu_info{UUID="H",node="m",namespace="a",pod="p",container="d",modelName="L4",instance="x"}': minutes,
        'pod_gpu_energy_joules_total{UUID="H",node="m",namespace="a",pod="p",container="c"}': watts,
        'pod_gpu_energy_joules_total{UUID="I",node="m"}': watts,
    }
    check(
        promtool,
        tmp_path,
        series,
        answer("20m", "sum by (model) (model:pod_gpu_energy_joules:rate5m)", H100=100, L4=100, nobody=100),
        answer("20m", "sum by (namespace) (namespace:pod_gpu_energy_joules:rate5m)", a=100, nobody=200),
        answer("20m", "sum by (node) (node:pod_gpu_energy_joules:rate5m)", n=100, m=200),
    )


def test_how_full_models_are_is_by_gpus_not_by_nodes(promtool: Path, tmp_path: Path) -> None:
    series = {
        'node_gpu_capacity{model="H100",node="n"}': "8x60",
        'node_gpu_allocated_ratio{model="H100",node="n"}': "1x60",
        'node_gpu_capacity{model="H100",node="m"}': "2x60",
        'node_gpu_allocated_ratio{model="H100",node="m"}': "0x60",
        # a rollout: for a moment two exporters tell of one node
        'node_gpu_capacity{model="H100",node="m",instance="x"}': "2x60",
        'node_gpu_allocated_ratio{model="H100",node="m",instance="x"}': "0x60",
    }
    ratio = "node_gpu_allocated_per_node_gpu_capacity:ratio"
    check(
        promtool,
        tmp_path,
        series,
        answer("20m", f"sum by (model) (model:{ratio})", H100=0.8),
        answer("20m", f"sum by (node) (node:{ratio})", n=1, m=0),
        answer("20m", "sum by (nothing) (cluster:node_gpu_capacity:sum)", nobody=10),
    )
