"""A real kube-apiserver with its etcd, where KUBEBUILDER_ASSETS names a folder that has them, as envtest does.

`make test-on-kubernetes` names the folder that tests/build-kubernetes fills. They listen on loopback ports. RBAC
decides, as in every cluster, and OwnerReferencesPermissionEnforcement too, as in OpenShift. What accounts of
AUDITED_NAMESPACE ask is noted, with its answer, in an audit log.
"""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.components import free_port
from tests.support.waiting import until

Object = dict[str, Any]
_NAMED = os.environ.get("KUBEBUILDER_ASSETS", "")
ASSETS = Path(_NAMED or "/nonexistent").absolute()
IS_REAL = all((ASSETS / program).exists() for program in ("kube-apiserver", "etcd"))
if _NAMED and not IS_REAL:
    # else the tests would ask the simulated one, and only their last line would say so
    raise FileNotFoundError(f"KUBEBUILDER_ASSETS: {ASSETS} has no kube-apiserver, or no etcd")
WHICH = f"the real one in {ASSETS}" if IS_REAL else "the simulated one (KUBEBUILDER_ASSETS names no real one)"
MANAGER = "kube-controller-manager"
HAS_MANAGER = IS_REAL and (ASSETS / MANAGER).exists()
AUDITED_NAMESPACE = "operators"
START_SECONDS = 120.0
_ADMIN = "admin"
_DEFINITIONS = "apiextensions.k8s.io/v1/customresourcedefinitions"
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": [f"system:serviceaccounts:{AUDITED_NAMESPACE}"]}, {"level": "None"}],
}


class RealServer:
    """An API server of which nothing is asked yet. What it stores outlives `halt`.

    Each of `people` is a user whose token is the name.
    """

    def __init__(self, people: Iterable[str] = ()) -> None:
        self._people = tuple(people)
        self.folder = Path(tempfile.mkdtemp())
        self._etcd_port, self._peer_port, self._port = free_port(), free_port(), free_port()
        self._etcd: subprocess.Popen[bytes] | None = None
        self._manager: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._audit_log = self.folder / "audit.jsonl"
        self._audited: list[Object] = []
        self._audited_bytes = 0

    async def start(self) -> None:
        """Start both programs."""
        people = "".join(f"{name},{name},{name}\n" for name in self._people)
        (self.folder / "tokens.csv").write_text(f"{_ADMIN},{_ADMIN},{_ADMIN},system:masters\n{people}")
        (self.folder / "audit.json").write_text(json.dumps(_AUDIT_POLICY))
        subprocess.run(
            ["openssl", "genrsa", "-out", self.folder / "key", "2048"], check=True, capture_output=True, timeout=60
        )
        etcd, peers = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._etcd = self._run(
            "etcd",
            "--data-dir=etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peers}",
        )
        await self.go_on()

    async def stop(self) -> None:
        """End both, and forget everything."""
        await self.halt()
        for program in filter(None, (self._manager, self._etcd)):
            program.kill()
            program.wait(10)
        shutil.rmtree(self.folder)

    async def halt(self) -> None:
        """End the API server; etcd keeps what is stored."""
        if self._server is not None:
            self._server.kill()
            self._server.wait(10)

    async def go_on(self) -> None:
        """Start the API server, at the address that it had before."""
        self._server = self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--cert-dir=certs",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-key-file=key",
            "--service-account-signing-key-file=key",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",  # as kubeadm sets it: /dev/kmsg cannot be opened otherwise
            "--token-auth-file=tokens.csv",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
            # no controller makes the account `default` here, and none finds that a node is ready
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--audit-policy-file=audit.json",
            f"--audit-log-path={self._audit_log.name}",
        )
        async with asyncio.timeout(START_SECONDS):
            while True:
                try:
                    status, _ = await self.ask("GET", "/readyz")
                except aiohttp.ClientError:
                    status = 0
                if status == 200:
                    return
                assert self._server.poll() is None, (self.folder / "kube-apiserver.log").read_text()[-4000:]
                await asyncio.sleep(0.1)

    def start_manager(self, *names: str) -> None:
        """Start a kube-controller-manager with these controllers; `stop` ends it."""
        kubeconfig = {
            "clusters": [{"name": "", "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)}}],
            "users": [{"name": _ADMIN, "user": {"token": _ADMIN}}],
            "contexts": [{"name": "", "context": {"cluster": "", "user": _ADMIN}}],
        }
        (self.folder / "kubeconfig").write_text(json.dumps(kubeconfig))
        self._manager = self._run(
            MANAGER,
            "--kubeconfig=kubeconfig",
            f"--controllers={','.join(names)}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            "--cert-dir=certs-of-manager",
        )

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_file(self) -> Path:
        """The authority of its certificate."""
        return self.folder / "certs" / "apiserver.crt"

    async def token_of(self, namespace: str, account: str) -> str:
        """A token of a service account that is there."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        status, answer = await self.ask("POST", path, request)
        assert status == 201, answer
        return str(answer["status"]["token"])

    async def ask(
        self, method: str, path: str, body: Object | None = None, *, kind: str = "", token: str = _ADMIN
    ) -> tuple[int, Any]:
        """What it answers its administrator, or whose token it is; a PATCH without a kind is a merge patch."""
        kind = kind or ("application/merge-patch+json" if method == "PATCH" else "application/json")
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
            session.request(method, self.url + path, data=data, headers=headers) as response,
        ):
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else text

    async def define(self, definition: Object) -> None:
        """Serve the kind of a CustomResourceDefinition."""
        status, answer = await self.ask("POST", f"/apis/{_DEFINITIONS}", definition)
        assert status == 201, answer
        spec = definition["spec"]
        served = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"

        async def is_served() -> bool:
            return (await self.ask("GET", served))[0] == 200

        await until(is_served)

    def audited(self) -> list[Object]:
        """The requests of AUDITED_NAMESPACE's accounts so far, as audit.k8s.io/v1 has them; a watch is there twice."""
        if self._audit_log.exists():
            with self._audit_log.open("rb") as file:
                file.seek(self._audited_bytes)
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # it is being written
                    self._audited_bytes += len(line)
                    self._audited.append(json.loads(line))
        return self._audited

    def _run(self, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{program}.log").open("ab") as told:
            return subprocess.Popen([ASSETS / program, *arguments], cwd=self.folder, stdout=told, stderr=told)


def anything(version: str, kind: str, plural: str, *, scope: str = "Namespaced") -> Object:
    """The CustomResourceDefinition of another project's kind, whose objects may have whatever there is."""
    group, _, name = version.partition("/")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = {"name": name, "served": True, "storage": True, "schema": schema}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": scope, "versions": [served]},
    }
