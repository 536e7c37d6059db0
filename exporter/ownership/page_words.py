"""What a page of samples says of how its GPUs are, by the rules of DCGM's fields, and for how long.

A page shows the last XID for good. So a new value is an error; the one that was there first is one only if the GPU had
to be reset since, which takes the exporter of the page away, and its XIDs with it. Moments are seconds since 1970.
"""

from collections.abc import Mapping

from exporter.dcgm.fields import FIELDS, HEALTH, Field
from exporter.dcgm.health import HealthRule
from exporter.dcgm.xids import verdict_of
from exporter.dividing.decimals import number
from exporter.model.devices import DeviceKey
from exporter.model.kernel import DeviceEvent, KernelEvent
from exporter.model.pages import JoinedPage
from exporter.model.slices import ITEMS_A_SLICE, Work

# dcgm-exporter reads its GPUs every 30 s; its pod, the kubelet and the driver's library restart within two minutes
GRACE_SECONDS, CLOCKS_SECONDS, GROWN_SECONDS = 120.0, 300.0, 3_600.0
MOST_ERRORS = 256
_MOST_XID = 999
_FIELD_OF: Mapping[bytes, Field] = {
    name.encode(): field
    for name, field in FIELDS.items()
    if name.encode() in HEALTH or (field.accounts and field.accounts[0] in ("xids", "energy"))
}
_FAMILIES = frozenset(_FIELD_OF)
PageWord = tuple[DeviceKey, HealthRule]


class PageWords:
    """Remembers values from look to look.

    `words` are the same object as long as they say the same. `errors` are the XIDs that pages showed, and `reset_at`
    says when a GPU's counters began anew, by its UUID.
    """

    def __init__(self) -> None:
        self.words: frozenset[PageWord] = frozenset()
        self.errors: tuple[DeviceEvent, ...] = ()
        self.reset_at: Mapping[str, float] = {}
        self._values: dict[tuple[bytes, DeviceKey], float] = {}
        self._until: dict[PageWord, float] = {}

    def read(self, joined: JoinedPage | None, at: float) -> Work[None]:
        """Take in what the page says at this moment; None for no page."""
        values: dict[tuple[bytes, DeviceKey], float] = {}
        for count, (series, text) in enumerate(joined.readings(_FAMILIES) if joined else (), start=1):
            if not count % ITEMS_A_SLICE:
                yield
            subject, family = series.subject, series.name
            value = None if subject.vgpu else number(text, _FIELD_OF[family])
            if value is not None:
                key = subject.key
                values[family, key] = value
                self._take(family, key, value, self._values.get((family, key)), at)
        self._values = self._values if joined is None else values
        self._until = {word: until for word, until in self._until.items() if until > at}
        if self.words != self._until.keys():
            self.words = frozenset(self._until)

    def _take(self, family: bytes, key: DeviceKey, value: float, before: float | None, at: float) -> None:
        for rule in HEALTH.get(family, ()):
            seconds = CLOCKS_SECONDS if rule.bits else GROWN_SECONDS if rule.grows else GRACE_SECONDS
            if rule.grows:
                holds = before is not None and value > before
            else:
                holds = bool(int(value) & rule.bits) if rule.bits else bool(value)
            if holds:
                self._until[key, rule] = at + seconds
            elif not rule.bits and not rule.grows:
                self._until.pop((key, rule), None)
        accounts = _FIELD_OF[family].accounts
        if accounts and accounts[0] == "energy" and before is not None and value < before / 2:
            self.reset_at = {**self.reset_at, key.uuid: at}
        elif accounts and accounts[0] == "xids" and value != before and 0 < value <= _MOST_XID:
            event = KernelEvent(kind="xid", sequence=0, booted_us=0, address="", code=int(value))
            # a GPU's instances repeat it
            others = (each for each in self.errors if (each.uuid, each.event) != (key.uuid, event))
            if before is not None or verdict_of(int(value)) in ("failing", "gone"):
                self.errors = (*others, DeviceEvent(event=event, at_seconds=at, uuid=key.uuid))[-MOST_ERRORS:]
