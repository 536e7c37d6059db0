"""`doctor --bundle`: finds the exporter's settings, collects a recording with them, and writes the bundle."""

import asyncio
import errno
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TextIO

from exporter import __version__
from exporter.bundle import archive
from exporter.bundle.bundle_span import seconds_of
from exporter.bundle.collecting.looking import EVERY_SECONDS, CollectedMoments, collect
from exporter.bundle.collecting.safe_settings import recorded_settings
from exporter.bundle.names.replacing import replaced
from exporter.bundle.recording import Recording
from exporter.cli.commands import PROGRAM
from exporter.config.load import load
from exporter.config.node_settings import Config
from exporter.config.parsers import Address
from exporter.doctor.asked_exporter import (
    MAPPING,
    METRICS,
    PAGE,
    OwnAnswers,
    answers_of,
    checkup_of,
    exporter_at,
    is_elsewhere,
    nothing_answers,
)
from exporter.doctor.checkup import Checkup
from exporter.doctor.running_settings import RunningExporter, exporters_here, meant, settings_shown
from exporter.errors import ConfigError, ExporterError
from exporter.lenient import AnyObject, mapping
from exporter.outputs.diagnosis import Finding, fine, warning
from exporter.top.transport import Gone, HttpTransport
from exporter.wording import counted, one_line

STANDARD_OUTPUT = "-"
_NAME_IT = "give doctor the flags of the exporter in question, or its --web.listen-address"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleOrder:
    """What the user asks for: a file (or standard output), the seconds to look for, and whether names stay."""

    to: str
    for_seconds: float = 0.0
    is_plain: bool = False

    @classmethod
    def of_flags(cls, to: str, duration: str | None, *, is_plain: bool) -> "BundleOrder":
        """The order of these flags. Raises ConfigError: a flag's value is not allowed."""
        seconds = seconds_of(duration)
        if not to:
            raise ConfigError("--bundle: '' is not allowed; it takes a file, or - for standard output")
        if to == STANDARD_OUTPUT and sys.stdout.isatty():
            raise ConfigError("--bundle: - is a terminal here; redirect it to a file, or name one")
        return cls(to=to, for_seconds=seconds, is_plain=is_plain)

    @property
    def words(self) -> TextIO:
        """Where words for the user go: to standard error if the bundle goes to standard output."""
        return sys.stderr if self.to == STANDARD_OUTPUT else sys.stdout

    def say(self, text: str) -> None:
        """Print words for the user."""
        print(text, file=self.words, flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ExporterHere:
    """The exporter that runs here.

    Attributes:
        config: its settings, or doctor's own.
        finding: where the settings are from.
        answering: the exporter, if it answers.
        mapping: its /debug/mapping.
        why_silent: why it does not answer; "" if it does.
    """

    config: Config
    finding: Finding
    answering: HttpTransport | None = None
    mapping: AnyObject | None = None
    why_silent: str = ""


class BundleMaking:
    """The making of one bundle. What it begins, `close` ends."""

    def __init__(self, order: BundleOrder) -> None:
        """Raises ExporterError: the file cannot be written."""
        self._order = order
        self._file = BundleFile(order.to)
        self._recording: Recording | None = None

    def collect(self, config: Config, *, by_own_settings: bool) -> Checkup:
        """Collect everything, and return the checkup whose report is in the bundle.

        `by_own_settings`: doctor was given the settings of the exporter, which are `config`. Raises ConfigError: the
        exporter is to be on another machine.
        """
        exporter = _exporter(config, by_own_settings=by_own_settings)
        self._order.say(_before(self._order))
        collected = asyncio.run(_collected(exporter.config, self._order))
        answers = _answers(exporter)
        seen = _checkup(exporter, answers, collected, by_own_settings=by_own_settings)
        self._recording = _recording(exporter.config, answers, collected, seen)
        return seen

    def write(self) -> None:
        """Write what was collected, and tell the user about it. Raises ExporterError: it cannot be written."""
        if self._recording is not None:
            write_bundle(self._order, self._file, self._recording)

    def close(self) -> None:
        """Remove what is not whole."""
        self._file.close()


def _before(order: BundleOrder) -> str:
    """What the user is told before anything is collected."""
    names = "kept (--plain)" if order.is_plain else "replaced"
    lasts = (
        f" for {order.for_seconds:g} s, a look every {EVERY_SECONDS:g} s; Ctrl-C ends it early"
        if order.for_seconds
        else ""
    )
    most = archive.MOST_BYTES // 1024**2
    return (
        f"Collecting what the exporter reads and says{lasts}: GPU samples, the kubelet's answers, pods, claims, the"
        " driver's files and NVML, the kernel's lines about GPUs, settings and log. No secrets, no environment, no"
        f" command lines. Names are {names}. The file has at most {most} MiB."
    )


def _exporter(config: Config, *, by_own_settings: bool) -> _ExporterHere:
    """The exporter that runs here, with the best settings that can be had of it.

    They are doctor's own if it was given some; else those of the exporter's process, or of its answer. Raises
    ConfigError: it is on another machine.
    """
    address = config.web.listen_addresses[0]
    if is_elsewhere(address.host) and not by_own_settings:
        raise ConfigError(
            f"--bundle: {address.host} is another machine, and a bundle is made where the exporter runs: by kubectl"
            " exec or docker exec, or on its node"
        )
    here = _asked(config, address)
    if by_own_settings:
        return replace(here, finding=fine("settings", "doctor's own, which it was given"))
    exporters, troubles = exporters_here()
    is_named = here.answering is not None or not config.is_default("web.listen-address")
    running = meant(exporters, address, is_named=is_named)
    if running is not None:
        return _of_process(here, running, address)
    if here.mapping is not None:
        try:
            shown = _config_of(here.mapping, config)
        except (ConfigError, KeyError, TypeError, AttributeError) as error:
            troubles.append(f"the exporter's settings at /debug/mapping cannot be used: {error}")
        else:
            return replace(here, config=shown, finding=fine("settings", "those that the exporter shows"))
    if len(exporters) > 1:
        pids = ", ".join(str(exporter.pid) for exporter in exporters)
        troubles.append(f"of several exporters here (processes {pids}), which one listens at {address} is not clear")
    says = "; ".join(filter(None, (here.why_silent, *troubles)))
    return replace(here, finding=warning("settings", f"{says}: the bundle is made by doctor's own settings", _NAME_IT))


def _asked(config: Config, address: Address) -> _ExporterHere:
    """What listens at an address, with doctor's own settings."""
    here = _ExporterHere(config=config, finding=fine("settings", "doctor's own"))
    try:
        answering, answer, _ = exporter_at(address)
    except Gone as error:
        return replace(here, why_silent=str(error).removesuffix(": Connection refused"))
    return replace(here, answering=answering, mapping=answer)


def _of_process(here: _ExporterHere, running: RunningExporter, address: Address) -> _ExporterHere:
    """The exporter with its process' settings. If it listens elsewhere than at `address`, it is asked there."""
    says = f"those of process {running.pid}, which serves here"
    if running.is_elsewhere:
        says = f"{says}, in a container: run doctor in it if its files are not at the same places here"
    own = running.config.web.listen_addresses[0]
    if here.answering is None and own.port not in (0, address.port):
        here = _asked(running.config, own)
    return replace(here, config=running.config, finding=fine("settings", says))


def _config_of(answer: AnyObject, own: Config) -> Config:
    """The configuration that an exporter shows. The simulated node shows its root, too."""
    flags = settings_shown(mapping(answer, "settings"))
    shown = load(flags, {}, None, own.node.name)
    return replace(shown, root=str(answer.get("root") or own.root))


async def _collected(config: Config, order: BundleOrder) -> CollectedMoments:
    """What is collected. The first Ctrl-C ends the looks; what there is then counts."""
    is_over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        is_over.set()
        loop.remove_signal_handler(signal.SIGINT)

    if order.for_seconds:
        loop.add_signal_handler(signal.SIGINT, end)
    try:
        return await collect(config, for_seconds=order.for_seconds, is_over=is_over)
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _answers(exporter: _ExporterHere) -> OwnAnswers:
    """What the exporter that runs here answers now, after the looks."""
    if exporter.answering is None:
        return OwnAnswers(absences=(nothing_answers(exporter.why_silent),))
    return answers_of(exporter.answering)


def _checkup(
    exporter: _ExporterHere, answers: OwnAnswers, collected: CollectedMoments, *, by_own_settings: bool
) -> Checkup:
    """The report of the exporter that runs here, or of the last look in its place."""
    if exporter.answering is not None and MAPPING in answers.by_path and not by_own_settings:
        body = answers.by_path[MAPPING]
        with suppress(KeyError, TypeError, ValueError):  # it is of another version
            return checkup_of(exporter.answering, json.loads(body), body).remarked(exporter.finding)
    outputs = collected.moments[-1].outputs
    files = {
        name: outputs.get(path, b"")
        for name, path in (("mapping.json", MAPPING), ("gpu-metrics.prom", PAGE), ("metrics.prom", METRICS))
    }
    return Checkup(report=collected.report, files=files).remarked(exporter.finding)


def _recording(config: Config, answers: OwnAnswers, collected: CollectedMoments, seen: Checkup) -> Recording:
    """All of a bundle."""
    return Recording(
        made_by=__version__,
        settings=recorded_settings(config),
        node=config.node.name,
        moments=collected.moments,
        report=seen.report.render(),
        of_exporter=answers.by_path,
        log=answers.log,
        versions=collected.versions,
        absences=(*collected.absences, *answers.absences),
    )


class BundleFile:
    """The file that a bundle becomes. What cannot be written is noticed before anything is collected."""

    def __init__(self, to: str) -> None:
        """Try whether there can be a file beside `to`: it takes its place once it is whole.

        Nothing is left there meanwhile, whatever ends this program. Raises ExporterError: there cannot be one.
        """
        self._to = to
        self._beside: Path | None = None
        self._is_whole_at_once = False
        self._path = Path(to)
        if to == STANDARD_OUTPUT or (self._path.exists() and not self._path.is_file() and not self._path.is_dir()):
            self._is_whole_at_once = True
            return
        with self._in_words():
            if self._path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._begin().unlink()

    def write(self, content: bytes) -> None:
        """Write the whole bundle. Raises ExporterError: that fails; then there is no file."""
        with self._in_words():
            if self._to == STANDARD_OUTPUT:
                sys.stdout.buffer.write(content)
                sys.stdout.buffer.flush()
            elif self._is_whole_at_once:
                self._path.write_bytes(content)
            else:
                self._beside = self._begin()
                self._beside.write_bytes(content)
                self._beside.replace(self._path)
                self._beside = None

    def _begin(self) -> Path:
        """An empty file beside the bundle's. Raises OSError."""
        handle, beside = tempfile.mkstemp(prefix=f".{self._path.name}.", dir=self._path.parent)
        os.close(handle)
        return Path(beside)

    def close(self) -> None:
        """Remove what is not whole."""
        if self._beside is not None:
            self._beside.unlink(missing_ok=True)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = "standard output" if self._to == STANDARD_OUTPUT else self._to
            remedy = "name a file in a folder with room that this user may write to, or - for standard output"
            raise ExporterError(f"--bundle: {where} cannot be written: {error.strerror} -> {remedy}") from error


def write_bundle(order: BundleOrder, file: BundleFile, recording: Recording) -> None:
    """Replace the names, write the file, and tell the user what it is. Raises ExporterError: it cannot be written."""
    names: Mapping[str, str] = {}
    if not order.is_plain:
        recording, names = replaced(recording)
    packed = BytesIO()
    size = archive.write(recording, packed)
    file.write(packed.getvalue())
    where = "standard output" if order.to == STANDARD_OUTPUT else order.to
    of_names = "names are kept (--plain)" if order.is_plain else f"{counted(len(names), 'name')} replaced"
    moments = counted(len(recording.moments), "moment")
    shown = "FILE" if order.to == STANDARD_OUTPUT else order.to
    order.say(
        f"Wrote the bundle to {where}: {size / 1024:.0f} KiB, {moments}, {of_names}. Look at it before you send it:"
        f" {PROGRAM} bundle show {shown}"
    )
    for absence in recording.absences:
        order.say(one_line(f"The bundle lacks {absence.what}: {absence.why}"))
