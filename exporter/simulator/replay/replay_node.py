"""A node that answers as a bundle's peers did, on sockets in a temporary folder and on loopback ports."""

import asyncio
import ctypes
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from ctypes.util import find_library
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

from exporter.bundle.recording import PeerAnswer, RecordedMoment, Recording
from exporter.config.load import load
from exporter.config.named_files import read_node_files
from exporter.config.node_settings import Config
from exporter.config.parsers import SHIPPED_RULES
from exporter.errors import ExporterError
from exporter.exposition.gpu_families import only_gpu_families
from exporter.model.snapshot import PODS
from exporter.node.policies import device_rules
from exporter.ownership.device_ids import RULES
from exporter.simulator.kernel_log import SimulatedKernelLog
from exporter.simulator.nvml import SimulatedNvml
from exporter.simulator.replay.endless_patterns import refuse_endless_patterns
from exporter.simulator.replay.nvml_lines import NvmlState
from exporter.simulator.replay.replayed_api import ReplayedApi
from exporter.simulator.replay.replayed_files import ReplayedFiles, page_file
from exporter.simulator.replay.replayed_kubelet import ReplayedSocket
from exporter.simulator.replay.replayed_page import ReplayedPage
from exporter.simulator.replay.replayed_settings import (
    answers_of,
    recorded_pages,
    recorded_place,
    replayed_settings,
)
from exporter.sources.nvml.library import Library

# NVML is read once a second at most: each reading finds new samples.
REFRESH_SECONDS = 0.5
_MOST_PAGE_BYTES = 6_291_456
_KEEPS_FILES_SECONDS = 20.0  # a file older than a minute counts as stale
_UNLOAD_SECONDS = 5.0
_STALE_SECONDS = 3600.0
_NAMELESS = "replayed"
_NOTHING_TO_PLAY = (
    "the bundle has only what the exporter said, and nothing of what it read -> unpack the bundle (tar -xzf) and read"
    " its files, or take one by doctor, with the rights of deploy/kubectl/reporter.yaml"
)


def refuse_without_answers(recording: Recording) -> None:
    """Raise ExporterError for a recording that has nothing of what the exporter read, so that nothing can be played.

    `kubectl gpu bundle` makes such a one where doctor cannot run: what the exporter said is all that it has.
    """
    for moment in recording.moments:
        if moment.files or moment.calls or any(answer.peer != "kubernetes" for answer in moment.answers):
            return
    raise ExporterError(_NOTHING_TO_PLAY)


class ReplayNode:
    """A bundle's node, from `start` to `stop`.

    `start` shows the first moment. `show` shows any other, and `play` one after another at their recorded distances.
    What an exporter is told of the node is in `config`.
    """

    def __init__(self, recording: Recording) -> None:
        """Make the places of the node. Nothing answers yet.

        Raises:
            ExporterError: the bundle is broken.
        """
        self._pages = recorded_pages(recording)
        self.recording = recording
        self.shown = -1
        self.speed = 1.0
        self.has_nvml = False
        self._temporary = tempfile.TemporaryDirectory(prefix="replayed-node-")
        self.folder = Path(self._temporary.name)
        self.root = self.folder / "root"
        self.root.mkdir()

        self.kubelet = ReplayedSocket(self.folder / "kubelet/pod-resources/kubelet.sock")
        self.pods_api = ReplayedSocket(self.folder / "kubelet/pods-api/pods-api.sock")
        self.api = ReplayedApi()
        self._servers = {page.name: ReplayedPage(_MOST_PAGE_BYTES) for page in self._pages if not page.is_file}
        self._files = ReplayedFiles(self.folder)
        self.kernel_log = SimulatedKernelLog((self.root,))

        self.nvml = SimulatedNvml(self.folder / "nvml")
        self._nvml_state = NvmlState()
        has_answers = any(True for _ in answers_of(recording, "kubernetes"))
        self._asks_api = has_answers or recording.settings.get("pods.source") == ("api",)
        # never this machine's own; for --pods.source auto a token decides whether the API server is asked
        self._token = self.folder / "token"
        if any(answer.name == PODS for answer in answers_of(recording, "kubernetes")):
            self._token.write_text("replayed", encoding="ascii")
        self._renewed_at = 0.0
        self._life: asyncio.Task[None] | None = None

    def inventory(self) -> object:
        """What files and NVML say of the devices at the present moment, to be compared with another moment's."""
        files = self.recording.moments[self.shown].files
        of_devices = {place: content for place, content in files.items() if not _OF_PROCESSES.match(place)}
        return of_devices, self._nvml_state.inventory()

    async def start(self) -> None:
        """Start all servers, with the first moment. Raises ExporterError: the bundle is broken."""
        for server in self._servers.values():
            await server.start()
        await self.api.start()
        await self.show(0)
        if not self._nvml_state.is_empty or any(moment.calls for moment in self.recording.moments):
            self.nvml.load()
            self.has_nvml = self.nvml.loaded is not None
        self._life = asyncio.create_task(self._refresh())

    async def stop(self) -> None:
        """Stop all servers, let go of NVML and remove the folder."""
        if self._life is not None:
            self._life.cancel()
        await self.kubelet.stop()
        await self.pods_api.stop()
        await self.api.stop()
        for server in self._servers.values():
            await server.stop()
        self.kernel_log.close()
        await self._unload()
        self._temporary.cleanup()

    async def show(self, number: int) -> None:
        """Answer as at a moment, which counts from 0.

        NVML's answers and the kernel's log are those of all moments up to it, which are taken in their order. Files
        come first: a driver writes them before the kubelet names their devices.

        Raises:
            ExporterError: the bundle is broken.
        """
        moments = self.recording.moments
        try:
            for earlier in moments[self.shown + 1 : number + 1]:
                self._nvml_state.take(earlier.calls, earlier.at_seconds)
                self._log(earlier)
            self._files.show(moments[number].files)
            self._write_nvml()
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ExporterError(f"moment {number + 1} of the bundle cannot be played: {error}") from error
        self.shown = number
        await self._show_answers(moments[number])

    async def _show_answers(self, moment: RecordedMoment) -> None:
        """Let the peers answer as at a moment. The kubelet comes last, as its answers name what others describe."""
        of_peer: dict[str, list[PeerAnswer]] = {}
        for answer in moment.answers:
            of_peer.setdefault(answer.peer, []).append(answer)

        of_pages = {answer.name: answer for answer in of_peer.get("page", ())}
        self._renew_page_files(of_pages)
        for page in self._pages:
            shown = of_pages.get(page.name)
            if not page.is_file:
                await self._servers[page.name].show(self._admitted(shown) if shown and page.is_found else shown)

        await self.api.show(of_peer.get("kubernetes", ()))
        await self.pods_api.show(of_peer.get("pods", ()))
        await self.kubelet.show(of_peer.get("kubelet", ()))

    def _admitted(self, answer: PeerAnswer) -> PeerAnswer:
        """What an exporter takes of the page of a pod that it found: the replay names that page by its URL."""
        takes_all_families = "families.allow" in self.recording.settings
        return answer if takes_all_families else replace(answer, body=only_gpu_families(answer.body))

    async def play(self, speed: float = 1.0, on_moment: Callable[[int], None] = lambda _: None) -> None:
        """Show the moments after the present one, at their recorded distances divided by `speed`.

        `on_moment` is called with the number of each, before it is shown.
        """
        self.speed = speed
        moments = self.recording.moments
        for number, (before, moment) in enumerate(pairwise(moments), 1):
            if number <= self.shown:
                continue
            await asyncio.sleep(max(0.0, moment.at_seconds - before.at_seconds) / speed)
            on_moment(number)
            await self.show(number)

    def config(self, given: Mapping[str, Sequence[str]] | None = None) -> Config:
        """The configuration of an exporter in front of it. `given` are settings that win over the bundle's.

        Raises:
            ConfigError: a setting of the bundle is none of this version's.
            ExporterError: a regular expression of the bundle may run for a very long time.
        """
        settings = {**replayed_settings(self.recording, self._places()), **(given or {})}
        config = replace(load(settings, {}, None, self.recording.node or _NAMELESS), root=str(self.root))
        rules = device_rules(config.devices, config.labels, read_node_files(config).rules)
        refuse_endless_patterns("device-rules", (rule.pattern.pattern for rule in rules.rules if rule not in RULES))
        return config

    @property
    def recorded_texts(self) -> Mapping[str, str]:
        """What stands in texts of an exporter in front of it, and what stood there in the bundle's. Longest first."""
        texts = {str(self.root): ""}
        for setting, path in (("kubelet.socket", self.kubelet.path), ("kubelet.pods-socket", self.pods_api.path)):
            recorded = recorded_place(self.recording, setting)
            texts[str(path)] = recorded
            texts[str(path.parent)] = str(Path(recorded).parent)
        recorded_folder = Path(recorded_place(self.recording, "kubelet.socket")).parent
        if recorded_folder.name == "pod-resources":
            recorded_folder = recorded_folder.parent
        texts[str(self.folder / "kubelet")] = str(recorded_folder)
        texts[self.api.url] = recorded_place(self.recording, "kubernetes.url")
        texts[str(self.folder / "inventory")] = recorded_place(self.recording, "inventory.file")
        for page in self._pages:
            texts[self._place_of_page(page.name)] = page.question
            if not page.is_file:
                texts[f"127.0.0.1:{self._servers[page.name].port}"] = page.name.removeprefix("dcgm:")
        return {text: texts[text] for text in sorted(texts, key=len, reverse=True)}

    def _places(self) -> Mapping[str, Sequence[str]]:
        """The settings that name the node's places."""
        has_files = self.recording.moments[0].files
        rules = recorded_place(self.recording, "device-rules")
        # a bundle names no file of this machine
        own_rules = str(self.folder / "rules") if "rules" in has_files else rules if rules in SHIPPED_RULES else ""
        mode = self.recording.settings.get("nvml.mode", ())
        return {
            "kubelet.socket": (str(self.kubelet.path),),
            "kubelet.pods-socket": (str(self.pods_api.path),),
            "kubernetes.url": (self.api.url,) if self._asks_api else (),
            "kubernetes.token-file": (str(self._token),),
            "inventory.file": (str(self.folder / "inventory"),) if "inventory" in has_files else (),
            "device-rules": (own_rules,) if own_rules else (),
            "dcgm.url": [self._place_of_page(page.name) for page in self._pages if not page.is_file],
            "dcgm.file": [self._place_of_page(page.name) for page in self._pages if page.is_file],
            "nvml.mode": mode if self.has_nvml or not _machine_has_nvml() else ("off",),
        }

    def _place_of_page(self, name: str) -> str:
        """The URL of a page, or the path of its file."""
        if name in self._servers:
            page = next(page for page in self._pages if page.name == name)
            path = page.question.partition("://")[2].partition("/")[2]
            return f"http://127.0.0.1:{self._servers[name].port}/{path}"
        return str(self.folder / page_file(f"page/{name}"))

    def _renew_page_files(self, answers: Mapping[str, PeerAnswer]) -> None:
        """Give the files of pages the age that they had."""
        self._renewed_at = time.monotonic()
        for page in self._pages:
            path = Path(self._place_of_page(page.name))
            if not page.is_file or not path.exists():
                continue
            answer = answers.get(page.name)
            is_stale = answer is not None and answer.trouble is not None and answer.trouble.reason == "stale"
            age = _STALE_SECONDS if is_stale else 0.0
            os.utime(path, (time.time() - age, time.time() - age))

    def _log(self, moment: RecordedMoment) -> None:
        """Write a moment's records to the kernel's log: the newest is of now."""
        stamps = [_stamp_of(record) for record in moment.kernel_log]
        newest_us = max(stamps, default=0)
        now_us = time.monotonic_ns() // 1000
        for record, stamp in zip(moment.kernel_log, stamps, strict=True):
            head, _, message = record.partition(";")
            fields = head.split(",")
            if len(fields) > _STAMP_FIELD:
                fields[_STAMP_FIELD] = str(max(0, now_us - (newest_us - stamp)))
            self.kernel_log.write_record(f"{','.join(fields)};{message}")

    def _write_nvml(self) -> None:
        if not self._nvml_state.is_empty:
            self.nvml.write_lines(self._nvml_state.lines(time.monotonic_ns() // 1000, self.speed))

    async def _refresh(self) -> None:
        """Keep samples of processes new, and files of pages young."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            self._write_nvml()
            if time.monotonic() - self._renewed_at > _KEEPS_FILES_SECONDS:
                answers = self.recording.moments[self.shown].answers
                self._renew_page_files({answer.name: answer for answer in answers if answer.peer == "page"})

    async def _unload(self) -> None:
        """Unload NVML once nobody uses it, so that the next node of this process can load its own."""
        loaded = self.nvml.loaded
        self.nvml.loaded = None
        if loaded is None:
            return
        until = time.monotonic() + _UNLOAD_SECONDS
        while Library.users and time.monotonic() < until:  # noqa: ASYNC110 - another thread counts them
            await asyncio.sleep(0.01)
        close = ctypes.CDLL(None).dlclose
        close.argtypes = (ctypes.c_void_p,)
        close(loaded._handle)  # noqa: SLF001 - ctypes has no other way


# Files about processes and containers, which name no device.
_OF_PROCESSES = re.compile(r"root/(?:proc/(?:\d+|self)|var/log)/")
_STAMP = re.compile(r"[0-9]{1,19}")
_STAMP_FIELD = 2  # priority, number and microseconds, as in Linux' ABI/testing/dev-kmsg


def _stamp_of(record: str) -> int:
    """The microseconds since boot of a record of /dev/kmsg; 0 if it has none."""
    fields = record.partition(";")[0].split(",")
    has_stamp = len(fields) > _STAMP_FIELD and _STAMP.fullmatch(fields[_STAMP_FIELD]) is not None
    return int(fields[_STAMP_FIELD]) if has_stamp else 0


@cache
def _machine_has_nvml() -> bool:
    """Whether this machine has a library of its own; asked once, since ctypes starts three programs to find one."""
    return find_library("nvidia-ml") is not None
