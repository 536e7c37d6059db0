"""Bundles as tests make them: recordings of simulated nodes."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from exporter.bundle.collecting import looking
from exporter.bundle.collecting.looking import CollectedMoments, collect
from exporter.bundle.collecting.node_files import read_all
from exporter.bundle.collecting.safe_settings import recorded_settings
from exporter.bundle.nvml_calls import CallRecorder
from exporter.bundle.recording import RecordedCall, Recording
from exporter.config.node_settings import Config
from exporter.node.first_look import look_at_now
from exporter.simulator.replay.replay_node import ReplayNode
from exporter.simulator.simulated_node import SAMPLE_SECONDS
from tests.support.exporter import config_of
from tests.support.simulated import SimulatedNode
from tests.support.waiting import until


class HearsNvml:
    """A listener that keeps the calls of NVML, and nothing else."""

    def __init__(self) -> None:
        self.calls: list[RecordedCall] = []
        self._recorder = CallRecorder()

    def called(self, function: str, arguments: tuple[object, ...], result: object, code: int) -> None:
        self.calls.append(self._recorder.recorded_call(function, arguments, result, code))

    def _nothing(self, *_: object, **__: object) -> None:
        pass

    answered = failed = listed = changed = logged = _nothing


class MomentsMade:
    """Lets the looks of a bundle begin one by one, so that a node changes between two moments and amid none."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._made = 0
        self._wanted = 0
        # nothing holds the first look
        self._may_begin = asyncio.Semaphore(0)

        def reads(*of_node: Any) -> Any:
            """Count a moment: to read its files is its last step."""
            self._made += 1
            return read_all(*of_node)

        async def look(*of_node: Any) -> Any:
            await self._may_begin.acquire()
            return await look_at_now(*of_node)

        patch.setattr(looking, "read_all", reads)
        patch.setattr(looking, "look_at_now", look)

    async def more(self, number: int) -> None:
        """Let so many more be made, and wait for them."""
        before, self._wanted = self._wanted, self._wanted + number
        for _ in range(max(1, before), self._wanted):
            self._may_begin.release()
        await until(lambda: self._made >= self._wanted, why=lambda: f"{self._made} of {self._wanted} moments")

    def end(self, is_over: asyncio.Event) -> None:
        """Let the collecting end, with one more moment where it waits for one."""
        is_over.set()
        self._may_begin.release()


def recording_of(config: Config, collected: CollectedMoments) -> Recording:
    """The recording of what was collected with these settings."""
    return Recording(
        made_by="test",
        settings=recorded_settings(config),
        node=config.node.name,
        moments=collected.moments,
        report=collected.report.render(),
        versions=collected.versions,
        absences=collected.absences,
    )


def config_of_node(node: SimulatedNode, **settings: Any) -> Config:
    """The settings of an exporter in front of a simulated node."""
    places = {
        "kubelet_socket": str(node.socket),
        "dcgm_url": node.url,
        "kubelet_pods_socket": str(node.pods_socket),
        "kubernetes_url": node.api_url,
        "kernel_log_mode": "on",
        "nvml_mode": "on" if node.nvml.loaded else "off",
        "root": str(node.root),
    }
    return config_of(**{**places, **settings})


@asynccontextmanager
async def replay_of(recording: Recording) -> AsyncIterator[ReplayNode]:
    """A node that plays the recording, at its first moment."""
    node = ReplayNode(recording)
    try:
        await node.start()
        yield node
    finally:
        await node.stop()


def in_recorded_words(node: ReplayNode, text: bytes) -> str:
    """A text of an exporter in front of a replay, with the places of the node that was recorded."""
    words = text.decode()
    for place, recorded in node.recorded_texts.items():
        words = words.replace(place, recorded)
    return words


@asynccontextmanager
async def sampled(node: SimulatedNode, lines: Sequence[str]) -> AsyncIterator[None]:
    """Give NVML these lines of the node, with new samples of processes every SAMPLE_SECONDS, as a real driver has them.

    On a busy machine a look may take seconds, and read NVML several times. Without new samples, NVML would show a GPU
    that works and has had no sample for 3 s. No real driver does that, and the exporter's answer would change.
    """

    async def samples() -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            now_us = time.monotonic_ns() // 1000
            node.nvml.write(node.world.gpus, [_SAMPLE.sub(rf"\g<1>{now_us}", line) for line in lines], is_recut=False)

    sampling = asyncio.create_task(samples())
    try:
        yield
    finally:
        sampling.cancel()


_SAMPLE = re.compile(r"^(sample \d+ \d+ )\d+")  # as nvml.c describes it: the microseconds of the sample come third


async def recorded_moments(node: SimulatedNode, config: Config, steps: Sequence[Callable[[], object]]) -> Recording:
    """A bundle of a simulated node, with a moment after each of these steps."""
    collected = []
    for step in steps:
        step()
        async with sampled(node, node.write_processes()):
            collected.append(await collect(config))
    moments = tuple(moment for of_step in collected for moment in of_step.moments)
    return recording_of(config, replace(collected[-1], moments=moments))


# What each look has anew: when it was, and how long it took.
_OF_THE_LOOK = re.compile(
    r"^(?:pod_gpu_exporter_(?:source_duration|source_last_success_timestamp|assignments_age)_seconds\b.*"
    r'|\s*"assignments_age_seconds": .*)$\n?',
    re.MULTILINE,
)
_TIMESTAMPS = re.compile(r'"(timestamp|read_at|holder_since)":(?:null|"[^"]*")')
# the minute of an error in a reason: a replay's log tells the second before or after
_MINUTES = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2} UTC")


def without_times(text: str) -> str:
    """A page or JSON of an exporter without what differs from look to look."""
    return _MINUTES.sub("", _TIMESTAMPS.sub(r'"\1":""', _OF_THE_LOOK.sub("", text)))


def findings_in(mapping: str) -> Sequence[Mapping[str, str]]:
    """Doctor's findings in /debug/mapping, without the minutes of errors."""
    findings: Sequence[Mapping[str, str]] = json.loads(_MINUTES.sub("", mapping))["doctor"]["findings"]
    return findings
