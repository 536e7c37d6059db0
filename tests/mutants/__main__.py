"""Which changes of the program the tests of `make check` notice.

    python -m tests.mutants [--faults] [--room "ROOM…"] [--sample N] [--seed N] [--only PATTERN] -- PYTEST'S ARGUMENTS

A room is a folder of exporter/. N changes of each room are tried, chosen by the seed. Ends with 1 if more than
MOST_OF_HUNDRED percent of a room's changes go unnoticed, or more than MAY_LIVE faults.
"""

import argparse
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence

from tests.mutants import equivalent
from tests.mutants.changes import Change
from tests.mutants.faults import changes_of_faults
from tests.mutants.operators import changes_of
from tests.mutants.pool import ENDED, in_forks
from tests.mutants.session import AFRESH, SURVIVED, afresh, in_one_process

MOST_OF_HUNDRED = 5
MAY_LIVE = 2
# libraries of the tests and of the program: imported once, before all forks
HEAVY = (
    "aiohttp.web", "bcrypt", "click", "coverage", "google.protobuf.message", "grpc.aio", "hypothesis.strategies",
    "jsonschema", "msgspec", "opentelemetry.proto.metrics.v1.metrics_pb2", "prometheus_client.parser",
    "rich.console", "trustme", "yaml",
)  # fmt: skip


def main(words: Sequence[str]) -> int:
    """Run it. Returns the exit code."""
    given = _parser().parse_args(words)
    faults = changes_of_faults() if given.faults else []
    changes = [change for change in faults if re.search(given.only, f"{change.path}: {change.scope} {change.name}")]
    judged: Counter[str] = Counter()
    for room in given.room.split():
        of_room, entries = changes_of(room), equivalent.entries(room)
        for entry in equivalent.without_a_change(entries, of_room):
            _note(f"equivalent.toml: an entry fits no change: {entry.path}: {entry.scope}: {entry.line}")
        chosen = _sample(
            [change for change in of_room if re.search(given.only, change.place)], given.sample, given.seed
        )
        _note(f"{room}: {len(chosen)} of {len(of_room)} changes are tried, chosen by seed {given.seed}")
        living = [change for change in chosen if equivalent.of(change, entries) is None]
        judged[room] = len(chosen) - len(living)
        changes += living
    outcomes = _outcomes(changes, given.arguments, given.at_once)
    codes = [_say(room, changes, outcomes, judged[room]) for room in given.room.split()]
    if faults:
        codes.append(_say_faults(changes, outcomes))
    return max(codes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--room", default="")
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("arguments", nargs="+")
    return parser


def _sample(changes: Sequence[Change], size: int, seed: int) -> list[Change]:
    """`size` valid changes, chosen at random by the seed, in the order of the program."""
    order = list(range(len(changes)))
    random.Random(seed).shuffle(order)
    chosen: list[int] = []
    for number in order:
        if len(chosen) == size:
            break
        if changes[number].is_valid():
            chosen.append(number)
    return [changes[number] for number in sorted(chosen)]


def _outcomes(changes: Sequence[Change], arguments: Sequence[str], at_once: int) -> list[str]:
    """What noticed each change; SURVIVED if nothing did."""
    for name in HEAVY:
        __import__(name)
    outcomes, reached = in_one_process(changes, arguments, at_once)
    again = [number for number, outcome in enumerate(outcomes) if outcome == AFRESH]
    _note(f"{len(again)} of {len(changes)} are tried by a process that imports all anew")
    options = [argument for argument in arguments if argument.startswith("-")]
    tests = [[reached.tests[test] for test in reached.by(changes[number])] or reached.tests for number in again]
    limits = [30 + reached.limit(reached.by(changes[number])) for number in again]

    def run(number: int) -> str:
        return afresh(changes[again[number]], tests[number], options)

    for number, outcome in in_forks(limits, run, at_once):
        outcomes[again[number]] = outcome
        if outcome == SURVIVED:
            _note(f"survives: {changes[again[number]].place}")
    return outcomes


def _say(room: str, changes: Sequence[Change], outcomes: Sequence[str], judged: int) -> int:
    """Print what survived in a room, and its figures. Returns the exit code."""
    of_room = [
        (change, outcome)
        for change, outcome in zip(changes, outcomes, strict=True)
        if not change.name and change.path.startswith(f"exporter/{room}/")
    ]
    living = [change for change, outcome in of_room if outcome == SURVIVED]
    for change in living:
        _note(change.diff())
    ended = sum(outcome == ENDED for _, outcome in of_room)
    share = 100 * len(living) / max(1, len(of_room))
    _note(
        f"{room}: {len(living)} of {len(of_room)} changes survive ({share:.1f} %); {ended} took too long;"
        f" {judged} more are judged equivalent in equivalent.toml"
    )
    return int(share > MOST_OF_HUNDRED)


def _say_faults(changes: Sequence[Change], outcomes: Sequence[str]) -> int:
    """Print for each fault what noticed it. Returns the exit code."""
    of_faults = [(change, outcome) for change, outcome in zip(changes, outcomes, strict=True) if change.name]
    for change, outcome in of_faults:
        _note(f"{'NOT NOTICED' if outcome == SURVIVED else 'noticed':12} {change.name}: {outcome or change.path}")
    living = sum(outcome == SURVIVED for _, outcome in of_faults)
    _note(f"{len(of_faults) - living} of {len(of_faults)} faults are noticed")
    return int(living > MAY_LIVE)


def _note(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
