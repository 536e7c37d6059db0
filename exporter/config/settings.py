"""A setting is one field of a group: its type, its flag, the kind of its value, its help and its default.

A group is a frozen dataclass whose fields are declared with `setting`, `optional` and `several`; a configuration is a
frozen dataclass of groups. Flags, environment names, file keys, --help and the values themselves are made from these
fields (cli/options.py, load.py). A type checker holds a field's type to what its parser makes.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from exporter.config.kinds import Kind

ENVIRONMENT_PREFIX = "POD_GPU_EXPORTER_"
T = TypeVar("T")
_KEY = "setting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the command line, the environment and a file need to know of a field.

    `name` is the flag without its dashes. A repeatable one's `default` is comma-separated. Without a
    `default`, `absent` is the value of a setting that is not given.
    """

    name: str
    kind: Kind[Any]
    help: str
    default: str | None = None
    absent: object = None
    repeatable: bool = False
    also_env: str = ""

    @property
    def allowed(self) -> str:
        """What it takes, in words."""
        return self.kind.allowed

    @property
    def flag(self) -> str:
        """As it stands on the command line."""
        return f"--{self.name}"

    @property
    def parameter(self) -> str:
        """As a Python name."""
        return re.sub(r"[.-]", "_", self.name)

    @property
    def env(self) -> str:
        """The environment name: `--web.listen-address` is POD_GPU_EXPORTER_WEB_LISTEN_ADDRESS."""
        return ENVIRONMENT_PREFIX + self.parameter.upper()


def setting(name: str, kind: Kind[T], says: str, *, default: str | None = None, also_env: str = "") -> T:
    """A field with one value. One without a default follows from the machine or from other settings (load.py)."""
    made: T = _field(Setting(name=name, kind=kind, help=says, default=default, also_env=also_env))
    return made


def optional(name: str, kind: Kind[T], says: str, *, also_env: str = "") -> T | None:
    """A field that is None where it is not given."""
    made: T | None = _field(Setting(name=name, kind=kind, help=says, also_env=also_env))
    return made


def several(name: str, kind: Kind[T], says: str, *, default: str | None = None, also_env: str = "") -> tuple[T, ...]:
    """A field with as many values as are given, in their order."""
    made: tuple[T, ...] = _field(
        Setting(name=name, kind=kind, help=says, default=default, absent=(), repeatable=True, also_env=also_env)
    )
    return made


def _field(made: Setting) -> Any:  # noqa: ANN401 - the functions above say what the field will hold
    return field(metadata={_KEY: made})


def settings_of(group: type) -> Iterator[tuple[str, Setting]]:
    """A group's settings, by the names of their fields. Fields that no setting fills are left out."""
    for each in fields(group):
        if _KEY in each.metadata:
            yield each.name, each.metadata[_KEY]


def groups_of(configuration: type) -> Mapping[str, type]:
    """A configuration's groups by their names, in the order in which --help shows their settings."""
    found = ((each.name, each.type) for each in fields(configuration))
    return {name: group for name, group in found if isinstance(group, type) and is_dataclass(group)}
