"""The queue of a pod: the one whose quota it takes, by the labels that queueing systems write or read on pods. Pure.

Kueue 0.17 and later writes kueue.x-k8s.io/cluster-queue-name on every pod that it admits (its feature gate
AssignQueueLabelsForPods, on by default; pkg/constants/constants.go). Older versions leave on pods what their authors
wrote: kueue.x-k8s.io/queue-name, which names a LocalQueue of the pod's namespace. It is on plain pods and on those of
Deployments, StatefulSets and LeaderWorkerSets. A Job has it on the Job alone, so that its pods show no queue then.

KAI Scheduler reads kai.scheduler/queue (its default; runai/queue before 0.6, and in Run:ai).

A ClusterQueue, and a queue of KAI's, is one of the whole cluster. A LocalQueue is not, and no label of the pod says
which ClusterQueue it feeds. So it stands as NAMESPACE/NAME: no name of a queue has a slash, and namespaces whose
LocalQueues have the same name are not added up.
"""

from collections.abc import Iterable

from exporter.model.devices import AddedLabels
from exporter.model.pods import PodInfo

QUEUE_LABEL = "queue"
KUEUE_CLUSTER_QUEUE = "kueue.x-k8s.io/cluster-queue-name"
KUEUE_LOCAL_QUEUES = ("kueue.x-k8s.io/local-queue-name", "kueue.x-k8s.io/queue-name")
KAI_QUEUES = ("kai.scheduler/queue", "runai/queue")
# the labels of pods that are read
QUEUE_KEYS = (KUEUE_CLUSTER_QUEUE, *KUEUE_LOCAL_QUEUES, *KAI_QUEUES)


def queue_of(pod: PodInfo) -> str:
    """The pod's queue: a ClusterQueue, NAMESPACE/NAME for a LocalQueue, or a queue of KAI's; "" if it has none."""
    labels = pod.labels
    cluster_queue = labels.get(KUEUE_CLUSTER_QUEUE)
    if cluster_queue:
        return cluster_queue
    local_queue = next((labels[key] for key in KUEUE_LOCAL_QUEUES if labels.get(key)), "")
    if local_queue:
        return f"{pod.namespace}/{local_queue}"
    return next((labels[key] for key in KAI_QUEUES if labels.get(key)), "")


def labels_of_queue(pod: PodInfo) -> AddedLabels:
    """The label with the pod's queue; none if it has none."""
    queue = queue_of(pod)
    return ((QUEUE_LABEL, queue),) if queue else ()


def queue_among(labels: Iterable[tuple[str, str]]) -> str:
    """The queue among the labels that a pod has in the accounts; "" if there is none."""
    return next((value for name, value in labels if name == QUEUE_LABEL), "")
