"""Processes on GPUs: finding their containers, and working out each owner's use of its GPU."""

import tempfile
from pathlib import Path

from benchmarks.table import Row, at_most, median_seconds, rounds
from exporter.model.devices import DeviceKey, Holder, Inventory, InventoryGpu, Owners
from exporter.model.driver import DriverReading, GpuProcess
from exporter.model.measured import HostProcesses, Process, ProcessPlace, Total
from exporter.model.pods import Owner, PodInfo
from exporter.sources.process_cgroups import ProcFolder
from exporter.sources.source import MOST_PROCESSES
from exporter.usage.owner_use import measure
from exporter.usage.process_owners import containers_of_pods

GPUS, PODS_A_GPU, PROCESSES = 8, 4, 60
OWN = f"0::/kubepods/besteffort/pod{'0' * 32}/{'f' * 64}\n"


def run(effort: float) -> list[Row]:
    return [*_reading(effort), _measuring(effort)]


def _reading(effort: float) -> list[Row]:
    """The files are this process's own in /proc, so that the kernel must make them. Each counts as another process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for one, cgroup in (("self", OWN), ("1", "0::/init.scope\n")):
            (folder / one).mkdir()
            (folder / one / "cgroup").write_text(cgroup)
        pids = range(100, 100 + 2 * MOST_PROCESSES)
        for pid in pids:
            (folder / str(pid)).symlink_to(Path("/proc/self").resolve())
        proc = ProcFolder(folder)
        few = median_seconds(lambda: proc.read(pids[:PROCESSES], 0.0), rounds=rounds(200, effort)) * 1e3
        most = median_seconds(lambda: proc.read(pids, 0.0), rounds=rounds(20, effort)) * 1e3
    return [
        Row(f"{PROCESSES} processes on GPUs: which containers", f"{few:.2f} ms, on a thread", at_most(1, "ms"), few),
        Row(
            f"{len(pids):,} of them: {MOST_PROCESSES:,} are read",
            f"{most:.0f} ms, on a thread",
            at_most(100, "ms"),
            most,
        ),
    ]


def _measuring(effort: float) -> Row:
    """A few pods share each GPU, and every process uses a part of one GPU."""
    uuids = [f"GPU-{gpu:08d}-1111-2222-3333-444455556666" for gpu in range(GPUS)]
    whose = {
        uuid: [Owner(namespace="ml", pod=f"train-{gpu}-{number}", container="main") for number in range(PODS_A_GPU)]
        for gpu, uuid in enumerate(uuids)
    }
    places = {
        owner: ProcessPlace(container_id=f"{number:064x}", pod_uid=f"{number:08x}-1111-2222-3333-444455556666")
        for number, owner in enumerate(owner for of_gpu in whose.values() for owner in of_gpu)
    }
    table = containers_of_pods(
        PodInfo(
            namespace=owner.namespace,
            name=owner.pod,
            uid=place.pod_uid,
            labels={},
            container_ids={owner.container: f"containerd://{place.container_id}"},
        )
        for owner, place in places.items()
    )
    on_gpus = [(pid, uuids[pid % GPUS], whose[uuids[pid % GPUS]][pid // GPUS % PODS_A_GPU]) for pid in range(PROCESSES)]
    reading = DriverReading(
        inventory=Inventory(gpus=tuple(InventoryGpu(uuid=uuid) for uuid in uuids)),
        processes=tuple(
            GpuProcess(
                pid=pid,
                device=DeviceKey(uuid=uuid),
                memory_bytes=2**30,
                sm_ratio=0.1,
                kinds=frozenset({"compute"}),
            )
            for pid, uuid, _ in on_gpus
        ),
        read_at=2.0,
    )
    by_pid = {pid: Process(pid=pid, started_at=1.0, place=places[owner]) for pid, _, owner in on_gpus}
    processes = HostProcesses(by_pid=by_pid, asked_for=frozenset(by_pid), read_at=2.0)
    owners = Owners(
        holders={
            DeviceKey(uuid=uuid): tuple(Holder(owner=owner, resource="nvidia.com/gpu", shared=True) for owner in of_gpu)
            for uuid, of_gpu in whose.items()
        }
    )
    totals = {DeviceKey(uuid=uuid): Total(memory_bytes=5 * 2**30) for uuid in uuids}
    took = (
        median_seconds(lambda: measure(reading, processes, [table], owners, totals), rounds=rounds(500, effort)) * 1e3
    )
    what = f"{GPUS} GPUs, {GPUS * PODS_A_GPU} pods, {PROCESSES} processes: what each pod used"
    return Row(what, f"{took:.2f} ms", at_most(1, "ms"), took)
