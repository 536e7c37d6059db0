"""What pods hold and no page has samples of: GPUs of virtual machines, network devices, claims that nobody prepares."""

import json
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.config.node_settings import Config
from exporter.doctor import checkup
from exporter.model.devices import Claim
from exporter.outputs.diagnosis import Level
from exporter.simulator import driver_files
from tests.support.exporter import config_of, running
from tests.support.simulated import DRA_DRIVER, DRA_POOL, GPU_RESOURCE, Container, Pod, SimulatedNode, World
from tests.support.waiting import until

UID = "6f0a2c4e-8a51-4f0e-9d67-0c3f8e2b7a10"
KIND = "k8s.gpu.nvidia.com/claim"
DEVICES = {"vm-by-claim": "gpu-vfio-0", "vm-by-kubevirt": "vfio/42"}
# as NVIDIA's DRA driver writes it for a GPU that is bound to vfio-pci
VFIO_SPEC = f"""---
cdiVersion: 0.7.0
kind: {KIND}
devices:
    - name: {UID}-gpu-vfio-0
      containerEdits:
        deviceNodes:
            - path: /dev/vfio/17
containerEdits:
    env:
        - NVIDIA_VISIBLE_DEVICES=void
    deviceNodes:
        - path: /dev/vfio/vfio
"""


def pod(name: str, *, devices: tuple[tuple[str, str], ...] = (), claim: Claim | None = None) -> Pod:
    container = Container(name="compute", devices=devices, claims=(claim,) if claim else ())
    return Pod(namespace="vms", name=name, uid=f"uid-{name}", containers=(container,))


def claimed(name: str, driver: str, device: str, *cdi_names: str) -> Pod:
    claim = Claim(namespace="vms", name=name, driver=driver, pool=DRA_POOL, device=device, cdi_names=cdi_names)
    return pod(name, claim=claim)


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """Of two GPUs that the driver has, a pod holds one; beside them are four things without samples."""
    simulated = SimulatedNode(World(gpus=2, seed=7))
    await simulated.start()
    claims = simulated.root / "var/run/cdi"
    Path(claims / f"k8s.gpu.nvidia.com-claim_{UID}.yaml").write_text(VFIO_SPEC)
    simulated.world.pods = (
        pod("usual", devices=((GPU_RESOURCE, simulated.world.gpus[0].uuid),)),
        claimed("vm-by-claim", DRA_DRIVER, "gpu-vfio-0", f"{KIND}={UID}-gpu-vfio-0"),
        pod("vm-by-kubevirt", devices=(("nvidia.com/GH100_H100_PCIE", "42"),)),
        claimed("nic", "dra.net", "eth1"),
        claimed("remote", "", ""),
    )
    yield simulated
    await simulated.stop()


@pytest.fixture
def config(node: SimulatedNode) -> Config:
    settings = {"kubelet_socket": str(node.socket), "kubelet_max_age": "0s", "dcgm_url": node.url}
    return replace(config_of(**settings, accounting_interval="100ms"), root=str(node.root))


def values(metrics: str, family: str) -> dict[str, tuple[str, float]]:
    """By pod the device and the value."""
    rows = re.findall(rf"^{family}\{{(.*)\}} (\S+)$", metrics, re.MULTILINE)
    labels = [dict(re.findall(r'(\w+)="([^"]*)"', text)) for text, _ in rows]
    return {of["pod"]: (of["UUID"], float(value)) for of, (_, value) in zip(labels, rows, strict=True)}


# issue 18: what has no samples is held all the same
async def test_gpus_of_virtual_machines_are_accounted_as_held(node: SimulatedNode, config: Config) -> None:
    async with running(config) as exporter:

        async def seconds() -> dict[str, tuple[str, float]]:
            return values((await exporter.get("/metrics"))[1], "pod_gpu_allocated_seconds_total")

        async def are_all_there() -> bool:
            return (await seconds()).keys() >= {"usual", *DEVICES}

        async def have_grown() -> bool:
            return (await seconds())["usual"][1] > before["usual"][1] + 0.5

        await until(are_all_there)
        before = await seconds()
        await until(have_grown)
        metrics = (await exporter.get("/metrics"))[1]
        mapping = json.loads((await exporter.get("/debug/mapping"))[1])
        objects = json.loads((await exporter.get("/container/metrics"))[1])
    held = values(metrics, "pod_gpu_allocated_seconds_total")
    assert {name: held[name][0] for name in DEVICES} == DEVICES
    growth = {name: held[name][1] - before[name][1] for name in ("usual", *DEVICES)}
    assert growth == pytest.approx(dict.fromkeys(growth, growth["usual"]))
    assert values(metrics, "pod_gpu_allocated_ratio").keys() == {"usual", *DEVICES}
    for family in ("energy_joules", "active_seconds", "idle_seconds"):
        assert not values(metrics, f"pod_gpu_{family}_total").keys() & DEVICES.keys()
    assert values(metrics, "pod_gpu_energy_joules_total").keys() >= {"usual"}
    assert "pod_gpu_exporter_unmatched_devices{" not in metrics
    assert {row["pod"]: row["reason"] for row in mapping["assigned"]} == {
        "usual": "",
        "vm-by-claim": "vfio",
        "vm-by-kubevirt": "vfio",
        "nic": "no_gpu",
        "remote": "not_prepared",
    }
    assert {row["pod"] for row in objects if row["power_usage"] is None} == DEVICES.keys()


# issue 18: what has no samples is held all the same
async def test_a_node_of_virtual_machines_alone_needs_no_page(node: SimulatedNode, config: Config) -> None:
    """It has neither NVIDIA's driver nor dcgm-exporter."""
    await node.dcgm.stop()
    shutil.rmtree(node.root / "proc")
    (node.root / driver_files.CDI_SPEC).unlink()
    node.world.pods = node.world.pods[1:]
    async with running(config) as exporter:

        async def are_held() -> bool:
            held = values((await exporter.get("/metrics"))[1], "pod_gpu_allocated_seconds_total")
            return {name: uuid for name, (uuid, seconds) in held.items() if seconds > 0.2} == DEVICES

        await until(are_held)
        assert "pod_gpu_exporter_unmatched_devices{" not in (await exporter.get("/metrics"))[1]


# issue 18: what has no samples is said, and is no trouble
async def test_doctor_says_what_has_no_samples_and_that_nothing_is_wrong(config: Config) -> None:
    report = (await checkup.examine(config)).report
    assert report.summary == "1 of 1 devices attributed"
    assert report.works(strict=True), report.render()
    messages = [(finding.level, finding.about, finding.trouble.message) for finding in report.findings]
    for about, text in (
        ("claim remote (vms/remote/compute)", "its driver has prepared nothing on this node"),
        ("dra.net/gpu-node-1/eth1 (dra.net, vms/nic/compute)", "it is a network device or the like"),
        ("2 devices", "a virtual machine has this GPU (vfio)"),
    ):
        assert [level for level, name, message in messages if name == about and text in message] == [Level.OK]


# issue 18: the node itself says it, if its folder is mounted
async def test_doctor_says_that_the_folder_of_specs_is_not_there(node: SimulatedNode, config: Config) -> None:
    report = (await checkup.examine(replace(config, root=str(node.root / "none")))).report
    (finding,) = [finding for finding in report.findings if finding.about == "cdi"]
    assert finding.level is Level.WARNING
    assert "in /etc/cdi and /var/run/cdi there is none" in finding.trouble.message
    assert finding.trouble.remedy.startswith("mount /var/run/cdi read-only")
