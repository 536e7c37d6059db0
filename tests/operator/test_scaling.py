"""What is read of HPAs, ScaledObjects and their events, as Kubernetes and KEDA write them."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.operator.autoscalers.autoscaler_status import Decision, decision
from exporter.operator.autoscalers.choice import Via
from exporter.operator.objects.resources import Object
from tests.operator.autoscaling import JSON, UID, applied, as_stored, by_keda

ADDRESS = "cluster.monitoring.svc:9401"
SELECTOR = (
    "&LabelSelector{MatchLabels:map[string]string{scaledobject.keda.sh/name: trainer,},"
    "MatchExpressions:[]LabelSelectorRequirement{},}"
)
Said = tuple[str, str, str, str]
GOOD = [
    ("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size"),
    ("ScalingActive", "True", "ValidMetricFound", "the HPA was able to successfully calculate a replica count"),
    ("ScalingLimited", "False", "DesiredWithinRange", "the desired count is within the acceptable range"),
]
READY = [
    ("Ready", "True", "ScaledObjectReady", "ScaledObject is defined correctly and is ready for scaling"),
    ("Active", "True", "ScalerActive", "Scaling is performed because triggers are active"),
    ("Fallback", "False", "NoFallbackFound", "No fallbacks are active on this scaled object"),
    ("Paused", "False", "", ""),
]


def conditions(*said: Said) -> list[Object]:
    """Conditions of a status; one given later stands for that of its type."""
    names = ("type", "status", "reason", "message")
    return [dict(zip(names, one, strict=True)) for one in {one[0]: one for one in said}.values()]


def hpa(*said: Said, uid: str = "hpa", **status: Any) -> Object:
    made = as_stored(applied(keda=False), uid)
    return {
        **made,
        "status": {"currentReplicas": 2, "desiredReplicas": 2, "conditions": conditions(*GOOD, *said), **status},
    }


def kedas(*said: Said, hpa_says: tuple[Said, ...] = (), **status: Any) -> list[Object]:
    """A ScaledObject, and the HPA that KEDA made for it."""
    scaled = as_stored(applied(keda=True), "scaled")
    its = by_keda(scaled, "its-hpa")
    its["status"] = {"currentReplicas": 2, "desiredReplicas": 2, "conditions": conditions(*GOOD, *hpa_says), **status}
    return [{**scaled, "status": {"hpaName": "keda-hpa-trainer", "conditions": conditions(*READY, *said)}}, its]


def rescaled(to: int, at: str, reason: str = "pods metric gpu_utilization above target", uid: str = "hpa") -> Object:
    """An event as the HPA's controller writes it (events.k8s.io/v1, as a core/v1 event reads there)."""
    return {
        "reason": "SuccessfulRescale",
        "note": f"New size: {to}; reason: {reason}",
        "regarding": {"kind": "HorizontalPodAutoscaler", "name": "trainer", "uid": uid},
        "deprecatedFirstTimestamp": at,
        "deprecatedLastTimestamp": at,
        "eventTime": None,
    }


def of_keda(reason: str, note: str, at: str) -> Object:
    """An event as KEDA writes it (events.k8s.io/v1)."""
    about = {"kind": "ScaledObject", "name": "trainer", "uid": "scaled"}
    return {"reason": reason, "note": note, "regarding": about, "eventTime": at, "deprecatedLastTimestamp": None}


def of_hpa(item: Object, *events: Object, before: object = None) -> Decision:
    return decision("hpa", UID, ADDRESS, [item], events, before)


def with_keda(items: list[Object], *events: Object, before: object = None) -> Decision:
    return decision("keda", UID, ADDRESS, items, events, before)


class TestWhoSpeaks:
    def test_nobody_has_spoken_where_nothing_is_there(self) -> None:
        assert decision("hpa", UID, ADDRESS, [], [], None) == Decision()

    def test_an_hpa_that_nobody_has_looked_at_has_not_spoken(self) -> None:
        for status in ({}, {"desiredReplicas": 0, "currentMetrics": None}):  # the second is a real API server's
            found = of_hpa({**as_stored(applied(keda=False)), "status": status})
            assert (found.has_spoken, found.replicas, found.wanted, found.trouble) == (False, None, None, None)

    def test_an_hpa_of_somebody_else_does_not_count(self) -> None:
        other = as_stored(applied(keda=False, uid="another"))
        assert decision("hpa", UID, ADDRESS, [{**hpa(), "metadata": other["metadata"]}], [], None) == Decision()

    @pytest.mark.parametrize("via", ["hpa", "keda"])
    def test_what_goes_well(self, via: str) -> None:
        found = of_hpa(hpa()) if via == "hpa" else with_keda(kedas())
        assert found == Decision(has_spoken=True, replicas=2, wanted=2)

    def test_what_limits_is_no_trouble(self) -> None:
        said = "the desired replica count is more than the maximum replica count"
        found = of_hpa(hpa(("ScalingLimited", "True", "TooManyReplicas", said)))
        assert (found.limited, found.trouble) == (said, None)


class TestLastScale:
    AT = "2026-11-22T10:10:00Z"

    def said(self, found: Decision) -> Object | None:
        return found.last_scale.as_object() if found.last_scale else None

    def test_right_after_a_change_it_is_known_from_where(self) -> None:
        updated = (
            "AbleToScale",
            "True",
            "SucceededRescale",
            "the HPA controller was able to update the target scale to 3",
        )
        item = hpa(updated, currentReplicas=2, desiredReplicas=3, lastScaleTime=self.AT)
        event = rescaled(3, self.AT)
        assert self.said(of_hpa(item, event)) == {
            "time": self.AT,
            "from": 2,
            "to": 3,
            "reason": "pods metric gpu_utilization above target",
        }
        # the event came first, or never
        assert self.said(of_hpa(item)) == {"time": self.AT, "from": 2, "to": 3}

    def test_it_is_not_forgotten_when_the_status_goes_on_and_events_expire(self) -> None:
        known = {"time": self.AT, "from": 2, "to": 3, "reason": "All metrics below target"}
        assert self.said(of_hpa(hpa(lastScaleTime=self.AT), before=known)) == known
        assert self.said(of_hpa(hpa(), before=known)) == known
        # KEDA makes its HPA anew after a pause
        assert self.said(decision("hpa", UID, ADDRESS, [], [], known)) == known

    def test_a_later_change_takes_its_place(self) -> None:
        known = {"time": self.AT, "from": 2, "to": 3, "reason": "old"}
        later = "2026-11-22T10:11:00Z"
        events = [rescaled(3, self.AT), rescaled(5, later), rescaled(4, "2026-11-22T10:10:30Z")]
        assert self.said(of_hpa(hpa(lastScaleTime=later), *events, before=known)) == {
            "time": later,
            "to": 5,
            "reason": "pods metric gpu_utilization above target",
        }

    def test_an_event_that_the_hpa_knows_nothing_of_is_not_believed(self) -> None:
        assert self.said(of_hpa(hpa(), rescaled(3, self.AT))) is None
        other = rescaled(3, self.AT, uid="one that had its name before")
        assert self.said(of_hpa(hpa(lastScaleTime=self.AT), other)) == {"time": self.AT}

    def test_events_that_were_put_together(self) -> None:
        event = rescaled(3, "2026-11-22T09:00:00Z") | {"deprecatedLastTimestamp": self.AT}
        event["note"] = f"(combined from similar events): {event['note']}"
        assert self.said(of_hpa(hpa(lastScaleTime=self.AT), event)) == {
            "time": self.AT,
            "to": 3,
            "reason": "pods metric gpu_utilization above target",
        }
        series = rescaled(3, "2026-11-22T09:00:00Z") | {
            "series": {"count": 2, "lastObservedTime": f"{self.AT[:-1]}.123456Z"}
        }
        assert self.said(of_hpa(hpa(lastScaleTime=self.AT), series)) == self.said(
            of_hpa(hpa(lastScaleTime=self.AT), event)
        )

    def test_kedas_selector_is_left_out_of_the_reason(self) -> None:
        event = rescaled(3, self.AT, f"external metric s0-gpu_utilization({SELECTOR}) above target", "its-hpa")
        found = self.said(with_keda(kedas(lastScaleTime=self.AT), event))
        assert found == {"time": self.AT, "to": 3, "reason": "external metric s0-gpu_utilization above target"}

    def test_kedas_own_changes(self) -> None:
        up = of_keda(
            "KEDAScaleTargetActivated",
            "Scaled apps/v1.Deployment ml/trainer from 0 to 1, triggered by s0-gpu_utilization",
            "2026-11-22T10:20:00.5Z",
        )
        down = of_keda(
            "KEDAScaleTargetDeactivated",
            "Deactivated apps/v1.Deployment ml/trainer from 1 to 0",
            "2026-11-22T10:30:00Z",
        )
        items = kedas(lastScaleTime=self.AT)
        assert self.said(with_keda(items, up)) == {
            "time": "2026-11-22T10:20:00Z",
            "from": 0,
            "to": 1,
            "reason": "triggered by s0-gpu_utilization",
        }
        assert self.said(with_keda(items, up, down)) == {
            "time": "2026-11-22T10:30:00Z",
            "from": 1,
            "to": 0,
            "reason": "not in use for idleSeconds",
        }


class TestTrouble:
    def test_prometheus_adapter_has_no_value(self) -> None:
        said = (
            "the HPA was unable to compute the replica count: unable to get metric gpu_utilization: no metrics returned"
            " from custom metrics API"
        )
        trouble = of_hpa(hpa(("ScalingActive", "False", "FailedGetPodsMetric", said))).trouble
        assert trouble
        assert trouble.reason == "FailedGetPodsMetric"
        assert str(trouble).startswith(f"HorizontalPodAutoscaler trainer: {said} -> see that prometheus-adapter")

    def test_the_cluster_role_says_why_there_is_no_value(self) -> None:
        """KEDA tells the HPA only that there was an error; its event has the scaler's own words."""
        said = (
            f"the HPA was unable to compute the replica count: unable to get external metric"
            f" ml/s0-gpu_utilization/{SELECTOR}: unable to fetch metrics from external metrics API:"
            " rpc error: code = Unknown desc = error when getting metric values metric:s0-gpu_utilization"
            " encountered error"
        )
        events = [
            of_keda("KEDAScalerFailed", f"rpc error: code = Unavailable desc = {why}", at)
            for why, at in (("1 of 4 nodes did not answer", "2026-11-22T10:02:00Z"), ("older", "2026-11-22T10:01:00Z"))
        ]
        found = with_keda(kedas(hpa_says=(("ScalingActive", "False", "FailedGetExternalMetric", said),)), *events)
        assert found.trouble
        assert found.trouble.reason == "FailedGetExternalMetric"
        message, remedy = found.trouble.message, found.trouble.remedy
        assert message.startswith("HorizontalPodAutoscaler keda-hpa-trainer: the HPA was unable to compute")
        assert "unable to get external metric ml/s0-gpu_utilization: unable" in message
        assert message.endswith("(the cluster role said: 1 of 4 nodes did not answer)")
        assert ADDRESS in remedy

    def test_keda_cannot_use_the_scaled_object(self) -> None:
        said = "failed to ensure HPA is correctly created for ScaledObject: no metric specs returned from scalers"
        found = with_keda(kedas(("Ready", "False", "ScaledObjectCheckFailed", said))[:1])
        assert found.trouble
        assert found.trouble.reason == "ScaledObjectCheckFailed"
        assert str(found.trouble) == f"ScaledObject trainer: {said} -> see the events of ScaledObject trainer"
        assert (found.has_spoken, found.replicas) == (True, None)

    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            (("Paused", "True", "ScaledObjectPaused", "ScaledObject is paused"), "Paused"),
            (("Fallback", "True", "FallbackExists", "At least one trigger is falling back"), "Fallback"),
            (("Ready", "False", "TriggerError", "Triggers defined are not working correctly"), "TriggerError"),
            (("Ready", "False", "", ""), "ScaledObjectNotReady"),
        ],
    )
    def test_keda_is_kept_from_scaling(self, said: Said, reason: str) -> None:
        found = with_keda(kedas(said))
        assert found.trouble
        assert found.trouble.reason == reason

    def test_an_hpa_rests_at_no_pods(self) -> None:
        said = (
            "ScalingActive",
            "False",
            "ScalingDisabled",
            "scaling is disabled since the replica count of the target is zero",
        )
        # that there are none, Kubernetes says by leaving the number out
        none = {"desiredReplicas": 0, "currentMetrics": None}
        without = of_hpa({**hpa(), "status": {**none, "conditions": conditions(said)}})
        assert without.trouble
        assert (without.trouble.reason, without.is_idle, without.replicas) == ("ScalingDisabled", False, 0)
        assert "scale the workload to one pod or more by hand" in str(without.trouble)
        # with KEDA that is what idleSeconds asks for
        idle = with_keda(kedas(hpa_says=(said,), currentReplicas=0, desiredReplicas=0))
        assert (idle.trouble, idle.is_idle, idle.replicas) == (None, True, 0)

    @pytest.mark.parametrize("reason", ["FailedGetScale", "FailedUpdateScale", "AmbiguousSelector", "SomethingNew"])
    def test_other_reasons_are_handed_on(self, reason: str) -> None:
        kind = "AbleToScale" if "Scale" in reason else "ScalingActive"
        found = of_hpa(hpa((kind, "False", reason, "because")))
        assert found.trouble
        assert found.trouble.reason == reason
        assert " because -> " in str(found.trouble)

    def test_a_reason_that_is_no_word_would_have_the_status_refused(self) -> None:
        found = of_hpa(hpa(("ScalingActive", "False", "42 no\nword", "x" * 9999)))
        assert found.trouble
        assert found.trouble.reason == "noword"
        assert len(str(found.trouble)) < 2000


@settings(max_examples=40)
@given(st.data())
def test_odd_statuses_and_events_break_nothing(data: st.DataObject) -> None:
    """Events are made by anybody, and other controllers may write these statuses."""
    items = [hpa(lastScaleTime="2026-11-22T10:10:00Z"), *kedas()]
    at = "9999-12-31T23:59:59Z"
    events: list[Any] = [
        rescaled(3, at),
        of_keda("KEDAScalerFailed", "x", at),
        of_keda("KEDAScaleTargetActivated", "from 1 to 2", at),
    ]
    for item in data.draw(st.lists(st.sampled_from([*events, *(item["status"] for item in items)]), unique_by=id)):
        where = item
        if isinstance(item.get("conditions"), list) and data.draw(st.booleans()):
            where = data.draw(st.sampled_from(item["conditions"]))
        where[data.draw(st.sampled_from([*where]))] = data.draw(JSON)
    before = data.draw(JSON)
    ways: tuple[Via, ...] = ("hpa", "keda")
    for via in ways:
        told: list[Any] = [*events, *data.draw(st.lists(JSON))]
        found = decision(via, UID, ADDRESS, copy.deepcopy(items), told, before)
        if found.last_scale:
            said = found.last_scale.as_object()
            assert said["time"].endswith("Z")
            assert all(0 <= said.get(name, 0) < 2**31 for name in ("from", "to"))
            assert len(said.get("reason", "")) <= 1024
        if found.trouble:
            assert found.trouble.reason.isalnum()
            assert "\n" not in found.trouble.message
