"""Settings as click options, and the options' values as a `Config`. A wrong value is a ConfigError of one line.

Tests: tests/cli/test_command_line.py.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from exporter.config.common import WebSettings
from exporter.config.environment import CONFIG_FILE
from exporter.config.files import read_structured
from exporter.config.load import load
from exporter.config.node_settings import SETTINGS, Config
from exporter.config.settings import Setting
from exporter.errors import ConfigError
from exporter.lenient import AnyObject

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
ConfigT = TypeVar("ConfigT")
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def setting_options(
    without: Sequence[str] = (), *, settings: Sequence[Setting] = SETTINGS
) -> Callable[[Command], Command]:
    """Add a flag for every setting (the node's by default), and --config.file.

    --help-all leaves out the environment names that follow from the flags.

    click lets every flag be given several times, so that a missing flag differs from one with its default value.
    `read_config` refuses several values if a setting takes only one.
    """

    def decorate(command: Command) -> Command:
        for setting in reversed(settings):
            if setting.name in without:
                continue
            default = f" Default: {setting.default}." if setting.default else ""
            repeat = " Repeatable." if setting.repeatable else ""
            also = f" [also {setting.also_env}]" if setting.also_env else ""
            command = click.option(
                setting.flag,
                setting.parameter,
                multiple=True,
                metavar=setting.kind.metavar,
                help=f"{setting.help}{default}{repeat}{also}",
            )(command)
        return click.option(
            "--config.file",
            "config_file",
            metavar="FILE",
            help="YAML; its keys are the flags below without leading dashes. A flag wins over its environment name, "
            f"and that over the file. The environment name of this one is {CONFIG_FILE}; the others' follow from "
            "the flags in the same way.",
        )(command)

    return decorate


def read_config(given: AnyObject, **fixed: str) -> Config:
    """The node's configuration from the command line, the environment and the file. `fixed` values win over all."""
    flags = flags_of(given, SETTINGS, fixed)
    path, file = file_of(given)
    return load(flags, os.environ, file, socket.gethostname(), path, own_namespace())


def read_config_elsewhere(given: AnyObject, environ: Mapping[str, str], folder: Path) -> Config:
    """The configuration of another process of this machine: `environ` is its environment, `folder` its own folder."""
    path, file = file_of(given, environ, folder)
    flags = flags_of(given, SETTINGS, {}, folder)
    return load(flags, environ, file, socket.gethostname(), path, own_namespace())


def read_role_config(given: AnyObject, load_role: Callable[..., ConfigT], settings: Sequence[Setting]) -> ConfigT:
    """The configuration of another role, likewise, by its own settings and its own `load_…`."""
    path, file = file_of(given)
    return load_role(flags_of(given, settings, {}), os.environ, file, path, own_namespace())


def web_of(given: AnyObject) -> WebSettings:
    """The web settings of the exporter with these settings. Raises ConfigError if neither role allows them."""
    try:
        return read_config(given).web
    except ConfigError:
        from exporter.config.cluster_settings import SETTINGS, load_cluster  # noqa: PLC0415 - most are asked about a node's

        with suppress(ConfigError):
            return read_role_config(given, load_cluster, SETTINGS).web
        raise


def flags_of(
    given: AnyObject, settings: Sequence[Setting], fixed: Mapping[str, str], folder: Path | None = None
) -> Mapping[str, tuple[str, ...]]:
    """The texts of the given flags, by setting. Raises ConfigError if a setting that takes one value has several.

    Paths are relative to `folder`; None: to the present one.
    """
    flags = {}
    for setting in settings:
        texts = given.get(setting.parameter) or ()
        if len(texts) > 1 and not setting.repeatable:
            raise ConfigError(f"{setting.flag} is given {len(texts)} times; give it once")
        if texts:
            flags[setting.name] = tuple(_from_here(text, folder) if setting.kind.is_path else text for text in texts)
        if setting.parameter in fixed:
            flags[setting.name] = (fixed[setting.parameter],)
    return flags


def _from_here(path: str, folder: Path | None) -> str:
    """An absolute path: on the command line, a path is relative to the present folder.

    In the environment or a file it is not, since the exporter may be started in any folder.
    """
    return str((folder or Path.cwd()) / path) if path and "://" not in path else path


def file_of(
    given: AnyObject, environ: Mapping[str, str] = os.environ, folder: Path | None = None
) -> tuple[str | None, AnyObject | None]:
    """The path of --config.file, and its content. Raises ConfigError unless that is keys and values."""
    path = given.get("config_file") or environ.get(CONFIG_FILE)
    if not path:
        return path, None
    if folder is not None:
        path = str(folder / path)
    content = read_structured(path, "--config.file")
    content = {} if content is None else content
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ConfigError(f"--config.file: {path!r} must hold keys and values, such as `kubelet.socket: /path`")
    return path, content


def own_namespace() -> str:
    """The namespace of the service account; "" outside Kubernetes, or if no token is mounted."""
    try:
        return _NAMESPACE_FILE.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
