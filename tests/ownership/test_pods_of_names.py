"""Which pod an owner's name means, by when the kubelet last listed it."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.devices import Assignment
from exporter.model.pods import Owner, OwnerReference, PodContainer, PodInfo, PodOfName
from exporter.ownership.pods_of_names import Listing, PodsOfOwners, may_change, may_come_again, pods_of

NAME = ("data", "db-0")


def named(
    uid: str,
    since: float = 0.0,
    until: float = inf,
    *,
    first: bool = False,
    phase: str = "Running",
    is_gone: bool = False,
) -> PodOfName:
    pod = PodInfo(namespace=NAME[0], name=NAME[1], uid=uid, labels={}, phase=phase)
    return PodOfName(pod=pod, since=since, until=until, is_first=first, is_gone=is_gone)


def meant(*pods_of_names: PodOfName, asked_at: float | None = 10.0, unlisted: bool = False, before: str = "") -> str:
    """The uid of the pod that the name means; "" for none."""
    listing = Listing(asked_at_seconds=asked_at, unlisted=frozenset({NAME}) if unlisted else frozenset())
    known = {NAME: named(before).pod} if before else {}
    found = pods_of([NAME], known, {NAME: pods_of_names} if pods_of_names else {}, listing)
    return found[NAME].uid if NAME in found else ""


# issue 7, line 5
@pytest.mark.parametrize(
    ("pods_of_names", "uid"),
    [
        pytest.param((), "", id="nobody is known"),
        pytest.param((named("a", 5.0),), "a", id="the one there is"),
        pytest.param((named("a", 10.5, first=True),), "a", id="told of just after the List: the first of its name"),
        pytest.param((named("a", inf, first=True),), "a", id="its status is still on its way: the first of its name"),
        pytest.param((named("b", 10.5),), "", id="made anew, and the List may be older"),
        pytest.param((named("b", inf),), "", id="made anew, and the kubelet may not know it"),
        pytest.param((named("a", 0.0, 11.0, first=True),), "a", id="gone since the List"),
        pytest.param((named("a", 0.0, 9.0, first=True),), "", id="gone before the List"),
        pytest.param((named("a", 0.0, 11.0), named("b", 11.1)), "a", id="made anew since the List"),
        pytest.param((named("a", 0.0, 8.0), named("b", 9.0)), "b", id="made anew before the List"),
        pytest.param((named("a", 0.0, 8.0), named("b", inf)), "", id="deleted by force, the new one not acknowledged"),
        pytest.param((named("a", 0.0), named("b", 9.0)), "", id="two at once: in doubt none"),
        pytest.param((named("a", 0.0, phase="Failed"), named("b", 9.0)), "b", id="the one that has not ended"),
        pytest.param(
            (named("a", 10.5, phase="Failed", first=True), named("b", 10.5)),
            "",
            id="both told of just after the List",
        ),
        pytest.param((named("a", 0.0, phase="Succeeded"),), "a", id="it has ended a moment ago"),
    ],
)
def test_a_name_means_who_bore_it_when_it_was_listed(pods_of_names: tuple[PodOfName, ...], uid: str) -> None:
    assert meant(*pods_of_names) == uid


# issue 7, line 5
@pytest.mark.parametrize(
    ("pods_of_names", "before", "uid"),
    [
        pytest.param((named("a", 0.0, 9.0), named("b", 9.5)), "a", "a", id="its successor runs already"),
        pytest.param((named("b", 1.0),), "a", "a", id="what is gone is forgotten, whom it meant is not"),
        pytest.param((), "a", "a", id="the source of pods knows nobody"),
        pytest.param((named("b", 1.0, first=True),), "", "", id="never listed since anybody looked: in doubt none"),
    ],
)
def test_a_name_that_was_not_listed_since_goes_on_meaning_the_same(
    pods_of_names: tuple[PodOfName, ...], before: str, uid: str
) -> None:
    assert meant(*pods_of_names, unlisted=True, before=before) == uid


def test_what_is_known_of_the_pod_is_the_latest() -> None:
    relabelled = PodInfo(namespace=NAME[0], name=NAME[1], uid="a", labels={"team": "new"})
    pods_of_names = {NAME: (PodOfName(pod=relabelled, since=0.0, until=inf, is_first=True),)}
    for unlisted in (frozenset[tuple[str, str]](), frozenset({NAME})):
        listing = Listing(asked_at_seconds=1.0, unlisted=unlisted)
        assert pods_of([NAME], {NAME: named("a").pod}, pods_of_names, listing) == {NAME: relabelled}


def test_an_equal_answer_is_the_same_object() -> None:
    before = {NAME: named("a").pod}
    assert pods_of([NAME], before, {NAME: (named("a"),)}, Listing(asked_at_seconds=1.0)) is before


# issue 7, line 5
@given(
    lives=st.lists(st.tuples(st.floats(0.1, 20), st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=5),
    asked_at=st.floats(0, 120),
    looked_after=st.floats(0, 20),
)
def test_through_any_life_of_a_name_no_pod_is_taken_for_another(
    lives: list[tuple[float, float, float]], asked_at: float, looked_after: float
) -> None:
    """Each pod lives for a while, is told of late, and is followed after a pause; the kubelet lists who is there."""
    moment, pods_of_names, truth, looked_at = 0.0, list[PodOfName](), "", asked_at + looked_after
    for number, (seconds, late, pause) in enumerate(lives):
        made, gone = moment, moment + late + seconds
        if made <= asked_at < gone:
            truth = str(number)
        if made + late <= looked_at:
            until = gone if gone <= looked_at else inf
            pods_of_names.append(named(str(number), made + late, until, first=not pods_of_names))
        moment = gone + pause
    if len(pods_of_names) != 1:
        assert meant(*pods_of_names, asked_at=asked_at) in ("", truth)
    elif truth == "0":
        assert meant(*pods_of_names, asked_at=asked_at) == truth


@pytest.mark.parametrize(
    ("pods_of_names", "may"),
    [
        ((), False),
        ((named("a", first=True),), False),
        ((named("a", 0.0, 5.0),), True),
        ((named("a"), named("b")), True),
    ],
)
def test_only_names_with_a_past_are_looked_at_again(pods_of_names: tuple[PodOfName, ...], may: bool) -> None:
    assert may_change([NAME], {NAME: pods_of_names} if pods_of_names else {}) is may


def test_pods_of_owners_are_worked_out_anew_only_after_a_change() -> None:
    owner = Owner(namespace=NAME[0], pod=NAME[1], container="main")
    assignments = frozenset({Assignment(owner=owner, resource="nvidia.com/gpu", device_id="GPU-1")})
    pods = PodsOfOwners()
    first = {NAME: (named("a", first=True),)}
    known = pods.update(assignments, first, Listing(asked_at_seconds=1.0))
    assert known[NAME].uid == "a"
    assert pods.update(assignments, first, Listing(asked_at_seconds=2.0)) is known
    made_anew = {NAME: (named("a", 0.0, 3.0, first=True), named("b", 4.0))}
    assert pods.update(assignments, made_anew, Listing(asked_at_seconds=2.0)) is known
    assert pods.update(assignments, made_anew, Listing(asked_at_seconds=2.0, unlisted=frozenset({NAME}))) is known
    assert pods.update(assignments, made_anew, Listing(asked_at_seconds=3.5)) == {}
    assert pods.update(assignments, made_anew, Listing(asked_at_seconds=5.0))[NAME].uid == "b"
    assert pods.update(frozenset(), made_anew, Listing(asked_at_seconds=6.0)) == {}


def test_pods_of_owners_follow_what_is_known_of_a_pod_and_who_is_listed() -> None:
    owner = Owner(namespace=NAME[0], pod=NAME[1], container="main")
    assignments = frozenset({Assignment(owner=owner, resource="nvidia.com/gpu", device_id="GPU-1")})
    pods = PodsOfOwners()
    made_anew = {NAME: (named("b", 9.0),)}
    assert pods.update(assignments, made_anew, Listing(asked_at_seconds=10.0, unlisted=frozenset({NAME}))) == {}
    assert pods.update(assignments, made_anew, Listing(asked_at_seconds=10.0))[NAME].uid == "b"
    relabelled = PodInfo(namespace=NAME[0], name=NAME[1], uid="b", labels={"team": "new"})
    now = {NAME: (PodOfName(pod=relabelled, since=9.0, until=inf, is_first=False),)}
    assert pods.update(assignments, now, Listing(asked_at_seconds=10.0)) == {NAME: relabelled}
    # a name that is wanted beside those of owners
    assert pods.update(frozenset(), now, Listing(asked_at_seconds=10.0)) == {}
    assert pods.update(frozenset(), now, Listing(asked_at_seconds=10.0), frozenset({NAME})) == {NAME: relabelled}


@pytest.mark.parametrize(
    ("pods_of_names", "before", "uid"),
    [((named("a"),), "a", "a"), ((named("b"), named("a")), "a", "a"), ((named("a"),), "", "")],
)
def test_before_the_first_list_a_name_goes_on_meaning_the_same(
    pods_of_names: tuple[PodOfName, ...], before: str, uid: str
) -> None:
    assert meant(*pods_of_names, asked_at=None, before=before) == uid


@pytest.mark.parametrize(
    ("since", "until", "is_meant"),
    [(10.0, inf, True), (10.1, inf, False), (0.0, 10.0, False), (0.0, 10.1, True)],
)
def test_a_pod_bears_its_name_from_its_first_moment_until_its_last(
    since: float, until: float, *, is_meant: bool
) -> None:
    assert meant(named("a", since, until), asked_at=10.0) == ("a" if is_meant else "")


@pytest.mark.parametrize(("doubted_since", "is_believed"), [(9.0, False), (10.0, False), (10.1, True), (inf, True)])
def test_what_decides_an_owner_needs_a_pod_of_which_somebody_tells(doubted_since: float, *, is_believed: bool) -> None:
    pods = {NAME: (replace(named("a"), doubted_since=doubted_since),)}
    listing = Listing(asked_at_seconds=10.0)
    assert bool(pods_of([NAME], {}, pods, listing, keeps_gone=False)) is is_believed
    assert pods_of([NAME], {}, pods, listing), "its labels count all the same"
    assert may_change([NAME], pods) is (doubted_since < inf)


def test_that_another_pod_of_the_name_is_gone_says_nothing_of_this_one() -> None:
    pods = {NAME: (named("a", until=9.0, is_gone=True), named("b", 9.5))}
    of_list = Listing(asked_at_seconds=10.0)
    assert pods_of([NAME], {}, pods, of_list, keeps_gone=False)[NAME].uid == "b"
    unlisted = replace(of_list, unlisted=frozenset({NAME}))
    assert pods_of([NAME], {NAME: named("a").pod}, pods, unlisted, keeps_gone=False) == {}


@pytest.mark.parametrize(
    ("pods_of_names", "uid"),
    [
        # one that has ended counts only if nobody is alive, then or now
        ((named("a", phase="Failed"), named("b", inf)), ""),
        ((named("a", phase="Failed"), named("b", 0.0, 9.0)), "a"),
        ((named("a", phase="Failed"), named("b", 0.0, 11.0)), "b"),
        ((named("a", phase="Failed"), named("b", phase="Succeeded")), ""),
    ],
)
def test_a_pod_that_has_ended_gives_way_to_one_that_is_alive(pods_of_names: tuple[PodOfName, ...], uid: str) -> None:
    assert meant(*pods_of_names) == uid


# issue 24
@pytest.mark.parametrize(
    ("pod", "is_kept"),
    [
        (named("a"), True),
        (named("a", until=9.0), True),  # nobody has heard of it since
        (named("a", until=11.0, is_gone=True), False),
        (named("a", phase="Succeeded"), False),
    ],
)
@pytest.mark.parametrize("is_unlisted", [True, False])
def test_a_word_is_no_longer_believed_once_its_pod_is_gone(pod: PodOfName, is_kept: bool, is_unlisted: bool) -> None:
    """The kubelet may be down, and its last answer older than that."""
    listing = Listing(asked_at_seconds=8.0, unlisted=frozenset({NAME}) if is_unlisted else frozenset())
    before = {NAME: named("a").pod}
    assert bool(pods_of([NAME], before, {NAME: (pod,)}, listing, keeps_gone=False)) is is_kept
    assert pods_of([NAME], before, {NAME: (pod,)}, listing), "its labels stay as long as its owner does"


# issue 24
def test_a_pod_that_reserves_a_gpu_shares_its_name_with_no_other_group() -> None:
    pod = PodInfo(
        namespace="kai-resource-reservation",
        name="gpu-reservation-n1-0a1b2",
        uid="u",
        labels={"runai-gpu-group": "g"},
        containers=(PodContainer(name="resource-reservation"),),
    )
    assert not may_come_again(pod)
    assert may_come_again(replace(pod, labels={}))


# issue 15, line 20
@pytest.mark.parametrize(
    ("name", "kind", "may"),
    [
        ("db-0", "StatefulSet", True),
        ("worker-12345", "PyTorchJob", True),
        ("train-5d5bc5cd68-nzr67", "ReplicaSet", False),
        ("eval-gkckv", "Job", False),
        ("eval-gkckv", "", True),
        ("my-train", "", True),
    ],
)
def test_only_a_name_that_was_generated_is_one_pods_alone(name: str, kind: str, may: bool) -> None:
    owner = OwnerReference(api_version="v1", kind=kind, name="x", uid="x", is_controller=True)
    pod = PodInfo(namespace="ml", name=name, uid="u", labels={}, owners=(owner,) if kind else ())
    assert may_come_again(pod) is may
    other = replace(owner, is_controller=False)
    assert may_come_again(replace(pod, owners=(other, *pod.owners))) is may
    assert may_come_again(replace(pod, owners=(other,))), "an owner that is no controller generates no name"
