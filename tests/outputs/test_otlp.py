"""A look at a node as OpenTelemetry's metrics, held to a copy of the conventions' facts; and as OTLP's messages."""

import json
from collections.abc import Sequence
from dataclasses import replace
from math import isclose

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceRequest,
)

from exporter.accounts.amounts import AMOUNTS
from exporter.dcgm.fields import OTEL
from exporter.dcgm.table import TABLE
from exporter.model.accounts import Account, Accounts
from exporter.model.devices import DeviceKey, Inventory, InventoryGpu, MigInstance
from exporter.model.driver import Host
from exporter.model.health import DeviceVerdict, HealthReason, Verdict
from exporter.model.slices import at_once
from exporter.model.snapshot import Snapshot
from exporter.outputs.otlp import messages
from exporter.outputs.otlp.messages import Messages, PartialSuccess, partial_success, refusal
from exporter.outputs.otlp.metrics import ACCOUNTED, INSTRUMENTS, Metrics
from exporter.ownership.sample_rows import Attribution
from exporter.ownership.verdicts import verdict_by
from tests.support.looks import GPU, SECOND, Held, Looks, owner, row
from tests.support.otlp import Point, points_in
from tests.support.places import DATA

FACTS = json.loads((DATA / "opentelemetry" / "conventions.json").read_text())
BUSY, USED, TOTAL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_TOTAL"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
WHOLE: Held = {"train": [("nvidia.com/gpu", GPU(0))]}
NOW_NS = 1_800_000_000_000_000_000


def seen(page: str | None, held: Held | None = None, **more: object) -> Snapshot:
    """A look at a page whose samples have their owners."""
    looks = Looks()
    snapshot = looks.snapshot(page, held, **more)  # type: ignore[arg-type]
    attribute = Attribution(snapshot.owners, looks.policy)
    joined = None if page is None else looks.joiner.join([page.encode()], attribute)
    return replace(snapshot, joined=joined, attribute=attribute)


class Pushes:
    """Pushes of one exporter."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.messages = Messages({"service.name": "gpus"}, "1")

    @property
    def kept(self) -> int:
        return self.messages.kept

    def pieces(self, snapshot: Snapshot, now_ns: int = NOW_NS) -> list[bytes]:
        metrics = at_once(self.metrics.work_for(snapshot, moment=now_ns / 1e9, now_ns=now_ns))
        return [at_once(work) for work in self.messages.pieces(metrics, now_ns)]


def pushed(snapshot: Snapshot, pushes: Pushes | None = None, now_ns: int = NOW_NS) -> list[Point]:
    """The points that a receiver finds in the pieces of a push."""
    pieces = (pushes or Pushes()).pieces(snapshot, now_ns)
    return list(points_in(ExportMetricsServiceRequest.FromString(b"".join(pieces))))


def values(points: Sequence[Point], name: str, by: str = "hw.id") -> dict[str, float]:
    return {point.attributes.get(by, ""): point.value for point in points if point.name == name}


# issue 17, Must show 3
@pytest.mark.parametrize("name", INSTRUMENTS)
def test_name_kind_and_unit_are_those_of_the_conventions(name: str) -> None:
    facts, instrument = FACTS["metrics"][name], INSTRUMENTS[name]
    assert (instrument.kind, instrument.unit) == (facts["instrument"], facts["unit"])
    assert instrument.is_whole is (facts["value"] == "int")


# issue 17, Must show 3
@pytest.mark.parametrize("of", {field.otel for field in OTEL.values() if field.otel})
def test_a_fields_attribute_is_one_of_the_conventions(of: tuple[str, str, str]) -> None:
    metric, name, text = of
    assert metric in INSTRUMENTS
    assert not name or name in FACTS["metrics"][metric]["attributes"]
    # a sensor's place is free text there
    assert not name or name == "hw.sensor_location" or text in FACTS["values"][name]


def test_every_row_with_a_metric_is_read_by_all_its_names() -> None:
    for of in TABLE:
        if of.otel:
            assert {of.family, of.newer_family} <= OTEL.keys()


def test_the_accounts_have_names_of_their_own_and_units() -> None:
    assert {instrument.name: instrument.unit for instrument in ACCOUNTED.values()} == {
        "pod_gpu.allocated": "s",
        "pod_gpu.active": "s",
        "pod_gpu.observed": "s",
        "pod_gpu.idle": "s",
        "pod_gpu.idle_unknown": "s",
        "pod_gpu.energy": "J",
        "pod_gpu.xid_errors": "{error}",
        "pod_gpu.suspected_out_of_memory": "{end}",
        "pod_gpu.throttled": "s",
        "pod_gpu.link_errors": "{error}",
    }
    assert len(ACCOUNTED) == sum(len(amount.families) for amount in AMOUNTS)


@pytest.mark.parametrize(
    ("family", "text", "name", "value"),
    [
        (BUSY, "0.57", "hw.gpu.utilization", 0.57),
        ("DCGM_FI_DEV_GPU_UTIL", "57", "hw.gpu.utilization", 0.57),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", "0.57", "hw.gpu.utilization", 0.57),
        ("DCGM_FI_DEV_ENC_UTIL", "7", "hw.gpu.utilization", 0.07),
        (USED, "71680", "hw.gpu.memory.usage", 75161927680),
        (USED, "0.3", "hw.gpu.memory.usage", 314573),
        ("DCGM_FI_DEV_FB_USED_BYTES", "75161927680", "hw.gpu.memory.usage", 75161927680),
        (TOTAL, "81559", "hw.gpu.memory.limit", 85520809984),
        ("DCGM_FI_DEV_GPU_TEMP", "41", "hw.temperature", 41),
        ("dcgm_gpu_temp", "41", "hw.temperature", 41),
        ("DCGM_FI_DEV_POWER_USAGE", "69.123", "hw.power", 69.123),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "549044853321", "hw.energy", 549044853.321),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", "549044853.321", "hw.energy", 549044853.321),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "3", "hw.errors", 3),
    ],
)
def test_a_sample_is_a_point_in_the_conventions_unit(family: str, text: str, name: str, value: float) -> None:
    (point,) = (point for point in pushed(seen(row(family, text))) if point.name == name)
    facts = FACTS["metrics"][name]
    assert (point.value, point.unit, point.kind) == (value, facts["unit"], facts["instrument"])
    # a sum that is seen for the first time counts from now on
    assert (point.at_ns, point.began_ns) == (NOW_NS, 0 if point.kind == "gauge" else NOW_NS)


def begins(points: Sequence[Point], name: str) -> set[tuple[float, int]]:
    """Value and start of a metric's points, the start in seconds since NOW_NS."""
    return {(point.value, (point.began_ns - NOW_NS) // SECOND) for point in points if point.name == name}


# issue 22, line 31
def test_a_sum_begins_when_it_was_seen_first() -> None:
    pushes = Pushes()
    sums = ("hw.energy", "hw.gpu.memory.usage", "hw.gpu.memory.limit", "hw.errors")
    for seconds, value in enumerate(("5", "7", "7", "9")):
        page = "".join(row(family, value) for family in (ENERGY, USED, TOTAL, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"))
        points = pushed(seen(page, WHOLE), pushes, NOW_NS + seconds * SECOND)
        for name in sums:
            assert {start for _, start in begins(points, name)} == {0}, name
    assert not any(point.began_ns for point in points if point.kind == "gauge")


# issue 22, line 31
def test_a_counter_that_begins_anew_has_begun_after_it_was_seen_last() -> None:
    pushes = Pushes()
    found: list[tuple[float, int]] = []
    for seconds, value in enumerate(("5000", "9000", "1000", "2000")):
        points = pushed(seen(row(ENERGY, value) + row(USED, value), WHOLE), pushes, NOW_NS + 10 * seconds * SECOND)
        assert {start for _, start in begins(points, "hw.gpu.memory.usage")} == {0}, "it may fall"
        found += begins(points, "hw.energy")
    assert found == [(5, 0), (9, 0), (1, 10), (2, 10)]


# issue 22, line 31
def test_another_container_s_sum_is_another_one() -> None:
    pushes = Pushes()
    for seconds, pod in enumerate(("train", "next", "next", "train")):
        points = pushed(seen(row(ENERGY, "5000"), {pod: WHOLE["train"]}), pushes, NOW_NS + seconds * SECOND)
        assert begins(points, "hw.energy") == {(5, {0: 0, 1: 1, 2: 1, 3: 3}[seconds])}


# issue 22, line 31
def test_a_sum_does_not_begin_after_its_moment_where_the_clock_goes_back() -> None:
    pushes = Pushes()
    pushed(seen(row(ENERGY, "5000")), pushes)
    assert begins(pushed(seen(row(ENERGY, "6000")), pushes, NOW_NS - SECOND), "hw.energy") == {(6, -1)}


# issue 22, line 39
def test_a_message_says_which_conventions_it_keeps_to() -> None:
    page = "".join(row(family, "5", gpu) for family in (BUSY, USED, TOTAL) for gpu in range(1000))
    request = ExportMetricsServiceRequest.FromString(b"".join(Pushes().pieces(seen(page))))
    urls = [(of.schema_url, {scope.schema_url for scope in of.scope_metrics}) for of in request.resource_metrics]
    assert len(urls) > 1
    assert all(of == (FACTS["schema_url"], {FACTS["schema_url"]}) for of in urls)


@pytest.mark.parametrize("text", ["NaN", "+Inf", "9223372036854775794", "140737488355328"])
def test_a_value_that_nobody_measured_is_no_point(text: str) -> None:
    assert [point for point in pushed(seen(row(USED, text))) if point.name.startswith("hw.")] == []


def test_the_share_of_memory_is_there_where_both_are() -> None:
    points = pushed(seen(row(USED, "20", 0) + row(TOTAL, "80", 0) + row(USED, "20", 1) + row(TOTAL, "0", 2)))
    assert values(points, "hw.gpu.memory.utilization") == {GPU(0): 0.25}


def test_the_activity_counts_before_the_utilization() -> None:
    points = pushed(seen(row("DCGM_FI_DEV_GPU_UTIL", "90") + row(BUSY, "0.5") + row("DCGM_FI_DEV_GPU_UTIL", "80", 1)))
    assert values(points, "hw.gpu.utilization") == {GPU(0): 0.5, GPU(1): 0.8}


def test_two_generations_of_one_gpu_are_one_point() -> None:
    points = pushed(seen(row(USED, "1") + row("DCGM_FI_DEV_FB_USED_BYTES", "1048577")))
    assert values(points, "hw.gpu.memory.usage") == {GPU(0): 1048576}
    assert len({point.key for point in points}) == len(points)


def reason(code: str, verdict: Verdict) -> HealthReason:
    return HealthReason(code, "text", "remedy", verdict)


def with_verdicts(snapshot: Snapshot, *of_gpus: DeviceVerdict) -> Snapshot:
    """The look with a verdict of each GPU, by number."""
    return replace(snapshot, verdicts={DeviceKey(uuid=GPU(gpu)): each for gpu, each in enumerate(of_gpus)})


RESET, REMAPPED = reason("xid", "failing"), reason("row-remap-failed", "failing")


# issue 22, line 39
@pytest.mark.parametrize(
    ("verdict", "state"),
    [
        (verdict_by(()), "ok"),
        (verdict_by([reason("row-remap-pending", "degraded")]), "degraded"),
        (verdict_by([RESET]), "failed"),
        (verdict_by([reason("fell-off-bus", "gone"), REMAPPED]), "failed"),
        # it works, and is to be replaced
        (verdict_by([REMAPPED, reason("hot", "degraded")]), "predicted_failure"),
        (verdict_by([REMAPPED, RESET]), "failed"),
    ],
)
def test_a_gpu_is_in_one_state(verdict: DeviceVerdict, state: str) -> None:
    points = pushed(with_verdicts(seen(row(BUSY, "1"), WHOLE), verdict))
    states = values(points, "hw.status", "hw.state")
    assert states.keys() <= set(FACTS["values"]["hw.state"])
    assert {name for name, value in states.items() if value} == {state}
    assert len(states) == 4
    assert {point.attributes["k8s.pod.name"] for point in points if point.name == "hw.status"} == {"train"}


def test_a_gpu_of_which_nobody_can_say_how_it_is_has_no_state() -> None:
    unread = verdict_by([reason("unread", "unknown")])
    assert values(pushed(with_verdicts(seen(row(BUSY, "1")), unread)), "hw.status") == {}
    assert values(pushed(seen(row(BUSY, "1"))), "hw.status") == {}


# issue 22, line 39
def test_a_gpu_that_is_lost_has_failed_and_is_the_same_as_before() -> None:
    pushes, both, lost = Pushes(), row(BUSY, "1", 0) + row(BUSY, "1", 1), verdict_by([reason("nvml-lost", "gone")])
    held = {"train": [("nvidia.com/gpu", GPU(1))]}
    well = pushed(with_verdicts(seen(both, held), verdict_by(()), verdict_by(())), pushes)
    ill = pushed(with_verdicts(seen(row(BUSY, "1", 0), held), verdict_by(()), lost), pushes, NOW_NS + SECOND)

    def states(points: Sequence[Point]) -> set[tuple[str, str]]:
        stated = [point for point in points if point.name == "hw.status" and point.value]
        return {(point.attributes["hw.id"], point.attributes["hw.state"]) for point in stated}

    assert states(well) == {(GPU(0), "ok"), (GPU(1), "ok")}
    assert states(ill) == {(GPU(0), "ok"), (GPU(1), "failed")}
    series = [{point.key: point for point in points if point.name == "hw.status"} for points in (well, ill)]
    assert series[0].keys() == series[1].keys()
    for key, point in series[1].items():
        assert point.attributes == series[0][key].attributes
        assert point.began_ns == NOW_NS


def test_a_gpu_that_only_the_log_knows_has_failed() -> None:
    (point,) = (
        point
        for point in pushed(with_verdicts(seen(None), verdict_by([reason("fell-off-bus", "gone")])))
        if point.value
    )
    assert point.attributes == {"hw.id": GPU(0), "hw.vendor": "NVIDIA", "hw.type": "gpu", "hw.state": "failed"}


def test_a_point_says_its_device_and_its_container() -> None:
    snapshot = seen(row(BUSY, "1"), WHOLE, workloads={"train": "big"})
    (point,) = (point for point in pushed(snapshot) if point.name == "hw.gpu.utilization")
    assert point.attributes == {
        "hw.gpu.task": "general",
        "hw.id": GPU(0),
        "hw.name": "nvidia0",
        "hw.model": "NVIDIA H100 80GB HBM3",
        "hw.vendor": "NVIDIA",
        "hw.type": "gpu",
        "k8s.namespace.name": "ns-train",
        "k8s.pod.name": "train",
        "k8s.container.name": "main",
        "k8s.deployment.name": "big",
    }


# issue 22, line 39
@pytest.mark.parametrize(
    ("labels", "driver", "serial"),
    [
        ({"DCGM_FI_DRIVER_VERSION": "580.105.08", "DCGM_FI_DEV_SERIAL": "165"}, "580.105.08", "165"),
        ({"DCGM_FI_SYSTEM_DRIVER_VERSION": "590.1", "DCGM_FI_DEV_BOARD_SERIAL": "165"}, "590.1", "165"),
        ({}, "570.86", "77"),  # by the driver itself, and by NVML
    ],
)
def test_a_point_says_the_driver_and_the_serial_number(labels: dict[str, str], driver: str, serial: str) -> None:
    gpus = (InventoryGpu(uuid=GPU(0), serial="77", mig=(MigInstance(uuid="MIG-1", instance_id="7"),)),)
    snapshot = replace(
        seen(row(BUSY, "1", 0, **labels) + row(BUSY, "1", 0, "7", "1g.10gb", **labels)),
        host=Host(driver_version="570.86", kernel="6.8.0", architecture="x86_64"),
        inventory=Inventory(gpus=gpus),
    )
    points = pushed(snapshot)
    assert len({point.attributes["hw.id"] for point in points}) == 2
    named = {(point.attributes["hw.driver_version"], point.attributes["hw.serial_number"]) for point in points}
    assert named == {(driver, serial)}


# issue 22, line 39
def test_nvidia_s_driver_is_not_that_of_others() -> None:
    host = Host(driver_version="570.86", kernel="6.8.0", architecture="x86_64")
    page = f'{BUSY}{{gpu="0",UUID="card0",modelName="Arc"}} 1\n'
    (point,) = pushed(replace(seen(page), host=host))
    assert "hw.driver_version" not in point.attributes


def test_a_mig_instance_names_its_gpu_as_its_parent() -> None:
    page = row(BUSY, "0.5", 0, "7", "1g.10gb") + row(BUSY, "0.25", 0, "8", "1g.10gb")
    points = pushed(seen(page))
    assert values(points, "hw.gpu.utilization") == {f"{GPU(0)}/7": 0.5, f"{GPU(0)}/8": 0.25}
    assert {point.attributes["hw.parent"] for point in points} == {GPU(0)}
    assert {point.attributes["hw.name"] for point in points} == {"nvidia0 1g.10gb"}


def accounted(*rows: Account) -> Snapshot:
    return replace(seen(None), accounts=Accounts(rows=rows))


def account(pod: str | None, began_ns: int | None, /, **amounts: int) -> Account:
    holder = owner(pod) if pod else None
    labels = (("pod_uid", "u-1"), ("label_team", "red"), ("workload_name", "big")) if pod else ()
    return Account(holder, DeviceKey(uuid=GPU(0)), labels, 1.0 if pod else None, amounts, {}, began_ns)


def test_an_account_has_its_begin_and_its_sum() -> None:
    points = pushed(
        accounted(account("train", 1_700_000_000_000_000_001, allocated_ns=5_250_000_000), account(None, None))
    )
    allocated = next(point for point in points if point.name == "pod_gpu.allocated")
    assert (allocated.value, allocated.kind, allocated.unit) == (5.25, "counter", "s")
    assert (allocated.began_ns, allocated.at_ns) == (1_700_000_000_000_000_001, NOW_NS)
    assert allocated.attributes["k8s.pod.uid"] == "u-1"
    assert allocated.attributes["k8s.pod.label.team"] == "red"
    assert set(allocated.attributes) - set(FACTS["k8s"]) == {"hw.id", "hw.vendor", "hw.type", "k8s.pod.label.team"}


def test_what_is_counted_by_a_label_has_it_as_an_attribute() -> None:
    of = account("train", 7)._replace(by_label={"xids": {"79": 2, "31": 1}})
    assert values(pushed(accounted(of)), "pod_gpu.xid_errors", "error.type") == {"79": 2, "31": 1}


def test_an_account_whose_begin_changes_is_laid_out_once() -> None:
    pushes = Pushes()
    pushed(accounted(account("train", 5, allocated_ns=1)), pushes)
    (point,) = (
        point
        for point in pushed(accounted(account("train", None, allocated_ns=2)), pushes)
        if point.name == "pod_gpu.allocated"
    )
    assert (point.value, point.began_ns) == (2e-9, NOW_NS)


def test_a_rate_of_bytes_adds_up_to_a_counter() -> None:
    rates, pushes = ("1000", "500", "0", "250"), Pushes()
    seen_by = [
        (value.value, value.began_ns, value.attributes["network.io.direction"])
        for number, rate in enumerate(rates)
        for value in pushed(seen(row("DCGM_FI_PROF_PCIE_TX_BYTES", rate), WHOLE), pushes, NOW_NS + number * 10 * SECOND)
    ]
    assert seen_by == [(total, NOW_NS, "transmit") for total in (0, 5000, 5000, 7500)]


def test_a_rate_of_another_container_begins_anew() -> None:
    pushes, page = Pushes(), row("DCGM_FI_PROF_PCIE_RX_BYTES", "1000")
    for number, held in enumerate((WHOLE, WHOLE, {"next": WHOLE["train"]}, {"next": WHOLE["train"]}, WHOLE)):
        points = pushed(seen(page, held), pushes, NOW_NS + number * SECOND)
    assert [(point.value, point.began_ns) for point in points] == [(0, NOW_NS + 4 * SECOND)]


def test_the_next_push_has_new_values_in_the_same_places() -> None:
    pushes = Pushes()
    first = pushed(seen(row(BUSY, "0.5") + row(USED, "7"), WHOLE), pushes)
    second = pushed(seen(row(BUSY, "0.25") + row(USED, "8"), WHOLE), pushes, NOW_NS + 1)
    assert [point.key for point in first] == [point.key for point in second]
    assert values(second, "hw.gpu.utilization") == {GPU(0): 0.25}
    assert {point.at_ns for point in second} == {NOW_NS + 1}


def test_after_pods_have_changed_only_those_of_now_are_there() -> None:
    pushes = Pushes()
    pushed(seen(row(BUSY, "0.5"), WHOLE), pushes)
    points = pushed(seen(row(BUSY, "0.5"), {"next": WHOLE["train"]}), pushes)
    assert {point.attributes["k8s.pod.name"] for point in points} == {"next"}
    assert pushes.kept == len(points)


def test_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 2000
    monkeypatch.setattr(messages, "MOST_POINTS_KEPT", most)
    pushes = Pushes()
    page = "".join(row(family, "5", gpu) for family in OTEL if family.startswith("DCGM_") for gpu in range(200))
    points = pushed(seen(page), pushes)
    assert len(points) > most >= pushes.kept > 0
    again = pushed(seen(page), pushes)
    assert [(point.key, point.value) for point in again] == [(point.key, point.value) for point in points]
    pushed(seen(row(BUSY, "1")), pushes)
    assert pushes.kept == 1


def test_a_large_node_is_several_pieces_of_one_message() -> None:
    page = "".join(row(family, "5", gpu) for family in (BUSY, USED, TOTAL) for gpu in range(1000))
    pushes = Pushes()
    snapshot = seen(page)
    pieces = pushes.pieces(snapshot)
    assert len(pieces) > 1
    request = ExportMetricsServiceRequest.FromString(b"".join(pieces))
    points = list(points_in(request))
    assert len({point.key for point in points}) == len(points) == 4000
    for of_resource in request.resource_metrics:
        assert [(pair.key, pair.value.string_value) for pair in of_resource.resource.attributes] == [
            ("service.name", "gpus")
        ]
    assert all(isclose(point.value, 1.0) for point in points if point.name == "hw.gpu.memory.utilization")


@pytest.mark.parametrize(
    ("body", "expected"),
    [(b"", PartialSuccess(0, "")), (b"\xff\xff", PartialSuccess(0, "")), (b"ok\n", PartialSuccess(0, ""))],
)
def test_an_answer_that_says_nothing_rejects_nothing(body: bytes, expected: PartialSuccess) -> None:
    assert partial_success(body) == expected


def test_a_refusal_is_read_as_a_status_or_as_text() -> None:
    # google.rpc.Status has its code and its message in these places
    status = ExportMetricsPartialSuccess(rejected_data_points=3, error_message="no such tenant").SerializeToString()
    assert refusal(status) == {"error": "no such tenant"}
    assert refusal(b"invalid temporality\n") == {"error": "invalid temporality\n"}
