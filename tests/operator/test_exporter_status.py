"""A GPUExporter and what there is of it → its status."""

from datetime import timedelta
from typing import Any

import pytest

from exporter.errors import Trouble
from exporter.operator.exporters.exporter_pods import NodeTrouble, on_node
from exporter.operator.exporters.exporter_status import (
    GRACE_SECONDS,
    MOST_TROUBLES,
    ExporterObjects,
    invalid,
    status_of,
)
from exporter.operator.objects.object_fields import is_same
from exporter.reading import Invalid
from tests.operator.made import (
    NOW,
    NOW_TEXT,
    Object,
    daemon_set,
    ended,
    gpu_exporter,
    pending,
    pod,
    waiting,
)

DCGM = "dcgm:127.0.0.1:9401"
NOBODY = "nobody listens there -> is dcgm-exporter running?"


def dcgm_down(node: str = "a") -> NodeTrouble:
    return on_node(node, DCGM, Trouble("refused", NOBODY))


def says(status: Object, kind: str) -> tuple[str, str]:
    (found,) = [each for each in status["conditions"] if each["type"] == kind]
    return found["status"], found["reason"]


def message(status: Object, kind: str) -> str:
    (found,) = [each["message"] for each in status["conditions"] if each["type"] == kind]
    return str(found)


def of(**seen: Any) -> Object:
    return status_of(gpu_exporter(), ExporterObjects(**{"troubles": (), **seen}), NOW)


CASES: dict[str, tuple[dict[str, Any], tuple[str, str], tuple[str, str], tuple[str, str]]] = {
    "nothing is made yet": ({}, ("False", "Starting"), ("True", "Starting"), ("False", "NoTrouble")),
    "the DaemonSet's controller has not looked": (
        {"daemon_set": daemon_set(0, observed=0)},
        ("False", "Starting"),
        ("True", "Starting"),
        ("False", "NoTrouble"),
    ),
    "no node is selected": (
        {"daemon_set": daemon_set(0)},
        ("True", "NoNodes"),
        ("False", "RolledOut"),
        ("False", "NoTrouble"),
    ),
    "all is well": (
        {"daemon_set": daemon_set(3)},
        ("True", "AllNodesReady"),
        ("False", "RolledOut"),
        ("False", "NoTrouble"),
    ),
    "a node starts": (
        {"daemon_set": daemon_set(3, 2), "pods": [pending("c", waiting("ContainerCreating"))]},
        ("False", "NodesNotReady"),
        ("True", "RollingOut"),
        ("False", "NoTrouble"),
    ),
    "a change is rolled out": (
        {"daemon_set": daemon_set(3, updated=1)},
        ("False", "RollingOut"),
        ("True", "RollingOut"),
        ("False", "NoTrouble"),
    ),
    "a change that the controller has not seen": (
        {"daemon_set": daemon_set(3, generation=2, observed=1)},
        ("False", "RollingOut"),
        ("True", "Starting"),
        ("False", "NoTrouble"),
    ),
    "one node cannot go on": (
        {"daemon_set": daemon_set(3, 2), "pods": [pending("c", waiting("ImagePullBackOff", "not found"))]},
        ("False", "NodesNotReady"),
        ("False", "WaitsForNodes"),
        ("True", "NodesInTrouble"),
    ),
    "one node cannot go on, another starts": (
        {"daemon_set": daemon_set(3, 1), "pods": [pending("c", waiting("ImagePullBackOff", "not found"))]},
        ("False", "NodesNotReady"),
        ("True", "RollingOut"),
        ("True", "NodesInTrouble"),
    ),
    "a source fails on a node that is ready": (
        {"daemon_set": daemon_set(3), "pods": [pod("a")], "troubles": [dcgm_down()]},
        ("True", "AllNodesReady"),
        ("False", "RolledOut"),
        ("True", "NodesInTrouble"),
    ),
    "nobody has been asked": (
        {"daemon_set": daemon_set(3), "troubles": None},
        ("True", "AllNodesReady"),
        ("False", "RolledOut"),
        ("Unknown", "NotAskedYet"),
    ),
    "the spec is invalid": (
        {"daemon_set": daemon_set(3), "obstacles": [invalid(Invalid("spec.sharing", "'x' is not allowed"))]},
        ("False", "InvalidSpec"),
        ("False", "InvalidSpec"),
        ("True", "InvalidSpec"),
    ),
}


@pytest.mark.parametrize(("seen", "ready", "progressing", "degraded"), CASES.values(), ids=CASES)
def test_the_conditions(
    seen: dict[str, Any], ready: tuple[str, str], progressing: tuple[str, str], degraded: tuple[str, str]
) -> None:
    status = of(**seen)
    assert says(status, "Ready") == ready
    assert says(status, "Progressing") == progressing
    assert says(status, "Degraded") == degraded


REFUSED = Trouble("Refused", "no events are written on pods of the namespace ml: a policy says no", "leave it out")
SEEN: dict[str, tuple[dict[str, Any], tuple[str, str] | None]] = {
    "events are not wanted": ({}, None),
    "none was refused": ({"event_troubles": ()}, ("True", "NoneRefused")),
    "one was refused": ({"event_troubles": [REFUSED]}, ("False", "Refused")),
    "one was refused, before all exporters were asked": (
        {"event_troubles": [REFUSED], "troubles": None},
        ("False", "Refused"),
    ),
    "nobody has been asked": ({"event_troubles": (), "troubles": None}, ("Unknown", "NotAskedYet")),
}


# issue 22, line 9
@pytest.mark.parametrize(("seen", "expected"), SEEN.values(), ids=SEEN)
def test_whether_pods_are_told_of_xids_is_a_condition_of_its_own(
    seen: dict[str, Any], expected: tuple[str, str] | None
) -> None:
    status = of(daemon_set=daemon_set(3), **seen)
    kinds = [each["type"] for each in status["conditions"]]
    assert kinds == ["Ready", "Progressing", "Degraded", *(["EventsWritten"] if expected else [])]
    assert expected is None or says(status, "EventsWritten") == expected
    others = of(daemon_set=daemon_set(3), troubles=seen.get("troubles", ()))
    assert status["conditions"][:3] == others["conditions"]


# issue 22, line 9
def test_a_new_process_keeps_what_was_known_of_events_until_it_knows_more() -> None:
    before = of(daemon_set=daemon_set(3), event_troubles=[REFUSED])
    begun: dict[str, Any] = {"daemon_set": daemon_set(3), "event_troubles": ()}
    again = status_of(gpu_exporter(status=before), ExporterObjects(**begun, troubles=None), NOW)
    assert says(again, "EventsWritten") == ("False", "Refused")
    assert message(again, "EventsWritten") == message(before, "EventsWritten") == str(REFUSED)
    asked = status_of(gpu_exporter(status=again), ExporterObjects(**begun, troubles=()), NOW)
    assert says(asked, "EventsWritten") == ("True", "NoneRefused")


# issue 15, line 17: the kubelet was seen to bring a changed ConfigMap into pods after 27 to 84 s
def test_the_whole_status_of_a_node_whose_dcgm_is_down() -> None:
    status = status_of(
        gpu_exporter(generation=4),
        ExporterObjects(daemon_set=daemon_set(3), pods=[pod("a"), pod("b"), pod("c")], troubles=[dcgm_down("b")]),
        NOW,
    )
    since = {"lastTransitionTime": NOW_TEXT, "observedGeneration": 4}
    assert status == {
        "observedGeneration": 4,
        "nodesWanted": 3,
        "nodesReady": 3,
        "nodesInTrouble": 1,
        "troubles": [{"node": "b", "source": DCGM, "reason": "refused", "message": NOBODY}],
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "AllNodesReady", "message": "all 3 nodes are ready", **since},
            {
                "type": "Progressing",
                "status": "False",
                "reason": "RolledOut",
                "message": "every chosen node has the newest exporter; a change of collectors, sharing, labels, nvml or"
                " probe reaches its pod within two minutes",
                **since,
            },
            {
                "type": "Degraded",
                "status": "True",
                "reason": "NodesInTrouble",
                "message": f"1 of 3 nodes are in trouble; {DCGM} (refused) on b: {NOBODY}",
                **since,
            },
        ],
    }


def test_what_is_not_known_is_not_in_it() -> None:
    status = of(troubles=None)
    assert not {"nodesWanted", "nodesReady", "nodesInTrouble", "troubles"} & status.keys()
    assert "nodesWanted" not in of(daemon_set=daemon_set(0, observed=0))
    assert of(daemon_set=daemon_set(0))["nodesWanted"] == 0


def test_a_node_that_still_runs_one_though_it_is_not_selected_is_told() -> None:
    assert "1 more node still run" in message(of(daemon_set=daemon_set(3, misplaced=1)), "Ready")


def test_who_does_not_answer_need_not_while_its_pod_is_not_ready() -> None:
    silent = on_node("a", "exporter", Trouble("unreachable", "no answer -> a NetworkPolicy?"))
    young = pod("a", ready=False, age=GRACE_SECONDS - 1)
    assert of(daemon_set=daemon_set(1, 0), pods=[young], troubles=[silent])["troubles"] == []
    old = pod("a", ready=False, age=GRACE_SECONDS + 1)
    assert of(daemon_set=daemon_set(1, 0), pods=[old], troubles=[silent])["troubles"] == []
    assert of(daemon_set=daemon_set(1), pods=[pod("a")], troubles=[silent])["nodesInTrouble"] == 1
    # the pod is gone
    assert of(daemon_set=daemon_set(1), pods=[], troubles=[silent])["nodesInTrouble"] == 0


def test_why_a_node_is_not_ready_its_exporter_says_after_a_while() -> None:
    kubelet = on_node("a", "kubelet", Trouble("permission", "the socket may not be opened -> run as root"))
    young, old = (pod("a", ready=False, age=age) for age in (GRACE_SECONDS - 1, GRACE_SECONDS))
    assert of(daemon_set=daemon_set(1, 0), pods=[young], troubles=[kubelet])["troubles"] == []
    status = of(daemon_set=daemon_set(1, 0), pods=[old], troubles=[kubelet])
    assert "kubelet (permission) on a" in message(status, "Degraded")
    assert says(status, "Progressing") == ("False", "WaitsForNodes")


def test_many_troubles_hide_none() -> None:
    """500 nodes have the same trouble, and one another: it is in the list and in the message."""
    nodes = [f"gpu-{number:03}" for number in range(500)]
    odd = on_node("gpu-499", "kubelet", Trouble("permission", "the socket may not be opened -> run as root"))
    status = of(daemon_set=daemon_set(500), pods=[*map(pod, nodes)], troubles=[*map(dcgm_down, nodes), odd])
    assert status["nodesInTrouble"] == 500
    assert len(status["troubles"]) == MOST_TROUBLES
    assert odd._asdict() in status["troubles"]
    said = message(status, "Degraded")
    assert "(refused) on gpu-000, gpu-001, gpu-002, gpu-003, gpu-004 and 495 more: nobody listens" in said
    assert "kubelet (permission) on gpu-499" in said
    assert len(said) < 1000


def test_the_most_kinds_of_trouble_still_make_one_line() -> None:
    found = [on_node(f"n{index}", f"source{index}", Trouble("refused", "x" * 2000)) for index in range(100)]
    status = of(daemon_set=daemon_set(100), pods=[pod(each.node) for each in found], troubles=found)
    said = message(status, "Degraded")
    assert "\n" not in said
    assert "96 more kinds of trouble" in said


def test_an_unchanged_truth_makes_no_new_status() -> None:
    """Ages, counts of restarts, the kubelet's pauses, the order of pods: none of it is in the status."""
    pods = [pod("a"), pending("b", waiting("ImagePullBackOff", "not found")), pod("c", ready=False, age=5000)]
    crash = waiting("CrashLoopBackOff", "back-off 10s", lastState=ended(1), restartCount=2)
    seen = ExporterObjects(daemon_set=daemon_set(4, 1), pods=[*pods, pod("d", crash)], troubles=[dcgm_down("a")])
    first = status_of(gpu_exporter(), seen, NOW)
    crash = waiting("CrashLoopBackOff", "back-off 5m0s", lastState=ended(1, seconds_ago=300), restartCount=9)
    again = ExporterObjects(
        daemon_set=daemon_set(4, 1), pods=[pod("d", crash), *reversed(pods)], troubles=[dcgm_down("a")]
    )
    second = status_of(gpu_exporter(status=first), again, NOW + timedelta(days=3))
    assert second == first
    assert is_same(first, second)


def test_a_new_process_that_has_asked_nobody_yet_leaves_what_is_known() -> None:
    known = ExporterObjects(daemon_set=daemon_set(2), pods=[pod("a"), pod("b")], troubles=[dcgm_down()])
    first = status_of(gpu_exporter(), known, NOW)
    begun = ExporterObjects(daemon_set=daemon_set(2), pods=[pod("a"), pod("b")], troubles=None)
    assert status_of(gpu_exporter(status=first), begun, NOW + timedelta(hours=1)) == first


def test_since_when_a_condition_is_so() -> None:
    """The time changes with the condition's status, and not with its reason or message."""

    def time_of(status: Object, kind: str) -> str:
        (found,) = [each["lastTransitionTime"] for each in status["conditions"] if each["type"] == kind]
        return str(found)

    first = status_of(gpu_exporter(), ExporterObjects(daemon_set=daemon_set(2, 1), troubles=()), NOW)
    second = status_of(
        gpu_exporter(generation=2, status=first),
        ExporterObjects(daemon_set=daemon_set(2, 1, updated=1), troubles=()),
        NOW + timedelta(minutes=1),
    )
    assert says(first, "Ready") == ("False", "NodesNotReady")
    assert says(second, "Ready") == ("False", "RollingOut")
    assert time_of(second, "Ready") == time_of(first, "Ready") == NOW_TEXT
    assert [each["observedGeneration"] for each in second["conditions"]] == [2, 2, 2]
    third = status_of(
        gpu_exporter(generation=2, status=second),
        ExporterObjects(daemon_set=daemon_set(2), troubles=()),
        NOW + timedelta(minutes=2),
    )
    assert says(third, "Ready")[0] == "True"
    assert time_of(third, "Ready") == "2026-11-22T12:02:00Z"
    assert time_of(third, "Degraded") == NOW_TEXT


def test_a_message_in_which_only_times_have_changed_stays() -> None:
    """So that a failure that somebody tells of anew every half minute writes no new status."""

    def at(time: str, reason: str = "Forbidden", *, old: Object | None = None) -> Object:
        obstacle = Trouble(reason=reason, message=f"at {time} it said: no, after 5.25 s")
        return status_of(gpu_exporter(status=old), ExporterObjects(obstacles=[obstacle], troubles=()), NOW)

    first = at("2026-11-22T12:00:00Z")
    assert at("2026-11-22T12:00:30Z", old=first) == first
    assert message(at("2026-11-22T12:00:30Z", "Refused", old=first), "Ready").startswith("at 2026-11-22T12:00:30Z")


def test_a_transition_time_that_is_none_is_written_anew() -> None:
    old = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "yesterday"}]}
    status = status_of(gpu_exporter(status=old), ExporterObjects(daemon_set=daemon_set(1), troubles=()), NOW)
    assert status["conditions"][0]["lastTransitionTime"] == NOW_TEXT


def test_what_a_status_no_longer_has_makes_it_another_one() -> None:
    status = of(daemon_set=daemon_set(1))
    assert is_same(status, status)
    assert not is_same({**status, "nodesMissing": 1}, status)
    assert not is_same({**status, "nodesReady": 0}, status)
    assert not is_same({}, status)
