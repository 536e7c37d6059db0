"""`report`: GPU-hours, energy and costs of a span, from a Prometheus server.

Tests: tests/report/test_command.py, tests/report/test_flags.py.
"""

import asyncio
import re
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import closing
from datetime import UTC, tzinfo
from functools import partial
from typing import Any, TextIO
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from exporter.cli.commands import Help, command
from exporter.config.named_files import read_http_file
from exporter.config.parsers import base_url, of_form, positive_duration
from exporter.config.suggestions import asked, closest
from exporter.errors import ConfigError, ExporterError, SourceError, read_flag
from exporter.report.advice import advise
from exporter.report.advice_forms import ADVICE_FORMS, render_advice
from exporter.report.costs import Prices, read_prices
from exporter.report.focus import render_focus
from exporter.report.formatting import clean, fit
from exporter.report.forms import MOST_CHARS_OF_NOTE, render_csv, render_json, render_table
from exporter.report.groups import KINDS, read_by
from exporter.report.history.collect import CLUSTER_LABEL, OnProgress, collect, read_match
from exporter.report.history.peaks import PeaksReader
from exporter.report.history.prometheus_api import FLAG, Connection, PrometheusApi
from exporter.report.html_page import render_page
from exporter.report.interrupt import ends_at_once
from exporter.report.notes import nothing_there
from exporter.report.report import Report, ReportInput, make_report
from exporter.report.span import Span, make_span

_BAR = 24
_read_label_name = of_form(r"[a-zA-Z_][a-zA-Z0-9_]*", str)
_CURRENCY = re.compile(r"[A-Z]{3}")
_BY = f"{', '.join(KINDS)} or label:NAME"
_FORMATS = "The form: html is a page with charts, csv has the groups alone, focus is FOCUS 1.3."
_ADVISE = "Say what would have sufficed for each workload, in place of the bill."
FORMATS = ("table", "csv", "json", "html", "focus")


class Progress:
    """A line that shows the progress. After `close` it has left no trace on the terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = stream.isatty()

    def close(self) -> None:
        """Remove the line."""
        self._put("")

    def note(self, done: int, of: int) -> None:
        """Show that `done` parts of all are done."""
        filled = _BAR * done // of
        self._put(f"asking Prometheus  {'#' * filled}{'.' * (_BAR - filled)}  {done} of {of}")

    def say(self, text: str) -> None:
        """Print a message on a line of its own. It goes out even if the stream is no terminal."""
        self._put("")
        print(clean(text, 400), file=self._stream, flush=True)

    def _put(self, text: str) -> None:
        if self._is_shown:
            columns = shutil.get_terminal_size().columns - 1
            self._stream.write("\r" + fit(clean(text), columns) + "\r" + text[:columns])
            self._stream.flush()


def _takes(
    flag: str, what: str, says: str, default: str | None = None, *, multiple: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(flag, metavar=what, help=says, default=default, show_default=bool(default), multiple=multiple)


_HELP = Help(
    usage="--prometheus URL [FLAGS]",
    says="Say who held and used GPUs over a span: GPU-hours, energy and cost.",
    groups={
        "Of when": {
            "--since": "The time until now. Default: 7d",
            "--month": "A calendar month",
            "--compare": "What changed since the span before",
        },
        "Of whom": {
            "--prometheus": "Prometheus, Thanos or Mimir",
            "--by": "namespace, workload, label:NAME, …",
            "--top": "Only those that held most",
            "--match": "Only series with this label",
        },
        "How": {
            "--price-per-gpu-hour": "What one costs; repeatable",
            "--advise": "What would have sufficed instead",
            "--format": "table, csv, json, html or focus",
        },
    },
    examples=(
        "report --prometheus http://prom:9090 --since 30d",
        "report --prometheus http://prom:9090 --by label:team",
        "report --prometheus http://prom:9090 --advise",
    ),
    more="--help-all shows all flags.",
)


@command(_HELP)
@click.option("--prometheus", required=True, metavar="URL", help="Such as http://localhost:9090; also Thanos or Mimir.")
@click.option(FLAG, "http_config", metavar="FILE", help="TLS and credentials for it, as in Prometheus' http_config.")
@_takes("--since", "DURATION", "The span: the time until now, such as 12h or 4w.  [default: 7d]")
@click.option("--from", "start", metavar="TIME", help="Where the span begins, such as 2026-11-01 or 2026-11-01T08:00Z.")
@click.option("--to", "end", metavar="TIME", help="Where it ends.  [default: now]")
@_takes("--month", "YYYY-MM", "The span: a calendar month, such as 2026-10, by --time-zone.")
@_takes("--time-zone", "ZONE", "The time zone of months and times, such as Europe/Berlin.", default="UTC")
@click.option("--compare", is_flag=True, help="Say what changed since the span before; of a month, the month before.")
@click.option("--advise", "wants_advice", is_flag=True, help=_ADVISE)
@_takes("--by", "WHAT", f"{_BY}, a label of pods.", default="namespace")
@click.option("--per-token", is_flag=True, help="Energy and cost for 1,000 tokens, only of workloads that count them.")
@click.option(
    "--top", type=click.IntRange(1), metavar="N", help="The N groups that held most; all others are one line."
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True, help=_FORMATS)
@_takes("--price-per-gpu-hour", "[MODEL=]PRICE", "Of any model, or of one; * is a wildcard. Repeatable.", multiple=True)
@_takes("--price-per-kwh", "PRICE", "The price of energy, which is added.")
@_takes("--currency", "CODE", "What prices are in, such as EUR (ISO 4217); --format focus needs it.")
@_takes("--match", "LABEL=VALUE", "Only series with this label (also !=, =~, !~). Repeatable.", multiple=True)
@_takes("--cluster-label", "LABEL", "The label that tells a server's clusters apart.", default=CLUSTER_LABEL)
@_takes("--timeout", "DURATION", "For each query; one that takes longer is asked about less time.", default="60s")
def report(*, prometheus: str, http_config: str | None, **given: Any) -> None:  # noqa: ANN401 - as `make` takes it
    """Say who held and used GPUs over a span: GPU-hours, energy and cost.

    It asks a Prometheus server that scrapes the exporter's /metrics, two small queries at a time. What it could not
    know, such as times in which nothing was scraped, it says at the end.
    """

    def connect(seconds: float) -> Connection:
        from exporter.report.history.over_http import over_http  # noqa: PLC0415 - kubectl-gpu has no aiohttp

        if "://" not in prometheus:
            raise ConfigError(f"--prometheus: {prometheus!r} needs http:// or https:// before it: http://{prometheus}")
        url = read_flag(
            "--prometheus", prometheus, base_url, "a URL such as http://localhost:9090, without a password in it"
        )
        return over_http(url=url, timeout_seconds=seconds, http=read_http_file(http_config, FLAG))

    make(connect, **given)


def make(
    connect: Callable[[float], Connection],
    *,
    since: str | None,
    start: str | None,
    end: str | None,
    month: str | None,
    time_zone: str,
    compare: bool,
    wants_advice: bool,
    by: str,
    per_token: bool,
    top: int | None,
    form: str,
    price_per_gpu_hour: Sequence[str],
    price_per_kwh: str | None,
    currency: str | None,
    match: Sequence[str],
    cluster_label: str,
    timeout: str,
) -> None:
    """Write the report of a server. `connect` is called with the seconds that a query may take."""
    grouped = read_flag("--by", by, read_by, _what_to_group_by(by))
    matchers = [read_flag("--match", text, read_match, "LABEL=VALUE; also !=, =~ and !~") for text in match]
    label = read_flag("--cluster-label", cluster_label, _read_label_name, "the name of a label, such as cluster")
    seconds = read_flag("--timeout", timeout, positive_duration, "a duration such as 60s")
    zone = read_flag("--time-zone", time_zone, _zone, "a name in the machine's tz database (tzdata), as Europe/Berlin")
    span = make_span(since=since, start=start, end=end, month=month, now_ms=time.time_ns() // 1_000_000, zone=zone)
    prices = read_prices(price_per_gpu_hour, price_per_kwh)
    _check_form(form, currency, prices, is_advice=wants_advice, is_bill=compare or per_token)
    spans = (span.before(is_month=month is not None), span) if compare else (span,)
    with closing(Progress(sys.stderr)) as progress, ends_at_once(progress.close):
        api = PrometheusApi(connect(seconds), on_wait=progress.say)
        peaks = PeaksReader(api, matchers, label)
        ask = partial(collect, api, matchers=matchers, wanted=grouped.wanted, cluster_label=label)
        ask = partial(ask, per_token=per_token, also=(peaks.read,) if wants_advice else ())
        *before, collected = _collected(_collect(api, ask, spans, progress.note))
    _check_there(collected, matched=bool(matchers))
    advice = render_advice(advise(collected, peaks.rows, prices), span, form) if wants_advice else ""
    _write(make_report(collected, grouped, prices, top=top, before=next(iter(before), None)), form, currency, advice)


def _collected(collecting: Coroutine[Any, Any, Sequence[ReportInput]]) -> Sequence[ReportInput]:
    try:
        return asyncio.run(collecting)
    except SourceError as error:
        raise ExporterError(f"--prometheus: {clean(str(error.trouble), MOST_CHARS_OF_NOTE)}") from error


async def _collect(
    api: PrometheusApi, ask: Callable[..., Awaitable[ReportInput]], spans: Sequence[Span], on_progress: OnProgress
) -> Sequence[ReportInput]:
    try:
        return [await ask(span, on_progress=on_progress) for span in spans]
    finally:
        await api.close()


def _check_there(collected: ReportInput, *, matched: bool) -> None:
    if not collected.grown:
        raise ExporterError(f"--prometheus: {nothing_there(collected.facts, matched=matched)}")
    if collected.facts.tokens == {}:
        raise ExporterError("--per-token: no tokens are counted there -> scrape the model servers: docs/bill.md#tokens")


def _check_form(form: str, currency: str | None, prices: Prices, *, is_advice: bool, is_bill: bool) -> None:
    if is_advice and (is_bill or form not in ADVICE_FORMS):
        raise ConfigError(f"--advise: it is of one span, as {', '.join(ADVICE_FORMS)}, without --compare, --per-token")
    if currency and not _CURRENCY.fullmatch(currency):
        raise ConfigError(f"--currency: {currency!r} is not allowed; it takes a code of ISO 4217, such as EUR")
    if form == "focus" and not (currency and prices.are_given):
        raise ConfigError("--format focus: rows are charges; give --price-per-gpu-hour, and --currency, such as EUR")


def _what_to_group_by(typed: str) -> str:
    """The values that `--by` takes, and the one that was probably meant: a kind of group, else a label of pods."""
    near = asked(closest(typed, KINDS)[:1])
    return f"{_BY}; {near or f'of a label of pods, label:{typed}'}"


def _zone(name: str) -> tzinfo:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(name) from error


def _write(made: Report, form: str, currency: str | None, advice: str) -> None:
    """Write a report to the standard output in one of the forms, and its notes to the standard error."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    focus = partial(render_focus, currency=currency or "")
    table = partial(render_table, columns=columns)
    forms: Mapping[str, Callable[[Report], str]] = {
        "csv": render_csv,
        "focus": focus,
        "json": render_json,
        "html": render_page,
        "table": table,
    }
    if advice or form in ("csv", "focus"):  # a file of rows has no place for notes
        for note in made.notes:
            print(f"note: {clean(str(note), MOST_CHARS_OF_NOTE)}", file=sys.stderr)
    # as bytes, which no system changes: CSV has line ends of its own, and names may be in any script
    sys.stdout.buffer.write((advice or forms[form](made)).encode())
    sys.stdout.flush()
