"""Settings: a setting is one field of a group, with its type, flag, kind of value, help and default.

A group is a frozen dataclass whose fields `setting`, `optional` and `several` make; a configuration is a dataclass of
groups. Flags, environment names, file keys, --help and values are made of them. A type checker holds a field's type to
the type that its parser returns.
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
    """The facts about a field that the command line, the environment and a file need.

    Attributes:
        name: the flag without its dashes.
        kind: the kind of its value.
        help: the text of --help.
        default: the default's text, comma-separated if the setting is repeatable; None for no default.
        absent: the value if there is neither a text nor a default.
        repeatable: whether it may be given several times.
        also_env: another program's environment name, which gives it, too; "" for none.
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
        """The flag as it stands on the command line."""
        return f"--{self.name}"

    @property
    def parameter(self) -> str:
        """The name as a Python name."""
        return re.sub(r"[.-]", "_", self.name)

    @property
    def env(self) -> str:
        """The environment name: `--web.listen-address` is POD_GPU_EXPORTER_WEB_LISTEN_ADDRESS."""
        return ENVIRONMENT_PREFIX + self.parameter.upper()


def setting(name: str, kind: SettingKind[T], says: str, *, default: str | None = None, also_env: str = "") -> T:
    """A field with one value. Without a default it follows from the machine or from other settings (load.py)."""
    made: T = _field(Setting(name=name, kind=kind, help=says, default=default, also_env=also_env))
    return made


def optional(name: str, kind: SettingKind[T], says: str, *, also_env: str = "") -> T | None:
    """A field that is None if nobody gives the setting."""
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
    """The fields of a group that are settings: each field's name, and its setting."""
    for declared in fields(group):
        if _KEY in declared.metadata:
            yield declared.name, declared.metadata[_KEY]


def groups_of(configuration: type) -> Mapping[str, type]:
    """A configuration's groups by their names, in the order in which --help shows their settings."""
    groups = ((declared.name, declared.type) for declared in fields(configuration))
    return {name: group for name, group in groups if isinstance(group, type) and is_dataclass(group)}


def all_settings(configuration: type) -> tuple[Setting, ...]:
    """The settings of all groups of a configuration, in the order of --help."""
    return tuple(setting for group in groups_of(configuration).values() for _, setting in settings_of(group))


@dataclass(frozen=True, slots=True)
class SettingTexts:
    """The texts of a setting, and the place that gave them, as errors name it."""

    where: str
    values: tuple[str, ...]

    @property
    def origin(self) -> str:
        """The place that gave the texts, for people."""
        return _BY_DEFAULT if self.where.startswith(_DEFAULT) else self.where


def by_default(flag: str, *texts: str) -> SettingTexts:
    """The texts of a default. An error about them says that they are a default."""
    return SettingTexts(f"{_DEFAULT}{flag}", texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A role's configuration.

    Attributes:
        config_file: the file that was read; None for none.
        given: the texts of every setting, by its name.
        doubts: about texts that look like mistakes.
    """

    config_file: str | None
    given: tuple[tuple[str, SettingTexts], ...]
    doubts: tuple[Trouble, ...]

    def is_default(self, name: str) -> bool:
        """Whether a setting has its default since nobody gave it."""
        given = dict(self.given)
        return name in given and given[name].origin == _BY_DEFAULT

    def shown(self) -> dict[str, dict[str, str]]:
        """Every setting's value and the place that gave it, for people. URLs have neither user nor query."""
        return {
            name: {"value": ",".join(map(without_secrets, texts.values)), "from": texts.origin}
            for name, texts in self.given
        }

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the configuration is made of. If one of them changes, so does the configuration."""
        return tuple(path for path in (self.config_file, *self._named_files()) if path)

    def _named_files(self) -> tuple[str | None, ...]:
        """The files that settings name and that are read with the configuration."""
        return ()
