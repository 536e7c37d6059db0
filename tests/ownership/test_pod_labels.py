"""What a pod's samples gain from the pod itself."""

import re
from dataclasses import replace

from exporter.model.pods import PodInfo
from exporter.ownership.labels import PodAdditions, PodLabelPolicy


def pod(**labels: str) -> PodInfo:
    return PodInfo(
        namespace="ml", name="train-0", uid="1-2-3", labels={k.replace("__", "/"): v for k, v in labels.items()}
    )


EVERYTHING = PodLabelPolicy(patterns=(re.compile(".*"),))


def test_label_names_are_sanitised_and_prefixed() -> None:
    labels = {"app.kubernetes.io/name": "train", "job": "mine", "instance": "x", "team": 'q"\n'}
    found, problems = EVERYTHING.labels_of(PodInfo(namespace="ml", name="a", uid="u", labels=labels))
    assert found.labels == (
        ("label_app_kubernetes_io_name", "train"),
        ("label_instance", "x"),
        ("label_job", "mine"),
        ("label_team", 'q"\n'),
    )
    assert problems == {}


def test_only_what_is_asked_for() -> None:
    policy = PodLabelPolicy(with_uid=True, patterns=(re.compile("team"), re.compile(r"app\..*")))
    found, _ = policy.labels_of(pod(team="a", **{"app.x": "b", "teams": "c"}))
    assert found == PodAdditions(uid="1-2-3", labels=(("label_app_x", "b"), ("label_team", "a")))
    assert PodLabelPolicy(with_uid=True).labels_of(pod(team="a"))[0] == PodAdditions(uid="1-2-3")
    assert PodLabelPolicy().labels_of(pod(team="a"))[0] == PodAdditions()


def test_labels_that_come_out_alike_get_suffixes_in_order_of_their_names() -> None:
    labels = {"a_b": "3", "a.b": "2", "a-b": "1", "a.b_conflict1": "4", "c": "5"}
    found, problems = EVERYTHING.labels_of(PodInfo(namespace="ml", name="a", uid="u", labels=labels))
    assert dict(found.labels) == {
        "label_a_b_conflict2": "1",
        "label_a_b_conflict3": "2",
        "label_a_b_conflict1": "4",
        "label_a_b_conflict4": "3",
        "label_c": "5",
    }
    assert len(dict(found.labels)) == len(found.labels)
    assert problems == {"collision": 3}


def test_two_labels_that_come_out_alike_are_numbered_from_1() -> None:
    labels, problems = EVERYTHING.labels_of(PodInfo(namespace="ml", name="a", uid="u", labels={"a.b": "1", "a-b": "2"}))
    assert labels.labels == (("label_a_b_conflict1", "2"), ("label_a_b_conflict2", "1"))
    assert problems == {"collision": 2}


# issue 7, line 20
def test_there_is_a_limit_that_can_be_set() -> None:
    many = pod(**{f"l{number:03}": "x" for number in range(37)})
    for policy, limit in ((EVERYTHING, 32), (replace(EVERYTHING, limit=3), 3), (replace(EVERYTHING, limit=37), 37)):
        found, problems = policy.labels_of(many)
        assert [name for name, _ in found.labels] == [f"label_l{number:03}" for number in range(limit)]
        assert problems == ({"limit": 37 - limit} if limit < 37 else {})
