"""Entries: which one is a container's, how long it stays when the container is gone, and who makes room for others."""

import pytest

from exporter.accounts.entries import AmountFamily, Entries, Entry, joined_values
from exporter.model.devices import DeviceKey
from tests.support.looks import owner

KEY, OTHER = DeviceKey(uuid="GPU-1"), DeviceKey(uuid="GPU-2")


def test_an_amount_begins_at_nothing_and_grows_by_label_if_it_has_one() -> None:
    entry = Entry(owner("a"), "", KEY)
    for amount in (3, 4):
        entry.add("plain", amount)
        entry.add("by reason", amount, "heat")
    entry.add("by reason", 0, "power")
    assert (entry.amounts, entry.by_label) == ({"plain": 7}, {"by reason": {"heat": 7, "power": 0}})


def test_labels_that_divide_an_amount_are_read_as_they_were_joined() -> None:
    family = AmountFamily("errors", "errors", 0, labels=("kind", "link"))
    assert [*family.labelled(joined_values("replay", "3"))] == [("kind", "replay"), ("link", "3")]


def test_moments_of_an_account_are_by_the_clock_as_it_is_set() -> None:
    entry = Entry(owner("a"), "", KEY, began_at_ns=10, idle_since_at_ns=20, idle_seen_at_ns=30)
    account = entry.account(clock_set_ns=5, at_ns=30)
    assert (account.began_ns, account.idle_since_ns) == (15, 25)
    # another look has not seen it idle
    assert entry.account(clock_set_ns=5, at_ns=31).idle_since_ns is None
    assert Entry(owner("a"), "", KEY, idle_seen_at_ns=30).account(at_ns=30).idle_since_ns is None
    assert Entry(owner("a"), "", KEY).account(clock_set_ns=5).began_ns is None


def test_an_account_does_not_grow_with_its_entry() -> None:
    entry = Entry(owner("a"), "", KEY, amounts={"plain": 1}, by_label={"by reason": {"heat": 1}})
    account = entry.account()
    entry.add("plain", 1)
    entry.add("by reason", 1, "heat")
    assert (account.amounts, account.by_label) == ({"plain": 1}, {"by reason": {"heat": 1}})
    assert Entry(owner("a"), "", KEY).account().by_label == {}


def test_a_container_has_one_entry_for_each_device_and_uid() -> None:
    entries = Entries()
    entries.at_ns = 7
    first = entries.of(owner("a"), KEY, "u1")
    assert (first.owner, first.uid, first.device, first.began_at_ns) == (owner("a"), "u1", KEY, 7)
    assert entries.of(owner("a"), KEY, "u1") is first
    others = [entries.of(owner("a"), OTHER, "u1"), entries.of(owner("b"), KEY), entries.of(owner("a"), KEY, "u2")]
    assert [*entries] == [first, *others]
    # without a uid the last container of that name is meant
    assert entries.of(owner("a"), KEY) is others[-1]


def test_an_entry_learns_its_uid_when_somebody_knows_it() -> None:
    entries = Entries()
    entry = entries.of(owner("a"), KEY)
    assert entries.of(owner("a"), KEY, "u1") is entry
    assert (entry.uid, len(entries)) == ("u1", 1)
    assert entries.of(owner("a"), KEY) is entry
    assert entries.of(owner("a"), KEY, "u2") is not entry


def test_nobody_has_an_entry_only_where_it_was_asked_for() -> None:
    entries = Entries()
    entries.of(owner("a"), KEY)
    assert not entries.has_nobodys(KEY)
    entries.of(None, KEY)
    assert (entries.has_nobodys(KEY), entries.has_nobodys(OTHER)) == (True, False)


def test_what_is_not_held_is_gone_from_then_on_until_it_is_held() -> None:
    entries = Entries()
    a, b = entries.of(owner("a"), KEY), entries.of(owner("b"), KEY)
    a.ratio, a.idle_since_at_ns = 0.5, 3
    entries.shown = 4
    entries.note_held({b}, 10)
    entries.shown = 5
    entries.note_held({b}, 20)
    gone, _ = entries
    assert (gone.gone_at_ns, gone.shown_before, gone.ratio, gone.idle_since_at_ns) == (10, 4, None, None)
    assert b.gone_at_ns is None
    entries.note_held({a, b}, 30)
    assert a.gone_at_ns is None


@pytest.mark.parametrize(
    ("before_ns", "shown", "is_kept"), [(10, 2, False), (9, 2, True), (11, 1, True), (11, 3, False)]
)
def test_who_is_gone_long_enough_and_was_shown_twice_is_dropped(before_ns: int, shown: int, is_kept: bool) -> None:
    entries = Entries()
    entries.shown = 6
    gone, held = entries.of(owner("a"), KEY), entries.of(owner("b"), KEY)
    entries.note_held({held}, 10)
    entries.shown += shown
    entries.forget(before_ns)
    assert [*entries] == ([gone, held] if is_kept else [held])
    assert gone.is_dropped is not is_kept
    assert (entries.of(owner("a"), KEY) is gone) is is_kept


def test_a_dropped_entry_is_not_what_its_name_means_any_more() -> None:
    entries = Entries()
    entries.shown = 2
    old = entries.of(owner("a"), KEY, "u1")
    entries.note_gone(old, 1)
    new = entries.of(owner("a"), KEY, "u2")
    entries.shown += 2
    entries.forget(1)
    assert (old.is_dropped, entries.of(owner("a"), KEY)) == (True, new)
    entries.note_gone(new, 2)
    entries.shown += 2
    entries.forget(2)
    assert entries.of(owner("a"), KEY).uid == ""


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> tuple[Entries, dict[str, Entry]]:
    """As many entries as there may be: four."""
    monkeypatch.setattr("exporter.accounts.entries.MOST_ACCOUNTS", 4)
    entries = Entries()
    return entries, {pod: entries.of(owner(pod), KEY) for pod in "abcd"}


def dropped(by_pod: dict[str, Entry]) -> str:
    return "".join(pod for pod, entry in by_pod.items() if entry.is_dropped)


def test_the_entries_gone_longest_make_room_one_for_one(full: tuple[Entries, dict[str, Entry]]) -> None:
    entries, by_pod = full
    for at_ns, pod in enumerate("cab"):
        entries.note_gone(by_pod[pod], at_ns)
    for new, gone in (("e", "c"), ("f", "ac"), ("g", "abc")):
        assert not entries.of(owner(new), KEY).is_dropped
        assert (dropped(by_pod), len(entries)) == (gone, 4)


def test_who_came_back_makes_no_room(full: tuple[Entries, dict[str, Entry]]) -> None:
    entries, by_pod = full
    for at_ns, pod in enumerate("abc"):
        entries.note_gone(by_pod[pod], at_ns)
    entries.of(owner("e"), KEY)
    by_pod["b"].gone_at_ns = None
    entries.of(owner("f"), KEY)
    assert dropped(by_pod) == "ac"


def test_who_is_gone_later_makes_room_after_the_others(full: tuple[Entries, dict[str, Entry]]) -> None:
    entries, by_pod = full
    entries.note_gone(by_pod["b"], 5)
    entries.of(owner("e"), KEY)
    entries.note_gone(by_pod["a"], 7)
    entries.of(owner("f"), KEY)
    assert dropped(by_pod) == "ab"


def test_while_all_are_held_a_new_entry_is_dropped_at_once(full: tuple[Entries, dict[str, Entry]]) -> None:
    entries, by_pod = full
    assert entries.of(owner("e"), KEY).is_dropped
    assert (dropped(by_pod), [*entries]) == ("", [*by_pod.values()])
