"""The time in which kernels of each owner ran: added up once for each reading, and never less than before."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from exporter.model.devices import DeviceKey
from exporter.model.driver import DriverReading
from exporter.model.measured import Measured, Use
from exporter.model.pods import Owner
from exporter.usage.sm_times import SmTimes

A, B, C = (Owner(namespace="ml", pod=pod, container="main") for pod in "abc")
GPU, OTHER = DeviceKey(uuid="GPU-1"), DeviceKey(uuid="GPU-2", instance="7")
SECOND = 1_000_000_000


def at(seconds: float) -> DriverReading:
    return DriverReading(read_at=seconds)


def use(sm: float | None) -> Use:
    return Use(memory_bytes=0, sm_ratio=sm, processes=1)


def measured(
    ratios: Mapping[Owner, float | None], nobodys: float | None = 0.0, device: DeviceKey = GPU, **_: object
) -> Measured:
    of_nobody = {} if nobodys == 0 else {device: use(nobodys)}
    return Measured(uses={(device, owner): use(ratio) for owner, ratio in ratios.items()}, nobodys=of_nobody)


def added(times: SmTimes, reading: DriverReading, now: Measured, device: DeviceKey = GPU) -> dict[Owner | None, int]:
    known = times.add(reading, now)
    assert known is not None
    assert (known.uses, known.nobodys, known.unowned) == (now.uses, now.nobodys, now.unowned)
    return dict(known.sm_ns.get(device, {}))


def test_a_reading_is_of_the_time_since_the_one_before() -> None:
    times = SmTimes()
    assert added(times, at(10), measured({A: 0.5, B: 0.25}, 0.1)) == {A: 0, B: 0, None: 0}
    assert added(times, at(11), measured({A: 0.5, B: 0.25}, 0.1)) == {
        A: SECOND // 2,
        B: SECOND // 4,
        None: SECOND // 10,
    }
    assert added(times, at(13), measured({A: 0.0, B: 1.0})) == {A: SECOND // 2, B: 9 * SECOND // 4, None: SECOND // 10}
    assert added(times, at(13.25), measured({A: 1.0, B: 0.0}))[A] == 3 * SECOND // 4


def test_a_first_reading_that_is_measured_late_counts_for_nobody() -> None:
    times, reading = SmTimes(), at(10)
    assert times.add(reading, None) is None
    assert added(times, reading, measured({A: 0.5})) == {A: 0, None: 0}
    assert added(times, at(11), measured({A: 0.5})) == {A: SECOND // 2, None: 0}


def test_a_reading_counts_once_for_each_owner_however_often_it_is_measured() -> None:
    times = SmTimes()
    added(times, at(0), measured({A: 1.0, B: 1.0}))
    reading = at(1)
    assert added(times, reading, measured({A: 1.0})) == {A: SECOND, None: 0}
    # what was told for others meanwhile changes nothing, and whoever was there before has its part of it
    for _ in range(2):
        of_all = added(times, reading, measured({A: 1.0, B: 1.0, C: 1.0}))
        assert of_all == {A: SECOND, B: SECOND, C: SECOND // 2, None: 0}


# issue 22, "Must show" 0
def test_half_of_an_owners_first_reading_counts() -> None:
    times = SmTimes()
    added(times, at(0), measured({A: 0.5}))
    assert added(times, at(10), measured({A: 0.5, B: 0.8}, 0.2)) == {A: 5 * SECOND, B: 4 * SECOND, None: 2 * SECOND}
    assert added(times, at(20), measured({B: 0.8})) == {B: 12 * SECOND, None: 2 * SECOND}


def test_a_device_of_unknown_use_is_left_out_and_goes_on_once_it_is_known() -> None:
    times = SmTimes()
    added(times, at(0), measured({A: 1.0, B: 1.0}))
    added(times, at(1), measured({A: 1.0, B: 1.0}))
    assert added(times, at(2), measured({A: None, B: 1.0})) == {}
    assert added(times, at(3), measured({A: 1.0, B: 1.0}, None)) == {}
    assert added(times, at(4), measured({A: 0.5, B: 1.0})) == {A: 3 * SECOND // 2, B: 2 * SECOND, None: 0}


def test_devices_are_apart() -> None:
    times = SmTimes()
    for moment in (0, 1):
        now = Measured(uses={(GPU, A): use(0.5), (OTHER, A): use(None), (OTHER, B): use(0.0)})
        assert added(times, at(moment), now, OTHER) == {}
    assert added(times, at(2), measured({A: 1.0}, device=OTHER), OTHER) == {A: SECOND, None: 0}


def test_what_ran_while_nobody_could_tell_counts_for_nobody() -> None:
    times = SmTimes()
    added(times, at(0), measured({A: 1.0}))
    assert times.add(at(1), None) is None
    assert added(times, at(2), measured({A: 1.0})) == {A: SECOND, None: 0}
    times.pause()
    assert added(times, at(60), measured({A: 1.0})) == {A: SECOND, None: 0}
    assert added(times, at(61), measured({A: 1.0})) == {A: 2 * SECOND, None: 0}


def test_owners_that_are_gone_are_forgotten() -> None:
    times = SmTimes()
    for number in range(100):
        owner = Owner(namespace="ml", pod=f"p{number}", container="main")
        added(times, at(number), measured({owner: 1.0, A: 1.0}))
        assert len(times._times) <= 4
    added(times, at(100), measured({B: 1.0}))
    assert added(times, at(101), measured({B: 1.0})) == {B: 3 * SECOND // 2, None: 0}
    assert len(times._times) == 2


RATIOS = st.none() | st.sampled_from((0.0, 0.25, 1.0))


# issue 10, "Must show" 3
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("again", "reading", "reading", "reading", "pause", "unknown")),
            st.dictionaries(st.sampled_from((A, B, C)), RATIOS),
            RATIOS,
        ),
        max_size=30,
    )
)
def test_no_value_falls_while_it_is_told_nor_grows_faster_than_time(
    history: list[tuple[str, dict[Owner, float | None], float | None]],
) -> None:
    times, reading, before = SmTimes(), at(0), dict[Owner | None, tuple[int, float]]()
    for what, ratios, nobodys in history:
        if what == "pause":
            times.pause()
        if what in ("reading", "unknown"):
            reading = at(reading.read_at + 1)
        if what == "unknown":
            times.add(reading, None)
        now = added(times, reading, measured(ratios, nobodys)) if what != "unknown" else {}
        is_known = bool(ratios) and None not in (*ratios.values(), nobodys)
        assert now.keys() == ({*ratios, None} if is_known and what != "unknown" else set())
        for owner, ns in now.items():
            known, since = before.get(owner, (0, 0.0))
            assert known <= ns <= known + (reading.read_at - since) * SECOND
        before = {owner: (ns, reading.read_at) for owner, ns in now.items()}
