"""The settings as click options, and back as a `Config`."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from exporter.config.environment import CONFIG_FILE
from exporter.config.files import read_structured
from exporter.config.load import flag_of, load
from exporter.config.node import SETTINGS, Config
from exporter.errors import ConfigError

Command = TypeVar("Command", bound=Callable[..., Any])
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def setting_options(without: Sequence[str] = ()) -> Callable[[Command], Command]:
    """Add a flag for every setting, and --config.file.

    To click, every flag may be given several times: then a flag that was not given differs from one that was given
    its default. `read_config` refuses several values of a setting that takes one.
    """

    def decorate(command: Command) -> Command:
        for setting in reversed(SETTINGS):
            if setting.name in without:
                continue
            default = f" Default: {setting.default}." if setting.default else ""
            repeat = " Repeatable." if setting.repeatable else ""
            also = f", {setting.also_env}" if setting.also_env else ""
            command = click.option(
                setting.flag,
                setting.parameter,
                multiple=True,
                metavar=setting.kind.metavar,
                help=f"{setting.help}{default}{repeat} [{setting.env}{also}]",
            )(command)
        return click.option(
            "--config.file",
            "config_file",
            metavar="FILE",
            help=f"YAML; its keys are these flags without dashes. Flags and environment win. [{CONFIG_FILE}]",
        )(command)

    return decorate


def read_config(given: Mapping[str, Any], **fixed: str) -> Config:
    """The configuration of this command line, environment and file. `fixed` settings, by parameter, win over all.

    Raises:
        ConfigError: one line.
    """
    flags = {}
    for setting in SETTINGS:
        texts = given.get(setting.parameter) or ()
        if len(texts) > 1 and not setting.repeatable:
            raise ConfigError(f"{flag_of(setting.name)} is given {len(texts)} times; give it once")
        if texts:
            flags[setting.name] = tuple(texts)
        if setting.parameter in fixed:
            flags[setting.name] = (fixed[setting.parameter],)
    path = given.get("config_file") or os.environ.get(CONFIG_FILE)
    file = _read_file(path) if path else None
    return load(flags, os.environ, file, socket.gethostname(), path, _own_namespace())


def _own_namespace() -> str:
    """The service account's; "" outside Kubernetes, and where no token is mounted."""
    try:
        return _NAMESPACE_FILE.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _read_file(path: str) -> Mapping[str, Any]:
    content = read_structured(path, "--config.file")
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(f"--config.file: {path!r} must hold keys and values, such as `kubelet.socket: /path`")
    return content
