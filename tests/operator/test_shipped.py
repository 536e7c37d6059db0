"""shipped.json, of which the operator makes its objects: it has the plain manifests. `make golden` writes it anew."""

import json

from tests.support.golden import Golden
from tests.support.manifests import KUSTOMIZE, objects_of, of_kind
from tests.support.places import ROOT

MANIFESTS = (ROOT / "daemonset.yaml", ROOT / "deploy" / "prometheus" / "podmonitor.yaml")


def test_the_operator_is_shipped_with_the_manifests(golden: Golden) -> None:
    objects = objects_of(*MANIFESTS)
    shipped = {kind: of_kind(objects, kind) for kind in ("DaemonSet", "Service", "PodMonitor")}
    for component in ("measured-use", "cuda-probe", "kernel-log", "allocators"):
        (shipped[component],) = objects_of(KUSTOMIZE / "components" / component / "exporter.yaml")
    path = ROOT / "exporter" / "operator" / "exporters" / "shipped.json"
    golden.holds(path, json.dumps(shipped, indent=1, ensure_ascii=False) + "\n")
