"""Series of Prometheus → nodes, their devices and who holds them, and what is in the way."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.cluster.prometheus.collecting import MOST_ROWS, Collected
from exporter.cluster.prometheus.queries import PARTS, own, samples
from exporter.cluster.prometheus.query_answer import VectorSeries
from exporter.cluster.prometheus.targets import read_targets
from exporter.dcgm.fields import FIELDS
from exporter.errors import Malformed
from exporter.model.cluster_view import NodeView
from exporter.model.device_row import OwnUse, as_object
from exporter.model.slices import at_once
from tests.support.canned import NOW, Row, of_device, target

UTIL, POWER = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"
POD = ("pod", "namespace", "container")
LATELY = {"about": "lately"}


def series(rows: Sequence[Row]) -> list[VectorSeries]:
    return [VectorSeries(dict(labels), NOW, value) for labels, value in rows]


def nodes_of(
    targets: Sequence[Row],
    of_own: Sequence[Row] = (),
    of_samples: Sequence[Row] = (),
    names: tuple[str, str, str] = ("pod", "namespace", "container"),
) -> dict[str, NodeView]:
    collected = Collected(read_targets(series(targets), NOW, 30.0), names)
    for row in series(of_own):
        collected.take_own(row)
    for row in series(of_samples):
        collected.take_sample(row)
    return at_once(collected.views())


def rows_of(node: NodeView) -> list[dict[str, Any]]:
    assert node.trouble is None
    return [json.loads(held.text) for held in node.devices]


def short(node: NodeView) -> list[tuple[str, str, float | None]]:
    return [(row["device_uuid"], row["pod"], row["gpu_utilization"]) for row in rows_of(node)]


def test_a_device_and_its_container() -> None:
    found = nodes_of(
        target(),
        [
            (of_device("pod_gpu_info", pod="a", modelName="H100", queue="research"), "1"),
            (of_device("pod_gpu_device_owners", entity="gpu"), "1"),
            (of_device("pod_gpu_allocated_ratio", pod="a", workload_name="trainer", workload_kind="Job"), "1"),
            (of_device("pod_gpu_memory_used_bytes", pod="a"), "2097152"),
            (of_device("pod_gpu_utilization_ratio", pod="a"), "0.25"),
            (of_device("pod_gpu_device_verdict", pod="a", verdict="gone", reason="fell-off-bus"), "1"),
        ],
        [
            (of_device(UTIL, pod="a", pod_uid="u"), "57"),
            (of_device(POWER, pod="a", pod_uid="u"), "300.5"),
            (of_device("DCGM_FI_DEV_FB_USED", pod="a", pod_uid="u"), "NaN"),
            (of_device("DCGM_FI_DEV_SM_CLOCK", pod="a", pod_uid="u"), "9223372036854775794"),
        ],
    )["n1"]
    (held,) = found.devices
    expected = {
        "node_name": "n1",
        "device_uuid": "GPU-1",
        "device_id": "0",
        "model_name": "H100",
        "namespace": "ml",
        "pod": "a",
        "container": "main",
        "workload_name": "trainer",
        "workload_kind": "Job",
        "queue": "research",
        "gpu_shared": False,
        "gpu_utilization": 57,
        "power_usage": 300.5,
    }
    assert {name: getattr(held.row, name) for name in expected} == expected
    assert held.row.measured == OwnUse(memory_used_bytes=2097152, utilization_ratio=0.25)
    assert found.answered_at_seconds == NOW - 5
    (row,) = rows_of(found)
    assert row["measured"] == {"memory_used_bytes": 2097152, "utilization_ratio": 0.25}
    assert (row["health"], row["health_reasons"]) == ("gone", ["fell-off-bus"])
    assert (row["pod_uid"], row["entity"], row["framebuffer_used"], row["sm_clock"]) == ("u", "gpu", None, None)
    assert row["timestamp"] == "2023-11-14T22:13:15.000Z"
    assert {field.json for field in FIELDS.values() if field.json} <= row.keys()


# issue 22, line 7
@pytest.mark.parametrize(("xid", "last"), [(154, None), (43, None), (0, None), (79, 79), (999, 999)])
def test_an_xid_that_only_informs_is_not_the_last_one(xid: int, last: int | None) -> None:
    found = nodes_of(target(), (), [(of_device("DCGM_FI_DEV_XID_ERRORS", pod="a"), f"{xid}")])["n1"]
    assert [(row["xid_errors"], row["last_xid"]) for row in rows_of(found)] == [(xid, last)]


# issue 18, line 4
@pytest.mark.parametrize(("memory", "state"), [("2147483648", "outside"), ("5", "free")])
def test_a_container_that_uses_a_device_without_holding_it(memory: str, state: str) -> None:
    found = nodes_of(
        target(),
        [
            (of_device("pod_gpu_device_owners", entity="gpu"), "0"),
            (of_device("pod_gpu_device_owners", "GPU-2", entity="gpu"), "0"),
            (of_device("pod_gpu_memory_used_bytes", pod="a", holds="false"), memory),
            (of_device("pod_gpu_processes", pod="a", holds="false"), "2"),
        ],
        [(of_device(UTIL), "0"), (of_device(UTIL, "GPU-2"), "0")],
    )["n1"]
    used, other = rows_of(found)
    names = {"namespace": "ml", "pod": "a", "container": "main"}
    assert used["used_by"] == [{**names, "memory_used_bytes": int(memory), "processes": 2}]
    assert (used["pod"], used["state"]) == ("", state)
    assert "measured" not in used
    assert "used_by" not in other


# issue 28, churn-free series
@pytest.mark.parametrize("mark", [{"samples": "without_owners"}, {}])
def test_samples_that_name_no_owner_are_the_holders_where_the_info_says_so(mark: dict[str, str]) -> None:
    own = [(of_device("pod_gpu_info", pod=pod, gpu_shared="true", pod_uid=f"u-{pod}", **mark), "1") for pod in "ab"]
    sampled = [(of_device(UTIL, uuid), value) for uuid, value in (("GPU-1", "57"), ("GPU-2", "3"))]
    # the samples are newer than the info: without the mark they say that nobody holds the device any more
    newer = [*target(pages=["/gpu/metrics"], age=1), *target(pages=["/metrics"], age=9)]
    found = nodes_of(newer, own, sampled)["n1"]
    assert short(found) == (
        [("GPU-1", "a", 57), ("GPU-1", "b", 57), ("GPU-2", "", 3)] if mark else [("GPU-1", "", 57), ("GPU-2", "", 3)]
    )
    assert [row.get("pod_uid", "") for row in rows_of(found)][:-1] == (["u-a", "u-b"] if mark else [""])
    assert found.devices[0].row.gpu_shared is bool(mark)


@pytest.mark.parametrize(("up", "pod", "is_missing"), [("0", "", True), ("0", "a", False), ("1", "", False)])
def test_a_node_without_its_kubelets_word_does_not_look_idle(up: str, pod: str, is_missing: bool) -> None:
    own = [(of_device("pod_gpu_exporter_source_up", source="kubelet"), up)]
    found = nodes_of(target(), own, [(of_device(UTIL, **({"pod": pod} if pod else {})), "57")])["n1"]
    assert found.is_missing is is_missing
    assert bool(found.devices) is not is_missing


# issue 15, line 23
@pytest.mark.parametrize(
    ("reason", "whole", "instance"),
    [
        ("mig_unresolved", "free", "unknown"),
        ("unknown_id", "unknown", "unknown"),
        ("no_sample", "free", "free"),
    ],
)
def test_what_the_node_calls_unknown_is_not_called_free(reason: str, whole: str, instance: str) -> None:
    of_instance = of_device(UTIL, "GPU-2", GPU_I_ID="3", GPU_I_PROFILE="1g.10gb")
    found = nodes_of(
        target(),
        [(of_device("pod_gpu_exporter_unmatched_devices", "", reason=reason), "2")],
        [(of_device(UTIL), "0"), (of_instance, "0")],
    )["n1"]
    rows = {row["entity"]: row for row in rows_of(found)}
    assert {entity: row["state"] for entity, row in rows.items()} == {"gpu": whole, "mig": instance}
    assert bool(rows["mig"].get("state_reason")) is (instance == "unknown")
    assert [held.row.state for held in found.devices] == [row["state"] for row in rows.values()]


def test_the_names_of_dcgm_4_9_are_converted() -> None:
    found = nodes_of(target(), (), [(of_device("DCGM_FI_DEV_GPU_UTIL_RATIO"), "0.57")])["n1"]
    assert short(found) == [("GPU-1", "", 57)]


def test_the_older_of_two_names_of_one_measurement_counts() -> None:
    both = [(of_device("DCGM_FI_DEV_GPU_UTIL_RATIO"), "0.1"), (of_device(UTIL), "20")]
    for order in (both, both[::-1]):
        assert short(nodes_of(target(), (), order)["n1"]) == [("GPU-1", "", 20)]
    assert short(nodes_of(target(), (), [*both, (of_device(UTIL, Hostname="x"), "30")])["n1"]) == [("GPU-1", "", 30)]


@pytest.mark.parametrize("exporters_own", [{}, {"pod": "exporter-x", "namespace": "ml", "container": "exporter"}])
def test_whose_it_is_with_and_without_honor_labels(exporters_own: dict[str, str]) -> None:
    """Without it, the target's labels stay on every sample, and the owner's have another name where they clash."""
    of_target = [({**labels, **exporters_own}, value) for labels, value in target()]
    honored = [(of_device(UTIL, pod="a"), "1"), (of_device(UTIL, "GPU-2"), "2")]
    assert short(nodes_of(of_target, (), honored)["n1"]) == [("GPU-1", "a", 1), ("GPU-2", "", 2)]
    before = "exported_" if exporters_own else ""
    owner = {f"{before}pod": "a", f"{before}namespace": "web", f"{before}container": "main"}
    clashing = [
        (of_device(UTIL, **exporters_own, **owner), "1"),
        (of_device(UTIL, "GPU-2", **exporters_own), "2"),
    ]
    found = nodes_of(of_target, [(of_device("pod_gpu_info", "GPU-2", **exporters_own, **owner), "1")], clashing)["n1"]
    assert [(row["device_uuid"], row["namespace"], row["pod"], row["container"]) for row in rows_of(found)] == [
        ("GPU-1", "web", "a", "main"),
        ("GPU-2", "", "", ""),
        ("GPU-2", "web", "a", "main"),
    ]


def test_a_target_with_a_namespace_alone() -> None:
    of_target = target(namespace="gpu")
    row = of_device(UTIL, namespace="gpu", exported_namespace="ml", container="main")
    found = nodes_of(of_target, (), [({**row, "pod": "a"}, "1"), (of_device(UTIL, "GPU-2", namespace="gpu"), "2")])[
        "n1"
    ]
    assert [(row["namespace"], row["pod"]) for row in rows_of(found)] == [("ml", "a"), ("", "")]


def test_other_names_of_the_owners_labels() -> None:
    names = ("pod_name", "pod_namespace", "container_name")
    labels = dict(zip(names, ("a", "ml", "main"), strict=True))
    of_target = target(pod="exporter-x", namespace="gpu", container="exporter")
    exporters_own = {"pod": "exporter-x", "namespace": "gpu", "container": "exporter"}
    found = nodes_of(of_target, (), [(of_device(UTIL, **exporters_own, **labels), "1")], names)["n1"]
    assert short(found) == [("GPU-1", "a", 1)]
    assert "exported_pod_name, pod_namespace, exported_pod_namespace" in samples("", names)[0]


def test_two_pages_of_two_moments() -> None:
    info = [(of_device("pod_gpu_info", pod="old"), "1")]
    sampled = [(of_device(UTIL, pod="new"), "7")]
    newer = [*target(pages=["/gpu/metrics"], age=1), *target(pages=["/metrics"], age=9)]
    assert short(nodes_of(newer, info, sampled)["n1"]) == [("GPU-1", "new", 7)], "old has let go of it"
    older = [*target(pages=["/gpu/metrics"], age=9), *target(pages=["/metrics"], age=1)]
    assert short(nodes_of(older, info, sampled)["n1"]) == [("GPU-1", "new", 7), ("GPU-1", "old", None)]
    # one that has just got it has no value yet, and that of nobody's device is not lost
    assert short(nodes_of(older, info, [(of_device(UTIL), "7")])["n1"]) == [("GPU-1", "", 7), ("GPU-1", "old", None)]
    assert short(nodes_of(newer, info, [])["n1"]) == [("GPU-1", "old", None)], "no sample speaks of the device"
    assert nodes_of(older, info)["n1"].answered_at_seconds == NOW - 9


def test_a_shared_device() -> None:
    by_label = [(of_device(UTIL, pod=pod, gpu_shared="true"), "9") for pod in "ab"]
    assert [held.row.gpu_shared for held in nodes_of(target(), (), by_label)["n1"].devices] == [True, True]
    by_count = [(of_device("pod_gpu_info", pod=pod), "1") for pod in "ab"]
    by_count.append((of_device("pod_gpu_device_owners"), "2"))
    assert [held.row.gpu_shared for held in nodes_of(target(), by_count)["n1"].devices] == [True, True]


# issue 15, line 27
@pytest.mark.parametrize("turn", [1, -1], ids=["the bare series first", "the bare series last"])
def test_what_any_series_of_a_device_tells_of_it_is_kept(turn: int) -> None:
    bare = {"gpu": "", "device": "", "GPU_I_ID": "3"}
    full = {"modelName": "H100", "GPU_I_ID": "3", "GPU_I_PROFILE": "1g.10gb"}
    of_own = [(of_device("pod_gpu_info", pod="a", **labels), "1") for labels in (bare, full)]
    (held,) = (held for held in rows_of(nodes_of(target(), of_own[::turn])["n1"]) if held["entity"] == "mig")
    assert [held[name] for name in ("device_id", "device", "model_name", "mig_profile")] == [
        "0", "nvidia0", "H100", "1g.10gb",
    ]  # fmt: skip


def test_a_gpu_in_instances() -> None:
    instance = {"GPU_I_ID": "3", "GPU_I_PROFILE": "1g.10gb"}
    found = nodes_of(
        target(),
        [
            (of_device("pod_gpu_info", pod="a", **instance), "1"),
            (of_device("pod_gpu_device_owners", entity="mig-parent"), "0"),
        ],
        [(of_device("DCGM_FI_PROF_GR_ENGINE_ACTIVE", pod="a", **instance), "0.5")],
    )["n1"]
    rows = [(row["entity"], row.get("mig_instance_id"), row.get("mig_profile"), row["pod"]) for row in rows_of(found)]
    assert rows == [("mig-parent", None, None, ""), ("mig", "3", "1g.10gb", "a")]
    assert [held.row.row_device[1:] for held in found.devices] == [("GPU-1", ""), ("GPU-1", "3")]


def test_what_is_no_device_is_left_out() -> None:
    others = [({"__name__": UTIL, "instance": "n1:9400", "cpu": "0"}, "1"), (of_device(UTIL, node="elsewhere"), "1")]
    assert nodes_of(target(), [(of_device("pod_gpu_info", node="elsewhere", pod="a"), "1")], others)["n1"].devices == ()


def test_a_device_without_a_uuid_goes_by_its_name() -> None:
    nameless = {"UUID": "", "gpu": "3", "device": "nvidia3"}
    own_rows = [
        ({**of_device("pod_gpu_info", pod="a"), **nameless}, "1"),
        ({**of_device("pod_gpu_device_owners"), "UUID": "nvidia3", "gpu": "3", "device": ""}, "1"),
        ({**of_device("pod_gpu_device_owners"), "UUID": "nvidia4", "gpu": "4", "device": ""}, "0"),
    ]
    found = nodes_of(target(), own_rows, [({**of_device(UTIL, pod="a"), **nameless}, "5")])["n1"]
    rows = [(row["device_uuid"], row["device"], row["device_id"], row["pod"]) for row in rows_of(found)]
    assert rows == [("", "nvidia3", "3", "a"), ("", "nvidia4", "4", "")]
    assert [held.row.row_device[1] for held in found.devices] == ["nvidia3", "nvidia4"]


@pytest.mark.parametrize(
    ("targets", "reason", "says"),
    [
        (target(up="0"), "unreachable", "could not scrape its /gpu/metrics"),
        (target(up="NaN"), "unreachable", "could not scrape"),
        (target(pages=["/gpu/metrics"]), "missing", "does not scrape its /metrics"),
        ([*target(pages=["/gpu/metrics"]), *target(pages=["/metrics"], instance="b:1")], "missing", "its /metrics"),
        ([*target(pages=["/gpu/metrics"]), *target(pages=["/metrics"], up="0")], "unreachable", "its /metrics"),
        (target() + target(instance="b:1"), "garbage", "n1:9400"),
        (target() + target(cluster="b"), "garbage", "n1:9400 of cluster b"),
        ([({**LATELY, "node": "n1"}, "1")], "missing", "no target of Prometheus any more"),
    ],
)
def test_a_node_that_is_missing(targets: Sequence[Row], reason: str, says: str) -> None:
    found = nodes_of([*targets, *target("ok")])
    assert found["n1"].trouble
    assert (found["n1"].trouble.reason, found["ok"].trouble) == (reason, None)
    assert says in found["n1"].trouble.message
    assert found["n1"].trouble.remedy


def test_a_pod_that_was_replaced_counts_by_its_new_target() -> None:
    for old in (target(instance="old:1", age=100), target(instance="old:1", up="0", age=1)):
        targets = [*old, *target(), ({**LATELY, "node": "n1"}, "1")]
        for order in (targets, targets[::-1]):
            found = nodes_of(order, (), [(of_device(UTIL), "1"), ({**of_device(UTIL), "instance": "old:1"}, "2")])
            assert short(found["n1"]) == [("GPU-1", "", 1)]


def test_two_servers_that_scrape_one_target_are_one() -> None:
    pair = [*target(replica="a", up="0", age=40), *target(replica="b", age=3)]
    assert nodes_of(pair)["n1"].answered_at_seconds == NOW - 3
    pair = [*target(replica="a", age=20), *target(replica="b", age=3), *target(replica="c", age=9)]
    assert nodes_of(pair)["n1"].answered_at_seconds == NOW - 3
    # the one that came through is dead, and the other one does not: nobody knows anything of now
    pair = [*target(replica="a", up="0", age=1), *target(replica="b", age=28)]
    for order in (pair, pair[::-1]):
        assert nodes_of(order)["n1"].answered_at_seconds == NOW - 28


def test_two_nodes_at_one_address() -> None:
    """Two clusters whose pods have the same networks: series of the one cannot be told from the other's."""
    targets = [*target("n1", instance="10.0.0.1:9400"), *target("n2", instance="10.0.0.1:9400", cluster="b")]
    found = nodes_of(targets, (), [({**of_device(UTIL), "instance": "10.0.0.1:9400"}, "1")])
    assert [node.trouble.reason for node in found.values() if node.trouble] == ["garbage", "garbage"]


@pytest.mark.parametrize("node", ["", "a\nb"])
def test_a_target_without_a_node_is_a_missing_node_and_costs_no_other(node: str) -> None:
    nameless = [({**labels, "node": node, "instance": "a:1"}, value) for labels, value in target()]
    found = nodes_of([*nameless, *target("ok"), ({**LATELY, "node": node}, "1")])
    assert list(found) == ["'a:1'", "ok"]
    assert found["ok"].trouble is None
    assert found["'a:1'"].trouble
    assert "has no label node" in found["'a:1'"].trouble.message


def test_what_was_not_asked_of_a_target() -> None:
    with pytest.raises(Malformed, match="not asked"):
        nodes_of([({"metrics_path": "/gpu/metrics", "instance": "a:1", "node": "n"}, "1")])
    with pytest.raises(Malformed, match="not asked"):
        nodes_of([({"node": "n", "about": "scraped"}, "NaN")])


def test_a_node_with_too_many_devices_costs_only_itself() -> None:
    many = [(of_device(UTIL, f"GPU-{number}"), "1") for number in range(MOST_ROWS + 20)]
    found = nodes_of([*target(), *target("ok")], (), [*many, (of_device(UTIL, node="ok"), "1")])
    assert found["n1"].trouble
    assert found["n1"].trouble.reason == "oversize"
    assert short(found["ok"]) == [("GPU-1", "", 1)]
    assert list(found) == ["n1", "ok"]


@pytest.mark.parametrize("name", ["up", "", "DCGM_FI_DRIVER_VERSION"])
def test_what_was_not_asked_for(name: str) -> None:
    with pytest.raises(Malformed, match="not asked for"):
        nodes_of(target(), [(of_device(name), "1")])
    with pytest.raises(Malformed, match="not asked for"):
        nodes_of(target(), (), [(of_device(name), "1")])


def test_every_family_of_a_field_is_asked_for_once_and_narrowed() -> None:
    texts = samples('cluster="a"', POD)
    assert len(texts) == PARTS
    asked = [name for text in texts for name in text.partition('__name__=~"')[2].partition('"')[0].split("|")]
    assert sorted(asked) == sorted(name for name, field in FIELDS.items() if field.json)
    assert all(text.endswith(',metrics_path="/gpu/metrics",cluster="a"})') for text in texts)
    assert own("").endswith(',metrics_path="/metrics"})')


TEXTS = st.sampled_from(("", "a", "GPU-1", "n1:9400", "n1", "true", "0", "x" * 100, "é"))
LABELS = st.dictionaries(
    st.sampled_from(
        ("pod", "namespace", "exported_pod", "UUID", "gpu", "GPU_I_ID", "gpu_shared", "workload_name", "node")
    ),
    TEXTS,
)
VALUES = st.sampled_from(("0", "1", "NaN", "+Inf", "-Inf", "-1", "1e300", "1e-300", "5", "9" * 400))


@given(
    st.lists(
        st.tuples(st.sampled_from(("pod_gpu_info", "pod_gpu_device_owners", "pod_gpu_processes")), LABELS, VALUES)
    ),
    st.lists(st.tuples(st.sampled_from((UTIL, POWER, "DCGM_FI_DEV_SM_CLOCK_HERTZ")), LABELS, VALUES)),
)
def test_any_labels_and_values_become_rows(
    of_own: list[tuple[str, dict[str, str], str]], of_samples: list[tuple[str, dict[str, str], str]]
) -> None:
    """Whatever a server says of devices, every row can be written, is of one owner, and holds numbers alone."""

    def rows(given_rows: list[tuple[str, dict[str, str], str]]) -> list[Row]:
        return [({**labels, "__name__": name, "instance": "n1:9400"}, value) for name, labels, value in given_rows]

    found = nodes_of(target(), rows(of_own), rows(of_samples))["n1"]
    said = rows_of(found)
    for held, row in zip(found.devices, said, strict=True):
        assert as_object(held.row) == row
    keys = [(held.row.row_device, held.row.pod_name, held.row.container) for held in found.devices]
    assert len(set(keys)) == len(keys)
