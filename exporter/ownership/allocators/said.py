"""What an allocator's annotation says: devices and parts of devices, by container.

Tests: tests/ownership/allocators/test_hami.py.
"""

from dataclasses import dataclass

from exporter.errors import ExporterError
from exporter.model.device_ref import DeviceRef
from exporter.model.grants import Grant
from exporter.model.pods import MOST_ANNOTATION_CHARS
from exporter.wording import escaped

# 20 containers with 16 GPUs each need 20 KiB. A longer text may be cut.
LONGEST = MOST_ANNOTATION_CHARS
# 8 containers with all GPUs of a node. A text that is read takes some 3 ms at most.
MOST_PLACES = 256
MOST_DEVICES = 16 * 8
MOST_MIB = 10 * 1024 * 1024.0
MOST_PERCENT = 1000.0
_MOST_SHOWN = 80


class Unreadable(ExporterError, ValueError):
    """An annotation names no devices for containers. The text is one line: what is wrong, and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenDevice:
    """One device of one container, as an annotation names it.

    Attributes:
        ref: the device.
        grant: the part of the device.
        memory_units: the part of the device's memory in the allocator's own unit, of which the annotation does not say
            whether it is GiB or MiB: gpushare counts what its node counts. None if `grant` says all there is.
    """

    ref: DeviceRef
    grant: Grant
    memory_units: float | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """The entries of an annotation by container. An annotation of the whole pod has one place, for all containers.

    positions.py tells which container a place belongs to.

    Attributes:
        containers: the entries of each place.
        may_be_over: the last place may be only what stands behind the text that ends the last container.
        is_open: containers behind the last place are left out, since they have no devices.
    """

    containers: tuple[tuple[WrittenDevice, ...], ...]
    may_be_over: bool = False
    is_open: bool = False


def shown(text: str) -> str:
    """A text of an annotation as a message shows it: quoted, on one line and short."""
    return f"'{escaped(text, _MOST_SHOWN)}'"


def check_length(text: str) -> None:
    """Raise Unreadable: the text is too long to be read."""
    if len(text) > LONGEST:
        raise Unreadable(f"it has more than {LONGEST} characters, which are not read")


def amount(number: float, most: float, what: str) -> float | None:
    """A part of a device; None for 0, which stands for no limit. `what` names the number and its unit for people.

    Raises Unreadable: no device has that much.
    """
    if not 0 <= number <= most:  # so is no number that is not finite
        raise Unreadable(f"{what} is {number:g}; it must be from 0 to {most:g}")
    return number or None
