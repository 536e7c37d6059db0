"""What the exporter does with a ledger in slices, at once."""

from exporter.accounts.ledger import Ledger, Rules
from exporter.accounts.memory_looks import Ends
from exporter.accounts.state_bytes import UNKNOWN_BOOT, Boot, dump_in_slices
from exporter.model.slices import at_once
from exporter.model.snapshot import Snapshot


def note(ledger: Ledger, snapshot: Snapshot, at_ns: int, rules: Rules, ends: Ends | None = None) -> None:
    """Note a look of the pulse."""
    at_once(ledger.work_for(snapshot, at_ns, rules, ends))


def dump(ledger: Ledger, wall_ns: int, boot: Boot = UNKNOWN_BOOT) -> bytes:
    """The ledger as a state file has it."""
    return at_once(dump_in_slices(ledger, wall_ns, boot))
