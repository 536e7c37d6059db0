"""`demo --replay`: a bundle's node with the real exporter in front of it."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from exporter import log, service
from exporter.bundle import archive
from exporter.bundle.recording import Recording
from exporter.cli.commands import this_program
from exporter.config.node_settings import Config
from exporter.config.parsers import Address
from exporter.errors import ExporterError
from exporter.node.role import NODE
from exporter.simulator.replay.replay_node import ReplayNode, refuse_without_answers
from exporter.wording import one_line

_NO_COMPILER = "NVML's answers are not played: that needs gcc here, which builds a stand-in for NVML"
_NVML_IS_THE_PAGE = (
    "the bundle's page is NVML's own (--dcgm.mode off), and nothing here can answer for NVML -> install gcc, which"
    " builds a stand-in for it"
)
_MOST_ABSENCES = 20


async def replay(
    path: Path, speed: float, given: Mapping[str, Sequence[str]], listens_on: Callable[[Config], Config]
) -> None:
    """Play a bundle, and serve what the exporter in front of it says, until the program ends.

    Args:
        path: the bundle.
        speed: by how much moments are closer together than they were.
        given: settings that win over the bundle's, by flag without dashes.
        listens_on: the configuration with a port that is free.

    Raises:
        ExporterError: the bundle cannot be read or played.
    """
    recording = archive.read(path)
    refuse_without_answers(recording)
    node = ReplayNode(recording)
    playing: asyncio.Task[None] | None = None

    def begin(addresses: Iterable[Address]) -> None:
        """Say what is replayed, and begin with the moments after the first."""
        nonlocal playing
        _say(path.name, recording, speed, next(iter(addresses)).port, has_nvml=node.has_nvml)
        playing = asyncio.create_task(_play(node, speed))

    try:
        await node.start()
        config = listens_on(node.config(given))
        if config.dcgm.mode == "off" and _lacks_nvml(node):
            raise ExporterError(_NVML_IS_THE_PAGE)
        log.start_logging(config.log.level, config.log.format)
        await service.serve(config, NODE, on_listening=begin, reread=lambda: config)
    finally:
        if playing is not None:
            playing.cancel()
        await node.stop()


async def _play(node: ReplayNode, speed: float) -> None:
    """Show moment after moment. One that is broken is the last: the node stays as it is."""
    try:
        await node.play(speed, partial(_log_moment, node.recording))
    except ExporterError as error:
        log.error("the replay has ended", error=str(error))


def _lacks_nvml(node: ReplayNode) -> bool:
    """Whether NVML answered when the bundle was made, and nothing answers for it here."""
    return _has_calls(node.recording) and not node.has_nvml


def _has_calls(recording: Recording) -> bool:
    return any(moment.calls for moment in recording.moments)


def _log_moment(recording: Recording, number: int) -> None:
    log.info("moment", number=number + 1, of=len(recording.moments), at=_time_of(recording, number))


def _say(name: str, recording: Recording, speed: float, port: int, *, has_nvml: bool) -> None:
    """Print what is replayed, what the bundle lacks, and what to open, on standard error."""
    about = "\n".join(about_bundle(name, recording, speed))
    lacks = [one_line(f"{absence.what}: {absence.why.message}") for absence in recording.absences]
    if _has_calls(recording) and not has_nvml:
        lacks.append(_NO_COMPILER)
    lines = "".join(f"\n  {line}" for line in lacks[:_MOST_ABSENCES])
    more = f"\n  and {len(lacks) - _MOST_ABSENCES} more" if len(lacks) > _MOST_ABSENCES else ""
    lacking = f"\n\nThe bundle lacks{lines}{more}" if lacks else ""
    sys.stderr.write(
        f"""
{about}{lacking}

Open

  http://localhost:{port}/

or, in another terminal,

  {this_program()} top --url http://localhost:{port}
  {this_program()} doctor --web.listen-address localhost:{port}
  curl -s localhost:{port}/gpu/metrics

Ctrl-C ends it.

"""
    )


def about_bundle(name: str, recording: Recording, speed: float = 1.0) -> Iterator[str]:
    """What a bundle has: from which version it is, how many moments, and over how long."""
    moments = recording.moments
    seconds = moments[-1].at_seconds - moments[0].at_seconds
    yield one_line(f"Replaying {name}: a bundle of {_time_of(recording, 0)}, made by version {recording.made_by}.")
    if len(moments) == 1:
        yield "Its one moment stays."
        return
    pace = "" if speed == 1.0 else f", {speed:g} times as fast"
    yield f"Its {len(moments)} moments follow over {seconds:.0f} s{pace}; the last one stays."


def _time_of(recording: Recording, number: int) -> str:
    """The time of a moment, in UTC."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(recording.moments[number].at_seconds))
    except (OverflowError, ValueError, OSError):  # a bundle may name any number
        return "an unknown time"
