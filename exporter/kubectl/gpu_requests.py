"""What the pods of a node ask for → who holds the GPUs of which a page names no pod: for sure, or perhaps. Pure.

A pod's object says how many GPUs it asks for, and not which ones the kubelet and its device plugin gave it. So a
holder is sure only if the devices can be given out in no other way. Otherwise the pods that may hold a device are
named, and none of them is chosen.

The resources are those of NVIDIA's device plugin: nvidia.com/gpu, nvidia.com/mig-<profile>, and with .shared behind it
for time slicing that renames (config `renameByDefault`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from exporter.kubectl.binary import place_of
from exporter.lenient import AnyObject, mapping, mappings, text
from exporter.model.device_row import DeviceRow, in_its_state
from exporter.model.states import DeviceState
from exporter.ownership.allocators.gpu_groups import FRACTION, MEMORY
from exporter.wording import and_listed, listed

GPU = "gpu"
DOMAIN = "nvidia.com/"
_MIG = "mig-"
_SHARED = ".shared"
_OF_GPUS = (f"{DOMAIN}{GPU}", f"{DOMAIN}{_MIG}")
_ENDED = ("Succeeded", "Failed")
_MOST_NAMED = 4
_NO_PODS = "the page names no pods, and you may not list those of the node"
_KUBELET_KNOWS = "which ones, only the kubelet on the node knows"
_NODE_KNOWS = "you may not get the node, which says whether it shares GPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRequest:
    """The devices that a pod asks for: whole ones by their kind (`gpu`, or a MIG profile), and what no count shows.

    `part` is the word that asks for a part of a GPU, such as nvidia.com/gpu.shared, and `claim` the pod's first
    resource claim, which may be for any device; "" for none. `container` is the one that asks; "" if several do.
    """

    namespace: str
    pod: str
    container: str
    whole: Mapping[str, int]
    part: str
    claim: str

    @property
    def name(self) -> str:
        """Namespace and pod, as kubectl writes them."""
        return f"{self.namespace}/{self.pod}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePods:
    """The pods of a node: the phases of all by name, and the requests of those that may hold devices now."""

    phases: Mapping[str, str]
    requests: Sequence[GpuRequest]

    def why_gone(self, pod: str) -> str:
        """The reason why a pod of this name holds nothing; "" if it is there and has not ended."""
        phase = self.phases.get(pod)
        if phase is None:
            return f"the page still names {pod}, which is not on this node any more"

        if phase in _ENDED:
            return f"the page still names {pod}, which has ended ({phase})"

        return ""


def pods_of(items: Iterable[AnyObject]) -> NodePods:
    """The pods in a list of the API server."""
    phases: dict[str, str] = {}
    requests: list[GpuRequest] = []

    for pod in items:
        phase = text(mapping(pod, "status"), "phase")
        phases["/".join(place_of(pod))] = phase
        if phase in _ENDED:
            continue

        request = _request_of(pod)
        if request.whole or request.part or request.claim:
            requests.append(request)

    return NodePods(phases=phases, requests=requests)


def offered_by(node: AnyObject) -> Mapping[str, int]:
    """The devices that a node has to give by their kinds: allocatable of its status, of a Node object."""
    return _whole(mapping(node, "status", "allocatable"))


def with_holders(
    rows: Sequence[DeviceRow], pods: NodePods | None, offered: Mapping[str, int] | None
) -> Sequence[DeviceRow]:
    """The rows of a node, with the holders that pods' requests tell, and the reasons why others are not known.

    Args:
        rows: the rows of the page.
        pods: the pods of the node; None if nobody may list them.
        offered: see `offered_by`; None if nobody may read the node.
    """
    if pods is not None:
        placing = _Placing(rows, pods, offered)
        return [placing.placed(row) for row in rows]

    if any(row.pod for row in rows):
        return rows

    return [in_its_state(row, why_unknown=_NO_PODS) for row in rows]


class _Placing:
    """The holders of a node's devices, as far as pods' requests tell them."""

    def __init__(self, rows: Sequence[DeviceRow], pods: NodePods, offered: Mapping[str, int] | None) -> None:
        self._pods = pods
        self._offered = Counter(offered or {})
        self._may_get_node = offered is not None
        self._kinds = _kinds(rows, pods.requests)

        held = [row for row in rows if row.pod and not pods.why_gone(row.pod_name)]
        self._named = Counter((row.pod_name, self._kinds.of(row)) for row in held)
        self._devices = self._count(row for row in rows if row.state is not DeviceState.CUT)
        self._open = self._devices - self._count(held)
        self._shared = self._shared_kinds()

        with_a_device = {row.pod_name for row in held}
        without = [request for request in pods.requests if request.name not in with_a_device]
        self._sharers = [request for request in without if self._asks_for_part(request)]
        with_claims = (request for request in without if request.claim)
        # those that may hold any device
        self._uncounted = [*self._sharers, *with_claims]

    def _count(self, rows: Iterable[DeviceRow]) -> Counter[str]:
        """The number of devices of each kind. A device that the page gives several pods has several rows."""
        kind_of = {row.row_device: self._kinds.of(row) for row in rows}
        return Counter(kind_of.values())

    def _shared_kinds(self) -> Collection[str]:
        """The kinds of which pods ask for more, or the node gives out more, than there are devices."""
        asked = Counter[str]()
        for request in self._pods.requests:
            asked.update(request.whole)

        more = asked | self._offered

        return {kind for kind, count in self._devices.items() if more[kind] > count}

    def _asks_for_part(self, request: GpuRequest) -> bool:
        return bool(request.part) or any(kind in self._shared for kind in request.whole)

    def placed(self, row: DeviceRow) -> DeviceRow:
        """The row with its holder, or with the reason why that is not known."""
        if row.state is DeviceState.CUT:
            return row

        gone = self._pods.why_gone(row.pod_name) if row.pod else ""
        if row.pod and not gone:
            return self._with_sharers(row)

        nobodys = row._replace(namespace="", pod="", container="")
        kind = self._kinds.of(row)
        waiting = [*self._waiting(kind)]
        certain = self._certain(kind, waiting)
        if certain is None:
            return self._perhaps_held(nobodys, gone, kind, waiting)

        held = nobodys._replace(namespace=certain.namespace, pod=certain.pod, container=certain.container)
        gpus = _all(self._devices[kind], self._open[kind])
        why = f"{certain.name} asks for {gpus}, and nobody else does"

        return in_its_state(held)._replace(state_reason=why)

    def _perhaps_held(
        self, row: DeviceRow, gone: str, kind: str, waiting: Sequence[tuple[GpuRequest, int]]
    ) -> DeviceRow:
        """The row of a device without a sure holder, with the pods that may hold it. `gone` is why one does not."""
        reasons = (gone, self._why_unknown(kind, waiting))
        made = in_its_state(row, why_unknown="; ".join(filter(None, reasons)))
        candidates = [*(request for request, _ in waiting), *self._uncounted]
        if not candidates:
            return made

        # no field of a row has several pods that may hold it; JSON gets them beside the fields
        named = [{"namespace": request.namespace, "pod": request.pod} for request in candidates]

        return made._replace(unknown_fields={"candidates": named})

    def _waiting(self, kind: str) -> Iterator[tuple[GpuRequest, int]]:
        """The requests for more devices of a kind than the page gives the pod, with the number that is missing."""
        if kind in self._shared:
            return  # a pod may have several shares of one device

        for request in self._pods.requests:
            missing = request.whole.get(kind, 0) - self._named[request.name, kind]
            if missing > 0:
                yield request, missing

    def _certain(self, kind: str, waiting: Sequence[tuple[GpuRequest, int]]) -> GpuRequest | None:
        """The pod that holds all devices of a kind that the page gives nobody; None if that is not sure."""
        if len(waiting) != 1 or self._uncounted:
            return None

        request, missing = waiting[0]
        devices = self._devices[kind]
        is_one_each = devices == 1 or self._offered[kind] == devices
        if missing == self._open[kind] and is_one_each:
            return request

        return None

    def _why_unknown(self, kind: str, waiting: Sequence[tuple[GpuRequest, int]]) -> str:
        """The reason why a device of a kind that the page gives nobody may have a holder; "" if it has none."""
        reasons = []
        if waiting:
            count = sum(missing for _, missing in waiting)
            is_all = len(waiting) == 1 and count == self._open[kind] and not self._uncounted
            reasons.append(f"{_asking(waiting)} for {count} of these {self._open[kind]} {_noun(kind)}")
            reasons.append(_KUBELET_KNOWS if self._may_get_node or not is_all else _NODE_KNOWS)

        if self._uncounted:
            reasons.append(_uncounted(self._uncounted))
            reasons.append(_KUBELET_KNOWS)

        return "; ".join(dict.fromkeys(reasons))

    def _with_sharers(self, row: DeviceRow) -> DeviceRow:
        """The row that the page names a pod for; others may share the device."""
        if not self._sharers:
            return row
        why = f"{_uncounted(self._sharers)}; of a shared GPU dcgm-exporter names one pod only"
        return row._replace(gpu_shared=True, state_reason=why)


class _Kinds:
    """The kind of each device, by which pods ask for it."""

    def __init__(self, *, is_single: bool) -> None:
        """`is_single`: MIG instances are given out as nvidia.com/gpu (the device plugin's MIG strategy `single`)."""
        self._is_single = is_single

    def of(self, row: DeviceRow) -> str:
        """`gpu`, or a MIG profile as resources write it."""
        if self._is_single or not row.mig_profile:
            return GPU

        return row.mig_profile.replace("+", ".")


def _kinds(rows: Sequence[DeviceRow], requests: Sequence[GpuRequest]) -> _Kinds:
    asked = {kind for request in requests for kind in request.whole}
    has_whole_gpus = any(row.entity == "gpu" for row in rows)

    return _Kinds(is_single=asked == {GPU} and not has_whole_gpus)


def _all(devices: int, open_devices: int) -> str:
    if devices == 1:
        return "the only GPU of the node"

    if devices == open_devices:
        return f"all {devices} GPUs of the node"

    return f"the {open_devices} GPUs that are left"


def _noun(kind: str) -> str:
    return "GPUs" if kind == GPU else f"{kind} instances"


def _asking(waiting: Sequence[tuple[GpuRequest, int]]) -> str:
    names = [f"{request.name} ({missing})" for request, missing in waiting]
    verb = "asks" if len(waiting) == 1 else "ask"

    return f"{and_listed(names, _MOST_NAMED)} {verb}"


def _uncounted(requests: Sequence[GpuRequest]) -> str:
    """A sentence on pods whose requests are no numbers of devices."""
    names = [*dict.fromkeys(request.name for request in requests)]
    verb = "asks" if len(names) == 1 else "ask"
    ways = sorted({_way(request) for request in requests})

    return f"{listed(names, _MOST_NAMED)} {verb} for GPUs in a way that no count shows: by {listed(ways, _MOST_NAMED)}"


def _way(request: GpuRequest) -> str:
    return request.part or request.claim or f"{DOMAIN}{GPU} of a node that shares it"


def _request_of(pod: AnyObject) -> GpuRequest:
    """The request of a pod: that of its containers together, or of one that runs before them, if it is larger."""
    namespace, name = place_of(pod)
    spec = mapping(pod, "spec")
    of_pod = Counter[str]()
    before = Counter[str]()
    asking: list[str] = []

    for list_name in ("containers", "initContainers"):
        for container in mappings(spec, list_name):
            limits = _limits(container)
            if limits:
                asking.append(text(container, "name"))

            is_sidecar = text(container, "restartPolicy") == "Always"
            if list_name == "containers" or is_sidecar:
                of_pod.update(limits)
            else:
                before |= limits  # they run one after the other, and hand their devices on

    limits = of_pod | before

    return GpuRequest(
        namespace=namespace,
        pod=name,
        container=asking[0] if len(asking) == 1 else "",
        whole=_whole(limits),
        part=_part(pod, limits),
        claim=_claim(spec),
    )


def _limits(container: AnyObject) -> Counter[str]:
    """The GPUs that a container asks for, by the names of resources. What it requests is what its limits say."""
    limits = Counter[str]()
    for name, value in mapping(container, "resources", "limits").items():
        if name.startswith(_OF_GPUS):
            limits[name] = _count(value)

    return +limits  # without those of 0


def _count(value: object) -> int:
    """The whole number of a quantity; 1 if it is written in another way than a device plugin's amounts are."""
    words = str(value)
    return int(words) if words.isascii() and words.isdigit() else 1


def _whole(amounts: Mapping[str, object]) -> Mapping[str, int]:
    """The amounts of whole devices by their kinds."""
    kinds: dict[str, int] = {}
    for name, amount in amounts.items():
        resource = name.removeprefix(DOMAIN)
        is_whole = resource == GPU or (resource.startswith(_MIG) and not resource.endswith(_SHARED))
        count = _count(amount)
        if name.startswith(DOMAIN) and is_whole and count:
            kinds[resource.removeprefix(_MIG)] = count

    return kinds


def _part(pod: AnyObject, limits: Mapping[str, int]) -> str:
    """The word by which a pod asks for a part of a GPU; "" if it does not."""
    for resource in limits:
        name = resource.removeprefix(DOMAIN)
        if name.endswith(_SHARED) or (name != GPU and not name.startswith(_MIG)):
            return resource

    annotations = mapping(pod, "metadata", "annotations")
    for name in (FRACTION, MEMORY):
        if name in annotations:
            return f"the annotation {name}"

    return ""


def _claim(spec: AnyObject) -> str:
    """The pod's first claim, in words; "" if it has none."""
    for claim in mappings(spec, "resourceClaims"):
        return f"the claim {text(claim, 'name')}"

    return ""
