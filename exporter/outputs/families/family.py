"""A family of the exporter's own: what it says of itself, and the function that fills it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from exporter.exposition.families import Family, Filled, Samples, Written
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
    """A family, and `fill`, which makes its samples of a look.

    An unknown value has no sample; without samples the family is left out. One whose numbers or labels do not fit this,
    or whose counts did not begin with the process, has `write` instead, which writes all of these.
    """

    fill: Callable[[LookT_contra], Samples] = field(default=_nothing, kw_only=True)
    write: Callable[[LookT_contra], Sequence[Written]] = field(default=_nothing, kw_only=True)


def container_labels(owner: Owner | None, device: DeviceKey, node: str) -> tuple[str, ...]:
    """The values of OF_CONTAINER; the names of an owner are "" for what no container has."""
    names = (owner.namespace, owner.pod, owner.container) if owner else ("", "", "")
    return (*names, device.uuid, device.instance, node)


def gauge(
    name: str, text: str, labels: Sequence[str] = (), *, fill: Fill[LookT] = _nothing, write: Write[LookT] = _nothing
) -> OwnFamily[LookT]:
    """A family of a value that goes up and down."""
    return OwnFamily(name, "gauge", text, tuple(labels), fill=fill, write=write)


def counter(
    name: str, text: str, labels: Sequence[str] = (), *, fill: Fill[LookT] = _nothing, write: Write[LookT] = _nothing
) -> OwnFamily[LookT]:
    """A family of an amount that only grows."""
    return OwnFamily(name, "counter", text, tuple(labels), fill=fill, write=write)


def filled(families: Iterable[OwnFamily[LookT_contra]], look: LookT_contra) -> Iterable[Filled]:
    """The families with their samples."""
    began = look.telemetry.began
    return (Filled(family, family.fill(look), family.write(look), began) for family in families)
