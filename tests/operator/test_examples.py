"""deploy/operator/examples: the schemas take them and drop no field of theirs, and the operator reads them."""

from typing import Any

import pytest

from exporter.operator.autoscalers.troubles import misgivings, why_invalid
from exporter.operator.objects.resources import read_autoscaler, read_exporter
from tests.operator.specs import SCHEMAS, broken_rules, complaints
from tests.support import quick_yaml
from tests.support.places import ROOT

EXAMPLES = {path.stem: path for path in (ROOT / "deploy" / "operator" / "examples").glob("*.yaml")}
Object = dict[str, Any]


def read(name: str) -> Object:
    (item,) = quick_yaml.load_all(EXAMPLES[name].read_text())
    return dict(item)


def test_none_is_left_out() -> None:
    assert EXAMPLES.keys() == {"minimal", "every-field", "autoscaler", "autoscaler-to-zero"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_what_the_schema_takes(name: str) -> None:
    item = read(name)
    assert complaints(item["kind"], item) == []
    assert broken_rules(item["kind"], {"spec": {}, **item}) == {}


@pytest.mark.parametrize("name", ["minimal", "every-field"])
def test_the_operator_reads_an_exporter(name: str) -> None:
    assert read_exporter(read(name)).interval_seconds


@pytest.mark.parametrize("name", ["autoscaler", "autoscaler-to-zero"])
def test_the_operator_reads_an_autoscaler(name: str) -> None:
    spec = read_autoscaler(read(name))
    assert why_invalid(spec) is None
    assert misgivings(spec, keda=True) is None
    # what its comment says of KEDA
    assert (misgivings(spec, keda=False) is None) == (name == "autoscaler")


def test_the_minimal_one_says_nothing_and_another_one_has_every_field() -> None:
    assert "spec" not in read("minimal")
    assert read("every-field")["spec"].keys() == SCHEMAS["GPUExporter"]["properties"]["spec"]["properties"].keys()
