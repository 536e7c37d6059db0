"""The election of the replica that works: it holds a Lease (coordination.k8s.io/v1), as with client-go.

The holder renews its lease of 15 s every 2 s, and stops working after 10 s without a renewal. Another replica takes the
lease after it has seen no renewal for 15 s. A process uses only its own clock, never another machine's. Since an API
server may answer late, the process counts its own renewal from the moment of sending, and another's from the moment of
reading.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus

from exporter import log
from exporter.config.operator_settings import MOST_LEASE_SECONDS
from exporter.errors import SourceError, Unsupported
from exporter.lenient import AnyObject, mapping, number, text
from exporter.operator.api.writer import Refused, Writer
from exporter.operator.objects.kinds import LEASE
from exporter.operator.objects.object_fields import in_microseconds
from exporter.operator.objects.resources import Object

# As parts of the lease: the time that a holder works without a renewal, and the time between two attempts.
RENEW = 10 / 15
RETRY = 2 / 15
RELEASE_SECONDS = 3.0
_LATE = "the Kubernetes API does not answer in time"


class Leader:
    """A replica in the election: it takes the lease, works while it holds it, and releases it at the end."""

    def __init__(self, *, writer: Writer, namespace: str, name: str, identity: str, lease_seconds: int) -> None:
        """Make a replica.

        Args:
            writer: the client that writes the lease.
            namespace: the lease's namespace.
            name: the lease's name.
            identity: the name of this process, which no other process has.
            lease_seconds: the time after which others take a lease that is not renewed.
        """
        self.is_leader = False
        self.holder = ""
        self._writer = writer
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._lease_seconds = lease_seconds
        self._renew_seconds = lease_seconds * RENEW
        self._retry_seconds = lease_seconds * RETRY
        # the lease as it was last seen, and the time at which it was first seen so
        self._seen: AnyObject | None = None
        self._seen_at = 0.0
        self._failed = ""

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work whenever this process holds the lease, until this is cancelled."""
        while True:
            held_since = await self._until_held()
            self.is_leader = True
            log.info("leading", lease=f"{self._namespace}/{self._name}", identity=self._identity)
            working = asyncio.ensure_future(work())
            try:
                await self._while_held(working, held_since)
            finally:
                self.is_leader = False
                working.cancel()
                ended, _ = await asyncio.wait({working}, timeout=self._retry_seconds)
                # If the work has not ended yet, no other replica may begin. So the lease is kept, and runs out.
                if ended:
                    await self._release()
            await asyncio.wait({working})
            log.warning("no longer leading", holder=self.holder)

    async def _until_held(self) -> float:
        """Try until the lease is held. Return the time at which the successful try began, by the loop's clock."""
        while True:
            began = asyncio.get_running_loop().time()
            if await self._take(self._renew_seconds):
                return began
            await asyncio.sleep(self._retry_seconds)

    async def _while_held(self, working: "asyncio.Future[None]", renewed_at: float) -> None:
        """Renew the lease, until renewing has failed for too long or the work has ended by a fault."""
        clock = asyncio.get_running_loop().time
        while True:
            left = renewed_at + self._renew_seconds - clock()
            if left <= 0:
                return
            done, _ = await asyncio.wait({working}, timeout=min(self._retry_seconds, left))
            if done:
                working.result()
                return
            began = clock()
            if await self._take(renewed_at + self._renew_seconds - began):
                renewed_at = began
            elif self.holder != self._identity:
                return  # somebody else has it

    async def _take(self, seconds: float) -> bool:
        """Take or renew the lease. Return whether that succeeded within `seconds`."""
        try:
            async with asyncio.timeout(max(seconds, 0.0)):
                held = await self._try()
        except TimeoutError:
            return self._missed("deadline", _LATE)
        except SourceError as error:
            return self._missed(error.reason, str(error.trouble))
        self._failed = ""
        return held

    def _missed(self, reason: str, why: str) -> bool:
        if reason != self._failed:
            log.warning("the lease cannot be taken", error=why)
        self._failed = reason
        return False

    async def _try(self) -> bool:
        """Write or create the lease, unless another replica holds it."""
        spec: Object = {}
        write = self._writer.replace
        try:
            lease = dict(await self._writer.get(LEASE.path(self._namespace, self._name)))
        except Unsupported:
            named = {"name": self._name, "namespace": self._namespace}
            lease = {"apiVersion": LEASE.api_version, "kind": LEASE.name, "metadata": named}
            write = partial(self._writer.create, tries=1)
        else:
            spec = dict(mapping(lease, "spec"))
            if not self._may_be_had(spec):
                return False
        now = in_microseconds(time.time())
        if text(spec, "holderIdentity") != self._identity:
            transitions = number(spec, "leaseTransitions")
            spec |= {"acquireTime": now, "leaseTransitions": 0 if transitions is None else (transitions + 1) % 2**31}
        spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": self._lease_seconds, "renewTime": now}
        try:
            answer = await write({**lease, "spec": spec})
        except Refused as error:
            if error.status == HTTPStatus.CONFLICT:
                return False  # another replica was faster
            raise
        self.holder = self._identity
        self._seen = answer.get("spec")
        self._seen_at = asyncio.get_running_loop().time()
        return True

    def _may_be_had(self, spec: Object) -> bool:
        """Note the lease as it is. Return whether this process may take it: it is ours or nobody's, or has run out."""
        now = asyncio.get_running_loop().time()
        if spec != self._seen:
            self._seen = spec.copy()
            self._seen_at = now
        self.holder = text(spec, "holderIdentity")
        seconds = number(spec, "leaseDurationSeconds") or 0
        lasts = seconds if 0 < seconds <= MOST_LEASE_SECONDS else self._lease_seconds
        return self.holder in ("", self._identity) or now >= self._seen_at + lasts

    async def _release(self) -> None:
        """Release the lease, so that another replica can work at once. If that fails, the lease runs out by itself."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                lease = dict(await self._writer.get(LEASE.path(self._namespace, self._name)))
                spec = mapping(lease, "spec")
                if spec.get("holderIdentity") != self._identity:
                    return
                changed = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._writer.replace({**lease, "spec": changed})
                self.holder = ""
        except (SourceError, TimeoutError) as error:
            log.warning("the lease could not be released; it runs out by itself", error=str(error) or _LATE)
