"""The choice between what an allocator says of a container and what the node shows of it.

The first of these counts that names as many devices as the container was given:

1. evidence that names all of the container's devices: what the plugin answered the kubelet, or the environment;
2. NVML, where the container's processes run on a device that the allocator does not name;
3. the allocator's word.

Tests: tests/ownership/test_words.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.errors import Trouble
from exporter.model.device_ref import DeviceRef
from exporter.model.grants import Given, Grant, Word
from exporter.ownership.allocators.allocator_table import Allocator
from exporter.ownership.allocators.said import WrittenDevice
from exporter.ownership.names_of_gpus import NamesOfGpus


@dataclass(frozen=True, slots=True)
class Heard:
    """The word of an allocator for one container: an entry for each device, or the trouble why there is no word."""

    source: str
    entries: tuple[WrittenDevice, ...] = ()
    trouble: Trouble | None = None


def no_word(source: str, message: str) -> Trouble:
    """The trouble with a word that is there and does not count."""
    return Trouble(
        "",
        f"{source} cannot be believed: {message}",
        "no owner is shown until it can; look at the allocator's scheduler and device plugin, or who else wrote it",
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice between what the allocator says of a container and what the node shows.

    `most` is the number of devices that the container was given; None if it is not known.
    """

    allocator: Allocator
    heard: Heard
    most: int | None
    names: NamesOfGpus

    def words(self, given: Iterable[Given]) -> Sequence[Word]:
        """A word for each device, or for each token if the number of devices is not known."""
        for shown in given:
            if shown.is_whole and shown.refs and self.most in (None, len(shown.refs)):
                return self._shown(shown)
            if not shown.is_whole and self._names_others(shown):
                return self._seen(shown)
        if self.heard.entries:
            return [Word(grant=entry.grant, source=self.heard.source, ref=entry.ref) for entry in self.heard.entries]
        return [self._unknown] * self._number

    def _names_others(self, seen: Given) -> bool:
        """Whether processes run on a device that the word does not name, though not on more than were given.

        A privileged container may use every GPU of the node.
        """
        return len(seen.refs) <= self._number and not {*map(self.names.of, seen.refs)} <= self._by_word.keys()

    @property
    def _number(self) -> int:
        """The number of devices that the container has; where it is not known, one is likely."""
        return self.most or 1

    @property
    def _by_word(self) -> Mapping[object, WrittenDevice]:
        return {self.names.of(entry.ref): entry for entry in self.heard.entries}

    @property
    def _unknown(self) -> Word:
        grant = Grant(allocator=self.allocator.name)
        return Word(grant=grant, source=self.heard.source, trouble=self.heard.trouble or self.allocator.trouble)

    def _shown(self, shown: Given) -> Sequence[Word]:
        """The words of evidence that names all devices of the container."""
        grants = shown.grants or self._grants_for(shown.refs)
        trouble = self._contradiction(shown)
        return [
            Word(grant=grant, source=shown.source, ref=ref, trouble=trouble)
            for ref, grant in zip(shown.refs, grants, strict=True)
        ]

    def _seen(self, seen: Given) -> Sequence[Word]:
        """The words of evidence that may lack devices: those without a process stay unknown."""
        trouble = self._contradiction(seen)
        grants = self._grants_for(seen.refs)
        words = [
            Word(grant=grant, source=seen.source, ref=ref, trouble=trouble)
            for ref, grant in zip(seen.refs, grants, strict=True)
        ]
        return [*words, *[self._unknown] * (self._number - len(words))]

    def _grants_for(self, refs: Sequence[DeviceRef]) -> Sequence[Grant]:
        """What the allocator says of the parts of these devices, by the device or else in its order."""
        entries = self.heard.entries
        in_order = [entry.grant for entry in entries[: len(refs)]]
        in_order += [Grant(allocator=self.allocator.name)] * (len(refs) - len(in_order))
        by_word = self._by_word
        own = [by_word.get(self.names.of(ref)) for ref in refs]
        return [entry.grant if entry else grant for entry, grant in zip(own, in_order, strict=True)]

    def _contradiction(self, shown: Given) -> Trouble | None:
        """The contradiction of the allocator's word by what the node shows; None if there is none."""
        by_word = self._by_word
        shown_names = [*map(self.names.of, shown.refs)]
        if not by_word or {*shown_names} <= by_word.keys():
            return None
        says = ", ".join(sorted(map(self.names.text, (entry.ref for entry in self.heard.entries))))
        shows = ", ".join(sorted(map(self.names.text, shown.refs)))
        return Trouble(
            "",
            f"{self.heard.source} says {says}, and {shown.source} shows {shows}, which counts",
            f"{self.allocator.name} gave another device than it wrote, or somebody else wrote the annotation: look at"
            " its device plugin on this node, and at who may write pods",
        )
