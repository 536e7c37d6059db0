"""The allocators of a user's rule file (`--device-rules`), in its section `allocators`.

    allocators:
    - name: Our scheduler
      resource: example.com/gpu
      annotation: example.com/gpus
      containers: ';'
      devices: ':'
      device: '(?P<uuid>[^,]+),(?P<memory_mib>[0-9]+),(?P<cores_percent>[0-9]+)'

`resource` is a glob, and `id` a regular expression for the ids of it that are tokens (by default all). `annotation` is
where the scheduler writes its choice. `containers` is the text between containers, or behind each; without it the
annotation is about the whole pod. `devices` is the text between devices, or behind each; without it a container has
one. `device` is a regular expression for one device. Its groups name the device as in `devices` of the file, or by
`minor` (N of /dev/nvidia<N>), and the part of it: `memory_mib`, `cores_percent`, `fraction` (0 to 1).
"""

import re
from collections.abc import Container, Mapping

from exporter.ownership.allocators.allocator_table import ALLOCATORS, Allocator, Annotation, Scope
from exporter.ownership.allocators.separated import AMOUNTS, NAMING_PARTS, REF_PARTS, Separated
from exporter.reading import compiled

_REQUIRED = ("name", "resource", "annotation", "device")
_OPTIONAL = ("id", "containers", "devices")
_ANY_ID = r"[\s\S]*"
_ID_PARTS = frozenset({*REF_PARTS, "share"}) - {"minor"}
_DEVICE_PARTS = frozenset({*REF_PARTS, *AMOUNTS, "share"})


def read_allocators(content: object) -> tuple[Allocator, ...]:
    """The allocators that a parsed section describes.

    Raises ValueError: the section has another form; one line that says what is wrong, and where.
    """
    if not isinstance(content, list):
        raise ValueError(f"`allocators` must be a list, each with {_listed(_REQUIRED)}")  # noqa: TRY004 - the caller words it
    allocators: list[Allocator] = []
    taken = set(ALLOCATORS)
    for number, fields in enumerate(content):
        allocator = _allocator(fields, f"allocators[{number}]", taken)
        taken.add(allocator.name)
        allocators.append(allocator)
    return tuple(allocators)


def _allocator(content: object, where: str, taken: Container[str]) -> Allocator:
    """An allocator of the file. Raises ValueError: its fields have another form, or its name is one of those taken."""
    texts = _texts(content, where)
    name = texts["name"]
    if name in taken:
        raise ValueError(f"{where}.name: {name!r} is taken; give the allocator a name of its own")
    device = _pattern(texts["device"], f"{where}.device", _DEVICE_PARTS)
    if not NAMING_PARTS & device.groupindex.keys():
        raise ValueError(
            f"{where}.device: {texts['device']!r} must name the device that it finds, (?P<uuid>…), with one of"
            f" {', '.join(sorted(NAMING_PARTS))}"
        )
    id_text = texts.get("id", _ANY_ID)
    _pattern(id_text, f"{where}.id", _ID_PARTS)
    containers = texts.get("containers", "")
    grammar = Separated(
        allocator=name,
        device=device,
        shape=f"as {where}.device has it",
        containers=containers,
        ends=None,
        devices=texts.get("devices", ""),
        is_share=not device.groupindex.keys().isdisjoint(AMOUNTS),
    )
    annotation = Annotation(
        key=texts["annotation"],
        grammar=grammar,
        resources=(texts["resource"],),
        scope=Scope.CONTAINERS if containers else Scope.POD,
    )
    return Allocator(name=name, annotations=(annotation,), tokens=((texts["resource"], id_text),))


def _texts(content: object, where: str) -> Mapping[str, str]:
    """The fields of an allocator. Raises ValueError: one is missing, not known, or no text."""
    allowed = {*_REQUIRED, *_OPTIONAL}
    if not isinstance(content, Mapping) or not set(_REQUIRED) <= content.keys() <= allowed:
        raise ValueError(f"{where} must hold {_listed(_REQUIRED)}, and may hold {_listed(_OPTIONAL)}")
    for key, text in content.items():
        if not isinstance(text, str) or not text:
            raise ValueError(f"{where}.{key} must be a text")
    return content


def _pattern(text: str, where: str, allowed: frozenset[str]) -> re.Pattern[str]:
    """A regular expression. Raises ValueError: it is none, or names what nobody knows."""
    try:
        pattern = compiled(text)
    except re.error as error:
        raise ValueError(f"{where}: {text!r} is no regular expression: {error}") from error
    if not pattern.groupindex.keys() <= allowed:
        raise ValueError(f"{where}: {text!r} must name nothing but {', '.join(sorted(allowed))}")
    return pattern


def _listed(keys: tuple[str, ...]) -> str:
    return ", ".join(f"`{key}`" for key in keys)
