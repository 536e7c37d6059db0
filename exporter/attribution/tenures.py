"""Since when each device has been in the same hands, and when the values of the pages were read.

dcgm-exporter reads its GPUs every 30 s by default, and the kubelet's word is newer than that. So the values of a page
may be those of the holder before: outputs for people mark them until the page changes.

Pure, except for what it remembers. Moments come in, in seconds since 1970.
"""

from collections.abc import Mapping, Sequence

from exporter.model.devices import DeviceKey, Owners
from exporter.model.pages import Page
from exporter.model.pods import Owner

# In so long a time dcgm-exporter has read its GPUs anew: a page that stands still longer says the same again.
MOST_UNREAD_SECONDS = 120.0
# So long it is remembered since when nobody has held a device.
_NOBODYS_SECONDS = 3600.0
_COMPARED_WHOLE_BYTES = 1 << 20  # a larger body is not kept: its hash is

# None stands for nobody.
Since = Mapping[tuple[DeviceKey, Owner | None], float]


class Tenures:
    """What is remembered from look to look. `since` has no entry for hands that the first look saw already."""

    def __init__(self) -> None:
        self.since: Since = {}
        self._noted: Owners | None = None
        self._holders: Mapping[DeviceKey, frozenset[Owner]] = {}
        self._changed: dict[str, tuple[bytes | int, float]] = {}

    def look(self, owners: Owners | None, pages: Sequence[Page], at_seconds: float) -> float | None:
        """Note who holds what, None where the kubelet has not said it yet. Returns when the oldest values were read.

        That is when they were read at the latest; None without a page.
        """
        if owners is not None and owners is not self._noted:
            self._note(owners, at_seconds)
        oldest = None
        for page in pages:
            body: bytes | int = page.body
            if len(page.body) > _COMPARED_WHOLE_BYTES:
                body = hash(body)
            known = self._changed.get(page.source)
            if known is None:
                sources = {each.source for each in pages}
                self._changed = {name: last for name, last in self._changed.items() if name in sources}
            if known is None or known[0] != body:
                known = self._changed[page.source] = (body, page.read_at_seconds)
            read_at = max(known[1], page.read_at_seconds - MOST_UNREAD_SECONDS)
            oldest = read_at if oldest is None else min(oldest, read_at)
        return oldest

    def _note(self, owners: Owners, at_seconds: float) -> None:
        is_first = self._noted is None
        before, self._noted = self._holders, owners
        now = {key: frozenset(holder.owner for holder in holders) for key, holders in owners.holders.items()}
        self._holders = now
        if is_first:
            return
        since = {
            (key, owner): moment
            for (key, owner), moment in self.since.items()
            if (owner in now.get(key, ()) if owner else key not in now and at_seconds - moment < _NOBODYS_SECONDS)
        }
        for key, holders in now.items():
            since |= dict.fromkeys(((key, owner) for owner in holders - before.get(key, frozenset())), at_seconds)
        since |= dict.fromkeys(((key, None) for key in before.keys() - now.keys()), at_seconds)
        self.since = since
