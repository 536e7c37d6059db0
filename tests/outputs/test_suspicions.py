"""Suspected ends for lack of GPU memory in words, by a table, and which of them are findings."""

from dataclasses import replace
from typing import Any

import pytest

from exporter.model.accounts import Accounts, SuspectedOutOfMemory, Suspicion
from exporter.model.devices import DeviceKey, Owners
from exporter.model.pods import Owner
from exporter.model.snapshot import Snapshot
from exporter.outputs.event_rows import event_rows, newest_event
from exporter.outputs.findings import of_suspicions
from exporter.outputs.suspicions import in_words, remedy_of
from exporter.ownership.kernel_events import MOST_EVENTS

X = Owner(namespace="ml", pod="x", container="main")
Y = Owner(namespace="ml", pod="y", container="main")
ENDED_NS = 1_795_262_580 * 10**9  # 12:03 UTC
FULL = SuspectedOutOfMemory(
    owner=X,
    device=DeviceKey(uuid="GPU-1"),
    ended_ns=ENDED_NS,
    exit_code=1,
    suspicion=Suspicion.SUSPECTED,
    used_mib=79.2 * 1024,
    all_mib=80 * 1024,
    seen_before_ns=4 * 10**9,
)
BEGIN = "its container main ended with exit code 1 at 12:03 UTC, 4 s after "


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "its GPU's memory was full (79.2 of 80.0 GiB): {} suspected"),
        (
            {"neighbour": Y, "neighbour_mib": 71.0 * 1024},
            "its GPU's memory was full (79.2 of 80.0 GiB, 71.0 of them held by the pod ml/y): {} suspected",
        ),
        (
            {"device": DeviceKey(uuid="GPU-1", instance="7"), "more_devices": 1},
            (
                "its MIG instance's memory was full (79.2 of 80.0 GiB; 1 more of its devices looked the same):"
                " {} suspected"
            ),
        ),
        (
            {"suspicion": Suspicion.LIKELY, "failed_allocations": 2, "used_mib": 56 * 1024},
            "a look at its GPU's memory (56.0 of 80.0 GiB): 2 allocations of it had failed, so {} likely",
        ),
        (
            {"suspicion": Suspicion.POSSIBLE, "xids": (13, 31)},
            (
                "its GPU's memory was full (79.2 of 80.0 GiB): {} possible; Xid 13 and Xid 31 at the same time may"
                " be the cause, or follow from it"
            ),
        ),
        (
            {"suspicion": Suspicion.POSSIBLE},
            (
                "its GPU's memory was full (79.2 of 80.0 GiB): {} possible, but the memory may have been as full for a"
                " long time"
            ),
        ),
        (
            {"suspicion": Suspicion.POSSIBLE, "used_mib": 72 * 1024, "neighbour": Y, "neighbour_mib": 71 * 1024},
            (
                "a look at its GPU's memory (72.0 of 80.0 GiB, 71.0 of them held by the pod ml/y): {} possible, since"
                " others left little of it"
            ),
        ),
    ],
)
def test_an_end_in_words(fields: dict[str, Any], words: str) -> None:
    assert in_words(replace(FULL, **fields)) == BEGIN + words.format("a lack of GPU memory is")


def test_what_to_do_depends_on_the_neighbour() -> None:
    assert "give it a device with more memory" in remedy_of(FULL)
    assert "limit what the neighbour takes" in remedy_of(replace(FULL, neighbour=Y))


def snapshot(*suspected: SuspectedOutOfMemory, read_at: float = ENDED_NS / 1e9 + 60) -> Snapshot:
    return Snapshot(
        node="n",
        owners=Owners(),
        joined=None,
        health={},
        assignments_age_seconds=None,
        read_at_seconds=read_at,
        accounts=Accounts(suspicions=suspected),
    )


def test_of_each_container_the_newest_end_of_a_day_is_a_finding() -> None:
    earlier = replace(FULL, ended_ns=ENDED_NS - 10**11)
    of_other = replace(FULL, owner=Y, ended_ns=ENDED_NS - 2 * 86_400 * 10**9)
    (finding,) = of_suspicions(snapshot(FULL, earlier, of_other))
    assert (finding.about, finding.trouble.message) == ("ml/x/main", in_words(FULL))
    assert not [*of_suspicions(replace(snapshot(FULL), accounts=None))]


def test_events_are_no_more_than_their_readers_take() -> None:
    many = [replace(FULL, ended_ns=ENDED_NS - number * 10**9) for number in range(MOST_EVENTS + 5)]
    rows = event_rows(snapshot(*many))
    assert rows is not None
    assert len(rows) == MOST_EVENTS
    assert rows[0]["at"] == "2026-11-21T12:03:00.000Z"
    assert newest_event(snapshot(FULL)) == "1795262580 memory 1"
    assert event_rows(snapshot()) is None
