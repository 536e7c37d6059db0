"""The failure of `demo --fail`: a GPU falls off the bus while pods hold it, and its node shows the signs.

- At once: the kernel's log has XID 79 and the driver's recommendation (154). NVML answers NVML_ERROR_GPU_IS_LOST. The
  device plugin reports the GPU's devices as Unhealthy, without a message. Then the kubelet does not offer them any
  more, and says so in the status of the pods that hold them (recorded on 1.36).
- When dcgm-exporter next reads the GPUs: DCGM has blank values for a lost GPU, which dcgm-exporter leaves out. The row
  of the last XID stays, and does not say 79, since NVML sends DCGM no XID of a GPU that it cannot ask.
- Later the programs end, the pods fail, and their controllers make other pods, on other GPUs. Then the GPU is well
  again, as after a restart of the node (see scheduler.py).
"""

from collections.abc import Container
from dataclasses import replace

from exporter.simulator.kernel_log import SimulatedKernelLog
from exporter.simulator.parts import Pids, Pod, SimulatedGpu
from exporter.simulator.world import World, ids_of

_RECOVERY = "GPU recovery action changed from {} to {}"
_NOTHING = "0x0 (None)"
_REBOOT = "0x2 (Node Reboot Required)"


class GpuFailure:
    """The loss of a GPU of the `world`, `after_seconds` of its clock: the first held GPU, if possible a whole one.

    Once it is lost, `gpu` is its UUID, and `holders` are the pods that held it.
    """

    def __init__(self, world: World, log: SimulatedKernelLog, *, after_seconds: float) -> None:
        self.gpu = ""
        self.holders: tuple[Pod, ...] = ()
        self._world = world
        self._log = log
        self._due_ns = world.machine.clock() + after_seconds * 1e9

    def fail(self) -> None:
        """Let a GPU fail at the next look, perhaps once more."""
        self.gpu = ""
        self.holders = ()
        self._due_ns = 0

    def look(self, pids: Pids) -> None:
        """Lose a GPU if it is time and a pod holds one. For `pids` see SimulatedProcesses."""
        if self.gpu or self._world.machine.clock() < self._due_ns:
            return
        held = [gpu for gpu in self._world.gpus if self._holders_of(gpu)]
        if not held:
            return
        gpu = min(held, key=lambda gpu: (gpu.claimed, bool(gpu.units or gpu.instances), gpu.shared))
        self.gpu = gpu.uuid
        self.holders = self._holders_of(gpu)
        pid = next((pids[pod.uid, gpu.uuid] for pod in self.holders if (pod.uid, gpu.uuid) in pids), None)
        self._log.write(gpu, 79, "GPU has fallen off the bus.", pid)
        self._log.write(gpu, 154, _RECOVERY.format(_NOTHING, _REBOOT), pid)
        self._set(is_lost=True)
        # an allocator's pods may hold its tokens, and have other GPUs
        ids = {*ids_of(gpu), *(token for _, token in gpu.tokens)}
        for pod in self._world.pods:
            if not pod.has_ended:
                self._world.change(pod, _with_ailing(pod, ids))

    def end_holders(self) -> tuple[Pod, ...]:
        """End the programs on the lost GPU, which have noticed it. Returns their pods."""
        holders = self._holders_of(self._lost)
        for pod in holders:
            self._world.end(pod, "Failed")
        return holders

    def repair(self) -> None:
        """Make the lost GPU well again."""
        self._world.machine.reload(self.gpu)
        self._set(is_lost=False)
        for pod in self._world.pods:
            if any(container.ailing for container in pod.containers):
                well = tuple(replace(container, ailing=()) for container in pod.containers)
                self._world.change(pod, replace(pod, containers=well))
        self._log.write(self._lost, 154, _RECOVERY.format(_REBOOT, _NOTHING))

    @property
    def _lost(self) -> SimulatedGpu:
        return next(gpu for gpu in self._world.gpus if gpu.uuid == self.gpu)

    def _holders_of(self, gpu: SimulatedGpu) -> tuple[Pod, ...]:
        return tuple(pod for pod in self._world.pods if not pod.has_ended and not ids_of(gpu).isdisjoint(pod.devices))

    def _set(self, *, is_lost: bool) -> None:
        new = replace(self._lost, is_lost=is_lost)
        self._world.gpus = tuple(new if gpu.uuid == self.gpu else gpu for gpu in self._world.gpus)


def _with_ailing(pod: Pod, ids: Container[str]) -> Pod:
    """The pod, in whose status these devices are not healthy; the pod itself if it has none of them."""
    containers = []
    for container in pod.containers:
        ailing = tuple((device, "Unhealthy", "") for _, device in container.devices if device in ids)
        containers.append(replace(container, ailing=ailing) if ailing else container)
    return replace(pod, containers=tuple(containers)) if tuple(containers) != pod.containers else pod
