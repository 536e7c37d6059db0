"""Families of the GPUs that pods hold. A device without samples has only the labels that the kubelet knows."""

from collections.abc import Iterator, Sequence

from exporter.exposition.families import Samples, Written, render_labels
from exporter.model.devices import AddedLabels, Holder
from exporter.model.pages import Subject, cut_gpus, entity_of
from exporter.outputs.families.family import container_labels, own
from exporter.outputs.output import Look
from exporter.ownership.labels import SHARED_LABEL, WITHOUT_OWNERS, labels_of_claim, labels_of_uid
from exporter.ownership.queues import QUEUE_LABEL, queue_among

# The label's value, by whether the device is shared.
_MARKS = {False: (WITHOUT_OWNERS,), True: (WITHOUT_OWNERS, (SHARED_LABEL, "true"))}


def _device_owners(look: Look) -> Samples:
    cut = cut_gpus(look.devices)
    node = look.snapshot.node
    return [
        (
            # a device without a UUID has its name instead, so that two such devices stay apart
            (device.key.uuid, device.instance, device.index, entity_of(device, cut), node),
            float(len(look.snapshot.owners.of(device.key))),
        )
        for device in look.devices
        # the holder is listed under the device's other name, too
        if device.key not in look.snapshot.owners.unnamed
    ]


def _map_info(look: Look) -> Samples:
    rows = (
        ((device.key.uuid, device.model, holder.owner.namespace, look.snapshot.node, holder.owner.pod), 1.0)
        for device in look.devices
        for holder in look.snapshot.owners.of(device.key)
    )
    return tuple(dict.fromkeys(rows))


def _info_of(device: Subject, holder: Holder, node: str) -> tuple[str, ...]:
    return (
        holder.owner.namespace,
        holder.owner.pod,
        holder.owner.container,
        device.uuid,
        device.index,
        device.device,
        device.model,
        holder.resource,
        device.instance,
        device.profile,
        node,
    )


def _pod_gpu_info(look: Look) -> Samples:
    if not look.snapshot.context.names_owners:
        return ()
    node = look.snapshot.node
    return [(_info_of(device, holder, node), 1.0) for device, holder in _held(look)]


def _held(look: Look) -> Iterator[tuple[Subject, Holder]]:
    owners = look.snapshot.owners
    return ((device, holder) for device in look.devices for holder in owners.of(device.key))


def _with_more_labels(look: Look) -> Sequence[Written]:
    """The samples of pod_gpu_info, if some have labels that others lack; none otherwise.

    These are the queue, and with `--labels.owners off` all facts about owners that samples would have, so that a query
    can join both.
    """
    snapshot = look.snapshot
    if not snapshot.context.names_owners:
        return _in_place_of_samples(look)
    queues = {pod: queue_among(labels) for pod, labels in snapshot.pod_labels.items()}
    if not any(queues.values()):
        return ()
    written: list[Written] = []
    for device, holder in _held(look):
        names = zip(_INFO.labels, _info_of(device, holder, snapshot.node), strict=True)
        queue = queues.get(holder.owner.pod_key)
        of_pod = ((QUEUE_LABEL, queue),) if queue else ()
        written.append((render_labels((*names, *of_pod)), b"1", b""))
    return written


def _in_place_of_samples(look: Look) -> Sequence[Written]:
    snapshot = look.snapshot
    lines: dict[bytes, None] = {}
    for device in look.devices:
        holders = _by_kubelet if snapshot.owners.of(device.key) else _by_page
        for holder, labels in holders(look, device):
            names = zip(_INFO.labels, _info_of(device, holder, snapshot.node), strict=True)
            lines[render_labels((*names, *_MARKS[holder.shared], *labels))] = None
    return [(line, b"1", b"") for line in lines]


def _by_kubelet(look: Look, device: Subject) -> Iterator[tuple[Holder, AddedLabels]]:
    for holder in look.snapshot.owners.of(device.key):
        pod_labels = look.snapshot.pod_labels.get(holder.owner.pod_key, ())
        yield holder, (*pod_labels, *labels_of_claim(holder.claim))


def _by_page(look: Look, device: Subject) -> Iterator[tuple[Holder, AddedLabels]]:
    """The holders that dcgm-exporter names (-k), if the kubelet's ids lead to no device."""
    for subject in look.snapshot.joined.subjects if look.snapshot.joined else ():
        if subject.came_with and subject.key == device.key:
            holder = Holder(owner=subject.came_with, resource="", shared=subject.came_shared)
            yield holder, (*labels_of_uid(subject.came_with_uid), *subject.came_extra)


def _health(look: Look) -> Samples:
    node = look.snapshot.node
    return [
        ((*container_labels(owner, device, node), health.word), 1.0)
        for (device, owner), health in sorted(look.snapshot.healths.items(), key=lambda item: item[0])
    ]


def _verdicts(look: Look) -> Samples:
    snapshot = look.snapshot
    samples: list[tuple[tuple[str, ...], float]] = []
    for device, verdict in snapshot.verdicts.items():
        words = (verdict.gpu, verdict.verdict, verdict.code)
        owners = dict.fromkeys(holder.owner for holder in snapshot.owners.of(device))
        rows = [container_labels(owner, device, snapshot.node) for owner in owners or (None,)]
        samples += (((*labels, *words), 1.0) for labels in rows)
    return samples


MAP_INFO = own("pod_and_gpu_map_info", _map_info)
_INFO = own("pod_gpu_info", _pod_gpu_info, write=_with_more_labels)
FAMILIES = (
    own("pod_gpu_device_owners", _device_owners),
    MAP_INFO,
    _INFO,
    own("pod_gpu_device_health", _health),
    own("pod_gpu_device_verdict", _verdicts),
)
