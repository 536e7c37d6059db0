"""`kubectl gpu queue`: rows of /container/metrics, and what the API server says of queues → a line a queue. Pure.

A row says that a container holds a device, and not which part of a GPU that is. So whole GPUs, shares and MIG instances
are counted apart. pod_gpu_allocated_ratio has their parts.

Tests: tests/kubectl/test_queue.py.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from exporter.dividing.figures import of_device
from exporter.kubectl.gpu_requests import DOMAIN
from exporter.kubectl.plain_table import plain_table
from exporter.kubectl.queue_lookup import ReadQueues
from exporter.kubectl.queue_objects import GPU_RESOURCE, QueueQuota, WaitingPod
from exporter.lenient import Object
from exporter.model.device_row import DeviceRow
from exporter.model.states import DeviceState, rounded
from exporter.wording import counted, one_line

_TITLES = (
    "QUEUE", "COHORT", "QUOTA", "ADMITTED", "GPUS", "SHARES", "MIG", "USED", "IDLE", "PODS", "WAITING", "PENDING",
)  # fmt: skip
_OF_WAITING = ("POD", "QUEUE", "ASKS FOR", "AGE", "WHY")
_OF_HOLDERS = ("POD", "NODE", "DEVICES", "IDLE")
_UNKNOWN = "-"
_NO_QUEUE = "(none)"
_MOST_WHY_CHARS = 120
_MOST_WAITING = 20


@dataclass(slots=True, kw_only=True)
class QueueLine:
    """A queue: what its object says (None: nobody could read it), the devices of its pods, and its waiting pods.

    `name` is "" for what belongs to no queue. `local_queues` are the LocalQueues that feed it, as NAMESPACE/NAME.
    """

    name: str
    quota: QueueQuota | None = None
    local_queues: list[str] = field(default_factory=list)
    rows: list[DeviceRow] = field(default_factory=list)
    waiting: list[WaitingPod] = field(default_factory=list)

    @property
    def gpus(self) -> int:
        """Whole GPUs that a container holds alone."""
        return sum(row.entity != "mig" and not row.gpu_shared for row in self.rows)

    @property
    def shares(self) -> int:
        """Containers on devices that others hold, too."""
        return sum(row.gpu_shared for row in self.rows)

    @property
    def mig_instances(self) -> int:
        """MIG instances that a container holds alone."""
        return sum(row.entity == "mig" and not row.gpu_shared for row in self.rows)

    @property
    def used(self) -> float | None:
        """The activity of its devices, added up, as far as it is known; None if it is of none."""
        activities = [row.own_activity if row.gpu_shared else of_device([row]).activity for row in self.rows]
        measured = [activity for activity in activities if activity is not None]
        return sum(measured) if measured else None

    @property
    def idle(self) -> int:
        """Devices that are held idle."""
        return sum(row.state is DeviceState.IDLE for row in self.rows)

    @property
    def pods(self) -> Sequence[str]:
        """The pods that hold devices."""
        return sorted({row.pod_name for row in self.rows})

    def is_called(self, name: str, namespace: str) -> bool:
        """Whether a user means this queue: by its name, or by that of a LocalQueue, which may lack its namespace.

        Such a LocalQueue is of `namespace`, or of any if that is "".
        """
        names = [self.name or _NO_QUEUE, *self.local_queues]
        if name in names or f"{namespace}/{name}" in names:
            return True
        return not namespace and any(queue.partition("/")[2] == name for queue in names)

    def as_json(self) -> Object:
        """The line for programs. Without a quota that could be read, the fields about it are null."""
        quota = self.quota
        return {
            "queue": self.name,
            "system": quota.system if quota else None,
            "above": quota.above if quota else None,
            "local_queues": sorted(self.local_queues),
            "quota": dict(quota.quota) if quota else None,
            "reserved": dict(quota.reserved) if quota else None,
            "admitted": dict(quota.admitted) if quota else None,
            "pending_workloads": quota.pending if quota else None,
            "gpus": self.gpus,
            "shares": self.shares,
            "mig_instances": self.mig_instances,
            "used": self.used,
            "idle": self.idle,
            "pods": list(self.pods),
            "waiting": [
                {
                    "namespace": pod.namespace,
                    "pod": pod.pod,
                    "asks_for": list(pod.asks_for),
                    "gpus": pod.gpus,
                    "since": pod.since,
                    "why": pod.why,
                }
                for pod in self.waiting
            ],
        }


def lines_of(rows: Iterable[DeviceRow], read: ReadQueues) -> Sequence[QueueLine]:
    """A line for each queue, by name; what belongs to no queue is the last.

    A row's own queue counts, else the one that its pod's labels name. A LocalQueue whose ClusterQueue is known is that
    ClusterQueue.
    """
    lines: dict[str, QueueLine] = {name: QueueLine(name=name, quota=quota) for name, quota in read.quotas.items()}

    def line_of(queue: str) -> QueueLine:
        name = read.cluster_queues.get(queue) or queue
        return lines.setdefault(name, QueueLine(name=name))

    for local_queue, cluster_queue in read.cluster_queues.items():
        if cluster_queue in lines:
            lines[cluster_queue].local_queues.append(local_queue)
    for row in rows:
        if row.pod and row.state is not DeviceState.CUT:
            queue = row.queue or read.queues_of_pods.get((row.namespace, row.pod), "")
            line_of(queue).rows.append(row)
    for pod in read.waiting:
        line_of(pod.queue).waiting.append(pod)
    return sorted(lines.values(), key=lambda line: (not line.name, line.name))


def table(lines: Sequence[QueueLine], now: datetime, *, with_pods: bool) -> str:
    """The lines for people, then the pods that hold devices (`with_pods`), and the pods that wait.

    Without `with_pods` those that have waited longest, so that the lines of queues stay on the screen.
    """
    tables = [plain_table([_TITLES, *map(_cells, lines)])]
    holders = [cells for line in lines for cells in _holders(line)]
    if with_pods and holders:
        tables.append(plain_table([_OF_HOLDERS, *holders]))
    waiting = [(line.name or _NO_QUEUE, pod) for line in lines for pod in line.waiting]
    waiting.sort(key=lambda named: named[1].since or "z")
    shown = waiting if with_pods else waiting[:_MOST_WAITING]
    if shown:
        more = len(waiting) - len(shown)
        rest = f"and {counted(more, 'pod')} more, which have waited for less; with QUEUE all of a queue are shown\n"
        those = plain_table([_OF_WAITING, *(_waiting(name, pod, now) for name, pod in shown)])
        tables.append(f"{those}{rest}" if more else those)
    return "\n".join(tables)


def _cells(line: QueueLine) -> Sequence[str]:
    """The line's cells, in the order of _TITLES."""
    quota, used = line.quota, line.used
    waiting = counted(len(line.waiting), "pod")
    gpus = sum(pod.gpus for pod in line.waiting)
    return (
        line.name or _NO_QUEUE,
        (quota.above if quota else "") or _UNKNOWN,
        _amounts(quota.quota) if quota else _UNKNOWN,
        _amounts(quota.admitted) if quota else _UNKNOWN,
        str(line.gpus),
        str(line.shares),
        str(line.mig_instances),
        _UNKNOWN if used is None else f"{used:.1f}",
        str(line.idle),
        str(len(line.pods)),
        f"{waiting}, {counted(gpus, 'GPU')}" if line.waiting else "0",
        _UNKNOWN if quota is None or quota.pending is None else str(quota.pending),
    )


def _amounts(amounts: Mapping[str, float]) -> str:
    """`12` of GPUs, and of other resources with their names: `12, 7 mig-1g.10gb`."""
    texts: list[str] = []
    for resource in sorted(amounts, key=lambda name: (name != GPU_RESOURCE, name)):
        what = "" if resource == GPU_RESOURCE else f" {resource.removeprefix(DOMAIN)}"
        texts.append(f"{amounts[resource]:g}{what}")
    return ", ".join(texts) or _UNKNOWN


def _holders(line: QueueLine) -> Iterator[Sequence[str]]:
    """The pods that hold devices, each with its node, devices, and how many of these are idle."""
    by_pod: dict[tuple[str, str], list[DeviceRow]] = {}
    for row in line.rows:
        by_pod.setdefault((row.pod_name, row.node_name), []).append(row)
    for (pod, node), rows in sorted(by_pod.items()):
        idle = sum(row.state is DeviceState.IDLE for row in rows)
        yield (pod, node, ", ".join(dict.fromkeys(row.label for row in rows)), str(idle))


def _waiting(queue: str, pod: WaitingPod, now: datetime) -> Sequence[str]:
    """The cells of a pod that waits, with the queue's name as the first table has it."""
    try:
        began = datetime.fromisoformat(pod.since)
        waited = rounded(int((now - began).total_seconds())) or "now"
    except (ValueError, TypeError):
        # no moment, or one without a zone
        waited = _UNKNOWN
    why = one_line(pod.why, _MOST_WHY_CHARS) or _UNKNOWN
    return (pod.name, queue, ", ".join(pod.asks_for), waited, why)
