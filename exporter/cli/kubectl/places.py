"""Where the exporter is in the cluster: the cluster role's Service, else the node exporters' pods, by their labels."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from itertools import chain

from exporter.cli.kubectl.binary import Kubectl, KubectlRefusal
from exporter.cli.top.asking import Answered, Gone, OtherProtocol, ShownReader
from exporter.cli.top.devices import Shown, ShownSource
from exporter.cli.top.state import View
from exporter.lenient import AnyObject, mapping, mappings, text
from exporter.model.states import DeviceState

FLAG = "--exporter"
NAMESPACE = "pod-gpu-metrics"  # of the shipped manifests, as the names that follow
CLUSTER, NODE = "pod-gpu-metrics-cluster", "pod-gpu-metrics-exporter"
PORT = "metrics"
_DEFAULT_PORT = "9400"
_AT_ONCE = 8
_NAME_IT = f"name one: {FLAG} NAMESPACE or {FLAG} NAMESPACE/SERVICE"
# what kubectl says of a status that the exporter itself answers with, and not the API server
_PASSED_ON = {
    "the server could not find the requested resource": HTTPStatus.NOT_FOUND,
    "the server is currently unable to handle the request": HTTPStatus.SERVICE_UNAVAILABLE,
}
_SPEAKS_TLS = ("rejected our request for an unknown reason", "malformed HTTP response", "EOF")


class ProxyTransport:
    """The API server's proxy to a Service or a pod. It passes no password on, and does not check a certificate."""

    def __init__(self, kubectl: Kubectl, path: str, url: str) -> None:
        """`path` is what the exporter's paths stand below."""
        self.url = url
        self._kubectl = kubectl
        self._path = path

    def get(self, path: str, **parameters: str) -> tuple[int, bytes]:
        """As Transport; kubectl tells no body of an error."""
        try:
            return HTTPStatus.OK, self._kubectl.raw(self._path + path, **parameters)
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


def proxied(kubectl: Kubectl, plural: str, namespace: str, name: str, port: str) -> ShownReader:
    """The exporter behind a Service or in a pod, whether it speaks HTTP or HTTPS."""
    return ShownReader([_way(kubectl, plural, namespace, f"{scheme}{name}", port) for scheme in ("", "https:")])


def _way(kubectl: Kubectl, plural: str, namespace: str, name: str, port: str) -> ProxyTransport:
    path = f"/api/v1/namespaces/{namespace}/{plural}/{name}:{port}/proxy"
    return ProxyTransport(kubectl, path, f"{plural.removesuffix('s')} {namespace}/{name.removeprefix('https:')}")


class NodesReader:
    """The exporters of many nodes, shown as the cluster role would show them. Of a node that fails its name is told."""

    def __init__(self, readers: Mapping[str, ShownReader]) -> None:
        """By node."""
        self._readers = readers

    def read(self, view: View) -> Shown:
        """As ShownReader. Raises Gone: no node's exporter answers."""
        return self.ask(view).shown

    def ask(self, view: View) -> Answered:
        """The same, with the objects of /container/metrics."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            tried = dict(
                zip(self._readers, pool.map(lambda each: _tried(each, view), self._readers.values()), strict=True)
            )
        answers = {node: answer for node, answer in tried.items() if isinstance(answer, Answered)}
        failures = {node: answer for node, answer in tried.items() if isinstance(answer, Gone)}
        if failures and not answers:
            raise next(iter(failures.values()))
        shown = [answer.shown for answer in answers.values()]
        processes = [*chain.from_iterable(each.processes or () for each in shown)]
        whole = replace(
            shown[0],
            role="cluster",
            url=f"{len(tried)} node exporters",
            node="",
            at=max(each.at for each in shown),
            devices=[*chain.from_iterable(each.devices for each in shown)],
            sources=[replace(of, name=f"{each.node} {of.name}") for each in shown for of in each.sources if not of.up],
            missing=[ShownSource(name=node, up=False, message=str(error)) for node, error in failures.items()],
            nodes=len(tried),
            trouble=shown[0].trouble if all(each.trouble for each in shown) else "",
            processes=processes if view == "processes" else None,
        )
        return Answered(whole, [*chain.from_iterable(answer.rows for answer in answers.values())])


def _tried(reader: ShownReader, view: View) -> Answered | Gone:
    try:
        return reader.ask(view)
    except Gone as error:
        return error


class NamespaceReader:
    """A reader's devices that pods of one namespace hold or use."""

    def __init__(self, reader: ShownReader | NodesReader, namespace: str) -> None:
        self._reader = reader
        self._namespace = namespace

    def read(self, view: View) -> Shown:
        """As the reader does."""
        shown = self._reader.read(view)
        held = [
            each
            for each in shown.devices
            if self._namespace in (of.namespace for of in (*each.holders, *each.strangers))
        ]
        gpus = {device.gpu for device in held}
        parents = [each for each in shown.devices if each.state is DeviceState.CUT and each.gpu in gpus]
        return replace(shown, devices=[*parents, *held])


def locate(kubectl: Kubectl, named: str | None) -> ShownReader | NodesReader:
    """The exporter that answers for the cluster, or those of its nodes; `named` is what the flag says.

    Raises Gone: there is none, or several, or the user may not look.
    """
    namespace, _, service = (named or "").partition("/")
    if service:
        name, _, port = service.partition(":")
        return proxied(kubectl, "services", namespace, name, port or PORT)
    try:
        services = _labelled(kubectl, "services", namespace, CLUSTER)
    except KubectlRefusal as error:
        if error.reason != "Forbidden":
            raise
        # who may not look for it may be allowed to ask it
        return proxied(kubectl, "services", namespace or NAMESPACE, CLUSTER, PORT)
    if len(services) > 1:
        raise Gone(f"there are several cluster roles, {_names(services)} -> {_NAME_IT}")
    for service_object in services:
        ports = mappings(mapping(service_object, "spec"), "ports")
        port = next((str(each.get("port")) for each in ports if each.get("name") == PORT), PORT)
        return proxied(kubectl, "services", *_place_of(service_object), port)
    pods = node_exporters(kubectl, namespace)
    if not pods:
        where = f"in the namespace {namespace}" if namespace else "in this cluster"
        raise Gone(
            f"no exporter runs {where}: no Service is labelled app.kubernetes.io/name={CLUSTER}, and no pod"
            f" {NODE} -> install it (docs/install.md); if it has other labels, {_NAME_IT}"
        )
    return NodesReader({node: reader_of_pod(kubectl, pod) for node, pod in pods.items()})


def node_exporters(kubectl: Kubectl, namespace: str, **fields: str) -> Mapping[str, AnyObject]:
    """The running pods of node exporters, by node. Raises Gone: a node has several, or the user may not look."""
    pods: dict[str, AnyObject] = {}
    for pod in _labelled(kubectl, "pods", namespace, NODE, **fields):
        node = text(mapping(pod, "spec"), "nodeName")
        if text(mapping(pod, "status"), "phase") != "Running" or mapping(pod, "metadata").get("deletionTimestamp"):
            continue
        if node in pods:
            both = _names((pods[node], pod))
            raise Gone(f"there are several exporters on the node {node}: {both} -> name one: {FLAG} NAMESPACE")
        pods[node] = pod
    return pods


def reader_of_pod(kubectl: Kubectl, pod: AnyObject) -> ShownReader:
    """The exporter in a pod."""
    containers = mappings(mapping(pod, "spec"), "containers")
    ports = chain.from_iterable(mappings(each, "ports") for each in containers)
    port = next((str(each.get("containerPort")) for each in ports if each.get("name") == PORT), _DEFAULT_PORT)
    return proxied(kubectl, "pods", *_place_of(pod), port)


def prometheus_of(kubectl: Kubectl, named: str | None) -> ProxyTransport:
    """The Prometheus that a flag names as NAMESPACE/SERVICE[:PORT], or the only one there is. Raises Gone."""
    if named:
        namespace, _, service = named.partition("/")
        name, _, port = service.partition(":")
        services = [kubectl.item(f"/api/v1/namespaces/{namespace}/services/{name}")] if not port else []
    else:
        services, port = [], ""
        for selector in ("operated-prometheus=true", "app.kubernetes.io/name=prometheus"):
            services = services or [*kubectl.items("services", "", labelSelector=selector)]
        if len(services) != 1:
            there = f"several Prometheus servers, {_names(services)}" if services else "no Prometheus"
            raise Gone(f"there is {there} -> name its Service: --prometheus NAMESPACE/SERVICE:PORT")
        namespace, name = _place_of(services[0])
    for ports in (mappings(mapping(each, "spec"), "ports") for each in services):
        names = {text(each, "name"): str(each.get("port")) for each in ports}
        port = next((names[each] for each in ("web", "http-web", "http") if each in names), "") or next(
            iter(names.values()), ""
        )
    return _way(kubectl, "services", namespace, name, port)


def _labelled(kubectl: Kubectl, plural: str, namespace: str, name: str, **fields: str) -> Sequence[AnyObject]:
    """The objects of an app, of a namespace or of all; of the manifests' where the user may not look into all."""
    selectors = {"labelSelector": f"app.kubernetes.io/name={name}", **fields}
    if not namespace:
        with suppress(KubectlRefusal):
            return kubectl.items(plural, "", **selectors)
    return kubectl.items(plural, namespace or NAMESPACE, **selectors)


def _place_of(item: AnyObject) -> tuple[str, str]:
    metadata = mapping(item, "metadata")
    return text(metadata, "namespace"), text(metadata, "name")


def _names(items: Iterable[AnyObject]) -> str:
    return ", ".join("/".join(_place_of(item)) for item in items)
