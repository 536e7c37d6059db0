"""Configuration: flags, environment and file become one frozen `Config`, or a `ConfigError` of one line.

Precedence: flag > environment > file > default. What can be set is in node.py. Pure: the environment and the file's
content come in as values.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from exporter.config.contradictions import check_together
from exporter.config.environment import dcgm_path, dcgm_port, doubts, settings_from
from exporter.config.given import Given, by_default
from exporter.config.node import GROUPS, SETTINGS, Config
from exporter.config.pages import DEFAULT_DCGM_URL
from exporter.config.parsers import GPU_OPERATOR_NAMESPACES, LABEL_SETS, without_secrets
from exporter.config.settings import Setting, settings_of
from exporter.errors import ConfigError

_BY_NAME = {setting.name: setting for setting in SETTINGS}
_OTHER_PAGES = frozenset({"dcgm.file", "dcgm.selector"})


def load(
    flags: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    file: Mapping[str, Any] | None,
    host_name: str,
    config_file: str | None = None,
    own_namespace: str = "",
) -> Config:
    """Put the sources together.

    Args:
        flags: by setting name, the texts given on the command line; a flag that was not given is absent.
        environ: the process environment. Unknown names are ignored, with a doubt: Kubernetes' service links are none.
        file: the parsed `--config.file`, flat (`kubelet.socket: …`) or nested.
        host_name: the default of `--node-name`.
        config_file: the path that `file` was read from.
        own_namespace: the namespace of the service account; POD_NAMESPACE wins over it.

    Raises:
        ConfigError: with one line that names the key, the value and what is allowed.
    """
    given = _defaults()
    given.update(_from_file(file or {}))
    given.update(settings_from(environ))
    if environ.get("DCGM_HOST", "").strip():
        given.pop("dcgm.selector", None)
    given.update({name: Given(flag_of(name), tuple(values)) for name, values in flags.items()})
    values = {name: _parse(name, texts) for name, texts in given.items()}
    following = _following(values, host_name)
    values.update({name: _parse(name, texts) for name, texts in following.items()})
    values.setdefault("dcgm.selector", ())
    values["dcgm.selector-namespace"] = values.get("dcgm.selector-namespace") or _usual_namespaces(
        environ, own_namespace
    )
    besides: Mapping[str, Mapping[str, object]] = {
        "dcgm": {"port": dcgm_port(environ), "path": dcgm_path(environ)},
        "node": {"is_named": "node-name" in given},
    }
    port_is_used = "dcgm.selector" in given or ("dcgm.url" in given and given["dcgm.url"].where == "DCGM_HOST")
    config = Config(
        **{name: group(**_fields(group, values), **besides.get(name, {})) for name, group in GROUPS.items()},
        config_file=config_file,
        given=tuple(sorted((given | following).items())),
        doubts=tuple(doubts(environ, port_is_used=port_is_used)),
    )
    check_together(config)
    return config


def flag_of(name: str) -> str:
    """How a setting is named in an error about the command line."""
    return f"--{name}"


def _fields(group: type, values: Mapping[str, object]) -> dict[str, Any]:
    return {field: values.get(setting.name, setting.absent) for field, setting in settings_of(group)}


def _defaults() -> dict[str, Given]:
    return {
        setting.name: by_default(setting.flag, setting.default) for setting in SETTINGS if setting.default is not None
    }


def _following(values: Mapping[str, object], host_name: str) -> dict[str, Given]:
    """What was not given, and follows from other settings or from the machine."""
    idle = "empty" if values["labels.names"] == LABEL_SETS["pod"] else "omit"
    found = {"node-name": Given("the host name", (host_name,)), "labels.idle": Given("--labels.names", (idle,))}
    if not values.keys() & _OTHER_PAGES:
        found["dcgm.url"] = by_default("--dcgm.url", DEFAULT_DCGM_URL)
    return {name: texts for name, texts in found.items() if name not in values}


def _parse(name: str, given: Given) -> Any:  # noqa: ANN401 - each setting has a type of its own
    setting = _BY_NAME[name]
    values = []
    for text in given.values:
        try:
            values.append(setting.kind.parse(text))
        except ValueError:
            shown = without_secrets(repr(text))
            raise ConfigError(f"{given.where}: {shown} is not allowed; it takes {setting.allowed}") from None
    return tuple(values) if setting.repeatable else values[-1]


def _usual_namespaces(environ: Mapping[str, str], own_namespace: str) -> tuple[str, ...]:
    """Where only the cluster's administrators make pods: the exporter's own namespace, and the GPU operator's."""
    own = environ.get("POD_NAMESPACE", "").strip() or own_namespace
    return tuple(dict.fromkeys((*((own,) if own else ()), *GPU_OPERATOR_NAMESPACES)))


def _from_file(file: Mapping[str, Any], prefix: str = "") -> dict[str, Given]:
    found: dict[str, Given] = {}
    for key, value in file.items():
        name = f"{prefix}{key}"
        setting = _BY_NAME.get(name)
        if setting is None and isinstance(value, Mapping):
            inside = _from_file(value, f"{name}.")
            _refuse_twice(found.keys() & inside.keys())
            found |= inside
            continue
        _refuse_twice({name} & found.keys())
        if setting is None:
            close = ", ".join(sorted(_BY_NAME))
            raise ConfigError(f"config file: {name!r} is not a key; the keys are {close}")
        found[name] = Given(f"config file: {name}", _texts_of(setting, value))
    return found


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
