"""Full memory: GPU-seconds of holders in which more than 80 % of a device's memory was in use."""

import pytest

from tests.support.looks import GPU, Looks, energy, row, seconds, whole

USED, FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"


def page(read: int, used: int, free: int, suffix: str = "", unit: int = 1) -> str:
    return energy(str(10_000 * read)) + row(USED + suffix, str(used * unit)) + row(FREE + suffix, str(free * unit))


@pytest.mark.parametrize(("used", "expected"), [(81_000, 10), (80_000, 0), (0, 0)])
@pytest.mark.parametrize(("suffix", "unit"), [("", 1), ("_BYTES", 2**20)])
def test_seconds_above_80_percent(used: int, expected: float, suffix: str, unit: int) -> None:
    looks = Looks()
    for look in range(2):
        looks.at(10 * look, page(look, used, 100_000 - used, suffix, unit), {"a": whole(0)})
    assert seconds(looks.account("a").amounts["full_memory_ns"]) == expected
    rows = [line for line in looks.text().splitlines() if line.startswith("pod_gpu_memory_full_seconds_total")]
    assert len(rows) == 1
    assert GPU(0) in rows[0]
    assert float(rows[0].split()[-1]) == expected


def test_a_page_without_memory_has_no_row() -> None:
    looks = Looks()
    for look in range(2):
        looks.at(10 * look, energy(str(10_000 * look)), {"a": whole(0)})
    assert "full_memory_ns" not in looks.account("a").amounts
