"""State files of versions 1 to 3, whose records had no names, in the form of version 4.

Version 1 has no stretches; version 2 knows neither pages that are away nor the machine's boot.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_AMOUNTS = ("allocated_ns", "active_ns", "idle_ns", "energy_uj", "observed_ns")
_COLUMNS = {
    "Subject": ("uuid", "instance", "profile", "index", "device", "model", "host", "has_gpu_label"),
    "DeviceKey": ("uuid", "instance"),
    "Owner": ("namespace", "pod", "container"),
    "Entry": ("owner", "uid", "device", "labels", "ratio", "amounts", "by_label", "gone_at_ns", "shown_before"),
    "HeldGpu": ("key", "whole", "devices"),
    "Device": ("key", "slices", "is_sampled", "holders", "part", "is_shared"),
    "GpuState": ("look", "samples", "page", "steady", "holders_before", "amounts"),
    "GpuSamples": ("rows",),
    "CountersAtLook": ("held", "look", "at_ns", "values", "stretches", "is_away"),
    "Stretch": ("held", "ns", "is_gap", "kernels", "is_blind"),
    "Activity": ("carried",),
    "Energy": ("counters", "rows_are_own"),
    "Xids": ("last", "counted", "counted_at_ns"),
    "XidSamples": ("values", "counts", "totals"),
    "Throttling": ("counters",),
}
_Json = Any


def as_version_4(content: _Json) -> _Json:
    """The content of a file of version 1 to 3 in the form of version 4."""
    devices: dict[tuple[str, str], int] = {}

    def number(uuid: str, instance: str) -> int:
        return devices.setdefault((uuid, instance), len(devices))

    entries = [_entry(number(*fields[2]), *fields) for fields in content["entries"]]
    held = []
    for uuid, whole, devices_of_gpu in content["held"]:
        gpu = number(uuid, "")
        rows = []
        for instance, *rest in devices_of_gpu:
            rows.append((number(uuid, instance), *rest, *(0, False)[len(rest) - 3 :]))
        held.append((gpu, whole, rows))
    id_, at_ns = content.get("boot", ("", 0))
    return {
        "least": {},
        "subjects": (),
        **content,
        "boot": {"id": id_, "at_ns": at_ns},
        "columns": _COLUMNS,
        "entries": entries,
        "held": held,
        "gpus": {uuid: _gpu(state) for uuid, state in content["gpus"].items()},
        "devices": list(devices),
    }


def _entry(number: int, owner: _Json, uid: str, _: _Json, labels: _Json, ratio: _Json, *more: _Json) -> Sequence[_Json]:
    *values, xids, throttled, gone, shown_before = more
    amounts = {name: value for name, value in zip(_AMOUNTS, values, strict=False) if value is not None}
    if len(values) < len(_AMOUNTS) and "active_ns" in amounts and "allocated_ns" in amounts:
        # up to version 2, all held time counted as observed
        amounts["observed_ns"] = amounts["allocated_ns"]
    by_label = {name: counts for name, counts in (("xids", xids), ("throttled_ns", throttled)) if counts}
    return (owner, uid, number, labels, ratio, amounts, by_label, gone, shown_before)


def _gpu(state: Mapping[str, _Json]) -> Sequence[_Json]:
    """A GPU's state as a row of version 4."""
    rows = {kind: values for kind, values in state["seen"].items() if values}
    if state["reasons"] is not None:
        rows["reasons"] = {"": state["reasons"]}
    *last, counted = state["xids"] or (None,)
    return (
        state["look"],
        (rows,),
        _counters(state.get("page")),
        *state.get("hands", (None, None)),
        {
            "activity": (state.get("carried", {}),),
            "energy": (_counters(state["energy"]), state["rows_are_own"]),
            "xids": (last or None, *(counted or (None, None))),
            "throttling": (_counters(state["violations"]),),
        },
    )


def _counters(fields: _Json) -> _Json:
    if fields is None:
        return None
    held, look, ago_ns, values, *more = fields
    stretches = more[0] if more else ()
    with_is_blind = [(*stretch, *(False,)[len(stretch) - 4 :]) for stretch in stretches]
    return (held, look, ago_ns, values, with_is_blind, any(more[1:]))
