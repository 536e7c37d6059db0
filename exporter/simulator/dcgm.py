"""dcgm-exporter on a loopback port: the page of its generations 2.x to 4.8.2, with values that move.

The families are the 25 of dcgm-exporter's default counter file. Integers are printed as integers, the rest with six
decimals, label values without escaping and the answer without a Content-Type, as that program does.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from exporter.simulator.world import MODEL, Gpu, World

DRIVER_VERSION = "580.105.08"


@dataclass(frozen=True, slots=True)
class Family:
    """One family: how its value follows from how busy the GPU is (0 to 1) and from the seconds since the start."""

    name: str
    help: str
    value: Callable[[float, float], str]
    kind: str = "gauge"
    per_instance: bool = True


def _whole(low: float, high: float) -> Callable[[float, float], str]:
    return lambda busy, _: str(round(low + (high - low) * busy))


def _real(low: float, high: float) -> Callable[[float, float], str]:
    return lambda busy, _: f"{low + (high - low) * busy:.6f}"


def _grows(per_second: float) -> Callable[[float, float], str]:
    return lambda busy, seconds: str(round(seconds * per_second * (0.2 + busy)))


def _always(text: str) -> Callable[[float, float], str]:
    return lambda _busy, _seconds: text


FAMILIES = (
    Family("DCGM_FI_DEV_SM_CLOCK", "Clock of the streaming multiprocessors (MHz).", _whole(345, 1980)),
    Family("DCGM_FI_DEV_MEM_CLOCK", "Clock of the memory (MHz).", _whole(2619, 2619)),
    Family("DCGM_FI_DEV_MEMORY_TEMP", "Temperature of the memory (in C).", _whole(38, 92)),
    Family("DCGM_FI_DEV_GPU_TEMP", "Temperature of the GPU (in C).", _whole(30, 78)),
    Family("DCGM_FI_DEV_POWER_USAGE", "Power drawn (in W).", _real(70, 690)),
    Family("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since boot (in mJ).", _grows(400_000), "counter"),
    Family("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "PCIe retries.", _always("0"), "counter"),
    Family("DCGM_FI_DEV_GPU_UTIL", "Utilization of the GPU (in %).", _whole(0, 100), per_instance=False),
    Family("DCGM_FI_DEV_MEM_COPY_UTIL", "Utilization of the memory (in %).", _whole(0, 70), per_instance=False),
    Family("DCGM_FI_DEV_ENC_UTIL", "Utilization of the encoder (in %).", _always("0"), per_instance=False),
    Family("DCGM_FI_DEV_DEC_UTIL", "Utilization of the decoder (in %).", _always("0"), per_instance=False),
    Family("DCGM_FI_DEV_XID_ERRORS", "The last XID error.", _always("0")),
    Family("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", _whole(81_000, 9_000)),
    Family("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", _whole(0, 72_000)),
    Family("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", _always("559")),
    Family("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "Bandwidth over all NVLink lanes.", _grows(120), "counter"),
    Family("DCGM_FI_DEV_VGPU_LICENSE_STATUS", "License status of the vGPU.", _always("0")),
    Family(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Rows remapped for uncorrectable errors.", _always("0"), "counter"
    ),
    Family("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Rows remapped for correctable errors.", _always("0"), "counter"),
    Family("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping a row failed.", _always("0")),
    Family("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Share of time the graphics engine was active.", _real(0, 1)),
    Family("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Share of cycles the tensor pipe was active.", _real(0, 0.7)),
    Family("DCGM_FI_PROF_DRAM_ACTIVE", "Share of cycles the memory interface was active.", _real(0, 0.8)),
    Family("DCGM_FI_PROF_PCIE_TX_BYTES", "Bytes sent over PCIe a second.", _whole(200_000, 4_300_000_000)),
    Family("DCGM_FI_PROF_PCIE_RX_BYTES", "Bytes received over PCIe a second.", _whole(200_000, 2_600_000_000)),
)


class SimulatedDcgm:
    """Serves the page of a world at /metrics. `failure`, when set, answers instead."""

    def __init__(self, world: World, *, host_name: str = "gpu-node-1", seed: int = 1) -> None:
        self.fetches = 0
        self.failure: Callable[[web.Request], web.StreamResponse] | None = None
        self._world = world
        self._host_name = host_name
        self._random = random.Random(seed)
        self._started = time.monotonic()
        self._busy: dict[str, float] = {}
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; the page's URL."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}/metrics"

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    def page(self) -> str:
        """The page of this moment. Values move with every call."""
        seconds = time.monotonic() - self._started
        lines: list[str] = []
        rows = [row for gpu in self._world.gpus for row in self._rows(gpu)]
        for family in FAMILIES:
            lines += (f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}")
            lines += (
                f"{family.name}{{{labels}}} {family.value(busy, seconds)}"
                for labels, busy, is_instance in rows
                if family.per_instance or not is_instance
            )
        return "\n".join(lines) + "\n"

    def _rows(self, gpu: Gpu) -> list[tuple[str, float, bool]]:
        """A GPU's own row, then one for each of its instances: labels, how busy, whether an instance."""
        head = (
            f'gpu="{gpu.index}",UUID="{gpu.uuid}",pci_bus_id="00000000:{0x19 + gpu.index * 0x12:02X}:00.0",'
            f'device="nvidia{gpu.index}",modelName="{MODEL}",'
        )
        tail = f'Hostname="{self._host_name}",DCGM_FI_DRIVER_VERSION="{DRIVER_VERSION}"'
        rows = [(head + tail, self._how_busy(gpu.uuid), False)]
        for instance in gpu.instances:
            labels = f'GPU_I_PROFILE="{instance.profile}",GPU_I_ID="{instance.instance_id}",'
            rows.append((head + labels + tail, self._how_busy(instance.device_id), True))
        return rows

    def _how_busy(self, device_id: str) -> float:
        """A walk between 0 and 1 for a device in use; 0 for an idle one."""
        if not self._world.holds(device_id):
            self._busy[device_id] = 0.0
            return 0.0
        moved = self._busy.get(device_id, 0.5) + self._random.uniform(-0.1, 0.1)
        self._busy[device_id] = min(1.0, max(0.05, moved))
        return self._busy[device_id]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.fetches += 1
        if self.failure:
            return self.failure(request)
        return web.Response(body=self.page().encode())
