"""The Kubernetes API that a node's exporter asks: a real one where there is one, else that of the simulated node.

What is asked for may be what deploy/rbac.yaml allows, and no more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from exporter.simulator.driver_files import UID_LENGTH, claim_status
from exporter.simulator.pods_api import described
from tests.support.manifests import objects_of
from tests.support.places import ROOT
from tests.support.real_api import AUDITED_NAMESPACE, Object, RealServer
from tests.support.simulated import Container, Pod, SimulatedNode
from tests.support.waiting import until

ACCOUNT = "exporter"
ADMIN_ACCESS = "resource.kubernetes.io/admin-access"  # the label of namespaces where claims may have it
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_RESOURCES = "/apis/resource.k8s.io/v1"
_NOW = {"gracePeriodSeconds": 0}
_ClaimName = tuple[str, str]


def rules() -> list[Object]:
    """Those of deploy/rbac.yaml."""
    items = objects_of(ROOT / "deploy" / "rbac.yaml")
    return [rule for item in items if item["kind"] == "ClusterRole" for rule in item["rules"]]


class NodeApi(Protocol):
    """The API server of a simulated node. `settings` lead an exporter to it, by parameter names."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Where it answers, and whom it believes."""

    async def show(self, *pods: Pod) -> None:
        """These are the node's pods, with their claims: for its kubelet, and for the API server before."""

    async def halt(self) -> None:
        """It is away; what is stored is kept."""

    async def go_on(self) -> None:
        """It is back, at the same address."""

    def asked_for_claims(self) -> int:
        """How often the exporter has asked for a claim so far."""


class SimulatedNodeApi:
    """The simulated one, which knows what the node knows."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        node.api.rules = [("", rule) for rule in rules()]
        self.settings: Mapping[str, str] = {"kubernetes_url": node.api_url}

    async def show(self, *pods: Pod) -> None:
        """These are the node's pods, with their claims: for its kubelet, and for the API server before."""
        self._node.world.pods = pods

    async def halt(self) -> None:
        """It is away; what is stored is kept."""
        await self._node.api.stop()

    async def go_on(self) -> None:
        """It is back, at the same address."""
        await self._node.api.start(int(self._node.api_url.rpartition(":")[2]))

    def asked_for_claims(self) -> int:
        """How often the exporter has asked for a claim so far."""
        return sum("/resourceclaims/" in path for path in self._node.api.gets)


class NodeServer(RealServer):
    """A real one, with an account that may do what deploy/rbac.yaml allows."""

    async def start(self) -> None:
        """Start it, and make the account."""
        await super().start()
        await self.make("/api/v1/namespaces", {"metadata": {"name": AUDITED_NAMESPACE}})
        account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": AUDITED_NAMESPACE}
        role = {"apiGroup": _RBAC.split("/")[2], "kind": "ClusterRole", "name": ACCOUNT}
        about = {"metadata": {"name": ACCOUNT}}
        await self.make(f"/api/v1/namespaces/{AUDITED_NAMESPACE}/serviceaccounts", about)
        await self.make(f"{_RBAC}/clusterroles", {**about, "rules": rules()})
        await self.make(f"{_RBAC}/clusterrolebindings", {**about, "roleRef": role, "subjects": [account]})
        token = await self.token_of(AUDITED_NAMESPACE, ACCOUNT)
        (self.folder / "token").write_text(token)

        async def knows_its_roles() -> bool:
            return (await self.ask("GET", "/api/v1/pods", token=token))[0] == 200

        await until(knows_its_roles)

    async def make(self, collection: str, item: Object) -> Object:
        """An object is there as it is stored now, for the first time or not; its status is what it is told to be."""
        path = f"{collection}/{item['metadata']['name']}"
        status, answer = await self.ask("POST", collection, item)
        if status == 409:
            status, answer = await self.ask("PATCH", path, item)
        if "status" in item and status in (200, 201):
            status, answer = await self.ask("PATCH", f"{path}/status", {"status": item["status"]})
        assert status in (200, 201), answer
        return dict(answer)

    async def end(self, path: str) -> None:
        """It is there no longer."""
        status, answer = await self.ask("DELETE", path, _NOW)
        assert status in (200, 404), answer


class RealNodeApi:
    """A real one. `show` gives claims the uids that it gives them, in the names of their CDI devices, too.

    Two claims are one as long as the uid in the names that the test gives them is one.
    """

    def __init__(self, node: SimulatedNode, server: NodeServer) -> None:
        self._node, self._server = node, server
        self._pods: dict[str, str] = {}  # the paths of pods by their uids on the node
        self._claims: dict[_ClaimName, tuple[str, str]] = {}  # the uid that the test gave, and that of the API server
        self._asked_before = self._asked()
        self._is_away = False
        self.settings: Mapping[str, str] = {
            "kubernetes_url": server.url,
            "kubernetes_token_file": str(server.folder / "token"),
            "kubernetes_ca_file": str(server.ca_file),
        }

    async def start(self) -> None:
        """Publish the ResourceSlices of the node's GPUs."""
        for item in self._node.api.slices_now():
            named = {**item, "metadata": {"name": item["metadata"]["name"]}}
            await self._server.make(f"{_RESOURCES}/resourceslices", named)

    async def stop(self) -> None:
        """Let the next test begin with nothing."""
        if self._is_away:
            await self.go_on()
        await self.show()
        for name in tuple(self._claims):
            await self._end_claim(name)
        await self._server.end(f"{_RESOURCES}/resourceslices")

    async def show(self, *pods: Pod) -> None:
        """These are the node's pods, with their claims: for its kubelet, and for the API server before."""
        for gone in self._pods.keys() - {pod.uid for pod in pods}:
            await self._server.end(self._pods.pop(gone))
        for namespace in {pod.namespace for pod in pods}:
            labels = {ADMIN_ACCESS: "true"}  # where no claim has it, nothing comes of it
            await self._server.make("/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}})
        named = [await self._with_claims(pod, pods) for pod in pods]
        for pod in named:
            if pod.uid not in self._pods:
                collection = f"/api/v1/namespaces/{pod.namespace}/pods"
                await self._server.make(collection, _pod(pod, self._node.api.node_name))
                self._pods[pod.uid] = f"{collection}/{pod.name}"
        self._node.world.pods = tuple(named)

    async def halt(self) -> None:
        """It is away; what is stored is kept."""
        await self._server.halt()
        self._is_away = True

    async def go_on(self) -> None:
        """It is back, at the same address."""
        await self._server.go_on()
        self._is_away = False

    def asked_for_claims(self) -> int:
        """How often the exporter has asked for a claim so far."""
        return self._asked() - self._asked_before

    def _asked(self) -> int:
        of = (event.get("objectRef", {}) for event in self._server.audited())
        return sum(each.get("resource") == "resourceclaims" for each in of)

    async def _with_claims(self, pod: Pod, pods: Iterable[Pod]) -> Pod:
        """The pod with its claims as the API server knows them, which are made if need be."""
        uids: dict[str, str] = {}
        for name in {(each.namespace, each.name) for container in pod.containers for each in container.all_claims}:
            status = claim_status(pods, name)
            given = next(
                cdi_name.partition("=")[2][:UID_LENGTH]
                for container in pod.containers
                for claim in container.all_claims
                for cdi_name in claim.cdi_names
                if (claim.namespace, claim.name) == name
            )
            if self._claims.get(name, ("", ""))[0] != given:
                await self._end_claim(name)
                made = await self._server.make(_claims_in(name[0]), _claim(name[1], status))
                self._claims[name] = given, made["metadata"]["uid"]
            uids[given] = self._claims[name][1]
        return replace(pod, containers=tuple(_renamed(container, uids) for container in pod.containers))

    async def _end_claim(self, name: _ClaimName) -> None:
        if self._claims.pop(name, None):
            await self._server.end(f"{_claims_in(name[0])}/{name[1]}")


def _claims_in(namespace: str) -> str:
    return f"{_RESOURCES}/namespaces/{namespace}/resourceclaims"


def _claim(name: str, status: Object) -> Object:
    """A claim of all devices, as its allocation says; with admin access where that says so."""
    results = status["allocation"]["devices"]["results"]
    requests = [
        {
            "name": request,
            "exactly": {
                "deviceClassName": results[0]["driver"],
                "allocationMode": "All",
                **({"adminAccess": True} if any("adminAccess" in each for each in results) else {}),
            },
        }
        for request in dict.fromkeys(each["request"] for each in results)
    ]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}, "status": status}


def _renamed(container: Container, uids: Mapping[str, str]) -> Container:
    """A container whose claims' CDI devices bear other uids."""

    def of(cdi_name: str) -> str:
        kind, _, device = cdi_name.partition("=")
        return f"{kind}={uids[device[:UID_LENGTH]]}{device[UID_LENGTH:]}"

    changed: dict[str, Any] = {
        name: tuple(replace(claim, cdi_names=tuple(map(of, claim.cdi_names))) for claim in getattr(container, name))
        for name in ("claims", "looks")
    }
    return replace(container, **changed)


def _pod(pod: Pod, node_name: str) -> Object:
    """A pod that runs, as the API server takes it from its kubelet and from who made it."""
    content = described(pod)
    claims = {claim.name for container in pod.containers for claim in container.all_claims}
    containers = [
        {
            "name": container.name,
            "image": "registry.example.com/none",
            "resources": {"claims": [{"name": name} for name in dict.fromkeys(c.name for c in container.all_claims)]},
        }
        for container in pod.containers
    ]
    status = {name: value for name, value in content["status"].items() if value}
    return {
        "metadata": {"name": pod.name, "labels": dict(pod.labels)},
        "spec": {
            "nodeName": node_name,
            "containers": containers,
            "resourceClaims": [{"name": name, "resourceClaimName": name} for name in sorted(claims)],
        },
        "status": {**status, "startTime": "2026-11-21T23:08:28Z"},
    }
