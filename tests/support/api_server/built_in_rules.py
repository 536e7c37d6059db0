"""The rules of built-in kinds that an operator runs into, after the source of kube-apiserver.

Labels and owners of any object; selectors of workloads, which cannot change; what a binding refers to; the size of a
ConfigMap. All others are left to a real API server.
"""

import json
import re
from collections.abc import Iterator

from tests.support.api_server.answers import Cause, Json, Object
from tests.support.api_server.kinds import Kind

_PART = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = re.compile(rf"({_PART})?")
_LABEL_NAME = re.compile(_PART)
_LONGEST_LABEL = 63
_LONGEST_CONFIG_MAP = 1024**2
_WORKLOADS = ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
    " '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
    " character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SERVICE_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is"
    " '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def problems(kind: Kind, item: Object, before: Object | None) -> Iterator[Cause]:
    """What is wrong with an object, new or changed."""
    yield from _label_problems(item["metadata"].get("labels"), "metadata.labels")
    yield from _owner_problems(item["metadata"].get("ownerReferences") or ())
    if kind.is_custom():
        return
    if kind.name in _WORKLOADS and kind.group == "apps":
        yield from _workload_problems(item, before)
    elif kind.name in ("RoleBinding", "ClusterRoleBinding") and before and item.get("roleRef") != before.get("roleRef"):
        yield Cause("Invalid", "roleRef", f"Invalid value: {_shown(item.get('roleRef'))}: cannot change roleRef")
    elif kind.name == "ConfigMap":
        size = sum(len(str(value).encode()) for of in ("data", "binaryData") for value in (item.get(of) or {}).values())
        if size > _LONGEST_CONFIG_MAP:
            yield Cause("TooLong", "", f"Too long: may not be more than {_LONGEST_CONFIG_MAP} bytes")
    elif kind.name == "Service":
        yield from _service_name_problems(str(item["metadata"].get("name", "")))
    elif kind.name == "HorizontalPodAutoscaler":
        yield from _autoscaler_problems(item.get("spec") or {})


def _workload_problems(item: Object, before: Object | None) -> Iterator[Cause]:
    spec = item.get("spec") or {}
    selector, template = spec.get("selector"), spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not selector:
        yield Cause("Required", "spec.selector", "Required value")
    elif any(labels.get(name) != value for name, value in (selector.get("matchLabels") or {}).items()):
        said = "`selector` does not match template `labels`"
        yield Cause("Invalid", "spec.template.metadata.labels", f"Invalid value: {_shown(labels)}: {said}")
    if before is not None and selector != before["spec"].get("selector"):
        yield Cause("Invalid", "spec.selector", f"Invalid value: {_shown(selector)}: field is immutable")
    yield from _label_problems(labels, "spec.template.labels")
    if not (template.get("spec") or {}).get("containers"):
        yield Cause("Required", "spec.template.spec.containers", "Required value")


def _service_name_problems(name: str) -> Iterator[Cause]:
    if len(name) > _LONGEST_LABEL:
        yield _too_long("metadata.name", name)
    if not _SERVICE_NAME.fullmatch(name):
        yield Cause("Invalid", "metadata.name", f"Invalid value: {_shown(name)}: {_SERVICE_RULE}")


def _autoscaler_problems(spec: Object) -> Iterator[Cause]:
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
    if least < 1:
        yield Cause("Invalid", "spec.minReplicas", f"Invalid value: {least}: must be greater than or equal to 1")
    if most < 1:
        yield Cause("Invalid", "spec.maxReplicas", f"Invalid value: {most}: must be greater than 0")
    elif most < least:
        said = "must be greater than or equal to `minReplicas`"
        yield Cause("Invalid", "spec.maxReplicas", f"Invalid value: {most}: {said}")


def _label_problems(labels: Json, path: str) -> Iterator[Cause]:
    for name, value in (labels or {}).items():
        prefix, _, own = str(name).rpartition("/")
        if not _LABEL_NAME.fullmatch(own) or len(own) > _LONGEST_LABEL or len(prefix) > 253:
            yield Cause("Invalid", path, f"Invalid value: {_shown(name)}: {_NAME_RULE}")
        if len(str(value)) > _LONGEST_LABEL:
            yield _too_long(path, str(value))
        if not isinstance(value, str) or not _LABEL_VALUE.fullmatch(value):
            yield Cause("Invalid", path, f"Invalid value: {_shown(value)}: {_VALUE_RULE}")


def _owner_problems(owners: Json) -> Iterator[Cause]:
    for owner in owners:
        for name, said in (("apiVersion", "version"), ("kind", "kind"), ("name", "name"), ("uid", "uid")):
            if not owner.get(name):
                told = f'Invalid value: "": {said} must not be empty'
                yield Cause("Invalid", f"metadata.ownerReferences.{name}", told)
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        names = " and ".join(f"{owner.get('kind')}/{owner.get('name')}" for owner in controllers[:2])
        said = "Only one reference can have Controller set to true. Found"
        told = f'"true" in references for {names}'
        yield Cause("Invalid", "metadata.ownerReferences", f"Invalid value: {_shown(owners)}: {said} {told}")


def _too_long(path: str, value: str) -> Cause:
    return Cause("Invalid", path, f"Invalid value: {_shown(value)}: must be no more than {_LONGEST_LABEL} bytes")


def _shown(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
