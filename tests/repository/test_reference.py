"""docs/flags.md and the other reference pages: they are what the generator makes, and nothing is missing in them."""

import ast
import re
from collections.abc import Mapping, Sequence

import click
import pytest
import yaml

from docs.generator import endpoints, rooms
from docs.generator.everything import FOLDER, texts
from docs.generator.markdown import UndescribedError
from exporter.cli.commands import COMMANDS, command_named
from exporter.cluster.outputs.cluster_outputs import OUTPUTS as CLUSTER_OUTPUTS
from exporter.cluster.outputs.own_metrics import FAMILIES as CLUSTER_FAMILIES
from exporter.config import cluster_settings, node_settings, operator_settings
from exporter.exposition.families import Family
from exporter.operator.outputs import FAMILIES as OPERATOR_FAMILIES
from exporter.operator.outputs import OUTPUTS as OPERATOR_OUTPUTS
from exporter.outputs.families import gpu_manager
from exporter.outputs.families.catalogue import FAMILIES
from exporter.outputs.node_outputs import OUTPUTS
from tests.support.places import ROOT

TEXTS = texts()
FLAGS, ENDPOINTS, METRICS = TEXTS["flags.md"], TEXTS["endpoints.md"], TEXTS["metrics.md"]


@pytest.mark.parametrize("name", TEXTS)
def test_the_file_is_what_the_generator_makes(name: str) -> None:
    """`make golden` writes it anew."""
    assert (FOLDER / name).read_text() == TEXTS[name]


def test_every_flag_is_there_with_its_names_and_its_default() -> None:
    rows = {flag: line for line in FLAGS.splitlines() for flag in re.findall(r"^- `(--[\w.-]+)", line)}
    _, _, of_commands = FLAGS.partition("\n## Flags of single commands\n")
    named = rows.keys() | set(re.findall(r"`(--[\w.-]+)", of_commands))
    for command in COMMANDS:
        for parameter in command_named(command).params:
            if isinstance(parameter, click.Argument):
                continue
            assert set(parameter.opts) & named or "--config.file" in parameter.opts, parameter.opts
    # the page says by which rule a name follows from its flag
    rule = "The environment name is `POD_GPU_EXPORTER_` and the flag in capitals, with `_` for `.` and `-`."
    assert rule in " ".join(FLAGS.split())
    for setting in (*node_settings.SETTINGS, *cluster_settings.SETTINGS, *operator_settings.SETTINGS):
        row = rows[setting.flag]
        assert setting.env == "POD_GPU_EXPORTER_" + re.sub(r"[.-]", "_", setting.flag.removeprefix("--").upper())
        assert not setting.also_env or f"Also `{setting.also_env}`." in row
        assert not setting.default or f"(`{setting.default}`)" in row


# issue 22, line 24
def test_what_has_no_description_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    api = yaml.safe_load((FOLDER / "openapi.yaml").read_text())
    del api["paths"]["/events"]["get"]["description"]
    monkeypatch.setattr(yaml, "safe_load", lambda _: api)
    with pytest.raises(UndescribedError, match=r"^docs/openapi.yaml: /events has no description: write one"):
        endpoints.page()


# issue 28, part 1
def test_every_room_is_on_the_map() -> None:
    exporter = ROOT / "exporter"
    folders = {f"{path.parent.relative_to(exporter)}/" for path in exporter.rglob("__init__.py")} - {"./"}
    files = {path.name for path in exporter.glob("*.py")} - {"__init__.py"}
    rows = re.findall(r"^\| \d+ \| `([\w/.]+)` \| .+ \|$", TEXTS["developers/design.md"], re.MULTILINE)
    assert sorted(rows) == sorted(folders | files)


def test_a_room_without_a_first_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ast, "get_docstring", lambda _: None)
    with pytest.raises(UndescribedError, match=r"^exporter/[\w/]+\.py has no docstring"):
        rooms.page()


def test_every_path_is_there() -> None:
    """In a row of the role's table, or among the paths that the cluster role has as a node has them."""
    of_node, _, others = ENDPOINTS.partition("## Of the cluster role")
    of_cluster, _, others = others.partition("## Of the operator")
    of_operator, _, _ = others.partition("\n## ")
    for text, outputs in ((of_node, OUTPUTS), (of_cluster, CLUSTER_OUTPUTS), (of_operator, OPERATOR_OUTPUTS)):
        rows = re.findall(r"^(?:\| |As above: )(.*?)(?: \| |\.$)", text, re.MULTILINE)
        paths = {path.partition("<")[0] for row in rows for path in re.findall(r"`([^`]*)`", row)}
        assert paths == {output.path for output in outputs}


def _families_of_page() -> Mapping[str, tuple[str, set[str]]]:
    """By name: the kind and the labels as the page's own words have them."""
    (common,) = re.findall(r"^- `…` among the labels stands for (.*)\.$", METRICS, re.MULTILINE)
    families: dict[str, tuple[str, set[str]]] = {}
    _, _, tables = METRICS.partition("\n## Program and sources\n")
    rows = re.findall(r"^\| `(\w+(?:\{[^}`]*\})?)` \| (.*) \|$", tables, re.MULTILINE)
    rows += [(named, "") for named in re.findall(r"^- `(\w+(?:\{[^}`]*\})?)`$", tables, re.MULTILINE)]
    for named, says in rows:
        name, _, inside = named.rstrip("}").partition("{")
        labels = set(re.findall(r"\w+|…", inside))
        if "…" in labels:
            labels = labels - {"…"} | set(re.findall(r"\w+", common))
        kind = re.match(r"\*(\w+)\*: ", says)
        usual = "counter" if name.endswith("_total") else "gauge"
        families[name] = (kind[1] if kind else usual, labels)
    return families


def test_every_family_is_there_with_its_kind_and_its_labels() -> None:
    """Those of gpu-manager are in docs/sharing.md."""
    of_page = _families_of_page()
    families: Sequence[Family] = (*FAMILIES, *CLUSTER_FAMILIES, *OPERATOR_FAMILIES)
    own = {family.name: family for family in families if family not in gpu_manager.FAMILIES}
    assert of_page == {name: (family.kind, {*family.labels}) for name, family in own.items()}
    sharing = (FOLDER / "sharing.md").read_text()
    assert all(f"`{family.name}{{{family.labels[-1]}" in sharing for family in gpu_manager.FAMILIES)


@pytest.mark.parametrize("name", TEXTS)
def test_every_row_has_as_many_cells_as_its_head(name: str) -> None:
    """A | that is not escaped makes one more."""
    for block in re.findall(r"(?:^\|.*\n)+", TEXTS[name], re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1, block
