"""What is done for a GPUAutoscaler, or why not: each reason with the field and what to do."""

import copy
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.operator.autoscalers.choice import NamespaceObjects, desired
from exporter.operator.autoscalers.scaling_objects import ADAPTED
from exporter.operator.autoscalers.troubles import Resource, reason_of
from exporter.operator.objects.resources import Object, read_autoscaler
from exporter.reading import Invalid
from tests.operator.autoscaling import (
    JSON,
    NAMESPACE,
    OTHER_UID,
    REF,
    UID,
    applied,
    as_stored,
    by_hand,
    by_keda,
    gpu_autoscaler,
    spec_of,
    wanted,
)
from tests.operator.specs import REFUSED, SCALING, complaints, custom_resource, refused_spec
from tests.support.manifests import objects_of
from tests.support.places import ROOT

ROLLOUT = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web"}
REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "trainer-7d9f"}
GROUP_OF_SETS = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "big"}


def _below(version: str, kind: str, name: str) -> Object:
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": True}
    return {"metadata": {"ownerReferences": [owner]}}


DEPLOYMENT = _below("apps/v1", "Deployment", "trainer")
SERVICE = _below("serving.kserve.io/v1beta1", "InferenceService", "llm")


class Case(NamedTuple):
    """What is given, the reason, and texts that the message has, the field first."""

    given: dict[str, Any]
    reason: str
    says: tuple[str, ...]


def _ref(kind: str, version: str = "apps/v1") -> Object:
    return {"scaleTargetRef": {"apiVersion": version, "kind": kind, "name": "x"}}


def _rules(**rules: Any) -> Object:
    return {"behavior": {"scaleDown": rules}}


TROUBLES = {
    "a DaemonSet": Case(
        {**_ref("DaemonSet"), "resource": Resource("x", is_scalable=False)},
        "InvalidTarget",
        ("spec.scaleTargetRef.kind: a DaemonSet has one pod on each", "name a Deployment or a StatefulSet"),
    ),
    "a Job": Case(_ref("Job", "batch/v1"), "InvalidTarget", ("spec.scaleTargetRef.kind: a Job runs to its end",)),
    "a kind without scale": Case(
        {**_ref("Widget", "example.com/v1"), "resource": Resource("x", is_scalable=False)},
        "InvalidTarget",
        ("spec.scaleTargetRef.kind: a Widget of example.com/v1 has no subresource scale", "name a Deployment"),
    ),
    "no such kind": Case(
        {**_ref("Deploymnt"), "resource": None},
        "InvalidTarget",
        ("spec.scaleTargetRef.kind: the API serves no Deploymnt of apps/v1", "look at apiVersion and kind"),
    ),
    "no such target": Case(
        {"item": None},
        "TargetNotFound",
        ("spec.scaleTargetRef.name: there is no Deployment ml/trainer", "make it"),
    ),
    "a Deployment's ReplicaSet": Case(
        {"scaleTargetRef": REPLICA_SET, "item": DEPLOYMENT},
        "InvalidTarget",
        ("spec.scaleTargetRef: ReplicaSet trainer-7d9f belongs to Deployment trainer", "name Deployment trainer"),
    ),
    "what is named by its parts": Case(
        {"scaleTargetRef": GROUP_OF_SETS},
        "InvalidTarget",
        ("spec.scaleTargetRef.kind: metrics of a LeaderWorkerSet's pods are those of the StatefulSets",),
    ),
    "an unknown metric": Case(
        {"metric": "gpu_utilisation"},
        "MetricUnknown",
        ("spec.metric: there is no metric 'gpu_utilisation'", "gpu_utilization"),
    ),
    "a metric like no other": Case(
        {"metric": "zzz"},
        "MetricUnknown",
        ("spec.metric: there is no metric 'zzz'", "sm_active", "mem_clock", "pod_gpu_processes"),
    ),
    "a metric that needs KEDA": Case(
        {"metric": "sm_active", "keda": False},
        "MetricNeedsKeda",
        ("spec.metric: without KEDA there is no sm_active", "graphics_engine_active", "install KEDA"),
    ),
    "a target that rounds to nothing": Case(
        {"target": 0.0004}, "InvalidSpec", ("spec.target: 0.0004", "at least 0.001")
    ),
    "a tolerance that is no share": Case(
        _rules(tolerance="1E"), "InvalidBehavior", ("spec.behavior.scaleDown.tolerance: '1E'", "such as 0.1")
    ),
    "a tolerance past counting": Case(
        _rules(tolerance="1e99999"), "InvalidBehavior", ("spec.behavior.scaleDown.tolerance: '1e99999'",)
    ),
    "no such port": Case(
        {"clusterAddress": "cluster:99999"}, "InvalidSpec", ("spec.clusterAddress: 'cluster:99999'", "give host:port")
    ),
    "another HPA": Case(
        {"scalers": [by_hand("HorizontalPodAutoscaler", "mine")]},
        "TargetScaledByOther",
        ("spec.scaleTargetRef: HorizontalPodAutoscaler mine, which no GPUAutoscaler made,", "delete one"),
    ),
    "another ScaledObject": Case(
        {"scalers": [by_hand("ScaledObject", "mine", {"name": "trainer"})]},
        "TargetScaledByOther",
        ("spec.scaleTargetRef: ScaledObject mine,",),
    ),
    "another ScaledObject's HPA": Case(
        # the ScaledObject is what has to go, so it is the one that is named
        {"scalers": [by_keda(by_hand("ScaledObject", "mine")), by_hand("ScaledObject", "mine")]},
        "TargetScaledByOther",
        ("spec.scaleTargetRef: ScaledObject mine,",),
    ),
    "an older GPUAutoscaler": Case(
        {"autoscalers": [gpu_autoscaler("b", UID), gpu_autoscaler("a", OTHER_UID, "2026-11-22T09:00:00Z")]},
        "TargetScaledByOther",
        ("spec.scaleTargetRef: GPUAutoscaler a, which is older,",),
    ),
    "a name that is taken": Case(
        {"scalers": [by_hand("ScaledObject", "trainer", {"name": "another"})]},
        "NameTaken",
        ("metadata.name: ScaledObject trainer is there already", "another name"),
    ),
}


# issue 14, "Must show" 2
@pytest.mark.parametrize("name", TROUBLES)
def test_what_cannot_be_scaled_is_explained(name: str) -> None:
    case = TROUBLES[name]
    found = wanted(**case.given)
    assert found.trouble is not None
    assert found.trouble.reason == case.reason
    assert found.trouble.message.startswith(case.says[0])
    assert found.trouble.remedy
    for part in case.says:
        assert part in str(found.trouble)
    assert (found.apply, found.delete) == ((), ())


@pytest.mark.parametrize(
    "given",
    [
        {"scaleTargetRef": ROLLOUT},
        {"scaleTargetRef": REPLICA_SET},
        # its pods' workload is the Deployment, whoever made that
        {"item": SERVICE},
        # another kind, group or name
        {"scalers": [by_hand("HorizontalPodAutoscaler", "mine", {**REF, "kind": "StatefulSet"})]},
        {"scalers": [by_hand("HorizontalPodAutoscaler", "mine", {**REF, "apiVersion": "x.io/v1"})]},
        {"scalers": [by_hand("HorizontalPodAutoscaler", "mine", {**REF, "name": "x"})]},
        # a name of another kind
        {"scalers": [by_hand("HorizontalPodAutoscaler", "trainer", {**REF, "name": "x"})]},
        # younger, or one that is being deleted
        {"autoscalers": [gpu_autoscaler("b", UID), gpu_autoscaler("a", OTHER_UID, "2026-11-22T10:00:00Z")]},
        {
            "autoscalers": [
                gpu_autoscaler("b", UID),
                as_stored(gpu_autoscaler("a", OTHER_UID, "2026-11-22T09:00:00Z"), OTHER_UID, going=True),
            ]
        },
    ],
)
def test_what_can_be_scaled_is(given: dict[str, Any]) -> None:
    found = wanted(**given)
    assert (len(found.apply), found.delete, found.trouble) == (1, (), None)


def test_of_two_gpu_autoscalers_of_one_age_the_name_decides() -> None:
    both = [gpu_autoscaler("b", UID), gpu_autoscaler("a", OTHER_UID)]
    assert [
        bool(wanted(autoscalers=both, uid=uid, name=name).trouble) for uid, name in ((UID, "b"), (OTHER_UID, "a"))
    ] == [
        True,
        False,
    ]


def test_one_that_is_not_in_the_list_yet_is_the_youngest() -> None:
    found = wanted(autoscalers=[gpu_autoscaler("a", OTHER_UID)])
    assert found.trouble
    assert found.trouble.reason == "TargetScaledByOther"


# issue 14, "Must show" 2
@pytest.mark.parametrize("refused", [refused for refused in REFUSED if refused.kind == "GPUAutoscaler"], ids=str)
def test_what_an_older_schema_let_in_is_explained(refused: Any) -> None:
    with pytest.raises(Invalid) as caught:
        read_autoscaler(custom_resource("GPUAutoscaler", refused_spec(refused)))
    field = f"spec.{refused.field}"
    assert str(caught.value).startswith(f"{field}: ")
    of = {"scaleTargetRef": "InvalidTarget", "metric": "MetricUnknown", "behavior": "InvalidBehavior"}
    assert reason_of(caught.value.field) == of.get(refused.field.partition(".")[0], "InvalidSpec")


class TestIdle:
    def test_without_keda_the_workload_stays_at_one_pod_and_is_told_why(self) -> None:
        found = wanted(keda=False, minReplicas=0, idleSeconds=600)
        (hpa,) = found.apply
        assert hpa["spec"]["minReplicas"] == 1
        assert found.misgiving
        assert (found.misgiving.reason, found.trouble) == ("KedaMissing", None)
        assert found.misgiving.message.startswith("spec.idleSeconds: without KEDA")
        assert "HPAScaleToZero" in found.misgiving.message
        assert "install KEDA" in found.misgiving.remedy

    def test_a_metric_that_never_falls_to_zero_is_said(self) -> None:
        found = wanted(metric="framebuffer_used", minReplicas=0, idleSeconds=600)
        assert len(found.apply) == 1
        assert found.misgiving
        assert (found.misgiving.reason, found.trouble) == ("NeverIdle", None)
        assert "gpu_utilization" in found.misgiving.remedy

    def test_nothing_is_said_where_it_does_what_it_should(self) -> None:
        assert wanted(minReplicas=0, idleSeconds=600).misgiving is None
        assert wanted(keda=False).misgiving is None


class TestWhatStays:
    def test_a_mistake_in_the_spec_leaves_what_scales(self) -> None:
        made = as_stored(applied(keda=True))
        found = wanted(scalers=[made, by_keda(made)], metric="nonsense")
        assert (found.apply, found.delete) == ((), ())
        assert found.trouble
        assert str(found.trouble).endswith("Meanwhile ScaledObject trainer stays as it was")

    def test_a_target_that_went_leaves_what_scales(self) -> None:
        made = as_stored(applied(keda=False))
        found = wanted(keda=False, scalers=[made], item=None)
        assert (found.apply, found.delete) == ((), ())

    @pytest.mark.parametrize("keda", [True, False])
    def test_somebody_elses_autoscaler_makes_ours_go(self, keda: bool) -> None:
        made = as_stored(applied(keda=keda))
        scalers = [made, by_hand("HorizontalPodAutoscaler", "mine"), *([by_keda(made)] if keda else [])]
        found = wanted(keda=keda, scalers=scalers)
        assert [item["metadata"]["uid"] for item in found.delete] == ["made"]
        assert found.trouble
        assert "HorizontalPodAutoscaler mine" in found.trouble.message


class TestOneAfterTheOther:
    def test_keda_comes(self) -> None:
        hpa = as_stored(applied(keda=False))
        found = wanted(scalers=[hpa])
        assert found.apply == ()
        assert found.delete == (hpa,)
        assert found.waits_for.startswith("HorizontalPodAutoscaler trainer to be deleted")

    def test_keda_goes_and_its_own_hpa_goes_too(self) -> None:
        scaled = as_stored(applied(keda=True))
        # the ScaledObjects went with their definition; the garbage collector may not know their kind any more
        found = wanted(keda=False, scalers=[by_keda(scaled)])
        assert [item["metadata"]["name"] for item in found.delete] == ["keda-hpa-trainer"]
        assert found.waits_for

    def test_nothing_is_made_while_the_other_is_still_going(self) -> None:
        found = wanted(
            keda=False, scalers=[as_stored(applied(keda=True), going=True, finalizers=["finalizer.keda.sh"])]
        )
        assert (found.apply, found.delete) == ((), ())
        assert "does KEDA's operator run?" in found.waits_for

    @pytest.mark.parametrize("keda", [True, False])
    def test_one_that_is_being_deleted_is_made_again_when_it_is_gone(self, keda: bool) -> None:
        made = applied(keda=keda)
        found = wanted(keda=keda, scalers=[as_stored(made, going=True)])
        assert (found.apply, found.delete, bool(found.waits_for)) == ((), (), True)

    def test_kedas_own_hpa_is_left_alone(self) -> None:
        made = as_stored(applied(keda=True))
        found = wanted(scalers=[made, by_keda(made)])
        assert (len(found.apply), found.delete, found.waits_for) == (1, (), "")

    @pytest.mark.parametrize("keda", [True, False])
    def test_the_objects_of_another_gpu_autoscaler_have_to_go_first(self, keda: bool) -> None:
        theirs = as_stored(applied(keda=keda, name="younger", uid=OTHER_UID), "theirs")
        more = [by_keda(theirs)] if keda else []
        for left in ([theirs, *more], more or [theirs]):
            found = wanted(keda=keda, scalers=left)
            assert (found.apply, found.delete, found.trouble, bool(found.waits_for)) == ((), (), None, True)

    def test_what_had_the_name_before_has_to_go_first(self) -> None:
        old = as_stored(applied(keda=True, uid=OTHER_UID, scaleTargetRef={**REF, "name": "another"}), "old")
        found = wanted(scalers=[old])
        assert (found.apply, found.delete, found.trouble, bool(found.waits_for)) == ((), (), None, True)


@given(st.data())
def test_odd_objects_of_others_break_nothing(data: st.DataObject) -> None:
    """Anybody in the namespace can make an HPA, and label and own it as they like."""
    made = as_stored(applied(keda=True))
    items = [copy.deepcopy(item) for item in (made, by_keda(made), by_hand("HorizontalPodAutoscaler", "mine"))]
    for item in data.draw(st.lists(st.sampled_from(items), unique_by=id)):
        at = data.draw(st.sampled_from([item, item["metadata"], item["spec"], item["spec"]["scaleTargetRef"]]))
        at[data.draw(st.sampled_from([*at, "labels", "ownerReferences"]))] = data.draw(JSON)
    there = NamespaceObjects(keda=data.draw(st.booleans()), not_scalable=None, scalers=items, autoscalers=items)
    found = desired(spec_of(), "trainer", NAMESPACE, UID, there, {})
    if items[2] == by_hand("HorizontalPodAutoscaler", "mine"):
        assert not found.apply, "two autoscalers"


def test_the_usual_spec_is_one_that_the_schema_takes() -> None:
    """The tables above change one thing of it each."""
    usual: dict[str, Any] = SCALING
    assert wanted(**usual).trouble is None


EXAMPLES = sorted((ROOT / "deploy" / "operator" / "examples").glob("autoscaler*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_valid_and_scale_with_and_without_keda(path: Path) -> None:
    (item,) = objects_of(path)
    assert complaints("GPUAutoscaler", item) == []
    for keda in (True, False):
        there = NamespaceObjects(keda=keda, not_scalable=None, scalers=[], autoscalers=[])
        found = desired(read_autoscaler(item), item["metadata"]["name"], item["metadata"]["namespace"], UID, there, {})
        assert len(found.apply) == 1
        is_to_zero = "idleSeconds" in item["spec"]
        assert (found.misgiving and found.misgiving.reason) == ("KedaMissing" if is_to_zero and not keda else None)


def test_every_reason_is_in_the_docs() -> None:
    page = (ROOT / "docs" / "operator.md").read_text()
    reasons = {case.reason for case in TROUBLES.values()} | {"KedaMissing", "NeverIdle"}
    assert {reason for reason in reasons if f"`{reason}`" not in page} == set()
    assert {metric for metric in ADAPTED if f"`{metric}`" not in page} == set()
