"""What pods' requests tell of the devices of which a page names no pod: a holder only where no other way is left."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kubectl.gpu_requests import offered_by, pods_of, with_holders
from exporter.model.device_row import DeviceRow
from exporter.model.states import DeviceState

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
MIG = "nvidia.com/mig-1g.10gb"


def device(index: int, pod: str = "", *, profile: str = "", busy: bool = False, cut: bool = False) -> DeviceRow:
    state = DeviceState.FREE
    if pod:
        state = DeviceState.USED if busy else DeviceState.IDLE
    return DeviceRow(
        node_name="n",
        device_id=str(index),
        device_uuid=f"GPU-{index}",
        entity="mig-parent" if cut else "mig" if profile else "gpu",
        mig_profile=profile,
        mig_instance_id="7" if profile else "",
        namespace="ml" if pod else "",
        pod=pod,
        graphics_engine_active=0.9 if busy else 0.0,
        state=DeviceState.CUT if cut else state,
    )


def pod(name: str, *, phase: str = "Running", **more: Any) -> dict[str, Any]:
    """A pod; `limits` are those of its container main, by resource."""
    main = {"name": "main", "resources": {"limits": more.pop("limits", {})}}
    return {
        "metadata": {"namespace": "ml", "name": name, "annotations": more.pop("annotations", {})},
        "spec": {"containers": [main, {"name": "log"}], **more},
        "status": {"phase": phase},
    }


def asks(name: str, count: int, resource: str = GPU, **more: Any) -> dict[str, Any]:
    return pod(name, limits={resource: str(count), "cpu": "2"}, **more)


def placed(rows: Sequence[DeviceRow], pods: Sequence[Any], offered: Mapping[str, int] | None = None) -> list[str]:
    """Of each device the holder, else its state."""
    return [row.pod or str(row.state) for row in with_holders(rows, pods_of(pods), offered)]


GPUS = [device(0), device(1), device(2)]


@pytest.mark.parametrize(
    ("rows", "pods", "offered", "expected"),
    [
        (GPUS, [], None, ["free", "free", "free"]),
        ([device(0, busy=True)], [], None, ["outside"]),
        ([device(0)], [asks("a", 1)], None, ["a"]),
        (GPUS, [asks("a", 3)], {"gpu": 3}, ["a", "a", "a"]),
        (GPUS, [asks("a", 3)], None, ["unknown"] * 3),
        (GPUS, [asks("a", 3)], {"gpu": 12}, ["unknown"] * 3),
        (GPUS, [asks("a", 2)], {"gpu": 3}, ["unknown"] * 3),
        (GPUS, [asks("a", 2), asks("b", 1)], {"gpu": 3}, ["unknown"] * 3),
        (GPUS, [asks("a", 3, phase="Succeeded")], {"gpu": 3}, ["free"] * 3),
        ([device(0, "a"), *GPUS[1:]], [asks("a", 1)], {"gpu": 3}, ["a", "free", "free"]),
        ([device(0, "a"), *GPUS[1:]], [asks("a", 1), asks("b", 2)], {"gpu": 3}, ["a", "b", "b"]),
        ([device(0, "a"), *GPUS[1:]], [asks("a", 1), asks("b", 1)], {"gpu": 3}, ["a", "unknown", "unknown"]),
        ([device(0, "a"), *GPUS[1:]], [], {"gpu": 3}, ["unknown", "free", "free"]),
        ([device(0, "a")], [asks("b", 1)], None, ["b"]),
        ([device(0)], [asks("a", 1), asks("b", 1)], None, ["unknown"]),
        ([device(0, "a"), device(0, "b"), device(1)], [asks("a", 1), asks("b", 1)], {"gpu": 2}, ["a", "b", "free"]),
        ([device(0)], [asks("a", 1), asks("b", 1, SHARED)], None, ["unknown"]),
        ([device(0)], [asks("a", 1), pod("b", annotations={"gpu-fraction": "0.5"})], None, ["unknown"]),
        ([device(0)], [pod("a", resourceClaims=[{"name": "nic"}])], None, ["unknown"]),
        ([device(0)], [asks("a", 1, "nvidia.com/gpumem")], None, ["unknown"]),
        ([device(0, "a")], [asks("a", 1, SHARED), asks("b", 1, SHARED)], None, ["a"]),
        (
            [device(0), device(1, cut=True), device(1, profile="1g.10gb")],
            [asks("a", 1, MIG)],
            {"gpu": 1, "1g.10gb": 1},
            ["free", "cut", "a"],
        ),
        ([device(0, cut=True), device(0, profile="1g.10gb")], [asks("a", 1)], {"gpu": 1}, ["cut", "a"]),
    ],
)
def test_a_holder_is_named_only_where_no_other_way_is_left(
    rows: Sequence[DeviceRow], pods: Sequence[Any], offered: Mapping[str, int] | None, expected: list[str]
) -> None:
    assert placed(rows, pods, offered) == expected


def reason(rows: Sequence[DeviceRow], pods: Sequence[Any], offered: Mapping[str, int] | None = None) -> str:
    return with_holders(rows, pods_of(pods), offered)[0].state_reason


def test_the_reasons_name_the_candidates_and_what_is_missing() -> None:
    assert reason(GPUS, [asks("a", 2), asks("b", 1)]) == (
        "ml/a (2) and ml/b (1) ask for 3 of these 3 GPUs; which ones, only the kubelet on the node knows"
    )
    assert reason(GPUS, [asks("a", 3)]) == (
        "ml/a (3) asks for 3 of these 3 GPUs; you may not get the node, which says whether it shares GPUs"
    )
    assert reason(GPUS, [asks("a", 3)], {"gpu": 3}) == "ml/a asks for all 3 GPUs of the node, and nobody else does"
    assert (
        reason([device(0, "a")], [asks("a", 1, phase="Failed")])
        == "the page still names ml/a, which has ended (Failed)"
    )
    assert reason([device(0, "a")], []) == "the page still names ml/a, which is not on this node any more"
    assert reason([device(0, "a")], [asks("a", 1, SHARED), asks("b", 1, SHARED)]) == (
        "ml/b asks for GPUs in a way that no count shows: by nvidia.com/gpu.shared;"
        " of a shared GPU dcgm-exporter names one pod only"
    )
    candidates = with_holders(GPUS, pods_of([asks("a", 2), asks("b", 1)]), None)[0].unknown_fields["candidates"]
    assert [candidate["pod"] for candidate in candidates] == ["a", "b"]


@pytest.mark.parametrize(
    ("rows", "offered", "is_shared"),
    [
        ([device(0, "a")], None, True),  # two pods ask for the only GPU
        ([device(0, "a"), device(1)], {"gpu": 8}, True),  # the node gives out four shares of each
        ([device(0, "a"), device(1)], {"gpu": 2}, False),
    ],
)
def test_a_gpu_that_others_may_share_is_not_its_pods_alone(
    rows: Sequence[DeviceRow], offered: Mapping[str, int] | None, is_shared: bool
) -> None:
    made = with_holders(rows, pods_of([asks("a", 1), asks("b", 1)]), offered)[0]
    assert (made.pod, made.gpu_shared) == ("a", is_shared)
    assert made.state_reason.startswith("ml/b asks for GPUs in a way that no count shows") is is_shared


def test_without_the_right_to_list_pods_only_the_page_says_who_holds_what() -> None:
    assert [row.state for row in with_holders(GPUS, None, None)] == [DeviceState.UNKNOWN] * 3
    named = [device(0, "a"), *GPUS[1:]]
    assert with_holders(named, None, None) == named


def test_a_container_that_runs_before_others_hands_its_devices_on() -> None:
    def container(name: str, count: int, **more: str) -> dict[str, Any]:
        return {"name": name, "resources": {"limits": {GPU: count}}, **more}

    spec: dict[str, Any] = {
        "initContainers": [container("fetch", 2), container("warm", 2), container("side", 1, restartPolicy="Always")]
    }
    (request,) = pods_of([pod("a", limits={GPU: 1}, **spec)]).requests
    assert (request.whole, request.container) == ({"gpu": 2}, "")


def test_a_node_offers_its_allocatable_devices() -> None:
    allocatable = {"cpu": "8", GPU: "7", MIG: "14", SHARED: "4", "nvidia.com/mig-1g.10gb.shared": "2"}
    assert offered_by({"status": {"allocatable": allocatable}}) == {"gpu": 7, "1g.10gb": 14}


COUNTS = st.integers(min_value=0, max_value=4)


@given(st.lists(COUNTS, min_size=1, max_size=4), st.lists(st.integers(min_value=0, max_value=3), max_size=4), COUNTS)
def test_no_world_contradicts_a_holder_that_is_sure(wanted: list[int], named: list[int], free: int) -> None:
    """Give GPUs to pods in order, hide some of the page's labels: whoever is named must be the true holder."""
    truth = [f"p{number}" for number, count in enumerate(wanted) for _ in range(count)]
    truth += [""] * (free or not truth)
    rows = [device(index, holder if index in named else "") for index, holder in enumerate(truth)]
    pods = [asks(f"p{number}", count) for number, count in enumerate(wanted) if count]
    for row, holder in zip(with_holders(rows, pods_of(pods), {"gpu": len(rows)}), truth, strict=True):
        assert row.pod in ("", holder)
        if row.state in (DeviceState.FREE, DeviceState.OUTSIDE):
            assert not holder
