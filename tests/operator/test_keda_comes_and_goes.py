"""A namespace in which KEDA comes and goes, objects are edited, and others scale: never two autoscalers of one target.

The namespace here keeps the rules that KEDA and Kubernetes have: deletion takes a while where there is a finalizer,
KEDA makes an HPA for a ScaledObject, and its webhook refuses a ScaledObject beside another HPA.
"""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.operator.autoscalers.choice import NamespaceObjects, WantedScaler, desired
from exporter.operator.objects.resources import Object
from tests.operator.autoscaling import NAMESPACE, OTHER_UID, REF, UID, by_hand, by_keda, gpu_autoscaler, spec_of
from tests.support.scaled_objects import refusals

ENOUGH_TURNS = 12


class Namespace:
    """GPUAutoscalers, what scales their one target, and KEDA."""

    def __init__(self, *, keda: bool, collects: bool = True) -> None:
        self.keda = keda
        # the garbage collector, which may not know a kind that is not served any more
        self.collects = collects
        self.autoscalers = [gpu_autoscaler("trainer", UID)]
        self.objects: list[Object] = []
        self.writes = 0
        self._made = 0

    def turn(self) -> dict[str, WantedScaler]:
        """Each GPUAutoscaler is looked at once; then KEDA and the garbage collector do their part."""
        found = {}
        for item in [*self.autoscalers]:
            metadata = item["metadata"]
            there = NamespaceObjects(
                keda=self.keda, not_scalable=None, scalers=[*self.objects], autoscalers=self.autoscalers
            )
            wanted = desired(spec_of(), metadata["name"], NAMESPACE, metadata["uid"], there, {})
            for item_to_go in wanted.delete:
                self.delete(item_to_go["metadata"]["uid"])
                self.writes += 1
            for made in wanted.apply:
                self.apply(made)
            found[metadata["name"]] = wanted
            self.check()
        self._others_turn()
        self.check()
        return found

    def apply(self, made: Object) -> None:
        key = (made["kind"], made["metadata"]["name"])
        for item in self.objects:
            if (item["kind"], item["metadata"]["name"]) == key:
                assert item["metadata"]["ownerReferences"] == made["metadata"]["ownerReferences"]
                assert "deletionTimestamp" not in item["metadata"]
                return
        if made["kind"] == "ScaledObject":
            assert self.keda
            assert refusals(made, [item for item in self.objects if item["kind"] != "ScaledObject"]) == []
        self._made += 1
        self.writes += 1
        added = {"uid": f"made-{self._made}", "creationTimestamp": "2026-11-22T10:00:00Z"}
        if made["kind"] == "ScaledObject":
            added["finalizers"] = ["finalizer.keda.sh"]  # type: ignore[assignment]
        self.objects.append({**made, "metadata": {**made["metadata"], **added}})

    def delete(self, uid: str) -> None:
        (item,) = [item for item in self.objects if item["metadata"]["uid"] == uid]
        if item["metadata"].get("finalizers"):
            item["metadata"]["deletionTimestamp"] = "2026-11-22T10:05:00Z"
        else:
            self.objects.remove(item)

    def _others_turn(self) -> None:
        for item in [*self.objects]:
            if item["kind"] == "ScaledObject" and item["metadata"].get("deletionTimestamp"):
                self.objects.remove(item)
            elif item["kind"] == "ScaledObject" and not self._made_for(item):
                self._made += 1
                self.objects.append(by_keda(item, f"by-keda-{self._made}"))
        uids = {item["metadata"]["uid"] for item in [*self.objects, *self.autoscalers]}
        for item in [*self.objects]:
            owners = item["metadata"].get("ownerReferences", ())
            is_known = self.keda or self.collects or not any(owner["kind"] == "ScaledObject" for owner in owners)
            if owners and is_known and not any(owner["uid"] in uids for owner in owners):
                self.delete(item["metadata"]["uid"])

    def _made_for(self, scaled: Object) -> list[Object]:
        uid = scaled["metadata"]["uid"]
        return [
            item
            for item in self.objects
            if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences", ()))
        ]

    def check(self) -> None:
        """Of this operator's making, one object at most: an HPA, or a ScaledObject with the HPA that KEDA made."""
        ours = [item for item in self.objects if not item["metadata"]["uid"].startswith("by-hand")]
        scaled = [item for item in ours if item["kind"] == "ScaledObject"]
        hpas = [item for item in ours if item["kind"] != "ScaledObject"]
        assert len(scaled) <= 1
        assert len(hpas) <= 1
        if scaled and hpas:
            (owner,) = hpas[0]["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("ScaledObject", scaled[0]["metadata"]["name"])

    # what may happen

    def keda_comes(self) -> None:
        self.keda = True

    def keda_goes(self) -> None:
        """A definition's objects go with it."""
        self.keda = False
        self.objects = [item for item in self.objects if item["kind"] != "ScaledObject"]

    def somebody_deletes_it(self) -> None:
        for item in [*self.objects]:
            if not item["metadata"].get("deletionTimestamp"):
                self.delete(item["metadata"]["uid"])

    def somebody_else_scales(self) -> None:
        if not any(item["metadata"]["uid"] == "by-hand" for item in self.objects):
            self.objects.append(by_hand("HorizontalPodAutoscaler", "mine"))

    def nobody_else_scales(self) -> None:
        self.objects = [item for item in self.objects if item["metadata"]["uid"] != "by-hand"]

    def an_older_one_comes(self) -> None:
        if len(self.autoscalers) == 1:
            self.autoscalers.append(gpu_autoscaler("older", OTHER_UID, "2026-11-22T09:00:00Z"))

    def the_older_one_goes(self) -> None:
        self.autoscalers = self.autoscalers[:1]

    def come_to_rest(self) -> dict[str, WantedScaler]:
        for _ in range(ENOUGH_TURNS):
            found = self.turn()
        before = self.writes
        assert self.turn() == found
        assert self.writes == before, "an unchanged namespace is written to"
        return found

    @property
    def kinds(self) -> list[str]:
        return sorted(f"{item['kind']} {item['metadata']['name']}" for item in self.objects)


# issue 14, "Must show" 2
@pytest.mark.parametrize("collects", [True, False])
def test_keda_comes_goes_and_comes(collects: bool) -> None:
    namespace = Namespace(keda=False, collects=collects)
    namespace.come_to_rest()
    assert namespace.kinds == ["HorizontalPodAutoscaler trainer"]
    writes = [namespace.writes]
    namespace.keda_comes()
    namespace.come_to_rest()
    assert namespace.kinds == ["HorizontalPodAutoscaler keda-hpa-trainer", "ScaledObject trainer"]
    writes.append(namespace.writes)
    namespace.keda_goes()
    namespace.come_to_rest()
    assert namespace.kinds == ["HorizontalPodAutoscaler trainer"]
    writes.append(namespace.writes)
    namespace.keda_comes()
    namespace.come_to_rest()
    assert namespace.kinds == ["HorizontalPodAutoscaler keda-hpa-trainer", "ScaledObject trainer"]
    # one is deleted and one is made, once each
    assert writes == [1, 3, 5]


EVENTS: list[Callable[[Namespace], object]] = [
    Namespace.turn,
    Namespace.keda_comes,
    Namespace.keda_goes,
    Namespace.somebody_deletes_it,
    Namespace.somebody_else_scales,
    Namespace.nobody_else_scales,
    Namespace.an_older_one_comes,
    Namespace.the_older_one_goes,
]


# issue 14, "Must show" 1 and 2
@settings(max_examples=120)
@given(st.booleans(), st.booleans(), st.lists(st.sampled_from(EVENTS), max_size=14))
def test_in_the_end_there_is_the_right_object_and_never_both(
    keda: bool, collects: bool, events: list[Callable[[Namespace], object]]
) -> None:
    namespace = Namespace(keda=keda, collects=collects)
    for event in events:
        event(namespace)
    found = namespace.come_to_rest()
    is_scaled_by_other = any(item["metadata"]["uid"] == "by-hand" for item in namespace.objects)
    first = "older" if len(namespace.autoscalers) > 1 else "trainer"
    for name, wanted in found.items():
        if name == first and not is_scaled_by_other:
            assert (wanted.trouble, wanted.waits_for) == (None, "")
        else:
            assert wanted.trouble
            assert wanted.trouble.reason == "TargetScaledByOther"
    if is_scaled_by_other:
        assert namespace.kinds == ["HorizontalPodAutoscaler mine"]
    elif namespace.keda:
        assert namespace.kinds == [f"HorizontalPodAutoscaler keda-hpa-{first}", f"ScaledObject {first}"]
    else:
        assert namespace.kinds == [f"HorizontalPodAutoscaler {first}"]
    assert all(item["spec"]["scaleTargetRef"] == REF for item in namespace.objects)
