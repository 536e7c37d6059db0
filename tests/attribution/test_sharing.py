"""Dividing values among owners: nothing is lost, nothing falls."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.attribution.fields import ADDITIVE, Additive
from exporter.attribution.labels import Attribution, LabelPolicy
from exporter.attribution.owners import build_owners
from exporter.attribution.sharing import CounterBook, is_amount, split_gauge
from exporter.exposition.join import Joiner
from exporter.exposition.lines import SampleLine, read_line
from exporter.exposition.text import unescape
from exporter.model import Assignment, DeviceKey, Owner

DEVICE = DeviceKey(uuid="GPU-1")
A, B, C = (Owner(namespace="ml", pod=name, container="main") for name in "abc")


@pytest.mark.parametrize(
    ("value", "parts", "expected"),
    [
        ("400.000000", 2, ["200.000000", "200.000000"]),
        ("112.670000", 3, ["37.556667", "37.556667", "37.556666"]),
        ("7", 2, ["4", "3"]),
        ("1", 3, ["1", "0", "0"]),
        ("0", 2, ["0", "0"]),
        ("-7", 2, ["-4", "-3"]),
        # Go's short form of a whole number: its unit is 1, and the parts are written out
        ("4.3e+09", 2, ["2150000000", "2150000000"]),
        ("1e+06", 3, ["333334", "333333", "333333"]),
        ("1.5e-07", 2, ["0.00000008", "0.00000007"]),
        ("+5", 2, ["3", "2"]),
        ("5.", 2, ["3", "2"]),
        # no amounts
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
    st.sampled_from(("1e308", "1e-400", "-0", "00012.50", ".5", "0e0")),
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


def rows_of(book: CounterBook, owners: Sequence[Owner], value: str) -> list[str]:
    return [text.decode() for text in book.advance(DEVICE, b"energy", owners, value.encode())]


def test_a_counters_rows() -> None:
    book = CounterBook()
    # nobody yet: the row without owner is the device's
    assert rows_of(book, [], "100") == ["100"]
    # a row starts at 0; what came in between was not its
    assert rows_of(book, [A], "110") == ["0", "110"]
    assert rows_of(book, [A], "120") == ["10", "110"]
    assert rows_of(book, [A, B], "130") == ["20", "0", "110"]
    assert rows_of(book, [A, B], "137") == ["24", "3", "110"]
    # the same page again, whoever asks
    assert rows_of(book, [A, B], "137") == ["24", "3", "110"]
    # who leaves takes nothing along, who stays takes it all
    assert rows_of(book, [B], "140") == ["6", "110"]
    assert rows_of(book, [], "150") == ["120"]
    # who comes back goes on
    assert rows_of(book, [A], "155") == ["24", "125"]
    # the device starts again from 0
    assert rows_of(book, [A], "5") == ["29", "125"]
    # a value that is no amount is shown as it is, and forgotten
    assert rows_of(book, [A], "9223372036854775794") == ["9223372036854775794"] * 2
    assert rows_of(book, [A], "6") == ["30", "125"]


def test_whoever_held_a_device_alone_goes_on_from_its_value() -> None:
    book = CounterBook()
    book.note_sole(DEVICE, A)
    assert rows_of(book, [A, B], "100") == ["100", "0", "100"]
    assert rows_of(book, [A, B], "110") == ["105", "5", "100"]


STEPS = st.lists(st.tuples(st.sets(st.sampled_from((A, B, C))), NUMBERS), min_size=2, max_size=30)


@given(steps=STEPS)
def test_over_any_history_a_counters_increases_add_up_and_no_row_falls(
    steps: list[tuple[set[Owner], str]],
) -> None:
    book = CounterBook()
    before: dict[Owner | None, Fraction] = {}
    last: Fraction | None = None
    for present, value in steps:
        if not is_amount(value.encode()) or abs(Decimal(value).adjusted()) > 300:
            continue
        owners = sorted(present)
        now = dict(zip((*owners, None), map(Fraction, rows_of(book, owners, value)), strict=True))
        device = Fraction(value)
        grown = [now[row] - before[row] for row in now.keys() & before.keys()]
        assert all(by >= 0 for by in grown)
        if last is not None:
            assert sum(grown) == (device - last if device >= last else max(device, 0))
        before = {**before, **now}
        last = device


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

    def attribution(self, held: dict[str, Owner]) -> Attribution:
        owners = build_owners(
            Assignment(owner=owner, resource="nvidia.com/gpu.shared", device_id=device_id)
            for device_id, owner in held.items()
        )
        return Attribution(owners, self.policy, book=self.book)

    def rows(self, attribution: Attribution, power: str, energy: str) -> Found:
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
        ("TOTAL_ENERGY_CONSUMPTION", ""): "1000",
        ("GPU_TEMP", "a"): "40", ("GPU_TEMP", "b"): "40",
        # typed a counter, and a rate; and a name that is in no table
        ("NVLINK_BANDWIDTH_TOTAL", "a"): "150.3", ("NVLINK_BANDWIDTH_TOTAL", "b"): "150.2",
        ("UNHEARD_OF", "a"): "1101", ("UNHEARD_OF", "b"): "1101",
    }  # fmt: skip
    # a GPU that one container holds alone is as it came
    assert found["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "GPU-2", "c"] == 1101
    assert ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "GPU-2", "") not in found


def test_more_names_can_be_given() -> None:
    node = SplitNode(additive={**ADDITIVE, "DCGM_FI_DEV_UNHEARD_OF": Additive.GAUGE})
    found = node.rows(node.attribution({"GPU-1::0": A, "GPU-1::1": B}), "1", "1101")
    assert found["DCGM_FI_DEV_UNHEARD_OF", "GPU-1", "a"] == 551


def test_one_page_alone_shows_the_devices_counter_once() -> None:
    node = SplitNode(divides_counters=False)
    found = node.rows(node.attribution({"GPU-1::0": A, "GPU-1::1": B}), "10", "1101")
    assert {pod: value for (name, uuid, pod), value in found.items() if "ENERGY" in name and uuid == "GPU-1"} == {
        "": 1101
    }
    assert found["DCGM_FI_DEV_POWER_USAGE", "GPU-1", "a"] == 5


def test_dcgm_exporters_own_word_is_not_divided() -> None:
    policy = LabelPolicy(sharing="split")
    subject = policy.read_subject({"UUID": "GPU-1", "vgpu": "0", "pod": "x"})
    owners = build_owners([Assignment(owner=A, resource="nvidia.com/gpu", device_id=f"GPU-1::{i}") for i in range(2)])
    (rows,) = Attribution(owners, policy)([(b"DCGM_FI_DEV_POWER_USAGE", subject)])
    assert rows.values is None


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


@settings(deadline=None)
@given(history=HISTORY, repeats=st.integers(1, 2), idle_labels=st.booleans())
def test_on_whole_pages_gauges_add_up_and_counters_grow_as_the_device_does(
    history: list[tuple[dict[str, Owner], str, int]], repeats: int, idle_labels: bool
) -> None:
    node = SplitNode(idle_labels=idle_labels)
    before: Found = {}
    last: int | None = None
    energy = 0
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
            grown = [found[key] - before[key] for key in counters & before.keys()]
            assert all(by >= 0 for by in grown)
            if last is not None:
                assert sum(grown) == energy - last
        before.update(found)
        last = energy
