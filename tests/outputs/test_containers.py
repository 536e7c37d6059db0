"""/container/metrics over real HTTP, and its numbers: the JSON contract."""

import asyncio
import json
import sys
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.dcgm.fields import FIELDS, METRICS, Field
from exporter.dcgm.xids import XIDS
from exporter.dividing.decimals import number
from exporter.dividing.measured_values import MeasuredShares
from exporter.exposition.join import Joiner
from exporter.model.device_row import DeviceRow, OwnUse
from exporter.model.devices import Assignment, DeviceKey, Owners
from exporter.model.measured import Measured, Use
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.model.snapshot import Health, Snapshot
from exporter.outputs import device_rows
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.owners import Knowledge
from exporter.ownership.sample_rows import Attribution
from tests.support import quick_yaml
from tests.support.answers import json_of
from tests.support.exporter import Exporter, Start, config_of, running
from tests.support.owners import build_owners
from tests.support.places import ROOT
from tests.support.simulated import GPU_RESOURCE, Container, Pod, SimulatedNode, World
from tests.support.strategies import attribution_of, owner_states, pages
from tests.support.waiting import until
from tests.support.xids import INFORMING

GPU = "GPU-{:08d}-1111-2222-3333-444455556666"


async def rows_of(exporter: Exporter, query: str = "", status: int = 200) -> Any:
    found, text = await exporter.get(f"/container/metrics{query}")
    assert found == status, text
    return json.loads(text)


def serve(simulated: SimulatedNode, text: str) -> None:
    """A page of other GPUs than those that the simulated pods hold: these hold none."""
    simulated.world.pods = ()
    simulated.dcgm.failure = lambda _: web.Response(text=text)


def hold(simulated: SimulatedNode, resource: str = GPU_RESOURCE, /, **held: str) -> None:
    """Pods by name, and the GPU that each holds; namespace and container are made of the name."""
    simulated.world.pods = tuple(
        Pod(
            namespace=f"ns-{name}",
            name=name,
            containers=(Container(name=f"c-{name}", devices=((resource, device),)),),
        )
        for name, device in held.items()
    )
    simulated.kubelet.offers = lambda: [(resource, device) for device in held.values()]


POWER = 'DCGM_FI_DEV_POWER_USAGE{{gpu="{0}",UUID="{1}",device="nvidia{0}",modelName="H100",Hostname="h"}} {0}.5\n'
THREE = "".join(POWER.format(number, GPU.format(number)) for number in (2, 0, 1))


FILTERS = {
    "": ["a", "b", ""],
    "?pod=a": ["a"],
    "?namespace=ns-b": ["b"],
    "?container=c-a": ["a"],
    "?node=gpu-node-1": ["a", "b", ""],
    "?node=other": [],
    "?pod=a&namespace=ns-a": ["a"],
    "?pod=a&namespace=ns-b": [],
    "?pod=A": [],
    "?pod=nobody": [],
    "?workload=nothing": [],
    "?pod=": ["a", "b", ""],
    "?pod=&namespace=ns-a": ["a"],
}


async def test_filters(start: Start, simulated: SimulatedNode) -> None:
    serve(simulated, THREE)
    hold(simulated, a=GPU.format(0), b=GPU.format(1))
    exporter = await start(node_name="gpu-node-1")
    pods: dict[str, list[str]] = {}

    async def are_found() -> bool:
        pods.update({query: [row["pod"] for row in await rows_of(exporter, query)] for query in FILTERS})
        return pods == FILTERS

    await until(are_found, why=lambda: pods)


@pytest.mark.parametrize("query", ["?poD=a", "?x=", "?pod=a&pod=b"])
async def test_a_wrong_query(start: Start, query: str) -> None:
    found = await rows_of(await start(), query, 400)
    assert set(found) == {"error"}


async def test_no_source_is_503_and_never_an_empty_array(start: Start, simulated: SimulatedNode) -> None:
    exporter = await start()
    await simulated.dcgm.stop()
    found = await rows_of(exporter, status=503)
    assert "is dcgm-exporter running" in found["error"]


async def test_families_of_one_device_become_one_object(start: Start, simulated: SimulatedNode) -> None:
    uuid = GPU.format(0)
    serve(
        simulated,
        f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="{uuid}"}} 1.5\n'
        f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{uuid}",modelName="H100",device="nvidia0"}} 40\n'
        f'DCGM_FI_DEV_NOT_IN_THE_TABLE{{gpu="0",UUID="{uuid}"}} 7\n'
        'DCGM_FI_DEV_GPU_TEMP{cpu="0"} 99\n',
    )
    (row,) = await rows_of(await start(node_name="n"))
    assert row["power_usage"] == 1.5
    assert row["temperature"] == 40
    assert row["read_at"] == row["timestamp"], "nothing has changed since the first read"
    assert {key: row[key] for key in row if key not in (*METRICS, "timestamp", "read_at")} == {
        "node_name": "n",
        "model_name": "H100",
        "device": "nvidia0",
        "device_id": "0",
        "device_uuid": uuid,
        "entity": "gpu",
        "pod": "",
        "container": "",
        "namespace": "",
        "gpu_shared": False,
        "holder_since": None,
        "idle_since": None,
        "state": "unknown",
        "state_reason": device_rows.SILENT,
        "health": "ok",
        "last_xid": None,
    }
    assert sum(row[name] is not None for name in METRICS) == 2


# issue 22, line 7
async def test_a_page_s_xid_that_only_informs_is_not_the_last_one(start: Start, simulated: SimulatedNode) -> None:
    codes = dict(enumerate(XIDS))
    serve(
        simulated,
        "".join(f'DCGM_FI_DEV_XID_ERRORS{{gpu="{at}",UUID="{GPU.format(at)}"}} {xid}\n' for at, xid in codes.items()),
    )
    rows = await rows_of(await start())
    assert {row["xid_errors"]: row["last_xid"] for row in rows} == {
        xid: None if xid in INFORMING else xid for xid in XIDS
    }


async def test_several_upstreams_fill_one_object_without_those_that_fail(
    start: Start, simulated: SimulatedNode
) -> None:
    other = SimulatedNode(World(gpus=1))
    uuid = GPU.format(0)
    serve(simulated, f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="{uuid}"}} 1\n')
    other.dcgm.failure = lambda _: web.Response(text=f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{uuid}"}} 2\n')
    failing = SimulatedNode(World(gpus=1))
    failing.dcgm.failure = lambda _: web.Response(status=500)
    await other.start()
    await failing.start()
    try:
        exporter = await start(dcgm_url=[simulated.url, other.url, failing.url, "http://127.0.0.1:1/metrics"])
        (row,) = await rows_of(exporter)
        assert (row["power_usage"], row["temperature"]) == (1, 2)
        await other.dcgm.stop()
        (row,) = await rows_of(exporter)
        assert (row["power_usage"], row["temperature"]) == (1, None)
        _, metrics = await exporter.get("/metrics")
        assert metrics.count('\npod_gpu_exporter_source_up{source="dcgm:') == 4
        down = [
            line for line in metrics.splitlines() if line.startswith("pod_gpu_exporter_source_up") and line[-1] == "0"
        ]
        assert len(down) == 3
    finally:
        await other.stop()
        await failing.stop()


@pytest.mark.parametrize(
    ("sharing", "found"),
    [
        ("copy", [("a", True, 9), ("b", True, 9)]),
        ("split", [("a", True, 5), ("b", True, 4)]),
        ("device", [("", True, 9)]),
    ],
)
async def test_shared_gpus(
    start: Start, simulated: SimulatedNode, sharing: str, found: list[tuple[str, bool, int]]
) -> None:
    serve(simulated, f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="{GPU.format(0)}"}} 9\n')
    hold(simulated, a=f"{GPU.format(0)}::0", b=f"{GPU.format(0)}::1")
    rows = await rows_of(await start(sharing=sharing))
    assert [(row["pod"], row["gpu_shared"], row["power_usage"]) for row in rows] == found


async def test_eight_gpus_with_22_instances(start: Start, simulated: SimulatedNode) -> None:
    instances = [(n, f"{7 + i}") for n in range(8) for i in range((3, 3, 3, 3, 3, 3, 2, 2)[n])]
    text = "".join(
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="{n}",UUID="{GPU.format(n)}"}} 5\n'
        f'DCGM_FI_PROF_SM_ACTIVE{{gpu="{n}",UUID="{GPU.format(n)}"}} 0.5\n'
        for n in range(8)
    ) + "".join(
        f'DCGM_FI_PROF_SM_ACTIVE{{gpu="{n}",UUID="{GPU.format(n)}",GPU_I_PROFILE="1g.10gb",GPU_I_ID="{i}"}} 0.25\n'
        for n, i in instances
    )
    serve(simulated, text)
    hold(simulated, a=f"MIG-{GPU.format(0)}/7/0")
    rows = await rows_of(await start())
    assert len(instances) == 22
    assert [row["entity"] for row in rows].count("mig") == 22
    assert [row["entity"] for row in rows].count("mig-parent") == 8
    # a GPU's row, then its instances, GPU by GPU
    assert [(row["device_id"], row.get("mig_instance_id", "")) for row in rows] == [
        pair for n in range(8) for pair in ((f"{n}", ""), *((f"{m}", i) for m, i in instances if m == n))
    ]
    mig = next(row for row in rows if row["entity"] == "mig")
    assert (mig["mig_profile"], mig["mig_instance_id"], mig["gpu_utilization"], mig["sm_active"]) == (
        "1g.10gb",
        "7",
        None,
        0.25,
    )
    # the instance's owner is not the owner of the GPU around it
    assert [(row["pod"], row["entity"]) for row in rows if row["pod"]] == [("a", "mig")]
    assert all("mig_profile" not in row for row in rows if row["entity"] == "mig-parent")


@pytest.mark.parametrize(
    ("labels", "settings", "node"),
    [
        ('Hostname="old"', {}, "old"),
        ('hostname="new"', {}, "new"),
        ('Hostname="old"', {"node_name": "mine"}, "mine"),
        ("", {}, "gpu-node-1"),
    ],
)
async def test_the_node(
    start: Start, simulated: SimulatedNode, labels: str, settings: dict[str, str], node: str
) -> None:
    serve(simulated, f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{GPU.format(0)}",{labels}}} 1\n')
    (row,) = await rows_of(await start(**settings))
    assert row["node_name"] == node


@pytest.mark.parametrize(
    "labels",
    [
        'pod="p",namespace="n",container="c"',
        'pod_name="p",pod_namespace="n",container_name="c"',
        'exported_pod="p",exported_namespace="n",exported_container="c"',
        'pod="",namespace="",container="",exported_pod="p",exported_namespace="n",exported_container="c"',
    ],
)
@pytest.mark.parametrize("names", ["pod", "legacy", "pod=x,namespace=y,container=z"])
async def test_an_owner_that_the_page_names(start: Start, simulated: SimulatedNode, labels: str, names: str) -> None:
    serve(simulated, f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{GPU.format(0)}",{labels}}} 1\n')
    (row,) = await rows_of(await start(labels_names=names))
    assert (row["pod"], row["namespace"], row["container"]) == ("p", "n", "c")


@pytest.mark.parametrize("generation", ["1", "3", "4.8", "4.9"])
async def test_every_generation_says_the_same(generation: str) -> None:
    """Newer names are converted to the older fields' units."""
    node = SimulatedNode(World(gpus=2, seed=5), generation=generation)
    await node.start()
    try:
        async with running(config_of(kubelet_socket=str(node.socket), dcgm_url=node.url)) as exporter:
            rows = await rows_of(exporter)
    finally:
        await node.stop()
    assert len(rows) == 2
    for row in rows:
        assert 0 < row["framebuffer_used"] + row["framebuffer_free"] < 100_000, "MiB"
        assert 200 < row["sm_clock"] < 3000, "MHz"
        assert 0 <= row["gpu_utilization"] <= 100, "percent"
        assert 20 < row["power_usage"] < 1000, "W"


@pytest.mark.parametrize(
    ("text", "field", "found"),
    [
        (b"1", Field("a"), 1),
        (b"1.50", Field("a"), 1.5),
        (b"4.3e+09", Field("a"), 4_300_000_000),
        (b"-3", Field("a"), -3),
        (b"NaN", Field("a"), None),
        (b"+Inf", Field("a"), None),
        (b"-Inf", Field("a"), None),
        (b"9223372036854775794", Field("a"), None),
        (b"9.223372036854776e+18", Field("a"), None),
        (b"2147483632", Field("a"), None),
        (b"140737488355328", Field("a"), None),
        (b"140737488355328.000000", Field("a"), None),
        (b"0.57", FIELDS["DCGM_FI_DEV_GPU_UTIL_RATIO"], 57),
        (b"85899345920", FIELDS["DCGM_FI_DEV_FB_USED_BYTES"], 81920),
        (b"1980000000", FIELDS["DCGM_FI_DEV_SM_CLOCK_HERTZ"], 1980),
        (b"0.25", FIELDS["DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL"], 250_000_000),
        (b"1e308", FIELDS["DCGM_FI_DEV_GPU_UTIL_RATIO"], None),
        (b"9007199254740993", Field("a"), 9007199254740992.0),
        (b"-0.0", Field("a"), 0),
        # issue 7, line 34
        (b"0e99999999999999999999", FIELDS["DCGM_FI_DEV_FB_USED_BYTES"], 0),
        (b"0e99999999999999999999", Field("a"), 0),
        (b"1e-99999999999999999999", FIELDS["DCGM_FI_DEV_GPU_UTIL_RATIO"], 0),
        (b"1e-99999999999999999999", Field("a"), 0),
    ],
)
def test_numbers(text: bytes, field: Field, found: float | None) -> None:
    value = number(text, field)
    assert value == found
    assert type(value) is type(found)


# issue 7, line 34
@pytest.mark.parametrize("sharing", ["copy", "split"])
@pytest.mark.parametrize("value", ["0e99999999999999999999", "-0e-99999999999999999999", "1e-99999999999999999999"])
async def test_a_number_that_no_decimal_can_hold(
    start: Start, simulated: SimulatedNode, value: str, sharing: str
) -> None:
    families = ("FB_USED_BYTES", "POWER_USAGE", "TOTAL_ENERGY_CONSUMPTION")
    serve(
        simulated,
        "".join(f'DCGM_FI_DEV_{name}{{gpu="0",UUID="{GPU.format(0)}"}} {value}\n' for name in families),
    )
    hold(simulated, a=f"{GPU.format(0)}::0", b=f"{GPU.format(0)}::1")
    exporter = await start(sharing=sharing)
    assert [(row["framebuffer_used"], row["power_usage"]) for row in await rows_of(exporter)] == [(0, 0), (0, 0)]
    assert value in await exporter.page()


# issue 7, line 37
async def test_the_counters_of_1x_compatibility(start: Start, simulated: SimulatedNode) -> None:
    names = (
        "gr_engine_active", "sm_active", "sm_occupancy", "pipe_tensor_active", "dram_active", "pcie_tx_bytes",
        "pcie_rx_bytes",
    )  # fmt: skip
    shell = {f"dcgm_fi_prof_{name}": f"0.{number}" for number, name in enumerate(names, start=1)}
    values = {**shell, "dcgm_nvlink_bandwidth_total": "7", "dcgm_fb_free": "9", "dcgm_gpu_temp": "40"}
    serve(
        simulated,
        "".join(f'{name}{{gpu="0",uuid="{GPU.format(0)}"}} {value}\n' for name, value in values.items()),
    )
    hold(simulated, a=f"{GPU.format(0)}::0", b=f"{GPU.format(0)}::1")
    exporter = await start(sharing="split")
    found = {
        name: [row[name] for row in await rows_of(exporter)]
        for name in (
            "graphics_engine_active", "sm_active", "sm_occupancy", "tensor_active", "dram_active", "pcie_tx_bytes",
            "pcie_rx_bytes", "framebuffer_free", "temperature",
        )
    }  # fmt: skip
    assert found == {
        "graphics_engine_active": [0.1, 0.1],
        "sm_active": [0.2, 0.2],
        "sm_occupancy": [0.3, 0.3],
        "tensor_active": [0.4, 0.4],
        "dram_active": [0.5, 0.5],
        "pcie_tx_bytes": [0.3, 0.3],
        "pcie_rx_bytes": [0.35, 0.35],
        "framebuffer_free": [5, 4],
        "temperature": [40, 40],
    }
    page = await exporter.page()
    links = [line.rpartition(" ")[2] for line in page.splitlines() if line.startswith("dcgm_nvlink_bandwidth_total{")]
    assert links == ["4", "3"]


@pytest.mark.parametrize(
    ("family", "value"), [("DCGM_FI_DEV_FAN_SPEED", "45"), ("DCGM_FI_DEV_FAN_SPEED_RATIO", "0.45")]
)
async def test_a_fans_speed_is_a_percentage_of_either_name(
    start: Start, simulated: SimulatedNode, family: str, value: str
) -> None:
    names = f'gpu="0",UUID="{GPU.format(0)}",device="nvidia0",modelName="RTX",Hostname="h"'
    serve(simulated, f"{family}{{{names}}} {value}\n" + POWER.format(1, GPU.format(1)))
    rows = await rows_of(await start())
    assert {row["device_id"]: row["fan_speed"] for row in rows} == {"0": 45, "1": None}


def test_every_field_is_in_the_table() -> None:
    assert {known.json for known in FIELDS.values() if known.json} == set(METRICS)
    assert len(METRICS) == 29


SCHEMA = quick_yaml.load((ROOT / "docs" / "openapi.yaml").read_text())


def validate(body: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(body, parse_constant=pytest.fail)
    array = SCHEMA["paths"]["/container/metrics"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.validate(found, {**array, "components": SCHEMA["components"]})
    return found


@settings(max_examples=30, deadline=None)
@given(body=pages, owners=owner_states(), sharing=st.sampled_from(("copy", "split", "device")))
def test_any_page_makes_valid_json(body: bytes, owners: Owners, sharing: str) -> None:
    policy = LabelPolicy(sharing=sharing)
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    attribution = attribution_of(owners, policy)
    snapshot = Snapshot(
        node="n",
        owners=owners,
        joined=joiner.join([body], attribution),
        health={"kubelet": Health(up=True)},
        assignments_age_seconds=0.0,
        read_at_seconds=1.5,
        attribute=attribution,
    )
    made = json_of(snapshot)
    found = validate(made)
    keys = [
        (
            row["device_uuid"] or row["device"] or row["device_id"],
            *(row.get(name) for name in ("mig_instance_id", "namespace", "pod", "container")),
        )
        for row in found
    ]
    assert len(set(keys)) == len(keys), "an object is there twice"
    # issue 7, line 35
    assert snapshot.joined is not None
    says_itself = {subject.key for subject in snapshot.joined.subjects if subject.came_with or subject.vgpu}
    known = {match.key for match in owners.matches if match.key} - says_itself
    held = {astuple(holder.owner) for key in known for holder in owners.of(key)}
    held.discard(("", "", ""))  # no kubelet names a container so: it reads as nobody
    shown = {(row["namespace"], row["pod"], row["container"]) for row in found}
    assert sharing == "device" or held <= shown
    again = json_of(snapshot)
    assert again == made


@settings(max_examples=30, deadline=None)
@given(body=pages, owners=owner_states(), sharing=st.sampled_from(("copy", "split", "device")))
def test_what_is_measured_of_a_container_stands_in_its_own_objects(body: bytes, owners: Owners, sharing: str) -> None:
    policy = LabelPolicy(sharing=sharing)
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    attribution = attribution_of(owners, policy)
    shares = [(key, holder.owner) for key, holders in owners.holders.items() for holder in holders]
    # each has a number of its own; what is not known of it is left out
    uses = {
        share: Use(memory_bytes=number, sm_ratio=None if number % 2 else 0.5, processes=1)
        for number, share in enumerate(dict.fromkeys(shares))
    }
    snapshot = Snapshot(
        node="n",
        owners=owners,
        joined=joiner.join([body], attribution),
        health={},
        assignments_age_seconds=0.0,
        attribute=attribution,
        measured=Measured(uses=uses),
    )
    made = json_of(snapshot)
    of_number = {use.memory_bytes: (key.uuid, owner) for (key, owner), use in uses.items()}
    for row in validate(made):
        if "measured" in row:
            _, owner = of_number[row["measured"]["memory_used_bytes"]]
            assert (row["namespace"], row["pod"], row["container"]) == astuple(owner)
            assert row["measured"].get("utilization_ratio", 0.5) == 0.5
    assert all(row.measured is None for row in rows_without_measuring(snapshot))


def rows_without_measuring(snapshot: Snapshot) -> list[DeviceRow]:
    return at_once(device_rows.rows(replace(snapshot, measured=None)))


# issue 18, line 5
@pytest.mark.parametrize("sharing", ["copy", "split", "device"])
def test_a_shared_device_has_its_own_values_beside_those_of_its_owners(sharing: str) -> None:
    shared, of_one = GPU.format(1), GPU.format(2)
    a, b, c = (Owner(namespace="ml", pod=pod, container="main") for pod in "abc")
    ids = {a: f"{shared}::1", b: f"{shared}::2", c: of_one}
    assignments = [Assignment(owner=owner, resource="nvidia.com/gpu", device_id=ids[owner]) for owner in ids]
    owners, policy = build_owners(assignments, {}, Knowledge()), LabelPolicy(sharing=sharing)
    use = Use(memory_bytes=2**30, sm_ratio=0.25, processes=1)
    measured = Measured(uses={(DeviceKey(uuid=shared), owner): use for owner in (a, b)})
    attribution = Attribution(owners, policy, measured=MeasuredShares(measured))
    values = {"GPU_UTIL": 85, "FB_USED": 28672, "FB_FREE": 52000, "POWER_USAGE": 312.5, "GPU_TEMP": 61}
    lines = [
        f'DCGM_FI_DEV_{name}{{gpu="{gpu}",UUID="{GPU.format(gpu)}"}} {value}'
        for name, value in values.items()
        for gpu in (1, 2)
    ]
    if sharing != "device":
        # what dcgm-exporter itself measured of a pod is not the device's
        of_pod = 'vgpu="1",pod="a",namespace="ml",container="main"'
        lines.append(f'DCGM_FI_DEV_FB_USED{{gpu="1",UUID="{shared}",{of_pod}}} 1')
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    snapshot = Snapshot(
        node="n",
        owners=owners,
        joined=joiner.join(["".join(f"{line}\n" for line in lines).encode()], attribution),
        health={},
        assignments_age_seconds=0.0,
        attribute=attribution,
        measured=measured,
    )
    *of_shared, of_whole = validate(json_of(snapshot))
    own = {"gpu_utilization": 85, "framebuffer_used": 28672, "framebuffer_free": 52000, "power_usage": 312.5}
    assert {row["pod"] for row in of_shared} == ({""} if sharing == "device" else {"a", "b"})
    assert all(row["whole_device"] == own for row in of_shared)
    assert "whole_device" not in of_whole
    assert {row["gpu_utilization"] for row in of_shared if row["pod"]} <= {25.0}


def test_what_is_measured_of_one_owner_of_a_shared_gpu() -> None:
    gpu = DeviceKey(uuid=GPU.format(1))
    one, other = (Owner(namespace="ml", pod=pod, container="main") for pod in "ab")
    owners = build_owners(
        [
            Assignment(owner=owner, resource="nvidia.com/gpu.shared", device_id=f"{gpu.uuid}::{number}")
            for number, owner in enumerate((one, other))
        ],
        {},
        Knowledge(),
    )
    policy = LabelPolicy()
    attribution = attribution_of(owners, policy)
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    page = f'DCGM_FI_DEV_GPU_UTIL{{gpu="1",UUID="{gpu.uuid}"}} 90\n'
    snapshot = Snapshot(
        node="n",
        owners=owners,
        joined=joiner.join([page.encode()], attribution),
        health={},
        assignments_age_seconds=0.0,
        attribute=attribution,
        measured=Measured(uses={(gpu, one): Use(memory_bytes=2**30, sm_ratio=0.25, processes=2)}),
    )
    first, second = at_once(device_rows.rows(snapshot))
    assert (first.pod, first.measured) == ("a", OwnUse(memory_used_bytes=2**30, utilization_ratio=0.25, processes=2))
    assert (second.pod, second.gpu_shared, second.measured) == ("b", True, None)


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_schemathesis_finds_nothing(start: Start, tmp_path: Path) -> None:
    exporter = await start()
    program = Path(sys.executable).with_name("schemathesis")
    command = [program, "run", ROOT / "docs" / "openapi.yaml", "--url", exporter.base, "--max-examples", "20"]
    command += ["--exclude-path-regex", "^/autoscale/"]  # which is the cluster role's
    ran = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=tmp_path
    )
    said, _ = await ran.communicate()
    assert ran.returncode == 0, said.decode()


AMD = f"""\
gpu_power_usage{{gpu_id="0",gpu_uuid="{GPU[4:].format(1)}",card_model="MI300X",pcie_bus_id="0000:0c:00.0"}} 300
gpu_power_usage{{gpu_id="1",gpu_uuid="{GPU[4:].format(2)}",card_model="MI300X",pcie_bus_id="0000:0d:00.0"}} 90
"""
HAMI = f"""\
HostGPUMemoryUsage{{deviceidx="0",deviceuuid="{GPU.format(0)}",zone="vGPU"}} 5
vGPU_device_memory_usage_in_bytes{{deviceuuid="{GPU.format(0)}",podname="p",vdeviceid="0"}} 3
"""
XID = f"""\
DCGM_FI_DEV_XID_ERRORS_COUNT{{gpu="0",UUID="{GPU.format(0)}",modelName="H100"}} 1
DCGM_FI_DEV_POWER_USAGE{{gpu="1",UUID="{GPU.format(1)}",modelName="H100"}} 70
"""


# issue 7, line 35
@pytest.mark.parametrize(
    ("page", "held", "settings", "expected"),
    [
        # another vendor's families, by its rules
        (AMD, {"a": "0000:0d:00.0"}, {"device_rules": "amd", "resources": "amd.com/*"},
         [("0", GPU[4:].format(1), "", 300), ("1", GPU[4:].format(2), "a", 90)]),
        (HAMI, {"a": f"{GPU.format(0)}-3"}, {"device_rules": "hami.yaml"}, [("0", GPU.format(0), "a", None)]),
        # a GPU that fell off the bus has nothing left but its errors
        (XID, {"a": GPU.format(0), "b": GPU.format(1)}, {},
         [("0", GPU.format(0), "a", None), ("1", GPU.format(1), "b", 70)]),
        (THREE, {"a": GPU.format(1)}, {"families_allow": "DCGM_FI_DEV_GPU_TEMP"},
         [("0", GPU.format(0), "", None), ("1", GPU.format(1), "a", None), ("2", GPU.format(2), "", None)]),
        # no sample at all: by number, and by the ids of an instance that nothing resolves
        (XID, {"a": "nvidia7", "b": "MIG-11111111-2222-5333-8444-555555555555"}, {},
         [("0", GPU.format(0), "", None), ("1", GPU.format(1), "", 70), ("7", "", "a", None),
          ("", "MIG-11111111-2222-5333-8444-555555555555", "b", None)]),
    ],
)  # fmt: skip
async def test_a_device_in_use_has_its_row_whatever_is_known_of_it(
    start: Start,
    simulated: SimulatedNode,
    tmp_path: Path,
    page: str,
    held: dict[str, str],
    settings: dict[str, str],
    expected: list[tuple[str, str, str, float | None]],
) -> None:
    (tmp_path / "hami.yaml").write_text("samples:\n  uuid: [deviceuuid]\n  index: [deviceidx]\n")
    if settings.get("device_rules") == "hami.yaml":
        settings = {"device_rules": str(tmp_path / "hami.yaml")}
    serve(simulated, page)
    hold(simulated, settings.get("resources", "nvidia.com/*").replace("*", "gpu"), **held)
    exporter = await start(**settings)
    found = await rows_of(exporter)
    assert [(row["device_id"], row["device_uuid"], row["pod"], row["power_usage"]) for row in found] == expected
    assert [row["pod"] for row in await rows_of(exporter, "?pod=a")] == ["a"]
    validate(json.dumps(found).encode())


# issue 7, line 35
@pytest.mark.parametrize("sharing", ["copy", "split", "device"])
async def test_devices_without_samples_are_shared_as_all_others_are(
    start: Start, simulated: SimulatedNode, sharing: str
) -> None:
    serve(simulated, THREE)
    hold(simulated, a=f"{GPU.format(7)}::0", b=f"{GPU.format(7)}::1")
    found = [row for row in await rows_of(await start(sharing=sharing)) if row["device_uuid"] == GPU.format(7)]
    both = [("a", "ns-a", "c-a", True), ("b", "ns-b", "c-b", True)]
    assert [(row["pod"], row["namespace"], row["container"], row["gpu_shared"]) for row in found] == (
        [("", "", "", True)] if sharing == "device" else both
    )


# issue 7, line 35
async def test_devices_that_only_the_inventory_knows(start: Start, simulated: SimulatedNode, tmp_path: Path) -> None:
    own = "MIG-99999999-2222-5333-8444-555555555555"
    serve(
        simulated,
        f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{GPU[4:].format(0)}"}} 40\n'
        f'DCGM_FI_DEV_GPU_TEMP{{gpu="1",UUID="{own}"}} 41\n'
        'DCGM_FI_DEV_GPU_TEMP{gpu="2",device="nvidia2"} 42\n',
    )
    hold(simulated, a=f"{GPU.format(1)}::0", b="MIG-8", c="nvidia2")
    inventory = {
        "gpus": [
            {"uuid": GPU.format(0), "index": 0},
            {
                "uuid": GPU.format(1),
                "index": 1,
                "mig": [
                    {"uuid": own, "instance_id": 7, "profile": "1g.10gb"},
                    {"uuid": "MIG-8", "instance_id": 8, "profile": "1g.10gb"},
                ],
            },
            {"uuid": GPU.format(2), "index": 2},
            {"uuid": GPU.format(3), "index": 3},
        ]
    }
    (tmp_path / "inventory.json").write_text(json.dumps(inventory))
    found = await rows_of(await start(inventory_file=str(tmp_path / "inventory.json")))
    names = ("device_id", "device_uuid", "entity", "mig_instance_id", "mig_profile", "pod", "temperature")
    assert [tuple(row.get(name) for name in names) for row in found] == [
        ("0", GPU[4:].format(0), "gpu", None, None, "", 40),
        ("1", GPU.format(1), "mig-parent", None, None, "a", None),
        ("1", own, "mig", None, None, "", 41),
        ("1", GPU.format(1), "mig", "8", "1g.10gb", "b", None),
        ("2", "", "gpu", None, None, "c", 42),
        ("3", GPU.format(3), "gpu", None, None, "", None),
    ]


# issue 7, line 38
@pytest.mark.parametrize(
    ("labels", "is_device"),
    [
        ('uuid="0abb23a9-579b-43e6-ad30-227ef47fcb9d",device="sda",label="data"', False),
        ('uuid="0abb23a9-579b-43e6-ad30-227ef47fcb9d",domain="vm"', False),
        ('uuid="GPU-40f717b2"', True),
        ('UUID="MIG-40f717b2"', True),
        ('UUID="40f717b2-d09e-4a1f-b8e7-0f5ef53b8a9f"', True),
        ('gpu_uuid="40f717b2-d09e-4a1f-b8e7-0f5ef53b8a9f"', True),
        ('uuid="40f717b2-d09e-4a1f-b8e7-0f5ef53b8a9f",gpu="0"', True),
        ('uuid="40f717b2-d09e-4a1f-b8e7-0f5ef53b8a9f",model_name="Flex 170"', True),
    ],
)
async def test_what_is_a_device_and_what_only_has_a_uuid(
    start: Start, simulated: SimulatedNode, labels: str, is_device: bool
) -> None:
    serve(simulated, f"node_btrfs_info{{{labels}}} 1\n" + POWER.format(3, GPU.format(3)))
    exporter = await start()
    assert len(await rows_of(exporter)) == 1 + is_device
    _, debug = await exporter.get("/debug/mapping")
    assert len(json.loads(debug)["seen"]) == 1 + is_device
    _, page = await exporter.get("/")
    assert f'id="figure-unknown">{1 + is_device}<' in page, "the kubelet lists no pod"


RULES = """
devices: [{resource: example.com/chip, id: "chip-(?P<%s>[0-9a-z]+)"}]
samples: {%s: [chip]}
"""


# issue 15, line 6
@pytest.mark.parametrize("part", ["index", "device"])
@pytest.mark.parametrize("offers", [True, False])
async def test_chips_that_nobody_holds_are_there_and_counted(
    start: Start, simulated: SimulatedNode, tmp_path: Path, part: str, offers: bool
) -> None:
    """8 chips that rules name by a number or a name, 2 of them held; an old kubelet does not say what it offers."""
    (tmp_path / "rules.yaml").write_text(RULES % (part, part))
    page = "".join(f'chip_power_watts{{chip="{number}",model_name="X"}} 50\n' for number in range(8))
    serve(simulated, page + 'chip_power_watts{switch="0"} 5\n')
    hold(simulated, "example.com/chip", a="chip-0", b="chip-5")
    ids = [("example.com/chip", f"chip-{number}") for number in range(8)]
    simulated.kubelet.offers = lambda: ids if offers else ()
    exporter = await start(resources="example.com/chip", device_rules=str(tmp_path / "rules.yaml"))
    found = await rows_of(exporter)
    name = "device_id" if part == "index" else "device"
    assert [(row[name], row["pod"]) for row in found] == [
        (str(number), {0: "a", 5: "b"}.get(number, "")) for number in range(8)
    ]

    async def is_counted() -> bool:
        metrics = (await exporter.get("/metrics"))[1]
        return 'node_gpu_capacity{model="X",node="gpu-node-1"} 8\n' in metrics and (
            'node_gpu_allocated_ratio{model="X",node="gpu-node-1"} 0.25\n' in metrics
        )

    await until(is_counted)


# issue 15, line 6
async def test_chips_whose_samples_have_other_names_than_their_ids_count_once(
    start: Start, simulated: SimulatedNode, tmp_path: Path
) -> None:
    """The kubelet hands out PCI addresses, the samples have numbers: what it offers is what there is."""
    (tmp_path / "rules.yaml").write_text(RULES % ("device", "index"))
    serve(simulated, "".join(f'chip_power_watts{{chip="{number}"}} 50\n' for number in range(8)))
    hold(simulated, "example.com/chip", a="chip-c1", b="chip-c5")
    simulated.kubelet.offers = lambda: [("example.com/chip", f"chip-c{number}") for number in range(8)]
    exporter = await start(resources="example.com/chip", device_rules=str(tmp_path / "rules.yaml"))

    async def is_counted() -> bool:
        return 'node_gpu_capacity{model="",node="gpu-node-1"} 8\n' in (await exporter.get("/metrics"))[1]

    await until(is_counted)


# issue 15, line 6
@pytest.mark.parametrize("known_by", ["kubelet", "inventory"])
async def test_an_idle_gpu_whose_uuid_lacks_its_prefix_has_an_object(
    start: Start, simulated: SimulatedNode, tmp_path: Path, known_by: str
) -> None:
    """As nvidia_gpu_exporter writes it, with `uuid` as its only label."""
    uuids = [GPU.format(number) for number in range(3)]
    disk = 'node_btrfs_info{uuid="0abb23a9-579b-43e6-ad30-227ef47fcb9d"} 1\n'
    serve(simulated, disk + "".join(f'nvidia_smi_temperature_gpu{{uuid="{uuid[4:]}"}} 40\n' for uuid in uuids))
    hold(simulated, a=uuids[1])
    simulated.kubelet.offers = lambda: [(GPU_RESOURCE, uuid) for uuid in uuids if known_by == "kubelet"]
    inventory = {"gpus": [{"uuid": uuid, "index": number} for number, uuid in enumerate(uuids)]}
    (tmp_path / "inventory.json").write_text(json.dumps(inventory if known_by == "inventory" else {"gpus": []}))
    exporter = await start(inventory_file=str(tmp_path / "inventory.json"))

    async def are_all_there() -> bool:
        found = await rows_of(exporter)
        return [(row["device_uuid"], row["pod"]) for row in found] == [
            (uuid[4:], "a" if uuid == uuids[1] else "") for uuid in uuids
        ]

    await until(are_all_there)
    assert len(json.loads((await exporter.get("/debug/mapping"))[1])["seen"]) == 3


# issue 7, line 20
async def test_labels_and_uid_of_pods(start: Start, simulated: SimulatedNode) -> None:
    exporter = await start(
        labels_pod_uid="on",
        labels_pod_labels="team",
        kubelet_pods_socket=str(simulated.pods_socket),
        inventory_file=str(simulated.inventory_file),
    )
    found = await rows_of(exporter)
    owned = [row for row in found if row["pod"]]
    assert owned
    page = await exporter.page()
    for row in owned:
        assert f'pod_uid="{row["pod_uid"]}"' in page
        assert f'label_team="{row["pod_labels"]["label_team"]}"' in page
    assert all("pod_uid" not in row and "pod_labels" not in row for row in found if not row["pod"])
    validate(json.dumps(found).encode())
    plain = await rows_of(await start())
    assert not any("pod_uid" in row or "pod_labels" in row for row in plain)
