"""Two hours of a node whose jobs last 20 s and whose page is read every 30 s, beside what really was, to the second."""

from random import Random

import pytest

from tests.accounts.random_world import NOBODY, Team, World, accounts_of

# 20 s jobs of two teams, and longer ones of a third; a third of all jobs do nothing
MIXED = {"short": Team((20, 20), idle=0.3), "brief": Team((20, 20), idle=0.3), "long": Team((60, 600), idle=0.3)}
KINDS = ("whole", "shared", "mig")


# issue 22, "Must show" 0
@pytest.mark.long
@pytest.mark.parametrize(
    ("no_pause", "read", "is_measured"), [(0, 10, False), (1, 30, False), (1, 10, True), (0, 30, True)]
)
def test_whole_gpus_shares_and_instances_are_counted_as_they_were(no_pause: int, read: int, is_measured: bool) -> None:
    """Where NVML measures, a share has its own kernels' part."""
    world = World(Random(no_pause), KINDS, MIXED, read, no_pause=no_pause, is_measured=is_measured)
    truth, had = world.truth(), accounts_of(world)
    assert sum(team.energy for team in had.values()) == pytest.approx(world.drawn(), rel=1e-6)
    for name in MIXED:
        real, team = truth[name], had[name]
        assert team.allocated == pytest.approx(real.allocated, rel=0.01)
        assert team.active == pytest.approx(real.active, rel=0.04)
        assert team.energy == pytest.approx(real.energy, rel=0.04)
        assert team.idle <= 1.1 * real.idle
        assert team.idle + team.unknown >= 0.9 * real.idle
        assert team.idle + team.unknown <= team.observed
    if is_measured:
        # of jobs that last for longer than a page, little is unknown
        assert had["long"].idle >= 0.9 * truth["long"].idle
        assert had["long"].unknown <= 0.1 * had["long"].observed


# issue 15, lines 3 and 4, and "Must show" 2
@pytest.mark.long
def test_short_jobs_get_what_they_did_while_dcgm_exporter_was_away() -> None:
    """Energy is made up for from the counters; of activity the accounts say for how long they saw it."""
    teams = {"short": Team((20, 20)), "brief": Team((20, 20)), "long": Team((60, 600))}
    world = World(Random(0), ["whole"] * 4, teams, read=30)
    truth, had = world.truth(), accounts_of(world, away=240)
    for name in teams:
        real, team = truth[name], had[name]
        assert team.observed < 0.8 * team.allocated
        assert team.allocated == pytest.approx(real.allocated, rel=0.01)
        assert team.active / team.observed == pytest.approx(real.active / real.allocated, rel=0.04)
        assert team.energy == pytest.approx(real.energy, rel=0.04)


# issue 22, "Must show" 0
@pytest.mark.long
@pytest.mark.parametrize(("no_pause", "read"), [(1, 10), (0, 30)])
def test_where_nvml_measures_shares_alone_are_counted_as_they_were(no_pause: int, read: int) -> None:
    """Of shares alone pods come and go all the time: 20 s jobs were up to 15 % low."""
    world = World(Random(no_pause), ["shared"] * 2, MIXED, read, no_pause=no_pause, is_measured=True)
    truth, had = world.truth(), accounts_of(world)
    for name in MIXED:
        assert had[name].active == pytest.approx(truth[name].active, rel=0.04)
        assert had[name].energy == pytest.approx(truth[name].energy, rel=0.04)


# issue 22, line 25
@pytest.mark.long
@pytest.mark.parametrize("read", [10, 30])
def test_on_mig_the_energy_of_short_pods_is_theirs(read: int) -> None:
    teams = {"one": Team((16, 24)), "other": Team((16, 24))}
    world = World(Random(0), ["mig"], teams, read, pause=(5, 5))
    truth, had = world.truth(), accounts_of(world)
    assert had[NOBODY].energy <= 0.01 * world.drawn()
    for name in teams:
        assert had[name].energy == pytest.approx(truth[name].energy, rel=0.04)


# issue 22, line 26
@pytest.mark.long
@pytest.mark.parametrize("read", [10, 30])
def test_the_pauses_of_a_gpu_that_never_rests_are_not_billed_as_work(read: int) -> None:
    world = World(Random(1), ["whole"], {"all": Team((16, 24))}, read, pause=(5, 5), begins=0)
    truth, had = world.truth(), accounts_of(world)
    assert had["all"].energy == pytest.approx(truth["all"].energy, rel=0.04)
    assert had[NOBODY].energy == pytest.approx(truth[NOBODY].energy, rel=0.25)


# issue 22, line 27
@pytest.mark.long
@pytest.mark.parametrize(("read", "is_measured"), [(10, False), (30, True)])
def test_what_a_page_cannot_tell_between_two_pods_is_neither_idle_nor_busy(read: int, is_measured: bool) -> None:
    teams = {"some": Team((20, 20), idle=0.4), "none": Team((20, 20), idle=1)}
    world = World(Random(1), ["whole"] * 2, teams, read, no_pause=1, is_measured=is_measured)
    truth, had = world.truth(), accounts_of(world)
    for name in teams:
        real, team = truth[name], had[name]
        assert team.idle <= 1.1 * real.idle
        assert team.idle + team.unknown >= 0.95 * real.idle
        # the rest is busy for sure
        busy = team.observed - team.idle - team.unknown
        assert busy <= 1.1 * (real.allocated - real.idle) + 0.02 * real.allocated
