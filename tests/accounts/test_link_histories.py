"""Random histories of a GPU's links: what all holders have together is what was seen, and never more."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.accounts.state_bytes import restore
from tests.support.ledgers import dump
from tests.support.link_names import LEGACY
from tests.support.looks import SECOND, Looks, energy, row, whole

LINKS = range(4)
FAMILIES = {"replay": f"{LEGACY}_PER_LINK_TOTAL", "recovery": f"{LEGACY.replace('REPLAY', 'RECOVERY')}_PER_LINK_TOTAL"}
SUMS = {"replay": f"{LEGACY}_COUNT_TOTAL", "recovery": "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS"}
KINDS = (*FAMILIES,)


class World:
    """A GPU whose links have errors, and a dcgm-exporter that lists some of them, or the sum, or both.

    It may read one of both a moment later than the other one: then a page has what is new in one of them only.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.listed = random.sample(LINKS, random.randint(0, len(LINKS)))
        self.has_sum = random.random() < 0.7 or not self.listed
        self.errors = {kind: Counter[int]() for kind in KINDS}
        self.before = self.errors
        self.happened = 0

    def go_on(self) -> None:
        self.before = {kind: errors.copy() for kind, errors in self.errors.items()}
        for kind in KINDS:
            for link in LINKS:
                new = self.random.choice((0, 0, 0, 1, 7))
                self.errors[kind][link] += new
                self.happened += new if self.has_sum or link in self.listed else 0

    def reset(self) -> None:
        """A reset of the GPU: all counters begin at 0."""
        self.errors = {kind: Counter[int]() for kind in KINDS}
        self.before = self.errors

    def page(self, *, is_settled: bool) -> str:
        """What dcgm-exporter says now; `is_settled`: it has read all."""
        late_links, late_sum = ((False, False), (True, False), (False, True))[
            0 if is_settled else self.random.randrange(3)
        ]
        rows = []
        for kind in KINDS:
            of_links = self.before[kind] if late_links else self.errors[kind]
            rows += [row(FAMILIES[kind], str(of_links[link]), nvlink=str(link)) for link in self.listed]
            if self.has_sum:
                of_all = self.before[kind] if late_sum else self.errors[kind]
                rows.append(row(SUMS[kind], str(of_all.total())))
        return "".join(rows)


def counted(looks: Looks) -> int:
    return sum(
        number for account in looks.ledger.accounts.rows for number in account.by_label.get("link_errors", {}).values()
    )


@pytest.mark.history
@pytest.mark.parametrize("has_resets", [False, True])
@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 15))
def test_holders_have_all_errors_and_never_more(has_resets: bool, random: Random, steps: int) -> None:
    world = World(random)
    world.go_on()
    world.happened = 0
    looks = Looks().at(0, energy("0") + world.page(is_settled=True), {"a": whole(0)})
    for step in range(1, steps + 1):
        world.go_on()
        if has_resets and random.random() < 0.2:
            world.reset()
        if random.random() < 0.15:
            data = dump(looks.ledger, 1_000 * SECOND)
            looks = Looks(ledger=restore(data, 1_001 * SECOND, 10 * step * SECOND))
        page = world.page(is_settled=step == steps)
        is_away = step < steps and random.random() < 0.1
        held = {pod: whole(0) for pod in random.choice(("a", "a", "b", "ab", ""))}
        looks.at(10 * step + 1, None if is_away else energy(str(step)) + page, held)
        if has_resets:
            assert counted(looks) <= world.happened
    if not has_resets:
        assert counted(looks) == world.happened
