"""`report`: who held and used what over a span, from a Prometheus server."""

import asyncio
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TextIO, TypeVar

import click

from exporter.config.named_files import read_http_file
from exporter.config.parsers import base_url, positive_duration
from exporter.errors import ConfigError, ExporterError, SourceError
from exporter.report.formatting import clean, fit
from exporter.report.forms import render_csv, render_json, render_table
from exporter.report.groups import GroupBy, read_by, read_prices
from exporter.report.page import render_page
from exporter.report.report import Report, ReportInput, make_report, nothing_there
from exporter.report.span import Span, make_span
from exporter.sources.prometheus.history.api import FLAG, PrometheusApi
from exporter.sources.prometheus.history.collect import collect, read_match

_BAR = 24
_MOST_CHARS_OF_NOTE = 2000
FORMATS = ("table", "csv", "json", "html")
T = TypeVar("T")


class Progress:
    """Entered around the work; leaves no trace on the terminal when that is done."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = stream.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._put("")

    def note(self, done: int, of: int) -> None:
        """So many parts of so many are done."""
        filled = _BAR * done // of
        self._put(f"asking Prometheus  {'#' * filled}{'.' * (_BAR - filled)}  {done} of {of}")

    def say(self, text: str) -> None:
        """Something to know while one waits, on a line of its own; it is said to a log, too."""
        self._put("")
        print(clean(text, 400), file=self._stream, flush=True)

    def _put(self, text: str) -> None:
        if self._is_shown:
            columns = shutil.get_terminal_size().columns - 1
            self._stream.write("\r" + fit(clean(text), columns) + "\r" + text[:columns])
            self._stream.flush()


@click.command()
@click.option(
    "--prometheus",
    required=True,
    metavar="URL",
    help="The server, such as http://localhost:9090; also Thanos, Mimir, VictoriaMetrics.",
)
@click.option(FLAG, "http_config", metavar="FILE", help="TLS and authorisation towards it, as Prometheus' http_config.")
@click.option("--since", metavar="DURATION", help="The span: so long, until now, such as 12h or 4w.  [default: 7d]")
@click.option("--from", "start", metavar="TIME", help="Where the span begins, such as 2026-11-01 or 2026-11-01T08:00Z.")
@click.option("--to", "end", metavar="TIME", help="Where it ends.  [default: now]")
@click.option(
    "--by",
    default="namespace",
    show_default=True,
    metavar="WHAT",
    help="namespace, workload, model, node, pod or label:NAME, a label of pods.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="How it is written; html is one page with charts, csv the groups alone.",
)
@click.option(
    "--price-per-gpu-hour",
    "gpu_prices",
    multiple=True,
    metavar="[MODEL=]PRICE",
    help="Of all models, or of one; * in its name is anything. Repeatable.",
)
@click.option("--price-per-kwh", metavar="PRICE", help="Added for the energy.")
@click.option(
    "--match",
    multiple=True,
    metavar="LABEL=VALUE",
    help="Only series with this label (also !=, =~, !~), where a server has several clusters. Repeatable.",
)
@click.option(
    "--timeout",
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="For each query; one that takes longer is asked again about less time.",
)
def report(
    *,
    prometheus: str,
    http_config: str | None,
    since: str | None,
    start: str | None,
    end: str | None,
    by: str,
    form: str,
    gpu_prices: Sequence[str],
    price_per_kwh: str | None,
    match: Sequence[str],
    timeout: str,
) -> None:
    """Say who held and used GPUs over a span: GPU-hours, energy and cost.

    It asks a Prometheus server that scrapes the exporter's /metrics, two small queries at a time. What it could not
    know, such as times in which nothing was scraped, it says at the end.

    \b
      pod-gpu-metrics-exporter report --prometheus http://localhost:9090 --since 30d --by label:team
      pod-gpu-metrics-exporter report --prometheus http://localhost:9090 --price-per-gpu-hour 2.50 --format html > gpus.html
    """  # noqa: D301, E501 - \b is click's word for "leave these lines as they are"
    grouped = _parsed("--by", by, read_by, "namespace, workload, model, node, pod or label:NAME")
    matchers = [_parsed("--match", text, read_match, "LABEL=VALUE; also !=, =~ and !~") for text in match]
    url = _parsed("--prometheus", prometheus, base_url, "a URL such as http://localhost:9090, without a password in it")
    seconds = _parsed("--timeout", timeout, positive_duration, "a duration such as 60s")
    try:
        span = make_span(since=since, start=start, end=end, now_ms=time.time_ns() // 1_000_000)
        prices = read_prices(gpu_prices, price_per_kwh)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    http = read_http_file(http_config, FLAG)
    with Progress(sys.stderr) as progress:
        api = PrometheusApi(url=url, timeout_seconds=seconds, http=http, on_wait=progress.say)
        try:
            collected = asyncio.run(_collect(api, span, matchers, grouped, progress.note))
        except SourceError as error:
            raise ExporterError(f"--prometheus: {clean(str(error.trouble), _MOST_CHARS_OF_NOTE)}") from error
    if not collected.grown:
        raise ExporterError(f"--prometheus: {nothing_there(collected.facts, matched=bool(matchers))}")
    _write(make_report(collected, grouped, prices), form)


async def _collect(
    api: PrometheusApi, span: Span, matchers: Sequence[str], by: GroupBy, on_progress: Callable[[int, int], None]
) -> ReportInput:
    try:
        return await collect(api, span, matchers=matchers, wanted=by.wanted, on_progress=on_progress)
    finally:
        await api.close()


def _write(made: Report, form: str) -> None:
    match form:
        case "csv":
            text = render_csv(made)
            for note in made.notes:  # there is no place for them in a file of rows
                print(f"note: {clean(str(note), _MOST_CHARS_OF_NOTE)}", file=sys.stderr)
        case "json":
            text = render_json(made)
        case "html":
            text = render_page(made)
        case _:
            text = render_table(made, shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
    # as it is, on whatever system: CSV has line ends of its own, and names may be in any script
    sys.stdout.buffer.write(text.encode())
    sys.stdout.flush()


def _parsed(flag: str, text: str, reader: Callable[[str], T], takes: str) -> T:
    try:
        return reader(text)
    except ValueError as error:
        raise ConfigError(f"{flag}: {text!r} is not allowed; it takes {takes}") from error
