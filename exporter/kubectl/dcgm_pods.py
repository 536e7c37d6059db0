"""The dcgm-exporters of a cluster: pods by their labels, with the port and the scheme of their pages.

Labels, namespaces and ports are those of the charts and operators that install it:

- NVIDIA's GPU operator: `app=nvidia-dcgm-exporter` (assets/state-dcgm-exporter), in the namespace gpu-operator, with
  OpenShift nvidia-gpu-operator, and gpu-operator-resources in old releases;
- dcgm-exporter's own chart and manifest: `app.kubernetes.io/name=dcgm-exporter`;
- Google's GKE: `app.kubernetes.io/name=gke-managed-dcgm-exporter`, in gke-managed-system;
- Amazon's CloudWatch Observability add-on: `app.kubernetes.io/component=dcgm-exporter`, in amazon-cloudwatch. It speaks
  HTTPS.

All of them name the container's port `metrics`, and use 9400.

Tests: tests/kubectl/test_nothing_installed.py.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import quote

from exporter.kubectl.api_proxy import ApiProxy
from exporter.kubectl.binary import KubectlRefusal, place_of
from exporter.kubectl.places import FLAG, container_of
from exporter.lenient import AnyObject, mapping, mappings, text
from exporter.top.transport import Gone

SELECTORS = (
    "app in (nvidia-dcgm-exporter,dcgm-exporter)",
    "app.kubernetes.io/name in (dcgm-exporter,gke-managed-dcgm-exporter)",
    "app.kubernetes.io/component=dcgm-exporter",
)
NAMESPACES = (
    "gpu-operator",
    "nvidia-gpu-operator",
    "gke-managed-system",
    "amazon-cloudwatch",
    "dcgm-exporter",
    "monitoring",
    "gpu-operator-resources",
    "kube-system",
)
RIGHTS = "ask the cluster's admin for the ClusterRole pod-gpu-metrics-trial (deploy/kubectl/nothing-installed.yaml)"
# NVIDIA's GPU feature discovery, which comes with its operator and its device plugin, and GKE
_OF_GPU_NODES = ("nvidia.com/gpu.present=true", "cloud.google.com/gke-accelerator")
_SECONDS = 20.0
_MOST_PODS = 10_000
_PROBES = ("readinessProbe", "livenessProbe", "startupProbe")


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmPod:
    """A pod of dcgm-exporter. `schemes` are the URL schemes that it may speak, the likelier first.

    `silence` is the reason why it cannot answer now; "" if it runs.
    """

    node: str
    namespace: str
    name: str
    port: str
    schemes: tuple[str, str]
    silence: str

    def path(self, scheme: str) -> str:
        """The path of its page behind the API server's proxy."""
        prefix = "https:" if scheme == "https" else ""
        place = f"/api/v1/namespaces/{quote(self.namespace, safe='')}/pods"
        return f"{place}/{prefix}{quote(self.name, safe='')}:{self.port}/proxy/metrics"


def find(api: ApiProxy, namespace: str) -> Mapping[str, Sequence[DcgmPod]]:
    """The dcgm-exporters in a namespace, or in all (""), by node. A node may have several: those that run come first.

    A user who may not list the pods of all namespaces gets those of the namespaces where dcgm-exporter usually is.

    Raises:
        Gone: there is none, or the user has no right to look.
    """
    try:
        items = _listed(api, namespace)
    except KubectlRefusal as error:
        if namespace or not error.is_forbidden:
            raise
        items = _in_usual_namespaces(api, error)
    by_node: dict[str, list[DcgmPod]] = {}
    for pod in sorted(map(_dcgm_pod, items), key=lambda pod: bool(pod.silence)):
        if pod.node:
            by_node.setdefault(pod.node, []).append(pod)
    if not by_node:
        where = f"in the namespace {namespace}" if namespace else "in this cluster"
        raise Gone(
            f"no dcgm-exporter runs {where}: no pod has one of the labels {', '.join(SELECTORS)} -> install NVIDIA's"
            f" GPU operator or dcgm-exporter; if it has other labels, add app=dcgm-exporter to its pods"
        )

    return by_node


def nodes_with_gpus(api: ApiProxy) -> Collection[str]:
    """The nodes that have GPUs by their labels. Empty if the user may not list nodes."""
    names: set[str] = set()
    for selector in _OF_GPU_NODES:
        try:
            nodes = api.item("/api/v1/nodes", _SECONDS, metadata_only=True, labelSelector=selector)
        except KubectlRefusal:
            return ()
        names.update(place_of(node)[1] for node in mappings(nodes, "items", _MOST_PODS))

    return names


def _in_usual_namespaces(api: ApiProxy, refusal: KubectlRefusal) -> Sequence[AnyObject]:
    """The pods in those of NAMESPACES that the user may look into. Raises Gone: in none of them."""
    may_look = False
    items: list[AnyObject] = []
    for namespace in NAMESPACES:
        try:
            items += _listed(api, namespace)
            may_look = True
        except KubectlRefusal as error:
            if not error.is_forbidden:
                raise
    if not may_look:
        why = refusal.without_remedy
        raise Gone(f"{why} -> {RIGHTS}, or name the namespace of dcgm-exporter: {FLAG} NAMESPACE") from refusal

    return items


def _listed(api: ApiProxy, namespace: str) -> Iterable[AnyObject]:
    """The pods with one of the labels, once each."""
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    pods: dict[tuple[str, str], AnyObject] = {}

    def of_selector(selector: str) -> Sequence[AnyObject]:
        return mappings(api.item(path, _SECONDS, labelSelector=selector), "items", _MOST_PODS)

    threads = ThreadPoolExecutor(len(SELECTORS))
    try:
        for items in threads.map(of_selector, SELECTORS):
            pods.update((place_of(pod), pod) for pod in items)
    finally:
        # after Ctrl-C nobody waits for their answers: they end with kubectl proxy
        threads.shutdown(wait=False, cancel_futures=True)

    return pods.values()


def _dcgm_pod(pod: AnyObject) -> DcgmPod:
    namespace, name = place_of(pod)
    container, port = container_of(pod)
    schemes = ("https", "http") if _speaks_https(pod, container) else ("http", "https")
    phase = text(mapping(pod, "status"), "phase")
    silence = "" if phase == "Running" else f"the pod {namespace}/{name} of dcgm-exporter is {phase or 'not there yet'}"
    if mapping(pod, "metadata").get("deletionTimestamp"):
        silence = f"the pod {namespace}/{name} of dcgm-exporter is being deleted"
    node = text(mapping(pod, "spec"), "nodeName")

    return DcgmPod(node=node, namespace=namespace, name=name, port=port, schemes=schemes, silence=silence)


def _speaks_https(pod: AnyObject, name: str) -> bool:
    return any(
        text(mapping(container, probe, "httpGet"), "scheme") == "HTTPS"
        for container in _containers(pod, name)
        for probe in _PROBES
    )


def _containers(pod: AnyObject, name: str) -> Iterator[AnyObject]:
    for container in mappings(mapping(pod, "spec"), "containers"):
        if text(container, "name") == name:
            yield container
