"""Looks at a node that is made only for a recording: a listener keeps what its peers answer.

The node only reads. It keeps no accounts, pushes nothing, and loads no program into the kernel.

Tests: tests/bundle/test_collecting.py.
"""

import asyncio
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

from exporter import __version__
from exporter.bundle.collecting.budget import Budget, budget_bytes
from exporter.bundle.collecting.newest_answers import NewestAnswers
from exporter.bundle.collecting.node_files import read_all
from exporter.bundle.collecting.safe_settings import safe_config, wanted_annotations, wanted_labels
from exporter.bundle.recording import Absence, PeerAnswer, RecordedMoment
from exporter.config.named_files import read_node_files
from exporter.config.node_settings import Config
from exporter.errors import Trouble
from exporter.memory import room_bytes
from exporter.model.driver import DriverReading
from exporter.model.slices import at_once
from exporter.node.build import make_node
from exporter.node.build_sources import may_ask
from exporter.node.first_look import look_at_all, look_at_now
from exporter.node.node import Node
from exporter.node.role import as_json, diagnose
from exporter.outputs.diagnosis import Diagnosis
from exporter.outputs.node_outputs import OUTPUTS
from exporter.outputs.output import NOTHING_SEEN, Answer, Look, Need, Output
from exporter.sources.hearing import LISTENER
from exporter.sources.host.host_source import read_version
from exporter.sources.kubelet.allocatable import KubeletAllocatable
from exporter.sources.source import Source
from exporter.threads import DaemonThreads

T = TypeVar("T")
EVERY_SECONDS = 5.0
# A driver that has lost a GPU may take long to answer.
_FILES_SECONDS = 20.0
_LIBRARIES = ("grpcio", "protobuf", "aiohttp", "prometheus-client")
# What an output answers if it has nothing to show for want of a source.
SHOWN_STATUS = frozenset({200, 503})
# The page for people, and the command lines of processes; what needs nothing is always the same, too.
_LEFT_OUT = frozenset({"/", "/processes"})
# optional sources whose absence explains something
_MISSED = frozenset({"nvml", "driver", "cdi", "kernel-log"})
_NO_TOKEN = Trouble("missing", "there is no token for the API here", "mount the service account's token")
_NO_KERNEL_LOG = Trouble("missing", "--kernel-log.mode is off", "turn it on, and give the exporter /dev/kmsg")
_TEXTS = ("text/plain", "application/json", "application/openmetrics-text")
RECORDED = tuple(output for output in OUTPUTS if output.needs and output.path not in _LEFT_OUT and not output.is_probe)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedMoments:
    """What was collected of a node.

    Attributes:
        moments: one for each look.
        report: what doctor finds in the last look.
        versions: of kernel, driver, Python and libraries, by their names.
        absences: what the moments lack, and why.
    """

    moments: tuple[RecordedMoment, ...]
    report: Diagnosis
    versions: Mapping[str, str]
    absences: tuple[Absence, ...]


async def collect(
    config: Config,
    *,
    for_seconds: float = 0.0,
    every_seconds: float = EVERY_SECONDS,
    is_over: asyncio.Event | None = None,
) -> CollectedMoments:
    """Look at the node of these settings at once, and then again and again until `for_seconds` have passed.

    The looks end earlier if `is_over` is set, or if the moments take too much memory.

    Args:
        config: the settings of the exporter in question. What would write, or read secrets, is turned off.
        for_seconds: looks begin until so long after the first; 0: one look.
        every_seconds: the time from the beginning of a look to that of the next, or a multiple if a look takes longer.
        is_over: set by whoever wants no further look.

    Raises:
        ConfigError: a file that the configuration names cannot be used.
    """
    safe, absences = safe_config(config)
    files = read_node_files(safe)
    listener = NewestAnswers(wanted_labels(safe), wanted_annotations(safe, files))
    # sources that are made while it looks take the listener, too
    token = LISTENER.set(listener)
    try:
        recorder = _Recorder(safe, make_node(safe, files), listener)
        moments = await recorder.moments(for_seconds, every_seconds, is_over or asyncio.Event())
        report = diagnose(safe, recorder.last_look)
    finally:
        LISTENER.reset(token)
    return CollectedMoments(
        moments=moments,
        report=report,
        versions=_versions(safe.root),
        absences=(*absences, *recorder.absences()),
    )


class _Recorder:
    """Makes a moment of each look at a node.

    `last_look` is the newest look.
    """

    def __init__(self, config: Config, node: Node, listener: NewestAnswers) -> None:
        self.last_look = NOTHING_SEEN
        self._config = config
        self._node = node
        self._listener = listener
        self._budget = Budget(budget_bytes(room_bytes(Path("/"))))
        self._unreadable: dict[str, Trouble] = {}
        self._needs = frozenset({Need.DIAGNOSIS}).union(*(output.needs for output in RECORDED))

    async def moments(
        self, for_seconds: float, every_seconds: float, is_over: asyncio.Event
    ) -> tuple[RecordedMoment, ...]:
        """The moments, the first of which waits for every source. The node is closed then.

        The arguments are those of `collect`.
        """
        began = time.monotonic()
        moments: list[RecordedMoment] = []
        try:
            self.last_look = await look_at_all(self._node, self._needs)
            while True:
                moment = self._budget.shared(await self._moment())
                if moments and self._budget.is_full:
                    break
                moments.append(moment)
                # a look that takes long costs the next ones: the time stays what the user gave
                turns = (time.monotonic() - began) // every_seconds + 1
                due = began + every_seconds * turns
                if due > began + for_seconds or await _is_set_until(is_over, due):
                    break
                self.last_look = await look_at_now(self._node, self._needs)
        finally:
            await self._node.close()
        return tuple(moments)

    def absences(self) -> Iterator[Absence]:
        """What the moments lack, and why."""
        if self._budget.is_full:
            why = f"the moments reached {self._budget.most_bytes / 1024**2:.0f} MiB of memory"
            remedy = "take the bundle with a shorter --for, or raise the container's memory limit"
            yield Absence(what="later moments", why=Trouble("oversize", why, remedy))
        left_out = {"calls of NVML": self._listener.left_out_calls, "kernel log": self._listener.left_out_records}
        for what, count in left_out.items():
            if count:
                why = f"{count} more came than are kept"
                yield Absence(what=what, why=Trouble("oversize", why, "take the bundle with a shorter --for"))
        for path, trouble in sorted(self._unreadable.items()):
            yield Absence(what=path, why=trouble)
        for source in self._node.sources:
            health = source.health
            is_missed = health.up is False or (health.up is None and source.name in _MISSED)
            if is_missed and health.trouble is not None:
                yield Absence(what=source.name, why=health.trouble)
        if self._config.kubernetes.url is not None and not may_ask(self._config.kubernetes):
            yield Absence(what="the Kubernetes API", why=_NO_TOKEN)
        if not self._config.kernel_log.is_on:
            yield Absence(what="the kernel's log", why=_NO_KERNEL_LOG)

    async def _moment(self) -> RecordedMoment:
        """The moment of the last look: what peers have answered up to now, and what the exporter says of it.

        What comes while the files are read, which may take seconds, belongs to the next moment.
        """
        at_seconds = time.time()
        # the exporter asks this beside its looks, for its accounts
        offers = [source.begin() for source in self._node.sources if isinstance(source, KubeletAllocatable)]
        asked = [attempt for attempt in offers if attempt is not None]
        if asked:
            await asyncio.wait(asked, timeout=self._config.kubelet.timeout_seconds)
        moment = RecordedMoment(
            at_seconds=at_seconds,
            answers=self._present(self._listener.answers_now()),
            files={},
            calls=self._listener.take_calls(),
            kernel_log=self._listener.take_records(),
            outputs={output.path: body for output in RECORDED if (body := self._body(output)) is not None},
        )
        return replace(moment, files=await self._files())

    def _present(self, answers: Iterable[PeerAnswer]) -> tuple[PeerAnswer, ...]:
        """The answers without those of pages whose pods, which --dcgm.selector found, are gone."""
        pages = self.last_look.page_sources
        return tuple(answer for answer in answers if answer.peer != "page" or answer.name in pages)

    def _body(self, output: Output[Look]) -> bytes | None:
        """What an output answers; None if it answers with a refusal, or with what no program reads."""
        look = Look.of(
            self.last_look,
            telemetry=self._node.telemetry,
            about=as_json(self._config, self.last_look) if Need.DIAGNOSIS in output.needs else {},
            outputs=OUTPUTS,
        )
        made = output.make(look)
        answer = made if isinstance(made, Answer) else at_once(made)
        is_text = answer.content_type.startswith(_TEXTS)
        return b"".join(answer.pieces) if is_text and answer.status in SHOWN_STATUS else None

    async def _files(self) -> Mapping[str, bytes]:
        """The files by their places. Those of a driver that does not answer are left out."""
        work = partial(read_all, self._config, _processes(self._node.sources))
        try:
            async with asyncio.timeout(_FILES_SECONDS):
                files, unreadable = await _in_a_thread(work)
        except TimeoutError:
            why = f"they could not be read within {_FILES_SECONDS:.0f} s"
            self._unreadable["the node's files"] = Trouble("deadline", why, "does the driver answer (nvidia-smi)?")
            return {}
        self._unreadable |= unreadable
        return files


async def _is_set_until(event: asyncio.Event, moment: float) -> bool:
    """Whether an event is set by this moment of the monotonic clock."""
    try:
        async with asyncio.timeout(max(0.0, moment - time.monotonic())):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _in_a_thread(work: Callable[[], T]) -> T:
    """The result of work that may hang, on a thread that does not keep the program from ending."""
    return await asyncio.get_running_loop().run_in_executor(DaemonThreads(), work)


def _processes(sources: Iterable[Source]) -> frozenset[int]:
    """The processes that NVML lists on the node's GPUs."""
    readings = (getattr(source, "reading", None) for source in sources)
    of_driver = [reading for reading in readings if isinstance(reading, DriverReading)]
    return frozenset(process.pid for reading in of_driver for process in reading.processes or ())


def _versions(root: str) -> Mapping[str, str]:
    """The versions that are known, by the names of what they are of."""
    versions = {"exporter": __version__, "python": platform.python_version(), "kernel": os.uname().release}
    driver = read_version(Path(root))
    if driver:
        versions["driver"] = driver
    for library in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[library] = version(library)
    return versions
