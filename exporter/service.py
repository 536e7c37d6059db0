"""The service runs a role for as long as the process, and a new one when the configuration changes.

SIGHUP, or a changed file of the configuration, starts a reload. The new role is built while the old one goes on. A bad
configuration is refused, counted and logged; no scrape notices a good one.

Tests: tests/test_reload.py.
"""

import asyncio
import gc
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, Generic

from exporter import __version__, log
from exporter.config.files import Identity, identity_of
from exporter.config.named_files import Web, read_web
from exporter.config.parsers import Address
from exporter.errors import ConfigError
from exporter.outputs.output import LOOK_AT_NODE, Need
from exporter.pulse import Pulse
from exporter.role import AnyConfig, ConfigT, RoleKind, SecondServer, log_settings
from exporter.telemetry import Telemetry
from exporter.threads import use_daemon_threads
from exporter.web.endpoints import Endpoints
from exporter.web.guard import Guard
from exporter.web.server import Server

LAG_EVERY_SECONDS = 1.0
# A look at a few files is cheap, and the kubelet takes about a minute to bring a changed ConfigMap.
LOOK_EVERY_SECONDS = 2.0


class Service(Generic[ConfigT]):
    """Answers by a role, which a reload exchanges for the role of the new configuration."""

    def __init__(self, config: ConfigT, kind: RoleKind[ConfigT], reread: Callable[[], ConfigT] | None = None) -> None:
        """`reread` makes the configuration anew, from the same flags; None: no reload. Raises: see `serve`."""
        self._config = config
        self._reread = reread
        self._web = read_web(config.web)
        self._kind = kind
        self._role = kind.make(config, None)
        self.guard = Guard(
            Endpoints(lambda: self._role, self._role.outputs, self._about), self._web.config, self.telemetry
        )
        self._server: Server | None = None
        self._beside: SecondServer | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._lag: asyncio.Task[None] | None = None
        self._listens = False
        self._pulse = Pulse(self._beat)
        self._named = config.files
        self._watched = self._look()

    @property
    def telemetry(self) -> Telemetry:
        """The telemetry, which each role hands on to the next."""
        return self._role.telemetry

    def collect(
        self, wait_seconds: float | None, needs: AbstractSet[Need] = LOOK_AT_NODE
    ) -> Coroutine[None, None, Any]:
        """A look of the present role."""
        return self._role.look(wait_seconds, needs)

    def _about(self, seen: object) -> Mapping[str, Any]:
        return self._kind.about(self._config, seen)

    async def listen(self) -> tuple[Address, ...]:
        """Start to answer. Returns the addresses. Raises what `Server.start` and `AnswerBeside` raise."""
        self._lag = asyncio.create_task(self._measure_lag())
        self._lag.add_done_callback(say_why_it_ended)
        self._server = Server(self.guard, self.telemetry)
        addresses = await self._server.start(self._config.web.listen_addresses, self._web.tls)
        # a process that cannot listen is a second exporter, which must not write the first one's file
        self._listens = True
        if self._kind.beside is not None:
            self._beside = await self._kind.beside(self._config, self._web.config, lambda: self._role)
        self._pulse.every(self._role.pulse_seconds)
        return addresses

    async def close(self) -> None:
        """Stop listening, let scrapes in flight end, and close the sources."""
        if self._lag is not None:
            self._lag.cancel()
        if self._server is not None:
            await self._server.close()
        if self._beside is not None:
            await self._beside.close()
        await self._pulse.close()
        await asyncio.gather(*self._leaving, return_exceptions=True)  # each has been logged
        await self._role.close()

    async def watch(self, hang_up: asyncio.Event) -> None:
        """Reload when `hang_up` is set, and when a file has changed and then stayed the same for a while."""
        seen = self._watched
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(hang_up.wait(), LOOK_EVERY_SECONDS)
            # a half-written file may be valid and wrong, so files are read once two looks agree
            before, seen = seen, self._look()
            if hang_up.is_set() or (seen != self._watched and seen == before):
                hang_up.clear()
                try:
                    await self.reload()
                except Exception as error:  # noqa: BLE001 - the watch must go on for the next change
                    log.error("a reload ended halfway, by a fault of the exporter", error)
                    self.telemetry.note_reload(error)

    async def reload(self) -> None:
        """Read the configuration anew, and take it over or refuse it."""
        if self._reread is None:
            return
        looked = self._watched = self._look()
        try:
            config = self._reread()
            # its files are watched even if it is refused, since the mending of a file may be all that is needed
            self._named = config.files
            _check_stays(config, self._config)
            web = read_web(config.web)
            if self._beside is not None:
                self._beside.check_stays(config, web.config)
            role = self._kind.make(config, self._role)
        except ConfigError as error:
            self.telemetry.note_reload(error)
            return
        except Exception as error:  # noqa: BLE001 - a fault of this program here must not end what runs
            log.error("reload failed by a fault of the exporter", error)
            self.telemetry.note_reload(error)
            return
        if (config.log.level, config.log.format) != (self._config.log.level, self._config.log.format):
            log.start_logging(config.log.level, config.log.format)
        before, self._role, self._config = self._role, role, config
        self._protect(web)
        # new files are looked at now; known files keep their identities from before they were read
        self._watched = {**self._look(), **{path: identity for path, identity in looked.items() if path in self._named}}
        self.telemetry.note_reload(None)
        if self._listens:
            self._pulse.every(role.pulse_seconds)
        leaving = asyncio.create_task(before.give_way(role))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)
        leaving.add_done_callback(say_why_it_ended)

    async def _beat(self) -> None:
        await self._role.pulse()

    async def _measure_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_SECONDS
            await asyncio.sleep(LAG_EVERY_SECONDS)
            self.telemetry.loop_lag.observe(max(0.0, loop.time() - due))

    def _protect(self, web: Web) -> None:
        self._web = web
        self.guard.use(web.config)
        if self._server is not None:
            self._server.use(web.tls)
        if self._beside is not None:
            self._beside.use_certificates()

    def _look(self) -> dict[str, Identity | None]:
        """The present identities of the configuration's files."""
        tls = self._web.config.tls
        return {path: identity_of(path) for path in (*self._named, *(tls.files if tls else ()))}


def say_why_it_ended(task: "asyncio.Task[None]") -> None:
    """Log the error that ended a task, for tasks that nobody awaits."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a task in the background ended by a fault of the exporter", error)


def _check_stays(new: AnyConfig, old: AnyConfig) -> None:
    if new.web.listen_addresses != old.web.listen_addresses:
        raise ConfigError("--web.listen-address cannot change while the exporter runs: restart it")


async def serve(
    config: ConfigT,
    kind: RoleKind[ConfigT],
    on_listening: Callable[[tuple[Address, ...]], None] | None = None,
    reread: Callable[[], ConfigT] | None = None,
) -> None:
    """Run until SIGTERM or SIGINT. Then scrapes in flight end before it returns.

    Args:
        config: the first configuration.
        kind: makes the role.
        on_listening: called with the addresses once it answers.
        reread: makes the configuration anew for a reload; None: no reload.

    Raises:
        ConfigError: a file that the configuration names cannot be used.
        PortTaken: the program cannot listen on an address.
    """
    use_daemon_threads()
    stop = on_signal(signal.SIGTERM, signal.SIGINT)
    service = Service(config, kind, reread)
    watch = asyncio.create_task(service.watch(on_signal(signal.SIGHUP)))
    watch.add_done_callback(say_why_it_ended)
    started = time.monotonic()
    try:
        addresses = await service.listen()
        collect_seldom()
        for address in addresses:
            log.info("listening", address=str(address), version=__version__, **kind.names(config))
        kind.say(config)
        log_settings(config)
        if on_listening:
            on_listening(addresses)
        await stop.wait()
        log.info("stopping", ran_seconds=round(time.monotonic() - started))
    finally:
        watch.cancel()
        await service.close()


def run(kind: RoleKind[ConfigT], read: Callable[[], ConfigT]) -> None:
    """Start the log, and `serve`. `read` makes the configuration of the command line, now and at every reload."""
    config = read()
    log.start_logging(config.log.level, config.log.format)
    asyncio.run(serve(config, kind, reread=read))


def collect_seldom() -> None:
    """Make full garbage collections rare: with a large page each stops the event loop for 20 to 50 ms.

    Present objects stay for good, so no collection looks at them again. From then on a full collection comes when
    7,000,000 more objects (700 * 10 * 1,000) were made than freed. Cycles are rare here. Young objects are collected as
    before.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 1_000)


def on_signal(*numbers: signal.Signals) -> asyncio.Event:
    """An event that these signals set from here on."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in numbers:
        loop.add_signal_handler(number, event.set)
    return event
