"""TestAcceleratorPerformanceMetrics of Kubernetes' AI conformance, in our own words: what it takes for a metric.

https://github.com/kubernetes-sigs/ai-conformance, test/accelerator_metrics_test.go at 78f94cc6. It reads a page
for itself and not with a library, so this does, too: name, braces, labels between commas outside quotes, the first word
after them.
"""

import math
import re
from collections.abc import Iterator

LABELS = ("gpu", "UUID", "uuid", "device_id", "dev_id", "card_id", "GPU_I_ID", "minor_number", "pci_bus_id")
PARTS = {"utilization": ["util"], "memory": ["fb_used", "mem_used", "memory_used", "vram_used", "hbm_used"]}


def passes(page: str, quantity: str, flag: str = "") -> bool:
    """Whether the test finds this quantity, by parts of names or, with its flag, by one whole name."""
    names = [name for name, labels in _samples(page) if any(labels.get(label, "").strip() for label in LABELS)]
    if flag:
        return flag in names
    return any(part in name.lower() for name in names for part in PARTS[quantity])


def _samples(page: str) -> Iterator[tuple[str, dict[str, str]]]:
    for line in map(str.strip, page.split("\n")):
        if not line or line.startswith("#"):
            continue
        name, brace, rest = line.partition("{")
        if brace and " " not in name:
            inner, _, after = rest.rpartition("}")
        else:
            name, _, after = line.partition(" ")
            inner = ""
        try:
            value = float(after.split()[0])
        except (IndexError, ValueError):
            continue
        if not math.isnan(value):
            pairs = re.findall(r'([^,=]+)=("(?:[^"\\]|\\.)*")', inner)
            yield name, {label.strip(): text[1:-1] for label, text in pairs}
