"""What objects of the Kubernetes API say of queues: Kueue's and KAI Scheduler's quotas, and pods that wait. Pure.

Kueue: ClusterQueue and LocalQueue of kueue.x-k8s.io, v1beta1 and v1beta2 (the cohort is `cohort` in the first and
`cohortName` in the second). KAI: Queue of scheduling.run.ai/v2, whose numbers are GPUs; -1 is no limit.

Tests: tests/kubectl/test_queue.py.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from exporter.kubectl.binary import place_of
from exporter.kubectl.gpu_requests import DOMAIN, GPU, pods_of
from exporter.lenient import AnyObject, finite, mapping, mappings, number, text
from exporter.model.pods import PodInfo
from exporter.ownership.queues import queue_of

KUEUE, KAI = "kueue", "kai"
GPU_RESOURCE = f"{DOMAIN}{GPU}"
_MOST = 10_000
_GPUS = (DOMAIN, "amd.com/gpu", "gpu.intel.com/")
_UNLIMITED = -1
# the forms of an amount of devices: 8, 1500m, 2k
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]*)?)([mkM]?)")
_TIMES = {"": 1.0, "m": 0.001, "k": 1e3, "M": 1e6}
_GATED = "SchedulingGated"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueQuota:
    """A ClusterQueue of Kueue's, or a queue of KAI's, as its object says.

    Amounts are by resource, of GPUs alone. What the object does not say is missing.

    Attributes:
        system: KUEUE or KAI.
        above: the cohort of a ClusterQueue, the parent of a queue of KAI's; "" for none.
        quota: the nominal quota of all flavors; the GPUs that a queue of KAI's deserves.
        reserved: what Kueue has reserved of it.
        admitted: what Kueue has admitted, and what KAI has allocated, its child queues included.
        pending: the workloads that Kueue has not admitted; None for KAI.
    """

    name: str
    system: str
    above: str
    quota: Mapping[str, float]
    reserved: Mapping[str, float]
    admitted: Mapping[str, float]
    pending: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A pod on no node yet that asks for GPUs.

    `asks_for` are amounts by resource, and for what has no amount its words. `since` is when it was made, as the API
    server writes it. `why` is the scheduler's word.
    """

    namespace: str
    pod: str
    queue: str
    asks_for: tuple[str, ...]
    gpus: int
    since: str
    why: str

    @property
    def name(self) -> str:
        """Namespace and pod, as kubectl writes them."""
        return f"{self.namespace}/{self.pod}"


def of_cluster_queue(item: AnyObject) -> QueueQuota:
    """A ClusterQueue."""
    spec, status = mapping(item, "spec"), mapping(item, "status")
    groups = mappings(spec, "resourceGroups")
    flavors = chain.from_iterable(mappings(group, "flavors") for group in groups)
    return QueueQuota(
        name=place_of(item)[1],
        system=KUEUE,
        above=text(spec, "cohortName") or text(spec, "cohort"),
        quota=_amounts(flavors, "nominalQuota"),
        reserved=_amounts(mappings(status, "flavorsReservation"), "total"),
        admitted=_amounts(mappings(status, "flavorsUsage"), "total"),
        pending=number(status, "pendingWorkloads"),
    )


def of_kai_queue(item: AnyObject) -> QueueQuota:
    """A queue of KAI Scheduler's."""
    quota = finite(mapping(item, "spec", "resources", "gpu"), "quota")
    allocated = mapping(item, "status", "allocated")
    amounts = {name: _amount(value) for name, value in allocated.items() if _is_gpu(name)}
    return QueueQuota(
        name=place_of(item)[1],
        system=KAI,
        above=text(mapping(item, "spec"), "parentQueue"),
        quota={} if quota is None or quota == _UNLIMITED else {GPU_RESOURCE: quota},
        reserved={},
        admitted={name: amount for name, amount in amounts.items() if amount is not None},
    )


def cluster_queues_of(local_queues: Iterable[AnyObject]) -> Mapping[str, str]:
    """The ClusterQueue of each LocalQueue, by NAMESPACE/NAME."""
    return {"/".join(place_of(item)): text(mapping(item, "spec"), "clusterQueue") for item in local_queues}


def queue_of_pod(pod: AnyObject) -> str:
    """The queue that the pod's labels name, as the exporter has it; "" for none."""
    namespace, name = place_of(pod)
    labels = mapping(pod, "metadata", "labels")
    texts = {key: value for key, value in labels.items() if isinstance(value, str)}
    return queue_of(PodInfo(namespace=namespace, name=name, uid="", labels=texts))


def waiting_pod(pod: AnyObject) -> WaitingPod | None:
    """The pod, if it waits for GPUs: it is pending, on no node, and asks for some."""
    is_waiting = text(mapping(pod, "status"), "phase") == "Pending" and not text(mapping(pod, "spec"), "nodeName")
    requests = pods_of([pod]).requests if is_waiting else ()
    if not requests:
        return None
    request = requests[0]
    asks_for = [f"{count} {kind}" for kind, count in sorted(request.whole.items())]
    asks_for += [words for words in (request.part, request.claim) if words]
    namespace, name = place_of(pod)
    return WaitingPod(
        namespace=namespace,
        pod=name,
        queue=queue_of_pod(pod),
        asks_for=tuple(asks_for),
        gpus=sum(request.whole.values()),
        since=text(mapping(pod, "metadata"), "creationTimestamp"),
        why=_why(pod),
    )


def _why(pod: AnyObject) -> str:
    """The reason why a pod is on no node: who holds it back, or what the scheduler says; "" if nobody said anything."""
    gates = [text(gate, "name") for gate in mappings(mapping(pod, "spec"), "schedulingGates")]
    conditions = mappings(mapping(pod, "status"), "conditions")
    scheduled = next((item for item in conditions if item.get("type") == "PodScheduled"), {})
    if gates and text(scheduled, "reason") in ("", _GATED):
        return f"held back by {', '.join(gates)}"
    reason, message = text(scheduled, "reason"), text(scheduled, "message")
    return f"{reason}: {message}" if reason and message else reason or message


def _amounts(flavors: Iterable[AnyObject], key: str) -> Mapping[str, float]:
    """The amounts of GPUs in lists of flavors, each with its resources; summed over the flavors, by resource."""
    sums: dict[str, float] = {}
    for flavor in flavors:
        for resource in mappings(flavor, "resources"):
            name = text(resource, "name")
            amount = _amount(resource.get(key)) if _is_gpu(name) else None
            if amount is not None:
                sums[name] = sums.get(name, 0.0) + amount
    return sums


def _is_gpu(resource: str) -> bool:
    return resource.startswith(_GPUS)


def _amount(value: object) -> float | None:
    """The amount of a quantity; None if it is written in a form that no amount of devices has."""
    match = _QUANTITY.fullmatch(str(value))
    return float(match[1]) * _TIMES[match[2]] if match else None
