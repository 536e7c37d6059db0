"""A whole simulated node: a world, and the servers that show it. The exporter cannot tell that it is simulated.

Tests: tests/simulator/test_allocators.py.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from exporter.model.memo import Memo
from exporter.simulator import driver_files, written_answers
from exporter.simulator.dcgm import SimulatedDcgm
from exporter.simulator.fail_flag import NEVER, Fails
from exporter.simulator.failure import GpuFailure
from exporter.simulator.gpu_processes import SimulatedProcesses
from exporter.simulator.kernel_log import SimulatedKernelLog
from exporter.simulator.kubelet import SimulatedKubelet
from exporter.simulator.kubernetes import SimulatedApi
from exporter.simulator.link_failure import LinkFailure
from exporter.simulator.nvml import NvmlValues, SimulatedNvml
from exporter.simulator.parts import Instance, Pod, SimulatedGpu
from exporter.simulator.pods_api import SimulatedPodsApi
from exporter.simulator.world import World

SAMPLE_SECONDS = 0.5  # twice as often as NVML is read, so that each reading finds new samples


class SimulatedNode:
    """A world and its servers, on sockets in a temporary folder and on loopback ports.

    `start` sets the URLs, writes the driver's and the container toolkit's files below `root`, and writes an
    `inventory_file`. With `has_checkpoint` there is the DRA driver's checkpoint, too, and with `has_device_checkpoint`
    the kubelet's own of its device plugins.
    """

    has_checkpoint = True
    has_device_checkpoint = False

    def __init__(
        self,
        world: World,
        host_name: str = "gpu-node-1",
        generation: str = "3",
        *,
        fails: Fails = NEVER,
        **of_dcgm: Any,  # noqa: ANN401 - what SimulatedDcgm is given
    ) -> None:
        """`fails` says whether one of the GPUs is lost, or a link of it goes bad (see `failure`)."""
        self.world = world
        self.dcgm = SimulatedDcgm(world, host_name=host_name, generation=generation, **of_dcgm)
        self.url = ""
        self._folder = tempfile.TemporaryDirectory(prefix="simulated-kubelet-")
        self.socket = Path(self._folder.name) / "kubelet.sock"
        self.pods_socket = Path(self._folder.name) / "pods-api.sock"
        self.kubelet = SimulatedKubelet(
            self.socket, self.listed, offers=lambda: [offer for gpu in world.gpus for offer in gpu.offers]
        )
        self.pods_api = SimulatedPodsApi(self.pods_socket, lambda: world.of_kubelet)
        self.api = SimulatedApi(world, node_name=host_name)
        self.api_url = ""
        self.root = Path(self._folder.name) / "root"
        self.inventory_file = Path(self._folder.name) / "inventory.json"
        self.nvml = SimulatedNvml(Path(self._folder.name) / "nvml")
        self._values = NvmlValues(world)
        roots = (self.root, self.root / "empty")
        self.processes = SimulatedProcesses(roots)
        self.kernel_log = SimulatedKernelLog(roots)
        self.failure = GpuFailure(world, self.kernel_log, after_seconds=fails.gpu_seconds)
        self.link_failure = LinkFailure(world, after_seconds=fails.link_seconds)
        self._cut: dict[str, tuple[Instance, ...]] = {}
        self._checkpointed = Memo(None)
        self._life: asyncio.Task[None] | None = None

    @property
    def has_nvidia(self) -> bool:
        """Whether its devices are NVIDIA's."""
        return not self.world.allocator or self.world.allocator.has_nvidia

    @property
    def settings(self) -> Mapping[str, str]:
        """What an exporter has to be told because of the node's allocator, by flag."""
        return self.world.allocator.settings if self.world.allocator else {}

    async def start(self, *, live: Callable[[], None] | None = None, step_seconds: float = inf) -> None:
        """Start all servers. Every `step_seconds`, `live` lets pods come and go."""
        self.write_inventory()
        if self.has_nvidia:
            driver_files.write(self.root, self.world.gpus)
        await self.kubelet.start()
        await self.pods_api.start()
        self.api_url = await self.api.start()
        self.url = await self.dcgm.start()
        self.write_processes()
        if live:
            self._life = asyncio.create_task(self._live(live, step_seconds))

    def listed(self) -> Sequence[Pod]:
        """The pods that the kubelet's List names. The driver's files of their claims are written before."""
        pods = self.world.listed
        driver_files.write_claims(self.root, pods, self.world.gpus)
        if self.has_checkpoint:
            driver_files.write_checkpoint(self.socket.parent, pods)
        if self.has_device_checkpoint:
            self._checkpointed.of(self._write_device_checkpoint, self.world.pods, self.world.gpus)
        return pods

    def _write_device_checkpoint(self, pods: Sequence[Pod], gpus: Sequence[SimulatedGpu]) -> None:
        acknowledged = [pod for pod in pods if pod.is_acknowledged]
        written_answers.write(self.socket.parent, acknowledged, (offer for gpu in gpus for offer in gpu.offers))

    async def stop(self) -> None:
        """Stop all servers and remove the folder."""
        if self._life is not None:
            self._life.cancel()
        await self.kubelet.stop()
        await self.pods_api.stop()
        await self.api.stop()
        await self.dcgm.stop()
        self.kernel_log.close()
        self._folder.cleanup()

    def write_processes(self) -> list[str]:
        """Show the present state in NVML, by the lines that it returns, and processes in /proc and folders of logs."""
        lines = [*self.processes.look(self.world), *self._values.lines()]
        self._write_nvml(lines)
        return lines

    def write_inventory(self) -> None:
        """Write the inventory file, and the same GPUs to NVML."""
        self.inventory_file.write_text(json.dumps(self.world.inventory(), indent=2))
        self._write_nvml(self._values.lines())

    def _write_nvml(self, lines: Iterable[str]) -> None:
        cut = {gpu.uuid: gpu.instances for gpu in self.world.gpus}
        self.nvml.write(self.world.gpus, lines, is_recut=cut != self._cut)
        self._cut = cut

    async def _live(self, live: Callable[[], None], step_seconds: float) -> None:
        """Call `live` every `step_seconds`, and write processes and failures more often. The kubelet goes and comes."""
        loop = asyncio.get_running_loop()
        due = loop.time() + step_seconds
        kubelet_is_up = True
        while True:
            await asyncio.sleep(min(SAMPLE_SECONDS, step_seconds))
            if loop.time() >= due:
                due += step_seconds
                live()
                # while the processes of crashed pods are still there
                if self.has_nvidia:
                    self.kernel_log.write_new(self.world.machine, self.processes.pids)
            self.failure.look(self.processes.pids)
            self.link_failure.look()
            self.write_processes()
            if kubelet_is_up is not self.world.kubelet_is_up:
                kubelet_is_up = self.world.kubelet_is_up
                for server in (self.kubelet, self.pods_api):
                    await (server.start() if kubelet_is_up else server.stop())
