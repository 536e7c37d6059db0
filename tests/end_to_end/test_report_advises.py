"""`report --advise` of a day in a real Prometheus: each line rests on queries that answer the same when asked again."""

import csv
import io
import json
import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from exporter.cli.main import run
from tests.report.needing import MIB, REAL, Needs, Part, make_needs, scraped
from tests.support.command import run_here
from tests.support.components import real
from tests.support.prometheus import Prometheus, prometheus
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

BEGIN = 1_775_001_600  # 2026-04-01
HOURS = 26
H100 = "NVIDIA H100 80GB HBM3"
Rows = dict[str, list[str]]


def whole(memory: float, active: float, model: str = H100) -> Needs:
    points = HOURS * 120
    chance = random.Random(int(memory))
    return Needs(
        int(memory),
        model,
        REAL[model][-1],
        [memory * MIB * chance.uniform(0.9, 1) for _ in range(points)],
        [active * chance.uniform(0.5, 1) for _ in range(points)],
    )


def put(rows: Rows, family: str, labels: Mapping[str, str], points: Sequence[tuple[int, float]]) -> None:
    text = ",".join(f'{name}="{value}"' for name, value in labels.items())
    rows.setdefault(family, []).extend(f"{family}{{{text}}} {value!r} {BEGIN + at}\n" for at, value in points)


def add(
    rows: Rows, pod: str, uuid: str, needs: Needs, *, share: float, measured: bool, hours: int = HOURS, away: int = 0
) -> None:
    """What is scraped of a pod that holds a device: accounts, and use as dcgm-exporter or NVML shows it."""
    row = {
        "namespace": "shop",
        "pod": pod,
        "container": "main",
        "UUID": uuid,
        "GPU_I_ID": "9" if needs.held.name else "",
    }
    row |= {"node": "n", "job": "gpu", "instance": "n:9400"}
    every = [(at, float(at)) for at in range(0, hours * 3600 + 1, 60)]
    counters = {"allocated": share, "active": share / 4, "idle": share / 4, "observed": share}
    for name, each in counters.items():
        put(rows, f"pod_gpu_{name}_seconds_total", row, [(at, at * each) for at, _ in every])
    put(rows, "pod_gpu_allocated_ratio", row, [(at, share) for at, _ in every])
    info = {**row, "modelName": needs.model, "GPU_I_PROFILE": needs.held.name}
    put(rows, "pod_gpu_info", info, [(at, 1.0) for at, _ in every])
    chance = random.Random(needs.number)
    memory, activity = scraped(needs.memory, chance), scraped(needs.activity, chance)
    memory, activity = (
        [one for one in points if away * 3600 < one[0] <= hours * 3600] for points in (memory, activity)
    )
    if measured:
        put(rows, "pod_gpu_memory_used_bytes", row, memory)
        put(rows, "pod_gpu_utilization_ratio", row, activity)
        put(rows, "pod_gpu_memory_used_bytes", {**row, "pod": f"{pod}-x", "holds": "false"}, [(60, 9e12)])
    else:
        put(rows, "DCGM_FI_DEV_FB_USED", row, [(at, value / MIB) for at, value in memory])
        put(rows, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", row, activity)


def world() -> Rows:
    rows: Rows = {}
    cut = next(needs for number in range(999) if (needs := make_needs(number)).held.name and needs.smallest < 2)
    add(rows, "small-0", "GPU-1", whole(15_000, 0.1), share=1.0, measured=False)
    add(rows, "large-0", "GPU-2", whole(70_000, 0.9), share=1.0, measured=False)
    add(rows, "cut-0", "GPU-3", cut, share=3 / 7, measured=False)
    add(rows, "quarter-0", "GPU-4", whole(3_000, 0.05, "NVIDIA L40S"), share=0.25, measured=True)
    add(rows, "blind-0", "GPU-5", whole(3_000, 0.05), share=0.25, measured=False)
    add(rows, "short-0", "GPU-6", whole(3_000, 0.05), share=1.0, measured=False, hours=20)
    add(rows, "away-0", "GPU-9", whole(3_000, 0.05), share=1.0, measured=False, away=3)
    for uuid in ("GPU-7", "GPU-8"):
        add(rows, "pair-0", uuid, whole(3_000, 0.05), share=1.0, measured=False)
    put(rows, "node_gpu_capacity", {"node": "n", "model": H100}, [(at, 8.0) for at in range(0, HOURS * 3600 + 1, 60)])
    return rows


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("day")
    with (folder / "day.om").open("w") as file:
        for family, lines in world().items():
            kind = "counter" if family.endswith("_total") else "gauge"
            file.write(f"# TYPE {family.removesuffix('_total')} {kind}\n{''.join(lines)}")
        file.write("# EOF\n")
    backfill = [str(real("promtool")), "tsdb", "create-blocks-from", "openmetrics", "-q", "--max-block-duration=2000h"]
    subprocess.run([*backfill, str(folder / "day.om"), str(folder / "data")], check=True, stdout=subprocess.DEVNULL)
    with prometheus(folder, (), flags=("--storage.tsdb.retention.time=100y",)) as started:
        wait_until(lambda: is_up(started), PATIENCE_SECONDS * 2)
        yield started


def is_up(asked: Prometheus) -> bool:
    try:
        return bool(asked.query("vector(1)"))
    except OSError:
        return False


def advised(server: Prometheus, form: str, capsys: pytest.CaptureFixture[str]) -> str:
    span = [f"--from={BEGIN}", f"--to={BEGIN + HOURS * 3600}"]
    code = run(
        ["report", f"--prometheus={server.base}", "--advise", *span, f"--format={form}", "--price-per-gpu-hour=2"]
    )
    written = capsys.readouterr()
    assert code == 0, written.err
    return written.out


# issue 20, Must show 4
def test_each_line_of_advice_rests_on_queries_that_answer_the_same_again(
    server: Prometheus, capsys: pytest.CaptureFixture[str]
) -> None:
    content: list[dict[str, Any]] = json.loads(advised(server, "json", capsys))["advice"]
    by_name = {one["workload"].removeprefix("shop/StatefulSet/"): one for one in content}
    assert {name for name, one in by_name.items() if not one["no_advice"]} == {"small", "large", "cut", "quarter"}
    for one in content:
        assert len(one["evidence"] or ()) == (0 if one["no_advice"] else 3)
        for evidence in one["evidence"] or ():
            server.at_seconds = evidence["time"]
            assert server.number(evidence["query"]) == evidence["value"]
    assert by_name["small"]["sufficient"] == "1g.20gb"
    assert by_name["small"]["gpu_hours_beyond"] == pytest.approx(HOURS * 6 / 7, rel=1e-3)
    assert by_name["small"]["cost_beyond"] == pytest.approx(2 * HOURS * 6 / 7, rel=1e-3)
    assert by_name["small"]["memory_peak_bytes"] == pytest.approx(15_000 * MIB, rel=0.01)
    assert by_name["large"]["sufficient"] == "what it holds"
    assert by_name["large"]["gpu_hours_beyond"] == 0
    assert by_name["quarter"]["sufficient"] == "1/10 of a GPU"
    parts: Sequence[Part] = REAL[H100]
    cut = next(needs for number in range(999) if (needs := make_needs(number)).held.name and needs.smallest < 2)
    assert cut.suffices(next(part for part in parts if part.name == by_name["cut"]["sufficient"]))
    for name, why in {
        "blind": "it shared a GPU",
        "short": "less than a day",
        "pair": "several devices at once",
    }.items():
        assert why in by_name[name]["no_advice"]


def test_table_and_csv_have_the_same_advice(server: Prometheus, capsys: pytest.CaptureFixture[str]) -> None:
    table = advised(server, "table", capsys)
    rows = list(csv.DictReader(io.StringIO(advised(server, "csv", capsys))))
    assert len(rows) == 8
    for row in rows:
        assert row["workload"] in table
        assert row["no_advice"] in table
        assert row["sufficient"] in table
        for evidence in json.loads(row["evidence"]):
            assert evidence["query"] in table


def test_advice_has_no_charts_and_compares_nothing() -> None:
    for flags in (["--format=html"], ["--compare"], ["--per-token"]):
        ended = run_here("report", "--prometheus=http://127.0.0.1:1", "--advise", *flags)
        assert ended.returncode == 2
        assert "--advise: it is of one span, as table, json, csv" in ended.stderr
