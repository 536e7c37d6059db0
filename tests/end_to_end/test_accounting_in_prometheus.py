"""Accounting behind a real Prometheus: the books agree with what happened, and docs/promql.md answers its questions.

One run of the simulated node for all tests; each `--sharing` mode has an exporter and a Prometheus of its own.
"""

import asyncio
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import pytest

from exporter.simulator.parts import Pod
from tests.end_to_end.accounted import (
    ALLOCATED,
    ENERGY,
    KINDS,
    MODES,
    Held,
    Truth,
    books,
    held_in,
    lab,
    prometheus_for_each,
)
from tests.end_to_end.answers import ANSWERS, LOOK, NODE, OF_ALL_TIME, XID, by
from tests.support.command import run_here
from tests.support.places import ROOT
from tests.support.prometheus import OWN_LABELS, Prometheus
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

SPAN = 16.0
TRIES = 5
MOST_LATE = 1.5 * LOOK
SPEED = 20.0  # of the pods' life: a pod that comes is at work before the span is over
SEED = 4  # a node with pods at work and pods idle, however long it takes until everything has started
PAGE = (ROOT / "docs" / "promql.md").read_text()
QUESTIONS = {
    int(number): query
    for number, query in re.findall(r"^### (\d+)\. .*?\n\n```promql\n(.*?)\n```$", PAGE, re.MULTILINE)
}


@dataclass
class Watched:
    """What happened, and the servers to ask about it, by mode."""

    truth: Truth
    servers: Mapping[str, Prometheus]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """What happened in a span in which nothing was late: else what is seen is something else than what happened."""
    for attempt in range(1, TRIES + 1):
        node = SimulatedNode(World(gpus=8, shared=2, mig=1, seed=SEED, speed=SPEED), NODE, counters="full")
        with prometheus_for_each(tmp_path_factory.mktemp("prometheus"), f"{LOOK:g}s") as (targets, servers):
            truth = asyncio.run(run(node, targets, servers))
            if is_in_time(truth, servers) or attempt == TRIES:
                yield Watched(truth, servers)
                return


def is_in_time(truth: Truth, servers: Mapping[str, Prometheus]) -> bool:
    """Whether nothing was late: neither this process, nor the last scrape before either end of the span."""
    late = [truth.longest_pause_seconds]
    for server in servers.values():
        ages = [server.query(f"max(time() - timestamp({ENERGY}{at}))") for at in ("", f" offset {truth.window}")]
        if not all(ages):
            return False
        ((_, at_end),), ((_, at_begin),) = ages
        late += [at_end, at_begin - truth.seconds]
    return max(late) < MOST_LATE


def succeed(world: World, pod: Pod, name: str) -> Pod:
    """A pod goes, and another one of the same workload takes its devices."""
    successor = replace(pod, name=f"{pod.owner[1]}-{name}", uid=name)
    world.pods = tuple(successor if one is pod else one for one in world.pods)
    return successor


async def until_accounts_say(targets: Mapping[str, str], pod: Pod, more: str = "") -> None:
    """Every exporter has looked since: its /metrics has a line of the pod, with `more` in it."""
    async with aiohttp.ClientSession() as session:
        for target in targets.values():

            async def is_said(target: str = target) -> bool:
                async with session.get(f"http://{target}/metrics") as answer:
                    lines = (await answer.text()).splitlines()
                return any(f'pod="{pod.name}"' in line and more in line for line in lines)

            await until(is_said)


async def run(node: SimulatedNode, targets: Mapping[str, str], servers: Mapping[str, Prometheus]) -> Truth:
    """First pods change around an XID, then dcgm-exporter is away for a moment; then a span is noted."""
    async with lab(node, targets, servers, f"{LOOK:g}s") as found:
        world, truth = node.world, found.truth
        whole = next(held for held in held_in(world) if held.ratio == 1)
        pod = next(pod for pod in world.pods if pod.name == whole.pod)
        pod = succeed(world, pod, "struck")
        await until_accounts_say(targets, pod)
        await asyncio.sleep(2 * LOOK)
        truth.struck = pod.namespace, pod.name
        world.machine.add_xid(whole.uuid, XID)
        await until_accounts_say(targets, pod, f'xid="{XID}"')
        await asyncio.sleep(2 * LOOK)
        succeed(world, pod, "after")
        with found.without_a_page():
            await asyncio.sleep(2 * LOOK)
        await asyncio.sleep(2 * LOOK)
        truth.begin()
        await found.live(SPAN, world.step, steps_apart=1.5, quiet=3 * LOOK)
        truth.end()
        found.settle()
        return truth


# issue 9, "Must show" 1
@pytest.mark.parametrize("mode", MODES)
def test_the_books_agree_with_what_happened_within_one_look(watched: Watched, mode: str) -> None:
    sums = list(books(watched.truth, {mode: watched.servers[mode]}))
    assert {(one.family, one.kind) for one in sums} == {
        (family, kind) for family in (ENERGY, ALLOCATED) for kind in KINDS
    }
    for one in sums:
        assert one.real > 0
        # Prometheus knows of a look when it scrapes next
        within = (LOOK + LOOK) * one.per_second
        assert one.increase == pytest.approx(one.real, abs=within), one
        assert one.grown == pytest.approx(one.real, abs=within), one


# issue 9, "Must show" 4
def reported(watched: Watched, by: str) -> dict[str | None, dict[str, float]]:
    """What `report` says of the span: GPU-hours and kWh by group, and of all of them as "total"."""
    server, truth = watched.servers["copy"], watched.truth
    span = (f"--from={truth.began_at_seconds:.3f}", f"--to={truth.ended_at_seconds:.3f}")
    ended = run_here("report", f"--prometheus={server.base}", *span, f"--by={by}", "--format=json")
    assert ended.returncode == 0, ended.stderr
    content = json.loads(ended.stdout)
    # the XID of this run made its GPU failing
    assert [note for note in content["notes"] if "failing or gone" not in note["says"]] == []
    return {group["name"]: group for group in content["groups"]} | {"total": content["total"]}


# issue 12, "Must show" 5
def test_a_report_agrees_with_what_happened_within_one_scrape(watched: Watched) -> None:
    """A look, and the scrape that tells of it, both `LOOK` apart, as above."""
    truth = watched.truth
    within = LOOK + LOOK
    total = reported(watched, "namespace")["total"]
    held = sum(truth.gpu_seconds(lambda held: held.uuid).values())
    drawn = truth.drawn_joules()
    assert total["gpu_hours_held"] * 3600 == pytest.approx(held, abs=within * len(truth.world.gpus))
    assert total["energy_kwh"] * 3.6e6 == pytest.approx(drawn, abs=within * drawn / truth.seconds)


# issue 12, "Must show" 5
@pytest.mark.parametrize(
    ("by", "group_of"),
    [
        ("namespace", lambda held: held.namespace),
        ("pod", lambda held: f"{held.namespace}/{held.pod}"),
        ("workload", lambda held: f"{held.namespace}/Deployment/{held.workload}"),
        ("node", lambda _: NODE),
    ],
)
def test_groups_of_a_report_held_what_they_held(watched: Watched, by: str, group_of: Callable[[Held], str]) -> None:
    truth = watched.truth
    groups = reported(watched, by)
    real, changed = truth.gpu_seconds(group_of), truth.changed(group_of)
    for name, seconds in real.items():
        # at each change of what it holds, and at both ends of the span, what it holds is known a look later
        gpus = changed[name] + 2 * seconds / truth.seconds
        hours = groups.get(name, {"gpu_hours_held": 0.0})["gpu_hours_held"]
        assert hours * 3600 == pytest.approx(seconds, abs=(LOOK + LOOK) * gpus), name


@pytest.mark.parametrize("mode", MODES)
def test_an_xid_is_counted_once_for_the_pod_of_that_moment(watched: Watched, mode: str) -> None:
    """Pods came and went on that GPU before and after; its page shows the XID to this day."""
    answers = watched.servers[mode].query("max_over_time(pod_gpu_xid_errors_total[10m])")
    assert by(answers, "namespace pod xid") == {(*watched.truth.struck, str(XID)): 1.0}
    assert max(value for _, value in watched.servers[mode].query("DCGM_FI_DEV_XID_ERRORS")) == XID


@pytest.mark.parametrize("mode", MODES)
def test_the_shipped_scrape_config_keeps_the_labels_of_the_families(watched: Watched, mode: str) -> None:
    families = '{__name__=~"pod_gpu_(allocated|active|idle|energy|xid|throttled).*|node_gpu_.*"}'
    found = [labels for labels, _ in watched.servers[mode].query(families)]
    assert {labels["metrics_path"] for labels in found} == {"/metrics"}
    assert {labels["node"] for labels in found} == {NODE}
    assert not any(name.startswith("exported_") for labels in found for name in labels)
    of_pods = [labels for labels in found if labels["__name__"].startswith("pod_gpu_")]
    for name, own in OWN_LABELS.items():
        assert own not in {labels.get(name) for labels in of_pods}
    # what nobody held is nobody's, not the exporter's own pod's
    nobodys = [labels for labels in of_pods if "pod" not in labels]
    assert not any("namespace" in labels or "container" in labels for labels in nobodys)
    uuids = {gpu.uuid for gpu in watched.truth.world.gpus}
    assert {labels["UUID"] for labels in nobodys if labels["__name__"] == ENERGY} == uuids


def narrowed(query: str, truth: Truth) -> str:
    """A query about the span that was noted, and about a GPU that somebody holds."""
    query = re.sub(r"\b(1d|30d|1h|5m)\b", truth.window, query).replace(":1m]", ":1s]")
    return query.replace('gpu="0"', f'gpu="{truth.shared_gpu.index}"')


# issue 9, "Must show" 6
def test_every_question_of_the_page_is_known_here() -> None:
    assert list(QUESTIONS) == list(ANSWERS) == list(range(1, 27))
    assert PAGE.count("```promql") == len(QUESTIONS)


def test_the_questions_of_the_readme_are_those_of_the_page() -> None:
    queries = re.findall(r"^(sum by .*?) +#", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(queries) == 3
    assert set(queries) <= set(QUESTIONS.values())


@pytest.mark.parametrize("mode", MODES)
def test_what_the_page_says_beside_an_answer_can_be_asked_too(watched: Watched, mode: str) -> None:
    (query,) = re.findall(r"`(sum by [^`]+pod_gpu_device_owners\{[^`]+)`", PAGE)
    held = {held.uuid for held in watched.truth.now}
    uncut = [gpu for gpu in watched.truth.world.gpus if not gpu.instances]
    assert watched.servers[mode].number(query) == sum(gpu.uuid not in held for gpu in uncut)


# issue 9, "Must show" 6
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("number", QUESTIONS)
def test_a_question_is_answered(watched: Watched, number: int, mode: str) -> None:
    """As it stands on the page, and with windows as long as what was noted, whose answer is known."""
    answers = watched.servers[mode].query(QUESTIONS[number])
    if number not in OF_ALL_TIME:
        answers = watched.servers[mode].query(narrowed(QUESTIONS[number], watched.truth))
    ANSWERS[number](answers, watched.truth)


DAYS_AND_HOURS = """
tests:
  - interval: 5m
    input_series:
      - {{series: 'pod_gpu_xid_errors_total{{pod="before-and-now", xid="31"}}', values: 3x288 4x11}}
      - {{series: 'pod_gpu_xid_errors_total{{pod="long-ago", xid="31"}}', values: 7x300}}
      - {{series: 'pod_gpu_xid_errors_total{{pod="new", xid="48"}}', values: _x290 1x9}}
      - {{series: 'pod_gpu_xid_errors_total{{pod="gone", xid="48"}}', values: _x200 2x20 stale}}
    promql_expr_test:
      - expr: {xids}
        eval_time: 1470m
        exp_samples:
          - {{labels: '{{pod="before-and-now", xid="31"}}', value: 1}}
          - {{labels: '{{pod="new", xid="48"}}', value: 1}}
          - {{labels: '{{pod="gone", xid="48"}}', value: 2}}
  - interval: 1m
    input_series:
      - {{series: 'pod_gpu_allocated_ratio{{pod="idle"}}', values: 0.25x100}}
      - {{series: 'pod_gpu_allocated_seconds_total{{pod="idle"}}', values: 0+15x100}}
      - {{series: 'pod_gpu_idle_seconds_total{{pod="idle"}}', values: 0+15x100}}
      - {{series: 'pod_gpu_allocated_ratio{{pod="new"}}', values: _x60 1x40}}
      - {{series: 'pod_gpu_allocated_seconds_total{{pod="new"}}', values: _x60 0+60x40}}
      - {{series: 'pod_gpu_idle_seconds_total{{pod="new"}}', values: _x60 0+60x40}}
      - {{series: 'pod_gpu_allocated_ratio{{pod="at-work"}}', values: 1x100}}
      - {{series: 'pod_gpu_allocated_seconds_total{{pod="at-work"}}', values: 0+60x100}}
      - {{series: 'pod_gpu_idle_seconds_total{{pod="at-work"}}', values: 0+60x70 4200x30}}
      - {{series: 'pod_gpu_allocated_ratio{{pod="gone"}}', values: 1x95 stale}}
      - {{series: 'pod_gpu_allocated_seconds_total{{pod="gone"}}', values: 0+60x100}}
      - {{series: 'pod_gpu_idle_seconds_total{{pod="gone"}}', values: 0+60x100}}
    promql_expr_test:
      - expr: {idle}
        eval_time: 100m
        exp_samples: [{{labels: 'pod_gpu_allocated_ratio{{pod="idle"}}', value: 0.25}}]
"""


# issue 9, "Must show" 6
def test_questions_that_look_back_further_than_a_test_can_wait(promtool: Path, tmp_path: Path) -> None:
    case = tmp_path / "test.yaml"
    case.write_text(DAYS_AND_HOURS.format(xids=QUESTIONS[18], idle=QUESTIONS[11]))
    ended = subprocess.run([promtool, "test", "rules", case], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
