"""The settings of the exporter that runs here: from its process in /proc, so that they are known even if it hangs.

Of the environment of a process only the variables are read that set this program's settings.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from exporter.cli.commands import PROGRAM
from exporter.cli.options import read_config_elsewhere
from exporter.cli.serve import serve
from exporter.config.environment import CONFIG_FILE
from exporter.config.node_settings import SETTINGS, Config
from exporter.config.parsers import Address
from exporter.errors import ConfigError

PROC = Path("/proc")
MOST_PROCESSES = 100_000
_MOST_BYTES = 1024 * 1024
_MODULE = ("-m", "exporter")
# an interpreter's options stand before the program, and these have a value
_WITH_VALUE = frozenset({"-X", "-W"})
_HELPS = frozenset({"-h", "--help", "--help-all"})
_OTHERS = {
    "DCGM_HOST",
    "DCGM_PORT",
    "DCGM_METRICS_ENDPOINT",
    "KUBERNETES_SERVICE_HOST",
    "KUBERNETES_SERVICE_PORT",
    "POD_NAMESPACE",
}
_NAMES = frozenset({CONFIG_FILE, *_OTHERS, *(name for one in SETTINGS for name in (one.env, one.also_env))})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningExporter:
    """A process of this program that serves.

    Attributes:
        pid: its number here.
        config: its settings.
        is_elsewhere: it sees other folders than this process does, as in a container.
    """

    pid: int
    config: Config
    is_elsewhere: bool = False


def serve_arguments(command: Sequence[str]) -> tuple[str, ...] | None:
    """The arguments of `serve` in a process' command line; None if the process does not serve, or is another program.

    The program is the console script, by itself or as an argument of Python, or `python -m exporter`. Without a command
    it serves.
    """
    rest = _after_program(command)
    if rest is None or not _HELPS.isdisjoint(rest):
        return None
    if rest[:1] == ("serve",):
        return rest[1:]
    return rest if not rest or rest[0].startswith("-") else None


def _after_program(command: Sequence[str]) -> tuple[str, ...] | None:
    """The words after the program's name; None if it is another program."""
    if not command:
        return None
    first = Path(command[0]).name
    if first == PROGRAM:
        return tuple(command[1:])
    if not first.startswith("python"):
        return None
    words = tuple(command[1:])
    while words and words[0].startswith("-"):
        if words[:2] == _MODULE:
            return words[2:]
        words = words[2:] if words[0] in _WITH_VALUE else words[1:]
    return words[1:] if words and Path(words[0]).name == PROGRAM else None


def exporters_here(proc: Path = PROC) -> tuple[list[RunningExporter], list[str]]:
    """The processes that serve, and for each whose settings cannot be read why."""
    exporters: list[RunningExporter] = []
    troubles: list[str] = []
    for pid, arguments in _serving(proc):
        try:
            exporters.append(_exporter(proc / str(pid), pid, arguments))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        except OSError as error:
            troubles.append(f"the settings of process {pid} cannot be read: {error.strerror}")
        except (ConfigError, click.ClickException, click.exceptions.Exit) as error:
            troubles.append(f"the settings of process {pid} cannot be used: {error}")
    return exporters, troubles


def _serving(proc: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The processes that serve, with their arguments."""
    pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    for pid in pids[:MOST_PROCESSES]:
        if pid == os.getpid():
            continue
        with suppress(OSError):
            arguments = serve_arguments(_texts(proc / str(pid) / "cmdline"))
            if arguments is not None:
                yield pid, arguments


def _exporter(folder: Path, pid: int, arguments: tuple[str, ...]) -> RunningExporter:
    """The exporter of a process. Raises OSError: /proc does not show it; ConfigError or click's: no such settings."""
    pairs = (text.partition("=") for text in _texts(folder / "environ"))
    environ = {name: value for name, _, value in pairs if name in _NAMES}
    given = serve.make_context("serve", [*arguments]).params
    config = read_config_elsewhere(given, environ, (folder / "cwd").readlink())
    is_elsewhere = not os.path.samestat((folder / "root").stat(), Path("/").stat())
    return RunningExporter(pid=pid, config=config, is_elsewhere=is_elsewhere)


def _texts(path: Path) -> Sequence[str]:
    """The texts of a file of /proc, each of which ends with a zero byte. Raises OSError: it cannot be read."""
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES)
    return [text.decode("utf-8", "surrogateescape") for text in content.split(b"\0")[:-1]]


def meant(exporters: Sequence[RunningExporter], address: Address, *, is_named: bool) -> RunningExporter | None:
    """The exporter that listens at an address or, if nobody named the address, the only one that runs here.

    None: it is none of them, or could be several.
    """
    listening = [exporter for exporter in exporters if _listens(exporter.config, address)]
    if not listening and not is_named:
        listening = [*exporters]
    return listening[0] if len(listening) == 1 else None


def _listens(config: Config, address: Address) -> bool:
    """Whether an exporter with this configuration may be what answers at an address."""
    any_host = {"", "0.0.0.0", "::", "localhost"}  # noqa: S104 - names of this machine
    return any(
        own.port == address.port and (own.host == address.host or bool({own.host, address.host} & any_host))
        for own in config.web.listen_addresses
    )


# how a URL ends whose query is not shown
_CUT = "?…"


def settings_shown(shown: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """The flags that give the settings of /debug/mapping, without those that nobody gave."""
    repeatable = {setting.name for setting in SETTINGS if setting.repeatable}
    names = {setting.name for setting in SETTINGS}
    return {
        name: tuple(text.removesuffix(_CUT) for text in _values(of_name["value"], name in repeatable))
        for name, of_name in shown.items()
        if name in names and of_name["from"] != "default"
    }


def _values(text: str, several: bool) -> Sequence[str]:
    return text.split(",") if several else (text,)
