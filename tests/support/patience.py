"""How long a look waits for what is only better to have: half a second in the program, and longer in its tests.

A busy machine may need half a second for what takes a millisecond on an idle one. A test that changes something on the
node and then looks once is not about that: with more patience its look gets the answer. A test in which a source stalls
on purpose, or which is about the half second, uses the fixture `half_a_second`.
"""

from exporter.sources.cdi.cdi_source import CdiInventory
from exporter.sources.kubelet import assignments
from exporter.sources.kubernetes.workloads import Workloads
from exporter.sources.nvml import nvml_source as nvml
from exporter.sources.polled import Polled, Watch

LONG_SECONDS = 5.0


def wait_for_sources(seconds: float) -> None:
    """Let every look of this process wait so long, where the source has no patience of its own."""
    for module in (assignments, nvml):
        vars(module)["PATIENCE_SECONDS"] = seconds
    for source in (CdiInventory, Workloads, nvml.Nvml, Polled, Watch):
        source.patience_seconds = seconds  # type: ignore[method-assign]
