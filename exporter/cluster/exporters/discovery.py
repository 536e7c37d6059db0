"""The places of a cluster's node exporters: by the EndpointSlices of a Service, or by the labels of pods.

The author of a pod writes its labels, so they prove nothing: this source reads one namespace alone. It takes the node's
name from these objects, where the control plane writes it, and not from the exporter's answer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from exporter.config.cluster_settings import DEFAULT_PORT, ClusterSettings
from exporter.config.parsers import Address
from exporter.errors import Malformed
from exporter.sources.cluster_source import ExporterPlace
from exporter.sources.kubernetes.api import KubernetesApi, Object
from exporter.sources.kubernetes.list_watch import ListWatch
from exporter.sources.node_pods import ENDED_PHASES
from exporter.sources.source import Bound, Bounds, OnHealth

ENDPOINT_SLICES = "endpointslices"
EXPORTER_PODS = "exporter_pods"
SERVICE_LABEL = "kubernetes.io/service-name"
# The names that this program's manifests, and other people's Services, give to the port.
USUAL_PORTS = ("metrics", "http-metrics", "http")
# Several times the nodes that are asked (sources/exporters). A slice has at most 1,000 endpoints.
MOST_FOUND = 20_000
MEANWHILE = "the known exporters are still asked, but no new one is found"
MANIFEST = "deploy/cluster.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPlace:
    """An exporter that may be a node's exporter.

    Attributes:
        node: the node's name; "" if it is not known.
        address: where it answers; None if it has no address yet.
        rank: orders the exporters of a node; the lowest is asked.
        caution: see `ExporterPlace`.
    """

    node: str
    address: Address | None
    rank: tuple[bool | str, ...]
    caution: str = ""


class ExporterPlaces(ListWatch):
    """The places of node exporters (`Places`), by a collection of the Kubernetes API."""

    def __init__(
        self,
        name: str,
        *,
        api: KubernetesApi,
        path: str,
        labels: str,
        looked_for: str,
        scheme: str,
        read: Callable[[Object], Sequence[NamedPlace]],
        on_health: OnHealth,
    ) -> None:
        """`read` returns the exporters that an object of `path` names; `labels` is a selector of these objects.

        `looked_for` names the objects in errors. `scheme` (http or https) begins the exporters' URLs.
        """
        self.looked_for = looked_for
        self.places: Mapping[str, ExporterPlace] | None = None
        self.bounds: Bounds = {name: Bound(MOST_FOUND, lambda: self._count)}
        self._scheme = scheme
        self._on_change: Callable[[], None] = lambda: None
        self._places_of: dict[str, Sequence[NamedPlace]] = {}
        self._count = 0
        super().__init__(
            name,
            api,
            paths=(path,),
            labels=labels,
            read=lambda item: (_text(item["metadata"]["name"]), read(item)),
            replace=self._replace,
            put=self._put,
            remove=self._remove,
            on_health=on_health,
        )

    def follow(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` whenever the places have changed."""
        self._on_change = on_change

    def _put(self, named: tuple[str, Sequence[NamedPlace]]) -> None:
        self._replace((*self._places_of.items(), named))

    def _remove(self, named: tuple[str, Sequence[NamedPlace]]) -> None:
        self._replace([(name, places) for name, places in self._places_of.items() if name != named[0]])

    def _replace(self, named: Sequence[tuple[str, Sequence[NamedPlace]]]) -> None:
        """Replace all places by these, which have the names of their objects. Raises Malformed: they are too many."""
        places_of = dict(named)
        count = sum(map(len, places_of.values()))
        if count > MOST_FOUND:
            raise Malformed(
                "oversize",
                f"{self.looked_for} names {count} exporters; at most {MOST_FOUND} are read",
                remedy="does it select node exporters only? For a very large cluster, use --cluster.prometheus",
            )
        self._places_of = places_of
        self._count = count
        before = self.places or {}
        places = {}
        for key, best_place in _best(chain.from_iterable(places_of.values())).items():
            url = f"{self._scheme}://{best_place.address}" if best_place.address else ""
            place = ExporterPlace(url=url, is_named=bool(best_place.node), caution=best_place.caution)
            places[key] = before[key] if before.get(key) == place else place
        if self.places is None or places != self.places:
            self.places = MappingProxyType(places)
            self._on_change()


def exporter_places(
    *, api: KubernetesApi, cluster: ClusterSettings, scheme: str, on_health: OnHealth
) -> ExporterPlaces:
    """The endpoints of --cluster.service, or the pods of --cluster.selector."""
    if cluster.service:
        namespace, service = cluster.service
        return ExporterPlaces(
            ENDPOINT_SLICES,
            api=api,
            path=f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
            labels=f"{SERVICE_LABEL}={service}",
            looked_for=f"the Service {namespace}/{service} (--cluster.service)",
            scheme=scheme,
            read=lambda item: read_slice(item, cluster.port or ""),
            on_health=on_health,
        )
    labels = ",".join(f"{name}={value}" for name, value in cluster.selector or ())
    return ExporterPlaces(
        EXPORTER_PODS,
        api=api,
        path=f"/api/v1/namespaces/{cluster.namespace}/pods",
        labels=labels,
        looked_for=f"the pods with {labels} in the namespace {cluster.namespace} (--cluster.selector)",
        scheme=scheme,
        read=lambda item: read_pod(item, int(cluster.port or DEFAULT_PORT)),
        on_health=on_health,
    )


def read_slice(item: Object, wanted: str) -> Sequence[NamedPlace]:
    """The endpoints of an EndpointSlice of discovery.k8s.io/v1, each by its first address (the API wants only one).

    `wanted` is the name or the number of the port; "" means the only port, or the port with a usual name.
    """
    port = _port(item.get("ports") or (), wanted)
    kind = str(item.get("addressType", ""))
    places = []
    for endpoint in item.get("endpoints") or ():
        conditions = endpoint.get("conditions") or {}
        # "nil should be interpreted as true" (in the API's own words)
        is_ready = conditions.get("ready") is not False
        is_ending = conditions.get("terminating") is True
        host = _host(endpoint["addresses"][0])
        caution = "its pod is ending" if is_ending else "" if is_ready else "its pod is not ready"
        places.append(
            NamedPlace(
                node=_text(endpoint.get("nodeName") or ""),
                address=Address(host=host, port=port) if port else None,
                # a pod with addresses of both families is asked by IPv4
                rank=(not port, is_ending, not is_ready, kind, host),
                caution=caution
                if port
                else "its Service has no port of the name metrics, or of the name in --cluster.port",
            )
        )
    return places


def read_pod(item: Object, port: int) -> Sequence[NamedPlace]:
    """The exporter in a Pod of core/v1; none if the pod has no node yet."""
    metadata = item.get("metadata", {})
    status = item.get("status", {})
    node = _text(item.get("spec", {}).get("nodeName") or "")
    if not node:
        return ()
    phase = str(status.get("phase", ""))
    is_ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    is_ending = bool(metadata.get("deletionTimestamp"))
    has_ended = phase in ENDED_PHASES
    ip = status.get("podIP") or ""
    caution = "" if is_ready else f"its pod is not ready (phase {phase})"
    return (
        NamedPlace(
            node=node,
            address=Address(host=_host(ip), port=port) if ip and not has_ended else None,
            rank=(has_ended, is_ending, not is_ready, str(metadata.get("name", ""))),
            caution="its pod is ending" if is_ending else caution,
        ),
    )


def _best(places: Iterable[NamedPlace]) -> dict[str, NamedPlace]:
    """The exporter to ask of each node, by the node's name, or by the address if the name is not known."""
    best: dict[str, NamedPlace] = {}
    for place in places:
        key = place.node or str(place.address or "")
        if not key:
            continue  # without a node and an address, it can be neither asked nor named
        if key not in best or place.rank < best[key].rank:
            best[key] = place
    return best


def _port(ports: Sequence[Object], wanted: str) -> int:
    """The number of the wanted port; 0 if there is none, or if several may be meant."""
    if wanted.isdigit():
        return int(wanted)
    numbers = {str(port.get("name") or ""): port.get("port") for port in ports if port.get("protocol", "TCP") == "TCP"}
    names = (wanted,) if wanted else tuple(numbers) if len(numbers) == 1 else USUAL_PORTS
    return next((number for name in names if type(number := numbers.get(name)) is int), 0)


def _host(address: object) -> str:
    """An address or a name that may stand in a URL. Raises ValueError: it may not."""
    text = _text(address)
    if not text or set(text) - _IN_HOSTS:
        raise ValueError(f"{text!r} is no address")
    return text


_IN_HOSTS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:-")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
