"""The shipped Kubernetes objects: as files, as kubectl and Helm render them, and without what makes no difference."""

import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from exporter.config.node_settings import SETTINGS
from exporter.config.settings import ENVIRONMENT_PREFIX
from exporter.sources.cdi import cdi_source as cdi
from tests.support import quick_yaml
from tests.support.components import real
from tests.support.exporter import OPEN_PATHS, config_from
from tests.support.places import ROOT

# it reads its two files of schemas anew for each object
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)

Object = dict[str, Any]
# what tells an object from all others: kind, namespace and name
Key = tuple[str, str, str]

KUSTOMIZE = ROOT / "deploy" / "kustomize"
KUBERNETES = ["1.31", "1.34", "1.37"]
# of the Prometheus operator, whose schemas kubernetes-validate does not have
CUSTOM = {"PodMonitor", "ServiceMonitor", "PrometheusRule"}

# what the pod's environment has beside settings: for the runtime, and for what finds pods and the configuration
OTHER_ENVIRONMENT = {
    "POD_NAMESPACE",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    f"{ENVIRONMENT_PREFIX}CONFIG_FILE",
}


def objects_in(text: str) -> list[Object]:
    return [found for found in quick_yaml.load_all(text) if found]


def objects_of(*paths: Path) -> list[Object]:
    return [found for path in paths for found in objects_in(path.read_text())]


@cache
def _kustomized(folder: Path) -> str:
    command = [str(real("kubectl")), "kustomize", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    # a warning is of what a later kustomize will not take
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def kustomized(folder: Path) -> list[Object]:
    """What `kubectl apply -k` would apply."""
    return objects_in(_kustomized(folder))


def kustomized_with(component: str, variant: str, folder: Path) -> list[Object]:
    """A variant with a component, as somebody would write it in an empty `folder`."""
    # kustomize takes no absolute path
    (folder / "kustomize").symlink_to(KUSTOMIZE)
    (folder / "mine").mkdir()
    content = {"resources": [f"../kustomize/{variant}"], "components": [f"../kustomize/components/{component}"]}
    (folder / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return kustomized(folder / "mine")


def valid(objects: Iterable[Object], version: str) -> None:
    for found in objects:
        if found["kind"] not in CUSTOM:
            kubernetes_validate.validate(found, version, strict=True)


def by_key(objects: Iterable[Object]) -> dict[Key, Object]:
    """The objects in a form in which equal ones are equal.

    Kubernetes merges the lists whose entries have names by these, so their order says nothing. The others keep theirs.
    """
    found: dict[Key, Object] = {}
    for item in objects:
        metadata = item["metadata"]
        key = (item["kind"], metadata.get("namespace", ""), metadata["name"])
        assert key not in found, f"{key} is there twice"
        found[key] = _unordered(item)
    return found


def _unordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unordered(inner) for key, inner in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(inner, dict) and "name" in inner for inner in value):
            assert len({inner["name"] for inner in value}) == len(value)
            return {inner["name"]: _unordered(inner) for inner in value}
        return [_unordered(inner) for inner in value]
    return value


def of_kind(objects: Iterable[Object], kind: str) -> Object:
    (found,) = (item for item in objects if item["kind"] == kind)
    return found


def pod_of(objects: Iterable[Object]) -> Object:
    pod: Object = of_kind(objects, "DaemonSet")["spec"]["template"]["spec"]
    return pod


def exporter_in(pod: Object) -> Object:
    (found,) = (container for container in pod["containers"] if container["name"] == "exporter")
    return dict(found)


def fits_the_program(objects: Iterable[Object], monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter's container: flags and names that there are, mounts where it looks, probes that it answers."""
    pod = pod_of(objects)
    container = exporter_in(pod)
    known = {name for setting in SETTINGS for name in (setting.env, setting.also_env)} | OTHER_ENVIRONMENT
    for entry in container["env"]:
        assert entry["name"] in known
        if not entry["name"].endswith("CONFIG_FILE"):  # these are read
            monkeypatch.setenv(entry["name"], entry.get("value", "node-1"))
    config = config_from(container["args"])
    assert config.node.name == "node-1"
    (port,) = container["ports"]
    assert [address.port for address in config.web.listen_addresses] == [port["containerPort"]]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in OPEN_PATHS
        assert container[probe]["httpGet"]["port"] == port["name"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert {str(Path(config.kubelet.socket).parent), *cdi.FOLDERS} <= {*mounted.values()}
    assert mounted.keys() <= {volume["name"] for volume in pod["volumes"]}
