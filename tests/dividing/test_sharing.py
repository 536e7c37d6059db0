"""Dividing values among owners: nothing is lost, nothing falls."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.dcgm.fields import ADDITIVE
from exporter.dcgm.table import Additive
from exporter.dividing.decimals import is_amount
from exporter.dividing.sharing import CounterBook, RunTimes, split_gauge
from exporter.exposition.families import unescape
from exporter.exposition.join import Joiner
from exporter.exposition.lines import SampleLine, read_line
from exporter.model.devices import Assignment
from exporter.model.pages import Page
from exporter.model.pods import Owner
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from tests.support.owners import build_owners

ENERGY = b"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
A, B, C = (Owner(namespace="ml", pod=name, container="main") for name in "abc")


@pytest.mark.parametrize(
    ("value", "parts", "expected"),
    [
        ("400.000000", 2, ["200.000000", "200.000000"]),
        ("112.670000", 3, ["37.556667", "37.556667", "37.556666"]),
        ("7", 2, ["4", "3"]),
        ("1", 3, ["0.333334", "0.333333", "0.333333"]),
        ("0", 2, ["0", "0"]),
        ("-7", 2, ["-4", "-3"]),
        # Go's short form of a whole number: its unit is 1, and the parts are written out
        ("4.3e+09", 2, ["2150000000", "2150000000"]),
        ("1e+06", 3, ["333334", "333333", "333333"]),
        ("1.5e-07", 2, ["0.00000008", "0.00000007"]),
        ("+5", 2, ["3", "2"]),
        ("5.", 2, ["3", "2"]),
        # no amounts
        ("0e5000", 2, ["0e5000"] * 2),
        (f"1.{'0' * 1000}", 2, [f"1.{'0' * 1000}"] * 2),
        (f"1.{'0' * 998}", 2, [f"0.5{'0' * 997}"] * 2),
        ("1e-99999999999999999999", 2, ["1e-99999999999999999999"] * 2),
        ("NaN", 2, ["NaN", "NaN"]),
        ("+Inf", 2, ["+Inf", "+Inf"]),
        ("9223372036854775794", 2, ["9223372036854775794"] * 2),
        ("9.223372036854776e+18", 2, ["9.223372036854776e+18"] * 2),
        ("2147483632", 2, ["2147483632"] * 2),
        ("140737488355328.000000", 2, ["140737488355328.000000"] * 2),
        ("2147483631", 2, ["1073741816", "1073741815"]),
    ],
)
def test_a_gauge_in_parts(value: str, parts: int, expected: list[str]) -> None:
    # one unit of the last place printed, so 1.5e-07 is in steps of 1e-08
    assert [part.decode() for part in split_gauge(value.encode(), parts)] == expected


NUMBERS = st.one_of(
    st.integers(-(10**12), 10**12).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(0, 1e9).map(lambda number: f"{number:.6f}"),
    st.sampled_from(("1e308", "1e-400", "1e-1001", "-0", "00012.50", ".5", "0e0")),
)


@given(value=NUMBERS, parts=st.integers(1, 48))
def test_the_parts_of_a_gauge_add_up_as_decimals(value: str, parts: int) -> None:
    texts = [part.decode() for part in split_gauge(value.encode(), parts)]
    assert len(texts) == parts
    for text in texts:
        assert isinstance(read_line(f"a {text}".encode()), SampleLine)
    if is_amount(value.encode()):
        assert sum(map(Fraction, texts)) == Fraction(value)
        unit = Fraction(10) ** min(0, int(Decimal(value).as_tuple().exponent))
        assert max(map(Fraction, texts)) - min(map(Fraction, texts)) <= unit


def read(moment: float, source: str = "dcgm:one") -> Page:
    """A page by the moment that it was read at."""
    return Page(source=source, body=b"", read_at_seconds=0.0, moment=moment)


class Reads:
    """A book whose every value is of a new read, unless it says which."""

    def __init__(self) -> None:
        self.book = CounterBook()
        self._moments = count()

    def rows(self, owners: Sequence[Owner], value: str, *of: Page) -> list[str]:
        self.book.turn_to(of or (read(next(self._moments)),))
        return [text.decode() for text in self.book.advance(b"energy", owners, value.encode())]


# issue 7, line 30
def test_a_counters_rows() -> None:
    rows = Reads().rows
    # every row starts at 0, that of nobody too: what the device consumed before is nobody's business
    assert rows([], "100") == ["0"]
    assert rows([], "104") == ["4"]
    # what came in between was not its
    assert rows([A], "110") == ["0", "10"]
    assert rows([A], "120") == ["10", "10"]
    assert rows([A, B], "130") == ["20", "0", "10"]
    assert rows([A, B], "137") == ["24", "3", "10"]
    # who leaves takes nothing along, who stays takes it all
    assert rows([B], "140") == ["6", "10"]
    assert rows([], "150") == ["20"]
    # who comes back goes on
    assert rows([A], "155") == ["24", "25"]
    # the device starts again from 0
    assert rows([A], "5") == ["29", "25"]
    # a value that is no amount is shown as it is, and forgotten
    assert rows([A], "9223372036854775794") == ["9223372036854775794"] * 2
    assert rows([A], "6") == ["30", "25"]


# issue 7, line 41
def test_what_did_not_grow_keeps_its_digits() -> None:
    rows = Reads().rows
    assert rows([], "1.500") == ["0"]
    assert rows([], "1.500") == ["0"]
    assert rows([], "2.0") == ["0.500"]
    assert rows([], "2.0000") == ["0.500"]


# issue 7, line 31
def test_the_counter_of_a_holder_who_comes_back_goes_on() -> None:
    rows = Reads().rows
    assert rows([A], "100") == ["0", "0"]
    assert rows([A], "110") == ["10", "0"]
    assert rows([B], "120") == ["0", "10"]
    assert rows([B], "130") == ["10", "10"]
    # A comes back beside B, as a share
    assert rows([A, B], "140") == ["10", "20", "10"]


# issue 7, line 29
def test_a_page_that_was_read_before_another_changes_nothing() -> None:
    rows = Reads().rows
    first, second, third = (read(moment) for moment in (1, 2, 3))
    assert rows([A], "1000", first) == ["0", "0"]
    assert rows([A], "1020", second) == ["20", "0"]
    # whoever joins the older one again sees what the rows stand at
    assert rows([A], "1000", first) == ["20", "0"]
    assert rows([A, B], "1000", first) == ["20", "0", "0"]
    assert rows([B], "1000", first) == ["0", "0"]
    # the newest one again, for others: nothing grew, and whoever is there now takes part from here on
    assert rows([A, B], "1020", second) == ["20", "0", "0"]
    assert rows([A, B], "1030", third) == ["25", "5", "0"]
    # a counter that only an older page has
    book = CounterBook()
    book.turn_to([second])
    book.turn_to([first])
    assert book.advance(b"energy", [A], b"1000") == [b"0", b"0"]
    assert book.series == 0


# issue 7, line 29
def test_two_upstreams_that_export_one_gpu() -> None:
    rows = Reads().rows
    one, other = "dcgm:one", "dcgm:other"
    assert rows([A], "1000", read(1, one), read(2, other)) == ["0", "0"]
    # the first one fails: the other has read the device a little earlier
    assert rows([A], "995", read(3, other)) == ["0", "0"]
    assert rows([A], "1015", read(4, other)) == ["15", "0"]
    # and it is back, with an answer that is behind the other's
    assert rows([A], "1011", read(5, one), read(6, other)) == ["15", "0"]
    assert rows([A], "1025", read(7, one), read(8, other)) == ["25", "0"]
    # a page of theirs of which a part is older
    assert rows([A], "1024", read(6.5, one), read(9, other)) == ["25", "0"]
    # rows of both upstreams on one page: the first counts
    assert rows([A], "1030", read(10, one), read(10, other)) == ["30", "0"]
    assert rows([A], "1026", read(10, one), read(10, other)) == ["30", "0"]
    # the device starts again, whoever says it
    assert rows([A], "3", read(11, other)) == ["33", "0"]
    assert rows([A], "2", read(12, other)) == ["35", "0"]


# issue 15, line 27
def test_of_too_many_counters_the_one_read_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.dividing.sharing.MOST_SERIES", 2)
    book = CounterBook()
    rows = []
    for moment, names in enumerate((b"xy", b"xz", b"xy")):
        book.turn_to([read(float(moment))])
        rows.append([book.advance(bytes([name]), [A], b"%d" % moment)[0] for name in names])
        assert book.series == 2
    # x goes on; y was forgotten when z came, and begins anew
    assert rows == [[b"0", b"0"], [b"1", b"0"], [b"2", b"0"]]


def test_what_is_remembered_is_limited() -> None:
    reads = Reads()
    many = [Owner(namespace="ml", pod=f"job-{number}", container="main") for number in range(100)]
    assert reads.rows([A], "0") == ["0", "0"]
    assert reads.rows([A], "5") == ["5", "0"]
    for owner in many:
        reads.rows([owner], "5")
    # forgotten, it begins again
    assert reads.rows([A], "5") == ["0", "0"]
    # but for those that are there, however many they are
    everybody = sorted(many)
    assert reads.rows(everybody, "5")[-1] == "0"
    assert reads.rows(everybody, "105") == ["1"] * 100 + ["0"]
    # a source that was last read hundreds of others ago is a new one
    assert reads.rows([A], "115", read(9, "dcgm:first")) == ["0", "10"]
    assert reads.rows([A], "125", read(8, "dcgm:first")) == ["0", "10"]
    for number in range(300):
        reads.rows([A], "115", read(10, f"dcgm:{number}"))
    assert reads.rows([A], "125", read(8, "dcgm:first")) == ["10", "10"]


STEPS = st.lists(
    st.tuples(st.sets(st.sampled_from((A, B, C))), NUMBERS, st.sampled_from((0, 0, 0, 1, 2))), min_size=2, max_size=30
)


@pytest.mark.history
@given(steps=STEPS)
def test_over_any_history_a_counters_increases_add_up_and_no_row_falls(
    steps: list[tuple[set[Owner], str, int]],
) -> None:
    book = CounterBook()
    before: dict[Owner | None, Fraction] = {None: Fraction(0)}
    pages: list[tuple[Page, str]] = []
    for present, value, back in steps:
        if not is_amount(value.encode()) or abs(Decimal(value).adjusted()) > 300:
            continue
        # now and then a page that another scrape has held for a while, or the same one again
        is_new = back == 0 or len(pages) < back
        page, text = (read(len(pages)), value) if is_new else pages[-back]
        last = Fraction(pages[-1][1]) if pages else None
        if is_new:
            pages.append((page, text))
        owners = sorted(present)
        book.turn_to([page])
        texts = [text.decode() for text in book.advance(b"energy", owners, text.encode())]
        now = dict(zip((*owners, None), map(Fraction, texts), strict=True))
        # a row that was never there starts at 0
        grown = [number - before.get(row, Fraction(0)) for row, number in now.items()]
        assert all(by >= 0 for by in grown)
        device = Fraction(text)
        if last is None or not is_new:
            assert sum(grown) == 0
        else:
            assert sum(grown) == (device - last if device >= last else max(device, 0))
        before = {**before, **now}


PAGE = """# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-1"}} {power}
DCGM_FI_DEV_POWER_USAGE{{gpu="1",UUID="GPU-2"}} {power}
# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{gpu="0",UUID="GPU-1"}} {energy}
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{gpu="1",UUID="GPU-2"}} {energy}
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="GPU-1"}} 40
# TYPE DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL counter
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{{gpu="0",UUID="GPU-1"}} {power}
# TYPE DCGM_FI_DEV_UNHEARD_OF counter
DCGM_FI_DEV_UNHEARD_OF{{gpu="0",UUID="GPU-1"}} {energy}
"""
Found = dict[tuple[str, str, str], Decimal]


class SplitNode:
    """A joiner with owners that come and go, as the node role has it."""

    def __init__(self, **policy: object) -> None:
        self.policy = LabelPolicy(sharing="split", **policy)  # type: ignore[arg-type]
        self.joiner = Joiner(
            read_subject=self.policy.read_subject, is_owner_label=self.policy.is_owner_label, wanted=lambda _: True
        )
        self.book = CounterBook()
        self.moments = count()

    def attribution(self, held: dict[str, Owner]) -> Attribution:
        owners = build_owners(
            Assignment(owner=owner, resource="nvidia.com/gpu.shared", device_id=device_id)
            for device_id, owner in held.items()
        )
        return Attribution(owners, self.policy, book=self.book)

    def rows(self, attribution: Attribution, power: str, energy: str) -> Found:
        self.book.turn_to([read(next(self.moments))])
        body = self.joiner.join([PAGE.format(power=power, energy=energy).encode()], attribution).body
        found: Found = {}
        for line in body.split(b"\n"):
            sample = read_line(line)
            if isinstance(sample, SampleLine):
                labels = {name.decode(): unescape(value) for name, value in sample.labels}
                key = (sample.name.decode(), labels["UUID"], labels.get("pod", ""))
                assert key not in found
                found[key] = Decimal(sample.value.decode())
        return found


def test_what_adds_up_is_divided_by_name_and_the_rest_is_copied() -> None:
    node = SplitNode(idle_labels=False)
    shared = node.attribution({"GPU-1::0": A, "GPU-1::1": B, "GPU-2": C})
    node.rows(shared, "300.5", "1000")
    found = node.rows(shared, "300.5", "1101")
    assert {name[len("DCGM_FI_DEV_") :]: [] for name, _, _ in found}.keys() == {
        "POWER_USAGE", "TOTAL_ENERGY_CONSUMPTION", "GPU_TEMP", "NVLINK_BANDWIDTH_TOTAL", "UNHEARD_OF",
    }  # fmt: skip
    of_one = {
        (name[len("DCGM_FI_DEV_") :], pod): str(value) for (name, uuid, pod), value in found.items() if uuid == "GPU-1"
    }
    assert of_one == {
        ("POWER_USAGE", "a"): "150.3", ("POWER_USAGE", "b"): "150.2",
        ("TOTAL_ENERGY_CONSUMPTION", "a"): "51", ("TOTAL_ENERGY_CONSUMPTION", "b"): "50",
        ("TOTAL_ENERGY_CONSUMPTION", ""): "0",
        ("GPU_TEMP", "a"): "40", ("GPU_TEMP", "b"): "40",
        # typed a counter, and a rate; and a name that is in no table
        ("NVLINK_BANDWIDTH_TOTAL", "a"): "150.3", ("NVLINK_BANDWIDTH_TOTAL", "b"): "150.2",
        ("UNHEARD_OF", "a"): "1101", ("UNHEARD_OF", "b"): "1101",
    }  # fmt: skip
    # so do the counters of a GPU that one container holds alone: it may hold another one tomorrow
    assert found["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "GPU-2", "c"] == 101
    assert found["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "GPU-2", ""] == 0


# issue 9, B: what pods used was counted once more when the row without owner came back
def test_a_whole_gpus_rows_grow_by_what_it_drew_when_its_pods_come_and_go() -> None:
    node = SplitNode()
    seen: dict[str, list[Decimal]] = {}
    for held, energy in (
        ({}, 100),
        ({}, 110),
        ({"GPU-2": A}, 130),
        ({"GPU-2": A}, 170),
        ({}, 180),
        ({"GPU-2": B}, 200),
    ):
        for (name, uuid, pod), value in node.rows(node.attribution(held), "1", str(energy)).items():
            if "ENERGY" in name and uuid == "GPU-2":
                seen.setdefault(pod, []).append(value)
    assert all(values[0] == 0 and values == sorted(values) for values in seen.values())
    assert sum(values[-1] for values in seen.values()) == 200 - 100
    # who was not there at the last read shows nothing of what grew since
    assert {pod: values[-1] for pod, values in seen.items()} == {"": 60, "a": 40, "b": 0}


# issue 9, B
def test_the_used_part_of_memory_is_the_same_for_each_owner() -> None:
    policy = LabelPolicy(sharing="split")
    owners = build_owners([Assignment(owner=of, resource="x", device_id=f"GPU-1::{of.pod}") for of in (A, B, C)])
    subject = policy.read_subject({"UUID": "GPU-1"})
    memory = {"FB_USED": 30_000, "FB_FREE": 50_000, "FB_RESERVED": 1_559}
    for name in (*memory, *(f"{name}_BYTES" for name in memory)):
        (rows,) = Attribution(owners, policy)([(f"DCGM_FI_DEV_{name}".encode(), subject)])
        assert rows.values is not None
        parts = [int(text) for text in rows.values(b"s", b"%d" % memory[name.removesuffix("_BYTES")])]
        assert sum(parts) == memory[name.removesuffix("_BYTES")]
        assert max(parts) - min(parts) <= 1


def test_more_names_can_be_given() -> None:
    node = SplitNode(additive={**ADDITIVE, "DCGM_FI_DEV_UNHEARD_OF": Additive.GAUGE})
    found = node.rows(node.attribution({"GPU-1::0": A, "GPU-1::1": B}), "1", "1101")
    assert found["DCGM_FI_DEV_UNHEARD_OF", "GPU-1", "a"] == 551


def test_one_page_alone_shows_the_devices_counter_once() -> None:
    node = SplitNode(divides_counters=False)
    found = node.rows(node.attribution({"GPU-1::0": A, "GPU-1::1": B}), "10", "1101")
    for gpu in ("GPU-1", "GPU-2"):
        assert {pod: value for (name, uuid, pod), value in found.items() if "ENERGY" in name and uuid == gpu} == {
            "": 1101
        }
    assert found["DCGM_FI_DEV_POWER_USAGE", "GPU-1", "a"] == 5


def test_dcgm_exporters_own_word_is_not_divided() -> None:
    policy = LabelPolicy(sharing="split")
    subject = policy.read_subject({"UUID": "GPU-1", "vgpu": "0", "pod": "x"})
    owners = build_owners([Assignment(owner=A, resource="nvidia.com/gpu", device_id=f"GPU-1::{i}") for i in range(2)])
    other = policy.read_subject({"UUID": "GPU-1", "vgpu": "1", "pod": "y"})
    attribution = Attribution(owners, policy)
    for family in (b"DCGM_FI_DEV_POWER_USAGE", ENERGY):
        assert [rows.values for rows in attribution([(family, subject)])] == [None]
        assert [rows.values for rows in attribution([(family, subject), (family, other)])] == [None, None]
    # beside them is the device's own
    device = policy.read_subject({"UUID": "GPU-1"})
    assert [rows.values for rows in attribution([(ENERGY, subject), (ENERGY, device)])] == [None, None]


# issue 7, line 41
def test_a_counter_of_no_device_is_as_it_came() -> None:
    policy = LabelPolicy(sharing="split")
    (rows,) = Attribution(build_owners(()), policy)([(ENERGY, policy.read_subject({"cpu": "0"}))])
    assert rows.values is None


def test_a_counter_that_comes_with_an_owner_is_divided_as_the_kubelets_is() -> None:
    policy = LabelPolicy(sharing="split")
    subject = policy.read_subject({"UUID": "GPU-1", "pod": "a", "namespace": "ml", "container": "main"})
    book = CounterBook()
    owners = (build_owners(()), build_owners([Assignment(owner=A, resource="nvidia.com/gpu", device_id="GPU-1")]))
    shown = []
    for moment, (by_kubelet, value) in enumerate(zip((*owners, owners[0]), (b"1000", b"1010", b"1020"), strict=True)):
        book.turn_to([read(moment)])
        (rows,) = Attribution(by_kubelet, policy, book=book)([(ENERGY, subject)])
        assert rows.values is not None
        assert rows.peek is not None
        shown.append(
            [(dict(row.labels)["pod"], text) for row, text in zip(rows.each, rows.values(b"s", value), strict=True)]
        )
        assert rows.peek(b"s", value) == [text for _, text in shown[-1]]
    # whoever says whose it is, the row is the same one, and it never falls
    assert shown == [[("a", b"0"), ("", b"0")], [("a", b"10"), ("", b"0")], [("a", b"20"), ("", b"0")]]


HELD = st.dictionaries(
    st.sampled_from(("GPU-1::0", "GPU-1::1", "GPU-1::2", "GPU-2::0", "GPU-2::1")),
    st.sampled_from((A, B, C)),
    max_size=5,
)
HISTORY = st.lists(
    st.tuples(HELD, st.floats(0, 1000).map(lambda watts: f"{watts:.6f}"), st.integers(0, 10**6)),
    min_size=1,
    max_size=12,
)


@pytest.mark.history
@settings(deadline=None)
@given(history=HISTORY, repeats=st.integers(1, 2), idle_labels=st.booleans())
def test_on_whole_pages_gauges_add_up_and_counters_grow_as_the_device_does(
    history: list[tuple[dict[str, Owner], str, int]], repeats: int, idle_labels: bool
) -> None:
    node = SplitNode(idle_labels=idle_labels)
    before: Found = {}
    last: int | None = None
    energy = 10**9
    for held, power, more in history:
        energy += more
        attribution = node.attribution(held)
        found: Found = {}
        for _ in range(repeats):
            found = node.rows(attribution, power, str(energy))
        for uuid in ("GPU-1", "GPU-2"):
            watts = [value for (name, of, _), value in found.items() if of == uuid and name.endswith("POWER_USAGE")]
            assert sum(watts) == Decimal(power)
            counters = {key for key in found if key[1] == uuid and "ENERGY" in key[0]}
            grown = [found[key] - before.get(key, 0) for key in counters]
            assert all(by >= 0 for by in grown)
            assert sum(grown) == (0 if last is None else energy - last)
        before.update(found)
        last = energy


# issue 24, part 5
@pytest.mark.parametrize(
    ("value", "granted", "expected"),
    [
        ("300", (3, 1), ["225", "75"]),
        ("312.5", (10_240, 30_720), ["78.2", "234.3"]),
        ("-4", (1, 1), ["-2", "-2"]),
        ("1", (1, 3), ["0.250000", "0.750000"]),
        ("NaN", (1, 3), ["NaN", "NaN"]),
        ("300", None, ["150", "150"]),
    ],
)
def test_a_gauge_is_divided_by_what_was_granted(
    value: str, granted: tuple[int, ...] | None, expected: list[str]
) -> None:
    assert [part.decode() for part in split_gauge(value.encode(), 2, granted)] == expected


# issue 24, part 5
def test_a_counters_growth_is_divided_by_the_grants_of_those_who_stayed() -> None:
    book = CounterBook()
    moments = count()

    def rows(owners: Sequence[Owner], value: str, granted: Sequence[int], **more: object) -> list[str]:
        book.turn_to((read(next(moments)),))
        return [text.decode() for text in book.advance(b"e", owners, value.encode(), granted=granted, **more)]  # type: ignore[arg-type]

    assert rows([A, B], "1000", (3, 1)) == ["0", "0", "0"]
    assert rows([A, B], "1400", (3, 1)) == ["300", "100", "0"]
    # kernels say more than grants
    assert rows([A, B], "1400", (3, 1), times={A: 0, B: 0, None: 0}) == ["300", "100", "0"]
    assert rows([A, B], "1800", (3, 1), times={A: 0, B: 10, None: 0}) == ["300", "500", "0"]
    # b has left, and gets nothing of what came meanwhile
    assert rows([A], "1900", (3,)) == ["400", "0"]
    assert rows([], "2000", ()) == ["100"]


def test_a_second_look_at_a_read_without_times_leaves_those_of_the_first() -> None:
    book = CounterBook()

    def rows(moment: int, value: bytes, times: RunTimes | None) -> list[bytes]:
        book.turn_to((read(moment),))
        return book.advance(b"e", [A, B], value, times)

    rows(1, b"100", {A: 0, B: 0, None: 0})
    rows(1, b"100", None)
    assert rows(2, b"140", {A: 30, B: 10, None: 0}) == [b"30", b"10", b"0"]


@given(st.integers(0, 10**9), st.lists(st.integers(1, 10**6), min_size=1, max_size=16))
def test_parts_by_grants_add_up(value: int, granted: list[int]) -> None:
    texts = split_gauge(b"%d" % value, len(granted), granted)
    assert sum(map(float, texts)) == pytest.approx(value, abs=1e-6)
    for text, part in zip(texts, granted, strict=True):
        assert float(text) == pytest.approx(value * part / sum(granted), abs=len(granted))
