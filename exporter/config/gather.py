"""The texts of settings from flags, the environment, the file and defaults. The first of these that has a text wins.

Tests: tests/config/test_config.py.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import SplitResult

from exporter.config.environment import doubts, settings_from
from exporter.config.parsers import Address, without_secrets
from exporter.config.settings import Configuration, Setting, SettingTexts, by_default, groups_of, settings_of
from exporter.errors import ConfigError
from exporter.lenient import AnyObject

ByName = Mapping[str, Setting]
ConfigT = TypeVar("ConfigT", bound=Configuration)


def gather(
    settings: ByName, flags: Mapping[str, Sequence[str]], environ: Mapping[str, str], file: AnyObject | None
) -> dict[str, SettingTexts]:
    """The texts of every setting that is given or has a default. The arguments are those of `load` in load.py.

    Raises ConfigError: see `from_file`.
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
    given: Mapping[str, SettingTexts],
    environ: Mapping[str, str],
    config_file: str | None,
) -> ConfigT:
    """The configuration that these texts give, without any other default. Raises ConfigError: see `parse`."""
    values = {name: parse(settings, name, texts) for name, texts in given.items()}
    return configuration(
        **{name: group(**fields_of(group, values)) for name, group in groups_of(configuration).items()},
        config_file=config_file,
        given=tuple(sorted(given.items())),
        doubts=tuple(doubts(environ, tuple(settings.values()))),
    )


def defaults(settings: ByName) -> dict[str, SettingTexts]:
    """The defaults, by setting name."""
    return {
        name: by_default(setting.flag, *(setting.default.split(",") if setting.repeatable else (setting.default,)))
        for name, setting in settings.items()
        if setting.default is not None
    }


def from_flags(flags: Mapping[str, Sequence[str]]) -> dict[str, SettingTexts]:
    """The texts from the command line, by setting name; a flag that was not given is absent."""
    return {name: SettingTexts(f"--{name}", tuple(values)) for name, values in flags.items()}


def from_file(settings: ByName, file: AnyObject, prefix: str = "") -> dict[str, SettingTexts]:
    """The texts from a parsed file, by setting name. Its keys may be flat or nested.

    Raises ConfigError: a key is no setting or is given twice, or a value has the wrong form.
    """
    given: dict[str, SettingTexts] = {}
    for key, value in file.items():
        name = f"{prefix}{key}"
        setting = settings.get(name)
        if setting is None and isinstance(value, Mapping):
            inside = from_file(settings, value, f"{name}.")
            _refuse_twice(given.keys() & inside.keys())
            given |= inside
            continue
        _refuse_twice({name} & given.keys())
        if setting is None:
            raise ConfigError(f"config file: {name!r} is not a key{_instead(name, value, settings)}")
        given[name] = SettingTexts(f"config file: {name}", _texts_of(setting, value))
    return given


def parse(settings: ByName, name: str, given: SettingTexts) -> Any:  # noqa: ANN401 - each setting has a type of its own
    """The value of a setting; a tuple of values if it may be repeated.

    Raises ConfigError: a text is not allowed. The error's one line has the key, the text and what is allowed.
    """
    setting = settings[name]
    values = []
    for text in given.values:
        try:
            values.append(setting.kind.parse(text))
        except ValueError:
            shown = without_secrets(repr(text))
            several = "; of several, give each for itself" if setting.repeatable and "," in text else ""
            raise ConfigError(
                f"{given.where}: {shown} is not allowed; it takes {setting.kind.allowed}{several}"
            ) from None
    return tuple(values) if setting.repeatable else values[-1]


def fields_of(group: type, values: Mapping[str, object]) -> dict[str, Any]:
    """The values of a group's settings, by the names of its fields."""
    return {field: values.get(setting.name, setting.absent) for field, setting in settings_of(group)}


def _instead(name: str, value: object, settings: ByName) -> str:
    from exporter.config.suggestions import ROLES, did_you_mean  # noqa: PLC0415 - only a mistake needs it

    role = ROLES.get(name.partition(".")[0])
    if role and role not in {ROLES.get(setting.partition(".")[0]) for setting in settings}:
        return f" of this command; {role} takes it: leave it out here"
    if value is None and any(setting.startswith(f"{name}.") for setting in settings):
        return ": nothing stands below it; indent its keys by two spaces, or leave it out"
    return f"; {did_you_mean(name, settings) or 'the keys are the flags without leading dashes: see --help-all'}"


def _texts_of(setting: Setting, value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    trouble = ""
    if isinstance(value, list) and not setting.repeatable:
        trouble = f"{value!r} is not allowed, since it takes one value and no list"
    elif None in values:
        trouble = "it has no value; give it one, or leave it out"
    elif any(isinstance(item, list | Mapping) for item in values):
        trouble = f"{value!r} is not allowed, since nothing stands below this key"
    if trouble:
        raise ConfigError(f"config file: {setting.name}: {without_secrets(trouble)}; it takes {setting.kind.allowed}")
    return tuple(_text_of(item) for item in values)


def _refuse_twice(names: AbstractSet[str]) -> None:
    """Refuse keys that a file has in both forms: `kubelet.socket: /x` and `kubelet: {socket: /y}` are the same key."""
    if names:
        raise ConfigError(f"config file: {min(names)} is given twice; give each key once")


def _text_of(value: object) -> str:
    """A value of the file as a setting's text. YAML's booleans become on and off."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def check_not_own_address(flag: str, upstream: SplitResult, own_addresses: Sequence[Address], which: str = "") -> None:
    """Refuse an upstream that is surely this program itself. `which` ends the error with what the user can move.

    Raises ConfigError: the upstream has an address of `own_addresses`.
    """
    port = upstream.port or (443 if upstream.scheme == "https" else 80)
    for own in own_addresses:
        if port == own.port and _same_machine(upstream.hostname or "", own.host):
            raise ConfigError(
                f"{flag}: {without_secrets(upstream.geturl())} is this exporter's own address ({own}): one of the two"
                f" must move{which}"
            )


def check_once(flag: str, values: Sequence[object]) -> None:
    """Refuse a value that is given twice, except port 0, which means another free port each time.

    Raises ConfigError: a value is given twice.
    """
    for value in values:
        if values.count(value) > 1 and not (isinstance(value, Address) and value.port == 0):
            raise ConfigError(f"{flag}: {without_secrets(str(value))} is named twice; name each once")


def _same_machine(upstream: str, own: str) -> bool:
    """Whether a URL's host is surely this machine, at an address where this program listens."""
    if own and upstream == own:
        return True
    return _is_loopback(upstream) and (not own or _is_loopback(own))


def _is_loopback(host: str) -> bool:
    if host in ("localhost", "0.0.0.0", "::"):  # noqa: S104 - connecting to "any" reaches this machine
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
