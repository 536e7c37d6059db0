"""The chart brings copies of files that stand elsewhere: of each link Helm would write a line to the log."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.chart import CHART
from tests.support.places import ROOT

DEPLOY = ROOT / "deploy"
FOLDERS = {"dashboards": (DEPLOY / "grafana", "*.json"), "rules": (DEPLOY / "prometheus" / "rules", "*.yaml")}


def copies() -> Mapping[Path, Path]:
    """Each copy in the chart, and what it is a copy of."""
    files = CHART / "files"
    return {
        CHART / "crds" / "crds.yaml": DEPLOY / "operator" / "crds.yaml",
        files / "counters.csv": DEPLOY / "kustomize" / "sidecar" / "counters.csv",
        # templates cannot read the one that Helm reads
        files / "values.schema.json": CHART / "values.schema.json",
        **{
            files / name / original.name: original
            for name, (folder, pattern) in FOLDERS.items()
            for original in folder.glob(pattern)
        },
    }


# issue 22, line 21
def test_the_chart_has_no_links() -> None:
    assert [path for path in CHART.rglob("*") if path.is_symlink()] == []


def test_what_the_chart_brings_is_what_stands_elsewhere(request: pytest.FixtureRequest) -> None:
    """`--update-golden` copies it anew."""
    if request.config.getoption("--update-golden"):
        for copy, original in copies().items():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(original.read_bytes())
    for copy, original in copies().items():
        assert copy.read_bytes() == original.read_bytes(), f"{copy} is not {original}: --update-golden copies it"
    for name in FOLDERS:
        folder = CHART / "files" / name
        assert set(folder.iterdir()) == {copy for copy in copies() if copy.parent == folder}
