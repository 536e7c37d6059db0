"""A GPUExporterSpec → its objects, as they are applied. Pure: equal specs give equal objects.

They are made of shipped.json, which a test holds to daemonset.yaml, deploy/prometheus/podmonitor.yaml and the patches
for `allocators`, `nvml`, `probe` and `kernelLog` in deploy/kustomize/components. These files say what each line is for.
"""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pkgutil import get_data

from exporter.config.settings import ENVIRONMENT_PREFIX
from exporter.dcgm.fields import counters_csv
from exporter.operator.exporters.overlaps import elsewhere
from exporter.operator.objects import kinds
from exporter.operator.objects.kinds import Key, Kind, base_name, labels, owner, selector
from exporter.operator.objects.resources import GPUExporterSpec, Object, as_object

_SHIPPED: Mapping[str, Object] = json.loads(get_data(__package__, "shipped.json") or b"")
_SPEC = _SHIPPED["DaemonSet"]["spec"]
_DCGM, _EXPORTER = _SPEC["template"]["spec"]["containers"]
IMAGE: str = _EXPORTER["image"]
DCGM_IMAGE: str = _DCGM["image"]
METRICS_PORT: int = _EXPORTER["ports"][0]["containerPort"]
COUNTERS_KEY = "counters.csv"
COUNTERS_FOLDER: str = _DCGM["volumeMounts"][0]["mountPath"]
COUNTERS_SOURCE_FOLDER = f"{COUNTERS_FOLDER}-counters"
CONFIG_FOLDER = "/etc/pod-gpu-metrics-exporter/config"
CONFIG_KEY = "config.yaml"
# dcgm-exporter's default, which need not be set; its own setting is in milliseconds
_USUAL_INTERVAL_SECONDS = 30
# deploy/operator/operator.yaml has this role, with the rules of deploy/rbac.yaml. The operator may bind no other role.
CLUSTER_ROLE = "pod-gpu-metrics-operator-exporter"
_COPIER: Object = {
    "resources": {"requests": {"cpu": "1m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}},
    "securityContext": _EXPORTER["securityContext"] | {"runAsUser": 65534, "runAsNonRoot": True},
    "volumeMounts": [
        {"name": "counters", "mountPath": COUNTERS_SOURCE_FOLDER, "readOnly": True},
        {"name": "counters-copy", "mountPath": COUNTERS_FOLDER},
    ],
}
# The exporter's configuration, from a ConfigMap. The environment names it, so that healthcheck and doctor read it, too.
_CONFIGURED: Object = {
    "name": "exporter",
    "env": [{"name": f"{ENVIRONMENT_PREFIX}CONFIG_FILE", "value": f"{CONFIG_FOLDER}/{CONFIG_KEY}"}],
    "volumeMounts": [{"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True}],
}


def desired(
    name: str,
    namespace: str,
    uid: str,
    spec: GPUExporterSpec,
    *,
    pod_monitors: bool,
    avoids: Sequence[Mapping[str, str]] = (),
) -> tuple[Object, ...]:
    """All objects of a GPUExporter, in the order in which they are applied.

    They belong to the GPUExporter (`name`, `namespace`, `uid`) by an owner reference. Only the ClusterRoleBinding,
    which no namespaced object can own, names it in its FOR_ANNOTATION. `pod_monitors` says whether the cluster knows
    PodMonitors. Nodes that a selector of `avoids` matches get no pod.
    """
    wanted = [_service(name), _object(kinds.CONFIG_MAP, kinds.config_name(name), data={CONFIG_KEY: settings(spec)})]
    if not (spec.collectors and spec.collectors.config_map):
        # the pods' template has nothing of the list, so a changed list restarts no pod
        listed = counters_csv(spec.collectors.fields if spec.collectors else None)
        wanted.append(_object(kinds.CONFIG_MAP, kinds.counters_name(name), data={COUNTERS_KEY: listed}))
    if _asks_kubernetes(spec):
        wanted.append(_object(kinds.SERVICE_ACCOUNT, kinds.account_name(name)))
    wanted.append(_daemon_set(name, spec, avoids))
    if spec.service_monitor.enabled != "off" and pod_monitors:
        wanted.append(_pod_monitor(name, spec))
    for item in wanted:
        item["metadata"] |= {
            "namespace": namespace,
            "labels": {**item["metadata"].get("labels", {}), **labels(name)},
            "ownerReferences": [owner(name, uid)],
        }
    if _asks_kubernetes(spec):
        wanted.insert(0, _binding(name, namespace))
    return tuple(wanted)


def all_keys(name: str, namespace: str) -> Sequence[Key]:
    """The names of all objects that a GPUExporter of this name may have. Objects that are not desired are deleted."""
    base = base_name(name)
    return (
        Key(kinds.CLUSTER_ROLE_BINDING.name, "", kinds.binding_name(name, namespace)),
        Key(kinds.SERVICE.name, namespace, base),
        Key(kinds.CONFIG_MAP.name, namespace, kinds.config_name(name)),
        Key(kinds.CONFIG_MAP.name, namespace, kinds.counters_name(name)),
        Key(kinds.SERVICE_ACCOUNT.name, namespace, kinds.account_name(name)),
        Key(kinds.DAEMON_SET.name, namespace, base),
        Key(kinds.POD_MONITOR.name, namespace, base),
    )


def settings(spec: GPUExporterSpec) -> str:
    """The exporter's configuration file, which it reads again without a restart. It has a spec's defaults, too."""
    given = {
        "sharing": spec.sharing,
        "labels.names": spec.labels.names,
        "labels.pod-uid": "on" if spec.labels.pod_uid else "off",
        "labels.pod-labels": [*spec.labels.pod_labels],
        "labels.owners": spec.labels.owners,
        "nvml.mode": spec.nvml,
        # the probe's kill switch: pods that have not been replaced yet read it, too
        "probe.mode": spec.probe,
    }
    # JSON is YAML
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in given.items())


def _asks_kubernetes(spec: GPUExporterSpec) -> bool:
    """Whether the exporter needs a token for the Kubernetes API, and rights."""
    return spec.workloads == "on" or spec.allocators or spec.labels.pod_uid or bool(spec.labels.pod_labels)


def _daemon_set(name: str, spec: GPUExporterSpec, avoids: Sequence[Mapping[str, str]]) -> Object:
    pod = _pod(name, spec, spec.image or IMAGE)
    if avoids:
        pod["affinity"] = elsewhere(spec.node_selector, avoids)
    changed = {
        "selector": {"matchLabels": selector(name)},
        "template": {"metadata": {"labels": selector(name)}, "spec": pod},
    }
    return _object(kinds.DAEMON_SET, base_name(name), spec=deepcopy(_SPEC) | changed)


def _pod(name: str, spec: GPUExporterSpec, image: str) -> Object:
    """The pod of daemonset.yaml, with the operator's additions and the spec's changes."""
    pod = _with_components(_patched(_SPEC["template"]["spec"], {"containers": [_CONFIGURED]}), spec)
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    pod["volumes"] = [
        {"name": "counters", "configMap": _counters(name, spec)},
        {"name": "counters-copy", "emptyDir": {"sizeLimit": "4Mi"}},
        {"name": "config", "configMap": {"name": kinds.config_name(name)}},
        *(volume for kind, volume in volumes.items() if kind not in ("counters", "config")),
    ]
    dcgm, exporter = pod["containers"]
    dcgm["volumeMounts"][0]["name"] = "counters-copy"
    if spec.interval_seconds != _USUAL_INTERVAL_SECONDS:
        dcgm["env"].append({"name": "DCGM_EXPORTER_INTERVAL", "value": str(spec.interval_seconds * 1000)})
    if spec.dcgm_image:
        dcgm["image"] = spec.dcgm_image
    exporter["image"] = image
    for container, given in ((dcgm, spec.resources.dcgm), (exporter, spec.resources.exporter)):
        if given is not None:
            container["resources"] = as_object(given)
    pod["containers"].append(_copier("counters", image))
    pod |= {
        "nodeSelector": dict(spec.node_selector),
        "tolerations": as_object(spec.tolerations),
        "automountServiceAccountToken": _asks_kubernetes(spec),
        "initContainers": [_copier("counters-first", image, "--once")],
    }
    if _asks_kubernetes(spec):
        pod["serviceAccountName"] = kinds.account_name(name)
    if spec.runtime_class_name:
        pod["runtimeClassName"] = spec.runtime_class_name
    if spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in spec.image_pull_secrets]
    return pod


def _with_components(pod: Object, spec: GPUExporterSpec) -> Object:
    """A pod with the components of deploy/kustomize that a spec asks for."""
    components = {
        "allocators": spec.allocators,
        "measured-use": spec.nvml == "on",
        "cuda-probe": spec.probe == "on",
        "kernel-log": spec.kernel_log == "on",
    }
    for component, is_wanted in components.items():
        if is_wanted:
            pod = _patched(pod, _SHIPPED[component]["spec"]["template"]["spec"])
    return pod


def _patched(item: Object, patch: Object) -> Object:
    """A copy with a strategic merge patch applied: mappings merge, and list entries merge by name; new ones go last."""
    patched = deepcopy(item)
    for key, value in patch.items():
        before = patched.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            patched[key] = _patched(dict(before), dict(value))
        elif isinstance(value, list) and isinstance(before, list):
            by_name = {entry["name"]: entry for entry in before}
            by_name |= {entry["name"]: _patched(by_name.get(entry["name"], {}), entry) for entry in value}
            patched[key] = list(by_name.values())
        else:
            patched[key] = deepcopy(value)
    return patched


def _copier(name: str, image: str, *options: str) -> Object:
    """The container that brings dcgm-exporter each new list of fields; exporter/cli/keep_copy.py says why."""
    paths = f"{COUNTERS_SOURCE_FOLDER}/{COUNTERS_KEY}", f"{COUNTERS_FOLDER}/{COUNTERS_KEY}"
    command = ["python3", "-m", "exporter.cli.keep_copy", *options, *paths]
    return {"name": name, "image": image, "command": command, **deepcopy(_COPIER)}


def _counters(name: str, spec: GPUExporterSpec) -> Object:
    """The volume's ConfigMap: the operator's own, or the one that the spec names."""
    own = spec.collectors and spec.collectors.config_map
    if not own:
        return {"name": kinds.counters_name(name)}
    if own.key == COUNTERS_KEY:
        return {"name": own.name}
    return {"name": own.name, "items": [{"key": own.key, "path": COUNTERS_KEY}]}


def _service(name: str) -> Object:
    spec = deepcopy(_SHIPPED["Service"]["spec"])
    return _object(kinds.SERVICE, base_name(name), spec=spec | {"selector": selector(name)})


def _pod_monitor(name: str, spec: GPUExporterSpec) -> Object:
    interval = spec.service_monitor.interval_seconds or spec.interval_seconds
    endpoints = deepcopy(_SHIPPED["PodMonitor"]["spec"]["podMetricsEndpoints"])
    for endpoint in endpoints:
        endpoint["interval"] = f"{interval}s"
    content = {"selector": {"matchLabels": selector(name)}, "podMetricsEndpoints": endpoints}
    item = _object(kinds.POD_MONITOR, base_name(name), spec=content)
    item["metadata"]["labels"] = dict(spec.service_monitor.labels)
    return item


def _binding(name: str, namespace: str) -> Object:
    item = _object(
        kinds.CLUSTER_ROLE_BINDING,
        kinds.binding_name(name, namespace),
        roleRef={"apiGroup": kinds.CLUSTER_ROLE_BINDING.group, "kind": "ClusterRole", "name": CLUSTER_ROLE},
        subjects=[{"kind": "ServiceAccount", "name": kinds.account_name(name), "namespace": namespace}],
    )
    item["metadata"] |= {"labels": labels(name), "annotations": {kinds.FOR_ANNOTATION: f"{namespace}/{name}"}}
    return item


def _object(kind: Kind, name: str, **content: object) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name}, **content}
