"""docs/install.md and the chart's README as somebody would follow them."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from exporter import __version__
from exporter.config.files import read_structured
from exporter.config.web_file import read_web_config
from tests.support import quick_yaml
from tests.support.chart import CHART, helm, rendered
from tests.support.chart_values import HASH
from tests.support.components import real
from tests.support.manifests import KUBERNETES, KUSTOMIZE, Object, kustomized, of_kind, pod_of, valid
from tests.support.operator import Api, until
from tests.support.places import ROOT

PAGES = [ROOT / "docs" / "install.md", CHART / "README.md"]
SCHEMA: Object = json.loads((CHART / "values.schema.json").read_text())


def blocks(page: Path) -> list[Object]:
    """The YAML of a page, block by block."""
    found = re.findall(r"^( *)```yaml\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [quick_yaml.load(re.sub(f"^{indent}", "", text, flags=re.MULTILINE)) for indent, text in found]


ALL_BLOCKS = [block for page in PAGES for block in blocks(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_named_is_there(page: Path) -> None:
    for path in re.findall(r"(?<![\w/.])deploy/[\w./-]*\w", page.read_text()):
        assert (ROOT / path).exists(), path
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).exists(), link


@pytest.mark.real
def test_the_values_of_the_pages_are_taken() -> None:
    values = [block for block in ALL_BLOCKS if "apiVersion" not in block]
    assert len(values) == 4
    for given in values:
        rendered(json.loads(json.dumps(given).replace("$2y$10$...", HASH)))


@pytest.mark.real
def test_the_values_for_a_bill_give_labels_rights_and_kept_counters() -> None:
    (values,) = [block for block in blocks(ROOT / "docs" / "bill.md") if "config" in block]
    objects = rendered(values)
    (config,) = [found["data"]["config.yaml"] for found in objects if "config.yaml" in found.get("data", {})]
    settings = quick_yaml.load(config)
    assert settings["labels"] == {"pod-labels": "team"}
    pod = pod_of(objects)
    mounts = {mount["mountPath"] for container in pod["containers"] for mount in container["volumeMounts"]}
    assert str(Path(settings["accounting"]["state"]).parent) in mounts
    assert of_kind(objects, "ClusterRole")
    assert pod["serviceAccountName"]


@pytest.mark.real
def test_one_mount_of_the_page_is_all_that_hami_needs() -> None:
    """tests/node/test_allocator_pods.py shows that the checkpoint tells every device without pods."""
    (values,) = [block for block in ALL_BLOCKS if "extraVolumes" in block]
    objects = rendered(values)
    pod = pod_of(objects)
    assert not {"ServiceAccount", "ClusterRole"} & {found["kind"] for found in objects}
    assert pod["automountServiceAccountToken"] is False
    (volume,) = [found for found in pod["volumes"] if found["name"] == "device-plugins"]
    (switched,) = [
        found for found in pod_of(rendered({"allocators": True}))["volumes"] if found["name"] == "device-plugins"
    ]
    assert volume == switched


@pytest.mark.real
def test_gkes_own_dcgm_exporter_is_found_by_the_values_for_it() -> None:
    (values,) = [block for block in ALL_BLOCKS if "gpuOperator" in block]
    objects = rendered(values)
    assert pod_of(objects)["nodeSelector"] == {"cloud.google.com/gke-gpu": "true"}
    (service,) = [found for found in objects if found["metadata"]["namespace"] == "gke-managed-system"]
    assert service["spec"]["selector"] == {"app.kubernetes.io/name": "gke-managed-dcgm-exporter"}


def test_the_web_file_of_the_page_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"^cat >web.yaml <<'END'\n(.*?)^END$", PAGES[0].read_text(), re.MULTILINE | re.DOTALL)
    path = tmp_path / "web.yaml"
    path.write_text(text.replace("HASH", HASH))
    read = read_web_config(read_structured(str(path), "--web.config.file"), str(path))
    assert read.tls is not None
    assert set(read.users) == {"prometheus"}


@pytest.mark.real
def test_a_packed_chart_is_the_chart(tmp_path: Path) -> None:
    archives = []
    for name in ("once", "twice"):
        (tmp_path / name).mkdir()
        environment = {"PATH": os.environ["PATH"], "SOURCE_DATE_EPOCH": "1760000000"}
        subprocess.run([ROOT / "release" / "chart", tmp_path / name], env=environment, check=True, timeout=50)
        (archive,) = (tmp_path / name).iterdir()
        assert archive.name == f"pod-gpu-metrics-exporter-{__version__}.tgz"
        archives.append(archive)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    packed, checkout = (helm().Chart.load(path) for path in (archives[0], CHART))
    values = {"prometheusRule": {"enabled": True}, "grafanaDashboards": {"enabled": True}}
    assert packed.render(values) == checkout.render(values)
    # besides, the packed one has the pages that its alerts lead to
    pages = [file for file in packed.files if file["name"].startswith("docs/")]
    assert {file["name"] for file in pages} == {"docs/alerts.md", "docs/troubleshooting.md"}
    assert [file for file in packed.files if file not in pages] == checkout.files


# issue 15, line 17
@pytest.mark.real
@pytest.mark.parametrize("variant", ["sidecar", "operator"])
def test_the_selector_of_the_page_leaves_the_namespace_alone(variant: str) -> None:
    (selector,) = re.findall(r"^kubectl delete -k \S+ -l '(\S+)'$", PAGES[0].read_text(), re.MULTILINE)
    label, _, value = selector.partition("!=")
    objects = kustomized(KUSTOMIZE / variant)
    left = [item["kind"] for item in objects if item["metadata"].get("labels", {}).get(label) == value]
    assert left == ["Namespace"]
    assert len(objects) > 1


# issue 15, line 17
@pytest.mark.real
@pytest.mark.kubernetes
@pytest.mark.parametrize("variant", ["sidecar", "operator"])
def test_removing_a_variant_as_the_page_says_leaves_its_namespace(tmp_path: Path, variant: str) -> None:
    (line,) = re.findall(r"^kubectl delete -k .*$", PAGES[0].read_text(), re.MULTILINE)
    api = Api()
    api.start()
    try:
        flags = [f"--server={api.url}", "--token=admin", "--insecure-skip-tls-verify"]
        folder = f"deploy/kustomize/{variant}"
        for arguments in (["apply", "--server-side", "-k", folder], shlex.split(line)[1:]):
            given = [argument.replace("deploy/kustomize/sidecar", folder) for argument in arguments]
            subprocess.run(
                [real("kubectl"), *flags, *given], cwd=ROOT, check=True, timeout=60,
                env={"HOME": str(tmp_path), "KUBECONFIG": "/dev/null"},
            )  # fmt: skip
        left = api.ask("GET", "/api/v1/namespaces/pod-gpu-metrics")
        assert (left[0], left[1]["metadata"].get("deletionTimestamp")) == (200, None)
        for kind in ("daemonsets", "deployments"):
            until(lambda kind=kind: not api.ask("GET", f"/apis/apps/v1/{kind}")[1]["items"])  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    finally:
        api.stop()


def test_the_objects_of_the_pages_are_valid() -> None:
    (quota,) = [block for block in ALL_BLOCKS if block.get("kind") == "ResourceQuota"]
    for version in KUBERNETES:
        kubernetes_validate.validate(quota, version, strict=True)


@pytest.mark.real
def test_a_kustomization_of_ones_own_renders(tmp_path: Path) -> None:
    (content,) = [block for block in ALL_BLOCKS if block.get("kind") == "Kustomization"]
    # kustomize takes no absolute path
    (tmp_path / "pod-gpu-metrics-exporter").symlink_to(ROOT)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(content))
    objects = kustomized(tmp_path / "mine")
    valid(objects, KUBERNETES[-1])
    (container,) = pod_of(objects)["containers"]
    assert container["image"].startswith("YOUR_REGISTRY/pod-gpu-metrics-exporter:")
    assert pod_of(objects)["nodeSelector"] == {"cloud.google.com/gke-gpu": "true"}
    assert of_kind(objects, "ClusterRole")


def test_values_that_are_named_in_passing_are_there() -> None:
    roots = "|".join(key for key, inner in SCHEMA["properties"].items() if "properties" in inner)
    for page in PAGES:
        for path in re.findall(rf"(?<![\w/.-])((?:{roots})\.\w+)(?=[=:`,])", page.read_text()):
            if path.startswith("dcgmExporter."):
                continue  # the GPU operator has values of that name
            schema: Any = SCHEMA
            for key in path.split("."):
                assert key in schema["properties"], path
                schema = schema["properties"][key]
