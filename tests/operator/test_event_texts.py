"""Two statuses and what was written → the events that people are told."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

from exporter.errors import Trouble
from exporter.operator.event_texts import Event, events_of, events_of_autoscaler
from exporter.operator.exporters.exporter_pods import NodeTrouble, on_node
from exporter.operator.exporters.exporter_status import ExporterObjects, in_the_way, invalid, status_of
from exporter.operator.objects.change_report import ObjectChange
from exporter.reading import Invalid
from tests.operator.made import NOW, Object, daemon_set, gpu_exporter, hostile, pod

# a real API server answers a longer one with 422
LONGEST_NOTE_BYTES = 1024


def status(
    ready: int = 3,
    troubles: Sequence[NodeTrouble] | None = (),
    *,
    wanted: int = 3,
    old: Object | None = None,
    generation: int = 1,
    **seen: Any,
) -> Object:
    nodes = {each.node for each in troubles or ()}
    pods = [pod(node) for node in nodes]
    found = ExporterObjects(daemon_set=daemon_set(wanted, ready), pods=pods, troubles=troubles, **seen)
    return status_of(gpu_exporter(generation, status=old), found, NOW)


def dcgm(node: str, reason: str = "refused") -> NodeTrouble:
    return on_node(node, "dcgm:127.0.0.1:9401", Trouble(reason, "nobody listens there -> start it"))


def kubelet(node: str) -> NodeTrouble:
    return on_node(node, "kubelet", Trouble("permission", "not allowed -> run as root"))


def brief(events: Sequence[Event]) -> list[tuple[str, str]]:
    return [(event.type, event.reason) for event in events]


def test_an_unchanged_status_is_no_news() -> None:
    for same in (status(), status(2), status(troubles=[dcgm("a"), kubelet("b")]), status(troubles=None)):
        assert not events_of(same, same)


def test_what_was_written_is_one_event_that_says_why() -> None:
    changes = [
        ObjectChange("created", "DaemonSet gpu"),
        ObjectChange("created", "Service gpu"),
        ObjectChange("updated", "ConfigMap gpu-counters", ("data.counters.csv",)),
        ObjectChange("deleted", "PodMonitor gpu"),
    ]
    (event,) = events_of(status(2), status(2, generation=2), changes)
    assert event == Event(
        "Normal",
        "Applied",
        "Apply",
        "created DaemonSet gpu and Service gpu; updated ConfigMap gpu-counters (data.counters.csv);"
        " deleted PodMonitor gpu: for generation 2 of the spec",
    )
    (event,) = events_of(status(2), status(2), changes[:1])
    assert event.note == "created DaemonSet gpu: something was not as wanted"


def test_what_somebody_else_edited_is_told_with_who_it_was() -> None:
    change = ObjectChange("updated", "DaemonSet gpu", ("spec.template.spec.hostPID",), ("kubectl-edit",))
    (event,) = events_of(status(), status(), [change])
    assert event == Event(
        "Warning",
        "Corrected",
        "Apply",
        "put DaemonSet gpu (spec.template.spec.hostPID) back to what is wanted: kubectl-edit had changed it"
        " -> change the custom resource instead",
    )


def test_nodes_become_ready_and_cease_to_be() -> None:
    assert brief(events_of({}, status())) == [("Normal", "NodesReady")]
    assert brief(events_of(status(2), status())) == [("Normal", "NodesReady")]
    assert brief(events_of(status(), status(2))) == [("Warning", "NodesNotReady")]
    assert brief(events_of({}, status(2))) == []
    rolling = status_of(gpu_exporter(2), ExporterObjects(daemon_set=daemon_set(3, updated=1), troubles=()), NOW)
    assert brief(events_of(status(), rolling)) == [("Normal", "RollingOut")]


def test_that_no_node_is_to_have_an_exporter_is_told_by_its_name_and_once() -> None:
    none = status(0, wanted=0)
    assert brief(events_of({}, none)) == [("Normal", "NoNodes")]
    assert brief(events_of(status(), none)) == [("Normal", "NoNodes")]
    assert brief(events_of(none, none)) == []
    assert brief(events_of(none, status())) == [("Normal", "NodesReady")]
    assert brief(events_of(none, status(2))) == [("Warning", "NodesNotReady")]


def test_an_invalid_spec_is_told_once() -> None:
    bad = status(obstacles=[invalid(Invalid("spec.sharing", "'x' is not allowed"))])
    (event,) = events_of(status(), bad)
    assert (event.type, event.reason) == ("Warning", "InvalidSpec")
    assert event.note.startswith("spec.sharing: 'x' is not allowed")
    assert not events_of(bad, bad)
    other = status(obstacles=[in_the_way({"kind": "Service", "metadata": {"name": "gpu"}})])
    assert brief(events_of(bad, other)) == [("Warning", "NotOurs")]
    assert brief(events_of(other, status())) == [("Normal", "NodesReady")]


# issue 22, line 9
def test_events_on_pods_that_are_refused_are_told_once() -> None:
    bad = status(event_troubles=[Trouble("Refused", "a policy says no", "leave it out")])
    (event,) = events_of(status(event_troubles=()), bad)
    assert event == Event("Warning", "EventsNotWritten", "Tell", "a policy says no -> leave it out")
    assert not events_of(bad, bad)
    (event,) = events_of(bad, status(event_troubles=()))
    assert (event.type, event.reason) == ("Normal", "EventsWritten")
    for quiet in (status(event_troubles=()), status(event_troubles=(), troubles=None)):
        assert not events_of(status(), quiet)
    assert not events_of(bad, status()), "they are not wanted any more"


def test_a_nodes_trouble_is_told_when_it_begins_and_when_it_ends() -> None:
    (event,) = events_of(status(), status(troubles=[dcgm("a")]))
    assert event == Event(
        "Warning", "NodeTrouble", "Look", "a: dcgm:127.0.0.1:9401 (refused): nobody listens there -> start it"
    )
    (event,) = events_of(status(troubles=[dcgm("a")]), status(troubles=[dcgm("a"), kubelet("a")]))
    assert event.note.startswith("a: kubelet (permission)")
    # one trouble of two is over: the node is not yet all right
    assert not events_of(status(troubles=[dcgm("a"), kubelet("a")]), status(troubles=[dcgm("a")]))
    (event,) = events_of(status(troubles=[dcgm("a")]), status(troubles=[dcgm("b")]))[1:]
    assert event == Event("Normal", "NodesRecovered", "Look", "a has no trouble any more")
    (event,) = events_of(status(troubles=[dcgm("a"), dcgm("b")]), status())
    assert event.note == "a and b have no trouble any more"


def test_a_trouble_that_another_reason_has_now_is_told() -> None:
    (event,) = events_of(status(troubles=[dcgm("a")]), status(troubles=[dcgm("a", "deadline")]))
    assert "(deadline)" in event.note


def test_many_nodes_with_one_trouble_are_one_event() -> None:
    nodes = [f"n{number:02}" for number in range(12)]
    (event,) = events_of(status(wanted=12, ready=12), status(12, [*map(dcgm, nodes)], wanted=12))
    assert event.note.startswith("n00, n01, n02, n03, n04 and 7 more: dcgm")


def test_of_more_troubles_than_a_status_names_none_is_told_twice() -> None:
    """Which of many nodes are named changes with each other trouble: only kinds are compared then."""
    many = [dcgm(f"n{number:02}") for number in range(40)]
    before, now = status(40, many, wanted=40), status(40, [*many, kubelet("n39")], wanted=40)
    (event,) = events_of(before, now)
    assert event.note.startswith("n39: kubelet (permission)")
    assert not events_of(now, before)
    assert not events_of(before, status(40, many[1:], wanted=40))
    (event,) = events_of(before, status(40, wanted=40))
    assert event.reason == "NodesRecovered"


def test_what_is_not_known_yet_is_no_recovery() -> None:
    """A new process has asked nobody: what was known stays, and nothing is told."""
    before = status(troubles=[dcgm("a")])
    begun = status(troubles=None, old=before)
    assert not events_of(before, begun)
    assert not events_of(before, {name: value for name, value in begun.items() if name != "troubles"})


def scaler(
    ready: str = "True", reason: str = "Scales", message: str = "it scales", via: str = "keda", **more: Any
) -> Object:
    said = {"type": "Ready", "status": ready, "reason": reason, "message": message}
    return {"observedGeneration": 1, "conditions": [said], "via": via, **more}


def scale(to: int | None = 4, came: int | None = 2, seconds: int = 0, reason: str = "above target") -> Object:
    time = (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = {"time": time, "from": came, "to": to, "reason": reason}
    return {name: value for name, value in said.items() if value is not None}


AUTOSCALERS: dict[str, tuple[Object, Object, list[tuple[str, str]]]] = {
    "nothing new": (scaler(), scaler(), []),
    "its first look": ({}, scaler(lastScale=scale()), [("Normal", "Ready")]),
    "a scale": (scaler(), scaler(lastScale=scale()), [("Normal", "Scaled")]),
    "the same scale": (scaler(lastScale=scale()), scaler(lastScale=scale()), []),
    "two tell of it": (scaler(lastScale=scale()), scaler(lastScale=scale(seconds=-3, reason="All")), []),
    "the next scale": (scaler(lastScale=scale()), scaler(lastScale=scale(seconds=60)), [("Normal", "Scaled")]),
    "another at once": (scaler(lastScale=scale()), scaler(lastScale=scale(5, 4, 1)), [("Normal", "Scaled")]),
    "a scale of unknown size": (scaler(), scaler(lastScale=scale(None, None)), []),
    "KEDA came": (scaler(via="hpa"), scaler(via="keda"), [("Normal", "SwitchedToKeda")]),
    "KEDA went": (scaler(via="keda"), scaler(via="hpa"), [("Normal", "SwitchedToHpa")]),
    "the target is gone": (
        scaler(),
        scaler("False", "InvalidTarget", "there is no Deployment x"),
        [("Warning", "InvalidTarget")],
    ),
    "it is still gone": (scaler("False", "InvalidTarget", "x"), scaler("False", "InvalidTarget", "x"), []),
    "it waits": (scaler(), scaler("False", "Waiting", "it waits for an HPA"), [("Normal", "Waiting")]),
    "it has just been made": ({}, scaler("Unknown", "Starting", "it has not looked yet"), []),
    "it is back": (scaler("False", "InvalidTarget", "x"), scaler(), [("Normal", "Ready")]),
}


@pytest.mark.parametrize(("old", "new", "expected"), AUTOSCALERS.values(), ids=AUTOSCALERS)
def test_what_is_told_of_an_autoscaler(old: Object, new: Object, expected: list[tuple[str, str]]) -> None:
    assert brief(events_of_autoscaler(old, new)) == expected


def test_a_scale_says_from_how_many_to_how_many_and_why() -> None:
    (event,) = events_of_autoscaler(scaler(), scaler(lastScale=scale()))
    assert event.note == "scaled from 2 to 4 replicas: above target"
    (event,) = events_of_autoscaler(scaler(), scaler(lastScale=scale(came=None, reason="")))
    assert event.note == "scaled to 4 replicas"


def test_a_note_is_no_longer_than_the_api_takes() -> None:
    (event,) = events_of(status(), status(troubles=[on_node("a", "kubelet", Trouble("garbage", "ü" * 4000))]))
    assert 1000 < len(event.note.encode()) <= LONGEST_NOTE_BYTES
    assert event.note.endswith("…")


OLD = hostile({}, status(troubles=[dcgm("a")]), scaler(lastScale=scale()))


@given(old=OLD, new=OLD)
def test_whatever_two_statuses_say_the_events_are_such_as_the_api_takes(old: Object, new: Object) -> None:
    for event in (*events_of(old, new), *events_of_autoscaler(old, new)):
        assert event.type in ("Normal", "Warning")
        assert event.reason
        assert event.action.isalpha()
        assert len(event.note.encode()) <= LONGEST_NOTE_BYTES
        assert event.note.isprintable()
