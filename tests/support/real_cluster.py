"""A real API server as the operator finds one: with the rights of its manifest, and what else works in a cluster."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from exporter.operator.objects.kinds import (
    BY_NAME,
    CLUSTER_ROLE_BINDING,
    DAEMON_SET,
    LEASE,
    OPERATOR,
    SERVICE_ACCOUNT,
    Kind,
)
from tests.support import quick_yaml
from tests.support.api_server.handling import Write
from tests.support.controllers import Controllers
from tests.support.places import ROOT
from tests.support.real_api import AUDITED_NAMESPACE, HAS_MANAGER, Object, RealServer

MANIFEST = ROOT / "deploy" / "operator" / "operator.yaml"
_LEASE_PATH = LEASE.path(AUDITED_NAMESPACE, OPERATOR)
_USERS = f"system:serviceaccount:{AUDITED_NAMESPACE}:operator-"
_RBAC, _ADMISSION = "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"
# what the manifest has beside the kinds that the operator makes
_OF_ADMINISTRATORS = (
    Kind("v1", "Namespace", "namespaces"),
    Kind(_RBAC, "Role", "roles"),
    Kind(_RBAC, "RoleBinding", "rolebindings"),
    Kind(_RBAC, "ClusterRole", "clusterroles"),
    Kind(_ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    Kind(_ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
)
_KINDS = BY_NAME | {kind.name: kind for kind in _OF_ADMINISTRATORS}
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class RealCluster(RealServer):
    """Each of `users` has an account `operator-<user>`, which may do what the manifest's may, and a token.

    With `within` the rights to what is in namespaces are to what is in that one. With `has_policy` the manifest's
    admission policy keeps the accounts to what the operator makes.
    """

    def __init__(self, users: Iterable[str], within: str = "", *, has_policy: bool = False) -> None:
        super().__init__()
        self.tokens: Mapping[str, str] = {}
        self._users, self._within, self._has_policy = tuple(users), within, has_policy
        self._controllers = Controllers(self)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it, and give the accounts their rights."""
        await super().start()
        about = {"namespace": AUDITED_NAMESPACE}
        for name in filter(None, (AUDITED_NAMESPACE, self._within)):
            await self._make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        accounts = {user: f"operator-{user}" for user in self._users}
        for name in accounts.values():
            await self._make({"apiVersion": "v1", "kind": SERVICE_ACCOUNT.name, "metadata": {"name": name, **about}})
        await self._give_rights([{"kind": SERVICE_ACCOUNT.name, "name": name, **about} for name in accounts.values()])
        if self._has_policy:
            await self.make_policies()
        self.tokens = {user: await self.token_of(AUDITED_NAMESPACE, name) for user, name in accounts.items()}
        async with asyncio.timeout(30):
            while not await self._has_all_rights():
                await asyncio.sleep(0.1)

    async def start_controllers(self) -> None:
        """Let the controllers work. A real one would know of kinds that are defined later after half a minute."""
        if HAS_MANAGER:
            self.start_manager("daemonset-controller", "garbage-collector-controller")
        self._task = asyncio.ensure_future(self._controllers.run())

    async def _give_rights(self, subjects: Sequence[Object]) -> None:
        """Those of the manifest, under the names of tests: one of these may apply the manifest, too."""
        about = {"namespace": AUDITED_NAMESPACE}
        for item in quick_yaml.load_all(MANIFEST.read_text()):
            if item["kind"] in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"):
                item["metadata"] |= about if "namespace" in item["metadata"] else {}
                if self._within and (item["kind"], item["metadata"]["name"]) == ("ClusterRoleBinding", OPERATOR):
                    item["kind"] = "RoleBinding"
                    item["metadata"]["namespace"] = self._within
                if "subjects" in item:
                    item["subjects"] = subjects
                    item["metadata"]["name"] += "-of-tests"
                await self._make(item)

    async def make_policies(self) -> None:
        """Keep the accounts to what the operator makes, by the manifest's admission policies. It takes a moment."""
        for item in _policies():
            for condition in item["spec"].get("matchConditions", ()):
                condition["expression"] = f"request.userInfo.username.startsWith('{_USERS}')"
            await self._make(item)

    async def end_policies(self) -> None:
        """Keep them to nothing but their rights."""
        for item in _policies():
            status, answer = await self.ask("DELETE", _KINDS[item["kind"]].path(None, item["metadata"]["name"]))
            assert status == 200, answer

    async def stop(self) -> None:
        """End it all; what has failed of the controllers is raised."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            assert self._task.cancelled(), self._task.exception()
        await super().stop()

    def set_nodes(self, labels: Mapping[str, Mapping[str, str]], unready: Iterable[str]) -> None:
        """The cluster has these nodes; pods on those that are `unready` do not become ready."""
        self._controllers.nodes, self._controllers.unready = labels, frozenset(unready)

    def writes(self) -> Sequence[Write]:
        """What the accounts have asked to be written."""
        return [
            Write(
                user=event["user"]["username"].rpartition(":")[2],
                verb=event["verb"],
                resource=event["objectRef"]["resource"],
                namespace=event["objectRef"].get("namespace", ""),
                name=event["objectRef"].get("name", ""),
            )
            for event in self.audited()
            if event["verb"] in _WRITES
        ]

    async def _make(self, item: Object) -> None:
        path = _KINDS[item["kind"]].path(item["metadata"].get("namespace"))
        status, answer = await self.ask("POST", path, item)
        assert status == 201, answer

    async def _has_all_rights(self) -> bool:
        """It takes a moment to know its new roles. Each of these rights is given by another binding."""
        paths = (DAEMON_SET.path(self._within), CLUSTER_ROLE_BINDING.path(None), _LEASE_PATH)
        answers = [(await self.ask("GET", path, token=token))[0] for token in self.tokens.values() for path in paths]
        return 403 not in answers


def _policies() -> list[Object]:
    """The admission policies of the manifest, and their bindings."""
    items = quick_yaml.load_all(MANIFEST.read_text())
    return [item for item in items if item["kind"].startswith("ValidatingAdmissionPolicy")]
