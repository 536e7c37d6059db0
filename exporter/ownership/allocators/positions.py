"""The containers of a pod that the places of an annotation belong to.

Tests: tests/ownership/test_words.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from exporter.model.grants import Grant
from exporter.model.pods import PodContainer
from exporter.ownership.allocators.allocator_table import Annotation, Scope
from exporter.ownership.allocators.said import Said, Unreadable, WrittenDevice
from exporter.wording import counted

# the entries of each container that has some, by its name
Entries = Mapping[str, tuple[WrittenDevice, ...]]


def places(written: Said, annotation: Annotation, resource: str, containers: Sequence[PodContainer]) -> Entries:
    """The entries of each container that holds `resource`, by the container's name.

    `containers` are the pod's init containers, then its containers. The answer names every container whose limits name
    the resource, and no other.

    Raises Unreadable: the places fit the containers in no way, or in several ways that differ.
    """
    if not any(written.containers):
        raise Unreadable("it names no device")
    holders = [container.name for container in containers if _holds(container, resource, annotation.resources)]
    if annotation.scope is Scope.POD:
        if not holders:
            raise Unreadable(f"no container of the pod asks for {resource}")
        return _of_the_pod(written, annotation, holders)
    fitting = list(_fitting(written, annotation, containers, holders))
    if not fitting:
        raise Unreadable(_misfit(written, containers, resource))
    if any(other != fitting[0] for other in fitting):
        raise Unreadable("its places fit the pod's containers in more than one way")
    return fitting[0]


def _holds(container: PodContainer, resource: str, globs: Iterable[str]) -> bool:
    """Whether a container holds the resource, or another one that the annotation is about."""
    globs = [glob for glob in globs if glob != "*"]
    return any(name == resource or any(fnmatchcase(name, glob) for glob in globs) for name in container.resources)


def _of_the_pod(written: Said, annotation: Annotation, holders: Sequence[str]) -> Entries:
    entries = tuple(entry for place in written.containers for entry in place)
    if annotation.is_of_one_container and len(holders) > 1:
        raise Unreadable(
            f"it names the devices of the pod, and {counted(len(holders), 'container')} hold some: nothing says whose"
            " each device is"
        )
    if len(holders) > 1:
        # the parts are those of all containers together, and nothing says which part is whose
        entries = tuple(replace(entry, grant=Grant(allocator=entry.grant.allocator)) for entry in entries)
    return dict.fromkeys(holders, entries)


def _fitting(
    written: Said,
    annotation: Annotation,
    containers: Sequence[PodContainer],
    holders: Sequence[str],
) -> Iterable[Entries]:
    """The ways in which the places fit: each place with devices belongs to a container that holds some, and so back."""
    given = [written.containers]
    if written.may_be_over:
        given.append(written.containers[:-1])
    names = [container.name for container in containers]
    without_init = [container.name for container in containers if not container.is_init]
    ways: list[Sequence[str]] = [names, without_init]
    if annotation.scope is Scope.HOLDERS:
        ways.append(holders)
    for way in ways:
        for those in given:
            behind = len(way) - len(those)
            if behind < 0 or (behind and not written.is_open):
                continue
            entries = {name: entries for name, entries in zip(way, those, strict=not written.is_open) if entries}
            if entries.keys() == set(holders) or not holders:
                yield entries


def _misfit(written: Said, containers: Sequence[PodContainer], resource: str) -> str:
    init = sum(container.is_init for container in containers)
    with_devices = sum(map(bool, written.containers))
    return (
        f"it has {counted(len(written.containers), 'place')}, {with_devices} of them with devices; the pod has"
        f" {counted(len(containers) - init, 'container')} and {counted(init, 'init container')}, and those that ask for"
        f" {resource} do not stand at these places"
    )
