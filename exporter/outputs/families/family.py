"""A family of the exporter's own: its row in families.json describes it, and a function fills it.

Tests: tests/outputs/test_families.py.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import get_data
from typing import Any, Generic, TypeVar

from exporter.exposition.families import Family, Filled, Samples, Written, render_labels
from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner
from exporter.outputs.output import AnyLook, LookT

# the labels of a container's part of a device
OF_CONTAINER = ("namespace", "pod", "container", "UUID", "GPU_I_ID", "node")
# a family of any role's look also fits a node's look
LookT_contra = TypeVar("LookT_contra", bound=AnyLook, contravariant=True)
Fill = Callable[[LookT], Samples]
Write = Callable[[LookT], Sequence[Written]]


def _nothing(_: AnyLook) -> Sequence[Any]:
    return ()


@dataclass(frozen=True, slots=True)
class OwnFamily(Family, Generic[LookT_contra]):
    """A family, and `fill`, which makes its samples from a look.

    An unknown value has no sample, and a family without samples is left out. If numbers or labels do not fit `fill`, or
    if counts did not begin with the process, the family has `write` instead, which writes whole samples.
    """

    fill: Callable[[LookT_contra], Samples] = field(default=_nothing, kw_only=True)
    write: Callable[[LookT_contra], Sequence[Written]] = field(default=_nothing, kw_only=True)


def container_labels(owner: Owner | None, device: DeviceKey, node: str) -> tuple[str, ...]:
    """The values of OF_CONTAINER. Without an owner, its names are ""."""
    if owner is None:
        return ("", "", "", device.uuid, device.instance, node)
    return (owner.namespace, owner.pod, owner.container, device.uuid, device.instance, node)


def container_text(owner: Owner | None, device: DeviceKey, node: str, *more: tuple[str, str]) -> bytes:
    """The labels of OF_CONTAINER, and `more`, as text between the braces."""
    return render_labels((*zip(OF_CONTAINER, container_labels(owner, device, node), strict=True), *more))


# By name: the kind, the help and the labels; `of_container` has the labels after those of OF_CONTAINER.
_ROWS: Mapping[str, Any] = {row["name"]: row for row in json.loads(get_data(__package__, "families.json") or b"")}


def own(name: str, fill: Fill[LookT] = _nothing, *, write: Write[LookT] = _nothing) -> OwnFamily[LookT]:
    """The family of this name in families.json."""
    row = _ROWS[name]
    labels = tuple(row.get("labels", ()))
    if row.get("of_container"):
        labels = (*OF_CONTAINER, *labels)
    return OwnFamily(name, row["kind"], row["help"], labels, fill=fill, write=write)


def single(value: Callable[[LookT], float | None]) -> Fill[LookT]:
    """A filler that makes one sample without a label; none if the value is not known."""

    def fill(look: LookT) -> Samples:
        number = value(look)
        return [] if number is None else [((), float(number))]

    return fill


def by_label(numbers: Callable[[LookT], Mapping[str, float | None]]) -> Fill[LookT]:
    """A filler that makes a sample for each value of the family's only label, if its number is known."""

    def fill(look: LookT) -> Samples:
        return [((label,), float(number)) for label, number in numbers(look).items() if number is not None]

    return fill


def filled(families: Iterable[OwnFamily[LookT_contra]], look: LookT_contra) -> Iterable[Filled]:
    """The families with their samples."""
    began = look.telemetry.began
    return (Filled(family, family.fill(look), family.write(look), began) for family in families)
