"""What outlives a reload: one object, which the role of a configuration hands to the role of the next one."""

import asyncio
import secrets
import socket

from exporter.operator.counted import Counted
from exporter.telemetry import Telemetry


class Lasting:
    """The counters, and whose turn it is to work.

    `identity` is what the process calls itself in the lease: the pod's name, and what no other process has.
    `not_ready` says why the role has not been ready so far, and is "" from then on.
    """

    def __init__(self) -> None:
        self.telemetry = Telemetry()
        self.counted = Counted()
        self.identity = f"{socket.gethostname()}_{secrets.token_hex(8)}"
        self.not_ready = "not ready: the Kubernetes API has not been asked yet"
        # held by the role that works: the next one begins when it has let go of the lease
        self.turn = asyncio.Lock()
