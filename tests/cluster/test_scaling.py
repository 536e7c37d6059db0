"""A question of an autoscaler → a number, or why there is none."""

from contextlib import suppress
from fractions import Fraction
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.cluster.scaling import Scaled, ScalingQuestion, Unanswerable, read_question, scaled
from exporter.cluster.seen_workloads import SeenWorkloads
from exporter.dcgm.fields import METRICS
from exporter.errors import Trouble
from exporter.model.cluster_view import ClusterView
from exporter.outputs.device_rows import METRICS_TO_ASK
from tests.support.clusters import GONE, held, node_of, view_of

UTIL = "gpu_utilization"


def ask(metric: str = UTIL, workload: str = "trainer", kind: str = "", namespace: str = "ml") -> ScalingQuestion:
    return ScalingQuestion(namespace=namespace, workload=workload, metric=metric, kind=kind)


def util(percent: float) -> dict[str, float]:
    return {UTIL: percent}


def refusal(view: ClusterView, question: ScalingQuestion) -> Unanswerable:
    with pytest.raises(Unanswerable) as found:
        scaled(view, question)
    return found.value


def test_it_is_the_sum_over_the_pods_of_each_pods_mean_over_its_devices() -> None:
    view = view_of(
        node_of("n1", held("a", "GPU-1", values=util(80)), held("a", "GPU-2", values=util(40)), held("", "GPU-3")),
        node_of("n2", held("b", "GPU-1", values=util(10)), held("c", "GPU-2", workload="other")),
        node_of("n3", held("d", "GPU-1", namespace="elsewhere")),
    )
    assert scaled(view, ask()) == Scaled(value=70.0, pods=2, nodes=("n1", "n2"))


def test_it_is_0_where_every_node_answered_and_none_has_a_pod_of_it() -> None:
    assert scaled(view_of(node_of("n1", held("", "GPU-1")), node_of("n2")), ask()) == Scaled(
        value=0.0, pods=0, nodes=()
    )


def test_holders_that_a_node_does_not_name_are_no_false_0() -> None:
    view = view_of(node_of("n1", held("a", "GPU-1", values=util(80)), held("", "GPU-2", shared=True)))
    error = refusal(view, ask())
    assert error.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert "n1" in str(error)
    assert "GPU-2" in str(error)
    assert "--sharing copy or split" in str(error)


def test_a_pod_that_moves_between_two_nodes_is_one_pod() -> None:
    view = view_of(
        node_of("n1", held("web-0", "GPU-1", values=util(90))), node_of("n2", held("web-0", "GPU-1", values=util(10)))
    )
    assert scaled(view, ask()) == Scaled(value=50.0, pods=1, nodes=("n1", "n2"))


@st.composite
def clusters(draw: st.DrawFn) -> ClusterView:
    """Nodes with whole devices, each held by nobody or by one container of some pod."""
    nodes = []
    for name in draw(st.lists(st.sampled_from("uvwxyz"), min_size=1, unique=True)):
        devices = [
            held(
                pod and f"{pod}-{name}",
                f"GPU-{number}",
                namespace=draw(st.sampled_from(["ml", "web"])),
                workload=draw(st.sampled_from(["trainer", "other"])),
                values=util(draw(st.integers(0, 100))),
            )
            for number, pod in enumerate(draw(st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=6)))
        ]
        nodes.append(node_of(name, *devices))
    return view_of(*nodes)


@given(clusters())
def test_it_is_what_a_plain_sum_says(view: ClusterView) -> None:
    of_pods: dict[str, list[int]] = {}
    for node in view.nodes.values():
        for device in node.devices:
            if (device.row.namespace, device.row.workload_name) == ("ml", "trainer"):
                of_pods.setdefault(device.row.pod, []).append(int(device.row.gpu_utilization or 0))
    found = scaled(view, ask())
    assert found.pods == len(of_pods)
    expected = sum((Fraction(sum(values), len(values)) for values in of_pods.values()), Fraction())
    assert found.value == pytest.approx(float(expected))


@given(clusters(), st.data())
def test_one_node_that_is_missing_makes_it_an_error_that_names_it(view: ClusterView, data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(list(view.nodes)))
    nodes = [node if name != gone else node_of(name, *node.devices, trouble=GONE) for name, node in view.nodes.items()]
    error = refusal(view_of(*nodes), ask())
    assert (error.status, error.missing_nodes) == (HTTPStatus.SERVICE_UNAVAILABLE, (gone,))
    assert gone in str(error)
    assert GONE.message in str(error)


def test_it_is_an_error_where_it_is_not_known_which_nodes_there_are() -> None:
    why = Trouble("permission", "the API server does not let list endpointslices", "give it the role")
    for view in (view_of(node_of("n1", held()), trouble=why), view_of(trouble=why)):
        error = refusal(view, ask())
        assert error.status == HTTPStatus.SERVICE_UNAVAILABLE
        assert "does not let list" in str(error)
    empty = refusal(view_of(), ask())
    assert (empty.status, "no node is known" in str(empty)) == (HTTPStatus.SERVICE_UNAVAILABLE, True)


def test_a_pod_without_a_workload_is_an_error_that_names_the_node() -> None:
    view = view_of(node_of("n1", held("a")), node_of("n2", held("b", workload="", kind="")))
    error = refusal(view, ask())
    assert error.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert "exporter of node n2 does not say what pod ml/b belongs to" in str(error)
    # one of another namespace can be none of its pods
    assert scaled(view_of(node_of("n1", held("x", namespace="web", workload="", kind=""))), ask()).pods == 0


def test_two_workloads_of_one_name_are_told_apart_by_their_kind() -> None:
    view = view_of(
        node_of("n1", held("a", values=util(10)), held("b", "GPU-2", kind="StatefulSet", values=util(20))),
    )
    error = refusal(view, ask())
    assert error.status == HTTPStatus.CONFLICT
    assert "deployment:trainer or statefulset:trainer" in str(error)
    assert scaled(view, ask(kind="deployment")).value == 10
    assert scaled(view, ask(kind="StatefulSet")).value == 20
    assert scaled(view, ask(kind="job")) == Scaled(value=0.0, pods=0, nodes=())


def test_a_value_that_is_not_known_is_an_error_and_not_0() -> None:
    error = refusal(view_of(node_of("n1", held("a"), held("b", "GPU-2", values={}))), ask())
    assert error.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert "nothing is known of gpu_utilization for pod ml/b on GPU-2 of node n1" in str(error)


def test_a_whole_devices_value_is_refused_where_the_device_is_shared() -> None:
    error = refusal(view_of(node_of("n1", held("a"), held("b", "GPU-2", shared=True))), ask())
    assert error.status == HTTPStatus.CONFLICT
    assert "pod ml/b on GPU-2 of node n1 shares the device" in str(error)
    assert "pod_gpu_utilization_ratio" in str(error)
    assert refusal(view_of(node_of("n1", held("a", shared=True, values={"power_usage": 1.0}))), ask("power_usage"))


# issue 22, line 31
@pytest.mark.parametrize("metric", ["pod_gpu_processes", "pod_gpu_utilization_ratio", "pod_gpu_memory_used_bytes"])
def test_a_containers_measurement_is_unknown_where_nobody_measures_it(metric: str) -> None:
    error = refusal(view_of(node_of("n1", held("a", shared=True))), ask(metric))
    assert error.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert f"nothing is known of {metric}" in str(error)
    assert "measured only where the node exporter has NVML" in str(error)


# issue 22, line 17
def test_a_workload_that_nobody_has_seen_is_no_0() -> None:
    seen = SeenWorkloads()
    here, away = view_of(node_of("n1", held("a", "GPU-1", values=util(80)))), view_of(node_of("n1"))

    def answer(view: ClusterView, question: ScalingQuestion) -> float:
        return seen.check(question, scaled(view, question)).value

    assert answer(here, ask()) == 80.0
    # scaled to zero
    assert answer(away, ask()) == 0.0
    for question in (ask(workload="trainr"), ask(namespace="web"), ask(kind="job")):
        for view in (here, away):
            with pytest.raises(Unanswerable, match="see that namespace and name") as refused:
                answer(view, question)
            assert refused.value.status == HTTPStatus.NOT_FOUND


# issue 22, line 17
def test_what_is_remembered_of_workloads_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.cluster.seen_workloads.MOST_WORKLOADS", 2)
    seen = SeenWorkloads()
    for name in ("a", "b", "a", "c"):
        seen.check(ask(workload=name), Scaled(value=1.0, pods=1, nodes=()))
    assert len(seen) == 2
    none = Scaled(value=0.0, pods=0, nodes=())
    assert seen.check(ask(workload="a"), none) == none  # asked about later than b
    with pytest.raises(Unanswerable):
        seen.check(ask(workload="b"), none)


def test_a_measured_value_of_a_shared_device_is_the_containers_own() -> None:
    own = {"pod_gpu_utilization_ratio": 0.25, "pod_gpu_memory_used_bytes": 3.0 * 2**20, "pod_gpu_processes": 2.0}
    whole = {UTIL: 99.0, "framebuffer_used": 70_000.0}
    shared = held("a", shared=True, values={**whole, **own})
    view = view_of(node_of("n1", shared))
    asked = {metric: scaled(view, ask(metric)).value for metric in (*own, *whole)}
    assert asked == {**own, UTIL: 25.0, "framebuffer_used": 3.0}
    assert refusal(view, ask("power_usage")).status == HTTPStatus.CONFLICT


def test_containers_of_one_pod_on_one_device_add_up() -> None:
    def container(name: str, ratio: float) -> object:
        values = {"pod_gpu_utilization_ratio": ratio}
        return held("a", container=name, shared=True, values=values)

    view = view_of(node_of("n1", container("x", 0.25), container("y", 0.5)))  # type: ignore[arg-type]
    assert scaled(view, ask("pod_gpu_utilization_ratio")) == Scaled(value=0.75, pods=1, nodes=("n1",))


@pytest.mark.parametrize("metric", METRICS_TO_ASK)
def test_every_metric_can_be_asked_for(metric: str) -> None:
    assert scaled(view_of(node_of("n1", held(values={metric: 7.0}))), ask(metric)).value == 7.0


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ("gpu_utilisation", "gpu_utilization"),
        ("pod", "no numeric field"),
        ("timestamp", "no numeric field"),
        ("pod_gpu_energy_joules_total", "ask a Prometheus server"),
        ("pod_gpu_memory_used", "pod_gpu_memory_used_bytes"),
    ],
)
def test_what_is_no_number_is_refused_even_where_nothing_is_known(metric: str, says: str) -> None:
    for view in (view_of(), view_of(node_of("n1", trouble=GONE)), view_of(node_of("n1", held()))):
        error = refusal(view, ask(metric))
        assert (error.status, says in str(error)) == (HTTPStatus.BAD_REQUEST, True), error


def test_the_names_of_many_missing_nodes_do_not_fill_the_answers_line() -> None:
    error = refusal(view_of(*(node_of(f"node-{number}", trouble=GONE) for number in range(5000))), ask())
    assert len(str(error)) < 500
    assert len(error.missing_nodes) == 5000


@pytest.mark.parametrize(
    ("rest", "question"),
    [
        ("ml/trainer/gpu_utilization", ask()),
        ("ml/deployment:trainer/gpu_utilization", ask(kind="deployment")),
        ("ml/Deployment%3Atrainer/gpu_utilization", ask(kind="Deployment")),
        ("ml/a%2Db/sm_active", ask("sm_active", "a-b")),
    ],
)
def test_the_path_is_the_question(rest: str, question: ScalingQuestion) -> None:
    assert read_question(rest) == question


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "ml",
        "ml/trainer",
        "ml/trainer/",
        "ml//gpu_utilization",
        "/trainer/gpu_utilization",
        "ml/trainer/gpu_utilization/",
        "ml/trainer/gpu_utilization/more",
        "ml/a%2Fb/gpu_utilization",
        "ml/a%2520b/gpu_utilization",
        "ML/trainer/gpu_utilization",
        "ml/a,b/gpu_utilization",
        "ml/%FF/gpu_utilization",
        "ml/a%0Ab/gpu_utilization",
        "ml/:trainer/gpu_utilization",
        "ml/deployment:/gpu_utilization",
    ],
)
def test_a_path_of_another_form_is_refused_with_the_form(rest: str) -> None:
    with pytest.raises(Unanswerable, match="/autoscale/<namespace>/<workload>/<metric>") as found:
        read_question(rest)
    assert found.value.status == HTTPStatus.BAD_REQUEST


@given(st.text())
def test_no_path_does_more_than_be_refused(rest: str) -> None:
    with suppress(Unanswerable):
        question = read_question(rest)
        assert all((question.namespace, question.workload, question.metric))


def test_every_numeric_field_can_be_asked_for() -> None:
    assert {*METRICS} <= {*METRICS_TO_ASK}
