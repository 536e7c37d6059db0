"""The notes on GPUs: a JSON file of the node's administrator, an object with a text for each GPU's UUID."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from exporter.config.files import read_regular, unique_keys
from exporter.errors import DuplicateKey, Malformed, Unavailable
from exporter.model.snapshot import Health
from exporter.reading import Invalid, by_key, text
from exporter.sources.polled import Polled
from exporter.sources.source import OnHealth, absent

NAME = "gpu-notes"
FILE = "/run/gpu-notes.json"
AGAIN_SECONDS = 10.0
MOST_NOTES, MOST_CHARS, MOST_BYTES = 256, 200, 256 * 1024
_READ = by_key(text(r"GPU-[0-9a-fA-F-]+", "the UUID of a GPU", 64), text(r"[^\n]*", "a line", MOST_CHARS), MOST_NOTES)
_ABSENT = absent(f"there is no {FILE}", "write one if GPUs are to have notes")


def parse(content: bytes) -> Mapping[str, str]:
    """The notes by the GPU's UUID. Raises Malformed: it is no such object."""
    try:
        if len(content) > MOST_BYTES:
            raise Malformed("oversize", f"{FILE} is larger than {MOST_BYTES} bytes", remedy="shorten the notes")
        return MappingProxyType(_READ(json.loads(content, object_pairs_hook=unique_keys), ""))
    except (ValueError, RecursionError, DuplicateKey, Invalid) as why:
        remedy = "mend the file; until then the last good notes count"
        raise Malformed("garbage", f"{FILE} cannot be understood: {why}", remedy=remedy) from why


class GpuNotes(Polled):
    """The notes, read again every 10 s; `notes` stays the same object while nothing changes."""

    def __init__(self, *, file: str, on_health: OnHealth, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(NAME, on_health, again_seconds=AGAIN_SECONDS, placeholder=_ABSENT, clock=clock)
        self.notes: Mapping[str, str] = MappingProxyType({})
        self._file = Path(file)

    async def _look(self) -> Health | None:
        try:
            content = await asyncio.to_thread(read_regular, self._file)
        except FileNotFoundError:
            self.notes = MappingProxyType({})
            return _ABSENT
        except OSError as why:
            message = f"{self._file} cannot be read: {why.strerror or why}"
            raise Unavailable("permission", message, remedy="let the exporter read it") from why
        notes = parse(content)
        if notes != self.notes:
            self.notes = notes
        return None
