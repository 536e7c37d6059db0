"""A GPUExporterSpec → the objects that it stands for, as they are applied. Pure: equal specs give equal objects."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from exporter.operator.exporters.counters import counters_csv
from exporter.operator.exporters.overlaps import elsewhere
from exporter.operator.exporters.pods import (
    CONFIG_KEY,
    COUNTERS_KEY,
    IMAGE,
    METRICS_PORT,
    asks_kubernetes,
    pod_template,
    settings,
)
from exporter.operator.objects.names import (
    FOR_ANNOTATION,
    account_name,
    base_name,
    binding_name,
    config_name,
    counters_name,
    labels,
    owner,
    selector,
)
from exporter.operator.objects.resources import GPUExporterSpec, Object

# deploy/operator/operator.yaml has it, with the rules of deploy/rbac.yaml. The operator may bind it, and no other.
CLUSTER_ROLE = "pod-gpu-metrics-operator-exporter"
_RBAC = "rbac.authorization.k8s.io"


class Reference(NamedTuple):
    """An object by its name. `namespace` is "" for one of the whole cluster."""

    api_version: str
    kind: str
    namespace: str
    name: str


def desired(
    name: str,
    namespace: str,
    uid: str,
    spec: GPUExporterSpec,
    *,
    pod_monitors: bool,
    image: str = IMAGE,
    avoids: Sequence[Mapping[str, str]] = (),
) -> tuple[Object, ...]:
    """Every object that a GPUExporter stands for, in the order in which they are applied.

    `name`, `namespace` and `uid` are the GPUExporter's; `pod_monitors` says whether the cluster knows PodMonitors;
    `image` is the exporter's where the spec names none; `avoids` are node selectors of others, whose nodes it leaves
    alone. All belong to the GPUExporter by an owner reference but the
    ClusterRoleBinding, which no namespaced object can own:
    FOR_ANNOTATION says whose it is, to whoever deletes it.
    """
    wanted = [_service(name), _object("v1", "ConfigMap", config_name(name), data={CONFIG_KEY: settings(spec)})]
    if not (spec.collectors and spec.collectors.config_map):
        wanted.append(_counters(name, spec))
    if asks_kubernetes(spec):
        wanted.append(_object("v1", "ServiceAccount", account_name(name)))
    wanted.append(_daemon_set(name, spec, image, avoids))
    if spec.service_monitor.enabled != "off" and pod_monitors:
        wanted.append(_pod_monitor(name, spec))
    for item in wanted:
        item["metadata"] |= {
            "namespace": namespace,
            "labels": {**item["metadata"].get("labels", {}), **labels(name)},
            "ownerReferences": [owner(name, uid)],
        }
    if asks_kubernetes(spec):
        wanted.insert(0, _binding(name, namespace))
    return tuple(wanted)


def all_references(name: str, namespace: str) -> tuple[Reference, ...]:
    """Every object that a GPUExporter of this name may stand for, whatever its spec.

    What is there and not desired is to be deleted, if it is this GPUExporter's: somebody may have made another object
    under that name.
    """
    base = base_name(name)
    return (
        Reference(f"{_RBAC}/v1", "ClusterRoleBinding", "", binding_name(name, namespace)),
        Reference("v1", "Service", namespace, base),
        Reference("v1", "ConfigMap", namespace, config_name(name)),
        Reference("v1", "ConfigMap", namespace, counters_name(name)),
        Reference("v1", "ServiceAccount", namespace, account_name(name)),
        Reference("apps/v1", "DaemonSet", namespace, base),
        Reference("monitoring.coreos.com/v1", "PodMonitor", namespace, base),
    )


def _service(name: str) -> Object:
    return _object(
        "v1",
        "Service",
        base_name(name),
        spec={
            "clusterIP": "None",
            "selector": selector(name),
            "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}],
        },
    )


def _counters(name: str, spec: GPUExporterSpec) -> Object:
    """The list of fields. Nothing of its contents is in the pods' template: a changed list restarts no pod."""
    fields = spec.collectors.fields if spec.collectors else None
    return _object("v1", "ConfigMap", counters_name(name), data={COUNTERS_KEY: counters_csv(fields)})


def _daemon_set(name: str, spec: GPUExporterSpec, image: str, avoids: Sequence[Mapping[str, str]]) -> Object:
    template = pod_template(name, spec, image)
    if avoids:
        template["spec"]["affinity"] = elsewhere(spec.node_selector, avoids)
    return _object(
        "apps/v1",
        "DaemonSet",
        base_name(name),
        spec={
            "selector": {"matchLabels": selector(name)},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": template,
        },
    )


def _pod_monitor(name: str, spec: GPUExporterSpec) -> Object:
    """As deploy/prometheus/podmonitor.yaml, which says why each line is there."""
    interval = spec.service_monitor.interval_seconds or spec.interval_seconds
    endpoints = [
        {
            "port": "metrics",
            "path": path,
            "interval": f"{interval}s",
            "honorLabels": True,
            "relabelings": [
                {"sourceLabels": ["__metrics_path__"], "targetLabel": "metrics_path"},
                {"targetLabel": "exporter", "replacement": "pod-gpu-metrics-exporter"},
                {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
            ],
        }
        for path in ("/gpu/metrics", "/metrics")
    ]
    item = _object(
        "monitoring.coreos.com/v1",
        "PodMonitor",
        base_name(name),
        spec={"selector": {"matchLabels": selector(name)}, "podMetricsEndpoints": endpoints},
    )
    item["metadata"]["labels"] = dict(spec.service_monitor.labels)
    return item


def _binding(name: str, namespace: str) -> Object:
    item = _object(
        f"{_RBAC}/v1",
        "ClusterRoleBinding",
        binding_name(name, namespace),
        roleRef={"apiGroup": _RBAC, "kind": "ClusterRole", "name": CLUSTER_ROLE},
        subjects=[{"kind": "ServiceAccount", "name": account_name(name), "namespace": namespace}],
    )
    item["metadata"] |= {"labels": labels(name), "annotations": {FOR_ANNOTATION: f"{namespace}/{name}"}}
    return item


def _object(api_version: str, kind: str, name: str, **content: object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **content}
