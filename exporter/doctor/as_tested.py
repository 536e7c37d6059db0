"""The answers that the automated test of Kubernetes' AI conformance finds on a page. Pure.

The test is TestAcceleratorPerformanceMetrics (KAR-0059) in test/accelerator_metrics_test.go of
https://github.com/kubernetes-sigs/ai-conformance, at commit 78f94cc6. It asks a Service for /metrics through the API
server's proxy. It requires metrics of utilization and memory of any accelerator, and only logs the others. It finds
a metric by a part of its name, or by the whole name that a flag gives.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import NamedTuple

from exporter.exposition.lines import SampleLine, read_line, split_lines

# A sample counts if one of these labels is not blank. AMD's gpu_uuid, for example, does not count.
DEVICE_LABELS = frozenset(
    (b"gpu", b"UUID", b"uuid", b"device_id", b"dev_id", b"card_id", b"GPU_I_ID", b"minor_number", b"pci_bus_id")
)


class _NamedBy(NamedTuple):
    """A quantity, the parts of names by which the test finds it, and the flag that takes a whole name.

    The quantities that the test requires have a flag. It is "" for those that the test only logs.
    """

    quantity: str
    looks_for: tuple[str, ...]
    flag: str = ""


_BY_NAME = (
    _NamedBy("utilization", ("util",), "-metrics-utilization-metric"),
    _NamedBy("memory", ("fb_used", "mem_used", "memory_used", "vram_used", "hbm_used"), "-metrics-memory-metric"),
    _NamedBy("temperature", ("temp",)),
    _NamedBy("power", ("power", "watt", "energy")),
    _NamedBy("interconnect bandwidth", ("nvlink", "pcie_tx", "pcie_rx", "bandwidth", "xgmi")),
)


@dataclass(frozen=True, slots=True)
class QuestionOfTest:
    """A question of the test about a page, and the `families` that answer it, with the numbers of samples that count.

    With `flag` the test finds a family that it does not find by name; "" if it needs no flag, or no family is there.
    """

    quantity: str
    looks_for: tuple[str, ...]
    is_required: bool
    families: Mapping[str, int]
    flag: str = ""

    @property
    def is_passed(self) -> bool:
        """Whether the test finds the quantity without a flag."""
        return bool(self.families)

    @property
    def why_not(self) -> str:
        """The quantity that the test does not find, in words."""
        parts = " or ".join(f'"{part}"' for part in self.looks_for)
        return f"no {self.quantity} by a name with {parts}"


def questions(page: bytes, families: Mapping[str, Iterable[str]]) -> tuple[QuestionOfTest, ...]:
    """The test's questions about a page. `families` are the names by quantity that a page may have for it."""
    counted = Counter(_families_that_count(page))
    return tuple(_ask(asked, counted, families.get(asked.quantity, ())) for asked in _BY_NAME)


def _ask(asked: _NamedBy, counted: Mapping[str, int], candidates: Iterable[str]) -> QuestionOfTest:
    by_name = {name: n for name, n in counted.items() if any(part in name.lower() for part in asked.looks_for)}
    others = [name for name in candidates if name in counted]
    flag = f"{asked.flag}={max(others, key=counted.__getitem__)}" if asked.flag and others and not by_name else ""
    return QuestionOfTest(asked.quantity, asked.looks_for, bool(asked.flag), by_name, flag)


def _families_that_count(page: bytes) -> Iterable[str]:
    for line in split_lines(page):
        sample = read_line(line)
        if not isinstance(sample, SampleLine) or isnan(float(sample.value)):
            continue
        if any(label in DEVICE_LABELS and text.strip() for label, text in sample.labels):
            yield sample.name.decode()
