"""One GPU's physics: what energy, heat, clocks and throttling have to do with each other."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.simulator.machine import (
    GPU_IDLE,
    HW_THERMAL,
    LIMIT_MW,
    POWER_CAP,
    SW_THERMAL,
    Board,
)

SECOND = 1_000_000_000
# how active, for how many nanoseconds, in air of what temperature
HISTORY = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 300 * SECOND), st.sampled_from((26.0, 29.0, 46.0))), max_size=60
)


@given(HISTORY)
def test_energy_is_power_times_time_to_the_digit(history: list[tuple[float, int, float]]) -> None:
    board, drawn = Board(), 0
    for activity, nanoseconds, air in history:
        board.load(activity, air)
        drawn += board.power_mw * nanoseconds
        # whoever looks in between sees the same
        assert board.energy_mj(nanoseconds) == drawn // 10**9
        board.spend(nanoseconds)
        assert board.energy_mj() == drawn // 10**9


@given(HISTORY)
def test_power_and_clocks_follow_activity_and_stay_in_bounds(history: list[tuple[float, int, float]]) -> None:
    board = Board()
    for activity, nanoseconds, air in history:
        board.load(activity, air)
        assert 70_000 <= board.power_mw <= LIMIT_MW
        assert (board.power_mw == 70_000) is (round(670_000 * activity) == 0)
        assert 345 <= board.sm_clock <= 1980
        # lowered clocks have a reason, and a reason lowers them
        throttled = board.reasons & (POWER_CAP | SW_THERMAL | HW_THERMAL)
        assert bool(board.reasons & GPU_IDLE) is (activity == 0)
        assert not throttled or board.sm_clock <= 1980
        assert throttled or not activity or board.sm_clock == 1980
        before = dict(board.violations_ns)
        board.spend(nanoseconds)
        grown = {name: board.violations_ns[name] - before[name] for name in before}
        assert grown == {
            "LOW_UTIL_VIOLATION": nanoseconds if activity == 0 else 0,
            "POWER_VIOLATION": nanoseconds if throttled == POWER_CAP else 0,
            "THERMAL_VIOLATION": nanoseconds if throttled & (SW_THERMAL | HW_THERMAL) else 0,
        }
        assert 25 < board.celsius < 97


def test_temperature_lags_power() -> None:
    board = Board()
    cold = board.celsius
    board.load(0.9)
    board.spend(SECOND)
    assert cold < board.celsius < cold + 2
    after = []
    for _ in range(10):
        board.spend(45 * SECOND)
        after.append(board.celsius)
    assert after == sorted(after)
    # 63 % of the way after one time constant
    assert 0.6 < (after[0] - cold) / (after[-1] - cold) < 0.7


def test_the_power_limit_lowers_the_clock() -> None:
    board = Board()
    board.load(1.0)
    assert (board.power_mw, board.reasons) == (LIMIT_MW, POWER_CAP)
    assert 1700 < board.sm_clock < 1980
    board.load(0.5)
    assert (board.reasons, board.sm_clock) == (0, 1980)
    board.load(1.0)
    board.load(1.0)
    assert board.events["power_cap"] == 2, "counted when it sets in"


def test_heat_lowers_the_clock_until_it_is_cooler() -> None:
    board, seen = Board(), []
    for _ in range(600):
        board.load(0.92, 46.0)
        board.spend(SECOND)
        seen.append((board.reasons, board.sm_clock, board.celsius))
    hot = [clock for reasons, clock, _ in seen if reasons == SW_THERMAL]
    assert hot
    assert max(hot) < 1980
    assert max(celsius for _, _, celsius in seen) < 88
    assert board.violations_ns["THERMAL_VIOLATION"] == len(hot) * SECOND
    # it comes and goes
    assert 2 <= board.events["sw_thermal"] < len(hot)


def test_a_driver_that_is_loaded_anew_counts_from_0() -> None:
    board = Board(energy_pj=10**15)
    board.spend(SECOND)
    board.reload()
    assert (board.energy_mj(), set(board.violations_ns.values())) == (0, {0})
    board.spend(SECOND)
    assert board.energy_mj() == 70_000
