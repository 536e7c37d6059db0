"""The whole way: a driver's word, trees like /proc and /var/log, the kubelet's word, and a page that goes out."""

from pathlib import Path

from exporter.exposition.join import Joiner
from exporter.model.devices import Assignment, DeviceKey, Inventory, InventoryGpu
from exporter.model.driver import DriverReading, GpuProcess
from exporter.model.pages import Page
from exporter.model.pods import Owner
from exporter.ownership.current import CurrentOwners
from exporter.ownership.labels import LabelPolicy
from exporter.sources.process_cgroups import ProcFolder
from exporter.usage.owner_use import measure
from tests.sources.test_container_logs import id_of, logs_of, put, settle
from tests.sources.test_process_cgroups import Proc

GPU = "GPU-11111111-2222-3333-4444-555566667777"
GIB = 2**30


def uid_of(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


# issue 10, B: measured sharing
def test_three_pods_on_one_gpu_have_their_own_memory(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    proc = Proc(tmp_path / "proc")
    owners = [Owner(namespace="ml", pod=f"train-{number}", container="main") for number in range(3)]
    for number, owner in enumerate(owners):
        put(tmp_path, owner, number, uid=uid_of(number))
        proc.put(100 + number, cgroup=f"0::/kubepods/pod{uid_of(number)}/{id_of(number)}\n")
    # the third pod's process uses no GPU; beside them one of the host, and one that only claims to be the first pod's
    proc.put(200, cgroup="0::/user.slice/user-0.slice/session-1.scope\n")
    proc.put(201, cgroup=f"0::/user.slice/kubepods/pod{uid_of(0)}/{id_of(0)}\n")
    used = {100: 3 * GIB, 101: GIB, 200: GIB, 201: GIB}
    reading = DriverReading(
        inventory=Inventory(gpus=(InventoryGpu(uuid=GPU),)),
        processes=tuple(
            GpuProcess(
                pid=pid,
                device=DeviceKey(uuid=GPU),
                memory_bytes=memory,
                sm_ratio=memory / GIB / 10,
                kinds=frozenset({"compute"}),
            )
            for pid, memory in used.items()
        ),
        read_at=1e9,
    )
    assignments = frozenset(
        Assignment(owner=owner, resource="nvidia.com/gpu", device_id=f"{GPU}::{number}")
        for number, owner in enumerate(owners)
    )
    policy, current = LabelPolicy(), CurrentOwners(LabelPolicy())
    body = "".join(
        f'DCGM_FI_DEV_{family}{{gpu="0",UUID="{GPU}"}} {value}\n'
        for family, value in (("FB_USED", 7000), ("GPU_UTIL", 93))
    )
    page = Page(source="dcgm", body=body.encode(), read_at_seconds=0.0, moment=1.0)
    current.update(assignments, {policy.read_subject({"gpu": "0", "UUID": GPU}): 2}, inventory=reading.inventory)
    logs, processes = logs_of(tmp_path), ProcFolder(proc.folder).read(used, 1e9)
    measured = measure(reading, processes, [logs.look_at_links(settle(tmp_path))], current.owners)
    assert measured is not None
    assert [(each.process.pid, each.reason) for each in measured.unowned] == [
        (200, "no_container"),
        (201, "no_container"),
    ]
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    joined = joiner.join_for(
        [page.body],
        lambda subjects: current.update(
            assignments, subjects, inventory=reading.inventory, pages=[page], measured=lambda _: measured
        ),
    )
    labels = f'gpu="0",UUID="{GPU}",pod="%s",namespace="%s",container="%s"'
    of_pods = [labels % (owner.pod, owner.namespace, owner.container) + ',gpu_shared="true"' for owner in owners]
    memory = [f"DCGM_FI_DEV_FB_USED{{{of}}}" for of in (*of_pods, labels % ("", "", ""))]
    busy = [f"DCGM_FI_DEV_GPU_UTIL{{{of}}}" for of in of_pods]
    assert joined.body.decode().splitlines() == [
        *(f"{series} {value}" for series, value in zip(memory, (3072, 1024, 0, 2904), strict=True)),
        *(f"{series} {value}" for series, value in zip(busy, (30, 10, 0), strict=True)),
    ]
