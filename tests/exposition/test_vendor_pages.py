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
NAMING = SampleLabels(uuid=("uuid",), index=("id",)).naming
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
BUSY = {"family": "v_busy", "field": "DCGM_FI_DEV_GPU_UTIL", "unit": "ratio", "parts": ["tile"]}


@pytest.mark.parametrize(
    ("lines", "page", "expected"),
    [
        # a tile's power adds up, unless the device has its own
        ((TILES,), 'v_power{uuid="a",tile="0"} 1.1\nv_power{uuid="a",tile="1"} 2.2\n', ["POWER_USAGE 3.3"]),
        ((TILES,), 'v_power{uuid="a",tile="0"} 1\nv_power{uuid="a"} 5\nv_power{uuid="a",tile="1"} 2\n',
         ["POWER_USAGE 5"]),
        ((TEMPERATURE,), 'v_temp{uuid="a",tile="0"} 50\nv_temp{uuid="a",tile="1"} 60\n', ["GPU_TEMP 60"]),
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
