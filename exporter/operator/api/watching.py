"""kopf watches: it tells of each custom resource, and of each object that the operator made, that something happened.

What happened is not asked: a key is named, and the worker looks at how things are. So kopf's handlers are those for
bare events, which write no annotation, no finalizer and no event. kopf has a thread and an event loop of its own: it
cancels what else runs in its loop, and takes the signals of the main thread. Who stops it need not wait for it.

Where a part of kopf has failed, it ends the others and waits for them, which may take for ever; and where it cannot log
in, it tries again after a minute and says nothing. So the failure itself is what ends a run, and kopf's parts are ended
here.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
import kopf

from exporter.config.common import KubernetesSettings
from exporter.config.tls import ClientTls
from exporter.log import debugging
from exporter.operator.objects.kinds import (
    AUTOSCALER,
    CLUSTER_ROLE_BINDING,
    CLUSTER_WIDE,
    COME_AND_GO,
    CONFIG_MAP,
    CUSTOM,
    CUSTOM_NAMES,
    DAEMON_SET,
    OPERATOR,
    POD_MONITOR,
    SCALED_OBJECT,
    SERVICE,
    SERVICE_ACCOUNT,
    Key,
    Kind,
    key_of,
    whose,
)
from exporter.operator.objects.names import MANAGER_LABEL
from exporter.sources.http import context_of, watched_socket

# What the operator makes. Of these it is told only of those that it made.
MADE = (
    DAEMON_SET,
    CONFIG_MAP,
    SERVICE,
    SERVICE_ACCOUNT,
    CLUSTER_ROLE_BINDING,
    POD_MONITOR,
    SCALED_OBJECT,
    AUTOSCALER,
)
# kopf tries a request again after these, and then gives up: it is begun anew.
_PAUSES_SECONDS = (0.3, 0.5, 1.0, 2.0, 4.0)
_REQUEST_SECONDS = 30.0
_CONNECT_SECONDS = 10.0
# It stands in the query as it is written here, and the API server answers 400 to 240.0.
_WATCH_SECONDS = 240
# The API sends a bookmark every minute: after this the connection is nobody's.
_SILENCE_SECONDS = 90.0
_LONGEST_PAUSE_SECONDS = 30.0
_MOST_DOUBLINGS = 5
# How long kopf may take to end, and how often it is told to.
_ENDING_SECONDS, _MOST_TRIES = 10.0, 100
# Kopf gives up the watches of all kinds when a list of one kind fails: the kind has just come or gone, a right is
# missing, or a conversion webhook is away. So such lists are asked for again here. Three answers Kopf handles well:
# 401 (who asks), 410 (from which version) and 429 (how often).
_OF_KOPF = frozenset({"401", "410", "429"})
_NOT_YET_SECONDS = 0.3
# kopf takes its own finalizer off objects that it has no use for: none has this one.
_FINALIZER = "pod-gpu-metrics.dev/never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """Runs kopf and passes on what it says, as long as `until_it_fails` runs. No `namespaces` means all of them.

    `token` gives the header of a request. The others are called in the loop of `until_it_fails`: `on_key` hears of what
    something happened to, `on_list` that kopf reads a whole list, and then does not tell what is gone since the list
    before, and `on_answer` of the verb and the HTTP status of each answer, or `none`.
    """

    kubernetes: KubernetesSettings
    namespaces: Sequence[str]
    token: Callable[[], Mapping[str, str]]
    on_key: Callable[[Key], None]
    on_list: Callable[[], None]
    on_answer: Callable[[str, str], None]

    async def until_it_fails(self, served: AbstractSet[Kind]) -> None:
        """Watch, of the kinds that come and go, those that are `served`; until this is cancelled.

        Raises:
            Exception: whatever kopf could not go on with. It is to be begun anew.
        """
        logging.getLogger("kopf").setLevel(logging.DEBUG if debugging() else logging.CRITICAL)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        run = _Run(self, _kinds(served, all_namespaces=not self.namespaces), loop, ended)
        threading.Thread(target=run.in_thread, name="kopf", daemon=True).start()
        try:
            await ended
        finally:
            run.stop()

    def answered(self, request: aiohttp.ClientRequest, status: str) -> None:
        """An answer that kopf got, or `none`."""
        is_watch = "watch" in request.url.query
        self.on_answer("watch" if is_watch else "list" if _is_list(request.url.path) else "get", status)
        if status == "200" and not is_watch and _is_list(request.url.path):
            self.on_list()


class _Run:
    """One run of kopf, which nobody can begin again."""

    def __init__(
        self, of: Watching, kinds: Iterable[Kind], loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]"
    ) -> None:
        self._of = of
        self._kinds = tuple(kinds)
        self._loop, self._ended = loop, ended
        self._stop_wanted = False
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._logins = 0
        self._session: aiohttp.ClientSession | None = None

    def in_thread(self) -> None:
        """Everything, in kopf's thread."""
        error: BaseException | None = None
        try:
            asyncio.run(self._run())
        except BaseException as failed:  # noqa: BLE001 - it is told to who waits
            error = failed
        self._say(self._note_end, error)

    def stop(self) -> None:
        """Ask it to end. It takes a moment, and tells nothing from now on."""
        self._stop_wanted = True
        if self._own_loop is not None and self._stop is not None:
            with suppress(RuntimeError):  # it has ended
                self._own_loop.call_soon_threadsafe(self._stop.set)

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        self._own_loop = asyncio.get_running_loop()
        if self._stop_wanted:
            return
        others = asyncio.all_tasks()
        try:
            tasks = await kopf.spawn_tasks(
                registry=self._registry(),
                settings=self._settings(),
                clusterwide=not self._of.namespaces,
                namespaces=self._of.namespaces,
                standalone=True,
                stop_flag=self._stop,
            )
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self._say(self._note_end, next(filter(None, map(_error_of, ended)), None))
        finally:
            await _end_all_but(others)
            if self._session is not None:
                await self._session.close()

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        for kind in self._kinds:
            kopf.on.event(group=kind.group, version=kind.version, plural=kind.plural, registry=registry)(self._heard)
        return registry

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        # what is served is looked at elsewhere, without the right to read every definition
        settings.scanning.disabled = True
        settings.process.ultimate_exiting_timeout = None  # it would kill the thread, and with it the process
        settings.persistence.finalizer = _FINALIZER
        settings.networking.request_timeout = _REQUEST_SECONDS
        settings.networking.connect_timeout = _CONNECT_SECONDS
        settings.networking.error_backoffs = _PAUSES_SECONDS
        settings.watching.server_timeout = _WATCH_SECONDS
        settings.watching.inactivity_timeout = _SILENCE_SECONDS
        settings.queueing.idle_timeout = 1.0
        for kind in self._kinds:
            if kind not in CUSTOM:
                settings.watching.label_selectors[kind.group, kind.version, kind.plural] = f"{MANAGER_LABEL}={OPERATOR}"
        return settings

    async def _login(self, **_: Any) -> kopf.AiohttpSession:  # noqa: ANN401 - what kopf gives
        """A session; the second one is since the first was refused with 401, and so on."""
        if self._logins:
            await asyncio.sleep(min(2.0 ** min(self._logins, _MOST_DOUBLINGS), _LONGEST_PAUSE_SECONDS))
        self._logins += 1
        try:
            self._session = self._new_session()
        except Exception as error:
            self._say(self._note_end, error)
            raise
        return kopf.AiohttpSession(server=self._of.kubernetes.url or "", aiohttp_session=self._session)

    def _new_session(self) -> aiohttp.ClientSession:
        """A session for kopf, which closes it when the API server refuses its token.

        Raises:
            ConfigError: the file of the certificate authority cannot be used.
        """
        kubernetes = self._of.kubernetes
        context = (
            context_of(ClientTls(ca_file=kubernetes.ca_file), "--kubernetes.ca-file", may_lack_authority=True)
            if (kubernetes.url or "").startswith("https:")
            else True
        )
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, socket_factory=watched_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": "application/json", "User-Agent": OPERATOR},
            middlewares=(self._asked,),
        )

    async def _asked(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """A request of kopf's. Its token is read now: it is replaced while the program runs."""
        pause = _NOT_YET_SECONDS
        while True:
            request.headers.update(self._of.token())
            status = "none"
            try:
                response = await handler(request)
                status = str(response.status)
            except aiohttp.ClientSSLError as error:
                # kopf would go on with this session, and the file of the authority may be another one by now
                self._say(self._note_end, error)
                raise
            finally:
                self._say(self._of.answered, request, status)
            if status[0] not in "45" or status in _OF_KOPF or self._stop_wanted or not _is_list(request.url.path):
                return response
            response.release()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _heard(self, body: Mapping[str, Any], **_: Any) -> None:  # noqa: ANN401 - what kopf gives
        """Something happened to an object."""
        key = key_of(body)
        for owner in [key] if key.kind in CUSTOM_NAMES else whose(body):
            self._say(self._of.on_key, owner)

    def _say(self, what: Callable[..., None], *arguments: object) -> None:
        """In the loop of who waits, if that still wants to know."""
        with suppress(RuntimeError):  # the loop is closed: the program ends
            self._loop.call_soon_threadsafe(lambda: None if self._stop_wanted else what(*arguments))

    def _note_end(self, error: BaseException | None) -> None:
        if self._ended.done():
            return
        if not isinstance(error, Exception):
            error = RuntimeError(f"kopf has ended{f': {error!r}' if error else ' by itself'}")
        self._ended.set_exception(error)


def _error_of(task: "asyncio.Task[Any]") -> BaseException | None:
    return None if task.cancelled() else task.exception()


async def _end_all_but(others: "AbstractSet[asyncio.Task[Any]]") -> None:
    """End kopf's tasks. One that is cancelled while it waits for another may go on, so each is cancelled again."""
    for _try in range(_MOST_TRIES):
        left = asyncio.all_tasks() - others
        if not left:
            return
        for task in left:
            task.cancel()
        ended, _ = await asyncio.wait(left, timeout=_ENDING_SECONDS / _MOST_TRIES)
        for task in ended:
            _error_of(task)  # asyncio warns of errors that nobody has read


def _kinds(served: AbstractSet[Kind], *, all_namespaces: bool) -> Iterable[Kind]:
    """What is watched: who looks at some namespaces is not told of what is in none."""
    return [
        kind
        for kind in (*CUSTOM, *MADE)
        if (kind in served or kind not in COME_AND_GO) and (all_namespaces or kind not in CLUSTER_WIDE)
    ]


def _is_list(path: str) -> bool:
    return path.rpartition("/")[2] in {kind.plural for kind in (*CUSTOM, *MADE)}
