"""Files that exporters of before wrote are read into the same accounts, and counted on from there as they were then."""

import pytest

from exporter.accounts.state_bytes import Boot, restore
from tests.support.looks import GPU, SECOND, Looks, energy, row, whole
from tests.support.places import ROOT

DATA = ROOT / "tests" / "data"


def later(data: bytes) -> str:
    """What /metrics says of the accounts right after such a file was read, and two looks later."""
    ledger = restore(data, 1_012 * SECOND, 100 * SECOND, Boot("a-boot", 400 * SECOND))
    looks = Looks(ledger=ledger, mig={f"MIG-{number}": (1, str(number), "1g.10gb") for number in (7, 8)}, slices=7)
    first = looks.text()
    held = {
        "a": [("nvidia.com/gpu.shared", f"{GPU(0)}::0")],
        "c": [("nvidia.com/gpu.shared", f"{GPU(0)}::1")],
        "m": [("nvidia.com/mig-1g.10gb", "MIG-7")],
        "w": whole(2),
    }
    for number in (0, 1):
        page = (
            energy(f"{40_000 + 2_000 * number}")
            + row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", f"0.{4 + number}")
            + row("DCGM_FI_DEV_POWER_VIOLATION", str(9 * SECOND))
            + row("DCGM_EXP_XID_ERRORS_TOTAL", "7", xid="31")
            + "".join(energy(f"{8_000 + number}", 1, instance) for instance in ("7", "8"))
            + row("DCGM_FI_DEV_XID_ERRORS", "48", 1, "7", "1g.10gb")
            + row("DCGM_FI_DEV_POWER_USAGE", "250", 2)
            + row("DCGM_FI_DEV_GPU_UTIL", "2", 2)
            + row("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "4", 2)
            + row("DCGM_EXP_XID_ERRORS_COUNT", "6", 2, xid="79")
        )
        looks.at(105 + 10 * number, page, held)
    return f"{first}\n{looks.text()}"


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6, 7, 8])
def test_a_state_file_of_an_older_version_is_read_in_full(version: int) -> None:
    """What is in the files is shown as it was; from there on it is counted as today."""
    data = (DATA / f"accounting-state-{version}").read_bytes()
    assert later(data) == (DATA / f"accounting-state-{version}.metrics").read_text()
