"""What dcgm-exporter repeats of a whole GPU on the rows of its MIG instances: `split` divides it once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.dcgm.fields import ADDITIVE, OF_GPU
from exporter.dcgm.table import Additive
from exporter.dividing import sharing
from exporter.dividing.sharing import CounterBook
from exporter.exposition.families import unescape
from exporter.exposition.join import Joiner
from exporter.exposition.lines import SampleLine, read_line
from exporter.model.devices import Assignment
from exporter.model.pages import JoinedPage, Page, Reading
from exporter.model.pods import Owner
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from tests.support.owners import build_owners
from tests.support.reference_join import SeriesOf, reference_join

GPU = "GPU-00000000-aaaa-bbbb-cccc-dddddddddddd"
POWER, ENERGY = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
ACTIVE, MEMORY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED"
SEVEN = tuple(range(7, 14))
# by family, instance and pod
Shown = dict[tuple[str, str, str], Decimal]
# by family: by instance, where "" is the GPU itself
Values = Mapping[str, Mapping[Any, object]]


def page_of(values: Values, *, profiles: Mapping[Any, str] | None = None, more: str = "", gpu: str = GPU) -> str:
    lines = []
    for family, rows in values.items():
        lines.append(f"# TYPE {family} gauge\n")
        for instance, value in rows.items():
            profile = (profiles or {}).get(instance, "1g.10gb")
            cut = f',GPU_I_PROFILE="{profile}",GPU_I_ID="{instance}"' if instance != "" else ""
            lines.append(f'{family}{{gpu="0",UUID="{gpu}"{cut}{more}}} {value}\n')
    return "".join(lines)


def held_by(held: Mapping[Any, Sequence[str]]) -> list[Assignment]:
    return [
        Assignment(
            owner=Owner(namespace="ml", pod=pod, container="main"),
            resource="nvidia.com/mig-1g.10gb",
            device_id=f"MIG-{GPU}/{instance}/0" if instance != "" else GPU,
        )
        for instance, pods in held.items()
        for pod in pods
    ]


class SplitNode:
    """A joiner with a book, as the node role has it; every page is a new read unless it says which."""

    def __init__(self, sharing: str = "split", **policy: object) -> None:
        self.policy = LabelPolicy(sharing=sharing, **policy)  # type: ignore[arg-type]
        self.joiner = Joiner(
            read_subject=self.policy.read_subject, is_owner_label=self.policy.is_owner_label, wanted=lambda _: True
        )
        self.book, self.book_of_reference = CounterBook(), CounterBook()
        self.moment = 0
        self.joined: JoinedPage | None = None

    def rows(
        self, held: Mapping[Any, Sequence[str]], *pages: str, reads: Sequence[Page] = (), is_same: bool = False
    ) -> Shown:
        """What goes out, after the reference implementation has said the same."""
        self.moment += not is_same
        for book in (self.book, self.book_of_reference):
            book.turn_to(reads or [Page(source="dcgm", body=b"", read_at_seconds=0.0, moment=self.moment)])
        bodies, owners = [page.encode() for page in pages], build_owners(held_by(held))
        self.joined = self.joiner.join(bodies, Attribution(owners, self.policy, book=self.book))
        reference, _ = reference_join(
            bodies, self.policy, Attribution(owners, self.policy, book=self.book_of_reference), lambda _: True
        )
        assert self.joined.body == reference
        shown: Shown = {}
        for line in self.joined.body.split(b"\n"):
            sample = read_line(line)
            if isinstance(sample, SampleLine):
                labels = {name.decode(): unescape(value) for name, value in sample.labels}
                shown[sample.name.decode(), labels.get("GPU_I_ID", ""), labels.get("pod", "")] = Decimal(
                    sample.value.decode()
                )
        return shown


def texts_of(family: str, shown: Shown) -> dict[tuple[str, str], str]:
    return {(instance, pod): str(value) for (name, instance, pod), value in shown.items() if name == family}


# issue 9, "Must show" 3
def test_seven_rows_of_310_watts_are_310_watts() -> None:
    repeats = dict.fromkeys(SEVEN, "310.000000")
    held = {7: ["a"], 8: ["b"], 9: ["c"]}
    values: Values = {POWER: repeats, ACTIVE: dict.fromkeys(SEVEN, 0)}
    shown = SplitNode().rows(held, page_of(values))
    assert sum(value for (family, _, _), value in shown.items() if family == POWER) == Decimal("310.000000")
    # of what is left over the first have a unit more; what nobody holds is nobody's
    assert texts_of(POWER, shown) == {
        ("7", "a"): "44.285715", ("8", "b"): "44.285715", ("9", "c"): "44.285714", ("10", ""): "44.285714",
        ("11", ""): "44.285714", ("12", ""): "44.285714", ("13", ""): "44.285714",
    }  # fmt: skip
    for mode in ("copy", "device"):
        shown = SplitNode(mode).rows(held, page_of(values))
        assert {value for (family, _, _), value in shown.items() if family == POWER} == {310}


# issue 9, "Must show" 3
def test_rows_that_differ_are_the_instances_own() -> None:
    own = {7: "100.5", 8: "50.25", 9: "100.5"}
    shown = SplitNode().rows({7: ["a"], 8: ["b", "c"]}, page_of({POWER: own}))
    assert texts_of(POWER, shown) == {
        ("7", "a"): "100.5", ("8", "b"): "25.13", ("8", "c"): "25.12", ("9", ""): "100.5",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # read a moment apart: the first row's value is divided, at its precision
        ({7: "300.0", 8: "297.5"}, ["150.0", "150.0"]),
        ({7: "300.0", 8: "297.0"}, ["150.0", "150.0"]),
        ({7: "300.0", 8: "296.9"}, ["300.0", "296.9"]),
        ({7: "7", 8: "7", 9: "7"}, ["3", "2", "2"]),
        ({7: "4.3e+09", 8: "4.3e+09"}, ["2150000000", "2150000000"]),
        ({7: "0", 8: "0"}, ["0", "0"]),
        # a lone instance has all, as it was printed
        ({7: "4.3e+09"}, ["4.3e+09"]),
        # no amounts are copied, and the others divide the GPU's
        ({7: "NaN", 8: "NaN"}, ["NaN", "NaN"]),
        ({7: "NaN", 8: "300", 9: "300"}, ["NaN", "150", "150"]),
        ({7: "9223372036854775794", 8: "10"}, ["9223372036854775794", "10"]),
        # the GPU's own row stays
        ({"": "300", 7: "300", 8: "300"}, ["300", "150", "150"]),
    ],
)
def test_a_gauge(values: Mapping[Any, str], expected: list[str]) -> None:
    shown = SplitNode().rows({}, page_of({POWER: values}))
    assert [Decimal(text) if text != "NaN" else "NaN" for text in expected] == [
        "NaN" if value.is_nan() else value for value in shown.values()
    ]
    assert [str(value) for value in shown.values() if value.as_tuple().exponent == 0] == [
        text for text in expected if text.isdigit()
    ]


def test_the_parts_follow_activity_times_slices() -> None:
    power = dict.fromkeys((1, 2, 5), "300.0")
    profiles = {1: "3g.40gb", 2: "2g.20gb", 5: "1c.2g.20gb+me"}
    node = SplitNode()

    def parts(active: Mapping[Any, object]) -> list[str]:
        # the activity may stand below what it divides
        return list(texts_of(POWER, node.rows({}, page_of({POWER: power, ACTIVE: active}, profiles=profiles))).values())

    assert parts({1: "0.5", 2: "0.75", 5: "0"}) == ["150.0", "150.0", "0.0"]
    assert parts({1: "0.000000", 2: "0", 5: "0"}) == ["128.6", "85.7", "85.7"]
    assert parts({}) == ["128.6", "85.7", "85.7"]
    assert parts({1: "NaN", 2: "9223372036854775794", 5: "0.1"}) == ["0.0", "0.0", "300.0"]
    shown = node.rows({}, page_of({POWER: power, "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": {2: "1"}}, profiles=profiles))
    assert list(texts_of(POWER, shown).values()) == ["0.0", "300.0", "0.0"]


def test_memory_and_what_a_user_adds_are_the_instances_own() -> None:
    added = "DCGM_FI_DEV_UNHEARD_OF"
    node = SplitNode(additive={**ADDITIVE, added: Additive.GAUGE})
    shown = node.rows({7: ["a"], 8: ["b"]}, page_of({MEMORY: {7: 100, 8: 100}, added: {7: 10, 8: 10}}))
    assert set(shown.values()) == {100, 10}


def test_which_fields_are_the_whole_gpus() -> None:
    assert {name for name in ADDITIVE if name not in OF_GPU} == {
        name for name in ADDITIVE if "FB_" in name or "_fb_" in name
    }
    assert set(ADDITIVE) >= OF_GPU


def test_gpus_are_divided_each_by_itself() -> None:
    other = GPU.replace("0", "1", 1)
    pages = page_of({POWER: {7: 10, 8: 10}}), page_of({POWER: {7: 300, 9: 300}}, gpu=other)
    shown = SplitNode().rows({}, "".join(pages))
    assert texts_of(POWER, shown) == {("7", ""): "150", ("8", ""): "5", ("9", ""): "150"}


def test_a_sample_with_a_timestamp_is_divided_too() -> None:
    node = SplitNode()
    stamped = [page_of({POWER: {7: "9 17", 8: "9 17"}, ENERGY: {7: f"{of} 17", 8: f"{of} 17"}}) for of in (100, 109)]
    node.rows({7: ["a", "b"]}, stamped[0])
    shown = node.rows({7: ["a", "b"]}, stamped[1])
    assert texts_of(POWER, shown) == {("7", "a"): "3", ("7", "b"): "2", ("8", ""): "4"}
    assert texts_of(ENERGY, shown) == {
        ("7", "a"): "3", ("7", "b"): "2", ("7", ""): "0", ("8", ""): "4",
    }  # fmt: skip


def energy(value: object, instances: Sequence[object] = (7, 8)) -> str:
    return page_of({ENERGY: dict.fromkeys(instances, value)})


def test_a_counter_grows_once() -> None:
    node = SplitNode()
    held = {7: ["a", "b"]}
    assert set(node.rows(held, energy(1000)).values()) == {0}
    shown = node.rows(held, energy(1011))
    assert texts_of(ENERGY, shown) == {("7", "a"): "3", ("7", "b"): "3", ("7", ""): "0", ("8", ""): "5"}
    # the same page again, for new owners too, and an older one
    assert texts_of(ENERGY, node.rows(held, energy(1011), is_same=True)) == texts_of(ENERGY, shown)
    older = [Page(source="dcgm", body=b"", read_at_seconds=0.0, moment=1)]
    assert texts_of(ENERGY, node.rows(held, energy(1000), reads=older)) == texts_of(ENERGY, shown)
    # started again from 0
    assert texts_of(ENERGY, node.rows(held, energy(4))) == {
        ("7", "a"): "4", ("7", "b"): "4", ("7", ""): "0", ("8", ""): "7",
    }  # fmt: skip


def test_of_rows_read_a_moment_apart_the_largest_is_the_gpus() -> None:
    node = SplitNode()
    node.rows({}, page_of({ENERGY: {7: 998, 8: 1000}}))
    assert texts_of(ENERGY, node.rows({}, page_of({ENERGY: {7: 1010, 8: 1004}}))) == {("7", ""): "5", ("8", ""): "5"}
    # a little behind, which is no restart
    assert texts_of(ENERGY, node.rows({}, page_of({ENERGY: {7: 1006, 8: 1004}}))) == {("7", ""): "5", ("8", ""): "5"}
    assert texts_of(ENERGY, node.rows({}, page_of({ENERGY: {7: 1012, 8: 1004}}))) == {("7", ""): "6", ("8", ""): "6"}


def test_the_first_of_two_activities_counts() -> None:
    active = page_of({ACTIVE: {7: "1", 8: "0"}})
    shown = SplitNode().rows({}, page_of({POWER: {7: 10, 8: 10}}) + active, page_of({ACTIVE: {7: "0", 8: "1"}}))
    assert texts_of(POWER, shown) == {("7", ""): "10", ("8", ""): "0"}


def test_a_new_cut_shows_no_more_than_the_gpu_used() -> None:
    node = SplitNode()
    node.rows({7: ["a"]}, energy(1000))
    node.rows({7: ["a"]}, energy(1010))
    # 8 and 9 are gone or new: what grew since is of the one that stayed
    assert texts_of(ENERGY, node.rows({7: ["a"]}, energy(1016, (7, 9)))) == {
        ("7", "a"): "11", ("7", ""): "0", ("9", ""): "0",
    }  # fmt: skip
    # none stayed: nobody can show it
    assert set(node.rows({}, energy(1020, (1, 2))).values()) == {0}
    # rows of another moment, a little behind
    assert set(node.rows({}, energy(1019, (1, 2))).values()) == {0}
    assert texts_of(ENERGY, node.rows({}, energy(1022, (1, 2)))) == {("1", ""): "1", ("2", ""): "1"}
    # 7 is back, and goes on where it was
    assert texts_of(ENERGY, node.rows({7: ["a"]}, energy(1024, (1, 7)))) == {
        ("1", ""): "3", ("7", "a"): "11", ("7", ""): "0",
    }  # fmt: skip


def test_a_counters_rows_that_begin_to_differ_neither_fall_nor_jump() -> None:
    node = SplitNode()
    node.rows({}, energy(1000))
    assert texts_of(ENERGY, node.rows({}, energy(1010))) == {("7", ""): "5", ("8", ""): "5"}
    # the instances' own from here on
    own = page_of({ENERGY: {7: 50_000, 8: 20}})
    assert texts_of(ENERGY, node.rows({}, own)) == {("7", ""): "5", ("8", ""): "5"}
    own = page_of({ENERGY: {7: 50_003, 8: 24}})
    assert texts_of(ENERGY, node.rows({}, own)) == {("7", ""): "8", ("8", ""): "9"}
    # and the GPU's again
    assert texts_of(ENERGY, node.rows({}, energy(10**9))) == {("7", ""): "8", ("8", ""): "9"}
    assert texts_of(ENERGY, node.rows({}, energy(10**9 + 4))) == {("7", ""): "10", ("8", ""): "11"}


def test_counters_that_all_begin_at_0_may_be_either() -> None:
    for page, expected in ((energy(8), "4"), (page_of({ENERGY: {7: 8, 8: 4}}), "8")):
        node = SplitNode()
        node.rows({}, energy(0))
        assert texts_of(ENERGY, node.rows({}, page))["7", ""] == expected
        # and do so again when the driver starts
        node.rows({}, energy(0))
        assert sum(node.rows({}, page).values()) == (16 if expected == "4" else 24)


def test_the_gpus_own_row_is_beside_its_instances_rows() -> None:
    """`dcgm-exporter -d g,i`: sums over rows leave the GPU's out."""
    node = SplitNode()
    node.rows({}, energy(100, ("", 7, 8)))
    assert texts_of(ENERGY, node.rows({}, energy(110, ("", 7, 8)))) == {
        ("", ""): "10", ("7", ""): "5", ("8", ""): "5",
    }  # fmt: skip


def reads(**moments: float) -> list[Page]:
    return [Page(source=of, body=b"", read_at_seconds=0.0, moment=moment) for of, moment in moments.items()]


@pytest.mark.parametrize("more", ["", ',Hostname="other"'])
def test_two_upstreams_that_export_one_gpu(more: str) -> None:
    """Their rows are the same series or other ones: what the GPU used is counted once, or once in each one's rows."""
    node = SplitNode()
    other = page_of({ENERGY: {7: 995, 8: 995}}, more=more)
    node.rows({}, energy(1000), other, reads=reads(one=1, other=1))
    shown = node.rows({}, energy(1010), other.replace("995", "1005"), reads=reads(one=2, other=2))
    assert texts_of(ENERGY, shown) == {("7", ""): "5", ("8", ""): "5"}
    # one of them fails: the other is behind
    shown = node.rows({}, other.replace("995", "1009"), reads=reads(other=3))
    assert texts_of(ENERGY, shown) == {("7", ""): "5", ("8", ""): "5"}
    shown = node.rows({}, other.replace("995", "1020"), reads=reads(other=4))
    assert texts_of(ENERGY, shown) == {("7", ""): "10", ("8", ""): "10"}


def test_the_cells_of_an_older_page_are_those_that_went_out() -> None:
    node = SplitNode()
    node.rows({7: ["a"]}, page_of({POWER: {7: 10, 8: 10}, ENERGY: {7: 5, 8: 5}}))
    older = node.joined
    node.rows({7: ["a"]}, page_of({POWER: {7: 30, 8: 30}, ENERGY: {7: 9, 8: 9}}))
    assert older is not None
    assert node.joined is not None
    families = frozenset({POWER.encode(), ENERGY.encode()})
    assert [cell.value for cell in older.cells(families) if cell.family == POWER.encode()] == [b"5", b"5"]
    now = [(cell.row.owner.pod if cell.row.owner else "", cell.value) for cell in node.joined.cells(families)]
    assert now == [("a", b"15"), ("", b"15"), ("a", b"2"), ("", b"0"), ("", b"2")]
    # and readings are what came in
    assert [value for _, value in node.joined.readings(families)] == [b"30", b"30", b"9", b"9"]


def test_what_is_remembered_of_gpus_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MOST_COUNTERS", 3)
    counters = sharing.GpuCounters()
    policy = LabelPolicy()
    subject = policy.read_subject({"UUID": GPU, "GPU_I_ID": "7"})
    rows: list[Reading] = [(SeriesOf(ENERGY.encode(), subject, b"series"), b"5")]
    gpu = sharing.CutGpu(slices={"7": 1})
    for number in range(5):
        counters.grow((ENERGY.encode(), str(number)), rows, gpu, 1)
    assert len(counters._counters) == 3
    # the first to go is the one unused for longest
    counters.grow((ENERGY.encode(), "2"), rows, gpu, 1)
    counters.grow((ENERGY.encode(), "5"), rows, gpu, 1)
    assert [uuid for _, uuid in counters._counters] == ["4", "2", "5"]
    # one that is forgotten begins anew, and does not jump
    assert counters.grow((ENERGY.encode(), "0"), rows, gpu, 2) == {b"series": (0, 0)}


def test_a_page_that_comes_with_owners_is_divided_among_instances_too() -> None:
    node = SplitNode()
    page = page_of({POWER: {7: 10, 8: 10}}, more=',pod="x",namespace="ml",container="c"')
    assert texts_of(POWER, node.rows({}, page)) == {("7", "x"): "5", ("8", "x"): "5"}
    # but for rows that are one owner's each already
    virtual = page_of({POWER: {7: 10, 8: 10}}, more=',vgpu="1",pod="x",namespace="ml",container="c"')
    assert set(node.rows({}, virtual).values()) == {10}


def test_one_page_alone_shows_the_gpus_counter_on_each_row() -> None:
    """`textfile --once`: nothing has grown yet."""
    assert set(SplitNode(divides_counters=False).rows({7: ["a"]}, energy(1000)).values()) == {1000}


INSTANCES = st.dictionaries(st.sampled_from(SEVEN), st.sampled_from(("", "0", "0.25", "1", "NaN")), min_size=1)
HELD = st.dictionaries(st.sampled_from(("", *SEVEN)), st.sets(st.sampled_from("abc"), max_size=3).map(sorted))
WATTS = st.floats(0, 900).map(lambda watts: f"{watts:.6f}")
STEP = st.tuples(INSTANCES, HELD, WATTS, st.integers(0, 10**6), st.sampled_from("rrrrrrros="))


@pytest.mark.history
@settings(deadline=None)
@given(history=st.lists(STEP, min_size=1, max_size=10))
def test_over_any_history_the_instances_rows_add_up_to_the_gpu(
    history: list[tuple[dict[int, str], dict[Any, list[str]], str, int, str]],
) -> None:
    """`r`: repeated; `o`: the instances' own; `s`: the driver has started anew; `=`: the same read again."""
    node = SplitNode()
    total = 10**9
    before: Shown = {}
    present: set[int] = set()
    last, was_own = 0, False
    own: Counter[int] = Counter({of: 3 ** (of - 7) * 10**8 for of in SEVEN})
    last_own: dict[int, int] = {}
    page, expected_watts, grows = "", Decimal(0), 0
    for active, held, watts, more, what in history:
        is_new = what != "=" or not page
        if is_new:
            is_own = what == "o" and len(active) > 1
            power = dict.fromkeys(active, watts)
            expected_watts = Decimal(watts)
            if is_own:
                own.update(dict.fromkeys(SEVEN, more))
                power = {of: f"{float(watts) + 20 * of:.6f}" for of in active}
                expected_watts = sum(map(Decimal, power.values()), Decimal(0))
                counted = {of: own[of] for of in active}
                grows = sum(own[of] - last_own.get(of, own[of]) for of in active)
                last_own.update(counted)
            else:
                total = more + 1 if what == "s" else total + more
                counted = dict.fromkeys(active, total)
                stayed = present & set(active) and not was_own
                # the driver has started anew, unless it is the rows of a little earlier
                grown = total - last if total >= last else 0 if 2 * total >= last else total
                grows = grown if stayed else 0
                last = total if was_own or total >= last or 2 * total < last else last
                last_own = {of: value for of, value in last_own.items() if of not in active}
            was_own, present = is_own, set(active)
            page = page_of({POWER: power, ENERGY: counted, ACTIVE: {of: at for of, at in active.items() if at}})
        shown = node.rows(held, page, is_same=not is_new)
        assert sum(value for key, value in shown.items() if key[0] == POWER) == expected_watts
        rows = {key: value for key, value in shown.items() if key[0] == ENERGY}
        by_row = [value - before.get(key, 0) for key, value in rows.items()]
        assert all(by >= 0 for by in by_row)
        assert sum(by_row) == (grows if is_new else 0)
        before.update(rows)


@given(
    units=st.integers(-(10**9), 10**9), active=st.lists(st.sampled_from((None, 0.0, 0.3, 1.0)), min_size=1, max_size=7)
)
def test_parts_of_units(units: int, active: list[float | None]) -> None:
    gpu = sharing.CutGpu(
        slices={str(number): number + 1 for number in range(len(active))},
        activity={str(number): at for number, at in enumerate(active) if at is not None},
    )
    parts = gpu.parts(units, gpu.slices)
    assert sum(parts.values()) == units
    # by the digits: the float 0.3 is a little less
    by = {of: Fraction(str(gpu.activity.get(of, 0))) * gpu.slices[of] for of in gpu.slices}
    by = by if any(by.values()) else {of: Fraction(slices) for of, slices in gpu.slices.items()}
    assert all(abs(parts[of] - units * by[of] / sum(by.values())) <= 1 for of in by)
