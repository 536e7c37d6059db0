"""The queues, and the pods that wait, as far as the user may read them of the Kubernetes API.

Tests: tests/kubectl/test_queue.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exporter.kubectl.binary import Kubectl, KubectlRefusal, place_of
from exporter.kubectl.queue_objects import (
    QueueQuota,
    WaitingPod,
    cluster_queues_of,
    of_cluster_queue,
    of_kai_queue,
    queue_of_pod,
    waiting_pod,
)
from exporter.lenient import AnyObject, mapping, mappings, text
from exporter.model.pods import PodName

_KUEUE = "kueue.x-k8s.io"
_KAI = "scheduling.run.ai"
_MOST = 50_000


@dataclass(slots=True, kw_only=True)
class ReadQueues:
    """What could be read.

    Attributes:
        quotas: the queues of Kueue and KAI, by name.
        cluster_queues: the ClusterQueue of each LocalQueue, by NAMESPACE/NAME.
        queues_of_pods: the queue that the labels of each pod name, by namespace and pod.
        waiting: the pods that wait for GPUs.
        not_read: a sentence for each thing that could not be read, and why.
    """

    quotas: dict[str, QueueQuota] = field(default_factory=dict)
    cluster_queues: Mapping[str, str] = field(default_factory=dict)
    queues_of_pods: Mapping[PodName, str] = field(default_factory=dict)
    waiting: Sequence[WaitingPod] = ()
    not_read: list[str] = field(default_factory=list)


def read_queues(kubectl: Kubectl, namespace: str) -> ReadQueues:
    """Read all that there is. `namespace` is that of the pods, "" for all.

    Raises:
        Gone: kubectl could not ask at all.
    """
    read = ReadQueues()
    pods = _pods(kubectl, namespace, read)
    read.queues_of_pods = {place_of(pod): queue_of_pod(pod) for pod in pods}
    read.waiting = [waiting for waiting in map(waiting_pod, pods) if waiting is not None]
    version = _version(kubectl, _KUEUE, read)
    if version:
        for item in _listed(kubectl, f"/apis/{_KUEUE}/{version}/clusterqueues", "quotas of Kueue", read):
            quota = of_cluster_queue(item)
            read.quotas[quota.name] = quota
        place = f"namespaces/{namespace}/localqueues" if namespace else "localqueues"
        what = "which ClusterQueue a LocalQueue feeds"
        read.cluster_queues = cluster_queues_of(_listed(kubectl, f"/apis/{_KUEUE}/{version}/{place}", what, read))
    version = _version(kubectl, _KAI, read)
    if version:
        for item in _listed(kubectl, f"/apis/{_KAI}/{version}/queues", "quotas of KAI Scheduler", read):
            quota = of_kai_queue(item)
            if quota.name in read.quotas:
                read.not_read.append(
                    f"the quota of KAI Scheduler's queue {quota.name}: a ClusterQueue has the same name"
                )
            read.quotas.setdefault(quota.name, quota)
    return read


def _version(kubectl: Kubectl, group: str, read: ReadQueues) -> str:
    """The version of an API group that the server prefers; "" if there is no such group, or it cannot be asked."""
    try:
        answer = kubectl.item(f"/apis/{group}")
    except KubectlRefusal as error:
        if error.reason != "NotFound":
            read.not_read.append(f"whether {group} is there: {error}")
        return ""
    return text(mapping(answer, "preferredVersion"), "version")


def _pods(kubectl: Kubectl, namespace: str, read: ReadQueues) -> Sequence[AnyObject]:
    """The pods of a namespace, or of all; if the user may not list those, of the namespace of the context."""
    try:
        return kubectl.items("pods", namespace)
    except KubectlRefusal as error:
        if namespace or not error.is_forbidden:
            read.not_read.append(f"pods that wait: {error}")
            return ()
        own = kubectl.namespace()
        read.not_read.append(f"pods that wait in other namespaces than {own}: {error}")
    return _pods(kubectl, own, read)


def _listed(kubectl: Kubectl, path: str, what: str, read: ReadQueues) -> Sequence[AnyObject]:
    try:
        return mappings(kubectl.item(path), "items", _MOST)
    except KubectlRefusal as error:
        read.not_read.append(f"{what}: {error}")
        return ()
