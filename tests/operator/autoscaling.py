"""What a GPUAutoscaler meets: specs, targets, and the objects of a namespace."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from exporter.operator.autoscalers.choice import NamespaceObjects, WantedScaler, desired
from exporter.operator.autoscalers.troubles import Resource, why_not
from exporter.operator.objects.resources import GPUAutoscalerSpec, Object, read_autoscaler
from exporter.outputs.device_rows import METRICS_TO_ASK
from tests.operator.specs import SCALING, custom_resource

NAME, NAMESPACE = "trainer", "ml"
UID = "3e1bd0a2-0000-4000-8000-0000000000a1"
OTHER_UID = "3e1bd0a2-0000-4000-8000-0000000000b2"
SCALABLE = Resource("deployments", is_scalable=True)
ANY_ITEM: Object = {}
REF: Object = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "trainer"}


def spec_of(**changes: Any) -> GPUAutoscalerSpec:
    """The usual spec, with other fields where given; None leaves one out."""
    given = {key: value for key, value in {**SCALING, **changes}.items() if value is not None}
    return read_autoscaler(custom_resource("GPUAutoscaler", given))


def wanted(
    *,
    keda: bool = True,
    resource: Resource | None = SCALABLE,
    item: Object | None = ANY_ITEM,
    scalers: Iterable[Object] = (),
    autoscalers: Iterable[Object] = (),
    name: str = NAME,
    uid: str = UID,
    annotations: Mapping[str, str] | None = None,
    **changes: Any,
) -> WantedScaler:
    spec = spec_of(**changes)
    trouble = why_not(spec.scale_target_ref, NAMESPACE, resource, item)
    there = NamespaceObjects(keda=keda, not_scalable=trouble, scalers=[*scalers], autoscalers=[*autoscalers])
    return desired(spec, name, NAMESPACE, uid, there, annotations or {})


def applied(*, keda: bool, name: str = NAME, uid: str = UID, **changes: Any) -> Object:
    """The one object that is applied where nothing is in the way."""
    (made,) = wanted(keda=keda, name=name, uid=uid, **changes).apply
    return made


def as_stored(item: Object, uid: str = "made", *, going: bool = False, finalizers: Sequence[str] = ()) -> Object:
    """An object as the API server gives it back."""
    added: Object = {"uid": uid, "creationTimestamp": "2026-11-22T10:00:00Z"}
    if going:
        added |= {"deletionTimestamp": "2026-11-22T10:05:00Z"}
    if finalizers:
        added |= {"finalizers": [*finalizers]}
    return {**item, "metadata": {**item["metadata"], **added}}


def by_hand(kind: str, name: str, target: Object = REF, uid: str = "by-hand") -> Object:
    """An HPA or a ScaledObject that somebody else made."""
    version = "keda.sh/v1alpha1" if kind == "ScaledObject" else "autoscaling/v2"
    metadata = {"name": name, "namespace": NAMESPACE, "uid": uid, "creationTimestamp": "2026-11-22T09:00:00Z"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {"scaleTargetRef": target}}


def by_keda(scaled: Object, uid: str = "by-keda") -> Object:
    """The HPA that KEDA makes for a ScaledObject: it copies its labels (controllers/keda/hpa.go)."""
    metadata = scaled["metadata"]
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": metadata["name"], "uid": metadata["uid"]}
    made = by_hand("HorizontalPodAutoscaler", f"keda-hpa-{metadata['name']}", scaled["spec"]["scaleTargetRef"], uid)
    made["metadata"] |= {
        "labels": {"app.kubernetes.io/part-of": metadata["name"], **metadata.get("labels", {})},
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    return made


def gpu_autoscaler(name: str, uid: str, created: str = "2026-11-22T09:30:00Z", target: Object = REF) -> Object:
    """A GPUAutoscaler as the API server gives it."""
    item = custom_resource("GPUAutoscaler", {**SCALING, "scaleTargetRef": target}, name)
    item["metadata"] |= {"uid": uid, "creationTimestamp": created}
    return item


_POLICIES = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Pods", "Percent"]),
            "value": st.integers(1, 2**31 - 1),
            "periodSeconds": st.integers(1, 1800),
        }
    ),
    min_size=1,
    max_size=3,
)
_RULES = st.fixed_dictionaries(
    {},
    optional={
        "stabilizationWindowSeconds": st.integers(0, 3600),
        "selectPolicy": st.sampled_from(["Max", "Min", "Disabled"]),
        "policies": _POLICIES,
        "tolerance": st.sampled_from(["0.1", "0", 0, 1, "50m", "1.5", ".25", "1e-1", "0.0000000001", "1Ki"]),
    },
)
# specs of a GPUAutoscaler that are valid
VALID = st.builds(
    lambda spec, least, more, idle: {
        **spec,
        "minReplicas": least if idle is not None else max(1, least),
        "maxReplicas": max(1, least) + more,
        **({} if idle is None else {"idleSeconds": idle}),
    },
    st.fixed_dictionaries(
        {
            "scaleTargetRef": st.just(REF),
            "metric": st.sampled_from(METRICS_TO_ASK),
            "target": st.one_of(st.integers(1, 10**6), st.floats(0.001, 1e6).filter(lambda number: number >= 0.001)),
        },
        optional={"behavior": st.fixed_dictionaries({}, optional={"scaleUp": _RULES, "scaleDown": _RULES})},
    ),
    st.integers(0, 100),
    st.integers(0, 100),
    st.one_of(st.none(), st.integers(1, 604_800)),
)
# what anybody may have written into a field
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
