"""What is written about the program, held against the program."""

import json
import re
import subprocess

import click
import pytest

from exporter.cli.commands import COMMANDS, command_named
from exporter.cluster.outputs.cluster_outputs import OUTPUTS as CLUSTER_OUTPUTS
from exporter.cluster.outputs.own_metrics import FAMILIES as CLUSTER_FAMILIES
from exporter.cluster.outputs.own_metrics import OF_NODES
from exporter.config.cluster_settings import SETTINGS as CLUSTER_SETTINGS
from exporter.config.parsers import SHIPPED_RULES
from exporter.kubectl.command import commands as kubectl_gpu
from exporter.model.states import DeviceState
from exporter.outputs.families.catalogue import FAMILIES
from exporter.simulator.dcgm_pages import COUNTERS, GENERATIONS
from tests.support import quick_yaml
from tests.support.exporter import Start
from tests.support.places import ROOT
from tests.support.simulated import SimulatedNode

README = (ROOT / "README.md").read_text()
CLUSTER = (ROOT / "docs" / "cluster.md").read_text()
JSON = (ROOT / "docs" / "endpoints.md").read_text()
PERFORMANCE = (ROOT / "docs" / "developers" / "performance.md").read_text()


# issue 21, README in 250 lines
def test_the_readme_is_read_in_some_minutes() -> None:
    assert len(README.splitlines()) <= 250


def test_the_readmes_figures_are_those_of_the_benchmarks() -> None:
    """What it costs is measured, and stands in docs/developers/performance.md."""
    _, _, costs = README.partition("On a node with 8 GPUs")
    figures = re.findall(r"[\d.]+(?: to [\d.]+)? (?:MiB|us|s|times)\b", costs.partition("\n\n")[0])
    assert len(figures) >= 5
    for figure in figures:
        assert figure in PERFORMANCE or figure.partition(" ")[0] in re.findall(r"[\d.]+", PERFORMANCE), figure


WHERE_THE_PODS_API_IS_DATED = (
    "protos/pods.proto",
    "exporter/config/node_settings.py",
    "exporter/node/build_sources.py",
    "docs/devices.md",
    "docs/flags.md",
    "docs/install.md",
    "docs/troubleshooting.md",
    "deploy/rbac.yaml",
    "deploy/helm/pod-gpu-metrics-exporter/values.yaml",
    "deploy/helm/pod-gpu-metrics-exporter/README.md",
)


# issue 22, line 39
@pytest.mark.parametrize("file", WHERE_THE_PODS_API_IS_DATED)
def test_the_kubelets_pods_api_is_older_than_its_default(file: str) -> None:
    """Kubernetes' page of the gate PodsAPI: alpha and off in 1.36, beta and on since 1.37."""
    words = " ".join((ROOT / file).read_text().replace("#", " ").replace("//", " ").split())
    dated = [words[max(0, at.start() - 300) : at.end() + 100] for at in re.finditer(r"Kubernetes 1\.37", words)]
    assert dated
    for text in dated:
        assert "1.36" in text, text
        assert "PodsAPI" in text, text


# issue 22, line 24
def test_what_the_first_steps_write_is_no_change_of_the_checkout() -> None:
    steps = README + (ROOT / "docs" / "getting-started.md").read_text()
    written = re.findall(r"^cat >([\w./-]+)|--storage\.tsdb\.path=([\w./-]+)", steps, re.MULTILINE)
    paths = ["".join(names) for names in written]
    assert {"prometheus.yml", "gpu-prometheus"} <= set(paths)
    for path in paths:
        # a folder that is not there yet is named with its slash
        inside = [path, f"{path}/"]
        asked = subprocess.run(["git", "check-ignore", *inside], cwd=ROOT, capture_output=True, check=False)
        assert asked.returncode == 0, path


# that docs/flags.md has all of them is test_reference.py
def test_the_flags_of_the_demo_in_its_page_have_their_defaults() -> None:
    options = {option: parameter for parameter in command_named("demo").params for option in parameter.opts}
    page = (ROOT / "docs" / "getting-started.md").read_text()
    defaults = dict(re.findall(r"`(--(?:gpus|units|collect-interval)) (\d+)`", page))
    assert {flag: float(value) for flag, value in defaults.items()} == {
        flag: options[flag].default for flag in defaults
    }
    assert len(defaults) == 3


# that docs/flags.md, endpoints.md and metrics.md have all of the cluster role's is test_reference.py
def test_what_the_page_of_the_cluster_role_names_is_there() -> None:
    paths = set(re.findall(r"^\| `(/[^`…]*)…?` \|", CLUSTER, re.MULTILINE))
    assert {"/", "/container/metrics", "/autoscale/"} <= paths <= {output.path for output in CLUSTER_OUTPUTS}
    families = set(re.findall(r"`(pod_gpu_exporter_cluster_\w+)`", CLUSTER))
    assert families
    assert families <= {family.name for family in OF_NODES}
    page = " ".join(CLUSTER.split())
    defaults = {setting.flag: setting.default for setting in CLUSTER_SETTINGS}
    for flag in ("--cluster.interval", "--cluster.max-age"):
        assert f"`{flag}` ({re.sub(r's$', ' s', str(defaults[flag]))})" in page


def test_every_family_of_the_cluster_role_is_its_own_or_every_roles() -> None:
    every_roles = {family.name for family in FAMILIES}
    assert {family.name for family in CLUSTER_FAMILIES} - {family.name for family in OF_NODES} <= every_roles


PAGES = ["README.md", *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))]
# flags of other programs, and groups of our own that a sentence names
FOREIGN = {
    *("--build", "--build-arg", "--cap-drop", "--network", "--read-only", "--rm"),  # docker
    *(
        "--all",
        "--cascade",
        "--for",
        "--from-file",
        "--previous",
        "--recursive",
        "--server-side",
        "--show-labels",
    ),  # kubectl
    *("--archive", "--manifest", "--raw"),  # kubectl krew, and kubectl again
    *("--find-links", "--logs", "--require-hashes", "--reuse-values", "--set"),  # pip and helm
    *(
        "--enable-feature",
        "--storage.tsdb.path",
        "--storage.tsdb.retention.time",
        "--web.enable-otlp-receiver",
    ),  # Prometheus
    *("--comment", "--duration"),  # amtool
    *("--collector.textfile.directory", "--data-urlencode", "--enable-metrics", "--gpu-reset", "--now"),  # one each
    *("--query.replica-label", "--quick"),
    *("--accounting", "--kubernetes", "--log", "--web"),
}


@pytest.mark.parametrize("page", PAGES)
def test_no_flag_in_the_docs_that_there_is_not(page: str) -> None:
    commands = [*map(command_named, COMMANDS), *kubectl_gpu.commands.values()]
    options = {option for command in commands for parameter in command.params for option in parameter.opts}
    named = {flag.rstrip(".") for flag in re.findall(r"(?<![\w-])--[a-z][a-z.-]+", (ROOT / page).read_text())}
    assert named <= options | FOREIGN | {"--help", "--help-all", "--version"}


# that docs/metrics.md has all of them is test_reference.py
def test_the_families_that_the_readme_names_are_there() -> None:
    names = set(re.findall(r"`((?:pod_gpu|node_gpu)_\w+)`", README))
    assert {"pod_gpu_info", "pod_gpu_allocated_seconds_total", "pod_gpu_device_verdict"} <= names
    assert names <= {family.name for family in FAMILIES}


# issue 26, "Less in the way"
def test_every_shipped_rule_says_once_where_it_was_seen() -> None:
    _, _, experimental = (ROOT / "docs" / "vendors.md").read_text().partition("## What is experimental")
    rows = re.findall(r"^\| `(\w+)`[^|]*\| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", experimental, re.MULTILINE)
    assert {name for name, *_ in rows} == SHIPPED_RULES.keys()
    assert all(on_hardware == "never" for _, on_hardware, *_ in rows)


def test_the_states_of_devices_have_a_row_each_in_their_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", JSON.partition("## States")[2].partition("\n## ")[0], re.MULTILINE)
    assert [state for state, _ in rows[1:]] == [state.value for state in DeviceState]
    words = dict(rows)
    assert (words["idle"], words["outside"]) == ("held but idle", "used outside Kubernetes")


def test_the_demo_offers_every_generation_that_the_simulator_writes() -> None:
    (generation,) = (found for found in command_named("demo").params if found.name == "generation")
    assert isinstance(generation.type, click.Choice)
    assert tuple(generation.type.choices) == GENERATIONS


def test_the_demo_offers_every_counters_file_that_the_simulator_knows() -> None:
    (counters,) = (found for found in command_named("demo").params if found.name == "counters")
    assert isinstance(counters.type, click.Choice)
    assert tuple(counters.type.choices) == COUNTERS


# issue 7, line 20
async def test_the_recipe_that_counts_gpus_counts_those_that_are_cut(start: Start, simulated: SimulatedNode) -> None:
    """dcgm-exporter usually writes no row of a GPU that is cut, so that no object has the entity mig-parent."""
    assert len({gpu.uuid for gpu in simulated.world.gpus if gpu.instances}) == 1
    for settings in ({"inventory_file": str(simulated.inventory_file)}, {}):
        exporter = await start(**settings)
        status, text = await exporter.get("/container/metrics")
        assert status == 200
        objects = json.loads(text)
        assert len({found["device_uuid"] for found in objects if not found["device_uuid"].startswith("MIG-")}) == 4
        assert any(found["device_uuid"].startswith("MIG-") for found in objects) is not bool(settings)
    api = quick_yaml.load((ROOT / "docs" / "openapi.yaml").read_text())
    for said in (JSON, api["paths"]["/container/metrics"]["get"]["description"]):
        assert "count the distinct" in " ".join(said.split())
        assert "whose entity is" not in " ".join(said.split())


def test_the_files_that_the_docs_name_are_there() -> None:
    """By path, or by name alone where the sentence says which part it is about."""
    tests = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*")}
    names = {path.rpartition("/")[2] for path in tests}
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("CONTRIBUTING.md")):
        text = page.read_text()
        assert set(re.findall(r"`(tests/[\w/.-]+?)/?`", text)) <= tests, page
        assert set(re.findall(r"`(test_\w+\.py)`", text)) <= names, page


# issue 16, 10
def test_the_files_that_the_design_names_are_there() -> None:
    """By name, or by the end of a path."""
    text = (ROOT / "docs" / "developers" / "design.md").read_text()
    folders = ("exporter", "tests", "deploy", "docs", "release", "benchmarks")
    paths = [path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).rglob("*.*")]
    ends = {"/".join(path.split("/")[-count:]) for path in paths for count in range(1, path.count("/") + 2)}
    assert set(re.findall(r"[\w/.]*\w\.(?:py|c|json|css|js)\b", text)) - ends == set()
