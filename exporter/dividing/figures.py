"""What is shown of a device, and of each container that holds it, by untrusted objects of /container/metrics. Pure.

The page, `top` and `kubectl gpu` all ask here, so that they agree. An object is a device in one container's hands.
Where several hold the device, most of its fields are the whole device's (--sharing copy) or a part by a rule (split):
of such a holder only `measured` is its own, and the rest stands in the device's line alone. dcgm-exporter repeats what
a whole GPU draws on each of its MIG instances: that stands in the GPU's line alone, too.

The objects of a device that several hold have its own values beside theirs (`whole_device`). An older exporter, and a
Prometheus server that a cluster role asks, leave them out. Then the values follow from the rows, if `sharing` is known
(`copy`, `split`), or if the rows differ, which is taken for `split`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from exporter.dividing.instances import is_repeated
from exporter.lenient import AnyObject, finite, mapping
from exporter.model import states

_MIB = 1024 * 1024
_PERCENT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Activity from 0 to 1, MiB, W and °C. None: not known, or not this line's to say."""

    activity: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None

    @property
    def utilization_percent(self) -> float | None:
        """Percent: what people call utilisation, and what the state is made of."""
        return None if self.activity is None else self.activity * _PERCENT


def of_holder(row: AnyObject, *, is_alone: bool) -> Figures:
    """Of one container: what is measured of it, and the rest of the device's if nobody else holds that."""
    measured = mapping(row, "measured")
    memory_bytes = finite(measured, "memory_used_bytes")
    used = None if memory_bytes is None else memory_bytes / _MIB
    if not is_alone:
        return Figures(activity=finite(measured, "utilization_ratio"), memory_used_mib=used)
    figures = of_device([row])
    return figures if used is None else replace(figures, memory_used_mib=used)


def of_device(rows: Sequence[AnyObject], sharing: str = "") -> Figures:
    """Of a GPU or a MIG instance as a whole, by its objects, one for each holder."""
    first = rows[0]
    is_instance = first.get("entity") == "mig"
    used, total, free = (_amount(rows, f"framebuffer_{part}", sharing) for part in ("used", "total", "free"))
    if total is None and used is not None and free is not None:
        total = used + free
    return Figures(
        activity=_activity(rows),
        memory_used_mib=used,
        memory_total_mib=total,
        power_watts=None if is_instance else _amount(rows, "power_usage", sharing),
        temperature_celsius=finite(first, "temperature"),
    )


def of_cut_gpu(parent: AnyObject, instances: Sequence[AnyObject], of_instances: Sequence[Figures]) -> Figures:
    """Of a GPU that is cut, by its own object (empty where there is none), all of its instances', and their figures."""
    own = of_device([parent])
    used, total = own.memory_used_mib, own.memory_total_mib
    if used is None or total is None:
        # the GPU's own memory and its instances' are not mixed
        used = total_of(each.memory_used_mib for each in of_instances)
        total = total_of(each.memory_total_mib for each in of_instances)
    temperatures = [each.temperature_celsius for each in (own, *of_instances)]
    return Figures(
        activity=own.activity,
        memory_used_mib=used,
        memory_total_mib=total,
        power_watts=_of_instances(instances, "power_usage") if own.power_watts is None else own.power_watts,
        temperature_celsius=max((each for each in temperatures if each is not None), default=None),
    )


def repeated(rows: Sequence[AnyObject], name: str) -> float | None:
    """What all objects of a device say of it; None where they differ: they may be parts of it."""
    numbers = {*_numbers(rows, name)}
    return numbers.pop() if len(numbers) == 1 else None


def total_of(values: Iterable[float | None]) -> float | None:
    """A sum; one in which something is missing is not known."""
    numbers = [*values]
    if not numbers or None in numbers:
        return None
    return float(sum(number for number in numbers if number is not None))


def is_older(row: Mapping[str, Any]) -> bool:
    """Whether the page's values contradict the state, which is made of what NVML measured of the holder after them."""
    is_measured = finite(mapping(row, "measured"), "utilization_ratio") is not None
    state = states.stated(row)
    if (
        not is_measured
        or row.get("gpu_shared") is True
        or state not in (states.DeviceState.IDLE, states.DeviceState.USED)
    ):
        return False
    of_page = states.activity({**row, "measured": None})
    return of_page is not None and (of_page < states.IDLE_BELOW) != (state is states.DeviceState.IDLE)


def _activity(rows: Sequence[AnyObject]) -> float | None:
    """Of one object what its state is made of; of several what the page says of the whole device."""
    if len(rows) == 1:
        return states.activity(rows[0])
    whole = mapping(rows[0], "whole_device")
    engine = finite(whole, "graphics_engine_active")
    if engine is None:
        engine = repeated(rows, "graphics_engine_active")
    if engine is not None:
        return engine
    percent = finite(whole, "gpu_utilization")
    if percent is None:
        copies = [row for row in rows if finite(mapping(row, "measured"), "utilization_ratio") is None]
        of_owners = sum(_numbers(rows, "gpu_utilization"))
        percent = max(_numbers(copies, "gpu_utilization"), default=min(100.0, of_owners))
    return percent / _PERCENT


def _amount(rows: Sequence[AnyObject], name: str, sharing: str) -> float | None:
    """The whole device's amount of a field of which the rows may have parts."""
    own = finite(mapping(rows[0], "whole_device"), name)
    numbers = _numbers(rows, name)
    if own is not None or not numbers:
        return own
    if len(rows) == 1:
        return numbers[0]
    is_divided = _is_divided(rows, sharing)
    if is_divided is None:
        return None
    # a row with a measured amount of memory has its owner's alone, and the others repeat the device's
    is_memory = name == "framebuffer_used"
    copies = [row for row in rows if not is_memory or finite(mapping(row, "measured"), "memory_used_bytes") is None]
    of_device = _numbers(copies, name)
    return sum(numbers) if is_divided or not of_device else of_device[0]


def _is_divided(rows: Sequence[AnyObject], sharing: str) -> bool | None:
    """Whether a device's rows have each a part of its power and memory; None where nobody can tell."""
    if sharing:
        return sharing == "split"
    differ = any(len({*_numbers(rows, name)}) > 1 for name in ("power_usage", "framebuffer_free"))
    return True if differ else None


def _of_instances(rows: Sequence[AnyObject], name: str) -> float | None:
    """The GPU's amount, by the objects of its instances: each repeats it, or has its part."""
    numbers = _numbers(rows, name)
    if not numbers:
        return None
    return max(numbers) if is_repeated(numbers) else sum(numbers)


def _numbers(rows: Iterable[AnyObject], name: str) -> Sequence[float]:
    return [value for row in rows if (value := finite(row, name)) is not None]
