"""Keeping owners while the kubelet is away and through its first moments."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution.retention import GRACE_SECONDS, Retained, answered, failed
from exporter.model import Assignment, Owner, PodResources


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
    assert state.unlisted == frozenset()
    # listed since the reconnect: its going is believed at once
    state = answered(state, answer(A, C), now=11.0, reconnected=False)
    assert state.assignments == {A, C}


def test_a_pod_that_was_listed_and_then_vanished_is_gone_while_others_are_still_awaited() -> None:
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


def test_after_a_minute_the_kubelets_word_is_the_truth() -> None:
    state = answered(after(A, B), answer(), now=10.0, reconnected=True)
    state = answered(state, answer(B), now=10.0 + GRACE_SECONDS - 0.1, reconnected=False)
    assert state.assignments == {A, B}
    state = answered(state, answer(B), now=10.0 + GRACE_SECONDS, reconnected=False)
    assert state.assignments == {B}


def test_failures_keep_owners_until_they_are_stale() -> None:
    state = failed(after(A), now=600.0, max_stale_seconds=600.0)
    assert state.assignments == {A}
    state = failed(state, now=600.1, max_stale_seconds=600.0)
    assert state.assignments == frozenset()
    # and then they are not brought back by a kubelet that lists nothing yet
    assert answered(state, answer(), now=601.0, reconnected=True).assignments == frozenset()


def test_before_the_first_answer_there_is_nothing_to_keep() -> None:
    assert failed(Retained(), now=1e9, max_stale_seconds=1.0) == Retained()


everything = st.sampled_from((A, B, C, assignment("d", "GPU-1"), assignment("a", "GPU-3::1")))
steps = st.lists(st.tuples(st.lists(everything, max_size=4), st.booleans(), st.floats(0, 30)), max_size=12)


@given(steps=steps)
def test_whatever_happens_the_last_answer_is_in_force_and_nothing_outlives_the_grace(
    steps: list[tuple[list[Assignment], bool, float]],
) -> None:
    state, now, ever = Retained(), 0.0, set[Assignment]()
    last_listed: dict[Assignment, float] = {}
    reconnected_at = 0.0
    for given_now, reconnected, seconds in steps:
        now += seconds
        reconnected_at = now if reconnected else reconnected_at
        state = answered(state, answer(*given_now), now=now, reconnected=reconnected)
        ever |= set(given_now)
        last_listed |= dict.fromkeys(given_now, now)
        assert state.assignments >= set(given_now)
        assert state.assignments <= ever
        for kept in state.assignments - set(given_now):
            assert last_listed[kept] <= reconnected_at
            assert now - reconnected_at < GRACE_SECONDS
            assert kept.owner not in {found.owner for found in given_now}
            assert kept.device_id not in {found.device_id for found in given_now}
