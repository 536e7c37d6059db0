"""The chart brings copies of files that stand elsewhere: of each link Helm would write a line to the log."""

from collections.abc import Mapping
from pathlib import Path

from tests.support.chart import CHART
from tests.support.golden import Golden
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


def test_what_the_chart_brings_is_what_stands_elsewhere(golden: Golden) -> None:
    for copy, original in copies().items():
        golden.holds(copy, original.read_bytes().decode())
    for name in FOLDERS:
        golden.holds_no_other((CHART / "files" / name).iterdir(), copies())
