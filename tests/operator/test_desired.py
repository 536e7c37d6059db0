"""The objects of a GPUExporter: as daemonset.yaml has them, as the golden files have them, and what an edit changes.

`make golden` writes tests/golden/operator anew.
"""

import copy
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter import __version__
from exporter.config.node_settings import Config
from exporter.dcgm.fields import counters_csv
from exporter.operator.exporters.desired import (
    CONFIG_FOLDER,
    CONFIG_KEY,
    IMAGE,
    all_keys,
    desired,
)
from exporter.operator.exporters.desired import (
    settings as settings_of,
)
from exporter.operator.objects.kinds import BY_NAME, base_name
from exporter.operator.objects.resources import Object
from exporter.reading import Invalid
from tests.operator.specs import EVERYTHING, NAMES, SCHEMAS, VALID, spec_of
from tests.support import quick_yaml
from tests.support.exporter import config_from
from tests.support.golden import Golden
from tests.support.manifests import (
    KUBERNETES,
    KUSTOMIZE,
    Key,
    by_key,
    exporter_in,
    fits_the_program,
    kustomized_with,
    objects_of,
    of_kind,
    pod_of,
    valid,
)
from tests.support.places import GOLDEN, ROOT

UID = "3e1bd0a2-0000-4000-8000-000000000001"
PLAIN = objects_of(ROOT / "daemonset.yaml")


def objects(spec: Object, *, pod_monitors: bool = True, name: str = "gpus", uid: str = UID) -> tuple[Object, ...]:
    return desired(name, "ml", uid, spec_of(spec), pod_monitors=pod_monitors)


GOLDENS: dict[str, tuple[Object, bool]] = {
    "default": ({}, True),
    "every-field": (EVERYTHING, True),
    "collectors-of-a-config-map": ({"collectors": {"configMap": {"name": "our-fields", "key": "gpu.csv"}}}, True),
    "without-pod-monitors": ({"serviceMonitor": {"enabled": "on"}}, False),
}


# issue 14, "Must show" 1
@pytest.mark.parametrize("name", GOLDENS)
def test_the_objects_are_those_of_the_golden_file(name: str, golden: Golden) -> None:
    spec, pod_monitors = GOLDENS[name]
    found = list(objects(spec, pod_monitors=pod_monitors))
    path = GOLDEN / "operator" / f"{name}.yaml"
    golden.holds(path, yaml.dump_all(found, Dumper=Plainly, sort_keys=False, width=120))
    assert found == objects_of(path)
    for version in KUBERNETES:
        valid(found, version)


class Plainly(yaml.SafeDumper):
    """YAML without anchors, and with texts of several lines as they are."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's name
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


Plainly.add_representer(str, Plainly.represent_str)


def test_no_golden_file_is_left_over(golden: Golden) -> None:
    kept = [path for path in (GOLDEN / "operator").iterdir() if not path.name.startswith("autoscaler-")]
    golden.holds_no_other(kept, (GOLDEN / "operator" / f"{name}.yaml" for name in GOLDENS))


def without_whose(template: Object) -> Object:
    """A pod's template without labels, names that the operator gives, what brings the fields, and the configuration."""
    found = copy.deepcopy(template)
    del found["metadata"]["labels"]
    pod = found["spec"]
    for kind in ("volumes", "containers"):
        pod[kind] = [item for item in pod[kind] if not item["name"].startswith(("counters", "config"))]
    for container in pod["containers"]:
        container["env"] = [item for item in container["env"] if not item["name"].endswith("CONFIG_FILE")]
        container["volumeMounts"] = [item for item in container["volumeMounts"] if item["name"] != "config"]
    (dcgm,) = (container for container in pod["containers"] if container["name"] == "dcgm-exporter")
    (mount,) = dcgm["volumeMounts"]
    mount["name"] = "counters"
    pod.pop("initContainers", None)
    pod.pop("serviceAccountName", None)
    return by_key([{"kind": "Template", "metadata": {"name": "x"}, "spec": found}])["Template", "", "x"]


def template_of(found: Any) -> Object:
    return without_whose(of_kind(found, "DaemonSet")["spec"]["template"])


def test_the_pod_is_that_of_daemonset_yaml() -> None:
    """The default adds the token for the Kubernetes API, as deploy/rbac.yaml does."""
    plain = template_of(PLAIN)
    assert template_of(objects({"workloads": "off"})) == plain
    plain["spec"]["spec"]["automountServiceAccountToken"] = True
    assert template_of(objects({})) == plain


def test_the_list_of_fields_is_brought_at_the_start_and_at_each_change() -> None:
    pod = pod_of(objects({}))
    (first,) = pod["initContainers"]
    (later,) = (container for container in pod["containers"] if container["name"] == "counters")
    (dcgm,) = (container for container in pod["containers"] if container["name"] == "dcgm-exporter")
    assert [*later["command"][:3], "--once", *later["command"][3:]] == first["command"]
    assert first | {"name": "", "command": []} == later | {"name": "", "command": []}
    source, target = later["command"][3:]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    config_map, copied = (volumes[mount["name"]] for mount in later["volumeMounts"])
    assert config_map["configMap"] == {"name": "gpus-counters"}
    assert "emptyDir" in copied
    assert [mount["name"] for mount in dcgm["volumeMounts"]] == [copied["name"]]
    assert {entry["name"]: entry.get("value") for entry in dcgm["env"]}["DCGM_EXPORTER_COLLECTORS"] == target
    assert [mount["mountPath"] for mount in later["volumeMounts"]] == [
        source.rpartition("/")[0],
        dcgm["volumeMounts"][0]["mountPath"],
    ]


@pytest.mark.real
def test_with_nvml_the_pod_is_that_of_measured_use(tmp_path: Path) -> None:
    found = template_of(objects({"workloads": "off", "nvml": "on"}))
    expected = template_of(kustomized_with("measured-use", "sidecar", tmp_path))
    assert found == expected


@pytest.mark.real
def test_with_the_probe_the_pod_is_that_of_the_component(tmp_path: Path) -> None:
    expected = kustomized_with("cuda-probe", "sidecar", tmp_path)
    assert template_of(objects({"workloads": "off", "probe": "on"})) == template_of(expected)
    # the component's configuration file comes to the same place
    environment = {entry["name"]: entry.get("value") for entry in exporter_in(pod_of(expected))["env"]}
    assert f"{CONFIG_FOLDER}/{CONFIG_KEY}" in environment.values()


@pytest.mark.real
def test_with_the_kernel_log_the_pod_is_that_of_the_component(tmp_path: Path) -> None:
    expected = kustomized_with("kernel-log", "sidecar", tmp_path)
    assert template_of(objects({"workloads": "off", "kernelLog": "on"})) == template_of(expected)


# issue 24, part 3
@pytest.mark.real
def test_with_allocators_the_pod_is_that_of_the_component(tmp_path: Path) -> None:
    expected = kustomized_with("allocators", "sidecar", tmp_path)
    assert template_of(objects({"workloads": "off", "allocators": True})) == template_of(expected)


def test_the_fields_are_those_of_the_plain_manifests() -> None:
    assert (KUSTOMIZE / "sidecar" / "counters.csv").read_text() == counters_csv(None)
    assert of_kind(PLAIN, "ConfigMap")["data"] in [item.get("data") for item in objects({})]


def test_a_field_that_is_not_known_becomes_a_gauge() -> None:
    fields = ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_SOMETHING_NEW", "DCGM_FI_DRIVER_VERSION")
    assert counters_csv(fields).splitlines() == [
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy since the driver was loaded (in mJ).",
        "DCGM_FI_DEV_SOMETHING_NEW, gauge, DCGM_FI_DEV_SOMETHING_NEW.",
        "DCGM_FI_DRIVER_VERSION, label, Version of the driver.",
    ]


def test_the_service_and_the_monitor_are_those_of_the_plain_manifests() -> None:
    found = of_kind(objects({}), "Service")["spec"]
    plain = of_kind(PLAIN, "Service")["spec"]
    assert {**found, "selector": {}} == {**plain, "selector": {}}
    (monitor,) = objects_of(ROOT / "deploy" / "prometheus" / "podmonitor.yaml")
    made = of_kind(objects({"serviceMonitor": {"labels": {"release": "kube-prometheus-stack"}}}), "PodMonitor")
    assert made["spec"]["podMetricsEndpoints"] == monitor["spec"]["podMetricsEndpoints"]
    assert made["metadata"]["labels"].items() >= monitor["metadata"]["labels"].items()


@pytest.mark.parametrize("spec", [{}, EVERYTHING, {"nvml": "off", "workloads": "off"}])
def test_the_program_takes_what_it_is_given(spec: Object, monkeypatch: pytest.MonkeyPatch) -> None:
    fits_the_program(objects(spec), monkeypatch)


def config_of(spec: Object, tmp_path: Path) -> Config:
    """What the exporter makes of its configuration file."""
    (found,) = (item for item in objects(spec) if CONFIG_KEY in item.get("data", ()))
    path = tmp_path / CONFIG_KEY
    path.write_text(found["data"][CONFIG_KEY])
    return config_from(["serve", f"--config.file={path}"])


def test_the_settings_are_what_the_spec_says(tmp_path: Path) -> None:
    config = config_of(EVERYTHING, tmp_path)
    assert config.sharing.mode == "split"
    assert config.labels.names == ("pod_name", "pod_namespace", "container_name")
    assert config.labels.pod_uid
    assert config.labels.pod_labels == ("app", "team|tier", "x{1,2}")
    assert config.nvml.mode == "on"
    assert config.probe.is_on


def test_the_settings_of_the_default_are_those_of_the_program(tmp_path: Path) -> None:
    config, usual = config_of({}, tmp_path), config_from(["serve"])
    for group in ("sharing", "labels", "nvml", "probe"):
        assert getattr(config, group) == getattr(usual, group)
    assert settings_of(spec_of({})).count("\n") == 7


ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20)


@example("[[a]")
@given(ASCII)
def test_whatever_pattern_is_given_arrives_as_it_was(pattern: str) -> None:
    try:
        spec = spec_of({"labels": {"podLabels": [pattern]}})
    except Invalid:
        return
    assert quick_yaml.load(settings_of(spec))["labels.pod-labels"] == [pattern]


def test_the_images_are_those_of_the_plain_manifests_or_of_the_spec() -> None:
    """Of the exporter's there is another default where the operator is told one."""

    def images(*found: Object) -> dict[str, str]:
        return {container["name"]: container["image"] for container in pod_of(found)["containers"]}

    plain = images(*PLAIN)
    usual = plain["exporter"]
    assert usual == IMAGE == f"pod-gpu-metrics-exporter:{__version__}"
    assert images(*objects({})) == {**plain, "counters": usual}
    assert images(*objects({"image": "mine:2"})) == {**plain, "exporter": "mine:2", "counters": "mine:2"}


class Edit(NamedTuple):
    """What is changed of the spec that every edit begins with, and what changes then, object and path, and no more."""

    change: Object
    changes: set[str]


EXPORTER = "DaemonSet spec.template.spec.containers.exporter"
DCGM = "DaemonSet spec.template.spec.containers.dcgm-exporter"
POD = "DaemonSet spec.template.spec"
LOGS = {
    f"{POD}.hostPID",
    f"{EXPORTER}.volumeMounts.log-containers",
    f"{EXPORTER}.volumeMounts.log-pods",
    f"{POD}.volumes.log-containers",
    f"{POD}.volumes.log-pods",
}
CONFIG = "ConfigMap gpus-config data.config.yaml"
COUNTERS_MAP = "ConfigMap gpus-counters"
TOKEN = {"ClusterRoleBinding", "ServiceAccount", f"{POD}.serviceAccountName", f"{POD}.automountServiceAccountToken"}
BEFORE: Object = {"workloads": "off"}
KERNEL_LOG = {
    f"{EXPORTER}.env.POD_GPU_EXPORTER_KERNEL_LOG_MODE",
    f"{EXPORTER}.securityContext.privileged",
    f"{EXPORTER}.securityContext.allowPrivilegeEscalation",
    f"{EXPORTER}.volumeMounts.kmsg",
    f"{POD}.volumes.kmsg",
}
EDITS: dict[str, Edit] = {
    "image": Edit(
        {"image": "x:1"},
        {f"{EXPORTER}.image", f"{POD}.containers.counters.image", f"{POD}.initContainers.counters-first.image"},
    ),
    "dcgmImage": Edit({"dcgmImage": "x:1"}, {f"{DCGM}.image"}),
    "imagePullSecrets": Edit({"imagePullSecrets": ["pull"]}, {f"{POD}.imagePullSecrets"}),
    "runtimeClassName": Edit({"runtimeClassName": "nvidia"}, {f"{POD}.runtimeClassName"}),
    "collectors.fields": Edit(
        {"collectors": {"fields": ["DCGM_FI_DEV_GPU_UTIL"]}}, {f"{COUNTERS_MAP} data.counters.csv"}
    ),
    "collectors.configMap": Edit(
        {"collectors": {"configMap": {"name": "mine"}}}, {COUNTERS_MAP, f"{POD}.volumes.counters.configMap.name"}
    ),
    "collectors.configMap.key": Edit(
        {"collectors": {"configMap": {"name": "mine", "key": "gpu.csv"}}},
        {COUNTERS_MAP, f"{POD}.volumes.counters.configMap.name", f"{POD}.volumes.counters.configMap.items"},
    ),
    "intervalSeconds": Edit(
        {"intervalSeconds": 10}, {f"{DCGM}.env.DCGM_EXPORTER_INTERVAL", "PodMonitor spec.podMetricsEndpoints"}
    ),
    "nodeSelector": Edit(
        {"nodeSelector": {"pool": "gpu"}},
        {f"{POD}.nodeSelector.nvidia.com/gpu.present", f"{POD}.nodeSelector.pool"},
    ),
    "tolerations": Edit({"tolerations": []}, {f"{POD}.tolerations"}),
    "sharing": Edit({"sharing": "split"}, {CONFIG}),
    "labels.names": Edit({"labels": {"names": "legacy"}}, {CONFIG}),
    "labels.podUid": Edit({"labels": {"podUid": True}}, {CONFIG, *TOKEN}),
    "labels.owners": Edit({"labels": {"owners": "off"}}, {CONFIG}),
    "labels.podLabels": Edit({"labels": {"podLabels": ["app"]}}, {CONFIG, *TOKEN}),
    "workloads": Edit({"workloads": "on"}, TOKEN),
    "allocators": Edit(
        {"allocators": True},
        {
            *TOKEN,
            f"{EXPORTER}.volumeMounts.pods-api",
            f"{EXPORTER}.volumeMounts.device-plugins",
            f"{POD}.volumes.pods-api",
            f"{POD}.volumes.device-plugins",
        },
    ),
    "nvml": Edit(
        {"nvml": "on"},
        {
            CONFIG,
            f"{EXPORTER}.env.NVIDIA_VISIBLE_DEVICES",
            f"{EXPORTER}.env.NVIDIA_DRIVER_CAPABILITIES",
            *LOGS,
        },
    ),
    "nvml off": Edit({"nvml": "off"}, {CONFIG}),
    "probe": Edit(
        {"probe": "on"},
        {
            CONFIG,
            f"{EXPORTER}.securityContext.capabilities.add",
            f"{EXPORTER}.resources.requests.cpu",
            f"{EXPORTER}.resources.requests.memory",
            f"{EXPORTER}.resources.limits.memory",
            *LOGS,
        },
    ),
    "kernelLog": Edit({"kernelLog": "on"}, KERNEL_LOG),
    # who asks is the operator
    "events": Edit({"kernelLog": "on", "events": "on"}, KERNEL_LOG),
    "resources.exporter": Edit(
        {"resources": {"exporter": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "320Mi"}}}},
        {f"{EXPORTER}.resources.limits.memory"},
    ),
    "resources.dcgm": Edit({"resources": {"dcgm": {"limits": {"memory": "512Mi"}}}}, {f"{DCGM}.resources.requests"}),
    "serviceMonitor.enabled": Edit({"serviceMonitor": {"enabled": "off"}}, {"PodMonitor"}),
    "serviceMonitor.labels": Edit(
        {"serviceMonitor": {"labels": {"release": "x"}}}, {"PodMonitor metadata.labels.release"}
    ),
    "serviceMonitor.intervalSeconds": Edit(
        {"serviceMonitor": {"intervalSeconds": 60}}, {"PodMonitor spec.podMetricsEndpoints"}
    ),
}


def changed(before: Any, after: Any) -> set[str]:
    """Which objects came or went, and of the others which paths changed: as short as they can be."""
    old, new = by_key(before), by_key(after)
    found = {_said(key) for key in old.keys() ^ new.keys()}
    for key in old.keys() & new.keys():
        found |= {f"{_said(key)} {path}" for path in _differences(old[key], new[key])}
    return found


def _said(key: Key) -> str:
    """Of ConfigMaps alone there are several."""
    return f"{key[0]} {key[2]}" if key[0] == "ConfigMap" else key[0]


def _differences(old: Any, new: Any, path: str = "") -> set[str]:
    if old == new:
        return set()
    if not isinstance(old, dict) or not isinstance(new, dict):
        return {path}
    return {
        found
        for key in old.keys() | new.keys()
        for found in (
            _differences(old[key], new[key], f"{path}.{key}".lstrip("."))
            if key in old and key in new
            else {f"{path}.{key}".lstrip(".")}
        )
    }


# issue 14, "Must show" 1
@pytest.mark.parametrize("field", EDITS)
def test_an_edit_changes_what_it_must_and_nothing_else(field: str) -> None:
    edit = EDITS[field]
    before, after = objects(BEFORE), objects({**BEFORE, **edit.change})
    assert changed(before, after) == edit.changes
    # and back again
    assert objects({**BEFORE}) == before


def test_no_field_is_without_an_edit() -> None:
    spec = SCHEMAS["GPUExporter"]["properties"]["spec"]
    # of these each entry is a whole
    whole = {"nodeSelector", "tolerations", "imagePullSecrets", "resources"}
    wanted = set()
    for key, schema in spec["properties"].items():
        inner = {} if key in whole else schema.get("properties", {})
        wanted |= {f"{key}.{name}" for name in inner} or {key}
    wanted = wanted - {"resources"} | {"resources.exporter", "resources.dcgm"}
    assert {name.removesuffix(" off") for name in EDITS} - {"collectors.configMap.key"} == wanted
    assert EVERYTHING.keys() == spec["properties"].keys()


# issue 14, line 2: "A changed collectors list reloads dcgm-exporter without restarting pods"
@given(VALID, st.lists(st.sampled_from(["DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_X"]), min_size=1, unique=True))
def test_another_list_of_fields_restarts_no_pod(spec: Object, fields: list[str]) -> None:
    spec = {**spec, "collectors": {"fields": ["DCGM_FI_DEV_FB_USED"]}}
    assert changed(objects(spec), objects({**spec, "collectors": {"fields": fields}})) == {
        f"{COUNTERS_MAP} data.counters.csv"
    }


@settings(max_examples=30, deadline=None)
@given(VALID, st.booleans(), NAMES)
def test_whatever_is_valid_gives_valid_objects(spec: Object, pod_monitors: bool, name: str) -> None:
    found = objects(spec, pod_monitors=pod_monitors, name=name)
    valid(found, KUBERNETES[-1])
    assert found == objects(copy.deepcopy(spec), pod_monitors=pod_monitors, name=name)
    for item in found:
        metadata = item["metadata"]
        assert (
            metadata["labels"].items()
            >= {
                "app.kubernetes.io/name": "pod-gpu-metrics-exporter",
                "app.kubernetes.io/instance": base_name(name),
                "app.kubernetes.io/managed-by": "pod-gpu-metrics-operator",
            }.items()
        )
        if item["kind"] == "ClusterRoleBinding":
            assert metadata["annotations"] == {"pod-gpu-metrics.dev/exporter": f"ml/{name}"}
            continue
        assert len(metadata["name"]) <= 63
        (owner,) = metadata["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("GPUExporter", name, UID)
        assert owner["controller"] is owner["blockOwnerDeletion"] is True
    daemon_set = of_kind(found, "DaemonSet")["spec"]
    labels = daemon_set["template"]["metadata"]["labels"]
    assert daemon_set["selector"]["matchLabels"] == labels == of_kind(found, "Service")["spec"]["selector"]
    for container in daemon_set["template"]["spec"]["containers"]:
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted <= {volume["name"] for volume in daemon_set["template"]["spec"]["volumes"]}


LONG_NAMES = st.from_regex(
    r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?){0,3}", fullmatch=True
)


@given(LONG_NAMES)
def test_a_base_name_is_a_dns_label_with_room_for_a_suffix(name: str) -> None:
    base = base_name(name)
    assert len(f"{base}-counters") <= 63
    assert base[0].isalpha()
    assert base[-1] != "-"
    assert set(base) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("gpus", "gpus-counters"),
        ("a.b", "a-b"),
        ("0gpus", "x-0gpus"),
        ("x" * 60 + "a", "x" * 60 + "b"),
        ("a.b", base_name("a.b")),
        ("0", "1"),
    ],
)
def test_nothing_of_one_is_called_like_something_of_another(one: str, other: str) -> None:
    assert not names_of(one) & names_of(other)
    selectors = [of_kind(objects({}, name=name), "Service")["spec"]["selector"] for name in (one, other)]
    assert selectors[0] != selectors[1]


def names_of(name: str, namespace: str = "ml") -> set[Key]:
    """What all objects of a GPUExporter are called: the default has every kind."""
    return set(by_key(desired(name, namespace, UID, spec_of({}), pod_monitors=True)))


@given(LONG_NAMES, LONG_NAMES)
def test_no_two_names_clash(one: str, other: str) -> None:
    assert bool(names_of(one) & names_of(other)) == (one == other)


def test_the_references_are_to_all_that_a_spec_may_ask_for() -> None:
    keys = {tuple(key): BY_NAME[key.kind].api_version for key in all_keys("gpus", "ml")}
    assert keys.keys() == names_of("gpus")
    for spec in (EVERYTHING, *(edit.change for edit in EDITS.values())):
        for key, item in by_key(objects(spec)).items():
            assert keys[key] == item["apiVersion"]


def test_bindings_of_two_namespaces_do_not_clash() -> None:
    def bindings(name: str, namespace: str) -> set[str]:
        return {key[2] for key in names_of(name, namespace) if key[0] == "ClusterRoleBinding"}

    assert len(bindings("c", "a-b") | bindings("b-c", "a")) == 2
