"""The pictures and samples of the docs are of the demo that there is: its scheduler gives each name in them.

PNGs cannot be read here: `make pictures` writes which names it saw in each, with the picture's own digest.
"""

import hashlib
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.samples import put, sample
from tests.simulator.test_scheduler import Cluster
from tests.support import demo_names
from tests.support.places import ROOT

IMAGES = ROOT / "docs" / "img"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
DASHBOARDS = ("cluster", "idle")
# The pages whose samples show pods, and how many names each has at least.
SHOW_PODS = {
    "README.md": 4,
    "docs/report.md": 8,
    "docs/kubectl.md": 10,
    "docs/sharing.md": 2,
    "docs/endpoints.md": 3,
}

# A label or a JSON field; "" is that of a device that nobody holds.
_QUOTED = re.compile(r'\b(?:namespace|pod|workload_name)"?\s*[:=]\s*"([^"…]+)"')
_NAME = r"[a-z][a-z0-9-]*"
# namespace/pod, in what `top` and `who` print; a page of the docs is none
_POD = re.compile(rf"(?<![\w./:-]){_NAME}/{_NAME}(?![\w-]|\.md\b)")
_WORKLOAD = re.compile(rf"(?<![\w./:-]){_NAME}/(?:Deployment|StatefulSet|DaemonSet|CronJob|Job|Pod|ReplicaSet)/{_NAME}")
_GROUP = re.compile(r'"name": "([^"]+)"')
_OF_COMMAND = re.compile(rf"^kubectl gpu (?:who|why) ({_NAME})(?= |$)", re.MULTILINE)
_CARD = re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{4,8}(?=[0-9a-f-]*…|-)|\bGPU-[0-9a-f]{4}(?=…)")


def name_of(page: Path) -> str:
    """Where the page is in the repository."""
    return page.relative_to(ROOT).as_posix()


def names_in(sample: str) -> Iterator[str]:
    """The namespaces, pods and workloads that a sample shows."""
    yield from _QUOTED.findall(sample)
    yield from _WORKLOAD.findall(sample)
    yield from (name for name in _OF_COMMAND.findall(sample) if not name.startswith("gpu-node-"))
    lines = sample.splitlines()
    if any(re.search(r"\bPOD\b", line) for line in lines):
        yield from _POD.findall(sample)
    if '"by": "namespace"' in sample:
        yield from _GROUP.findall(sample)
    if lines[0].startswith("from,to,namespace,"):
        yield from (line.split(",")[2] for line in lines[1:])
    # a report's groups stand between two lines
    for table in re.findall(r"^namespace +GPU-hours.*\n-.*\n((?:[^-\n].*\n)+)", sample, re.MULTILINE):
        yield from (name for name in re.findall(r"^\S+", table, re.MULTILINE) if name != "(nobody)")


def samples(page: Path) -> list[str]:
    """The blocks of a page without a language: what programs print, and commands."""
    # every second piece is a block, and begins with its language
    blocks = re.split(r"^```", page.read_text(), flags=re.MULTILINE)[1::2]
    return [block.removeprefix("\n") for block in blocks if block.startswith("\n")]


def cards_in(sample: str) -> set[str]:
    """The UUIDs that a sample begins to show."""
    return {card for card in _CARD.findall(sample) if card.startswith("GPU-")}


def models_in(sample: str) -> set[str]:
    """The models of GPUs that a sample shows, as short as `top` has them."""
    quoted = re.findall(r'\b(?:model_name|modelName)"?\s*[:=]\s*"([^"]+)"', sample)
    return {
        model.removeprefix("NVIDIA ") for model in (*quoted, *re.findall(r"\b[A-Z]+\d{2,4} \d+GB(?: HBM\w+)?", sample))
    }


def text_of(picture: Path) -> list[str]:
    """The texts of an SVG as they stand in it, without what is blank."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text())
    return [text.strip() for text in (html.unescape(each).replace("\u00a0", " ") for each in texts) if text.strip()]


def strings_of(model: object) -> Iterator[str]:
    """Every string of a dashboard's JSON."""
    if isinstance(model, dict):
        yield from (text for value in model.values() for text in strings_of(value))
    elif isinstance(model, list):
        yield from (text for value in model for text in strings_of(value))
    elif isinstance(model, str):
        yield model


def foreign_texts(texts: list[str], model: object) -> list[str]:
    """The texts of a dashboard's picture that neither its JSON has, nor the demo, nor Grafana."""
    own = {*strings_of(model), "All", "prometheus", "demo", "Mean", "Max", "Last *"}
    number = re.compile(
        r"[$-]?\d[\d.]*[KMB%]?(?: ?(?:[kM]?Wh?|°C|GPU-h|GPUs|[KMGT]?i?B|s|ms|mins|hours|days))?|\d\d:\d\d"
    )
    of_demo = {demo_names.MODEL, *demo_names.CONTAINERS, *(f"gpu-node-{at}" for at in range(1, demo_names.NODES + 1))}
    return [
        text
        for text in (each.removeprefix("Dashboards / ").lstrip("▾▸ ") for each in texts)
        if text not in own | of_demo
        and not number.fullmatch(text)
        and text[:12] not in demo_names.cards()
        and not demo_names.is_name(text)
        and not text.startswith("Drawn from the dashboard's JSON")
    ]


# issue 22, line 19
def test_the_scheduler_makes_names_of_the_demo_in_every_form() -> None:
    cluster = Cluster(9, seed=3, speed=60)
    pods: set[tuple[str, str]] = set()
    for _ in range(300):
        cluster.live(120, apart=120)
        pods |= {(pod.namespace, pod.name) for world in cluster.worlds for pod in world.pods if pod.devices}
    assert [pod for pod in pods if not demo_names.is_pod(*pod)] == []
    made = {(namespace, form) for namespace, name in pods for form in demo_names.forms_of(namespace, name)}
    assert made == {(namespace, form) for namespace, form, _ in demo_names.WORKLOADS}


# issue 22, line 19
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_samples_of_a_page_are_of_the_demo(page: Path) -> None:
    shown = samples(page)
    names = [name for sample in shown for name in names_in(sample)]
    assert [name for name in names if not demo_names.is_name(name)] == []
    assert len(set(names)) >= SHOW_PODS.get(name_of(page), 0)
    cards = demo_names.cards()
    of_pods = [sample for sample in shown if [*names_in(sample)]]
    seen = {card for sample in of_pods for card in cards_in(sample)}
    assert [card for card in seen if not any(known.startswith(card) for known in cards)] == []
    models = {model for sample in of_pods for model in models_in(sample)}
    assert models <= {demo_names.MODEL.removeprefix("NVIDIA ")}


# issue 22, line 19
def test_the_picture_of_top_is_of_the_demo() -> None:
    texts = text_of(IMAGES / "top.svg")
    pods = [pod for text in texts for pod in _POD.findall(text)]
    assert len(pods) > 10
    assert [pod for pod in pods if not demo_names.is_name(pod)] == []
    assert {model for text in texts for model in models_in(text)} == {demo_names.MODEL.removeprefix("NVIDIA ")}


# issue 22, line 19
@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_picture_of_a_dashboard_is_of_the_demo_and_no_panel_is_empty(name: str) -> None:
    texts = text_of(IMAGES / f"dashboard-{name}.svg")
    assert len(set(texts) & demo_names.NAMESPACES) >= 4  # as many as a legend has room for
    model = json.loads((ROOT / "deploy" / "grafana" / f"{name}.json").read_text())
    assert foreign_texts(texts, model) == []


# issue 22, line 19
def test_every_picture_is_looked_at() -> None:
    pictures = {path.name for path in IMAGES.iterdir()} - {"names.json", "icon.svg"}
    svgs = {"top.svg", *(f"dashboard-{name}.svg" for name in DASHBOARDS)}
    assert pictures == svgs | json.loads((IMAGES / "names.json").read_text()).keys()


# issue 22, line 19
@pytest.mark.parametrize("picture", sorted(IMAGES.glob("*.png")), ids=lambda picture: picture.name)
def test_a_picture_shows_the_demo(picture: Path) -> None:
    """`make pictures` saw these names in this very file."""
    seen = json.loads((IMAGES / "names.json").read_text())[picture.name]
    assert hashlib.sha256(picture.read_bytes()).hexdigest() == seen["sha256"]
    assert len(seen["names"]) > 4
    assert [name for name in seen["names"] if not demo_names.is_name(name)] == []


MARKS = [
    ("kubectl.md", "top"),
    ("report.md", "report"),
]


# issue 22, line 19
@pytest.mark.parametrize(("page", "mark"), MARKS)
def test_a_sample_is_made_anew_behind_its_mark_and_nothing_else_changes(page: str, mark: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / page).read_text()
    copy = tmp_path / page
    copy.write_text(text)
    before = sample(copy, mark)
    put(copy, mark, ["a line  ", "another"])
    assert sample(copy, mark) == "a line\nanother\n"
    assert copy.read_text().replace("a line\nanother\n", before) == text


OLD = {
    "top": "GPU UTIL POD\n1   65% 36/79G 64°C 499W serving/eval-nightly-gsgkz\n",
    "last minutes": "GPU PID POD COMMAND\n1   10006 1000 compute serving/chat-8b-gsgkz python3 -m eval\n",
    "who": "NODE POD\ngpu-node-1   3/9    1g.10gb          team-vision/jupyter-dwdg5      notebook\n",
    "command": "kubectl gpu why trainer-0           # why a pod has GPU metrics, or none\n",
    "page": 'DCGM_FI_DEV_POWER_USAGE{gpu="4",pod="jupyter-gj8ww",namespace="speech"} 70\n',
    "JSON": '[{"namespace":"ml-research","pod":"jupyter-anna-0"}]\n',
    "report": "namespace  GPU-hours\n----  ----\nnotebooks  0.97\n(nobody)  0.00\n----  ----\ntotal  0.97\n",
    "workloads": "workload  not used\n----  ----\nresearch/Deployment/serve-embeddings  0.29\n",
    "CSV": "from,to,namespace,gpu_hours_held\n2026-11-15T08:00:00Z,2026-11-22T08:00:00Z,ml-research,412.5\n",
    "groups": '{"from": "…", "by": "namespace",\n "groups": [{"name": "serving", "gpu_hours_held": 412.5}]}\n',
}


# issue 22, line 19
@pytest.mark.parametrize("form", OLD)
def test_one_name_that_is_not_the_demos_is_noticed_in_every_form_of_sample(form: str) -> None:
    assert len([name for name in names_in(OLD[form]) if not demo_names.is_name(name)]) == 1


# issue 22, line 19
@pytest.mark.parametrize("text", ["serving", "train-resnet-dgb68", "jupyter-q4t8k", "No data", "GPU-00000000-9b57…"])
def test_a_text_from_outside_the_demo_is_noticed_in_a_dashboards_picture(text: str) -> None:
    model = {"title": "GPUs: cluster", "panels": [{"title": "Power by model"}]}
    of_demo = [
        "Dashboards / GPUs: cluster",
        "Power by model",
        "8.27 kW",
        "vision",
        "jupyter-anna-0",
        "18:49",
        demo_names.MODEL,
    ]
    assert foreign_texts([*of_demo, text], model) == [text]
