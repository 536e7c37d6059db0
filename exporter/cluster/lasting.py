"""What outlives a reload: one object, which the role of a configuration hands to the role of the next one."""

import secrets
from typing import TYPE_CHECKING

from exporter.sources.source import Source
from exporter.telemetry import Telemetry

if TYPE_CHECKING:
    from exporter.sources.made import Made


class Lasting:
    """The counters, the sources, and whether the role has been ready.

    `instance` is what the process calls itself towards upstreams. `not_ready` says why it has not been ready so far,
    and is "" from then on. `heard` is the source of which every node has been asked once.
    """

    def __init__(self) -> None:
        self.telemetry = Telemetry()
        self.instance = f"pod-gpu-metrics-exporter-{secrets.token_hex(8)}"
        self.not_ready = "not ready: no node has been asked yet"
        self.made: Made | None = None
        self.heard: Source | None = None

    def has_heard(self, source: Source) -> bool:
        """Whether the first answers of this very source have come, or failed."""
        return self.heard is source
