"""Devices and their holders: rows of /container/metrics → a table of the rows that are asked for. Pure.

Tests: tests/kubectl/test_parts.py.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from exporter.dividing.figures import Figures, of_device, of_holder
from exporter.kubectl.plain_table import plain_table
from exporter.lenient import mappings, text
from exporter.model.device_row import DeviceRow
from exporter.model.pods import PodName
from exporter.model.states import BROKEN, WORDS, DeviceState, rounded
from exporter.top.shown_devices import ShownSource
from exporter.wording import and_listed, escaped

_MIB_A_GIB = 1024
_TITLES = ("NODE", "GPU", "MODEL", "POD", "CONTAINER", "STATE", "UTIL", "MEM", "HEALTH")
_GRANTED = "GRANTED"
_UNKNOWN = "-"
_MOST_NAMED = 4
_KINDS: Mapping[str, str] = dict.fromkeys(("pod", "pods", "po"), "pod") | dict.fromkeys(("node", "nodes", "no"), "node")


def who(rows: Sequence[DeviceRow], name: str, namespace: str) -> Sequence[DeviceRow]:
    """The rows of a pod (its name, or NAMESPACE/NAME), of a node, or of a GPU (its UUID, or NODE/INDEX).

    A pod's name without a namespace is searched for in `namespace`, "" for all. pod/NAME and node/NAME name the kind.
    """
    kind, name = _kind_and_name(name)
    is_pod = _is_pod(name, namespace)

    def is_device(row: DeviceRow) -> bool:
        place = f"{row.node_name}/{row.label}"

        return name in (row.device_uuid, place) or place.startswith(f"{name}/")

    tests: Mapping[str, Callable[[DeviceRow], bool]] = {
        "pod": lambda row: is_pod(row.namespace, row.pod),
        "node": lambda row: row.node_name == name,
        "device": is_device,
    }
    devices = [row for row in rows if row.state is not DeviceState.CUT]
    for of_kind, is_meant in tests.items():
        if kind in ("", of_kind):
            chosen = [row for row in devices if is_meant(row)]
            if chosen:
                return chosen

    return ()


def may_hold(rows: Sequence[DeviceRow], name: str, namespace: str) -> Sequence[DeviceRow]:
    """The rows of devices that a pod may hold, where nobody knows which of several pods does. Names are as in `who`."""
    kind, name = _kind_and_name(name)
    is_pod = _is_pod(name, namespace)

    def may_be_its(row: DeviceRow) -> bool:
        return any(is_pod(*names) for names in _candidates(row))

    return [row for row in rows if may_be_its(row)] if kind in ("", "pod") else ()


def _kind_and_name(name: str) -> tuple[str, str]:
    """The kind of _KINDS that a user names before a slash, "" for none, and the name."""
    kind, _, rest = name.partition("/")
    return (_KINDS[kind], rest) if rest and kind in _KINDS else ("", name)


def _is_pod(name: str, namespace: str) -> Callable[[str, str], bool]:
    """A test of a pod's namespace and name, for NAME (in `namespace`; "" for all) or NAMESPACE/NAME."""
    first, _, pod = name.rpartition("/")
    wanted = first or namespace

    def is_meant(of_namespace: str, of_pod: str) -> bool:
        return of_pod == pod and wanted in ("", of_namespace)

    return is_meant


def _candidates(row: DeviceRow) -> Iterator[PodName]:
    """The pods that may hold the device (gpu_requests.py)."""
    for candidate in mappings(row.unknown_fields, "candidates"):
        yield text(candidate, "namespace"), text(candidate, "pod")


def of_namespace(rows: Sequence[DeviceRow], namespace: str) -> Sequence[DeviceRow]:
    """The rows of devices that pods of a namespace hold or may hold, and of the GPUs that they are instances of."""

    def is_meant(row: DeviceRow) -> bool:
        return row.namespace == namespace or any(of_pod == namespace for of_pod, _ in _candidates(row))

    gpus = {row.row_device[:2] for row in rows if is_meant(row)}

    def is_parent(row: DeviceRow) -> bool:
        return row.state is DeviceState.CUT and row.row_device[:2] in gpus

    return [row for row in rows if is_meant(row) or is_parent(row)]


def missing(nodes: Sequence[ShownSource]) -> Iterator[str]:
    """A sentence for each reason why nodes are missing."""
    by_reason: dict[str, list[str]] = {}
    for node in nodes:
        reason = f"{node.message} -> {node.remedy}" if node.remedy else node.message
        by_reason.setdefault(reason, []).append(node.name)

    for reason, names in by_reason.items():
        noun, verb = ("node", "is") if len(names) == 1 else ("nodes", "are")
        yield escaped(f"the {noun} {and_listed(names, _MOST_NAMED)} {verb} missing: {reason}")


def idle(rows: Sequence[DeviceRow], namespace: str) -> Sequence[DeviceRow]:
    """The rows of idle devices, the longest idle first. Only pods of `namespace` count, of all if it is ""."""
    idle_rows = [row for row in rows if row.state is DeviceState.IDLE and namespace in ("", row.namespace)]

    return sorted(idle_rows, key=lambda row: row.idle_since or "z")


def table(rows: Sequence[DeviceRow], of_all: Sequence[DeviceRow], *, is_idle: bool = False) -> str:
    """A table with a header, in kubectl's style, and below it remarks on the devices' troubles.

    `of_all` are all rows, of which `rows` were chosen. They show whether a device has other holders, too.
    """
    holders = Counter(row.row_device for row in of_all)
    is_granted = any(row.granted for row in rows)
    granted = (_GRANTED,) if is_granted else ()
    lines: list[Sequence[str]] = [(*_TITLES, *granted, "IDLE SINCE" if is_idle else "HELD SINCE")]
    for row in rows:
        is_alone = holders[row.row_device] <= 1
        figures = of_device([row]) if is_alone else of_holder(row, is_alone=False)
        granted = (row.granted or _UNKNOWN,) if is_granted else ()
        lines.append((*_cells(row, figures), *granted, _moment(row.idle_since if is_idle else row.holder_since)))

    return plain_table(lines, dict.fromkeys(_remarks(rows)))


def _cells(row: DeviceRow, figures: Figures) -> Iterator[str]:
    idle_for = rounded(row.idle_seconds) if row.state is DeviceState.IDLE else ""
    mib = figures.memory_used_mib
    yield row.node_name
    yield row.label
    yield row.mig_profile or row.model_name.removeprefix("NVIDIA ") or _UNKNOWN
    yield row.pod_name if row.pod else _UNKNOWN
    yield row.container or _UNKNOWN
    yield f"{WORDS[row.state]} {idle_for}".strip()
    yield _UNKNOWN if figures.activity is None else f"{figures.activity:.0%}"
    yield _UNKNOWN if mib is None else f"{mib / _MIB_A_GIB:.1f}G"
    yield row.health or _UNKNOWN


def _remarks(rows: Sequence[DeviceRow]) -> Iterator[str]:
    """Remarks: the devices' troubles, other users, and why a holder is unknown."""
    for row in rows:
        name = f"{row.node_name}/{row.label}"
        if row.health_reasons:
            yield f"{name} is {row.health}: {'; '.join(row.health_reasons)}"
        elif row.last_xid:
            yield f"{name}: the last XID was {row.last_xid}"
        elif row.health in BROKEN:
            yield f"{name} is {row.health}"
        if row.suspected_hang:
            yield f"{name}: suspected hang: {row.suspected_hang_message}"
        if row.users_in_words:
            yield f"{name}: {row.users_in_words}"
    of_reason: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.state_reason:
            of_reason.setdefault((row.node_name, row.state_reason), []).append(row.label)
    for (node, reason), labels in of_reason.items():
        yield f"{node}/{', '.join(dict.fromkeys(labels))}: {reason}"


def _moment(moment: str | None) -> str:
    """A moment for people. The text of another program may be anything."""
    try:
        return datetime.fromisoformat(moment or "").astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return _UNKNOWN
