"""The findings of `doctor` about allocators, whose word tells which device a container has. Pure.

Tests: tests/outputs/test_granted.py.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from exporter.accounts.over_commitment import over_committed
from exporter.model.snapshot import Snapshot
from exporter.outputs.diagnosis import Finding, Level, fine, warning
from exporter.ownership.words import THE_ID
from exporter.wording import counted


def of_allocators(snapshot: Snapshot) -> Iterator[Finding]:
    """Who says which devices containers have, by allocator, and each contradiction."""
    sources = defaultdict[str, Counter[str]](Counter)
    others = defaultdict[str, Counter[str]](Counter)
    for match in snapshot.owners.matches:
        word = match.assignment.word
        if word is None or not word.names_device or not word.source:
            continue
        allocator = word.grant.allocator
        sources[allocator][word.source] += 1
        if word.is_of_id is False:
            others[allocator]["annotations" if word.source == THE_ID else "the kubelet's ids"] += 1
    for allocator, counts in sorted(sources.items()):
        by_source = ", ".join(f"{count} by {source}" for source, count in sorted(counts.items()))
        devices = counted(counts.total(), "device")
        differ = (f"; {those} name another device for {count} of them" for those, count in others[allocator].items())
        yield fine(allocator, f"names {devices} of containers: {by_source}{''.join(differ)}")
    for match, trouble in snapshot.owners.contradictions:
        yield Finding(Level.WARNING, match.assignment.owner.name, trouble)
    for key, part in sorted(over_committed(snapshot.owners, snapshot.joined).items()):
        yield warning(
            key.uuid,
            f"the GPU is over-committed: its holders were granted {part:.0%} of it",
            "if it is not meant, set the allocator's deviceMemoryScaling to 1: pods that use all that they were granted"
            " fail, or move memory to the host",
        )
