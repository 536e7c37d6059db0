"""A GPUExporterSpec → the pod that runs on each node: the one of daemonset.yaml, with what the spec changes. Pure.

What each line is for stands in daemonset.yaml and in deploy/kustomize/components, beside it; tests hold both together.
"""

import json
from dataclasses import fields

from exporter import __version__
from exporter.config.settings import ENVIRONMENT_PREFIX
from exporter.operator.objects.names import account_name, config_name, counters_name, selector
from exporter.operator.objects.reading import key_of
from exporter.operator.objects.resources import GPUExporterSpec, Object, ResourceRequirements, Toleration

IMAGE = f"pod-gpu-metrics-exporter:{__version__}"
DCGM_IMAGE = "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.1-4.8.4-distroless"
METRICS_PORT = 9400
DCGM_PORT = 9401
COUNTERS_FOLDER = "/etc/pod-gpu-metrics"
COUNTERS_SOURCE_FOLDER = "/etc/pod-gpu-metrics-counters"
CONFIG_FOLDER = "/etc/pod-gpu-metrics-exporter/config"
CONFIG_KEY = "config.yaml"
COUNTERS_KEY = "counters.csv"
# what dcgm-exporter takes without a word; its own setting is in milliseconds
_USUAL_INTERVAL_SECONDS = 30
_PODS_LOGS = ("log-containers", "/var/log/containers"), ("log-pods", "/var/log/pods")
_RESOURCES = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}
# the probe's tables in the kernel count as the container's memory
_PROBES_RESOURCES = {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "160Mi"}}
_PROBES_CAPABILITIES = ["BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH"]
_COPIERS_RESOURCES = {"requests": {"cpu": "1m", "memory": "16Mi"}, "limits": {"memory": "32Mi"}}
# no limit of CPU: a throttled dcgm-exporter answers late, and its page goes missing
_DCGM_RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}


def asks_kubernetes(spec: GPUExporterSpec) -> bool:
    """Whether the exporter needs a token for the Kubernetes API, and the rights that go with it."""
    return spec.workloads == "on" or spec.labels.pod_uid or bool(spec.labels.pod_labels)


def pod_template(name: str, spec: GPUExporterSpec, image: str) -> Object:
    """The template of the DaemonSet. `image` is the exporter's where the spec names none."""
    image = spec.image or image
    pod: Object = {
        "nodeSelector": dict(spec.node_selector),
        "tolerations": [_toleration(toleration) for toleration in spec.tolerations],
        "priorityClassName": "system-node-critical",
        "automountServiceAccountToken": asks_kubernetes(spec),
        "enableServiceLinks": False,
        "initContainers": [_copier("counters-first", image, "--once")],
        "containers": [_dcgm_exporter(spec), _exporter(spec, image), _copier("counters", image)],
        "volumes": _volumes(name, spec),
    }
    if asks_kubernetes(spec):
        pod["serviceAccountName"] = account_name(name)
    if _sees_processes(spec):
        pod["hostPID"] = True
    if spec.runtime_class_name:
        pod["runtimeClassName"] = spec.runtime_class_name
    if spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in spec.image_pull_secrets]
    return {"metadata": {"labels": selector(name)}, "spec": pod}


def settings(spec: GPUExporterSpec) -> str:
    """The exporter's configuration file: it takes a changed one over without a restart, which arguments would need.

    Every setting that a spec may change is in it, also where it is the default.
    """
    given = {
        "sharing": spec.sharing,
        "labels.names": spec.labels.names,
        "labels.pod-uid": "on" if spec.labels.pod_uid else "off",
        "labels.pod-labels": [*spec.labels.pod_labels],
        "nvml.mode": spec.nvml,
        # the probe's kill switch: pods that are still to be replaced take it over, too
        "probe.mode": spec.probe,
    }
    # a text of JSON is one of YAML
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in given.items())


def _sees_processes(spec: GPUExporterSpec) -> bool:
    """Whether it tells which container a process of the node belongs to: for measured use, and for the probe."""
    return spec.nvml == "on" or spec.probe == "on"


def _dcgm_exporter(spec: GPUExporterSpec) -> Object:
    probe = {"httpGet": {"path": "/health", "port": "dcgm"}, "timeoutSeconds": 5}
    environment: list[Object] = [
        {"name": "DCGM_EXPORTER_LISTEN", "value": f":{DCGM_PORT}"},
        {"name": "DCGM_EXPORTER_COLLECTORS", "value": f"{COUNTERS_FOLDER}/{COUNTERS_KEY}"},
        _from_pod("NODE_NAME", "spec.nodeName"),
    ]
    if spec.interval_seconds != _USUAL_INTERVAL_SECONDS:
        environment.append({"name": "DCGM_EXPORTER_INTERVAL", "value": str(spec.interval_seconds * 1000)})
    return {
        "name": "dcgm-exporter",
        "image": spec.dcgm_image or DCGM_IMAGE,
        "env": environment,
        "ports": [{"name": "dcgm", "containerPort": DCGM_PORT}],
        # DCGM looks at every GPU before the port opens
        "startupProbe": {**probe, "periodSeconds": 2, "timeoutSeconds": 3, "failureThreshold": 60},
        "livenessProbe": probe,
        "readinessProbe": probe,
        "resources": _resources(spec.resources.dcgm, _DCGM_RESOURCES),
        "securityContext": {
            "runAsUser": 0,
            "runAsNonRoot": False,
            "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
            "allowPrivilegeEscalation": False,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [_mount("counters-copy", COUNTERS_FOLDER)],
    }


def _copier(name: str, image: str, *options: str) -> Object:
    """Brings the list of fields to dcgm-exporter, and each later one, which it does not see in a ConfigMap's volume.

    exporter/cli/keep_copy.py says why.
    """
    paths = f"{COUNTERS_SOURCE_FOLDER}/{COUNTERS_KEY}", f"{COUNTERS_FOLDER}/{COUNTERS_KEY}"
    return {
        "name": name,
        "image": image,
        "command": ["python3", "-m", "exporter.cli.keep_copy", *options, *paths],
        "resources": _resources(None, _COPIERS_RESOURCES),
        "securityContext": {
            "runAsUser": 65534,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [
            _mount("counters", COUNTERS_SOURCE_FOLDER),
            {"name": "counters-copy", "mountPath": COUNTERS_FOLDER},
        ],
    }


def _exporter(spec: GPUExporterSpec, image: str) -> Object:
    healthy = {"httpGet": {"path": "/-/healthy", "port": "metrics"}, "timeoutSeconds": 3}
    capabilities: Object = {"drop": ["ALL"]}
    if spec.probe == "on":
        capabilities["add"] = list(_PROBES_CAPABILITIES)
    mounts = [
        _mount("pod-resources", "/var/lib/kubelet/pod-resources"),
        _mount("etc-cdi", "/etc/cdi"),
        _mount("run-cdi", "/var/run/cdi"),
        _mount("config", CONFIG_FOLDER),
    ]
    if _sees_processes(spec):
        mounts += [_mount(volume, path) for volume, path in _PODS_LOGS]
    return {
        "name": "exporter",
        "image": image,
        "args": ["serve", f"--dcgm.url=http://127.0.0.1:{DCGM_PORT}/metrics"],
        "env": _environment(spec),
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
        "startupProbe": {**healthy, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": healthy,
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": "metrics"}, "timeoutSeconds": 3},
        "resources": _resources(spec.resources.exporter, _PROBES_RESOURCES if spec.probe == "on" else _RESOURCES),
        "securityContext": {
            "runAsUser": 0,
            "capabilities": capabilities,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": mounts,
    }


def _environment(spec: GPUExporterSpec) -> list[Object]:
    environment = [
        _from_pod("NODE_NAME", "spec.nodeName"),
        _from_pod("POD_NAMESPACE", "metadata.namespace"),
        # in the environment, so that healthcheck and doctor in this container know it, too
        {"name": f"{ENVIRONMENT_PREFIX}CONFIG_FILE", "value": f"{CONFIG_FOLDER}/{CONFIG_KEY}"},
    ]
    if spec.nvml == "on":
        # NVIDIA's runtime then brings NVML's library in
        environment += [
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
        ]
    return environment


def _volumes(name: str, spec: GPUExporterSpec) -> list[Object]:
    volumes = [
        {"name": "counters", "configMap": _counters(name, spec)},
        {"name": "counters-copy", "emptyDir": {"sizeLimit": "4Mi"}},
        {"name": "config", "configMap": {"name": config_name(name)}},
        _of_node("pod-resources", "/var/lib/kubelet/pod-resources", "Directory"),
        # either may be missing, and a mount of what comes later would stay empty: so it is made first
        _of_node("etc-cdi", "/etc/cdi", "DirectoryOrCreate"),
        _of_node("run-cdi", "/var/run/cdi", "DirectoryOrCreate"),
    ]
    if _sees_processes(spec):
        volumes += [_of_node(volume, path, "Directory") for volume, path in _PODS_LOGS]
    return volumes


def _counters(name: str, spec: GPUExporterSpec) -> Object:
    """The ConfigMap of the volume: the operator's own, or the one that the spec names."""
    own = spec.collectors and spec.collectors.config_map
    if not own:
        return {"name": counters_name(name)}
    if own.key == COUNTERS_KEY:
        return {"name": own.name}
    return {"name": own.name, "items": [{"key": own.key, "path": COUNTERS_KEY}]}


def _toleration(toleration: Toleration) -> Object:
    given = ((key_of(field), getattr(toleration, field.name)) for field in fields(toleration))
    return {key: value for key, value in given if value is not None}


def _resources(given: ResourceRequirements | None, usual: Object) -> Object:
    both = usual.items() if given is None else (("requests", given.requests), ("limits", given.limits))
    return {key: dict(quantities) for key, quantities in both if quantities is not None}


def _from_pod(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _mount(volume: str, path: str) -> Object:
    return {"name": volume, "mountPath": path, "readOnly": True}


def _of_node(volume: str, path: str, kind: str) -> Object:
    return {"name": volume, "hostPath": {"path": path, "type": kind}}
