"""The operator as a real process, and the Kubernetes API that it runs against: a real one, else the simulated one.

The API is in a thread of its own, so that tests are plain functions that wait for what two other programs do.
"""

import os
import signal
import ssl
from collections.abc import Iterable, Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from exporter.cli.main import run
from exporter.operator.objects.kinds import (
    BY_NAME,
    CLUSTER_ROLE_BINDING,
    DAEMON_SET,
    FOR_ANNOTATION,
    GPU_AUTOSCALER,
    GPU_EXPORTER,
    LEASE,
    MADE,
    NODE,
    Key,
    Kind,
)
from tests.support import quick_yaml
from tests.support.api_server.handling import Write
from tests.support.api_server.server import SimulatedApiServer
from tests.support.background import Background
from tests.support.components import free_port
from tests.support.forked import Forked
from tests.support.places import ROOT
from tests.support.real_api import AUDITED_NAMESPACE, IS_REAL, START_SECONDS
from tests.support.real_cluster import MANIFEST, RealCluster
from tests.support.waiting import PATIENCE_SECONDS, wait_until

Object = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
LEASE_NAMESPACE = AUDITED_NAMESPACE
until = wait_until  # the operator is a program of its own
# the administrator of the simulated API server is whom it calls so: no rules are his
USERS = {"token-a": "operator-a", "token-b": "operator-b", "admin": "system:admin"}
_OF_THE_OPERATOR = ("pod-gpu-metrics-operator", "pod-gpu-metrics-operator-bindings")


class Api:
    """The API server, as its administrator asks it. The operator may do what its manifest allows, and no more.

    With `within` that is what it allows with a RoleBinding in this namespace in place of the ClusterRoleBinding. With
    `has_policy` a real one keeps it to what it makes by the manifest's admission policy, too.
    """

    def __init__(self, within: str = "", *, has_policy: bool = False) -> None:
        self._within = within
        self._background = Background()
        self._session: aiohttp.ClientSession | None = None
        self.simulated = None if IS_REAL else SimulatedApiServer()
        self.real = RealCluster("ab", within, has_policy=has_policy) if IS_REAL else None
        self.url = ""

    def start(self) -> None:
        """Serve the operator's own kinds, too."""
        if self.simulated is not None:
            self.simulated.users = dict(USERS)
            where = dict(zip(_OF_THE_OPERATOR, (self._within, ""), strict=True))
            self.simulated.rules = [
                (LEASE_NAMESPACE if item["kind"] == "Role" else where[item["metadata"]["name"]], rule)
                for item in quick_yaml.load_all(MANIFEST.read_text())
                if item["kind"] in ("Role", "ClusterRole") and item["metadata"]["name"] in _OF_THE_OPERATOR
                for rule in item["rules"]
            ]
            self.url = self._background.run(self.simulated.start())
        elif self.real is not None:
            try:
                self._background.run(self.real.start(), START_SECONDS)
            except BaseException:
                self.stop()  # else its programs would outlive the tests
                raise
            self.url = self.real.url
        for item in quick_yaml.load_all((ROOT / "deploy/operator/crds.yaml").read_text()):
            assert self.ask("POST", DEFINITIONS, item)[0] == 201
        until(lambda: all(self.ask("GET", kind.path(None))[0] == 200 for kind in (GPU_EXPORTER, GPU_AUTOSCALER)))
        if self.simulated is not None:
            for name in filter(None, (LEASE_NAMESPACE, self._within)):
                self.add_namespace(name)
        elif self.real is not None:
            self._background.run(self.real.start_controllers())

    def stop(self) -> None:
        """End it."""
        if self._session is not None:
            self._background.run(self._session.close())
        if self.simulated is not None:
            self._background.run(self.simulated.stop())
        elif self.real is not None:
            self._background.run(self.real.stop())
        self._background.close()

    def halt(self) -> None:
        """Stop answering; what is stored is kept."""
        if self.simulated is not None:
            self._background.run(self.simulated.stop())
        elif self.real is not None:
            self._background.run(self.real.halt())

    def go_on(self) -> None:
        """Answer again, at the same address."""
        if self.simulated is not None:
            self._background.run(self.simulated.start(int(self.url.rpartition(":")[2])))
        elif self.real is not None:
            self._background.run(self.real.go_on(), START_SECONDS)

    @property
    def ca_file(self) -> Path:
        """The authority of its certificate, where it has one."""
        return Path("/nonexistent/ca.crt") if self.real is None else self.real.ca_file

    def token_of(self, user: str) -> str:
        """The token of an operator: `a` or `b`."""
        return f"token-{user}" if self.real is None else self.real.tokens[user]

    def set_nodes(
        self,
        names: Iterable[str],
        *,
        unready: Iterable[str] = (),
        labels: Mapping[str, Object] | None = None,
    ) -> None:
        """The cluster has these GPU nodes, some with more `labels`. Their exporters have no address: nobody asks."""
        more = labels or {}
        all_labels = {name: {"nvidia.com/gpu.present": "true", **more.get(name, {})} for name in names}
        self._background.run(self._set_nodes(all_labels, [*unready]))
        for item in self.ask("GET", NODE.path(None))[1]["items"] if self.real is not None else ():
            if item["metadata"]["name"] not in all_labels:
                self.ask("DELETE", NODE.path(None, item["metadata"]["name"]))
        for name in all_labels if self.real is not None else ():
            self.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": all_labels[name]}})

    async def _set_nodes(self, names: Mapping[str, Mapping[str, str]], unready: list[str]) -> None:
        if self.simulated is not None:
            nodes = self.simulated.daemon_sets
            nodes.addresses, nodes.unready = dict.fromkeys(names, ""), {*unready}
            for name, labels in names.items():
                nodes.add_node(name, labels)
        elif self.real is not None:
            self.real.set_nodes(names, unready)

    def ask(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Any:
        """The status and the body of an answer."""
        return self._background.run(self._asked(method, path, body, kind))

    def add_namespace(self, name: str) -> None:
        """A namespace."""
        answer = self.ask(
            "POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
        assert answer[0] == 201, answer

    def put(self, item: Object) -> Object:
        """An object is made, or what it says of it is changed."""
        kind, about = BY_NAME[item["kind"]], item["metadata"]
        path = kind.path(about.get("namespace"))
        status, answer = self.ask("POST", path, item)
        if status == 409:
            status, answer = self.ask("PATCH", f"{path}/{about['name']}", item, MERGE)
        assert status in (200, 201), answer
        return dict(answer)

    def fill(self, items: Iterable[Object]) -> None:
        """Put objects into the simulated API server's store, past every check: thousands are there at once."""
        self._background.run(self._filled([*items]))

    async def _filled(self, items: Sequence[Object]) -> None:
        assert self.simulated is not None
        for item in items:
            self.simulated.put(item)

    def asked(self) -> Sequence[str]:
        """Method and path of each request to the simulated API server."""
        return () if self.simulated is None else tuple(self.simulated.asked)

    def patch(self, key: Key, changes: Object) -> None:
        """Somebody changes an object."""
        status, answer = self.ask("PATCH", BY_NAME[key.kind].path(key.namespace, key.name), changes, MERGE)
        assert status == 200, answer

    def remove(self, key: Key) -> None:
        """Somebody deletes an object."""
        status, answer = self.ask("DELETE", BY_NAME[key.kind].path(key.namespace, key.name), {})
        assert status in (200, 404), answer

    def get(self, key: Key) -> Object | None:
        """An object, or None."""
        status, answer = self.ask("GET", BY_NAME[key.kind].path(key.namespace, key.name))
        return answer if status == 200 else None

    def made_in(self, namespace: str) -> dict[Key, Object]:
        """What the operator makes of the custom resources of a namespace, by what it is called."""
        found = {}
        for kind in MADE:
            within = None if kind is CLUSTER_ROLE_BINDING else namespace
            status, answer = self.ask("GET", kind.path(within))
            for item in answer["items"] if status == 200 else ():
                about = item["metadata"]
                for_namespace = about.get("annotations", {}).get(FOR_ANNOTATION, "").partition("/")[0]
                if (within or for_namespace) == namespace and "app.kubernetes.io/managed-by" in about.get("labels", {}):
                    found[Key(kind.name, about.get("namespace", ""), about["name"])] = item
        return found

    def define(self, kind: Kind) -> None:
        """Serve a kind of somebody else, as a server needs to have it defined."""
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        group, _, version = kind.api_version.partition("/")
        served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": kind.plural, "singular": kind.name.lower(), "kind": kind.name}
        status, answer = self.ask(
            "POST",
            DEFINITIONS,
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{kind.plural}.{group}"},
                "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
            },
        )
        assert status == 201, answer

    def undefine(self, kind: Kind) -> None:
        """Serve it no longer."""
        assert self.ask("DELETE", f"{DEFINITIONS}/{kind.plural}.{kind.group}", {})[0] == 200
        until(lambda: self.ask("GET", kind.path(None))[0] == 404, 30)

    def writes(self, namespace: str | None = None) -> list[Write]:
        """What was asked to be written by an operator, in a namespace or anywhere, but for leases."""
        writes = self.real.writes() if self.real is not None else self.simulated.writes if self.simulated else ()
        return [
            write
            for write in tuple(writes)
            if write.user.startswith("operator-")
            and not write.resource.startswith(LEASE.plural)
            and namespace in (None, write.namespace)
        ]

    async def _asked(self, method: str, path: str, body: Object | None, kind: str) -> tuple[int, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=_unchecked()))
        headers = {"Authorization": "Bearer admin", "Content-Type": kind}
        async with self._session.request(method, self.url + path, json=body, headers=headers) as response:
            is_json = response.content_type == "application/json"
            return response.status, await response.json(loads=msgspec.json.decode) if is_json else await response.text()


def _unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _operate(words: list[str]) -> int:
    """The operator, whatever settings the environment of the tests has."""
    os.chdir(ROOT)
    for name in os.environ:
        if name.startswith("POD_GPU_EXPORTER_"):
            del os.environ[name]
    return run(["operator", *words])


class OperatorProcess:
    """One replica, on a loopback port.

    Who holds a short lease is soon another one, and on a busy machine soon nobody: renewing takes an answer within two
    thirds of it. So it is as long as usual, but for tests that wait until it runs out.
    """

    def __init__(self, api: Api, folder: Path, user: str = "a", *flags: str, lease_seconds: int = 15) -> None:
        self.port = free_port()
        self._log = folder / f"operator-{user}-{self.port}.log"
        token = folder / f"token-{user}"
        token.write_text(api.token_of(user))
        words = [
            *("--web.listen-address", f"127.0.0.1:{self.port}"),
            *("--kubernetes.url", api.url),
            *("--kubernetes.token-file", str(token)),
            *("--kubernetes.ca-file", str(api.ca_file)),
            *("--operator.lease-namespace", LEASE_NAMESPACE),
            *("--operator.lease-duration", f"{lease_seconds}s"),
            *("--operator.interval", "200ms"),
            *flags,
        ]
        self.process = Forked(_operate, words, self._log)

    @property
    def told(self) -> str:
        """Its log."""
        return self._log.read_text()

    def says(self, words: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait for these words in the log."""
        until(lambda: words in self.told, seconds, lambda: self.told)

    def get(self, path: str) -> tuple[int, str]:
        """An answer of its own."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """A sample of /metrics, by its name and labels as they stand there."""
        lines = self.get("/metrics")[1].splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == name)

    def end(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.join(PATIENCE_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.join(PATIENCE_SECONDS)


def exporter(name: str, namespace: str, **spec: Any) -> Object:
    """A GPUExporter."""
    return {
        "apiVersion": GPU_EXPORTER.api_version,
        "kind": GPU_EXPORTER.name,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def list_of_fields(name: str, namespace: str) -> Object:
    """A ConfigMap that `spec.collectors.configMap` may name."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"counters.csv": ""}}


def versions(items: Mapping[Key, Object]) -> dict[Key, tuple[str, str]]:
    """What tells whether objects were written: their uids and resourceVersions.

    Of a DaemonSet it is the generation: its controller writes the status.
    """
    found = {}
    for key, item in items.items():
        about = item["metadata"]
        version = about["generation"] if key.kind == DAEMON_SET.name else about["resourceVersion"]
        found[key] = (about["uid"], str(version))
    return found


def changed(before: Mapping[Key, Object], after: Mapping[Key, Object]) -> set[str]:
    """The objects that were made, changed or deleted: `+Kind`, `Kind` and `-Kind`."""
    old, new = versions(before), versions(after)
    return (
        {f"+{key.kind}" for key in new.keys() - old.keys()}
        | {f"-{key.kind}" for key in old.keys() - new.keys()}
        | {key.kind for key in old.keys() & new.keys() if old[key] != new[key]}
    )


def is_seen(api: Api, key: Key) -> bool:
    """Whether the status of a custom resource is of its spec as it is now."""
    item = api.get(key)
    return item is not None and item.get("status", {}).get("observedGeneration") == item["metadata"]["generation"]


def names(keys: Iterable[Key]) -> set[str]:
    """Kinds and names."""
    return {f"{key.kind} {key.name}" for key in keys}
