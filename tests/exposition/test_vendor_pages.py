"""DCGM's families beside another vendor's: values, parts, what is not measured, and pages that mean harm."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.dcgm.table import Unit
from exporter.dcgm.vendors import VendorFamily, read_families
from exporter.errors import Trouble
from exporter.exposition.families import render_number
from exporter.exposition.vendor_pages import Vendor, VendorPages
from exporter.model.slices import at_once
from exporter.ownership.labels import OWNER_LABELS, SampleLabels

POWER = {"family": "v_power", "field": "DCGM_FI_DEV_POWER_USAGE", "unit": "mW"}
NAMING = SampleLabels(
    uuid=("uuid", "serial"), index=("id",), device=("dev",), model=("model",), instance=("part",), profile=("cut",)
).naming
NAMED = '{id="0",uuid="a"}'
DCGM = '{gpu="0",UUID="a"}'


def pages_of(*lines: dict[str, Any]) -> VendorPages:
    return VendorPages(Vendor(families=read_families(list(lines)), naming=NAMING, owner_labels=OWNER_LABELS))


def added(pages: VendorPages, body: str) -> tuple[list[str], list[Trouble]]:
    """The samples that the page gains."""
    odd: list[Trouble] = []
    text = at_once(pages.with_dcgm(body.encode(), odd)).decode()
    assert text.startswith(body), "what came stays as it came"
    rest = text.removeprefix(body if body.endswith("\n") else body + "\n")
    return [line for line in rest.splitlines() if not line.startswith("#")], odd


@pytest.mark.parametrize(
    ("line", "value", "expected"),
    [
        (POWER, "352500", "352.5"),
        (POWER, "3.525e+05", "352.5"),
        (POWER, "+1", "0.001"),
        (POWER, "0", ""),  # nothing that works draws nothing
        (POWER, "-1", ""),
        (POWER, "NaN", ""),
        (POWER, "+Inf", ""),
        (POWER, "4294967295", ""),
        (POWER, "18446744073709551615", ""),
        (POWER, "2147483647", ""),
        (POWER, "9223372036854775807", ""),
        ({**POWER, "unit": "W"}, "20000", "20000"),
        # as many characters, and so large an exponent, as a number may have
        (POWER, "1." + "0" * 38, "0.001"),
        (POWER, "1." + "0" * 39, ""),
        (POWER, "1e-300", "1e-303"),
        (POWER, "1e-301", ""),
        ({"family": "v_power", "field": "DCGM_FI_DEV_FB_USED", "unit": "bytes"}, "2147483647", ""),
        ({"family": "v_power", "field": "DCGM_FI_DEV_GPU_TEMP", "unit": "C"}, "0", ""),
        ({"family": "v_power", "field": "DCGM_FI_DEV_GPU_TEMP", "unit": "C"}, "150", "150"),
        (POWER, "0x10", ""),
        (POWER, "1_000", ""),
        (POWER, "1e-9999999999", ""),
        ({**POWER, "unit": "W"}, "65535", ""),
        ({"family": "v_power", "field": "DCGM_FI_DEV_FB_USED", "unit": "MiB"}, "65535", "65535"),
        ({"family": "v_power", "field": "DCGM_FI_DEV_FB_USED", "unit": "MiB"}, "0", "0"),
        ({"family": "v_power", "field": "DCGM_FI_DEV_FB_TOTAL", "unit": "MiB"}, "0", ""),
        ({"family": "v_power", "field": "DCGM_FI_DEV_FB_USED", "unit": "bytes"}, "1.048576e+06", "1"),
        ({"family": "v_power", "field": "DCGM_FI_DEV_FB_USED", "unit": "GiB"}, "1.5", "1536"),
        ({"family": "v_power", "field": "DCGM_FI_DEV_GPU_UTIL", "unit": "ratio"}, "0.57", "57"),
        ({"family": "v_power", "field": "DCGM_FI_DEV_GPU_UTIL", "unit": "ratio"}, "0.044500000000000005", "4.45"),
        ({"family": "v_power", "field": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "unit": "uJ"}, "1.5e+12", "1500000000"),
        ({"family": "v_power", "field": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "unit": "J"}, "0.001", "1"),
        ({"family": "v_power", "field": "DCGM_FI_DEV_PCIE_LINK_WIDTH"}, "16", "16"),
    ],
)  # fmt: skip
def test_a_value_is_converted_exactly_and_what_is_not_measured_left_out(
    line: dict[str, Any], value: str, expected: str
) -> None:
    samples, odd = added(pages_of(line), f"v_power{NAMED} {value}\n")
    assert odd == []
    assert samples == ([f"{line['field']}{DCGM} {expected}"] if expected else [])


@given(st.decimals(0, 10**6, allow_nan=False, allow_infinity=False, places=4), st.sampled_from(["MiB", "bytes", "KiB"]))
def test_a_conversion_is_the_nearest_number_to_the_exact_one(value: Any, unit: str) -> None:
    line = {"family": "v", "field": "DCGM_FI_DEV_FB_USED", "unit": unit}
    ((sample,), _) = added(pages_of(line), f"v{NAMED} {value}\n")
    (family,) = read_families([line])
    exact = Fraction(value) * family.measured_in.times / Unit.MIB.times
    assert sample.rpartition(" ")[2].encode() == render_number(float(exact))


TILES = {**POWER, "unit": "W", "parts": ["tile"]}
TEMPERATURE = {"family": "v_temp", "field": "DCGM_FI_DEV_GPU_TEMP", "unit": "C", "parts": ["tile"]}
CLOCK = {"family": "v_clock", "field": "DCGM_FI_DEV_SM_CLOCK", "unit": "MHz", "parts": ["tile"]}
BUSY = {"family": "v_busy", "field": "DCGM_FI_DEV_GPU_UTIL", "unit": "ratio", "parts": ["tile"]}


@pytest.mark.parametrize(
    ("lines", "page", "expected"),
    [
        # a tile's power adds up, unless the device has its own
        ((TILES,), 'v_power{uuid="a",tile="0"} 1.1\nv_power{uuid="a",tile="1"} 2.2\n', ["POWER_USAGE 3.3"]),
        ((TILES,), 'v_power{uuid="a",tile="0"} 1\nv_power{uuid="a"} 5\nv_power{uuid="a",tile="1"} 2\n',
         ["POWER_USAGE 5"]),
        ((TEMPERATURE,), 'v_temp{uuid="a",tile="0"} 50\nv_temp{uuid="a",tile="1"} 60\n', ["GPU_TEMP 60"]),
        ((CLOCK,), 'v_clock{uuid="a",tile="0"} 900\nv_clock{uuid="a",tile="1"} 600\n', ["SM_CLOCK 900"]),
        ((BUSY,), 'v_busy{uuid="a",tile="0"} 0.5\nv_busy{uuid="a",tile="1"} 0.2\n', ["GPU_UTIL 35"]),
        # a part that is not measured is no part
        ((TEMPERATURE,), 'v_temp{uuid="a",tile="0"} 50\nv_temp{uuid="a",tile="1"} -1\n', ["GPU_TEMP 50"]),
        # the first line that a device has samples of
        (({**POWER, "family": "v_more"}, POWER), 'v_power{uuid="a"} 1000\nv_more{uuid="a"} 2000\n', ["POWER_USAGE 2"]),
        (({**POWER, "family": "v_more"}, POWER), 'v_power{uuid="a"} 1000\nv_more{uuid="b"} 2000\n',
         ["POWER_USAGE 1", "POWER_USAGE 2"]),
        # sums in which something is missing are none
        (({**POWER, "plus": ["v_more"]},), 'v_power{uuid="a"} 1000\nv_more{uuid="a"} 2000\n', ["POWER_USAGE 3"]),
        (({**POWER, "plus": ["v_more"]},), 'v_power{uuid="a"} 1000\nv_more{uuid="b"} 2000\n', []),
        # other labels, and samples of no device
        (({**POWER, "where": {"rail": ["x", ""]}},), 'v_power{uuid="a",rail="y"} 1\n', []),
        (({**POWER, "where": {"rail": ["x", ""]}},), 'v_power{uuid="a",rail="x"} 1000\n', ["POWER_USAGE 1"]),
        (({**POWER, "where": {"rail": ["x", ""]}},), 'v_power{uuid="a"} 1000\n', ["POWER_USAGE 1"]),
        ((POWER,), 'v_power 1\nv_power{host="x"} 1\nv_power_limit{uuid="a"} 1\n', []),
    ],
)  # fmt: skip
def test_a_devices_value_by_several_samples(lines: Any, page: str, expected: list[str]) -> None:
    samples, odd = added(pages_of(*lines), page)
    assert odd == []
    values = [
        f"{name.removeprefix('DCGM_FI_DEV_').partition('{')[0]} {value}" for name, value in map(str.split, samples)
    ]
    assert sorted(values) == sorted(expected)


def test_samples_that_a_rule_does_not_tell_apart_are_not_taken() -> None:
    samples, (trouble,) = added(pages_of(POWER), 'v_power{uuid="a",rail="x"} 1\nv_power{uuid="a",rail="y"} 2\n')
    assert samples == []
    assert "v_power (in mW): its rule does not tell several samples of one device apart" in trouble.message


def test_no_other_rule_stands_in_for_a_value_that_is_refused() -> None:
    rules = pages_of(BUSY, {**BUSY, "family": "v_more"})
    samples, (trouble,) = added(rules, 'v_busy{uuid="a"} 2\nv_more{uuid="a"} 0.5\n')
    assert samples == []
    assert "v_busy (in ratio): it has the value 2" in trouble.message


def test_owners_timestamps_and_a_missing_line_end_go_on() -> None:
    page = 'v_power{uuid="a",pod="p",namespace="n",container="c",other="o"} 1000 1700000000000\nv_temp{uuid="a"} 50'
    samples, _ = added(pages_of(POWER, TEMPERATURE), page)
    owner = 'UUID="a",pod="p",namespace="n",container="c"'
    # of a device that one container holds all samples are that container's
    assert samples == [
        f"DCGM_FI_DEV_POWER_USAGE{{{owner}}} 1 1700000000000",
        f"DCGM_FI_DEV_GPU_TEMP{{{owner}}} 50",
    ]


def test_only_a_device_that_one_container_holds_has_an_owner() -> None:
    page = (
        'v_power{uuid="a",pod="p"} 1000\nv_power{uuid="a",pod="q"} 2000\nv_power{uuid="b",pod="q"} 3000\n'
        'v_temp{uuid="a"} 50\nv_temp{uuid="b"} 60\n'
    )
    samples, odd = added(pages_of(POWER, TEMPERATURE), page)
    assert odd == []
    assert samples == [
        'DCGM_FI_DEV_POWER_USAGE{UUID="a",pod="p"} 1',
        'DCGM_FI_DEV_POWER_USAGE{UUID="a",pod="q"} 2',
        'DCGM_FI_DEV_POWER_USAGE{UUID="b",pod="q"} 3',
        'DCGM_FI_DEV_GPU_TEMP{UUID="a"} 50',
        'DCGM_FI_DEV_GPU_TEMP{UUID="b",pod="q"} 60',
    ]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ('dev="d0"', 'device="d0"'),
        ('id="3"', 'gpu="3"'),
        ('uuid="",dev="d0"', 'device="d0"'),
        ('serial="s"', 'UUID="s"'),
        ('serial="s",uuid="u"', 'UUID="u"'),
        ('model="",uuid="u"', 'UUID="u"'),
        ('cut="1g",part="1",hostname="n",model="M",dev="d",uuid="u",id="0"',
         'gpu="0",UUID="u",device="d",modelName="M",Hostname="n",GPU_I_ID="1",GPU_I_PROFILE="1g"'),
        ('model="M"', ""),
    ],
)  # fmt: skip
def test_a_device_is_named_by_whichever_labels_it_has(labels: str, expected: str) -> None:
    samples, odd = added(pages_of(POWER), f"v_power{{{labels}}} 1000\n")
    assert odd == []
    assert samples == ([f"DCGM_FI_DEV_POWER_USAGE{{{expected}}} 1"] if expected else [])


def test_each_instance_of_a_device_has_its_own_value() -> None:
    page = 'v_power{uuid="a",part="0"} 1000\nv_power{uuid="a",part="1"} 2000\n'
    assert added(pages_of(POWER), page) == (
        ['DCGM_FI_DEV_POWER_USAGE{UUID="a",GPU_I_ID="0"} 1', 'DCGM_FI_DEV_POWER_USAGE{UUID="a",GPU_I_ID="1"} 2'],
        [],
    )


def test_parts_together_have_the_first_parts_time() -> None:
    page = 'v_power{uuid="a",tile="0"} 1 1700000000001\nv_power{uuid="a",tile="1"} 2 1700000000002\n'
    assert added(pages_of(TILES), page) == (['DCGM_FI_DEV_POWER_USAGE{UUID="a"} 3 1700000000001'], [])


def test_a_field_goes_out_with_its_own_help_and_type() -> None:
    text = at_once(pages_of(POWER).with_dcgm(b'v_power{uuid="a"} 1000\n', []))
    row = read_families([POWER])[0].row
    assert text.splitlines()[1:3] == [
        f"# HELP DCGM_FI_DEV_POWER_USAGE {row.help}".encode(),
        b"# TYPE DCGM_FI_DEV_POWER_USAGE gauge",
    ]


@pytest.mark.parametrize("word", ["HELP", "UNIT"])
def test_a_text_that_names_another_unit_refuses_the_family(word: str) -> None:
    page = f'# {word} v_power Power in watts.\nv_power{{uuid="a"}} 1000\nv_temp{{uuid="a"}} 50\n'
    samples, (trouble,) = added(pages_of(POWER, TEMPERATURE), page)
    assert samples == ['DCGM_FI_DEV_GPU_TEMP{UUID="a"} 50']
    assert "v_power (in mW): its HELP or UNIT names watts" in trouble.message
    # the same unit, another keyword, or another family says nothing
    for line in ("# HELP v_power Power in mW.", "# TYPE v_power watts", "# HELP v_other Power in watts."):
        assert added(pages_of(POWER), f'{line}\nv_power{{uuid="a"}} 1000\n')[1] == []


USED, TOTAL = (
    {"family": f"v_{word}", "field": f"DCGM_FI_DEV_FB_{word.upper()}", "unit": "MiB"} for word in ("used", "total")
)


@pytest.mark.parametrize(
    ("page", "fields"),
    [
        ('v_used{uuid="a"} 80\nv_total{uuid="a"} 80\n', {"FB_USED", "FB_TOTAL", "GPU_TEMP"}),
        ('v_used{uuid="a"} 81\nv_total{uuid="a"} 80\n', {"GPU_TEMP"}),
        # one device is enough, and containers' parts of its use add up
        ('v_used{uuid="a"} 1\nv_total{uuid="a"} 80\nv_used{uuid="b"} 81\nv_total{uuid="b"} 80\n', {"GPU_TEMP"}),
        ('v_used{uuid="a",pod="p"} 41\nv_used{uuid="a",pod="q"} 41\nv_total{uuid="a"} 80\n', {"GPU_TEMP"}),
        ('v_used{uuid="a"} 81\nv_total{uuid="b"} 80\n', {"FB_USED", "FB_TOTAL", "GPU_TEMP"}),
    ],
)
def test_a_device_does_not_use_more_memory_than_it_has(page: str, fields: set[str]) -> None:
    samples, odd = added(pages_of(USED, TOTAL, TEMPERATURE), page + 'v_temp{uuid="a"} 50\n')
    assert {sample.partition("{")[0].removeprefix("DCGM_FI_DEV_") for sample in samples} == fields
    is_refused = "FB_USED" not in fields
    assert ["would use more memory than it has" in trouble.message for trouble in odd] == [True] * is_refused
    assert ["v_total (in MiB)" in trouble.message for trouble in odd] == [True] * is_refused


def test_a_trouble_names_five_families_and_counts_the_others() -> None:
    fields = ("POWER_USAGE", "GPU_TEMP", "MEMORY_TEMP", "FB_USED", "FB_FREE", "SM_CLOCK")
    units = ("W", "C", "C", "GiB", "GiB", "MHz")
    rules = [
        {"family": f"v_{number}", "field": f"DCGM_FI_DEV_{field}", "unit": unit}
        for number, (field, unit) in enumerate(zip(fields, units, strict=True))
    ]
    page = "".join(f'v_{number}{{uuid="a"}} 1e9\n' for number in range(6))
    samples, (trouble,) = added(pages_of(*rules), page)
    assert samples == []
    assert [f"v_{number} (" in trouble.message for number in range(6)] == [True] * 5 + [False]
    assert trouble.message.endswith("and 1 more")


def test_a_long_page_is_worked_on_in_slices() -> None:
    work = pages_of(POWER).with_dcgm(b"v_other 1\n" * 2_999 + b'v_power{uuid="a"} 1000\n', [])
    # after each thousand lines, and before each field
    assert sum(1 for _ in iter(lambda: next(work, "done"), "done")) == 4


def test_the_next_page_has_its_own_values_and_devices() -> None:
    pages = pages_of(POWER)
    for number in range(3):
        samples, _ = added(pages, f'v_power{{uuid="{number}"}} {number + 1}000\n')
        assert samples == [f'DCGM_FI_DEV_POWER_USAGE{{UUID="{number}"}} {number + 1}']


@pytest.mark.parametrize(
    "line",
    [
        "v_power{", 'v_power{uuid="a"', 'v_power{uuid="a"}', 'v_power{uuid="a"} ', 'v_power{uuid="a"} 1 2 3',
        'v_power{uuid="a",uuid="b"} 1', 'v_power{uuid="\\x"} 1', 'v_power{uuid="a"} 1 # {x="y"} 2', "v_power{}} 1",
        "# HELP v_power", "# HELP v_power \\", "# UNIT v_power", 'v_power{uuid="' + "}" * 60_000,
        'v_power{uuid="a\xff"} 1',
    ],
)  # fmt: skip
def test_a_broken_line_costs_nothing_else(line: str) -> None:
    body = f"{line}\n".encode("latin-1") + b'v_power{uuid="b"} 1000\n'
    odd: list[Trouble] = []
    text = at_once(pages_of(POWER).with_dcgm(body, odd))
    assert text.startswith(body)
    assert b'DCGM_FI_DEV_POWER_USAGE{UUID="b"} 1\n' in text


@given(st.binary(max_size=300), st.binary(max_size=100))
def test_any_bytes_are_a_page(before: bytes, after: bytes) -> None:
    body = before + b"\nv_power{" + after + b'\nv_power{uuid="b"} ' + after
    text = at_once(pages_of(POWER, TILES).with_dcgm(body, []))
    assert text.startswith(body)


def test_two_readings_of_one_file_are_one_source() -> None:
    """A reload keeps a source whose settings are equal."""
    one, other = (Vendor(families=read_families([TILES]), naming=NAMING, owner_labels=OWNER_LABELS) for _ in range(2))
    assert (one, hash(one)) == (other, hash(other))
    assert VendorFamily(family="a", field="b") != VendorFamily(family="a", field="c")
