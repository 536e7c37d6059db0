"""The table of the node role's outputs, held against what is in the folder and in docs/endpoints.md."""

import re
from importlib import import_module
from pkgutil import walk_packages

from exporter import outputs
from exporter.outputs.node_outputs import OUTPUTS
from exporter.outputs.output import Output
from tests.support.exporter import PATHS
from tests.support.places import ROOT


def test_every_output_of_the_folder_is_in_the_table() -> None:
    modules = [import_module(found.name) for found in walk_packages(outputs.__path__, "exporter.outputs.")]
    made = {found.path for module in modules for found in vars(module).values() if isinstance(found, Output)}
    assert made == set(PATHS)
    assert len(set(PATHS)) == len(PATHS)


def test_every_output_is_in_the_table_of_paths() -> None:
    _, _, of_node = (ROOT / "docs" / "endpoints.md").read_text().partition("## Of a node's exporter")
    rows = re.findall(r"^\| (`/[^|]*) \|", of_node.partition("\n## ")[0], re.MULTILINE)
    assert sorted(path for row in rows for path in re.findall(r"`([^`]*)`", row)) == sorted(PATHS)


def test_probes_look_at_no_more_than_whether_the_process_is_ready() -> None:
    """They are asked for without a password, and however many requests there are."""
    for output in OUTPUTS:
        if output.is_probe:
            assert output.needs <= {"readiness"}, output.path
