"""`top`: GPUs, MIG instances and the pods on them, in a terminal.

Tests: tests/top/test_once.py.
"""

import json
import locale
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import partial
from typing import Any, NoReturn

import click

from exporter.cli.commands import Help, command
from exporter.cli.options import web_of
from exporter.config.named_files import read_http_file
from exporter.config.parsers import base_url, positive_duration
from exporter.errors import ConfigError, read_flag
from exporter.lenient import AnyObject
from exporter.top.columns import ASCII, UNICODE, Painter
from exporter.top.screen import HELP, draw
from exporter.top.shown_devices import ShownDevice, ShownExporter, ShownHolder
from exporter.top.state import SORTS, State, chosen_devices, chosen_processes
from exporter.top.transport import FLAG, HttpTransport, ShownReader, TopReader

_LONGEST_SECONDS = 86_400.0
# \b keeps click from wrapping what follows
_KEYS = "\b\nKeys:\n" + "\n".join(f"{keys:<12} {does}" for keys, does in HELP)


_HELP = Help(
    says="Show GPUs and MIG instances, how busy they are, and the pods on them.",
    groups={
        "Whom to ask": {
            "--url": "An exporter or a cluster. Default: here",
            "--http-config": "TLS, password or token for it",
            "--interval": "How often. Default: 2s",
        },
        "What to show": {
            "--filter": "Only lines with all these words",
            "--sort": "gpu, utilization, memory, watts, idle, …",
            "--processes": "Processes instead of GPUs",
        },
        "How": {
            "--once": "Print the table once",
            "--json": "Print it once, as JSON",
            "--no-color": "No colours, like NO_COLOR",
            "--ascii": "Only ASCII",
        },
    },
    examples=(
        "top",
        "top --url localhost:9410 --sort idle",
        "top --once --filter idle",
    ),
    more="--help-all shows all flags and the keys; ? does so while it runs.",
)


@command(_HELP, epilog=_KEYS)
@click.option(
    "--url",
    metavar="URL",
    help="The exporter of a node or of a cluster, such as localhost:9402. Default: the one on this machine.",
)
@click.option(
    "--http-config",
    metavar="FILE",
    help="TLS and a password or a token for it, in the form of Prometheus' http_config.",
)
@click.option("--once", is_flag=True, help="Print the table once. Without a terminal, top does so anyway.")
@click.option("--json", "as_json", is_flag=True, help="Print once, as JSON.")
@click.option("--interval", metavar="DURATION", default="2s", show_default=True, help="How often to ask the exporter.")
@click.option("--sort", type=click.Choice([*SORTS]), default="gpu", show_default=True, help="The order of the lines.")
@click.option(
    "--filter", "words", metavar="WORDS", default="", help="Show only lines that have all these words (see / below)."
)
@click.option("--processes", is_flag=True, help="Show the processes. The exporter needs --processes.expose on.")
@click.option("--no-color", is_flag=True, help="No colours. NO_COLOR in the environment does the same.")
@click.option("--ascii", "in_ascii", is_flag=True, help="Only ASCII characters, as with a locale that is not UTF-8.")
def top(*, url: str | None, http_config: str | None, **given: Any) -> None:  # noqa: ANN401 - as `show` takes it
    """Show GPUs and MIG instances, how busy they are, and the pods on them.

    A shared GPU has a line for each container, with its own use if NVML measures it. A device that is held and not used
    is marked "idle". A narrow terminal has fewer columns. Without a terminal, COLUMNS in the environment is the width.
    """
    show(partial(_asking, url, http_config), **given)


def show(
    make_reader: Callable[[], TopReader],
    *,
    once: bool,
    as_json: bool,
    interval: str,
    sort: str,
    words: str,
    processes: bool,
    no_color: bool,
    in_ascii: bool,
) -> NoReturn:
    """Show the answers of a reader as the flags of `top` say, and end the program."""
    seconds = read_flag("--interval", interval, positive_duration, "a duration such as 2s")
    if seconds > _LONGEST_SECONDS:
        raise ConfigError(f"--interval: {interval!r} is not allowed; at most 24h")
    state = State(sort=sort, filter=words, view="processes" if processes else "devices")
    asking = make_reader()
    glyphs = ASCII if in_ascii or not _is_utf8() else UNICODE
    painter = Painter(sys.stdout, no_color=no_color)
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if as_json or once or not is_terminal:
        shown = asking.ask(state.view).shown
        if as_json:
            _print(json.dumps(document(shown, state), indent=2) + "\n")
        else:
            _print(painter.lines(draw(shown, state, max(1, shutil.get_terminal_size().columns), glyphs).lines))
        sys.exit(1 if shown.trouble else 0)
    # Python's reading of input and its handling of threads are not needed for one table
    from exporter.top.live import run  # noqa: PLC0415

    sys.exit(run(asking, state, seconds, painter, glyphs))


def _asking(url: str | None, path: str | None) -> ShownReader:
    """The reader of the exporter to ask. Raises ConfigError if a flag, a file or the environment is wrong."""
    config = read_http_file(path, FLAG)
    if url is None:
        return ShownReader(HttpTransport.here(web_of({}).listen_addresses[0], config))
    urls = [url] if "://" in url else [f"http://{url}", f"https://{url}"]
    takes = "HOST:PORT, http://HOST:PORT or https://HOST:PORT, without a path of its own, and without a user:"
    bases = read_flag("--url", url, lambda _: [*map(base_url, urls)], f"{takes} {FLAG} takes a password")
    return ShownReader([HttpTransport(base, config) for base in bases])


def _is_utf8() -> bool:
    """Whether the user's locale and the output are UTF-8. Python's own UTF-8 mode says nothing about the terminal."""
    encodings = (locale.getencoding(), sys.stdout.encoding or "")
    return all(name.lower().replace("-", "").replace("_", "") == "utf8" for name in encodings)


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # `top --once | head`: the reader has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def document(shown: ShownExporter, state: State) -> AnyObject:
    """The document of `--json`: percent, MiB, W, °C and MHz; null is unknown."""
    about = {"url": shown.url, "version": shown.version, "role": shown.role, "node": shown.node or None}
    content: dict[str, Any] = {
        "exporter": {**about, "nodes": shown.nodes},
        "read_at": shown.at or None,
        "error": shown.trouble or None,
        "counts": {**shown.counts, **shown.totals},
        "sources": [asdict(source) for source in shown.sources],
        "missing_nodes": [asdict(node) for node in shown.missing],
        "devices": [_device(device) for device in chosen_devices(shown.devices, state)],
    }
    if state.view == "processes":
        content["processes"] = [asdict(process) for process in chosen_processes(shown.processes or (), state)]
        content["processes_error"] = shown.processes_trouble or None
    return content


def _device(device: ShownDevice) -> AnyObject:
    shown = {field.name: getattr(device, field.name) for field in fields(device)}
    holders, strangers, _ = (shown.pop(name) for name in ("holders", "strangers", "is_xid_why"))
    return {
        **shown,
        **{name: shown[name] or None for name in ("mig_instance_id", "mig_profile", "why", "health", "suspected_hang")},
        "held": device.held,
        "idle": device.idle,
        "owners": [*map(_holder, holders)],
        "used_by": [*map(_stranger, strangers)],
    }


def _holder(holder: ShownHolder) -> AnyObject:
    of_holders = {name: value for name, value in asdict(holder).items() if name not in ("outside", "holds")}
    texts = ("workload", "workload_kind", "granted")
    return of_holders | {name: of_holders[name] or None for name in texts}


def _stranger(stranger: ShownHolder) -> AnyObject:
    return {
        "name": stranger.name,
        "container": stranger.container or None,
        "utilization_percent": stranger.utilization_percent,
        "memory_used_mib": stranger.memory_used_mib,
    }
