"""The places of exporters in the cluster: the cluster role's Service, else the node exporters' pods, by labels.

Tests: tests/kubectl/test_kubectl_gpu.py.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import ClassVar

from exporter.errors import HttpRefusal, Unavailable
from exporter.kubectl.binary import Kubectl, KubectlRefusal, place_of
from exporter.lenient import AnyObject, mapping, mappings, text
from exporter.model.device_row import DeviceRow
from exporter.model.name_order import as_people_count
from exporter.top.shown_devices import shown_of
from exporter.top.state import View
from exporter.top.transport import Answered, Gone, OtherProtocol, ShownReader, TopReader, processes_are_elsewhere

FLAG = "--exporter"
NAMESPACE = "pod-gpu-metrics"  # this and the following names are those of the shipped manifests
CLUSTER = "pod-gpu-metrics-cluster"
NODE = "pod-gpu-metrics-exporter"
PORT = "metrics"
_DEFAULT_PORT = "9400"
_CONTAINERS = ("exporter", NODE)
_AT_ONCE = 8
_NAME_PROMETHEUS = "name its Service: --prometheus NAMESPACE/SERVICE:PORT"
# the labels of Prometheus' Service: the Prometheus operator's, and the charts'
_PROMETHEUS = ("operated-prometheus=true", "app.kubernetes.io/name=prometheus")
_NAME_IT = f"name one: {FLAG} NAMESPACE or {FLAG} NAMESPACE/SERVICE"
# kubectl's words for a status that the exporter itself answered, and not the API server
_PASSED_ON = {
    "the server could not find the requested resource": HTTPStatus.NOT_FOUND,
    "the server is currently unable to handle the request": HTTPStatus.SERVICE_UNAVAILABLE,
}
_SPEAKS_TLS = ("rejected our request for an unknown reason", "malformed HTTP response", "EOF")


@dataclass
class ProxyTransport:
    """The way to an exporter through the API server's proxy to a Service or a pod.

    The proxy passes no password on, and does not check a certificate. The exporter's paths begin with `path`.
    """

    way_to_node: ClassVar[str] = (
        "run kubectl port-forward to its pod, and pod-gpu-metrics-exporter top --url localhost:PORT"
    )

    kubectl: Kubectl
    path: str
    url: str

    def get(self, path: str, **parameters: str) -> tuple[int, bytes]:
        """See Transport. The body of an error is empty, since kubectl does not tell it."""
        try:
            return HTTPStatus.OK, self.kubectl.raw(self.path + path, **parameters)
        except KubectlRefusal as error:
            if error.message in _PASSED_ON:
                return _PASSED_ON[error.message], b""
            if error.reason in ("Forbidden", "NotFound") or error.message == "Unauthorized":
                raise Gone(f"{error}{'' if ' -> ' in str(error) else f' -> {_NAME_IT}'}") from error
            if error.reason == "Unauthorized":
                why = "asks for a password, which the API server's proxy does not pass on -> top --url takes one"
                raise Gone(f"the exporter at {self.url} {why}") from error
            kind = OtherProtocol if any(words in error.message for words in _SPEAKS_TLS) else Gone
            remedy = "is a pod of it ready, and does a NetworkPolicy let the API server reach it?"
            raise kind(f"{self.url} does not answer: {error.message} -> {remedy}") from error


@dataclass(frozen=True, slots=True)
class ProxiedPrometheus:
    """A Connection to Prometheus through the proxy.

    kubectl does not tell the body of an error. So an error that may come from too large a query counts as one.
    """

    transport: ProxyTransport
    query_seconds: float

    async def query(self, expression: str, *, at_seconds: float | None) -> bytes:
        """See Connection."""
        moment = {} if at_seconds is None else {"time": f"{at_seconds:.3f}"}
        return await self.get("/api/v1/query", {"query": expression, "timeout": f"{self.query_seconds:g}s", **moment})

    async def get(self, path: str, parameters: Mapping[str, str]) -> bytes:
        """See Connection."""
        try:
            status, body = await asyncio.to_thread(lambda: self.transport.get(path, **parameters))
        except Gone as error:
            message, _, remedy = str(error).partition(" -> ")
            raise Unavailable("unreachable", message, remedy=remedy) from error

        if status == HTTPStatus.OK:
            return body

        refusal = HttpRefusal(
            "http_status",
            f"HTTP status {status} for {path}",
            remedy="look at the server's log; --timeout gives a query more time",
        )
        refusal.status = status
        refusal.content = {"errorType": "timeout"} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}

        raise refusal

    async def close(self) -> None:
        """Do nothing, since nothing is open."""


def proxied(kubectl: Kubectl, plural: str, namespace: str, name: str, port: str) -> ShownReader:
    """The reader of an exporter behind a Service or in a pod, which may speak HTTP or HTTPS."""
    return ShownReader([_way(kubectl, plural, namespace, f"{scheme}{name}", port) for scheme in ("", "https:")])


def _way(kubectl: Kubectl, plural: str, namespace: str, name: str, port: str) -> ProxyTransport:
    path = f"/api/v1/namespaces/{namespace}/{plural}/{name}:{port}/proxy"
    return ProxyTransport(kubectl, path, f"{plural.removesuffix('s')} {namespace}/{name.removeprefix('https:')}")


@dataclass(frozen=True, slots=True)
class NodesReader:
    """A reader of many nodes' exporters, which answers like the cluster role: nodes that do not answer are named."""

    by_node: Mapping[str, ShownReader]

    def ask(self, _: View) -> Answered:
        """See TopReader. Raises Gone if no node's exporter answers."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = [*pool.map(_rows_of, self.by_node.values())]

        if all(isinstance(answer, str) for answer in answers):
            raise Gone(str(answers[0]))

        rows = [row for answer in answers if not isinstance(answer, str) for row in answer]
        nodes = [
            {"name": node, "missing": isinstance(answer, str), "message": answer}
            for node, answer in zip(self.by_node, answers, strict=True)
        ]
        shown = shown_of("cluster", f"{len(nodes)} node exporters", {"nodes": nodes}, rows, "")

        return Answered(replace(shown, processes_trouble=processes_are_elsewhere(ProxyTransport.way_to_node)), rows)


def _rows_of(reader: ShownReader) -> Sequence[DeviceRow] | str:
    """A node's rows, or the reason why it has none."""
    try:
        answer = reader.ask("devices")
    except Gone as error:
        return str(error)

    return answer.shown.trouble or answer.rows


@dataclass(frozen=True, slots=True)
class NamespaceReader:
    """A reader of only those devices that pods of one namespace hold or use."""

    reader: TopReader
    namespace: str

    def ask(self, view: View) -> Answered:
        """See TopReader."""
        answer = self.reader.ask(view)
        devices = answer.shown.devices
        used = [
            device
            for device in devices
            if any(user.namespace == self.namespace for user in (*device.holders, *device.strangers))
        ]
        gpus = {use.gpu_name for use in used}
        left = [*(device for device in devices if device.mig_instances and device.gpu_name in gpus), *used]

        return replace(answer, shown=replace(answer.shown, devices=left, of_pods_in=self.namespace))


def locate(kubectl: Kubectl, named: str | None) -> ShownReader | NodesReader:
    """Find the exporter that answers for the cluster, or else those of its nodes. `named` is the flag's value.

    Raises:
        Gone: there is none, or there are several, or the user has no right to look.
    """
    namespace, _, service = (named or "").partition("/")
    if service:
        name, _, port = service.partition(":")
        return proxied(kubectl, "services", namespace, name, port or PORT)

    try:
        services = _labelled(kubectl, "services", namespace, CLUSTER)
    except KubectlRefusal as error:
        if not error.is_forbidden:
            raise
        # a user without the right to list Services may have the right to ask this one
        return proxied(kubectl, "services", namespace or NAMESPACE, CLUSTER, PORT)

    if len(services) > 1:
        raise Gone(f"there are several cluster roles, {_names(services)} -> {_NAME_IT}")

    if services:
        return proxied(kubectl, "services", *place_of(services[0]), _port_of(services[0], PORT))

    pods = node_exporters(kubectl, namespace)
    if not pods:
        where = f"in the namespace {namespace}" if namespace else "in this cluster"
        raise Gone(
            f"no exporter runs {where}: no Service is labelled app.kubernetes.io/name={CLUSTER}, and no pod"
            f" {NODE} -> install it (docs/install.md); if it has other labels, {_NAME_IT}; top, who and idle do"
            " without it: --nothing-installed"
        )

    return NodesReader({node: reader_of_pod(kubectl, pods[node]) for node in sorted(pods, key=as_people_count)})


def node_exporters(kubectl: Kubectl, namespace: str, **fields: str) -> Mapping[str, AnyObject]:
    """The running pods of node exporters, by node.

    Raises:
        Gone: a node has several, or the user has no right to look.
    """
    pods: dict[str, AnyObject] = {}
    for pod in _labelled(kubectl, "pods", namespace, NODE, **fields):
        node = text(mapping(pod, "spec"), "nodeName")
        if _is_running(pod):
            if node in pods:
                both = _names((pods[node], pod))
                raise Gone(f"there are several exporters on the node {node}: {both} -> name one: {FLAG} NAMESPACE")
            pods[node] = pod

    return pods


def pods_of_node(kubectl: Kubectl, namespace: str, node: str) -> Sequence[AnyObject]:
    """The pods of node exporters on a node, also those that do not run, the newest last. Raises as node_exporters."""
    pods = _labelled(kubectl, "pods", namespace, NODE, fieldSelector=f"spec.nodeName={node}")
    # where several are there, the one that runs
    return sorted(pods, key=lambda pod: (_is_running(pod), text(mapping(pod, "metadata"), "creationTimestamp")))


def _is_running(pod: AnyObject) -> bool:
    is_ending = mapping(pod, "metadata").get("deletionTimestamp")
    return text(mapping(pod, "status"), "phase") == "Running" and not is_ending


def container_of(pod: AnyObject) -> tuple[str, str]:
    """The name of the exporter's container in its pod, and the number of its port.

    It is the container with a port of the name PORT, else the one whose name says so, else the only one.
    """
    containers = mappings(mapping(pod, "spec"), "containers")
    for container in containers:
        for port in mappings(container, "ports"):
            if port.get("name") == PORT:
                return text(container, "name"), str(port.get("containerPort"))

    names = [text(container, "name") for container in containers]

    return next((name for name in _CONTAINERS if name in names), names[-1] if names else ""), _DEFAULT_PORT


def reader_of_pod(kubectl: Kubectl, pod: AnyObject) -> ShownReader:
    """The reader of the exporter in a pod."""
    return proxied(kubectl, "pods", *place_of(pod), container_of(pod)[1])


def ways_to_pod(kubectl: Kubectl, pod: AnyObject) -> list[ProxyTransport]:
    """The ways to the exporter in a pod: it may speak HTTP or HTTPS."""
    namespace, name = place_of(pod)
    port = container_of(pod)[1]
    return [_way(kubectl, "pods", namespace, f"{scheme}{name}", port) for scheme in ("", "https:")]


def prometheus_of(kubectl: Kubectl, named: str | None, query_seconds: float) -> ProxiedPrometheus:
    """The Prometheus that a flag names as NAMESPACE/SERVICE[:PORT], or the only one in the cluster.

    Raises:
        Gone: there is none, or there are several, or the user has no right to look.
    """
    namespace, _, service = (named or "").partition("/")
    name, _, port = service.partition(":")
    if not port:
        by_label = [{"labelSelector": selector} for selector in _PROMETHEUS]
        selectors = [{"fieldSelector": f"metadata.name={name}"}] if name else by_label
        try:
            services = next(
                filter(None, (kubectl.items("services", namespace, **selector) for selector in selectors)), ()
            )
        except KubectlRefusal as error:
            raise Gone(f"{str(error).partition(' -> ')[0]} -> {_NAME_PROMETHEUS}") from error
        if len(services) != 1:
            there = f"several Prometheus servers, {_names(services)}" if services else f"no Prometheus {name}".rstrip()
            raise Gone(f"there is {there} -> {_NAME_PROMETHEUS}")
        (namespace, name), port = place_of(services[0]), _port_of(services[0], "web", "http-web", "http")

    return ProxiedPrometheus(_way(kubectl, "services", namespace, name, port), query_seconds)


def _port_of(service: AnyObject, *names: str) -> str:
    """The number of a Service's port: the first of these names that it has, else its first port."""
    ports = {text(port, "name"): str(port.get("port")) for port in mappings(mapping(service, "spec"), "ports")}
    return next((ports[name] for name in names if name in ports), next(iter(ports.values()), "80"))


def _labelled(kubectl: Kubectl, plural: str, namespace: str, name: str, **fields: str) -> Sequence[AnyObject]:
    """The objects of an app, in a namespace or in all ("").

    If the user may not look into all namespaces, the manifests' own namespace is searched.
    """
    selectors = {"labelSelector": f"app.kubernetes.io/name={name}", **fields}
    if not namespace:
        with suppress(KubectlRefusal):
            return kubectl.items(plural, "", **selectors)

    return kubectl.items(plural, namespace or NAMESPACE, **selectors)


def _names(items: Iterable[AnyObject]) -> str:
    return ", ".join("/".join(place_of(item)) for item in items)
