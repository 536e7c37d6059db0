"""The kernel's log of a simulated node: a pipe in place of /dev/kmsg, with the records that NVIDIA's driver writes.

A pipe forgets what was read, and takes no more while nobody reads it; the kernel's log does neither. The records have
the form of Linux' ABI/testing/dev-kmsg, and the words of kernel_rc.c of NVIDIA's open kernel modules.
"""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from exporter.simulator.machine import Machine
from exporter.simulator.parts import SimulatedGpu, bus_id

DEVICE = "dev/kmsg"
LOST_XID, RECOVERY_XID = 79, 154
_WORDS = {
    13: "Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address",
    31: "Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC0 GPCCLIENT_T1_0 faulted @ 0x7f2c_4a000000.",
    LOST_XID: "GPU has fallen off the bus.",
    94: "Contained: SM (0x1). RST: No, D-RST: No",
    RECOVERY_XID: "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
}
_WELL = "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)"


class SimulatedKernelLog:
    """A pipe below each of `roots`. `write_xids` is to be called while the processes that had the errors are there."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._paths = [root / DEVICE for root in roots]
        self._pipes: list[int] = []
        self._records = 0
        self._reported: dict[str, int] = {}

    def open(self) -> None:
        """Make the pipes."""
        for path in self._paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.mkfifo(path)
            self._pipes.append(os.open(path, os.O_RDWR | os.O_NONBLOCK))

    def close(self) -> None:
        """Let go of the pipes; who reads them sees their end."""
        while self._pipes:
            os.close(self._pipes.pop())

    def write_xids(self, machine: Machine, pids: Mapping[tuple[str, str], int]) -> None:
        """Write the errors that the machine's GPUs have had since the last call; for `pids` see SimulatedProcesses."""
        for gpu in machine.gpus:
            errors = machine.xids.get(gpu.uuid, [])
            instances = {mig.device_id: mig.instance_id for mig in gpu.instances}
            for error in errors[self._reported.get(gpu.uuid, 0) :]:
                self._write_xid(gpu, error.xid, pids.get(error.of), instances.get(error.of[1]))
            self._reported[gpu.uuid] = len(errors)

    def write_lost(self, gpu: SimulatedGpu, pid: int | None) -> None:
        """Write what the driver says when it finds that a GPU does not answer."""
        address = bus_id(gpu.index)[4:].lower()
        self._write(f"NVRM: GPU at PCI:{address[:-2]}: {gpu.uuid}")
        self._write_xid(gpu, LOST_XID, pid)
        self._write(f"NVRM: GPU {address}: GPU has fallen off the bus.")
        self._write_xid(gpu, RECOVERY_XID, pid)

    def write_well(self, gpu: SimulatedGpu) -> None:
        """Write that nothing is to be done about a GPU any more."""
        self._write(f"NVRM: Xid (PCI:{bus_id(gpu.index)[4:-2].lower()}): {RECOVERY_XID}, {_WELL}")

    def _write_xid(self, gpu: SimulatedGpu, xid: int, pid: int | None, instance: int | None = None) -> None:
        process = f" pid={pid}, name=python3," if pid else ""
        of_instance = "" if instance is None else f" GPU-I:{instance:02}"
        address = bus_id(gpu.index)[4:-2].lower()
        self._write(f"NVRM: Xid (PCI:{address}{of_instance}): {xid},{process} {_WORDS.get(xid, 'Ch 00000008')}")

    def _write(self, message: str) -> None:
        self._records += 1
        record = f"3,{self._records},{time.monotonic_ns() // 1000},-;{message}\n".encode()
        for pipe in self._pipes:
            with suppress(BlockingIOError):
                os.write(pipe, record)
