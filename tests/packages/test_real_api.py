"""A real API server takes what is shipped: every manifest, kustomization and variant of the chart, field by field.

It is asked by server-side applies that store nothing (dryRun) and refuse fields that it does not know. What a node's
exporter may ask for with the rights that these give is asked for.
"""

import json
from collections.abc import AsyncIterator, Iterable
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from exporter.errors import SourceError, Unsupported
from exporter.sources.kubernetes.api import KubernetesApi
from exporter.sources.kubernetes.resource_claims import ApiClaims
from tests.support import quick_yaml
from tests.support.chart import CHART, merged, rendered
from tests.support.chart_values import EXAMPLES, at
from tests.support.manifests import Object, kustomized, objects_in, objects_of
from tests.support.places import ROOT
from tests.support.real_api import RealServer, anything
from tests.support.waiting import until

pytestmark = [pytest.mark.kubernetes, pytest.mark.asyncio(loop_scope="module")]
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


def of_a_node(items: Iterable[Object]) -> list[Object]:
    """The rights of an exporter that reads its own node: the ClusterRole, its binding and the account."""
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    found = {(item["kind"], item["metadata"]["name"]): item for item in items if item["kind"] in kinds}
    named = next((name for (_, name), item in found.items() if "resourceslices" in str(item.get("rules"))), "")
    return [found[kind, named] for kind in kinds if (kind, named) in found]


ROLES = {
    **{name: of_a_node(documents(path)) for name, path in PLAIN.items()},
    **{name: of_a_node(rendered(quick_yaml.load(path.read_text()), "gpus")) for name, path in VALUES.items()},
}
ROLES = {name: items for name, items in ROLES.items() if items}


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

    async def stores(self, *items: Object) -> None:
        """Each of the objects, applied."""
        for item in items:
            path = f"{await self.path_of(item)}?fieldManager=tests&force=true"
            status, answer = await self.ask("PATCH", path, item, kind=APPLY)
            assert status in (200, 201), answer

    async def drops(self, *items: Object) -> None:
        """None of the objects is there any longer."""
        for item in items:
            status, answer = await self.ask("DELETE", await self.path_of(item), {"gracePeriodSeconds": 0})
            assert status in (200, 404), answer

    async def takes(self, items: Iterable[Object]) -> None:
        """Each of the objects, as if it were applied."""
        for item in items:
            path = await self.path_of(item)
            parameters = "dryRun=All&fieldValidation=Strict&fieldManager=tests&force=true"
            status, answer = await self.ask("PATCH", f"{path}?{parameters}", item, kind=APPLY)
            assert status in (200, 201), (item["kind"], item["metadata"]["name"], answer["message"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Server]:
    made = Server()
    try:
        await made.start()
        for item in objects_of(DEPLOY / "operator" / "crds.yaml"):
            await made.define(item)
        for version, kinds in THEIRS.items():
            for kind, plural in kinds.items():
                await made.define(anything(version, kind, plural))
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


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/monitoring/resourceclaims"
DEVICE = {"driver": "gpu.nvidia.com", "pool": "node-1", "device": "gpu-0"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def claimed(server: Server) -> dict[str, str]:
    """Claims of two pods: `c`, by which one looks at a device, and `t`, by which the other holds it. The uids."""
    labels = {"resource.kubernetes.io/admin-access": "true"}
    await server.stores({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "monitoring", "labels": labels}})
    uids = {}
    for name, access in (("c", {"adminAccess": True}), ("t", {})):
        asked = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All", **access}}
        item = {"metadata": {"name": name}, "spec": {"devices": {"requests": [asked]}}}
        status, made = await server.ask("POST", CLAIMS, item)
        assert status == 201, made
        given = {"allocation": {"devices": {"results": [{"request": "gpu", **DEVICE, **access}]}}}
        status, answer = await server.ask("PATCH", f"{CLAIMS}/{name}/status", {"status": given})
        assert (status, answer["status"]) == (200, given)
        uids[name] = made["metadata"]["uid"]
    return uids


# issue 22, line 32
async def test_admin_access_is_refused_in_a_namespace_without_its_label(server: Server) -> None:
    asked = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com", "adminAccess": True}}
    item = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [asked]}}}
    status, answer = await server.ask("POST", CLAIMS.replace("monitoring", "default"), item)
    assert status == 422, answer
    assert "resource.kubernetes.io/admin-access" in answer["message"]


# issue 22, line 32
async def test_claims_may_be_read_with_each_of_the_roles_that_are_shipped() -> None:
    assert {"deploy/rbac.yaml", "deploy/operator/operator.yaml", "kubernetes-api", "operator"} <= ROLES.keys()


# issue 22, line 32
@pytest.mark.parametrize("name", ROLES)
async def test_an_exporter_reads_which_claims_are_a_look(
    server: Server, claimed: dict[str, str], tmp_path: Path, name: str
) -> None:
    """By name; it may list no claims, which would be those of the whole cluster."""
    account, *rights = with_account(ROLES[name])
    await server.stores(account)
    token = tmp_path / "token"
    token.write_text(await server.token_of(account["metadata"]["namespace"], account["metadata"]["name"]))
    claims = ApiClaims(api=KubernetesApi(url=server.url, token_file=str(token), ca_file=str(server.ca_file)))
    try:
        with pytest.raises(SourceError) as refused:
            await claims.get("monitoring", "c")
        assert "get on resourceclaims" in refused.value.trouble.remedy
        await server.stores(*rights)
        await until(partial(may_read, claims))  # it takes a moment to know its new roles
        device = (DEVICE["driver"], DEVICE["pool"], DEVICE["device"])
        read = {each: await claims.get("monitoring", each) for each in claimed}
        assert read == {"c": (claimed["c"], {device: True}), "t": (claimed["t"], {device: False})}
        with pytest.raises(Unsupported, match="resourceclaims/other"):
            await claims.get("monitoring", "other")
        assert (await server.ask("GET", CLAIMS, token=token.read_text()))[0] == 403
    finally:
        await claims.close()
        await server.drops(*rights, account)


def with_account(items: list[Object]) -> list[Object]:
    """An account, a role and its binding; the operator makes the first and the last of these for each GPUExporter."""
    if items[0]["kind"] == "ServiceAccount":
        return items
    (role,) = items
    about = {"name": "exporter", "namespace": "monitoring"}
    of = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role["metadata"]["name"]}
    binding = {"apiVersion": role["apiVersion"], "kind": "ClusterRoleBinding", "metadata": {"name": "exporter"}}
    subjects = [{"kind": "ServiceAccount", **about}]
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about}
    return [account, role, {**binding, "roleRef": of, "subjects": subjects}]


async def may_read(claims: ApiClaims) -> bool:
    try:
        return bool(await claims.get("monitoring", "c"))
    except SourceError:
        return False
