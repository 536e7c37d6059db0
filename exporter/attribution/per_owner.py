"""Which samples of a page are per owner already: nobody copies or divides those."""

from collections.abc import Mapping, Sequence

from exporter.model.pages import Subject


class PerOwner:
    """The samples of one page that are each one owner's part of their device.

    A row of a virtual GPU is one owner's part. So are several rows of one family and device that came with different
    owners. A row without owner beside one with an owner reports the same GPU once more; beside a virtual GPU's row it
    is the device's own, the part that no owner holds.
    """

    def __init__(self, samples: Sequence[tuple[bytes, Subject]]) -> None:
        """`samples` are all of one page, as family and subject."""
        came_with_owners = any(subject.came_with for _, subject in samples)
        self._device_of = _device_numbers(samples) if came_with_owners else {}
        self._several = _told_several_times(samples, self._device_of) if came_with_owners else frozenset()

    def __bool__(self) -> bool:
        """Whether a sample's family makes a difference."""
        return bool(self._several)

    def __contains__(self, sample: tuple[bytes, Subject]) -> bool:
        name, subject = sample
        return bool(subject.vgpu) or (bool(self._several) and (name, self._device_of[id(subject)]) in self._several)


def _device_numbers(samples: Sequence[tuple[bytes, Subject]]) -> dict[int, int]:
    """A number for each device, by the subjects' own ids: on a large page a key for each sample costs 100 ms."""
    numbers: dict[object, int] = {}
    number_of: dict[int, int] = {}
    for _, subject in samples:
        if id(subject) not in number_of:
            number_of[id(subject)] = numbers.setdefault(subject.key, len(numbers))
    return number_of


def _told_several_times(
    samples: Sequence[tuple[bytes, Subject]], device_of: Mapping[int, int]
) -> frozenset[tuple[bytes, int]]:
    """The families and numbers of devices that come with a virtual GPU's row, or with rows of different owners."""
    first: dict[tuple[bytes, int], Subject] = {}
    several: set[tuple[bytes, int]] = set()
    for name, subject in samples:
        if subject.came_with is None:
            continue
        family_and_device = (name, device_of[id(subject)])
        one = first.setdefault(family_and_device, subject)
        is_another = one is not subject and (
            subject.came_with != one.came_with or _differ(subject.came_with_uid, one.came_with_uid)
        )
        if (subject.vgpu or is_another) and subject.key.uuid:
            several.add(family_and_device)
    return frozenset(several)


def _differ(uid: str, other: str) -> bool:
    return bool(uid and other) and uid != other
