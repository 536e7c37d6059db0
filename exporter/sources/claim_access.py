"""The source of claims' admin access: the checkpoint of NVIDIA's DRA driver, else the Kubernetes API.

The driver writes its checkpoint before the kubelet names a claim's devices, so the file is read when the kubelet names
unknown claims. The API is asked only for claims that the file lacks, and once for each. ownership/admin_access.py
interprets the answers.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from exporter import log
from exporter.config.files import Identity, identity_of, read_at_most
from exporter.errors import Malformed, SourceError, Unavailable
from exporter.model.devices import Assignment, Claim
from exporter.ownership.admin_access import AdminAccess, ClaimName, KnownClaims, read_checkpoint, uid_of
from exporter.pulse import end_tasks
from exporter.sources.source import (
    AskedSource,
    Attempt,
    Bound,
    Bounds,
    Clock,
    NoSource,
    OnHealth,
    OptionalSource,
    Source,
    absent,
)

NAME = "dra-checkpoint"
CHECKPOINT = "plugins/gpu.nvidia.com/checkpoint.json"  # below the kubelet's folder
MOST_BYTES = 16 * 1024 * 1024  # a claim of 8 GPUs takes some 8 KiB
MOST_CLAIMS = 50_000
# the pause before the source asks again about claims that nobody knew
AGAIN_SECONDS = 30.0
# the driver may be writing the file, so it is read several times before it counts as unreadable
_TRIES = 5
_PAUSE_SECONDS = 0.02
_MEANWHILE = "until then what is known counts, and claims of --claims.admin-namespaces have admin access"


def checkpoint_beside(socket: str) -> str:
    """The path of the driver's checkpoint in the kubelet's folder, which also has the pod-resources socket's folder."""
    folder = Path(socket).parent
    return str((folder.parent if folder.name == "pod-resources" else folder) / CHECKPOINT)


class ClaimsApi(Source, Protocol):
    """A source that knows claims by their names."""

    async def get(self, namespace: str, name: str) -> tuple[str, AdminAccess]:
        """The uid of the claim, and its devices. Raises SourceError: they are not known."""


class NoClaimsApi(NoSource):
    """The placeholder of the Kubernetes API, if the exporter may not ask it."""

    def __init__(self) -> None:
        super().__init__("resourceclaims", absent("nobody may ask the Kubernetes API", "give the exporter a token"))

    async def get(self, _: str, __: str) -> tuple[str, AdminAccess]:
        """Raise Unavailable: there is no API to ask."""
        raise Unavailable("missing", self.health.message, remedy="give the exporter a token")


class Claims(AskedSource):
    """The admin access of the present claims: `facts`, the same object as long as nothing changed.

    The source's health is that of the file.
    """

    def __init__(
        self,
        *,
        path: str,
        api: OptionalSource[ClaimsApi],
        admin_namespaces: Iterable[str],
        on_health: OnHealth,
        clock: Clock = time.monotonic,
    ) -> None:
        """`path` is the driver's checkpoint. `admin_namespaces` decide about claims that neither it nor `api` knows."""
        super().__init__(NAME, on_health)
        self._absent = absent(
            f"there is no {path}",
            "where NVIDIA's DRA driver runs, mount the file's folder read-only, as the manifests do",
        )
        self._no_file = self._absent
        self.facts = KnownClaims(admin_namespaces=frozenset(admin_namespaces), asked_of=frozenset())
        self.bounds: Bounds = {"claims": Bound(MOST_CLAIMS, lambda: len(self.facts.by_uid) + len(self.facts.by_name))}
        self._path = path
        self._api = api
        self._clock = clock
        self._read_as: Identity | None = None
        self._checkpoint: Mapping[str, AdminAccess] = {}
        self._wanted: frozenset[Assignment] = frozenset()
        self._asked_for: frozenset[Assignment] = frozenset()
        self._again_at = float("inf")
        self._task: asyncio.Task[None] | None = None
        self._complained: set[str] = set()

    async def close(self) -> None:
        """End the question in flight, and close the connections to the API."""
        await end_tasks(self._task)
        await self._api.close()

    def begin(self, assignments: frozenset[Assignment] = frozenset()) -> Attempt | None:
        """Ask about the claims of these assignments. The attempt ends when file and API have answered or failed."""
        self._wanted = assignments
        is_new = assignments is not self._asked_for
        if self._task is None or self._task.done():
            if not is_new and self._clock() < self._again_at:
                return None
            if is_new and _claims_among(assignments) == self.facts.asked_of:
                self._asked_for = assignments
                return None
            self._task = asyncio.create_task(self._run())
        return self._task if is_new else None

    async def _run(self) -> None:
        try:
            await self._ask(self._wanted)
            while self._wanted is not self._asked_for:
                await self._ask(self._wanted)
        except Exception as error:  # noqa: BLE001 - a fault of this program here must not cost the page
            log.error("claims failed by a fault of the exporter", error, source=self.name)
            self._asked_for = self._wanted

    async def _ask(self, assignments: frozenset[Assignment]) -> None:
        """Work out `facts` for the claims of these assignments. The API is asked for those not in the checkpoint."""
        claims = _claims_among(assignments)
        if any(self.facts.access(claim) is None for claim in claims):
            await self._read()
        uids = {uid_of(claim) for claim in claims}
        by_uid = {uid: devices for uid in uids if (devices := self._checkpoint.get(uid, self.facts.by_uid.get(uid)))}
        names = {(claim.namespace, claim.name) for claim in claims}
        by_name = {name: one for name, one in self.facts.by_name.items() if name in names}
        now = replace(self.facts, by_uid=by_uid, by_name=by_name)
        unknown = {(claim.namespace, claim.name) for claim in claims if now.access(claim) is None}
        if unknown:
            by_name |= await self._by_api(unknown)
        if (by_uid, by_name, claims) != (self.facts.by_uid, self.facts.by_name, self.facts.asked_of):
            self.facts = replace(self.facts, by_uid=by_uid, by_name=by_name, asked_of=claims)
        is_all = all(self.facts.access(claim) is not None for claim in claims)
        self._again_at = float("inf") if is_all else self._clock() + AGAIN_SECONDS
        self._asked_for = assignments

    async def _read(self) -> None:
        """Read the checkpoint, if it has changed."""
        started = self._clock()
        error = None
        try:
            identity, claims = await self._checkpoint_now()
        except SourceError as why:
            error = why
        else:
            if identity is None:
                self._absent = self._no_file
                return
            self._read_as = identity
            self._checkpoint = claims
        self._absent = None
        self._attempts.note(error, took_seconds=self._clock() - started, now_seconds=time.time())

    async def _checkpoint_now(self) -> tuple[Identity | None, Mapping[str, AdminAccess]]:
        """The file's identity (None: there is no file) and its claims. Raises SourceError: it cannot be used."""
        why = ""
        for _ in range(_TRIES):
            identity = identity_of(self._path)
            if identity is None or identity == self._read_as:
                return identity, self._checkpoint
            try:
                return identity, await asyncio.to_thread(_read_file, self._path)
            except FileNotFoundError:
                continue  # the file was removed meanwhile
            except OSError as error:
                message = f"{self._path} cannot be read: {error.strerror or error}"
                raise Unavailable(
                    "permission", message, remedy=f"run as uid 0, as the manifests do; {_MEANWHILE}"
                ) from error
            except (ValueError, RecursionError) as error:
                why = str(error) or "it is nested too deeply"
            await asyncio.sleep(_PAUSE_SECONDS)
        message = f"{self._path} cannot be used: {why}"
        raise Malformed("garbage", message, remedy=f"look at the pod of NVIDIA's DRA driver on this node; {_MEANWHILE}")

    async def _by_api(self, names: Iterable[ClaimName]) -> Mapping[ClaimName, tuple[str, AdminAccess]]:
        """The uids and devices of these claims by the API. Claims that it does not know are left out."""
        self._api.look()
        if not self._api.is_there:
            return {}
        api = self._api.now
        named = sorted(names)
        answers = await asyncio.gather(*(api.get(*name) for name in named), return_exceptions=True)
        by_name: dict[ClaimName, tuple[str, AdminAccess]] = {}
        for name, answer in zip(named, answers, strict=True):
            if isinstance(answer, SourceError):
                self._complain(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                by_name[name] = answer
        return by_name

    def _complain(self, error: SourceError) -> None:
        """Log each kind of failure once."""
        if error.reason not in self._complained:
            self._complained.add(error.reason)
            why = error.trouble
            log.warning(
                "whether a claim has admin access is not known", reason=why.reason, error=why.message, remedy=why.remedy
            )


def _claims_among(assignments: Iterable[Assignment]) -> frozenset[Claim]:
    """The claims' devices in these assignments."""
    return frozenset(
        assignment.claim for assignment in assignments if assignment.claim is not None and assignment.claim.driver
    )


def _read_file(path: str) -> Mapping[str, AdminAccess]:
    """Read a checkpoint. Raises OSError: it cannot be read; ValueError: it has another form, or too many bytes."""
    return read_checkpoint(json.loads(read_at_most(path, MOST_BYTES)))
