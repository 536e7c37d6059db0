"""The grammars of annotations in JSON: of ACK's gpushare, of Koordinator, and of the MIG instances that HAMi cuts.

Tests: tests/ownership/allocators/test_other_allocators.py.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from exporter.model.device_ref import DeviceRef
from exporter.model.grants import Grant
from exporter.ownership.allocators.said import (
    MOST_DEVICES,
    MOST_MIB,
    MOST_PERCENT,
    MOST_PLACES,
    Said,
    Unreadable,
    WrittenDevice,
    amount,
    check_length,
    shown,
)

_GPUSHARE = "gpushare"
_KOORDINATOR = "Koordinator"
_HAMI = "HAMi"
_MIB = 1024.0 * 1024
_WHOLE = 100.0
_NUMBER = re.compile(r"0|[1-9][0-9]{0,4}")
# a quantity of Kubernetes (k8s.io/apimachinery, resource.Quantity)
_QUANTITY = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)(?:([KMGTPE]i)|([numkMGTPE])|[eE]([0-9]{1,2}))?")
_BINARY = {unit: 1024.0**power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_DECIMAL = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


def read_gpushare(text: str) -> Said:
    """ACK's allocation: {"<container>": {"<GPU>": <amount>}}, by the container's position and the GPU's number.

    The positions begin with 0, and a container without a GPU is left out. Koordinator reads the same annotation (its
    pkg/scheduler/plugins/ack). Raises Unreadable: it has another form.
    """
    amounts = _gpushare_amounts(text)
    return Said(
        tuple(
            tuple(
                WrittenDevice(
                    ref=DeviceRef(form="an annotation of gpushare", index=gpu, shared=True),
                    grant=Grant(allocator=_GPUSHARE),
                    memory_units=units,
                )
                for gpu, units in amounts.get(position, {}).items()
            )
            for position in range(max(amounts, default=-1) + 1)
        ),
        is_open=True,
    )


def _gpushare_amounts(text: str) -> Mapping[int, Mapping[str, float]]:
    """The amounts by the container's position and the GPU's number; an amount of 0 is left out."""
    amounts: dict[int, dict[str, float]] = {}
    _check_count(text.count(":"))
    for key, gpus in _mapping(_parsed(text), "it").items():
        where = f"container {shown(key)}"
        position = _whole(key, where)
        if position >= MOST_PLACES:
            raise Unreadable(f"{where} is beyond what a pod has")
        of_container = amounts.setdefault(position, {})
        for gpu, given in _mapping(gpus, where).items():
            units = amount(_quantity(given, f"{where}, amount"), MOST_MIB, f"{where}, amount")
            if units is not None:
                of_container[str(_whole(gpu, f"{where}, GPU"))] = units
    return amounts


def with_gpushare_cores(written: Said, text: str) -> Said:
    """The allocation with the percent of cores that a second annotation of the same form gives (gpu-core.percentage).

    Raises Unreadable: it has another form.
    """
    percents = _gpushare_amounts(text)
    places = []
    for position, devices in enumerate(written.containers):
        of_container = percents.get(position, {})
        place = []
        for device in devices:
            percent = amount(of_container.get(device.ref.index, 0), MOST_PERCENT, "the percent of cores")
            place.append(replace(device, grant=replace(device.grant, cores_percent=percent)))
        places.append(tuple(place))
    return replace(written, containers=tuple(places))


def read_koordinator(text: str) -> Said:
    """Koordinator's allocation of a pod: {"gpu": [{"minor": 1, "resources": {…}}]}.

    Its apis/extension/device_share.go has the form. gpu-core and gpu-memory-ratio are percents, gpu-memory is in bytes.

    Raises Unreadable: it has another form.
    """
    gpus = _mapping(_parsed(text), "it").get("gpu") or []
    if not isinstance(gpus, list):
        raise Unreadable("gpu is no list")
    _check_count(len(gpus))
    return Said((tuple(_of_koordinator(gpu, f"gpu[{number}]") for number, gpu in enumerate(gpus)),))


def _of_koordinator(gpu: object, where: str) -> WrittenDevice:
    """A GPU of a pod of Koordinator's. A part of 100 % or more is the whole GPU."""
    fields = _mapping(gpu, where)
    minor = _whole(fields.get("minor"), f"{where}.minor")
    resources = _mapping(fields.get("resources") or {}, f"{where}.resources")

    def given(name: str, most: float) -> float | None:
        key = f"koordinator.sh/{name}"
        found_at = f"{where}.{key}"
        return amount(_quantity(resources[key], found_at), most, found_at) if key in resources else None

    memory = given("gpu-memory", MOST_MIB * _MIB)
    ratio = given("gpu-memory-ratio", MOST_PERCENT)
    cores = given("gpu-core", MOST_PERCENT)
    parts = [part for part in (ratio, cores) if part is not None]
    return WrittenDevice(
        ref=DeviceRef(form="an annotation of Koordinator", minor=str(minor), shared=not parts or min(parts) < _WHOLE),
        grant=Grant(
            allocator=_KOORDINATOR,
            memory_mib=memory and memory / _MIB,
            cores_percent=cores,
            fraction=ratio / _WHOLE if memory is None and ratio is not None and ratio <= _WHOLE else None,
        ),
    )


def with_mig_instances(written: Said, text: str) -> Said:
    """The allocation with the MIG instances that HAMi cut for its devices (pkg/device/nvidia/mig_allocations.go).

    Raises Unreadable: it has another form, contradicts the allocation, or an instance is not cut yet.
    """
    instances = _parsed(text)
    if not isinstance(instances, list):
        raise Unreadable("it is no list of MIG instances")
    _check_count(len(instances))
    places = [list(devices) for devices in written.containers]
    for number, instance in enumerate(instances):
        where = f"MIG instance {number}"
        fields = _mapping(instance, where)
        position = _whole(fields.get("containerIndex"), f"{where}, containerIndex")
        place = places[position] if position < len(places) else []
        index = _whole(fields.get("deviceIndex"), f"{where}, deviceIndex")
        gpu = str(fields.get("gpuUUID"))
        if index >= len(place) or place[index].ref.uuid != gpu:
            raise Unreadable(f"{where} is on {shown(gpu)}, and the allocation has no such device at its place")
        if fields.get("gpuInstanceID") is None:
            raise Unreadable(f"{where} is not cut yet")
        instance_id = _whole(fields["gpuInstanceID"], f"{where}, gpuInstanceID")
        ref = DeviceRef(form="an annotation of HAMi", uuid=gpu, instance=str(instance_id))
        place[index] = replace(place[index], ref=ref)
    return replace(written, containers=tuple(map(tuple, places)))


def _parsed(text: str) -> object:
    """The document. Raises Unreadable: it is no JSON, or nested too deeply to be an allocation."""
    check_length(text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable(f"{shown(text)} is no JSON") from None


def _check_count(devices: int) -> None:
    """Raise Unreadable: there are more than anybody reads in a moment."""
    if devices > MOST_DEVICES:
        raise Unreadable(f"it names more than {MOST_DEVICES} devices")


def _mapping(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise Unreadable(f"{where} is no object of JSON")
    return value


def _whole(value: object, where: str) -> int:
    """A small whole number, as a number or as text. Raises Unreadable: it is none."""
    text = value if isinstance(value, str) else str(value) if isinstance(value, int) else ""
    if not _NUMBER.fullmatch(text):
        raise Unreadable(f"{where}: {shown(str(value))} is no whole number")
    return int(text)


def _quantity(value: object, where: str) -> float:
    """An amount, as a number or as Kubernetes writes quantities. Raises Unreadable: it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _small(value, where)
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Unreadable(f"{where}: {shown(str(value))} is no quantity")
    number, binary, decimal, exponent = match.groups()
    factor = _BINARY[binary] if binary else _DECIMAL[decimal] if decimal else 10.0 ** int(exponent or 0)
    return float(number) * factor


def _small(number: float, where: str) -> float:
    try:
        return float(number)
    except OverflowError:
        raise Unreadable(f"{where} is more than any device has") from None
