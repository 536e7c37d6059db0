"""Keeping owners while the kubelet is away and through its first moments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment, PodResources
from exporter.model.pods import Owner
from exporter.ownership.retention import Retained, answered, failed

# as users know them
GRACE_SECONDS = 10.0
STALE_WHILE_REFUSED_SECONDS = 600.0


def assignment(pod: str, device_id: str) -> Assignment:
    return Assignment(
        owner=Owner(namespace="ml", pod=pod, container="main"), resource="nvidia.com/gpu", device_id=device_id
    )


A, B, C = assignment("a", "GPU-1"), assignment("b", "GPU-2"), assignment("c", "GPU-3::0")


def answer(*assignments: Assignment, also_listed: tuple[str, ...] = ()) -> PodResources:
    pods = {found.owner.pod for found in assignments} | set(also_listed)
    return PodResources(assignments=frozenset(assignments), listed=frozenset(("ml", pod) for pod in pods))


def after(*assignments: Assignment) -> Retained:
    return answered(Retained(), answer(*assignments), now=0.0, reconnected=False)


def test_without_a_reconnect_the_answer_is_the_truth() -> None:
    gone = answered(after(A, B), answer(A), now=1.0, reconnected=False)
    assert gone.assignments == {A}


def test_an_unchanged_answer_keeps_the_object() -> None:
    before = after(A, B)
    assert answered(before, answer(B, A), now=1.0, reconnected=False).assignments is before.assignments


def test_a_kubelet_that_starts_lists_nothing_then_a_part() -> None:
    state = answered(after(A, B, C), answer(), now=10.0, reconnected=True)
    assert state.assignments == {A, B, C}
    state = answered(state, answer(A), now=10.1, reconnected=False)
    assert state.assignments == {A, B, C}
    state = answered(state, answer(A, B, C), now=10.2, reconnected=False)
    assert state.unlisted == {}
    # listed since the reconnect: its going is believed at once
    state = answered(state, answer(A, C), now=11.0, reconnected=False)
    assert state.assignments == {A, C}


def test_a_listed_pod_that_vanished_is_gone_while_others_are_awaited() -> None:
    state = answered(after(A, B), answer(A), now=10.0, reconnected=True)
    state = answered(state, answer(), now=10.5, reconnected=False)
    assert state.assignments == {B}


def test_a_listed_pod_without_its_device_has_given_it_back() -> None:
    assert answered(after(A, B), answer(also_listed=("a",)), now=10.0, reconnected=True).assignments == {B}


def test_a_device_given_to_another_is_no_longer_held() -> None:
    to_d = assignment("d", "GPU-1")
    assert answered(after(A, B), answer(to_d), now=10.0, reconnected=True).assignments == {to_d, B}
    # another share of the same GPU leaves this one alone, the whole GPU does not
    other_share, whole = assignment("d", "GPU-3::1"), assignment("d", "GPU-3")
    assert answered(after(C), answer(other_share), now=10.0, reconnected=True).assignments == {C, other_share}
    assert answered(after(C), answer(whole), now=10.0, reconnected=True).assignments == {whole}


X = "GPU-9567a9e7-341e-bb7e-fcf5-788d8caa50f9"


@pytest.mark.parametrize(
    ("held", "given_now", "stays"),
    [
        # an allocator's token names another device than the container has, and is one container's
        (f"{X}-3", X, True),
        (X, f"{X}-3", True),
        (f"{X}-3", f"{X}-4", True),
        (f"{X}-3", f"{X}-3", False),
        # an id that nobody understands
        ("strange", "odd", True),
        ("strange", "strange", False),
        (X, X, False),
        (X, f"{X}::1", False),
    ],
)
def test_an_id_takes_a_device_away_as_far_as_it_names_one(held: str, given_now: str, *, stays: bool) -> None:
    now = answer(assignment("d", given_now))
    state = answered(after(assignment("a", held)), now, now=10.0, reconnected=True)
    assert (len(state.assignments) == 2) == stays


def test_who_only_looks_at_a_device_takes_it_from_nobody() -> None:
    def read(held: Assignment) -> DeviceRef:
        return DeviceRef(form="x", uuid=X, is_look=held.owner.pod == "monitoring")

    for pod, kept in (("monitoring", {A}), ("d", set())):
        to_another = assignment(pod, X)
        state = answered(after(A), answer(to_another), now=10.0, reconnected=True, read=read)
        assert state.assignments == {*kept, to_another}


def test_a_device_without_a_name_takes_nothing_away() -> None:
    """As a claim's network device: of two such devices nobody can say that they are one."""
    to_d = assignment("d", "other")
    state = answered(after(A), answer(to_d), now=10.0, reconnected=True, read=lambda _: DeviceRef(form="x"))
    assert state.assignments == {A, to_d}
    state = answered(after(A), answer(to_d), now=10.0, reconnected=True, read=lambda _: None)
    assert state.assignments == {A, to_d}


# issue 7, line 3
def test_the_grace_counts_from_the_first_answer_that_lists_a_pod() -> None:
    state = answered(after(A, B), answer(), now=10.0, reconnected=True)
    state = answered(state, answer(B), now=100.0, reconnected=False)
    state = answered(state, answer(B), now=100.0 + GRACE_SECONDS - 0.1, reconnected=False)
    assert state.assignments == {A, B}
    state = answered(state, answer(B), now=100.0 + GRACE_SECONDS, reconnected=False)
    assert state.assignments == {B}


# issue 24, part 2
def test_a_listed_pod_without_devices_stays_as_long_as_an_owner_does() -> None:
    listed = {("ml", "a"), ("ml", "idle")}
    before = answered(Retained(), answer(A, also_listed=("idle",)), now=0.0, reconnected=False)
    assert before.listed == listed
    assert answered(before, answer(A, also_listed=("idle",)), now=1.0, reconnected=False).listed is before.listed
    assert answered(before, answer(A), now=1.0, reconnected=False).listed == {("ml", "a")}
    state = answered(before, answer(), now=10.0, reconnected=True)
    assert state.listed is before.listed
    state = answered(state, answer(A), now=11.0, reconnected=False)
    state = answered(state, answer(A), now=11.0 + GRACE_SECONDS - 0.1, reconnected=False)
    assert state.listed is before.listed
    assert answered(state, answer(A), now=11.0 + GRACE_SECONDS, reconnected=False).listed == {("ml", "a")}
    assert not failed(state, now=2000.0, max_stale_seconds=60.0).listed
    assert failed(state, now=30.0, max_stale_seconds=60.0).listed is before.listed


# issue 7, line 3
def test_owners_are_kept_until_the_kubelets_last_word_is_stale() -> None:
    state = after(A, B)
    for now in range(10, int(STALE_WHILE_REFUSED_SECONDS), 10):
        state = answered(state, answer(), now=float(now), reconnected=now == 10)
        assert state.assignments == {A, B}
        assert not state.lists_pods
    state = answered(state, answer(), now=STALE_WHILE_REFUSED_SECONDS, reconnected=False)
    assert state.assignments == {A, B}
    assert state.known_at == 0.0
    late = STALE_WHILE_REFUSED_SECONDS + 0.1
    assert answered(state, answer(), now=late, reconnected=False).assignments == frozenset()
    # a setting decides, and what the kubelet then lists is back at once
    state = answered(state, answer(), now=595.0, reconnected=False, max_stale_seconds=500.0)
    assert state.assignments == frozenset()
    assert answered(state, answer(A), now=596.0, reconnected=False).assignments == {A}


# issue 7, line 3
def test_a_failure_among_empty_answers_does_not_make_the_last_word_staler() -> None:
    state = answered(after(A), answer(), now=290.0, reconnected=True)
    assert failed(state, now=300.0, max_stale_seconds=60.0).assignments == {A}
    assert failed(state, now=351.0, max_stale_seconds=60.0).assignments == frozenset()
    state = answered(state, answer(), now=590.0, reconnected=False)
    assert failed(state, now=600.0, max_stale_seconds=60.0).assignments == {A}
    assert failed(state, now=601.0, max_stale_seconds=60.0).assignments == frozenset()


# issue 7, line 3
def test_static_pods_do_not_show_that_the_api_server_was_reached() -> None:
    proxy, cut_loose = "kube-proxy-gpu-node-1", assignment("cut-loose-gpu-node-1", "GPU-4")
    state = after(A, B)
    for now in (10.0, 60.0):
        only_static = answer(also_listed=(proxy,))
        state = answered(state, only_static, now=now, reconnected=now == 10.0, node="GPU-Node-1")
    assert state.assignments == {A, B}
    only_static = answer(also_listed=(proxy,))
    state = answered(after(A, cut_loose), only_static, now=10.0, reconnected=True, node="gpu-node-1")
    state = answered(state, only_static, now=60.0, reconnected=False, node="gpu-node-1")
    assert state.assignments == {A, cut_loose}, "one that is awaited is not static"
    state = answered(after(cut_loose), answer(), now=10.0, reconnected=True, node="gpu-node-1")
    state = answered(state, answer(), now=60.0, reconnected=False, node="gpu-node-1")
    assert state.assignments == {cut_loose}, "no pod is listed yet"
    # where only static pods are awaited, there is nothing to reach
    state = answered(after(cut_loose), answer(also_listed=(proxy,)), now=10.0, reconnected=True, node="gpu-node-1")
    state = answered(state, answer(also_listed=(proxy,)), now=20.0, reconnected=False, node="gpu-node-1")
    assert state.assignments == frozenset()


def test_a_kubelet_that_has_listed_pods_is_believed_when_it_lists_none() -> None:
    state = answered(after(A, B), answer(A), now=10.0, reconnected=True)
    assert answered(state, answer(), now=10.0 + GRACE_SECONDS, reconnected=False).assignments == frozenset()


# issue 7, line 4
@pytest.mark.parametrize(
    ("up_for_seconds", "kept"),
    [
        (GRACE_SECONDS - 0.1, True),
        (GRACE_SECONDS, False),
        (55.0, False),
        # the clock was set meanwhile: not born yet, and up since before the last answer of its predecessor
        (-3600.0, True),
    ],
)
def test_without_an_empty_answer_the_grace_counts_from_the_kubelets_start(up_for_seconds: float, kept: bool) -> None:
    state = answered(after(A, B), answer(B), now=60.0, reconnected=True, up_for_seconds=up_for_seconds)
    assert state.assignments == ({A, B} if kept else {B})


# issue 7, line 4
def test_a_kubelet_is_not_older_than_the_last_answer_of_the_one_before() -> None:
    state = answered(after(A, B), answer(B), now=5.0, reconnected=True, up_for_seconds=3600.0)
    assert state.assignments == {A, B}
    assert state.unlisted == {A: 5.0}
    unknown = answered(after(A, B), answer(B), now=60.0, reconnected=True)
    assert unknown.unlisted == {A: 0.0}, "nobody knows for how long it has been up"


def test_an_answer_in_force_is_as_old_as_the_last_one_with_pods() -> None:
    assert Retained().known_at is None
    state = after(A, B)
    assert state.known_at == 0.0
    state = answered(state, answer(), now=10.0, reconnected=True)
    assert (state.known_at, state.answered_at) == (0.0, 10.0)
    state = answered(state, answer(B), now=20.0, reconnected=False)
    assert state.known_at == 20.0
    empty = answered(after(), answer(), now=30.0, reconnected=True)
    assert empty.known_at == 30.0, "it leaves nobody out"


# issue 7, line 4
def test_a_further_restart_goes_on_where_the_one_before_stopped() -> None:
    """Pod a went while the kubelet was down. Four restarts follow, each listing the others for 4 s."""
    state, now, shown = after(A, B), 0.0, 0.0
    for _ in range(5):
        now += 3.0
        state = answered(state, answer(), now=now, reconnected=True)
        assert B in state.assignments
        for _ in range(5):
            now += 1.0
            state = answered(state, answer(B), now=now, reconnected=False)
            shown = now if A in state.assignments else shown
    assert now == 40.0
    # it was missing for 4 s, 4 s and 2 s
    assert shown == 21.0
    assert state.assignments == {B}


# issue 7, line 4
def test_a_restart_within_the_grace_loses_nobody() -> None:
    state = answered(after(A, B), answer(), now=10.0, reconnected=True)
    state = answered(state, answer(B), now=11.0, reconnected=False)
    state = answered(state, answer(B), now=14.0, reconnected=False)
    # down, and back without the API server: neither time counts
    for now in (30.0, 60.0):
        state = answered(state, answer(), now=now, reconnected=now == 30.0)
    state = answered(state, answer(B), now=61.0, reconnected=False)
    assert state.assignments == {A, B}
    assert answered(state, answer(A, B), now=61.1, reconnected=False).unlisted == {}


def test_failures_keep_owners_until_they_are_stale() -> None:
    state = failed(after(A), now=600.0, max_stale_seconds=600.0)
    assert state.assignments == {A}
    state = failed(state, now=600.1, max_stale_seconds=600.0)
    assert state.assignments == frozenset()
    late = answered(Retained(), answer(A), now=590.0, reconnected=False)
    assert failed(late, now=650.0, max_stale_seconds=60.0).assignments == {A}
    # and then they are not brought back by a kubelet that lists nothing yet
    assert answered(state, answer(), now=601.0, reconnected=True).assignments == frozenset()


def test_before_the_first_answer_there_is_nothing_to_keep() -> None:
    assert failed(Retained(), now=1e9, max_stale_seconds=1.0) == Retained()


everything = st.sampled_from((A, B, C, assignment("d", "GPU-1"), assignment("a", "GPU-3::1")))
steps = st.lists(
    st.tuples(st.lists(everything, max_size=4), st.booleans(), st.floats(0, 30), st.floats(-1e6, 1e6)), max_size=12
)


@pytest.mark.history
@given(steps=steps)
def test_the_last_answer_is_in_force_and_nothing_outlives_the_grace(
    steps: list[tuple[list[Assignment], bool, float, float]],
) -> None:
    state, now, ever = Retained(), 0.0, set[Assignment]()
    last_listed: dict[Assignment, float] = {}
    reconnected_at, lists_since, missed = 0.0, None, dict[Assignment, float]()
    for given_now, reconnected, seconds, up_for_seconds in steps:
        now += seconds
        reconnected_at = now if reconnected else reconnected_at
        lists_since = None if reconnected else lists_since
        state = answered(state, answer(*given_now), now=now, reconnected=reconnected, up_for_seconds=up_for_seconds)
        ever |= set(given_now)
        last_listed |= dict.fromkeys(given_now, now)
        for held in ever - set(given_now):
            if lists_since is not None:
                missed[held] = missed.get(held, 0.0) + now - lists_since
        missed = {held: missing for held, missing in missed.items() if held not in given_now}
        lists_since = now if given_now or lists_since is not None else None
        assert state.assignments >= set(given_now)
        assert state.assignments <= ever
        for kept in state.assignments - set(given_now):
            assert last_listed[kept] <= reconnected_at
            # whatever the restarts: what the kubelet listed others without it for is never more than this
            assert missed.get(kept, 0.0) < GRACE_SECONDS
            assert kept.owner not in {found.owner for found in given_now}
            assert kept.device_id not in {found.device_id for found in given_now}
