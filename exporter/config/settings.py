"""A setting is one field of a group: its type, its flag, the kind of its value, its help and its default.

A group is a frozen dataclass of fields by `setting`, `optional` and `several`; a configuration is one of groups. Flags,
environment names, file keys, --help and values are made of them. A type checker holds a field to what its parser makes.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from exporter.config.parsers import SettingKind, without_secrets
from exporter.errors import Trouble

ENVIRONMENT_PREFIX = "POD_GPU_EXPORTER_"
T = TypeVar("T")
_KEY = "setting"
_DEFAULT = "the default of "
_BY_DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the command line, the environment and a file need to know of a field. `name` is the flag without its dashes.

    A repeatable one's `default` is comma-separated. Without one, `absent` is the value of a setting not given.
    """

    name: str
    kind: SettingKind[Any]
    help: str
    default: str | None = None
    absent: object = None
    repeatable: bool = False
    also_env: str = ""

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


def setting(name: str, kind: SettingKind[T], says: str, *, default: str | None = None, also_env: str = "") -> T:
    """A field with one value. One without a default follows from the machine or from other settings (load.py)."""
    made: T = _field(Setting(name=name, kind=kind, help=says, default=default, also_env=also_env))
    return made


def optional(name: str, kind: SettingKind[T], says: str, *, also_env: str = "") -> T | None:
    """A field that is None where it is not given."""
    made: T | None = _field(Setting(name=name, kind=kind, help=says, also_env=also_env))
    return made


def several(
    name: str, kind: SettingKind[T], says: str, *, default: str | None = None, also_env: str = ""
) -> tuple[T, ...]:
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
    groups = ((each.name, each.type) for each in fields(configuration))
    return {name: group for name, group in groups if isinstance(group, type) and is_dataclass(group)}


def all_settings(configuration: type) -> tuple[Setting, ...]:
    """The settings of all groups of a configuration, in that order."""
    return tuple(setting for group in groups_of(configuration).values() for _, setting in settings_of(group))


@dataclass(frozen=True, slots=True)
class Given:
    """The texts of a setting, and where they were given, as errors name it."""

    where: str
    values: tuple[str, ...]

    @property
    def origin(self) -> str:
        """Where they come from, for people."""
        return _BY_DEFAULT if self.where.startswith(_DEFAULT) else self.where


def by_default(flag: str, *texts: str) -> Given:
    """A default, which an error names as such."""
    return Given(f"{_DEFAULT}{flag}", texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """`config_file` and `given` (texts by setting) made it; `doubts`: what was probably meant otherwise."""

    config_file: str | None
    given: tuple[tuple[str, Given], ...]
    doubts: tuple[Trouble, ...]

    def is_default(self, name: str) -> bool:
        """Whether a setting has its default because nobody gave it."""
        given = dict(self.given)
        return name in given and given[name].origin == _BY_DEFAULT

    def shown(self) -> dict[str, dict[str, str]]:
        """Every setting's value and where it comes from, for people: without user information and query of URLs."""
        return {
            name: {"value": ",".join(map(without_secrets, texts.values)), "from": texts.origin}
            for name, texts in self.given
        }

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it is made of: a change in one of them is a change of the configuration."""
        return tuple(path for path in (self.config_file, *self._named_files()) if path)

    def _named_files(self) -> tuple[str | None, ...]:
        """Those that settings name, and that are read with it."""
        return ()
