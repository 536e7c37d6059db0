"""The texts of settings from every place that may give them, best first: flag, environment, file, default.

Pure: the environment and the file's content come in as values. What else follows from them is each role's own affair.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

from exporter.config.environment import doubts, settings_from
from exporter.config.given import Configuration, Given, by_default
from exporter.config.parsers import without_secrets
from exporter.config.settings import Setting, groups_of, settings_of
from exporter.errors import ConfigError

ByName = Mapping[str, Setting]
ConfigT = TypeVar("ConfigT", bound=Configuration)


def by_name(settings: Sequence[Setting]) -> ByName:
    """Settings by their names."""
    return {setting.name: setting for setting in settings}


def gather(
    settings: ByName, flags: Mapping[str, Sequence[str]], environ: Mapping[str, str], file: Mapping[str, Any] | None
) -> dict[str, Given]:
    """The texts of every setting that anybody gives or that has a default; for the arguments see load.py.

    Raises:
        ConfigError: see `from_file`.
    """
    return {
        **defaults(settings),
        **from_file(settings, file or {}),
        **settings_from(environ, tuple(settings.values())),
        **from_flags(flags),
    }


def make(
    configuration: type[ConfigT],
    settings: ByName,
    given: Mapping[str, Given],
    environ: Mapping[str, str],
    config_file: str | None,
) -> ConfigT:
    """A configuration of these texts alone.

    Raises:
        ConfigError: see `parse`.
    """
    values = {name: parse(settings, name, texts) for name, texts in given.items()}
    return configuration(
        **{name: group(**fields_of(group, values)) for name, group in groups_of(configuration).items()},
        config_file=config_file,
        given=tuple(sorted(given.items())),
        doubts=tuple(doubts(environ, tuple(settings.values()))),
    )


def defaults(settings: ByName) -> dict[str, Given]:
    """What holds where nobody says anything."""
    return {
        name: by_default(setting.flag, *(setting.default.split(",") if setting.repeatable else (setting.default,)))
        for name, setting in settings.items()
        if setting.default is not None
    }


def from_flags(flags: Mapping[str, Sequence[str]]) -> dict[str, Given]:
    """What the command line says, by setting name; a flag that was not given is absent."""
    return {name: Given(flag_of(name), tuple(values)) for name, values in flags.items()}


def from_file(settings: ByName, file: Mapping[str, Any], prefix: str = "") -> dict[str, Given]:
    """What a parsed file says, flat (`kubelet.socket: …`) or nested.

    Raises:
        ConfigError: a key that is no setting, or is given twice, or has a value of the wrong form.
    """
    found: dict[str, Given] = {}
    for key, value in file.items():
        name = f"{prefix}{key}"
        setting = settings.get(name)
        if setting is None and isinstance(value, Mapping):
            inside = from_file(settings, value, f"{name}.")
            _refuse_twice(found.keys() & inside.keys())
            found |= inside
            continue
        _refuse_twice({name} & found.keys())
        if setting is None:
            close = ", ".join(sorted(settings))
            raise ConfigError(f"config file: {name!r} is not a key; the keys are {close}")
        found[name] = Given(f"config file: {name}", _texts_of(setting, value))
    return found


def parse(settings: ByName, name: str, given: Given) -> Any:  # noqa: ANN401 - each setting has a type of its own
    """The value, or the values of one that may be repeated.

    Raises:
        ConfigError: with one line that names the key, the value and what is allowed.
    """
    setting = settings[name]
    values = []
    for text in given.values:
        try:
            values.append(setting.kind.parse(text))
        except ValueError:
            shown = without_secrets(repr(text))
            raise ConfigError(f"{given.where}: {shown} is not allowed; it takes {setting.allowed}") from None
    return tuple(values) if setting.repeatable else values[-1]


def fields_of(group: type, values: Mapping[str, object]) -> dict[str, Any]:
    """What a group's settings are filled with, by the names of its fields."""
    return {field: values.get(setting.name, setting.absent) for field, setting in settings_of(group)}


def flag_of(name: str) -> str:
    """How a setting is named in an error about the command line."""
    return f"--{name}"


def _texts_of(setting: Setting, value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    if (isinstance(value, list) and not setting.repeatable) or any(
        isinstance(item, list | Mapping) or item is None for item in values
    ):
        shown = without_secrets(repr(value))
        raise ConfigError(f"config file: {setting.name}: {shown} is not allowed; it takes {setting.allowed}")
    return tuple(_text_of(item) for item in values)


def _refuse_twice(names: AbstractSet[str]) -> None:
    """`kubelet.socket: /x` and `kubelet: {socket: /y}` are one key."""
    if names:
        raise ConfigError(f"config file: {min(names)} is given twice; give each key once")


def _text_of(value: object) -> str:
    """YAML's booleans are accepted where on and off are meant."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
