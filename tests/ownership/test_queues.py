"""The queue that the labels of a pod name."""

import pytest

from exporter.model.pods import PodInfo
from exporter.ownership.queues import QUEUE_KEYS, labels_of_queue, queue_among, queue_of

LOCAL, OF_KUEUE = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/cluster-queue-name"
ASSIGNED, KAI, RUNAI = "kueue.x-k8s.io/local-queue-name", "kai.scheduler/queue", "runai/queue"


@pytest.mark.parametrize(
    ("labels", "queue"),
    [
        ({}, ""),
        ({"queue": "mine", "team": "a"}, ""),
        # Kueue 0.17 and later, on each pod that it admits
        ({OF_KUEUE: "research", ASSIGNED: "team-a"}, "research"),
        ({OF_KUEUE: "research", ASSIGNED: "team-a", LOCAL: "team-a"}, "research"),
        # a ClusterQueue whose name is no label: only the LocalQueue is there
        ({ASSIGNED: "team-a"}, "vision/team-a"),
        # Kueue before 0.17
        ({LOCAL: "user-queue"}, "vision/user-queue"),
        ({KAI: "default-queue"}, "default-queue"),
        ({RUNAI: "project-a"}, "project-a"),
        ({RUNAI: "old", KAI: "new"}, "new"),
        # Kueue admits, and KAI places
        ({OF_KUEUE: "research", KAI: "default-queue"}, "research"),
        ({OF_KUEUE: "", LOCAL: "", KAI: ""}, ""),
    ],
)
def test_the_queue_of_a_pod(labels: dict[str, str], queue: str) -> None:
    pod = PodInfo(namespace="vision", name="train-0", uid="1", labels=labels)
    assert queue_of(pod) == queue
    assert labels_of_queue(pod) == ((("queue", queue),) if queue else ())
    assert queue_among(labels_of_queue(pod)) == queue
    assert queue_among((("pod_uid", "1"), *labels_of_queue(pod))) == queue


def test_local_queues_of_two_namespaces_stay_apart() -> None:
    pods = [PodInfo(namespace=namespace, name="a", uid="1", labels={LOCAL: "user-queue"}) for namespace in "ab"]
    assert [*map(queue_of, pods)] == ["a/user-queue", "b/user-queue"]


def test_all_labels_that_are_read_are_named() -> None:
    """A bundle keeps these, and no others."""
    assert set(QUEUE_KEYS) == {LOCAL, OF_KUEUE, ASSIGNED, KAI, RUNAI}
