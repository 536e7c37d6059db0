"""The Kubernetes API that tests of discovery run against: a real one where there is one, else the simulated one.

What is asked for may be what deploy/cluster.yaml allows, and no more.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from exporter.cluster.exporters.discovery import MANIFEST, MEANWHILE
from exporter.cluster.scaled_objects import MANIFEST as KEDAS_MANIFEST
from exporter.sources.kubernetes.api import KubernetesApi
from tests.support import quick_yaml
from tests.support.places import ROOT
from tests.support.real_api import RealServer
from tests.support.simulated import World
from tests.support.simulated_api import COLLECTIONS, SimulatedApi

Object = dict[str, Any]
NAMESPACE = "pod-gpu-metrics"
ACCOUNT = "pod-gpu-metrics-cluster"
_PODS_TOO = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
_PATHS = {
    **COLLECTIONS,
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ScaledObject": "/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects",
}
# What KEDA's own definition says of ScaledObjects, as far as a server needs it to serve them.
_SCALED_OBJECTS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "scaledobjects.keda.sh"},
    "spec": {
        "group": "keda.sh",
        "names": {"plural": "scaledobjects", "singular": "scaledobject", "kind": "ScaledObject"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            }
        ],
    },
}


def manifest(path: str = MANIFEST) -> list[Object]:
    """The objects of deploy/cluster.yaml, or of another file."""
    return list(quick_yaml.load_all((ROOT / path).read_text()))


class ApiServer(Protocol):
    """An API server, and what the cluster role's service account may ask it for."""

    def api(self) -> KubernetesApi:
        """The role's client."""

    async def put(self, item: Object) -> None:
        """An object is there, or has changed."""

    async def remove(self, item: Object) -> None:
        """It is there no longer."""

    async def allow_pods(self) -> None:
        """Let the service account list and watch pods, too."""

    async def allow_keda(self) -> None:
        """Serve ScaledObjects, and give the service account what deploy/keda/rbac.yaml gives."""

    async def restart(self) -> None:
        """End it, and start it anew at the same address."""


class Simulated:
    """The simulated one."""

    def __init__(self, folder: Path) -> None:
        self.server = SimulatedApi(World(gpus=1, seed=1))
        self.server.rules = [
            (item["metadata"]["namespace"], rule)
            for item in manifest()
            if item["kind"] == "Role"
            for rule in item["rules"]
        ]
        self.url = ""
        self._folder = folder

    async def start(self) -> None:
        self.url = await self.server.start()

    async def stop(self) -> None:
        await self.server.stop()

    def api(self) -> KubernetesApi:
        """The role's client."""
        return _client(self.url, self._folder / "token", self._folder / "ca.crt")

    async def put(self, item: Object) -> None:
        """An object is there, or has changed."""
        if item["kind"] == "ScaledObject":
            self.server.objects[f"{_path('ScaledObject')}/{item['metadata']['name']}"] = item
        else:
            self.server.put(item)

    async def remove(self, item: Object) -> None:
        """It is there no longer."""
        self.server.remove(item)

    async def allow_pods(self) -> None:
        """Let the service account list and watch pods, too."""
        assert self.server.rules is not None
        self.server.rules += [(NAMESPACE, rule) for rule in _PODS_TOO]

    async def allow_keda(self) -> None:
        """Serve ScaledObjects, and give the service account what deploy/keda/rbac.yaml gives."""
        assert self.server.rules is not None
        for item in manifest(KEDAS_MANIFEST):
            if item["kind"] == "ClusterRole":
                self.server.rules += [("", rule) for rule in item["rules"]]

    async def restart(self) -> None:
        """End it, and start it anew at the same address."""
        port = int(self.url.rpartition(":")[2])
        await self.server.stop()
        await asyncio.sleep(0.3)
        await self.server.start(port)


class Real(RealServer):
    """A real one, with deploy/cluster.yaml's service account in it."""

    def __init__(self) -> None:
        super().__init__()
        self._put: list[Object] = []

    async def start(self) -> None:
        """Start it, and make what the role needs."""
        await super().start()
        await self._create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for item in manifest():
            if item["kind"] in ("ServiceAccount", "Role", "RoleBinding"):
                await self._create(item)
        (self.folder / "token").write_text(await self.token_of(NAMESPACE, ACCOUNT))

    def api(self) -> KubernetesApi:
        """The role's client."""
        return _client(self.url, self.folder / "token", self.ca_file)

    async def put(self, item: Object) -> None:
        """An object is there, or has changed."""
        name = f"{_path(item['kind'])}/{item['metadata']['name']}"
        status, _ = await self.ask("PATCH", name, item)
        if status == 404:
            await self._create(item)
            self._put.append(item)
        if "status" in item:
            status, answer = await self.ask("PATCH", f"{name}/status", {"status": item["status"]})
            assert status == 200, answer

    async def remove(self, item: Object) -> None:
        """It is there no longer."""
        status, answer = await self.ask(
            "DELETE", f"{_path(item['kind'])}/{item['metadata']['name']}", {"gracePeriodSeconds": 0}
        )
        assert status in (200, 404), answer

    async def remove_all(self) -> None:
        """Let the next test begin with nothing."""
        for item in self._put:
            await self.remove(item)
        self._put = []

    async def allow_pods(self) -> None:
        """Let the service account list and watch pods, too."""
        of_group = "rbac.authorization.k8s.io"
        about = {"apiVersion": f"{of_group}/v1", "metadata": {"name": "pods", "namespace": NAMESPACE}}
        await self.put({**about, "kind": "Role", "rules": _PODS_TOO})
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
        role = {"apiGroup": of_group, "kind": "Role", "name": "pods"}
        await self.put({**about, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]})

    async def allow_keda(self) -> None:
        """Serve ScaledObjects, and give the service account what deploy/keda/rbac.yaml gives."""
        await self.put(_SCALED_OBJECTS)
        async with asyncio.timeout(30):
            while (await self.ask("GET", _path("ScaledObject")))[0] != 200:
                await asyncio.sleep(0.1)
        for item in manifest(KEDAS_MANIFEST):
            if item["kind"] in ("ClusterRole", "ClusterRoleBinding"):
                await self.put(item)

    async def restart(self) -> None:
        """End it, and start it anew at the same address."""
        await self.halt()
        await self.go_on()

    def path_of(self, item: Object) -> str:
        """The collection that an object belongs to."""
        return _path(item["kind"])

    async def _create(self, item: Object) -> None:
        status, answer = await self.ask("POST", _path(item["kind"]), item)
        assert status == 201, answer


def _client(url: str, token_file: Path, ca_file: Path) -> KubernetesApi:
    return KubernetesApi(
        url=url, token_file=str(token_file), ca_file=str(ca_file), manifest=MANIFEST, meanwhile=MEANWHILE
    )


def _path(kind: str) -> str:
    return _PATHS[kind].format(namespace=NAMESPACE)


def endpoint_slice(name: str, endpoints: Mapping[str, Object], *, service: str = "exporter", **fields: Any) -> Object:
    """An EndpointSlice of the role's namespace; `endpoints` are conditions by the names of nodes.

    The address of a node is made of the last letter of its name.
    """
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "metrics", "port": 9400, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": [address_of(node)], "nodeName": node, "conditions": conditions}
            for node, conditions in endpoints.items()
        ],
        **fields,
    }


def pod(node: str, *, name: str = "", ip: str | None = None, is_ready: bool = True, **labels: str) -> Object:
    """A node exporter's pod of the role's namespace."""
    ready = {"type": "Ready", "status": "True" if is_ready else "False"}
    status = {"phase": "Running" if is_ready else "Pending", "conditions": [ready]}
    address = address_of(node) if ip is None else ip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name or f"exporter-{node}",
            "namespace": NAMESPACE,
            "labels": {"app": "exporter", **labels},
        },
        "spec": {"nodeName": node, "containers": [{"name": "exporter", "image": "exporter"}]},
        "status": {**status, "podIP": address, "podIPs": [{"ip": address}]} if address else status,
    }


def address_of(node: str) -> str:
    return f"10.1.0.{ord(node[-1])}"
