"""A value other than the chart's own for each thing that can be set, and what else must be set for it to matter."""

from typing import Any

from tests.support.chart import merged
from tests.support.manifests import Object

HASH = "$2b$04$HZpJ1zFPoYFhiNKt836Jpela66GSWyHD1zFHRd9OBo9BrGE73qhn2"  # of "made up"
ENTRY = {"name": "TZ", "value": "UTC"}
TAINT = {"key": "dedicated", "operator": "Exists"}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["gpu"]}]}
]}}}  # fmt: skip
RELABELING = {"sourceLabels": ["__address__"], "targetLabel": "address"}
RULE = {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["get"]}
RULES = {"name": "rules", "configMap": {"name": "device-rules"}}
PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
TLS = {"tlsServerConfig": {"enabled": True, "existingSecret": "certificate"}}
OWN_WEB = {"webConfig": {"existingSecret": "web"}}


def _monitor(name: str) -> dict[str, tuple[Any, Object]]:
    on = {name: {"enabled": True}}
    return {
        f"{name}.enabled": (True, {}),
        f"{name}.interval": ("15s", on),
        f"{name}.scrapeTimeout": ("10s", on),
        f"{name}.honorLabels": (False, on),
        f"{name}.additionalLabels": ({"release": "kube-prometheus-stack"}, on),
        f"{name}.relabelings": ([RELABELING], on),
        f"{name}.metricRelabelings": ([{"action": "labeldrop", "regex": "pci_bus_id"}], on),
        f"{name}.tlsConfig": ({"insecureSkipVerify": True}, on),
        f"{name}.basicAuth": ({"username": {"name": "scraper", "key": "user"}}, on),
    }


ON_GPU_OPERATOR = {"mode": "gpu-operator"}
WITH_PROBE = {"cudaProbe": {"enabled": True}}
WITH_CLUSTER = {"cluster": {"enabled": True}}
WITH_OPERATOR = {"operator": {"enabled": True}}
# by path: the value, and the other values with which it makes a difference
EXAMPLES: dict[str, tuple[Any, Object]] = {
    "mode": ("nvml", {}),
    "image.repository": ("registry.example/exporter", {}),
    "image.tag": ("9.9.9", {}),
    "image.digest": ("sha256:" + "0f" * 32, {}),
    "image.pullPolicy": ("Always", {}),
    "imagePullSecrets": ([{"name": "registry"}], {}),
    "nameOverride": ("gpu-owners", {}),
    "fullnameOverride": ("gpu-owners", {}),
    "namespaceOverride": ("elsewhere", {}),
    "dcgmExporter.image.repository": ("registry.example/dcgm-exporter", {}),
    "dcgmExporter.image.tag": ("9.9.9", {}),
    "dcgmExporter.image.pullPolicy": ("Always", {}),
    "dcgmExporter.customMetrics": ("DCGM_FI_DEV_GPU_UTIL, gauge, How busy.\n", {}),
    "dcgmExporter.extraArgs": (["--collect-interval=10000"], {}),
    "dcgmExporter.extraEnv": ([ENTRY], {}),
    "dcgmExporter.resources": ({"limits": {"memory": "1Gi"}}, {}),
    "dcgmExporter.securityContext": ({"runAsGroup": 0}, {}),
    "gpuOperator.namespace": ("nvidia-gpu-operator", ON_GPU_OPERATOR),
    "gpuOperator.selector": ({"app": None, "app.kubernetes.io/name": "dcgm"}, ON_GPU_OPERATOR),
    "gpuOperator.port": (9401, ON_GPU_OPERATOR),
    "gpuOperator.serviceName": ("dcgm", ON_GPU_OPERATOR),
    "nvml.enabled": (True, {}),
    "nvml.nvidiaVisibleDevices": ("0,1", {"nvml": {"enabled": True}}),
    "nvml.nvidiaDriverCapabilities": ("all", {"nvml": {"enabled": True}}),
    "measuredUse.enabled": (True, {}),
    "kernelLog.enabled": (True, {}),
    "cudaProbe.enabled": (True, {}),
    "cudaProbe.mode": ("off", WITH_PROBE),
    "cudaProbe.capabilities": (["BPF", "PERFMON", "SYS_ADMIN", "SYS_PTRACE"], WITH_PROBE),
    "cudaProbe.resources": ({"limits": {"memory": "256Mi"}}, WITH_PROBE),
    "kubeletPath": ("/var/lib/k0s/kubelet/pod-resources", {}),
    "cdi.etc": (False, {}),
    "cdi.run": (False, {}),
    "dra.checkpoint": (False, {}),
    "allocators": (True, {}),
    "config": ({"sharing": "split", "labels": {"pod-uid": "on"}}, {}),
    "extraArgs": (["--log.level=debug"], {}),
    "extraEnv": ([{"name": "LOG_LEVEL", "value": "debug"}], {}),
    "extraVolumes": ([RULES], {}),
    "extraVolumeMounts": ([{"name": "rules", "mountPath": "/etc/rules", "readOnly": True}], {"extraVolumes": [RULES]}),
    "resources": ({"limits": {"memory": "512Mi"}}, {}),
    "securityContext": ({"seLinuxOptions": {"type": "spc_t"}}, {}),
    "podSecurityContext": ({"seccompProfile": {"type": "RuntimeDefault"}}, {}),
    "podAnnotations": ({"example.com/team": "gpus"}, {}),
    "podLabels": ({"example.com/team": "gpus"}, {}),
    "nodeSelector": ({"nvidia.com/gpu.present": None, "cloud.google.com/gke-gpu": "true"}, {}),
    "tolerations": ([TAINT], {}),
    "affinity": (AFFINITY, {}),
    "priorityClassName": ("gpu-monitoring", {}),
    "runtimeClassName": ("nvidia", {}),
    "rollingUpdate": ({"maxUnavailable": 1, "maxSurge": 0}, {}),
    "service.enabled": (False, {}),
    "service.port": (80, {}),
    "service.clusterIP": ("", {}),
    "service.annotations": ({"example.com/team": "gpus"}, {}),
    "serviceAccount.create": (True, {}),
    "serviceAccount.name": ("monitoring", {}),
    "serviceAccount.annotations": ({"example.com/team": "gpus"}, {"serviceAccount": {"create": True}}),
    "rbac.create": (True, {}),
    "rbac.extraRules": ([RULE], {"rbac": {"create": True}}),
    "webConfig.existingSecret": ("web", {}),
    "webConfig.tls": (False, OWN_WEB),
    "tlsServerConfig.enabled": (True, {"tlsServerConfig": {"existingSecret": "certificate"}}),
    "tlsServerConfig.existingSecret": ("other", TLS),
    "tlsServerConfig.certFilename": ("server.crt", TLS),
    "tlsServerConfig.keyFilename": ("server.key", TLS),
    "basicAuth.users": ({"prometheus": HASH}, {}),
    **_monitor("serviceMonitor"),
    **_monitor("podMonitor"),
    "prometheusRule.enabled": (True, {}),
    "prometheusRule.additionalLabels": ({"release": "x"}, {"prometheusRule": {"enabled": True}}),
    "prometheusRule.disabledAlerts": (["PodGpuExporterDown"], {"prometheusRule": {"enabled": True}}),
    "prometheusRule.runbooks": ("https://git.example/alerts.md", {"prometheusRule": {"enabled": True}}),
    "grafanaDashboards.enabled": (True, {}),
    "grafanaDashboards.namespace": ("grafana", {"grafanaDashboards": {"enabled": True}}),
    "grafanaDashboards.label": ("dashboards", {"grafanaDashboards": {"enabled": True}}),
    "grafanaDashboards.labelValue": ("yes", {"grafanaDashboards": {"enabled": True}}),
    "grafanaDashboards.annotations": ({"grafana_folder": "Hardware"}, {"grafanaDashboards": {"enabled": True}}),
    "networkPolicy.enabled": (True, {}),
    "networkPolicy.from": ([PEER], {"networkPolicy": {"enabled": True}}),
    "networkPolicy.egress": ([], {"networkPolicy": {"enabled": True}}),
    "cluster.enabled": (True, {}),
    "cluster.replicas": (1, WITH_CLUSTER),
    "cluster.resources": ({"limits": {"memory": "512Mi"}}, WITH_CLUSTER),
    "cluster.keda.enabled": (True, WITH_CLUSTER),
    "cluster.keda.namespace": ("scaling", {"cluster": {"enabled": True, "keda": {"enabled": True}}}),
    "cluster.httpConfigSecret": ("http", WITH_CLUSTER),
    "cluster.extraArgs": (["--log.level=debug"], WITH_CLUSTER),
    "cluster.extraEnv": ([ENTRY], WITH_CLUSTER),
    "cluster.podAnnotations": ({"example.com/team": "gpus"}, WITH_CLUSTER),
    "cluster.podLabels": ({"example.com/team": "gpus"}, WITH_CLUSTER),
    "cluster.nodeSelector": ({"pool": "small"}, WITH_CLUSTER),
    "cluster.tolerations": ([TAINT], WITH_CLUSTER),
    "cluster.affinity": (AFFINITY, WITH_CLUSTER),
    "cluster.priorityClassName": ("system-cluster-critical", WITH_CLUSTER),
    "operator.enabled": (True, {}),
    "operator.replicas": (1, WITH_OPERATOR),
    "operator.namespaces": (["ml"], WITH_OPERATOR),
    "operator.podEvents": (True, WITH_OPERATOR),
    "operator.resources": ({"limits": {"memory": "512Mi"}}, WITH_OPERATOR),
    "operator.extraArgs": (["--log.level=debug"], WITH_OPERATOR),
    "operator.extraEnv": ([ENTRY], WITH_OPERATOR),
    "operator.podAnnotations": ({"example.com/team": "gpus"}, WITH_OPERATOR),
    "operator.podLabels": ({"example.com/team": "gpus"}, WITH_OPERATOR),
    "operator.nodeSelector": ({"pool": "small"}, WITH_OPERATOR),
    "operator.tolerations": ([TAINT], WITH_OPERATOR),
    "operator.affinity": (AFFINITY, WITH_OPERATOR),
    "operator.priorityClassName": ("", WITH_OPERATOR),
}
# these would take away what others add, or do not go with them
_APART = {
    "image.digest",
    "mode",
    "namespaceOverride",
    "nameOverride",
    "fullnameOverride",
    "service.enabled",
    "cdi.etc",
    "cdi.run",
    "dra.checkpoint",
    "operator.namespaces",
    "operator.podEvents",
}


def at(path: str, value: Any) -> Object:
    for key in reversed(path.split(".")):
        value = {key: value}
    return dict(value)


EVERYTHING = merged(
    *(
        merged(context, at(path, value))
        for path, (value, context) in EXAMPLES.items()
        if path not in _APART and not path.startswith(("gpuOperator.", "webConfig.", "podMonitor."))
    )
)
