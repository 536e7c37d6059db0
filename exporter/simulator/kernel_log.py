"""The kernel's log of a simulated node: a pipe in place of /dev/kmsg, with XIDs as NVIDIA's driver writes them.

A pipe forgets records that were read, and takes no more when it is full; the kernel's log does neither.

Tests: tests/simulator/test_failure.py.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from exporter.simulator.machine import Machine
from exporter.simulator.parts import Pids, SimulatedGpu, bus_id

DEVICE = "dev/kmsg"


class SimulatedKernelLog:
    """The kernel's log: a pipe below each of `roots`, until `close`."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._pipes: list[int] = []
        self._records = 0
        self._written: dict[str, int] = {}  # the number of a GPU's errors that were written
        for root in roots:
            (root / DEVICE).parent.mkdir(parents=True)
            os.mkfifo(root / DEVICE)
            self._pipes.append(os.open(root / DEVICE, os.O_RDWR | os.O_NONBLOCK))

    def close(self) -> None:
        """Close the pipes. Their readers see an end."""
        while self._pipes:
            os.close(self._pipes.pop())

    def write_new(self, machine: Machine, pids: Pids) -> None:
        """Write the errors of the machine's GPUs since the last call. For `pids` see SimulatedProcesses."""
        for gpu in machine.gpus:
            errors = machine.xids.get(gpu.uuid, [])
            instances = {mig.device_id: f" GPU-I:{mig.instance_id:02}" for mig in gpu.instances}
            for error in errors[self._written.get(gpu.uuid, 0) :]:
                instance = instances.get(error.process[1], "")
                self.write(gpu, error.xid, "Ch 00000010", pids.get(error.process), instance)
            self._written[gpu.uuid] = len(errors)

    def write(self, gpu: SimulatedGpu, xid: int, words: str, pid: int | None = None, instance: str = "") -> None:
        """Write an error of a GPU or of its `instance`, with the process `pid` that had it, if any."""
        self._records += 1
        process = f" pid={pid}, name=python3," if pid else ""
        message = f"NVRM: Xid (PCI:{bus_id(gpu.index)[4:-2].lower()}{instance}): {xid},{process} {words}"
        self.write_record(f"3,{self._records},{time.monotonic_ns() // 1000},-;{message}")

    def write_record(self, record: str) -> None:
        """Write a record as /dev/kmsg has it: priority, number and microseconds since boot, then the message."""
        for pipe in self._pipes:
            with suppress(BlockingIOError):
                os.write(pipe, f"{record}\n".encode())
