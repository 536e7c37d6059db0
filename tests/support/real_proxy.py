"""A real API server in place of the simulated one, for tests of its proxy.

A real proxy refuses loopback addresses. It asks the Endpoints of a Service, and passes requests on to pods alone. The
tests' servers are on loopback: relays answer for them at another address of the machine, which is that of every pod.
"""

import asyncio
import copy
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.background import Background
from tests.support.real_api import START_SECONDS, Object, RealServer
from tests.support.waiting import wait_until

Rule = tuple[str, Object]  # in which namespace ("": in all), and what it allows
_RBAC = "rbac.authorization.k8s.io"
_SERVICE_LABEL = "kubernetes.io/service-name"
_GIVEN = ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields")  # by the API server


class RealApi:
    """Asked and changed as SimulatedApiServer is. `rules` are what `user` may; the administrator may everything."""

    def __init__(self, background: Background, user: str) -> None:
        self._background, self._user = background, user
        self._server = RealServer([user])
        self._rules: Sequence[Rule] = ()
        self._relays: dict[int, asyncio.Server] = {}
        self._endpoints: dict[str, Object] = {}  # by the path of their Service, with which the API server deletes them
        self.address = _own_address()

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        for relay in self._relays.values():
            relay.close()
        await self._server.stop()

    @property
    def url(self) -> str:
        """Where it answers."""
        return self._server.url

    @property
    def ca_file(self) -> Path:
        """The authority of its certificate."""
        return self._server.ca_file

    def relay(self, port: int) -> None:
        """Let what answers at a port of loopback be reached at the pods' address, too."""
        if port not in self._relays:
            self._background.run(self._relay(port))

    async def _relay(self, port: int) -> None:
        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                there, back = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                writer.transport.abort()
                return
            await asyncio.gather(_copy(reader, back), _copy(there, writer))

        self._relays[port] = await asyncio.start_server(pass_on, self.address, port)

    @property
    def rules(self) -> Sequence[Rule]:
        """What the user may."""
        return self._rules

    @rules.setter
    def rules(self, rules: Sequence[Rule]) -> None:
        gone, self._rules = self._rules, tuple(rules)
        version = f"{_RBAC}/v1"
        for number, (namespace, _) in enumerate(gone):
            for kind in ("RoleBinding", "Role"):
                item = {"kind": f"{_scope(namespace)}{kind}", "metadata": _named(namespace, number)}
                self.drop({"apiVersion": version, **item})
        for number, (namespace, rule) in enumerate(self._rules):
            about, scope = _named(namespace, number), _scope(namespace)
            role = {"apiGroup": _RBAC, "kind": f"{scope}Role", "name": about["name"]}
            users = [{"apiGroup": _RBAC, "kind": "User", "name": self._user}]
            self.put({"apiVersion": version, "kind": f"{scope}Role", "metadata": about, "rules": [rule]})
            binding = {"roleRef": role, "subjects": users}
            self.put({"apiVersion": version, "kind": f"{scope}RoleBinding", "metadata": about, **binding})
        # it takes a moment to know its roles
        for asked in (*gone, *self._rules):
            wait_until(partial(self._is_known, asked))

    def _is_known(self, asked: Rule) -> bool:
        return self._may(asked) == any(_allows(rule, asked) for rule in self._rules)

    def _may(self, asked: Rule) -> bool:
        """Whether the user may what a rule names first."""
        namespace, rule = asked
        resource, _, subresource = rule["resources"][0].partition("/")
        attributes = {
            "namespace": namespace,
            "verb": rule["verbs"][0],
            "group": rule["apiGroups"][0],
            "resource": resource,
            "subresource": subresource,
            "name": rule.get("resourceNames", [""])[0],
        }
        # OpenShift's asks for another right where nobody has logged in
        spec = {"user": self._user, "groups": ["system:authenticated"], "resourceAttributes": attributes}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status, answer = self._ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        assert status == 201, answer
        return bool(answer["status"]["allowed"])

    def define(self, definition: Object) -> None:
        """Serve the kind of a CustomResourceDefinition."""
        self._background.run(self._server.define(definition), START_SECONDS)

    def undefine(self, definition: Object) -> None:
        """Serve it no longer; its objects are gone, too."""
        self.drop(definition)
        wait_until(lambda: self._ask("GET", _path_of(definition))[0] == 404)

    def add_namespace(self, name: str) -> None:
        """Make a namespace."""
        self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def put(self, item: Object) -> Object:
        """Make an object what it is told to be, status included."""
        item = _completed(item)
        path = _path_of(item)
        if item["kind"] == "Pod":
            self._ask("DELETE", path, {"gracePeriodSeconds": 0})  # most of a pod cannot be changed
        status, answer = self._ask("POST", path.rpartition("/")[0], item)
        if status == 409:
            status, answer = self._ask("PATCH", path, item)
        assert status in (200, 201), answer
        if item["kind"] == "Pod":
            status, answer = self._ask("PATCH", f"{path}/status", {"status": item["status"]})
            assert status == 200, answer
        if item["kind"] == "EndpointSlice":
            self._put_endpoints(item)
        elif path in self._endpoints:
            self.put(self._endpoints[path])
        return dict(answer)

    def _put_endpoints(self, of: Object) -> None:
        """What the proxy asks in place of a slice of one endpoint, as its controller would make it, and the pod."""
        service = {"namespace": of["metadata"]["namespace"], "name": of["metadata"]["labels"][_SERVICE_LABEL]}
        (endpoint,), about = of["endpoints"], {**service, "name": f"{service['name']}-0"}
        (address,) = endpoint["addresses"]
        which = "addresses" if endpoint["conditions"]["ready"] else "notReadyAddresses"
        subset = {which: [{"ip": address, "targetRef": {"kind": "Pod", **about}}], "ports": of["ports"]}
        endpoints = {"apiVersion": "v1", "kind": "Endpoints", "metadata": service, "subsets": [subset]}
        self._endpoints[_path_of({"apiVersion": "v1", "kind": "Service", "metadata": service})] = endpoints
        self.put(endpoints)
        spec, status = {"containers": [{"name": "server"}]}, {"phase": "Running", "podIPs": [{"ip": address}]}
        self.put({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec, "status": status})

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """An object of the core, or None."""
        about = {"namespace": namespace, "name": name}
        status, answer = self._ask("GET", _path_of({"apiVersion": "v1", "kind": kind, "metadata": about}))
        return answer if status == 200 else None

    def drop(self, item: Object) -> None:
        """Take an object away at once."""
        status, answer = self._ask("DELETE", _path_of(item), {"gracePeriodSeconds": 0})
        assert status == 200, answer

    def _ask(self, method: str, path: str, body: Object | None = None) -> tuple[int, Any]:
        return self._background.run(self._server.ask(method, path, body), START_SECONDS)


def _named(namespace: str, number: int) -> Object:
    return {**({"namespace": namespace} if namespace else {}), "name": f"rule-{number}"}


def _scope(namespace: str) -> str:
    """The prefix of the kinds Role and RoleBinding that give rights in a namespace, or in all."""
    return "" if namespace else "Cluster"


def _path_of(item: Object) -> str:
    version, about = item["apiVersion"], item["metadata"]
    within = f"/namespaces/{about['namespace']}" if "namespace" in about else ""
    plural = f"{item['kind'].lower().removesuffix('s')}s"
    return f"/{'apis' if '/' in version else 'api'}/{version}{within}/{plural}/{about['name']}"


def _allows(allowed: Rule, asked: Rule) -> bool:
    """Whether a rule allows what another one names first."""
    (namespace, rule), (other_namespace, other) = allowed, asked
    name = other.get("resourceNames", [""])[0]
    return (
        namespace in ("", other_namespace)
        and other["resources"][0] in rule["resources"]
        and other["verbs"][0] in rule["verbs"]
        and name in rule.get("resourceNames", [name])
    )


def _completed(item: Object) -> Object:
    """Without what the API server gives, and with what a real one asks of a pod beside what a test says of it."""
    item = copy.deepcopy(item)
    for name in _GIVEN:
        item["metadata"].pop(name, None)
    if item["kind"] == "Pod":
        for container in item["spec"]["containers"]:
            container.setdefault("image", "registry.example.com/none")
        for condition in item.setdefault("status", {}).get("conditions", ()):
            condition.setdefault("status", "False")
    return item


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def _own_address() -> str:
    """An IPv4 address of this machine that is not on loopback: the one from which it would speak to others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))  # sends nothing
        return str(probe.getsockname()[0])
