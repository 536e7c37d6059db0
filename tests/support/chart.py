"""The Helm chart, rendered by Helm's own engine, which comes as a library."""

import os
from functools import cache
from typing import Any

import pytest

from tests.support import quick_yaml
from tests.support.manifests import Object, objects_in
from tests.support.places import ROOT

CHART = ROOT / "deploy" / "helm" / "pod-gpu-metrics-exporter"
VALUES: dict[str, Any] = quick_yaml.load((CHART / "values.yaml").read_text())
# What a chart says of itself, and a kustomization does not.
HELM_LABELS = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
}


def helm() -> Any:
    """Helm's engine. In CI it is a failure where it is missing; elsewhere the test is skipped and says so."""
    try:
        import helm_python  # noqa: PLC0415 - there are machines for which it does not come
    except ImportError:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip("helm-python-sdk is missing: it comes for Linux on x86_64 alone")
    return helm_python


@cache
def _chart() -> Any:
    return helm().Chart.load(CHART)


def rendered_texts(values: Object, name: str = "pod-gpu-metrics-exporter") -> dict[str, str]:
    """Templates and what they make of these values, for a release in the namespace that the plain manifests name.

    Raises:
        helm_python.HelmError: the schema refuses the values, or a template does.
    """
    _chart().validate_schema(values)
    texts = _chart().render(values, name=name, namespace="pod-gpu-metrics")
    return {path.partition("templates/")[2]: text for path, text in texts.items()}


def rendered(values: Object, name: str = "pod-gpu-metrics-exporter") -> list[Object]:
    """What `helm install` would apply."""
    return [found for found in all_rendered(values, name) if not _is_hook(found)]


def hooks_in(values: Object) -> list[Object]:
    """What `helm test` would run."""
    return [found for found in all_rendered(values) if _is_hook(found)]


def all_rendered(values: Object, name: str = "pod-gpu-metrics-exporter") -> list[Object]:
    texts = rendered_texts(values, name)
    return [found for path, text in sorted(texts.items()) if path.endswith(".yaml") for found in objects_in(text)]


def _is_hook(found: Object) -> bool:
    return "helm.sh/hook" in found["metadata"].get("annotations", {})


def without_helms_labels(value: Any) -> Any:
    if isinstance(value, list):
        return [without_helms_labels(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    found = {key: without_helms_labels(inner) for key, inner in value.items() if key not in HELM_LABELS}
    return {key: inner for key, inner in found.items() if key != "labels" or inner}


def merged(*values: Object) -> Object:
    """Several files of values, as Helm takes them: the later ones win, and tables are merged."""
    result: Object = {}
    for given in values:
        for key, value in given.items():
            old = result.get(key)
            result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result
