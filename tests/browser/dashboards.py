"""Hours of the demo's nodes in a real Prometheus, and the dashboards as pictures of them, as Grafana lays them out.

Each node's hours take a minute or so under a clock that jumps (`tests/support/quick_hour.py`). Their pages become a
Prometheus server's past, as if it had scraped them, and promtool evaluates the shipped recording rules over it.
"""

import json
import math
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from docs.generator.grafana_picture import Answers, Series, picture
from tests.rules.shipped import metrics, rules
from tests.support.components import real
from tests.support.grafana import ALL, Model, filled, options, variables
from tests.support.places import ROOT
from tests.support.prometheus import Prometheus, prometheus
from tests.support.quick_hour import PATHS, SCRAPES_APART
from tests.support.waiting import wait_until

CAPTION = (
    "Drawn from the dashboard's JSON and a real Prometheus' answers, in Grafana's layout; not a screenshot of Grafana."
)
CLUSTER = "demo"
STEP_SECONDS = 60
# A past that is written has no marks of series that ended: who looks back further than a scrape sees pods long gone.
KEPT = ("--storage.tsdb.retention.time=100y", f"--query.lookback-delta={STEP_SECONDS + 1}s")


def samples(page: str, seconds: float, of_target: Mapping[str, str]) -> Iterator[str]:
    """A page's samples with a moment and a target's labels, as `honor_labels: true` joins them."""
    for line in page.splitlines():
        if line.startswith("#") or not line:
            continue
        series, _, value = line.rpartition(" ")
        name, brace, labels = series.partition("{")
        own = labels.removesuffix("}").rstrip(",")
        more = [f'{label}="{text}"' for label, text in of_target.items() if f'{label}="' not in own]
        together = ",".join(filter(None, (own if brace else "", *more)))
        yield f"{name}{{{together}}} {value} {seconds:.3f}"


def write_past(file: Path, of_nodes: Sequence[Sequence[Sequence[str]]], begin: float) -> None:
    """What a Prometheus would have stored of these pages, as OpenMetrics with moments."""
    with file.open("w") as past:
        for number, answers in enumerate(of_nodes, 1):
            for scrape, pages in enumerate(answers):
                seconds = begin + scrape * SCRAPES_APART
                for path, page in zip(PATHS, pages, strict=True):
                    target = {
                        "job": "gpu-nodes",
                        "instance": f"gpu-node-{number}:9400",
                        "node": f"gpu-node-{number}",
                        "cluster": CLUSTER,
                        "exporter": "pod-gpu-metrics-exporter",
                        "metrics_path": path,
                    }
                    past.writelines(f"{line}\n" for line in samples(page, seconds, target))
                    past.writelines(f"{line}\n" for line in samples("up 1", seconds, target))
        past.write("# EOF\n")


def asked(server: Prometheus, model: Model, span: tuple[float, float]) -> tuple[Answers, Mapping[str, str]]:
    """What the server answers to the panels' queries, and what the choices at the top show."""
    begin, end = span
    range_seconds = f"{end - begin:.0f}s"
    builtin = {"__rate_interval": "5m", "__interval": f"{STEP_SECONDS}s", "__range": range_seconds}
    chosen: dict[str, str] = {}
    shown = {}
    for name, variable in variables(model).items():
        if variable["type"] == "datasource":
            chosen[name] = shown[variable["label"]] = "prometheus"
        elif variable["type"] == "textbox":
            chosen[name] = shown[variable["label"]] = variable["query"]
        elif variable["includeAll"]:
            chosen[name], shown[variable["label"]] = ALL, "All"
        else:
            query = filled(variable["query"]["query"], model, chosen, builtin)
            chosen[name] = options(server, variable, query, end - begin)[0]
            shown[variable["label"]] = chosen[name]
    answers = {}
    for panel in model["panels"]:
        for target in panel.get("targets", ()):
            query = filled(target["expr"], model, chosen, builtin)
            answers[panel["id"], target["refId"]] = tuple(_answer(server, query, span, instant=target["instant"]))
    return answers, shown


def _answer(server: Prometheus, query: str, span: tuple[float, float], *, instant: bool) -> Iterator[Series]:
    begin, end = span
    if instant:
        server.at_seconds = end
        for labels, value in server.query(query):
            if math.isfinite(value):
                yield Series(labels=labels, points=((end, value),))
        return
    words = urllib.parse.urlencode({"query": query, "start": begin, "end": end, "step": STEP_SECONDS})
    for row in server.ask(f"query_range?{words}")["result"]:
        yield Series(labels=row["metric"], points=tuple((float(at), float(value)) for at, value in row["values"]))


def write_rules(folder: Path) -> Iterator[Path]:
    """The recording rules as files, to be evaluated one after the other: what a rule reads is recorded before it.

    A rule that reads what it recorded itself is for the present alone: no dashboard shows it.
    """
    left = [rule for rule in rules() if "record" in rule and rule["record"] not in metrics(rule["expr"])]
    while left:
        waits_for = {rule["record"] for rule in left}
        now = [rule for rule in left if not metrics(rule["expr"]) & waits_for]
        assert now, waits_for
        left = [rule for rule in left if rule not in now]
        file = folder / f"rules-{len(left)}.yaml"
        file.write_text(json.dumps({"groups": [{"name": "past", "rules": now}]}))
        yield file


def is_up(server: Prometheus) -> bool:
    """Whether the server answers."""
    try:
        return bool(server.query("vector(1)"))
    except OSError:
        return False


class Hours(NamedTuple):
    """A Prometheus server that has hours of some nodes: `begin` and `end` are Unix seconds."""

    server: Prometheus
    begin: float
    end: float


@contextmanager
def hours_of_nodes(work: Path, *, nodes: int, hours: float) -> Iterator[Hours]:
    """Let so many nodes live for hours, and record what the rules say of them. `work` is an empty folder."""
    seconds = int(hours * 3600)
    files = [work / f"node-{seed}.json" for seed in range(1, nodes + 1)]
    command = [sys.executable, "-m", "tests.support.quick_hour"]
    running = [
        subprocess.Popen([*command, str(file), str(seconds), "inf", str(seed)], cwd=ROOT)
        for seed, file in enumerate(files, 1)
    ]
    assert [process.wait() for process in running] == [0] * nodes
    end = time.time() // STEP_SECONDS * STEP_SECONDS
    begin = end - seconds
    write_past(work / "past.om", [json.loads(file.read_text()) for file in files], begin)
    promtool = str(real("promtool"))
    backfill = [promtool, "tsdb", "create-blocks-from"]
    data = work / "data"
    subprocess.run(
        [*backfill, "openmetrics", "-q", str(work / "past.om"), str(data)], check=True, stdout=subprocess.DEVNULL
    )
    for file in write_rules(work):
        with prometheus(work, (), flags=KEPT) as server:
            wait_until(lambda server=server: is_up(server))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            about = [f"--start={begin:.0f}", f"--end={end:.0f}", f"--eval-interval={STEP_SECONDS}s"]
            where = [f"--url={server.base}", f"--output-dir={data}"]
            subprocess.run(
                [*backfill, "rules", *about, *where, str(file)],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
    with prometheus(work, (), flags=KEPT) as server:
        wait_until(lambda: is_up(server))
        yield Hours(server, begin, end)


def draw(folder: Path, lived: Hours, names: Mapping[str, int]) -> Iterator[Path]:
    """Write `dashboard-NAME.svg` for each of `names`, down to that row of the grid."""
    for name, cells in names.items():
        model = json.loads((ROOT / "deploy" / "grafana" / f"{name}.json").read_text())
        # rates over five minutes have no values before
        answers, shown = asked(lived.server, model, (lived.begin + 600, lived.end))
        file = folder / f"dashboard-{name}.svg"
        file.write_text(picture(model, answers, caption=CAPTION, choices=shown, cells=cells))
        yield file
