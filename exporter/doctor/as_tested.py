"""What the automated test of Kubernetes' AI conformance finds on a page. Pure.

TestAcceleratorPerformanceMetrics (KAR-0059) in test/accelerator_metrics_test.go of
https://github.com/kubernetes-sigs/ai-conformance, as of its commit 78f94cc6. It asks a Service for /metrics by the API
server's proxy. Metrics of utilization and memory must be there, of any accelerator; the others it only logs. It knows a
metric by a part of its name, or by the whole name that a flag gives it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import NamedTuple

from exporter.exposition.lines import SampleLine, read_line, split_lines

# A sample counts that has one of these, and more than blanks in it. AMD's gpu_uuid, for one, is not among them.
DEVICE_LABELS = frozenset(
    (b"gpu", b"UUID", b"uuid", b"device_id", b"dev_id", b"card_id", b"GPU_I_ID", b"minor_number", b"pci_bus_id")
)


class _NamedBy(NamedTuple):
    """A quantity, the parts of names by which it is known, and the flag that takes a whole name.

    What the test requires has a flag; "" is what it only logs.
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
    """What the test asks of a page, and the `families` that answer it, each with the number of samples that count.

    `flag` makes the test find a family that it does not know by its name; "" where it needs none, or none is there.
    """

    quantity: str
    looks_for: tuple[str, ...]
    is_required: bool
    families: Mapping[str, int]
    flag: str = ""

    @property
    def is_passed(self) -> bool:
        """Whether the test finds it without a flag."""
        return bool(self.families)

    @property
    def why_not(self) -> str:
        """What the test found missing, in words."""
        parts = " or ".join(f'"{part}"' for part in self.looks_for)
        return f"no {self.quantity} by a name with {parts}"


def questions(page: bytes, families: Mapping[str, Iterable[str]]) -> tuple[QuestionOfTest, ...]:
    """What the test asks of a page. `families`: by quantity, the names by which it may be on a page."""
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
