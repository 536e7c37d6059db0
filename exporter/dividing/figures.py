"""The figures of a device, and of each container that holds it, from the rows of /container/metrics. Pure.

The page, `top` and `kubectl gpu` all take their figures from here, so that they agree. A row is a device and one
container that holds it. If several containers hold the device, most of the row's fields are values of the whole device
(--sharing copy) or a part by a rule (split). For such a holder only `measured` is its own use; the device's line shows
the other fields. dcgm-exporter repeats a whole GPU's power on each of its MIG instances; only the GPU's line shows it.

If several containers hold a device, its rows also have the device's own values (`whole_device`). Rows of an older
exporter, and of a Prometheus server that a cluster role asks, lack them. Then the values follow from the rows, if
`sharing` is known (`copy`, `split`), or if the rows differ, which counts as `split`.

Tests: tests/dividing/test_figures.py; that all outputs agree: tests/outputs/test_figures_agree.py.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from exporter.dividing.instances import is_repeated
from exporter.model.device_row import DeviceRow
from exporter.model.states import IDLE_BELOW, DeviceState, state_of_device

_MIB = 1024 * 1024
_PERCENT = 100
_GIGABYTE = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures on one line: activity from 0 to 1, MiB, W and °C. None: not known, or not shown on this line."""

    activity: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None

    @property
    def utilization_percent(self) -> float | None:
        """The activity in percent, which people call utilisation. The state follows from it."""
        return None if self.activity is None else self.activity * _PERCENT


def of_holder(row: DeviceRow, *, is_alone: bool) -> Figures:
    """The figures of one container: its measured use and, if it alone holds the device, the device's other figures."""
    own_bytes = row.own_memory_bytes
    own_mib = None if own_bytes is None else own_bytes / _MIB
    if not is_alone:
        return Figures(activity=row.own_activity, memory_used_mib=own_mib)
    figures = of_device([row])
    return figures if own_mib is None else replace(figures, memory_used_mib=own_mib)


def of_device(rows: Sequence[DeviceRow], sharing: str = "") -> Figures:
    """The figures of a whole GPU or MIG instance, from its rows, one for each holder."""
    first = rows[0]
    used = _amount(rows, "framebuffer_used", sharing)
    total = _amount(rows, "framebuffer_total", sharing)
    free = _amount(rows, "framebuffer_free", sharing)
    if total is None and used is not None and free is not None:
        total = used + free
    return Figures(
        activity=_activity(rows),
        memory_used_mib=used,
        memory_total_mib=total,
        power_watts=None if first.entity == "mig" else _amount(rows, "power_usage", sharing),
        temperature_celsius=first.temperature,
    )


def of_cut_gpu(parent: DeviceRow | None, instances: Sequence[DeviceRow], of_instances: Sequence[Figures]) -> Figures:
    """The figures of a GPU that is cut into MIG instances.

    Args:
        parent: the GPU's own row; None if there is none.
        instances: a row of each of its instances.
        of_instances: their figures.
    """
    own = of_device([parent]) if parent else Figures()
    used = own.memory_used_mib
    total = own.memory_total_mib
    if used is None or total is None:
        # the GPU's own memory and the instances' memory are not mixed
        used = total_of(figures.memory_used_mib for figures in of_instances)
        total = total_of(figures.memory_total_mib for figures in of_instances)
    temperatures = [figures.temperature_celsius for figures in (own, *of_instances)]
    return Figures(
        activity=own.activity,
        memory_used_mib=used,
        memory_total_mib=total,
        power_watts=_of_instances(instances, "power_usage") if own.power_watts is None else own.power_watts,
        temperature_celsius=max((degrees for degrees in temperatures if degrees is not None), default=None),
    )


def gigabytes_over_nvlink(rows: Sequence[DeviceRow]) -> float | None:
    """The gigabytes a second that a whole GPU sends and receives over NVLink; None if nobody measures them."""
    sent = repeated(rows, "nvlink_tx_bytes")
    received = repeated(rows, "nvlink_rx_bytes")
    if rows[0].entity == "mig" or sent is None or received is None:
        return None
    return (sent + received) / _GIGABYTE


def repeated(rows: Sequence[DeviceRow], name: str) -> float | None:
    """The value that all rows of a device repeat; None if they differ, since they may be parts."""
    numbers = {*_numbers(rows, name)}
    return numbers.pop() if len(numbers) == 1 else None


def total_of(values: Iterable[float | None]) -> float | None:
    """The sum; None (not known) if a value is missing, or there is none."""
    numbers = [*values]
    if not numbers or None in numbers:
        return None
    return float(sum(number for number in numbers if number is not None))


def is_older(rows: Sequence[DeviceRow]) -> bool:
    """Whether the page's values of a device contradict its state, which follows from what NVML measured later.

    `rows` are the device's, one for each holder.
    """
    return rows[0].is_older if len(rows) == 1 else _is_of_several_older(rows)


def _is_of_several_older(rows: Sequence[DeviceRow]) -> bool:
    """Whether the page contradicts the state of a device with several holders.

    The page's activity is above the sum of the holders' own activities only if one of the two is older.
    """
    of_holders = total_of(row.own_activity for row in rows)
    of_page = _activity(rows)
    state = state_of_device(row.state for row in rows)
    if of_holders is None or of_page is None or any(row.used_by for row in rows):
        return False
    if state is DeviceState.USED:
        return of_page < IDLE_BELOW
    return state is DeviceState.IDLE and of_page >= of_holders + IDLE_BELOW


def _activity(rows: Sequence[DeviceRow]) -> float | None:
    """The device's activity: a single row's activity, by which its state is judged; with several rows, the page's."""
    if len(rows) == 1:
        return rows[0].activity
    whole = rows[0].whole_device
    engine = whole.graphics_engine_active if whole else None
    if engine is None:
        engine = repeated(rows, "graphics_engine_active")
    if engine is not None:
        return engine
    percent = whole.gpu_utilization if whole else None
    if percent is None:
        percent = _percent_of_parts(rows)
    return None if percent is None else percent / _PERCENT


def _percent_of_parts(rows: Sequence[DeviceRow]) -> float | None:
    """The device's GPU_UTIL. A row without a measurement repeats it; a measured row has its owner's part."""
    copies = [row for row in rows if row.own_activity is None]
    of_device = _numbers(copies, "gpu_utilization")
    if of_device:
        return max(of_device)
    of_owners = _numbers(rows, "gpu_utilization")
    return min(float(_PERCENT), sum(of_owners)) if of_owners else None


def _amount(rows: Sequence[DeviceRow], name: str, sharing: str) -> float | None:
    """The whole device's amount of a field, if rows may have only parts of it."""
    whole: float | None = getattr(rows[0].whole_device, name, None)
    numbers = _numbers(rows, name)
    if whole is not None or not numbers:
        return whole
    if len(rows) == 1:
        return numbers[0]
    is_divided = _is_divided(rows, sharing)
    if is_divided is None:
        return None
    # a row with measured memory has only its owner's memory, and the other rows repeat the device's
    is_memory = name == "framebuffer_used"
    copies = [row for row in rows if not is_memory or row.own_memory_bytes is None]
    of_device = _numbers(copies, name)
    return sum(numbers) if is_divided or not of_device else of_device[0]


def _is_divided(rows: Sequence[DeviceRow], sharing: str) -> bool | None:
    """Whether each row has a part of the device's power and memory; None if nobody can tell."""
    if sharing:
        return sharing == "split"
    differ = any(len({*_numbers(rows, name)}) > 1 for name in ("power_usage", "framebuffer_free"))
    return True if differ else None


def _of_instances(rows: Sequence[DeviceRow], name: str) -> float | None:
    """The GPU's amount, from the rows of its instances, which repeat it or have parts of it."""
    numbers = _numbers(rows, name)
    if not numbers:
        return None
    return max(numbers) if is_repeated(numbers) else sum(numbers)


def _numbers(rows: Iterable[DeviceRow], name: str) -> Sequence[float]:
    """The known values of a numeric field."""
    values = map(attrgetter(name), rows)
    return [value for value in values if value is not None]
