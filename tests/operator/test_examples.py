"""deploy/operator/examples: what the schemas take, what the operator reads, and no field that they would drop."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.operator.autoscaler_specs import misgivings, why_invalid
from exporter.operator.resources import read_autoscaler, read_exporter
from exporter.simulator.api_server.schemas import pruned
from tests.operator.specs import SCHEMAS, complaints
from tests.support.cel import broken
from tests.support.places import ROOT

EXAMPLES = sorted((ROOT / "deploy" / "operator" / "examples").glob("*.yaml"))
Object = dict[str, Any]


def read(path: Path) -> Object:
    (item,) = yaml.safe_load_all(path.read_text())
    return dict(item)


def examples(kind: str) -> list[Path]:
    return [path for path in EXAMPLES if read(path)["kind"] == kind]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_what_the_schema_takes(path: Path) -> None:
    item = read(path)
    assert complaints(item["kind"], item) == []
    assert broken(item["kind"], item) == []
    assert pruned(item, SCHEMAS[item["kind"]])[1] == []


def test_the_operator_reads_the_examples() -> None:
    for path in examples("GPUExporter"):
        assert read_exporter(read(path)).image
    for path in examples("GPUAutoscaler"):
        spec = read_autoscaler(read(path))
        assert why_invalid(spec) is None
        assert misgivings(spec, keda=True) is None
        # what the comments say of KEDA
        assert (misgivings(spec, keda=False) is None) == ("zero" not in path.stem)


def test_the_minimal_one_is_as_small_as_can_be_and_the_other_one_has_every_field() -> None:
    small, whole = (read(path)["spec"] for path in (EXAMPLES[-1], EXAMPLES[-2]))
    assert [path.stem for path in EXAMPLES[-2:]] == ["every-field", "minimal"]
    assert small.keys() == {"image"}
    assert whole.keys() == SCHEMAS["GPUExporter"]["properties"]["spec"]["properties"].keys()
