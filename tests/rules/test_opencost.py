"""What OpenCost's own queries answer of what the rules record for it: by promtool."""

from pathlib import Path
from typing import Any

import pytest

from tests.rules.opencost import ALLOCATED, COUNTS
from tests.rules.shipped import PROMETHEUS
from tests.rules.test_records import check
from tests.support import quick_yaml

pytestmark = pytest.mark.real

HOUR = "1x240"  # and one more, so that nothing ends with the last question
GPUS = 'node_gpu_capacity{{model="H100",node="{}"}}'


def held(pod: str, uuid: str, instance: str = "", node: str = "n") -> str:
    labels = f'namespace="a",pod="{pod}",container="main",UUID="{uuid}",GPU_I_ID="{instance}",node="{node}"'
    return f"pod_gpu_allocated_ratio{{{labels}}}"


def asked_for(pod: str, node: str = "n") -> str:
    """OpenCost's row of a container, whose value is what it requests of nvidia.com/gpu; newer ones ask for `uid`."""
    labels = f'namespace="a",pod="{pod}",container="main",node="{node}",instance="{node}",uid="uid-{pod}"'
    return f"opencost_container_gpu_allocation{{{labels}}}"


def parts(at: str, parts: dict[str, float], node: str = "n") -> dict[str, Any]:
    """What OpenCost reads of an hour, by pod."""
    labels = 'container="main",namespace="a",node="{}",pod="{}",uid="uid-{}"'.format
    samples = [{"labels": f"{{{labels(node, pod, pod)}}}", "value": value} for pod, value in parts.items()]
    query = ALLOCATED.format(window="1h").replace('node!=""', f'node="{node}"')
    return {"expr": query, "eval_time": at, "exp_samples": samples}


def check_rules(promtool: Path, folder: Path, series: dict[str, str], *answers: dict[str, Any]) -> None:
    check(promtool, folder, series, *answers, file="opencost.yaml")


def test_four_quarters_are_one_gpu_and_an_instance_is_a_seventh(promtool: Path, tmp_path: Path) -> None:
    """Each of the four requests one, of a MIG instance and of a claim OpenCost sees nothing."""
    series = {GPUS.format("n"): "4x240", held("whole", "W"): "1x240", asked_for("whole"): "1x240"}
    for number in range(4):
        series |= {held(f"quarter-{number}", "Q"): "0.25x240", asked_for(f"quarter-{number}"): "1x240"}
    for number in range(2):
        series |= {held(f"claim-{number}", "C"): "0.5x240", asked_for(f"claim-{number}"): "0x240"}
    # two of seven of one GPU are held by one container
    series |= {held("mig", "M", "7"): "0.125x240", held("mig", "M", "8"): "0.125x240", asked_for("mig"): "0x240"}
    series |= {asked_for("web"): "0x240"}
    expected = {f"quarter-{number}": 0.25 for number in range(4)} | {"claim-0": 0.5, "claim-1": 0.5}
    answer = parts("2h", expected | {"mig": 0.25, "whole": 1.0, "web": 0.0})
    total = {"expr": f"sum({answer['expr']})", "eval_time": "2h", "exp_samples": [{"labels": "{}", "value": 3.25}]}
    check_rules(promtool, tmp_path, series, answer, total)


# issue 24, part 5
def test_each_pod_of_an_over_committed_gpu_costs_what_it_was_granted(promtool: Path, tmp_path: Path) -> None:
    series = {GPUS.format("n"): "1x240"}
    for pod in "ab":
        series |= {held(pod, "O"): "0.75x240", asked_for(pod): "1x240"}
    check_rules(promtool, tmp_path, series, parts("2h", {"a": 0.75, "b": 0.75}))


def test_a_part_that_changes_is_the_mean_of_the_hour(promtool: Path, tmp_path: Path) -> None:
    """A claim that another joins after half of it, and an init container's GPU that goes back after a quarter."""
    series = {
        GPUS.format("n"): "2x240",
        held("first", "C"): "1x60 0.5x180",
        asked_for("first"): "0x240",
        held("trainer", "I"): "1x30 stale",
        asked_for("trainer"): "0x240",
    }
    # samples of the recorded minutes: 31 of 61 and 16 of 61
    check_rules(
        promtool,
        tmp_path,
        series,
        {
            "expr": f"round({ALLOCATED.format(window='1h')}, 0.05)",
            "eval_time": "1h",
            "exp_samples": [
                {"labels": '{container="main",namespace="a",node="n",pod="first",uid="uid-first"}', "value": 0.75},
                {"labels": '{container="main",namespace="a",node="n",pod="trainer",uid="uid-trainer"}', "value": 0.25},
            ],
        },
    )


def test_while_an_exporter_is_away_its_last_word_counts_for_an_hour(promtool: Path, tmp_path: Path) -> None:
    """A pod that comes meanwhile has no row, and one that goes none of OpenCost's. After the hour its word counts."""
    series = {
        GPUS.format("n"): "1x20 stale",
        held("p", "Q"): "0.25x20 stale",
        held("gone", "Q"): "0.25x20 stale",
        asked_for("p"): "1x400",
        asked_for("gone"): "1x30 stale",
        asked_for("new"): "_x60 1x340",
    }
    for at, expected in (("5m", {"p": 0.25, "gone": 0.25}), ("60m", {"p": 0.25}), ("75m", {"p": 1.0, "new": 1.0})):
        labels = (
            'container_gpu_allocation{{namespace="a",pod="{0}",container="main",node="n",instance="n",uid="uid-{0}"}}'
        )
        samples = [{"labels": labels.format(pod), "value": value} for pod, value in expected.items()]
        answer = {"expr": "container_gpu_allocation", "eval_time": at, "exp_samples": samples}
        check_rules(promtool, tmp_path, series, answer)


def test_a_node_without_an_exporter_keeps_what_opencost_says(promtool: Path, tmp_path: Path) -> None:
    """Requests, and its count of GPUs; of others the physical ones, where OpenCost counts shares."""
    count = 'opencost_node_gpu_count{{node="{0}",instance="{0}",provider_id="aws:{0}",region="x"}}'
    series = {
        GPUS.format("n"): HOUR.replace("1x", "2x"),
        'node_gpu_capacity{model="L4",node="n"}': "1x240",
        count.format("n"): "9x240",
        count.format("m"): "8x240",
        asked_for("p", "m"): "2x240",
    }
    samples = [
        {"labels": f'{{node="{node}",provider_id="aws:{node}"}}', "value": value}
        for node, value in (("n", 3), ("m", 8))
    ]
    counts = {"expr": COUNTS.format(window="1h"), "eval_time": "2h", "exp_samples": samples}
    check_rules(promtool, tmp_path, series, parts("2h", {"p": 2.0}, "m"), counts)


def test_two_exporters_of_a_node_count_once_and_clusters_by_themselves(promtool: Path, tmp_path: Path) -> None:
    """Two jobs scrape the exporter, and OpenCost runs twice during a rollout; nodes have one name in both clusters."""
    series = {}
    for cluster, part in (("east", "0.25x240"), ("west", "0.5x240")):
        for job in ("one", "two"):
            of = f'cluster="{cluster}",job="{job}",'
            series[GPUS.format("n").replace("{", "{" + of)] = "1x240"
            series[held("p", "Q").replace("{", "{" + of)] = part
            series[asked_for("p").replace("{", "{" + of)] = "1x240"
    query = f"sum by (cluster) ({ALLOCATED.format(window='1h').replace('cluster_id', 'cluster')})"
    samples = [{"labels": f'{{cluster="{name}"}}', "value": value} for name, value in (("east", 0.25), ("west", 0.5))]
    check_rules(promtool, tmp_path, series, {"expr": query, "eval_time": "2h", "exp_samples": samples})


def test_nothing_is_recorded_where_opencost_is_not_scraped_so(promtool: Path, tmp_path: Path) -> None:
    """Without the renaming, OpenCost's own rows would be averaged with ours: they stay as they are, alone."""
    own = asked_for("p").removeprefix("opencost_")
    series = {GPUS.format("n"): "1x240", held("p", "Q"): "0.25x240", own: "1x240", 'node_gpu_count{node="n"}': "4x240"}
    counts = {
        "expr": "node_gpu_count",
        "eval_time": "2h",
        "exp_samples": [{"labels": 'node_gpu_count{node="n"}', "value": 4}],
    }
    check_rules(promtool, tmp_path, series, parts("2h", {"p": 1.0}), counts)


def test_the_scrape_config_renames_what_the_rules_ask_for() -> None:
    (job,) = quick_yaml.load((PROMETHEUS / "scrape-config-opencost.yaml").read_text())["scrape_configs"]
    (renaming,) = job["metric_relabel_configs"]
    assert renaming["target_label"] == "__name__"
    names = renaming["regex"].strip("()").split("|")
    (group,) = quick_yaml.load((PROMETHEUS / "rules" / "opencost.yaml").read_text())["groups"]
    assert [rule["record"] for rule in group["rules"]] == names
    for rule in group["rules"]:
        assert renaming["replacement"].replace("$1", rule["record"]) in rule["expr"]
