"""The CUDA probe on a node with very many processes: the cost of its turns and scans. Needs neither root nor BPF."""

import tempfile
from itertools import count
from pathlib import Path

from benchmarks.table import Row, at_most, median_seconds, rounds
from exporter.model.cuda import CudaCounts, CudaDevice, CudaProcess, CudaReading, ProcessId, SeenProcess, WorkSpan
from exporter.model.devices import DeviceKey, Holder, Inventory, InventoryGpu, Owners
from exporter.model.measured import ProcessPlace
from exporter.model.pods import Owner, PodInfo
from exporter.probe.cuda_ledger import CudaTotals
from exporter.probe.cuda_owners import OwnerFacts
from exporter.probe.functions import WANTED
from exporter.probe.scan import Scan
from exporter.usage.process_owners import containers_of_pods

ACTIVE, PODS, GPUS, PROCESSES = 1_000, 100, 8, 5_000
SECOND = 1_000_000_000
KEPT_NS = 300 * SECOND


def run(effort: float) -> list[Row]:
    return [_turn(effort), _scan(effort)]


def _turn(effort: float) -> Row:
    """Between any two turns, each process launches, copies and waits."""
    owners = [Owner(namespace="ml", pod=f"train-{number}", container="main") for number in range(PODS)]
    places = [ProcessPlace(container_id=f"{number:064x}", pod_uid=f"{number:032x}") for number in range(PODS)]
    uuids = [f"GPU-{gpu:08d}-1111-2222-3333-444455556666" for gpu in range(GPUS)]
    facts = OwnerFacts(
        tables=[
            containers_of_pods(
                PodInfo(
                    namespace=owner.namespace,
                    name=owner.pod,
                    uid=place.pod_uid,
                    labels={},
                    container_ids={owner.container: f"containerd://{place.container_id}"},
                )
                for owner, place in zip(owners, places, strict=True)
            )
        ],
        owners=Owners(
            holders={
                DeviceKey(uuid=uuid): tuple(
                    Holder(owner=owner, resource="nvidia.com/gpu", shared=True) for owner in owners[gpu::GPUS]
                )
                for gpu, uuid in enumerate(uuids)
            }
        ),
        inventory=Inventory(gpus=tuple(InventoryGpu(uuid=uuid, index=str(gpu)) for gpu, uuid in enumerate(uuids))),
    )
    ids = [ProcessId(1_000 + number, number * SECOND) for number in range(ACTIVE)]
    seen = [SeenProcess(id=id_, place=places[number % PODS]) for number, id_ in enumerate(ids)]
    number_of_rounds = rounds(200, effort)
    readings = iter([_reading(ids, at) for at in range(1, number_of_rounds + 1)])
    totals, there = CudaTotals(), frozenset(owners)
    took = median_seconds(
        lambda: totals.add(next(readings), seen, facts, there=there, keep_ns=KEPT_NS), rounds=number_of_rounds
    )
    launches = sum(use.counts.launches for use in totals.ledger.uses.values())
    assert launches == ACTIVE * number_of_rounds, launches
    what = f"CUDA probe: event loop's time for a turn with {ACTIVE:,} active processes"
    return Row(what, f"{took * 1e3:.1f} ms, once a second", at_most(10, "ms"), took * 1e3)


def _reading(ids: list[ProcessId], at: int) -> CudaReading:
    counts = CudaCounts(
        launches=at,
        threads=1024 * at,
        syncs=at,
        sync_ns=5 * at,
        active_ns=at * SECOND // 10,
        copies=(0, at, at, 0, 0),
        copied_bytes=(0, 4096 * at, 4096 * at, 0, 0),
    )
    ends = at * SECOND
    return CudaReading(
        read_at_ns=ends,
        processes={id_: CudaProcess(id=id_, cgroup_id=100 + id_.pid % PODS) for id_ in ids},
        counts={CudaDevice(id_, 0): counts._replace() for id_ in ids},
        spans=tuple(WorkSpan(CudaDevice(id_, 0), ends - SECOND // 10, ends, SECOND // 10) for id_ in ids),
    )


def _scan(effort: float) -> Row:
    """Each process is this one, by another pid, so that the kernel must make its files. None of them uses CUDA."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for pid in range(100, 100 + PROCESSES):
            (folder / str(pid)).symlink_to(Path("/proc/self").resolve())
        # the clock stands still, so that one scan sees all processes
        scan = Scan(folder, WANTED["cudart"], clock=count(0, 0).__next__)
        scan.scan()
        took = median_seconds(scan.scan, rounds=rounds(24, effort))
    what = f"CUDA probe: a scan of {PROCESSES:,} processes"
    return Row(what, f"{took * 1e3:.0f} ms, on a thread, every 5 s", None, took * 1e3)
