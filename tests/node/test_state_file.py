"""--accounting.state: counters that outlive the process, and files that are foreign, damaged or cannot be written."""

import asyncio
import errno
import json
import os
import re
import stat
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path

import aiohttp
import pytest

from exporter.config.node_settings import Config
from exporter.errors import ConfigError, ExporterError
from exporter.node import kept_accounts
from exporter.node.node import Node
from exporter.node.role import NODE, make_role
from exporter.node.state_file import MOST_BYTES, StateFile, check_place
from exporter.service import Service
from tests.node.test_accounting import accounts, node_of
from tests.node.test_states import UUID, Gpu
from tests.support.exporter import Exporter, config_of, running
from tests.support.node_parts import accounts_of
from tests.support.simulated import SimulatedNode
from tests.support.waiting import until

SECOND = 1_000_000_000
SECONDS_OF_GAPS = re.compile(r'^pod_gpu_accounting_gap_seconds_total\{.*reason="(\w+)".*\} (\S+)$', re.MULTILINE)
COUNTER = re.compile(r"^(pod_gpu_\w+_total\{.*\}) (\S+)$", re.MULTILINE)


class Clock:
    """A wall clock that all processes of a test share: 10 s a beat."""

    def __init__(self) -> None:
        self.now = 1_700_000_000 * SECOND

    def __call__(self) -> int:
        return self.now

    def set_ns(self) -> int:
        return 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("exporter.node.kept_accounts.Clock", lambda: found)
    return found


def given(simulated: SimulatedNode, **more: str) -> dict[str, str]:
    """As good as no beat but the first comes by itself: the tests beat."""
    base = {"kubelet_socket": str(simulated.socket), "kubelet_max_age": "0s", "dcgm_url": simulated.url}
    return {**base, "accounting_interval": "1000h", **more}


def config(simulated: SimulatedNode, state: Path, **more: str) -> Config:
    return config_of(**given(simulated, accounting_state=str(state), **more))


async def beat(exporter: Exporter, clock: Clock, seconds: int = 10) -> str:
    """The accounts after another look, so many seconds after the last one."""
    clock.now += seconds * SECOND
    await node_of(exporter.service).pulse()
    return accounts((await exporter.get("/metrics"))[1])


async def begun(exporter: Exporter) -> None:
    """Until the first beat, which comes by itself, is over."""
    role = node_of(exporter.service)
    await until(lambda: accounts_of(role).looked_at_ns is not None and not role._is_beating)


def counters(metrics: str) -> dict[str, float]:
    return {series: float(value) for series, value in COUNTER.findall(metrics)}


def never_fell(before: str, after: str) -> bool:
    """Whether every counter is still there, and none is lower."""
    now = counters(after)
    return all(now.get(series, -1.0) >= value for series, value in counters(before).items())


# issue 15, line 9
async def test_a_wall_clock_set_between_two_exporters_credits_nothing(
    simulated: SimulatedNode, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, real = tmp_path / "state", time.time_ns

    async def allocated() -> float:
        async with running(config(simulated, state)) as exporter:
            await begun(exporter)
            found = counters(accounts((await exporter.get("/metrics"))[1]))
        return sum(value for series, value in found.items() if series.startswith("pod_gpu_allocated_seconds_total"))

    assert await allocated() == 0
    clock.now += 19 * SECOND
    of_19_seconds = await allocated()
    assert of_19_seconds > 0
    clock.now += (19 + 3600) * SECOND
    monkeypatch.setattr(time, "time_ns", lambda: real() + 3600 * SECOND)
    assert await allocated() == pytest.approx(2 * of_19_seconds, rel=0.01)


def test_no_step_of_the_machines_clock_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = time.time_ns()
    clock = kept_accounts.Clock()
    assert 0 <= clock() - moment < 60 * SECOND
    for stepped in (moment - 3600 * SECOND, moment + 3600 * SECOND):
        before = clock()
        monkeypatch.setattr(time, "time_ns", lambda stepped=stepped: stepped)
        assert 0 <= clock() - before < 60 * SECOND
        assert clock.set_ns() == pytest.approx(stepped - moment, abs=60 * SECOND)
    monkeypatch.setattr(time, "time_ns", lambda: clock() + SECOND // 2)
    assert clock.set_ns() == 0


async def test_counters_go_on_after_a_restart_and_the_time_between_is_told(
    simulated: SimulatedNode, clock: Clock, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with running(config(simulated, state)) as exporter:
        await begun(exporter)
        await beat(exporter, clock)
        before = await beat(exporter, clock)
        assert sum(counters(before).values()) > 0
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    # whoever asks before the first look sees what was
    role = make_role(config(simulated, state))
    try:
        assert accounts_of(role).ledger.rows > 0
    finally:
        await role.close()
    clock.now += 3600 * 1000 * 3 * SECOND  # 3 intervals
    async with running(config(simulated, state)) as exporter:
        await begun(exporter)
        after = accounts((await exporter.get("/metrics"))[1])
    assert never_fell(before, after)
    assert dict(SECONDS_OF_GAPS.findall(after))["exporter"] == "10800000"
    clock.now += 20 * SECOND
    async with running(config(simulated, state)) as exporter:
        await begun(exporter)
        again = accounts((await exporter.get("/metrics"))[1])
    assert never_fell(after, again)
    assert SECONDS_OF_GAPS.findall(again) == SECONDS_OF_GAPS.findall(after), "within two intervals there is no gap"


def signed(body: bytes) -> bytes:
    """With the checksum of a file that the exporter wrote."""
    head, _, content = body.partition(b"\n")
    magic, version, _ = head.rsplit(b" ", 2)
    return b"%b %b %b\n%b" % (magic, version, sha256(b"%b %b" % (version, content)).hexdigest().encode(), content)


DAMAGE = {
    # issue 15, line 22
    "signed and infinite": lambda body: signed(re.sub(rb'"look":\d+', b'"look":1e999', body)),
    "signed and nested": lambda body: signed(re.sub(rb'"look":\d+', b'"look":' + b"[" * 10**5 + b"]" * 10**5, body)),
    "cut off": lambda body: body[: len(body) // 2],
    "a bit": lambda body: body[:-5] + bytes([body[-5] ^ 1]) + body[-4:],
    "empty": lambda _: b"",
    "foreign": lambda _: b'{"important": true}\n',
    "newer": lambda body: re.sub(rb"^(\D+)\d+", rb"\g<1>999", body),
    "too large": lambda _: bytes(MOST_BYTES + 1),
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_file_that_cannot_be_used_is_set_aside_and_the_start_goes_on(
    simulated: SimulatedNode, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "state"
    async with running(config(simulated, state)) as exporter:
        await begun(exporter)
    body = DAMAGE[damage](state.read_bytes())  # type: ignore[no-untyped-call]
    state.write_bytes(body)
    async with running(config(simulated, state)) as exporter:
        await begun(exporter)
        assert "pod_gpu_allocated_ratio{" in (await exporter.get("/metrics"))[1]
    assert (tmp_path / "state.unusable").read_bytes() == body
    (said,) = [record for record in caplog.records if "set aside" in record.message]
    assert said.levelname == "WARNING"
    assert said.fields["why"]  # type: ignore[attr-defined]
    # the next start has a good one
    caplog.clear()
    async with running(config(simulated, state)) as exporter:
        await begun(exporter)
    assert "set aside" not in caplog.text


@pytest.mark.parametrize(
    ("place", "says"),
    [("nowhere/state", "its folder does not exist"), ("folder", "it is no file"), ("fifo", "no file")],
)
async def test_a_place_where_no_file_can_be_is_refused_with_one_line(
    simulated: SimulatedNode, tmp_path: Path, place: str, says: str
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(
        ConfigError, match=rf"^--accounting\.state: '{tmp_path}/{place}' is not allowed; .*{says}"
    ) as told:
        make_role(config(simulated, tmp_path / place))
    assert "\n" not in str(told.value)
    # doctor and textfile keep no accounts, and have no business with it
    role = make_role(config(simulated, tmp_path / place), keeps_accounts=False)
    assert role.pulse_seconds is None
    await role.close()


def test_a_folder_that_may_not_be_looked_into_is_no_reason_not_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", refuse)
    check_place(str(tmp_path / "state"))


# issue 9, C: a disk that is full
async def test_a_full_disk_is_told_where_failures_are_and_once_in_the_log(
    simulated: SimulatedNode, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    state = tmp_path / "state"
    name = f"file:{state}"
    up = f'pod_gpu_exporter_source_up{{source="{name}"}}'
    caplog.set_level("INFO", "pod_gpu_exporter")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with running(config(simulated, state)) as exporter:
        await begun(exporter)
        whole = state.read_bytes()
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", full)
            for _ in range(3):
                before = await beat(exporter, clock)
            metrics = (await exporter.get("/metrics"))[1]
            assert f"{up} 0\n" in metrics
            assert "cannot be written: No space left on device; counters are kept in memory alone -> is the" in metrics
            assert f"{up} 0\n" in await exporter.page()
            assert state.read_bytes() == whole
            assert [path.name for path in tmp_path.iterdir()] == ["state"]
        after = await beat(exporter, clock)
        assert never_fell(before, after)
        assert state.read_bytes() != whole
        assert f"{up} 1\n" in (await exporter.get("/metrics"))[1]
    said = [record.message for record in caplog.records if getattr(record, "fields", {}).get("source") == name]
    assert said == ["source answers", "source failed", "source is back"]


async def test_a_disk_that_hangs_stops_no_look(
    simulated: SimulatedNode, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    goes_on = threading.Event()
    async with running(config(simulated, state)) as exporter:
        await begun(exporter)
        monkeypatch.setattr("exporter.node.accounting.WRITE_SECONDS", 0.05)
        monkeypatch.setattr(os, "fsync", lambda _: goes_on.wait(30))
        known = state.read_bytes()
        seen = [await beat(exporter, clock) for _ in range(3)]
        assert len(set(seen)) == 3
        metrics = (await exporter.get("/metrics"))[1]
        goes_on.set()
        assert f"# file:{state} failed (deadline)" in metrics
        await until(lambda: state.read_bytes() != known)
        assert [path.name for path in tmp_path.iterdir()] == ["state"]
        monkeypatch.undo()  # a sound disk may be slow on a busy machine
        await beat(exporter, clock)
        assert f"# file:{state}" not in (await exporter.get("/metrics"))[1]


# issue 9, "Must show" 5
async def test_nothing_is_shown_that_is_not_kept_yet(
    simulated: SimulatedNode, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in between, a counter that was shown would fall."""
    state = tmp_path / "state"
    is_written = threading.Event()
    async with running(config(simulated, state)) as exporter:
        await begun(exporter)
        before = accounts((await exporter.get("/metrics"))[1])
        monkeypatch.setattr(os, "fsync", lambda _: is_written.wait(30))
        waiting = asyncio.create_task(beat(exporter, clock))
        role = node_of(exporter.service)
        await until(lambda: (writing := accounts_of(role).writing) is not None and not writing.done())
        assert accounts((await exporter.get("/metrics"))[1]) == before
        is_written.set()
        assert await waiting != before


def test_what_a_killed_process_left_beside_it_is_removed(tmp_path: Path) -> None:
    left, other = tmp_path / ".state.abc.new", tmp_path / ".states.abc.new"
    left.touch()
    other.touch()
    file = StateFile(str(tmp_path / "state"), lambda *_: None)
    assert file.take_up() is None
    assert [path.name for path in tmp_path.iterdir()] == [other.name]


async def test_an_exporter_that_cannot_listen_leaves_the_other_ones_state_file(
    simulated: SimulatedNode, clock: Clock, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with running(config(simulated, state)) as exporter:
        await begun(exporter)
        await beat(exporter, clock)
        known = state.read_bytes(), state.stat().st_mtime_ns
        second = Service(config(simulated, state, web_listen_address=exporter.base[7:]), NODE)
        with suppress(ExporterError):
            await second.listen()
        await second.close()
        assert (state.read_bytes(), state.stat().st_mtime_ns) == known


class Reloadable:
    """An exporter whose settings a test changes."""

    def __init__(self, simulated: SimulatedNode, **more: str) -> None:
        self._simulated = simulated
        self.now = config_of(**given(simulated, web_listen_address="127.0.0.1:0", **more))
        self.service = Service(self.now, NODE, lambda: self.now)

    async def change(self, **more: str) -> None:
        self.now = config_of(**given(self._simulated, web_listen_address="127.0.0.1:0", **more))
        await self.service.reload()
        assert self.service.telemetry.reload_success is True


@asynccontextmanager
async def reloadable(simulated: SimulatedNode, **more: str) -> AsyncIterator[tuple[Reloadable, Exporter]]:
    found = Reloadable(simulated, **more)
    try:
        (address,) = await found.service.listen()
        async with aiohttp.ClientSession() as session:
            exporter = Exporter(found.service, f"http://{address}", session)
            await begun(exporter)
            yield found, exporter
    finally:
        await found.service.close()


async def test_another_file_is_taken_up_and_what_was_counted_goes_on(
    simulated: SimulatedNode, clock: Clock, tmp_path: Path
) -> None:
    one, two, foreign = tmp_path / "one", tmp_path / "two", tmp_path / "foreign"
    foreign.write_text("somebody else's")
    async with running(config(simulated, two)) as exporter:
        await begun(exporter)
    old = two.read_bytes()
    async with reloadable(simulated, accounting_state=str(one)) as (service, exporter):
        before = await beat(exporter, clock)
        for place in (two, foreign):
            await service.change(accounting_state=str(place))
            after = await beat(exporter, clock)
            assert never_fell(before, after)
            before = after
        assert two.read_bytes() != old
        assert (tmp_path / "foreign.unusable").read_text() == "somebody else's"
        kept = foreign.read_bytes()
        await service.change()
        assert never_fell(before, await beat(exporter, clock))
        assert foreign.read_bytes() == kept
        bad = config(simulated, tmp_path / "no" / "state", web_listen_address="127.0.0.1:0")
        service.now = bad
        await service.service.reload()
        assert service.service.telemetry.reload_success is False
        assert never_fell(before, await beat(exporter, clock))


# issue 20, "Idle since"
async def test_since_when_a_pod_is_idle_is_kept_over_a_restart(
    simulated: SimulatedNode, clock: Clock, tmp_path: Path
) -> None:
    gpu, began = Gpu(simulated), clock.now
    gpu.hold("notebook")
    since = f'pod_gpu_idle_since_timestamp_seconds{{namespace="n",pod="notebook",container="c",UUID="{UUID}"'

    async def shown(exporter: Exporter) -> tuple[list[str], str | None]:
        metrics, objects = [(await exporter.get(path))[1] for path in ("/metrics", "/container/metrics")]
        (row,) = json.loads(objects)
        return [line.rpartition(" ")[2] for line in metrics.splitlines() if line.startswith(since)], row["idle_since"]

    seen = [f"{began // SECOND}"], "2023-11-14T22:13:20.000Z"
    async with running(config(simulated, tmp_path / "state")) as exporter:
        await begun(exporter)
        assert await shown(exporter) == ([], None)
        await beat(exporter, clock, 3 * 3600)
        assert await shown(exporter) == seen
    clock.now += 45 * SECOND
    async with running(config(simulated, tmp_path / "state")) as exporter:
        await begun(exporter)
        assert await shown(exporter) == seen
        gpu.percent = 90
        await beat(exporter, clock)
        assert await shown(exporter) == ([], None)


async def test_off_and_on_again_is_a_gap_and_counters_go_on(
    simulated: SimulatedNode, clock: Clock, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with reloadable(simulated, accounting_state=str(state)) as (service, exporter):
        before = await beat(exporter, clock)
        await service.change(accounting_mode="off")
        metrics = (await exporter.get("/metrics"))[1]
        assert accounts(metrics) == ""
        assert f'source="file:{state}"' not in metrics
        clock.now += 3 * 3_600_000 * SECOND
        await service.change(accounting_state=str(state))
        role = node_of(service.service)
        await until(lambda: accounts_of(role).looked_at_ns == clock.now and not role._is_beating)
        after = accounts((await exporter.get("/metrics"))[1])
        assert never_fell(before, after)
        assert dict(SECONDS_OF_GAPS.findall(after))["exporter"] == "10800000"


async def test_a_reload_that_changes_nothing_keeps_the_counters_without_a_file(
    simulated: SimulatedNode, clock: Clock
) -> None:
    async with reloadable(simulated) as (service, exporter):
        first = await beat(exporter, clock)
        before = node_of(service.service)
        await service.change(labels_names="legacy", accounting_idle_below="0.5")
        assert node_of(service.service) is not before
        assert isinstance(before, Node)
        after = await beat(exporter, clock)
        assert never_fell(first, after)
        assert sum(counters(after).values()) > sum(counters(first).values())
