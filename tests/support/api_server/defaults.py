"""Defaults of the built-in kinds that an operator makes, as an API server fills them in.

They are those of workloads, their pods and Services, as far as they do not depend on a cluster's settings. Other kinds
have none here.
"""

from tests.support.api_server.answers import Object
from tests.support.api_server.kinds import Kind

_SURGE = {"maxUnavailable": "25%", "maxSurge": "25%"}
_OF_WORKLOADS: dict[str, Object] = {
    "DaemonSet": {
        "revisionHistoryLimit": 10,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
    },
    "Deployment": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": _SURGE},
    },
    "StatefulSet": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    },
    "ReplicaSet": {"replicas": 1},
}
_OF_PODS: Object = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
_OF_CONTAINERS: Object = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_OF_PROBES: Object = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_OF_SERVICES: Object = {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"}
_MODE = 0o644
_VOLUMES = ("configMap", "secret", "projected", "downwardAPI")


def with_defaults(kind: Kind, item: Object) -> Object:
    """The object with its kind's defaults where nothing stands."""
    spec = item.get("spec")
    if not isinstance(spec, dict):
        return item
    if kind.name in _OF_WORKLOADS:
        template = spec.get("template") or {}
        filled = _laid_under(_OF_WORKLOADS[kind.name], spec)
        return {**item, "spec": {**filled, "template": {**template, "spec": _pod(template.get("spec") or {})}}}
    if kind.name == "HorizontalPodAutoscaler":
        return {**item, "spec": {"minReplicas": 1, **spec}}
    if kind.name == "Pod" and not kind.group:
        return {**item, "spec": _pod(spec)}
    if kind.name == "Service" and not kind.group:
        ports = [
            _laid_under({"protocol": "TCP", "targetPort": port.get("port")}, port) for port in spec.get("ports") or ()
        ]
        return {**item, "spec": {**_laid_under(_OF_SERVICES, spec), "ports": ports}}
    return item


def _pod(spec: Object) -> Object:
    filled = _laid_under(_OF_PODS, spec)
    for name in ("containers", "initContainers"):
        if spec.get(name):
            filled[name] = [_container(container) for container in spec[name]]
    if spec.get("volumes"):
        filled["volumes"] = [_volume(volume) for volume in spec["volumes"]]
    if "serviceAccountName" in spec:
        filled.setdefault("serviceAccount", spec["serviceAccountName"])  # its old name
    return filled


def _container(container: Object) -> Object:
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    is_latest = "@" not in image and tag in ("", "latest")
    filled = _laid_under({**_OF_CONTAINERS, "imagePullPolicy": "Always" if is_latest else "IfNotPresent"}, container)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name):
            filled[name] = _probe(container[name])
    if container.get("ports"):
        filled["ports"] = [{"protocol": "TCP", **port} for port in container["ports"]]
    if container.get("env"):
        filled["env"] = [_variable(variable) for variable in container["env"]]
    return filled


def _probe(probe: Object) -> Object:
    filled = _laid_under(_OF_PROBES, probe)
    if filled.get("httpGet"):
        filled["httpGet"] = {"path": "/", "scheme": "HTTP", **filled["httpGet"]}
    return filled


def _variable(variable: Object) -> Object:
    source = variable.get("valueFrom") or {}
    if "fieldRef" not in source:
        return variable
    return {**variable, "valueFrom": {**source, "fieldRef": {"apiVersion": "v1", **source["fieldRef"]}}}


def _volume(volume: Object) -> Object:
    filled = {name: {"defaultMode": _MODE, **volume[name]} if name in _VOLUMES else volume[name] for name in volume}
    if isinstance(filled.get("hostPath"), dict):
        filled["hostPath"] = {"type": "", **filled["hostPath"]}
    return filled


def _laid_under(defaults: Object, value: Object) -> Object:
    """The value with defaults below it, in nested objects as well, where their type is the same."""
    filled = {**defaults, **value}
    for name, inner in defaults.items():
        if isinstance(inner, dict) and isinstance(value.get(name), dict):
            of_another = "type" in inner and value[name].get("type", inner["type"]) != inner["type"]
            filled[name] = value[name] if of_another else _laid_under(inner, value[name])
    return filled
