"""Other vendors' pages with the rule files that are shipped, through the whole node role: by a table of expectations.

tests/data/vendors/README.md says where the pages are from.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from exporter.dcgm.fields import METRICS
from exporter.errors import ConfigError
from exporter.ownership.explain import NOBODY
from tests.support.cluster_role import ClusterRole, running_cluster
from tests.support.exporter import Exporter, Start, config_of
from tests.support.places import DATA
from tests.support.simulated import Container, Pod, SimulatedNode
from tests.support.waiting import until
from tests.top.test_once import top_here

PAGES = DATA / "vendors"
HOLDER = {"namespace": "ml", "pod": "trainer-a", "container": "main"}
# Whose accounts are kept of each device that is held, and of none of which the page says nothing.
HELD_SECONDS = "pod_gpu_allocated_seconds_total"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A vendor's page, what the kubelet handed out, and the JSON of each device by its UUID or number.

    `held` are the device ids of the one pod. Fields that are not named in `fields` are null. `inventory` joins what no
    label does.
    """

    name: str
    rules: str
    resource: str
    held: tuple[str, ...]
    device: str
    model: str
    fields: dict[str, float]
    others: dict[str, dict[str, float]] = field(default_factory=dict)
    inventory: str = ""
    activity: float | None = None


CASES = (
    Case(
        name="amd",
        rules="amd",
        resource="amd.com/gpu",
        held=("0000:c1:00.0",),
        inventory='{"gpus": [{"uuid": "72ff740f-0000-1000-804c-3b58bf67050e", "device": "0000:c1:00.0"}]}',
        device="72ff740f-0000-1000-804c-3b58bf67050e",
        model="AMD Instinct MI300X OAM",
        fields={
            "gpu_utilization": 87,
            "framebuffer_total": 196592,
            "framebuffer_used": 283,
            "framebuffer_free": 196309,
            "power_usage": 412,
            "temperature": 51,
            "memory_temperature": 39,
            "sm_clock": 2100,
            "mem_clock": 900,
        },
        others={"ccff74a1-0000-1000-80e0-c6d49f5b0d86": {"gpu_utilization": 0}},
        activity=0.87,
    ),
    Case(
        name="intel",
        rules="intel",
        resource="gpu.intel.com/xe",
        held=("card2-0",),
        device="00000000-0000-0000-020a-000000290000",
        model="Intel(R) Data Center GPU Max 1550",
        # of two tiles
        fields={
            "gpu_utilization": 50,
            "dram_active": 0.12,
            "framebuffer_used": 3072,
            "power_usage": 412.5,
            "temperature": 51,
            "memory_temperature": 47,
            "sm_clock": 1600,
        },
        others={
            "00000000-0000-0000-1ddb-7c1aed80a2fd": {
                "gpu_utilization": 4.45,
                "framebuffer_used": 29,
                "power_usage": 21.22,
                "temperature": 44,
                "sm_clock": 1950,
            }
        },
        activity=0.5,
    ),
    Case(
        name="intel-xpumd",
        rules="intel",
        resource="gpu.intel.com/i915",
        held=("card1-3",),
        inventory='{"gpus": [{"uuid": "0000:05:00.0", "device": "card1"}]}',
        device="0000:05:00.0",
        model="Super 3000",
        fields={
            "gpu_utilization": 62.5,
            "framebuffer_total": 16384,
            "framebuffer_used": 8192,
            "power_usage": 99.5,
            "temperature": 48,
            "memory_temperature": 47,
            "sm_clock": 1200,
        },
        activity=0.625,
    ),
    Case(
        name="gaudi",
        rules="gaudi",
        resource="habana.ai/gaudi",
        held=("AN01234567",),
        device="01P0-HL2080A0-15-TNPS34-20-07-03",
        model="",
        fields={
            "gpu_utilization": 93,
            "framebuffer_total": 98304,
            "framebuffer_used": 36864,
            "framebuffer_free": 61440,
            "pcie_link_width": 16,
            "power_usage": 352.5,
            "temperature": 57,
            "sm_clock": 1500,
        },
        others={
            "01P0-HL2080A0-15-TNPS34-21-05-09": {
                "gpu_utilization": 0,
                "framebuffer_total": 98304,
                "framebuffer_used": 672,
                "framebuffer_free": 97632,
                "pcie_link_width": 16,
                "power_usage": 98,
                "temperature": 41,
                "sm_clock": 1200,
            }
        },
        activity=0.93,
    ),
    Case(
        name="huawei",
        rules="huawei",
        resource="huawei.com/Ascend910",
        held=("Ascend910-0",),
        device="60B5C8FE-2130C0CF-8E4A7B70-1A4820F3-95045100",
        model="910B3-Ascend-V1",
        fields={
            "gpu_utilization": 36,
            "framebuffer_total": 65536,
            "framebuffer_used": 33280,
            "power_usage": 188.5,
            "temperature": 62,
            "memory_temperature": 49,
            "sm_clock": 1800,
        },
        # -275 and -1 degrees mean that nobody could ask
        others={
            "60B5C8FE-2130C0CF-8E4A7B71-1A4820F3-95045101": {
                "gpu_utilization": 0,
                "framebuffer_total": 65536,
                "framebuffer_used": 3392,
                "power_usage": 92.8,
                "sm_clock": 800,
            }
        },
        activity=0.36,
    ),
    Case(
        name="neuron",
        rules="neuron",
        resource="aws.amazon.com/neuroncore",
        held=("1",),
        device="1",
        model="trn1n.32xlarge",
        # one of the five families that add up to the memory is not there
        fields={"gpu_utilization": 86.33101879976985},
        others={"0": {"gpu_utilization": 10, "framebuffer_used": 102.10873413085938}},
        activity=0.863310,
    ),
    Case(
        name="tpu",
        rules="tpu",
        resource="google.com/tpu",
        held=("0000:00:04.0",),
        inventory='{"gpus": [{"uuid": "1234567890123456789-4", "device": "0000:00:04.0"}]}',
        device="1234567890123456789-4",
        model="tpu7x",
        fields={
            "gpu_utilization": 42,
            "tensor_active": 0.125,
            "framebuffer_total": 194039.984375,
            "framebuffer_used": 168741.92822265625,
        },
        others={"1234567890123456789-0": {"gpu_utilization": 0, "tensor_active": 0, "dram_active": 0.425}},
        activity=0.42,
    ),
)


def page_of(name: str) -> str:
    return (PAGES / f"{name}.prom").read_text()


class VendorNode:
    """The simulated node with a vendor's page, and one pod that holds one of its devices."""

    def __init__(self, simulated: SimulatedNode, start: Start) -> None:
        self._simulated = simulated
        self._start = start
        self.page = ""
        simulated.dcgm.failure = lambda _: web.Response(text=self.page)

    async def run(self, case: Case, *others: Pod, **settings: str) -> Exporter:
        self.page = self.page or page_of(case.name)
        container = Container(name="main", devices=tuple((case.resource, device) for device in case.held))
        pod = Pod(namespace="ml", name="trainer-a", containers=(container,), uid="1", owner=("StatefulSet", "trainer"))
        self._simulated.world.pods = (pod, *others)
        # as many ids of a device as the vendor's device plugin has by default: one
        self._simulated.kubelet.offers = lambda: [(case.resource, device) for device in case.held]
        if case.inventory:
            file = self._simulated.socket.parent / "inventory.yaml"
            file.write_text(case.inventory)
            settings["inventory_file"] = str(file)
        return await self._start(
            resources=f"{case.resource.partition('/')[0]}/*",
            device_rules=case.rules,
            kubelet_pods_socket=str(self._simulated.pods_socket),
            node_name="gpu-1",
            **settings,
        )


@pytest.fixture
def vendor(simulated: SimulatedNode, start: Start) -> VendorNode:
    return VendorNode(simulated, start)


async def objects_of(exporter: Exporter) -> dict[str, dict[str, Any]]:
    status, text = await exporter.get("/container/metrics")
    assert status == 200, text
    return {row["device_uuid"] or row["device_id"]: row for row in json.loads(text)}


@asynccontextmanager
async def cluster_of(exporter: Exporter) -> AsyncIterator[ClusterRole]:
    async with running_cluster({"cluster.node": [f"gpu-1={exporter.base}"]}) as role:

        async def is_ready() -> bool:
            return (await role.get("/-/ready"))[0] == 200

        await until(is_ready)
        yield role


each_vendor = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


# issue 17, "Must show" 2
@each_vendor
async def test_a_captured_page_fills_the_json_and_names_owners(vendor: VendorNode, case: Case) -> None:
    exporter = await vendor.run(case)
    objects = await objects_of(exporter)
    assert objects.keys() == {case.device, *case.others}
    for device, fields in {case.device: case.fields, **case.others}.items():
        values = {name: objects[device][name] for name in METRICS if objects[device][name] is not None}
        assert values == fields, device
        owner = {name: objects[device][name] for name in HOLDER}
        assert owner == (HOLDER if device == case.device else dict.fromkeys(HOLDER, ""))


@each_vendor
async def test_promtool_takes_the_page_that_goes_out(vendor: VendorNode, case: Case, promtool: Path) -> None:
    exporter = await vendor.run(case)
    page = await exporter.page()
    ran = await asyncio.create_subprocess_exec(
        promtool, "check", "metrics", stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    _, complaints = await ran.communicate(page.encode())
    # it finds fault with the names (3), and none with the text (1)
    assert ran.returncode in (0, 3), complaints
    assert "# TYPE DCGM_FI_DEV_GPU_UTIL gauge" in page


# issue 17, "Must show" 2
@each_vendor
async def test_the_page_for_people_and_top_show_a_vendors_device(vendor: VendorNode, case: Case) -> None:
    exporter = await vendor.run(case)
    _, page = await exporter.get("/")
    assert "trainer-a" in page
    assert case.model in page
    shown = json.loads(await asyncio.to_thread(top_here, "--json", "--url", exporter.base))
    devices = {each["uuid"] or each["gpu"]: each for each in shown["devices"]}
    device = devices[case.device]
    assert [{name: owner[name] for name in HOLDER} for owner in device["owners"]] == [HOLDER]
    assert device["memory_used_mib"] == case.fields.get("framebuffer_used")
    assert device["power_watts"] == case.fields.get("power_usage")
    table = (await asyncio.to_thread(top_here, "--once", "--url", exporter.base)).decode()
    assert "trainer-a" in table
    assert f"{round(case.fields['gpu_utilization'])}%" in table


# issue 17, "Must show" 2
@each_vendor
async def test_accounts_and_an_autoscaler_know_a_vendors_device(vendor: VendorNode, case: Case) -> None:
    exporter = await vendor.run(case, accounting_interval="100ms")

    def amount(text: str, family: str) -> float:
        lines = re.findall(rf'^{family}{{([^}}]*pod="trainer-a"[^}}]*)}} (\S+)$', text, re.MULTILINE)
        return sum(float(value) for _, value in lines)

    active = "pod_gpu_active_seconds_total"
    text = await exporter.until("/metrics", lambda text: amount(text, HELD_SECONDS) > 1 and amount(text, active) > 0)
    assert case.activity is not None
    assert amount(text, active) / amount(text, HELD_SECONDS) == pytest.approx(case.activity, rel=0.35)
    async with cluster_of(exporter) as role:
        answer: dict[str, Any] = {}

        async def is_there() -> bool:
            answer.update(await role.json("/autoscale/ml/trainer/gpu_utilization"))
            return "value" in answer

        await until(is_there, why=lambda: answer)
        assert (answer["value"], answer["pods"]) == (case.fields["gpu_utilization"], 1), answer


# issue 17, "Must show" 2
@pytest.mark.parametrize(
    ("name", "before", "after", "field_lost", "reason"),
    [
        # the text names another unit
        ("gaudi", "# HELP habanalabs_power_mW \n", "# HELP habanalabs_power_mW Power usage in watts\n", "power_usage",
         "its HELP or UNIT names watts"),
        ("gaudi", "# TYPE habanalabs_power_mW gauge\n", "# UNIT habanalabs_power_mW watts\n", "power_usage",
         "its HELP or UNIT names watts"),
        ("amd", "Used VRAM memory of the GPU (in MB)", "Used VRAM memory of the GPU (in bytes)", "framebuffer_used",
         "its HELP or UNIT names bytes"),
        ("neuron", "NeuronCore utilization ratio", "NeuronCore utilization in percent", "gpu_utilization",
         "its HELP or UNIT names percent"),
        # no accelerator has such a value
        ("neuron", '"} 0.8633101879976985', '"} 86.33', "gpu_utilization", "it has the value 86.33"),
        ("amd", "gpu_package_power{", 'gpu_package_power{x="1",', "", ""),
        ("huawei", '"} 188.5 ', '"} 188500 ', "power_usage", "it has the value 188500"),
        ("intel", '"} 51.0', '"} 324.15', "temperature", "it has the value 324.15"),
        ("intel-xpumd", '"} 1.2e+09', '"} 1.2e+15', "sm_clock", "it has the value 1.2e+15"),
        # a device that uses more than it has
        ("huawei", '"} 33280 ', '"} 34896609 ', "framebuffer_used", "it has the value 34896609"),
        ("huawei", '"} 33280 ', '"} 65537 ', "framebuffer", "would use more memory than it has"),
    ],
)  # fmt: skip
async def test_a_page_in_another_unit_is_not_taken_and_doctor_says_so(
    vendor: VendorNode, name: str, before: str, after: str, field_lost: str, reason: str
) -> None:
    case = next(case for case in CASES if case.name == name)
    assert before in page_of(name)
    vendor.page = page_of(name).replace(before, after)
    exporter = await vendor.run(case)
    row = (await objects_of(exporter))[case.device]
    expected = {**dict.fromkeys(METRICS), **case.fields}
    expected |= {metric: None for metric in METRICS if field_lost and metric.startswith(field_lost)}
    assert {metric: row[metric] for metric in METRICS} == expected
    _, debug = await exporter.get("/debug/mapping")
    warnings = [finding["says"] for finding in json.loads(debug)["doctor"]["findings"] if finding["level"] == "warning"]
    assert any(reason in text for text in warnings) is bool(reason), warnings
    page = await exporter.page()
    assert page.count(case.device) > 1, "the vendor's own families go out as they came"


async def test_a_device_without_a_kubelet_id_on_its_page_is_told_by_doctor(vendor: VendorNode) -> None:
    case = next(case for case in CASES if case.name == "amd")
    exporter = await vendor.run(replace(case, inventory=""))
    _, debug = await exporter.get("/debug/mapping")
    (finding,) = [each for each in json.loads(debug)["doctor"]["findings"] if case.held[0] in each["about"]]
    assert finding["level"] == "problem"
    assert "names its devices in another way" in finding["says"]
    assert "--inventory.file" in finding["remedy"]
    assert (await objects_of(exporter))[case.device]["pod"] == ""
    _, metrics = await exporter.get("/metrics")
    assert 'pod_gpu_exporter_unmatched_devices{reason="unnamed"} 1' in metrics


# issue 22, line 29
@pytest.mark.parametrize("name", ["intel-xpumd", "tpu"])
async def test_the_only_device_or_one_that_the_page_names_needs_no_inventory(vendor: VendorNode, name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    exporter = await vendor.run(replace(case, inventory=""))
    objects = await objects_of(exporter)
    assert objects.keys() == {case.device, *case.others}
    assert objects[case.device]["pod"] == "trainer-a"
    values = {metric: objects[case.device][metric] for metric in METRICS if objects[case.device][metric] is not None}
    assert values == case.fields
    _, metrics = await exporter.get("/metrics")
    assert 'pod_gpu_exporter_unmatched_devices{reason="unnamed"}' not in metrics


def amd_page(names: Sequence[str], *, with_uuid: bool) -> str:
    """Eight GPUs as the first of the capture; `names` are the pods that the page itself names, "" for none."""
    lines = [line for line in page_of("amd").splitlines() if line.startswith("#") or 'gpu_id="0"' in line]
    page = []
    for line in lines:
        page += [line] if line.startswith("#") else [amd_line(line, n, name) for n, name in enumerate(names)]
    return "\n".join(page if with_uuid else [re.sub(r'gpu_uuid="[^"]*",', "", line) for line in page]) + "\n"


def amd_line(line: str, number: int, pod: str) -> str:
    line = line.replace('gpu_id="0"', f'gpu_id="{number}"').replace('gpu_uuid="72ff740f', f'gpu_uuid="{number:08x}')
    if not pod:
        return line
    line = line.replace('pod=""', f'pod="{pod}"').replace('namespace=""', 'namespace="ml"')
    return line.replace('container=""', 'container="main"')


ADDRESSES = [f"0000:{bus:02x}:00.0" for bus in range(0xC0, 0xC8)]


# issue 22, line 29
@pytest.mark.parametrize("with_uuid", [True, False])
@pytest.mark.parametrize(
    ("by_page", "by_kubelet", "is_clear"),
    [
        (["trainer-a"] * 8, ["trainer-a"] * 8, True),
        ([""] * 8, ["trainer-a"] * 8, True),
        (["b", "a", "b", "a", "b", "a", "b", "a"], ["a"] * 4 + ["b"] * 4, True),
        ([""] * 8, ["a"] * 4 + ["b"] * 4, False),
        ([""] * 8, ["a", "b", "c"], False),
    ],
)
async def test_eight_gpus_with_two_names_each_count_as_eight(
    simulated: SimulatedNode,
    start: Start,
    by_page: list[str],
    by_kubelet: list[str],
    *,
    is_clear: bool,
    with_uuid: bool,
) -> None:
    simulated.dcgm.failure = lambda _: web.Response(text=amd_page(by_page, with_uuid=with_uuid))
    pods: dict[str, list[tuple[str, str]]] = {}
    for address, pod in zip(ADDRESSES, by_kubelet, strict=False):
        pods.setdefault(pod, []).append(("amd.com/gpu", address))
    simulated.world.pods = tuple(
        Pod(namespace="ml", name=name, containers=(Container(name="main", devices=tuple(devices)),))
        for name, devices in pods.items()
    )
    simulated.kubelet.offers = lambda: [("amd.com/gpu", address) for address in ADDRESSES]
    exporter = await start(resources="amd.com/gpu", device_rules="amd", node_name="n", accounting_interval="100ms")
    rows = json.loads((await exporter.get("/container/metrics"))[1])
    assert len(rows) == len({(row["device_uuid"], row["device_id"]) for row in rows}) == 8
    assert {row["gpu_utilization"] for row in rows} == {87}
    owners = Counter(row["pod"] for row in rows)
    assert owners == (Counter(by_kubelet) if is_clear else {"": 8})
    if not is_clear:
        assert {row["state"] for row in rows} == {"unknown"}
        assert all("in a way that no sample does" in row["state_reason"] for row in rows)

    def is_counted(text: str) -> bool:
        return f'pod_gpu_allocated_ratio{{namespace="ml",pod="{by_kubelet[0]}"' in text

    metrics = await exporter.until("/metrics", is_counted)
    family = re.compile(r'^node_gpu_(capacity|allocated_ratio)\{.*model="([^"]*)".*\} (\S+)$', re.MULTILINE)
    by_model = {(name, model): float(value) for name, model, value in family.findall(metrics)}
    model = rows[0]["model_name"]
    assert by_model == {("capacity", model): 8, ("allocated_ratio", model): len(by_kubelet) / 8}
    assert len(re.findall(r"^pod_gpu_device_owners\{", metrics, re.MULTILINE)) == 8


def test_a_name_that_is_not_shipped_is_refused_with_those_that_are() -> None:
    names = sorted({case.rules for case in CASES})
    with pytest.raises(ConfigError, match=f"an absolute path, or one of {', '.join(names)}"):
        config_of(device_rules="acme")


async def test_the_vendors_own_families_can_be_left_out(vendor: VendorNode) -> None:
    case = replace(CASES[0])
    exporter = await vendor.run(case, families_deny="(gpu|pcie)_.*")
    page = await exporter.page()
    assert not re.search(r"^(gpu|pcie)_", page, re.MULTILINE)
    assert (await objects_of(exporter))[case.device]["power_usage"] == 412


# issue 17: one name for every GPU
async def test_a_vendors_device_goes_out_under_either_generations_names(vendor: VendorNode) -> None:
    case = next(case for case in CASES if case.name == "gaudi")
    exporter = await vendor.run(case, families_names="4.9")
    page = await exporter.page()
    owner = 'pod="trainer-a",namespace="ml",container="main"'
    assert re.search(
        rf'^DCGM_FI_DEV_GPU_UTIL_RATIO{{[^}}]*UUID="{case.device}"[^}}]*{owner}}} 0.93$', page, re.MULTILINE
    )
    assert "DCGM_FI_DEV_GPU_UTIL{" not in page
    row = (await objects_of(exporter))[case.device]
    assert {name: row[name] for name in METRICS if row[name] is not None} == case.fields


# issue 22, line 32
@pytest.mark.parametrize("resource", ["gpu.intel.com/i915_monitoring", "gpu.intel.com/xe_monitoring"])
async def test_intels_own_exporter_holds_no_gpu(vendor: VendorNode, resource: str) -> None:
    """Its pod must ask for the resource, whose one id is `all`."""
    container = Container(name="main", devices=((resource, "all"),))
    xpu_manager = Pod(namespace="monitoring", name="xpu-manager", uid="2", containers=(container,))
    case = next(case for case in CASES if case.name == "intel")
    exporter = await vendor.run(case, xpu_manager)
    rows = await objects_of(exporter)
    assert {device: row["pod"] for device, row in rows.items()} == {
        case.device: "trainer-a",
        **dict.fromkeys(case.others, ""),
    }
    assert {row["gpu_shared"] for row in rows.values()} == {False}
    debug = json.loads((await exporter.get("/debug/mapping"))[1])
    looks = [row for row in debug["assigned"] if row["pod"] == "xpu-manager"]
    assert [(row["resource"], row["device_id"], row["reason"]) for row in looks] == [(resource, "all", "monitoring")]
    assert {row["reason"] for row in debug["seen"] if not row["owners"]} == {NOBODY}
    assert {each["level"] for each in debug["doctor"]["findings"]} <= {"ok", "warning"}
