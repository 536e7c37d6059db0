"""The object that a GPUAutoscaler stands for: as the golden files have it, and what an edit changes.

`make golden` writes tests/golden/operator/autoscaler-*.yaml anew.
"""

import copy
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from exporter.cluster.keda.trigger import KEDAS_KEYS, read_trigger
from exporter.operator.autoscalers.scaling_objects import ADAPTED
from exporter.operator.autoscalers.scaling_objects import NAME as AUTOSCALER_LABEL
from exporter.operator.objects.kinds import labels
from exporter.operator.objects.quantities import in_thousandths, read
from exporter.operator.objects.resources import Object
from tests.operator.autoscaling import NAME, NAMESPACE, UID, VALID, applied, spec_of, wanted
from tests.operator.specs import NAMES, SCALING, SCALING_EVERYTHING
from tests.support import quick_yaml
from tests.support.golden import Golden
from tests.support.manifests import KUBERNETES, objects_of, valid
from tests.support.places import GOLDEN, ROOT
from tests.support.scaled_objects import BEHAVIOR, refusals

EVERYTHING = {key: value for key, value in SCALING_EVERYTHING.items() if key not in SCALING or key == "target"}
STATEFUL = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}}
GOLDENS: dict[str, tuple[bool, Object]] = {
    "keda": (True, {}),
    "keda-every-field": (True, EVERYTHING),
    "keda-idle-of-two": (True, {"minReplicas": 2, "idleSeconds": 900, **STATEFUL}),
    "hpa": (False, {}),
    "hpa-every-field": (False, EVERYTHING),
    "hpa-of-a-ratio": (False, {"metric": "pod_gpu_utilization_ratio", "target": 0.7, **STATEFUL}),
}
# the first whose HPAs have a tolerance (alpha in 1.33)
TOLERANT = "1.34"


# issue 14, "Must show" 1 and 2
@pytest.mark.parametrize("name", GOLDENS)
def test_the_object_is_that_of_the_golden_file(name: str, golden: Golden) -> None:
    keda, changes = GOLDENS[name]
    made = applied(keda=keda, **changes)
    path = GOLDEN / "operator" / f"autoscaler-{name}.yaml"
    golden.holds(path, yaml.safe_dump(made, sort_keys=False, width=120))
    assert [made] == objects_of(path)
    if keda:
        assert refusals(made) == []
        return
    for version in KUBERNETES:
        valid([made if version >= TOLERANT else _without_tolerance(made)], version)


def _without_tolerance(made: Object) -> Object:
    older = copy.deepcopy(made)
    for rules in older["spec"].get("behavior", {}).values():
        rules.pop("tolerance", None)
    return older


def test_no_golden_file_is_left_over(golden: Golden) -> None:
    folder = GOLDEN / "operator"
    golden.holds_no_other(folder.glob("autoscaler-*.yaml"), (folder / f"autoscaler-{name}.yaml" for name in GOLDENS))


# issue 15, line 17
def test_what_a_team_tells_keda_is_handed_on() -> None:
    paused = {"autoscaling.keda.sh/paused": "true"}
    # the second one would take the workload away from an autoscaler of others
    others = {"team": "a", "scaledobject.keda.sh/transfer-hpa-ownership": "true"}
    assert applied(keda=True, annotations={**paused, **others})["metadata"]["annotations"] == paused
    assert "annotations" not in applied(keda=True, annotations=others)["metadata"]
    assert "annotations" not in applied(keda=False, annotations=paused)["metadata"]


class Edit(NamedTuple):
    """What is edited, and the paths that change: with KEDA, and without."""

    changes: Object
    keda: set[str]
    hpa: set[str]
    of: Object | None = None


_CONFIG = "spec.advanced.horizontalPodAutoscalerConfig"
_TRIGGER = "spec.triggers.0.metadata"
_PODS = "spec.metrics.0.pods"
EDITS = {
    "metric": Edit({"metric": "power_usage"}, {f"{_TRIGGER}.metric"}, {f"{_PODS}.metric.name"}),
    "target": Edit({"target": 0.25}, {f"{_TRIGGER}.target"}, {f"{_PODS}.target.averageValue"}),
    "minReplicas": Edit({"minReplicas": 2}, {"spec.minReplicaCount"}, {"spec.minReplicas"}),
    "maxReplicas": Edit({"maxReplicas": 9}, {"spec.maxReplicaCount"}, {"spec.maxReplicas"}),
    "behavior": Edit(
        {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}}, {"spec.advanced"}, {"spec.behavior"}
    ),
    "behavior.scaleDown": Edit(
        {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}},
        {f"{_CONFIG}.behavior.scaleDown.stabilizationWindowSeconds"},
        {"spec.behavior.scaleDown.stabilizationWindowSeconds"},
        of={"behavior": {"scaleDown": {"stabilizationWindowSeconds": 61}}},
    ),
    "an empty behavior": Edit({"behavior": {"scaleUp": {}}}, set(), set()),
    "idleSeconds": Edit(
        {"idleSeconds": 60}, {"spec.cooldownPeriod", "spec.initialCooldownPeriod", "spec.idleReplicaCount"}, set()
    ),
    "minReplicas 0": Edit(
        {"minReplicas": 0, "idleSeconds": 60},
        {"spec.minReplicaCount", "spec.idleReplicaCount"},
        set(),
        of={"idleSeconds": 60},
    ),
    "clusterAddress": Edit({"clusterAddress": "there:1"}, {f"{_TRIGGER}.scalerAddress"}, set()),
    "scaleTargetRef": Edit(
        {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x"}},
        {"spec.scaleTargetRef.kind", "spec.scaleTargetRef.name", f"{_TRIGGER}.workload"},
        {"spec.scaleTargetRef.kind", "spec.scaleTargetRef.name"},
    ),
}


# issue 14, "Must show" 1
@pytest.mark.parametrize("name", EDITS)
def test_an_edit_changes_what_it_is_about(name: str) -> None:
    edit = EDITS[name]
    for keda, expected in ((True, edit.keda), (False, edit.hpa)):
        usual = edit.of or {}
        before, after = applied(keda=keda, **usual), applied(keda=keda, **{**usual, **edit.changes})
        assert {*_differences(before, after)} == expected


def _differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """The paths at which two objects differ; of what only one of them has, the topmost."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            here = f"{path}.{key}".removeprefix(".")
            if key in one and key in other:
                yield from _differences(one[key], other[key], here)
            else:
                yield here
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other, strict=True)):
            yield from _differences(*pair, f"{path}.{index}")
    elif one != other:
        yield path


@given(VALID, NAMES)
def test_both_objects_mean_the_same(spec: Object, name: str) -> None:
    """The same target, bounds and behavior, whichever scales."""
    scaled = applied(keda=True, name=name, **spec)
    assert refusals(scaled) == []
    (trigger,) = scaled["spec"]["triggers"]
    metadata = {key: value for key, value in trigger["metadata"].items() if key not in KEDAS_KEYS}
    asked = read_trigger(NAMESPACE, scaled["metadata"]["name"], metadata)
    assert (asked.metric, asked.target) == (spec["metric"], float(in_thousandths(spec["target"])))
    assert asked.question(asked.workload).workload == spec["scaleTargetRef"]["name"]
    if spec["metric"] not in ADAPTED:
        said = wanted(keda=False, name=name, **spec)
        assert (said.apply, said.trouble and said.trouble.reason) == ((), "MetricNeedsKeda")
        return
    hpa = applied(keda=False, name=name, **spec)
    assert hpa["metadata"] == scaled["metadata"]
    assert hpa["spec"]["scaleTargetRef"] == scaled["spec"]["scaleTargetRef"] == spec["scaleTargetRef"]
    # KEDA's own HPA has one pod at least, too (GetHPAMinReplicas)
    least, most = max(1, scaled["spec"]["minReplicaCount"]), scaled["spec"]["maxReplicaCount"]
    assert (hpa["spec"]["minReplicas"], hpa["spec"]["maxReplicas"]) == (least, most)
    behavior = scaled["spec"].get("advanced", {}).get("horizontalPodAutoscalerConfig", {}).get("behavior")
    assert hpa["spec"].get("behavior") == behavior
    Draft202012Validator(BEHAVIOR).validate(behavior or {})
    (metric,) = hpa["spec"]["metrics"]
    average = read(metric["pods"]["target"]["averageValue"])
    assert average == Decimal(str(asked.target)) * ADAPTED[spec["metric"]][1]
    valid([_without_tolerance(hpa)], KUBERNETES[0])


@given(VALID, st.booleans())
def test_equal_specs_give_equal_objects_that_the_garbage_collector_finds(spec: Object, keda: bool) -> None:
    first, second = wanted(keda=keda, **spec), wanted(keda=keda, **copy.deepcopy(spec))
    assert first == second
    for made in first.apply:
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("GPUAutoscaler", NAME, UID, True)
        assert made["metadata"]["labels"] == labels(NAME, AUTOSCALER_LABEL)


def test_scaling_to_zero_counts_from_the_last_use_or_the_request() -> None:
    """KEDA's initialCooldownPeriod is 0: a workload that was just given an autoscaler would go to zero at once."""
    spec = applied(keda=True, minReplicas=0, idleSeconds=600)["spec"]
    assert (spec["cooldownPeriod"], spec["initialCooldownPeriod"]) == (600, 600)
    assert spec["minReplicaCount"] == 0
    # it would have to be below 0
    assert "idleReplicaCount" not in spec


def test_the_metrics_are_those_that_prometheus_adapter_has() -> None:
    rules = quick_yaml.load((ROOT / "deploy/prometheus-adapter/values.yaml").read_text())["rules"]["custom"]
    queries = {rule["name"]["as"]: rule["metricsQuery"] for rule in rules}
    assert {adapted for adapted, _ in ADAPTED.values()} == {*queries}
    for name, (adapted, times) in ADAPTED.items():
        is_percent_of_ratio = queries[adapted].startswith("100 *")
        assert times == (100 if is_percent_of_ratio else 1), name


def test_the_shipped_examples_of_an_hpa_and_a_scaled_object_say_the_same() -> None:
    """What the operator writes is what people are told to write by hand."""
    (by_hand,) = objects_of(ROOT / "deploy/prometheus-adapter/hpa-pods.yaml")
    made = applied(keda=False, behavior={"scaleDown": {"stabilizationWindowSeconds": 300}})
    assert made["spec"] == by_hand["spec"]
    (external,) = objects_of(ROOT / "deploy/keda/external.yaml")
    trigger = external["spec"]["triggers"][0]
    ours = applied(keda=True)["spec"]["triggers"][0]
    assert {key: trigger[key] for key in ("type", "metricType")} == {key: ours[key] for key in ("type", "metricType")}
    same = ("scalerAddress", "metric", "target")
    assert [trigger["metadata"][key] for key in same] == [ours["metadata"][key] for key in same]


def test_the_default_address_is_that_of_the_shipped_service() -> None:
    (service,) = [
        item for item in objects_of(ROOT / "deploy/kustomize/components/keda/cluster.yaml") if item["kind"] == "Service"
    ]
    metadata, (port,) = service["metadata"], service["spec"]["ports"]
    assert spec_of().cluster_address == f"{metadata['name']}.{metadata['namespace']}.svc:{port['port']}"
