"""A real API server takes what is shipped: every manifest, kustomization and variant of the chart, field by field.

It is asked by server-side applies that store nothing (dryRun) and refuse fields that it does not know.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support import quick_yaml
from tests.support.chart import CHART, merged, rendered
from tests.support.chart_values import EXAMPLES, at
from tests.support.manifests import Object, kustomized, objects_in, objects_of
from tests.support.places import ROOT
from tests.support.real_api import IS_REAL, RealServer

if not IS_REAL:
    pytest.skip("KUBEBUILDER_ASSETS names no real API server", allow_module_level=True)

pytestmark = pytest.mark.asyncio(loop_scope="module")
DEPLOY = ROOT / "deploy"
APPLY = "application/apply-patch+yaml"
# Of others' kinds, a definition that takes whatever there is.
THEIRS = {
    "monitoring.coreos.com/v1": {
        "PodMonitor": "podmonitors",
        "ServiceMonitor": "servicemonitors",
        "PrometheusRule": "prometheusrules",
    },
    "keda.sh/v1alpha1": {"ScaledObject": "scaledobjects"},
}


def documents(path: Path) -> list[Object]:
    """The objects of a file; none where it has something else, such as the values of a chart."""
    found = [item for item in objects_in(path.read_text()) if isinstance(item, dict)]
    return [item for item in found if {"apiVersion", "kind", "metadata"} <= item.keys()]


FILES = [ROOT / "daemonset.yaml", *sorted(DEPLOY.rglob("*.yaml"))]
PLAIN = {
    str(path.relative_to(ROOT)): path
    for path in FILES
    if not {"helm", "kustomize"} & {*path.relative_to(ROOT).parts} and documents(path)
}
FOLDERS = {
    str(path.parent.relative_to(ROOT)): path.parent
    for path in sorted(DEPLOY.rglob("kustomization.yaml"))
    if "components" not in path.parts
}
VALUES = {path.stem: path for path in sorted((CHART / "variants").glob("*.yaml"))}


class Server(RealServer):
    """Knows where objects are, by what it says of what it serves."""

    def __init__(self) -> None:
        super().__init__()
        self._served: dict[str, dict[str, Object]] = {}

    async def path_of(self, item: Object) -> str:
        """The path of an object, whose namespace is made if need be."""
        version, about = item["apiVersion"], item["metadata"]
        root = f"/{'apis' if '/' in version else 'api'}/{version}"
        if version not in self._served:
            status, answer = await self.ask("GET", root)
            assert status == 200, (version, answer)
            self._served[version] = {each["kind"]: each for each in answer["resources"] if "/" not in each["name"]}
        resource = self._served[version][item["kind"]]
        within = ""
        if resource["namespaced"]:
            # who applies it without one means the namespace of his context
            within = f"/namespaces/{about.get('namespace', 'default')}"
            await self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": within.rpartition("/")[2]}})
        return f"{root}{within}/{resource['name']}/{about['name']}"

    async def takes(self, items: Iterable[Object]) -> None:
        """Each of the objects, as if it were applied."""
        for item in items:
            path = await self.path_of(item)
            parameters = "dryRun=All&fieldValidation=Strict&fieldManager=tests&force=true"
            status, answer = await self.ask("PATCH", f"{path}?{parameters}", item, kind=APPLY)
            assert status in (200, 201), (item["kind"], item["metadata"]["name"], answer["message"])

    async def define(self, definition: Object) -> None:
        """Serve a kind."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        status, answer = await self.ask("POST", path, definition)
        assert status == 201, answer
        spec = definition["spec"]
        served = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        async with asyncio.timeout(30):
            while (await self.ask("GET", served))[0] != 200:
                await asyncio.sleep(0.1)


def definition(version: str, kind: str, plural: str) -> Object:
    group, _, name = version.partition("/")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = {"name": name, "served": True, "storage": True, "schema": schema}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Server]:
    made = Server()
    try:
        await made.start()
        for item in objects_of(DEPLOY / "operator" / "crds.yaml"):
            await made.define(item)
        for version, kinds in THEIRS.items():
            for kind, plural in kinds.items():
                await made.define(definition(version, kind, plural))
        yield made
    finally:
        await made.stop()


@pytest.mark.parametrize("name", PLAIN)
async def test_it_takes_the_manifests(server: Server, name: str) -> None:
    await server.takes(documents(PLAIN[name]))


@pytest.mark.real
@pytest.mark.parametrize("name", FOLDERS)
async def test_it_takes_the_kustomizations(server: Server, name: str) -> None:
    await server.takes(kustomized(FOLDERS[name]))


@pytest.mark.parametrize("name", [*VALUES, "of the chart"])
async def test_it_takes_the_variants_of_the_chart(server: Server, name: str) -> None:
    values = quick_yaml.load(VALUES[name].read_text()) if name in VALUES else {}
    await server.takes(rendered(values, "gpus"))


async def test_it_takes_whatever_can_be_set_in_the_chart(server: Server) -> None:
    items = [
        item for path, (value, others) in EXAMPLES.items() for item in rendered(merged(others, at(path, value)), "gpus")
    ]
    await server.takes({json.dumps(item, sort_keys=True): item for item in items}.values())
