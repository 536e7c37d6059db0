"""Of any node, page, `top`, `kubectl gpu`, JSON, the cluster role and /metrics tell the same of every device."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import unescape
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.cluster.exporters.node_answer import read_answer
from exporter.dividing.measured_values import MeasuredShares
from exporter.exposition.families import render
from exporter.exposition.join import Joiner
from exporter.kubectl import device_holders
from exporter.model.device_row import DeviceRow, from_objects
from exporter.model.device_row_json import as_json
from exporter.model.devices import Assignment, Inventory, InventoryGpu, MigInstance
from exporter.model.measured import Measured, Use
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.model.snapshot import Snapshot
from exporter.model.states import WORDS, DeviceState
from exporter.outputs import device_rows
from exporter.outputs.families import mapping, measured
from exporter.outputs.families.family import filled
from exporter.outputs.output import Look
from exporter.outputs.page.device_table import devices_table
from exporter.outputs.page.view import PageView
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.owners import Knowledge
from exporter.ownership.sample_rows import Attribution
from exporter.top.shown_devices import ShownDevice, shown_of
from tests.support.looks import GPU, row
from tests.support.owners import build_owners

NODE = "n"


class Figures(NamedTuple):
    """As people read them: percent, GiB, W and °C; None where a line says none."""

    percent: float | None
    gib: float | None
    watts: float | None
    celsius: float | None


class Line(NamedTuple):
    """A device, or one of several holders of it: its state in words, the pods that hold it, and its figures.

    `is_marked`: the figures are older than the state, and the line says so.
    """

    state: str
    pods: tuple[str, ...]
    figures: Figures
    is_marked: bool = False


Story = Mapping[tuple[str, str, str], Line]  # by GPU, instance, and the pod of a holder's line


# --- nodes ------------------------------------------------------------------------------------------------------------

PERCENTS = st.integers(0, 100)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "DCGM_FI_DEV_GPU_UTIL": PERCENTS.map(str),
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": PERCENTS.map(lambda percent: f"{percent / 100:.6f}"),
        "DCGM_FI_DEV_FB_USED": st.integers(0, 40_000).map(str),
        "DCGM_FI_DEV_FB_FREE": st.integers(0, 40_000).map(str),
        "DCGM_FI_DEV_POWER_USAGE": st.integers(0, 7_000).map(lambda tenths: f"{tenths / 10}"),
        "DCGM_FI_DEV_GPU_TEMP": st.integers(20, 99).map(str),
    },
)
USES = st.builds(
    Use,
    memory_bytes=st.none() | st.integers(0, 40 * 2**30),
    sm_ratio=st.none() | PERCENTS.map(lambda percent: percent / 100),
    processes=st.integers(1, 9),
)
PODS = st.lists(st.sampled_from("abc"), unique=True, max_size=3)
NO_INSTANCES: dict[str, Any] = {}
INSTANCES = st.fixed_dictionaries({name: st.tuples(VALUES, PODS) for name in ("7", "8")})
# values of the GPU, the pods that hold it, and its instances
GPUS = st.lists(st.tuples(VALUES, PODS, st.just(NO_INSTANCES) | INSTANCES), min_size=1, max_size=3)


def _snapshot(gpus: Sequence[Any], uses: Sequence[Use | None], sharing: str) -> Snapshot:
    """A look at a node of these GPUs; each share has the next of the `uses`, or is not measured."""
    page, assignments, inventory = "", [], []
    for index, (values, pods, of_instances) in enumerate(gpus):
        mig = [MigInstance(uuid=f"MIG-{index}-{each}", instance_id=each, profile="1g.10gb") for each in of_instances]
        inventory.append(InventoryGpu(uuid=GPU(index), index=str(index), mig=tuple(mig)))
        watts = values.get("DCGM_FI_DEV_POWER_USAGE")
        page += "".join(row(name, value, index) for name, value in values.items() if not mig)
        assignments += [_assignment(pod, f"{GPU(index)}::{number}") for number, pod in enumerate(pods) if not mig]
        for each in mig:
            of_instance, holding = of_instances[each.instance_id]
            # what is the whole GPU's, dcgm-exporter repeats on each instance; GPU_UTIL it has of none
            own = {**of_instance, "DCGM_FI_DEV_POWER_USAGE": watts, "DCGM_FI_DEV_GPU_UTIL": None}
            page += "".join(
                row(name, value, index, each.instance_id, "1g.10gb") for name, value in own.items() if value
            )
            assignments += [_assignment(pod, f"{each.uuid}::{number}") for number, pod in enumerate(holding)]
    owners = build_owners(assignments, {}, Knowledge(inventory=Inventory(gpus=tuple(inventory))))
    shares = [(key, holder.owner) for key, of_device in owners.holders.items() for holder in of_device]
    seen = Measured(uses={share: use for share, use in zip(shares, uses, strict=False) if use})
    policy = LabelPolicy(sharing=sharing)
    attribution = Attribution(owners, policy, measured=MeasuredShares(seen))
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    return Snapshot(
        node=NODE,
        owners=owners,
        joined=joiner.join([page.encode()], attribution),
        health={},
        assignments_age_seconds=0.0,
        attribute=attribution,
        measured=seen,
        inventory=Inventory(gpus=tuple(inventory)),
    )


def _assignment(pod: str, device_id: str) -> Assignment:
    owner = Owner(namespace="ns", pod=pod, container="c")
    return Assignment(owner=owner, resource="nvidia.com/gpu", device_id=device_id)


# --- what each says ---------------------------------------------------------------------------------------------------


def _number(text: str) -> float | None:
    match = re.match(r"[\d.]+", text)
    return float(match[0]) if match else None


def of_page(rows: Sequence[DeviceRow]) -> Story:
    made, _fold = at_once(devices_table(rows, PageView(fold="none", lines=5000), with_node=False))
    said: dict[tuple[str, str, str], Line] = {}
    for kind, key, line in re.findall(
        r'<tr role="row" class="(gpu|instance|owner) [^>]*data-key="([^"]*)"[^>]*>(.*?)</tr>', "".join(made), re.DOTALL
    ):
        _kind, _node, uuid, instance, owner, *_rest = f"{unescape(key)}  ".split(" ")
        pairs = re.findall(r'<t[dh] [^>]*class="(\w+)"[^>]*>(.*?)</t[dh]>', line, re.DOTALL)
        cells = {name: unescape(re.sub("<[^>]*>", "", cell)).strip() for name, cell in pairs}
        pod = owner.partition("/")[2].partition("/")[0]
        figures = Figures(*(_number(cells[name]) for name in ("utilisation", "memory", "power", "temperature")))
        state = cells["state"].removesuffix(" before")
        is_marked = state != cells["state"]
        said[uuid, instance, pod if kind == "owner" else ""] = Line(state, (pod,) if pod else (), figures, is_marked)
    return said


def of_top(rows: Sequence[DeviceRow], sharing: str) -> Story:
    about = {"settings": {"sharing": {"value": sharing}}}
    return dict(_lines_of_top(shown_of("node", "u", about, rows, "").devices))


def _lines_of_top(devices: Sequence[ShownDevice]) -> Iterator[tuple[tuple[str, str, str], Line]]:
    for device in devices:
        mib = device.memory_used_mib
        figures = Figures(
            device.utilization_percent,
            None if mib is None else mib / 1024,
            None if device.entity == "mig" else device.power_watts,
            device.temperature_celsius,
        )
        pods = tuple(holder.pod for holder in device.holders)
        alone = pods if len(pods) == 1 else ()
        is_marked = device.before or device.older
        yield (device.uuid, device.mig_instance_id, ""), Line(WORDS[device.state], alone, figures, is_marked)
        for holder in device.holders if len(pods) > 1 else ():
            own_mib = holder.memory_used_mib
            own = Figures(holder.utilization_percent, None if own_mib is None else own_mib / 1024, None, None)
            state = WORDS[DeviceState.IDLE] if holder.idle else ""
            yield (device.uuid, device.mig_instance_id, holder.pod), Line(state, (holder.pod,), own)


def of_kubectl(rows: Sequence[DeviceRow]) -> Mapping[tuple[str, str, str], tuple[str, float | None, float | None]]:
    """State, percent and GiB, by GPU, instance and pod."""
    held = [each for each in rows if each.pod]
    _, *lines = device_holders.table(held, rows).splitlines()
    said = {}
    for each, line in zip(held, lines, strict=False):
        _, _, _, _, _, state, percent, gib, *_ = re.split(" {2,}", line)
        said[each.device_uuid, each.mig_instance_id, each.pod] = (state, _number(percent), _number(gib))
    return said


def _close(first: Figures, second: Figures) -> bool:
    """Whether both say the same as people read it: a whole number, and GiB with one decimal."""
    apart = (1.01, 0.11, 1.01, 1.01)
    for one, other, most in zip(first, second, apart, strict=True):
        if (one is None) != (other is None):
            return False
        if one is not None and other is not None and abs(one - other) >= most:
            return False
    return True


# issue 23, Must show 4
@example(
    gpus=[({"DCGM_FI_DEV_GPU_UTIL": "5"}, ["a", "b"], {})],
    uses=[Use(memory_bytes=None, sm_ratio=0.0, processes=1)] * 2,
    sharing="copy",
)
@settings(deadline=None)
@given(
    gpus=GPUS,
    uses=st.lists(st.none() | USES, max_size=6),
    sharing=st.sampled_from(["copy", "split", "device"]),
)
def test_every_output_tells_the_same_of_every_device(gpus: Any, uses: list[Use | None], sharing: str) -> None:
    snapshot = _snapshot(gpus, uses, sharing)
    rows = at_once(device_rows.rows(snapshot))
    body = as_json(rows)
    # JSON, and the cluster role that reads it
    assert [*from_objects(json.loads(body), 1_000)] == rows
    assert [held.row for held in at_once(read_answer(body, NODE)).devices] == rows
    page, top = of_page(rows), of_top(rows, sharing)
    assert page.keys() == top.keys()
    for key, line in page.items():
        other = top[key]
        assert line.pods == other.pods, key
        assert line.is_marked == other.is_marked, key
        assert _close(line.figures, other.figures), (key, line, other)
        # the page says of a GPU that is cut what its instances are, and top of a holder only whether it is idle
        if other.state and other.state != WORDS[DeviceState.CUT]:
            assert line.state == other.state, key
    for (uuid, instance, pod), (state, percent, gib) in of_kubectl(rows).items():
        line = page.get((uuid, instance, pod)) or page[uuid, instance, ""]
        assert state == line.state
        assert _close(line.figures._replace(watts=None, celsius=None), Figures(percent, gib, None, None))
    _check_families(snapshot, rows)


def _check_families(snapshot: Snapshot, rows: Sequence[DeviceRow]) -> None:
    """/metrics has what is measured of each container, and how many hold each device, as the rows have it."""
    text = render(filled((*measured.FAMILIES, *mapping.FAMILIES), Look(snapshot=snapshot))).decode()
    names = {"pod_gpu_utilization_ratio": "utilization_ratio", "pod_gpu_memory_used_bytes": "memory_used_bytes"}
    said: dict[tuple[str, ...], float] = {}
    for name, labels, value in re.findall(r"^(\w+)\{(.*)\} (\S+)$", text, re.MULTILINE):
        of_label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if name in names:
            said[names[name], of_label["UUID"], of_label.get("GPU_I_ID", ""), of_label["pod"]] = float(value)
    shown = {
        (field, each.device_uuid, each.mig_instance_id, each.pod): getattr(each.measured, field)
        for each in rows
        for field in names.values()
        if each.measured and each.pod and getattr(each.measured, field) is not None
    }
    assert {key: said.get(key) for key in shown} == shown
    of_devices = dict(re.findall(r'^pod_gpu_device_owners\{[^}]*UUID="([^"]*)"\} (\d+)$', text, re.MULTILINE))
    for uuid, count in of_devices.items():
        pods = [each.pod for each in rows if each.device_uuid == uuid and each.entity == "gpu" and each.pod]
        # with --sharing device a device that several hold has one row, which names none of them
        assert (
            int(count) == len(pods)
            or (not pods and int(count) > 1)
            or any(each.entity != "gpu" for each in rows if each.device_uuid == uuid)
        )
