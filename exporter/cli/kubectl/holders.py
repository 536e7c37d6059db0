"""Who holds which devices: objects of /container/metrics → those that are asked for, as a table. Pure."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from exporter.dividing.figures import Figures, of_holder
from exporter.lenient import AnyObject, text
from exporter.model.states import BROKEN, WORDS, DeviceState, idle_seconds, last_xid, rounded, stated, used_by
from exporter.outputs.diagnosis import printable

_MIB_A_GIB = 1024
_TITLES = ("NODE", "GPU", "MODEL", "POD", "CONTAINER", "STATE", "UTIL", "MEM", "HEALTH")
_UNKNOWN = "-"
_KINDS: Mapping[str, str] = dict.fromkeys(("pod", "pods", "po"), "pod") | dict.fromkeys(("node", "nodes", "no"), "node")


def who(rows: Sequence[AnyObject], name: str, namespace: str) -> Sequence[AnyObject]:
    """The objects of a pod (its name, or NAMESPACE/NAME), of a node, or of a GPU (its UUID, or NODE/INDEX).

    A pod's name alone is looked for in `namespace`, "" for all. pod/NAME and node/NAME name the kind.
    """
    kind, _, rest = name.partition("/")
    kind, name = (_KINDS[kind], rest) if rest and kind in _KINDS else ("", name)
    first, _, second = name.rpartition("/")

    def is_pod(row: AnyObject) -> bool:
        return text(row, "pod") == second and (first or namespace or text(row, "namespace")) == text(row, "namespace")

    def is_device(row: AnyObject) -> bool:
        place = f"{text(row, 'node_name')}/{_label(row)}"
        return text(row, "device_uuid") == name or place == name or place.startswith(f"{name}/")

    tests: Mapping[str, Callable[[AnyObject], bool]] = {
        "pod": is_pod,
        "node": lambda row: text(row, "node_name") == name,
        "device": is_device,
    }
    devices = [row for row in rows if stated(row) is not DeviceState.CUT]
    chosen = ([row for row in devices if test(row)] for of, test in tests.items() if kind in ("", of))
    return next(filter(None, chosen), ())


def idle(rows: Sequence[AnyObject], namespace: str) -> Sequence[AnyObject]:
    """The objects of devices that are held and not used, longest first; of a namespace's pods, or of all."""
    of_idle = [row for row in rows if stated(row) is DeviceState.IDLE and namespace in ("", text(row, "namespace"))]
    return sorted(of_idle, key=lambda row: text(row, "idle_since") or "z")


def table(rows: Sequence[AnyObject], of_all: Sequence[AnyObject], *, is_idle: bool = False) -> str:
    """Lines with a header, as kubectl's own; below them what is wrong with the devices.

    `of_all` are the objects among which the `rows` were chosen: who else holds a device is among them.
    """
    title, name = ("IDLE SINCE", "idle_since") if is_idle else ("HELD SINCE", "holder_since")
    holders = Counter(map(_device_of, of_all))
    lines: list[Sequence[str]] = [(*_TITLES, title)]
    for row in rows:
        figures = of_holder(row, is_alone=holders[_device_of(row)] <= 1)
        lines.append((*_cells(row, figures), _moment(row, name)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ("   ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "".join(f"{printable(line)}\n" for line in (*padded, *dict.fromkeys(_remarks(rows))))


def _device_of(row: AnyObject) -> tuple[str, ...]:
    return text(row, "node_name"), text(row, "device_uuid") or text(row, "device_id"), text(row, "mig_instance_id")


def _cells(row: AnyObject, figures: Figures) -> Iterator[str]:
    state, mib = stated(row), figures.memory_used_mib
    yield text(row, "node_name")
    yield _label(row)
    yield text(row, "mig_profile") or text(row, "model_name").removeprefix("NVIDIA ")
    yield f"{text(row, 'namespace')}/{text(row, 'pod')}" if text(row, "pod") else _UNKNOWN
    yield text(row, "container") or _UNKNOWN
    yield f"{WORDS[state]} {rounded(idle_seconds(row))}".strip() if state is DeviceState.IDLE else WORDS[state]
    yield _UNKNOWN if figures.activity is None else f"{figures.activity:.0%}"
    yield _UNKNOWN if mib is None else f"{mib / _MIB_A_GIB:.1f}G"
    yield text(row, "health") or _UNKNOWN


def _remarks(rows: Sequence[AnyObject]) -> Iterator[str]:
    for row in rows:
        name, (xid, _), reasons = f"{text(row, 'node_name')}/{_label(row)}", last_xid(row), row.get("health_reasons")
        if isinstance(reasons, list) and reasons:
            yield f"{name} is {text(row, 'health')}: {'; '.join(map(str, reasons))}"
        elif xid or text(row, "health") in BROKEN:
            yield f"{name}: the last XID was {xid}" if xid else f"{name} is {text(row, 'health')}"
        for words in filter(None, (used_by(row), text(row, "state_reason"))):
            yield f"{name}: {words}"


def _label(row: AnyObject) -> str:
    index, instance = text(row, "device_id") or text(row, "device_uuid"), text(row, "mig_instance_id")
    return f"{index}/{instance}" if instance else index


def _moment(row: AnyObject, name: str) -> str:
    try:
        return datetime.fromisoformat(text(row, name)).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    except ValueError:
        return _UNKNOWN
