"""When each account began: what was counted since is all of it, so that a server can put a 0 there."""

from exporter.accounts.state_bytes import Boot, restore
from tests.support.ledgers import dump
from tests.support.looks import GPU, SECOND, Looks, energy, whole
from tests.support.places import ROOT

HELD = {"a": whole(0)}


def begins(looks: Looks) -> dict[str, int | None]:
    """When each account began, in seconds, by pod ("" for nobody's of GPU 0)."""
    rows = [row for row in looks.ledger.accounts.rows if row.owner or row.device.uuid == GPU(0)]
    return {row.owner.pod if row.owner else "": row.began_ns and row.began_ns // SECOND for row in rows}


def test_an_account_begins_at_the_look_that_first_sees_it() -> None:
    looks = Looks().at(10, energy("0"), HELD).at(20, energy("0"), {**HELD, "b": whole(1)}).at(30, energy("0"), HELD)
    assert begins(looks) == {"a": 10, "": 10, "b": 20}
    assert looks.ledger.accounts.began_ns == 10 * SECOND


def test_a_pod_that_comes_back_after_its_account_was_dropped_begins_anew() -> None:
    looks = Looks().at(10, energy("0"), HELD).at(20, energy("0"))
    looks.ledger.note_shown()
    looks.ledger.note_shown()
    looks.at(400, energy("0")).at(410, energy("0"), HELD)
    assert begins(looks) == {"": 10, "a": 410}


def test_an_account_whose_labels_change_goes_on_with_no_begin() -> None:
    # its new row in Prometheus begins with what the old one has counted already
    looks = Looks().at(10, energy("0"), HELD).at(20, energy("0"), HELD, uids={"a": "u"})
    assert begins(looks) == {"a": None, "": 10}
    looks = Looks().at(10, energy("0"), HELD, uids={"a": "u"}).at(20, energy("0"), HELD, uids={"a": "u"})
    assert begins(looks) == {"a": 10, "": 10}


def test_the_begin_survives_a_restart_and_follows_a_clock_that_was_set() -> None:
    looks = Looks().at(10, energy("0"), HELD).at(20, energy("0"), HELD)
    data = dump(looks.ledger, 1_000 * SECOND, Boot("one", 400 * SECOND))
    for step in (0, 3_600):
        now, boot = (1_005 + step) * SECOND, Boot("one", (400 + step) * SECOND)
        after = Looks(ledger=restore(data, now, now, boot)).at(1_010 + step, energy("0"), {**HELD, "b": whole(1)})
        assert begins(after) == {"a": 990 + step, "": 990 + step, "b": 1_010 + step}
        assert after.ledger.accounts.began_ns == (990 + step) * SECOND


def test_a_clock_that_is_set_while_the_exporter_runs_is_followed() -> None:
    looks = Looks().at(10, energy("0"), HELD)
    looks.ledger.clock_set_ns = 3_600 * SECOND
    looks.at(20, energy("0"), {**HELD, "b": whole(1)})
    assert begins(looks) == {"a": 3_610, "": 3_610, "b": 3_620}


def test_of_a_file_of_version_4_nobody_knows_the_begin() -> None:
    data = (ROOT / "tests" / "data" / "accounting-state-4").read_bytes()
    ledger = restore(data, 1_012 * SECOND, 100 * SECOND, Boot("a-boot", 400 * SECOND))
    assert {row.began_ns for row in ledger.accounts.rows} == {ledger.accounts.began_ns} == {None}
