"""What containers asked of CUDA, from one probe to the next: it outlives a reload of the configuration."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from exporter.accounting.cuda import CudaLedger
from exporter.attribution.cuda import Facts, ProcessOwners
from exporter.model.cuda import CudaDevice, CudaKey, CudaReading, CudaUse, SeenProcess
from exporter.model.pods import Owner

# What counts in the kernel, from its beginning to its end: the probe, and the number of its beginning.
Counter = tuple[object, int]


class CudaTotals:
    """The ledger, and what is known of the processes that it counts. `filled_by` is who does so now."""

    def __init__(self) -> None:
        self.ledger = CudaLedger()
        self.owners = ProcessOwners()
        self.filled_by: object = None
        self._counter: Counter | None = None

    @property
    def uses(self) -> Mapping[CudaKey, CudaUse]:
        """What every container asked of every device."""
        return self.ledger.uses

    def begin(self, fills: object, counter: Counter) -> None:
        """From here on this one fills it, with the readings of a counter. Another counter begins at 0."""
        self.filled_by = fills
        if self._counter != counter:
            self._counter = counter
            self.ledger.begin_anew()

    def add(
        self,
        reading: CudaReading,
        seen: Iterable[SeenProcess],
        facts: Facts,
        *,
        there: AbstractSet[Owner],
        keep_ns: int,
    ) -> bool:
        """Count a reading: each one once, in their order. Whether it is now known of every process whose it is.

        `there` are the containers that are there; rows of others are kept for `keep_ns`.
        """
        self.owners.learn(reading.processes.values(), seen)
        whose = self.owners.whose(facts)
        self.ledger.add(reading, self._key, there=there, keep_ns=keep_ns)
        self.owners.keep(self.ledger.processes)
        return whose.keys() >= self.ledger.processes

    def settle(self, facts: Facts) -> None:
        """Count what waits, as far as these facts tell whose it is."""
        self.owners.whose(facts)
        self.ledger.settle(self._key)

    def _key(self, device: CudaDevice) -> CudaKey | None:
        whose = self.owners.known.get(device.process)
        return whose.key(device) if whose is not None else None
