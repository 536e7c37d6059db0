"""What a pod says of itself → why its node has no exporter."""

from datetime import timedelta

import pytest

from exporter.operator.exporters.exporter_pods import (
    CRASHED_SECONDS,
    STARTING_SECONDS,
    NodeTrouble,
    node_of,
    pod_troubles,
)
from tests.operator.made import NOW, Object, ago, container, ended, pending, pod, waiting


def only(of: Object) -> NodeTrouble:
    (found,) = pod_troubles(of, NOW)
    return found


FINE = {
    "ready": pod(),
    "just made, without a status": {"metadata": {"name": "x"}, "spec": {"nodeName": "a"}},
    "containers are being created": pending("a", waiting("ContainerCreating"), waiting("PodInitializing")),
    "runs, and is not ready yet": pod("a", container(ready=False), ready=False, age=STARTING_SECONDS - 1),
    "is being deleted": pending("a", waiting("CrashLoopBackOff"), deletionTimestamp=ago(1)),
    "a container ended well before": pod("a", container(lastState=ended(0, "Completed"))),
    "crashed once, and works": pod("a", container(lastState=ended(), restartCount=1)),
    "crashed often, long ago": pod("a", container(lastState=ended(seconds_ago=CRASHED_SECONDS + 1), restartCount=9)),
}


@pytest.mark.parametrize("of", FINE.values(), ids=FINE)
def test_what_is_no_trouble(of: Object) -> None:
    assert not list(pod_troubles(of, NOW))


@pytest.mark.parametrize(
    ("told", "why", "remedy"),
    [
        ('rpc error: code = NotFound desc = failed to pull "x": not found', "does not have it", "is its name right?"),
        ("manifest unknown", "does not have it", "is its name right?"),
        ("pull access denied, repository does not exist or may require 'docker login'", "does not have it", ""),
        ("401 Unauthorized", "refuses it", "spec.imagePullSecrets"),
        ("dial tcp: lookup nvcr.io: no such host", "cannot be reached from the node", "registry"),
        ("dial tcp 10.0.0.1:443: i/o timeout", "cannot be reached from the node", "registry"),
        ("toomanyrequests: You have reached your pull rate limit", "limits how often", ""),
        ("no space left on device", "disk is full", "make room"),
        ("no match for platform in manifest", "architecture", ""),
        ('Back-off pulling image "x"', "cannot be pulled -> is its name right", "spec.imagePullSecrets"),
    ],
)
def test_an_image_that_cannot_be_had(told: str, why: str, remedy: str) -> None:
    found = only(pending("a", waiting("ImagePullBackOff", told, name="dcgm-exporter")))
    assert (found.node, found.source, found.reason) == ("a", "pod", "ImagePullBackOff")
    assert "registry.example/dcgm-exporter:1" in found.message
    assert why in found.message
    assert remedy in found.message


def test_a_pull_that_is_tried_again_stays_the_same_trouble() -> None:
    why = 'failed to pull and unpack image "x": not found'
    trying = waiting("ErrImagePull", f"rpc error: code = NotFound desc = {why}")
    backing_off = waiting("ImagePullBackOff", f'Back-off pulling image "x": ErrImagePull: rpc error: {why}')
    assert only(pending("a", trying)) == only(pending("a", backing_off))


def test_a_container_that_crashes_is_one_trouble_through_all_of_its_tries() -> None:
    in_a_loop = [
        waiting("CrashLoopBackOff", "back-off 10s restarting failed container", lastState=ended(2), restartCount=2),
        waiting("CrashLoopBackOff", "back-off 5m0s restarting failed container", lastState=ended(2), restartCount=7),
        container(ready=False, state=ended(2), restartCount=3),
        container(ready=False, state={"running": {"startedAt": ago(1)}}, lastState=ended(2), restartCount=4),
        container(ready=True, state={"running": {"startedAt": ago(1)}}, lastState=ended(2), restartCount=5),
    ]
    found = {only(pod("a", each, ready=False)) for each in in_a_loop}
    (one,) = found
    assert one.reason == "CrashLoopBackOff"
    assert one.message == (
        "its container exporter ended with exit code 2, and is started again"
        " -> kubectl logs --previous -c exporter gpu-a says why"
    )


def test_a_dcgm_exporter_that_crashes_may_not_know_a_field() -> None:
    found = only(pod("a", waiting("CrashLoopBackOff", lastState=ended(1), name="dcgm-exporter"), ready=False))
    assert "spec.collectors" in found.message


def test_memory_that_does_not_suffice_names_the_field_to_change() -> None:
    found = only(pod("a", waiting("CrashLoopBackOff", lastState=ended(137, "OOMKilled")), ready=False))
    assert "spec.resources.exporter.limits.memory" in found.message
    dcgm = waiting("CrashLoopBackOff", lastState=ended(137, "OOMKilled"), name="dcgm-exporter")
    assert "spec.resources.dcgm.limits.memory" in only(pod("a", dcgm, ready=False)).message


def test_a_container_that_cannot_be_made_says_why_in_the_kubelets_words() -> None:
    told = 'references non-existent config key: "counters.csv"'
    found = only(pending("a", container("dcgm-exporter"), waiting("CreateContainerConfigError", told)))
    assert found.reason == "CreateContainerConfigError"
    assert f"its container exporter cannot start: {told} ->" in found.message


def test_an_init_containers_trouble_counts() -> None:
    of = pending("a", waiting("PodInitializing"))
    of["status"]["initContainerStatuses"] = [waiting("InvalidImageName", name="first")]
    assert only(of).reason == "InvalidImageName"


def unschedulable(told: str) -> Object:
    of = pending("a", conditions={"PodScheduled": {"status": "False", "reason": "Unschedulable", "message": told}})
    field = {"key": "metadata.name", "operator": "In", "values": ["gpu-7"]}
    affinity = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    of["spec"] = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity}}}
    return of


def test_a_pod_without_a_place_names_the_node_that_it_is_for() -> None:
    told = (
        "0/5 nodes are available: 1 Insufficient memory, 4 node(s) didn't match Pod's node affinity/selector."
        " preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling."
    )
    found = only(unschedulable(told))
    assert (found.node, found.reason) == ("gpu-7", "Unschedulable")
    assert "finds no place: Insufficient memory -> make room on the node" in found.message
    # another node that came since changes nothing
    assert found == only(unschedulable(told.replace("0/5", "0/6").replace("4 node(s)", "5 node(s)")))


def test_a_node_whose_kubelet_is_silent() -> None:
    """The node's controller sets Ready to False, and leaves all that the kubelet said (MarkPodsNotReady)."""
    found = only(pod("a", ready=False, conditions={"ContainersReady": {"status": "True"}}))
    assert found.reason == "NodeLost"
    assert "kubelet does not report" in found.message


def test_a_pod_that_has_ended() -> None:
    of = pod("a", phase="Failed", ready=False)
    of["status"] |= {
        "reason": "Evicted",
        "message": "The node was low on resource: memory. Threshold quantity: 100Mi, available: 98324Ki.",
    }
    found = only(of)
    assert found.reason == "Evicted"
    assert "has ended: The node was low on resource: memory ->" in found.message
    assert "98324" not in found.message


def test_a_pod_that_starts_for_too_long() -> None:
    of = pod("a", container("dcgm-exporter", ready=False), container(), ready=False, age=STARTING_SECONDS)
    found = only(of)
    assert found.reason == "NotReady"
    assert "not become ready within 10 minutes (dcgm-exporter not ready)" in found.message
    (later,) = pod_troubles(of, NOW + timedelta(days=1))
    assert later == found


def test_a_pod_that_names_no_node() -> None:
    of = pending("a", waiting("CrashLoopBackOff"))
    of["spec"] = {}
    assert node_of(of) == ""
    assert only(of).node == "(the node of pod gpu-a)"


def test_what_a_peer_says_stays_on_one_line_and_within_bounds() -> None:
    found = only(pending("a", waiting("RunContainerError", "bad\n\x1b[31m" + "x" * 5000)))
    assert found.message.isprintable()
    assert len(found.message) < 600
