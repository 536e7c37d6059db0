"""The lines under `families` of a rule file: what they may say, and which unit a text names."""

import re

import pytest

from exporter.dcgm.table import TABLE, Unit
from exporter.dcgm.vendors import base_of, read_families, unit_named
from exporter.reading import Invalid
from tests.support import quick_yaml
from tests.support.places import ROOT

FILES = sorted((ROOT / "exporter" / "config" / "device_rules").glob("*.yaml"))
LINE = {"family": "x_power", "field": "DCGM_FI_DEV_POWER_USAGE", "unit": "W"}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({}, "families: a mapping is no list"),
        (["x"], "families[0]: 'x' is no mapping"),
        ([{}], "families[0].family: it is required"),
        ([{**LINE, "scale": 2}], "families[0]: the key 'scale' is not known; there are family, field, unit, help, "),
        ([{**LINE, "family": "a b"}], "families[0].family: 'a b' is not allowed; give a family's name"),
        ([{**LINE, "field": "POWER"}], "families[0].field: 'POWER' is not allowed; give DCGM_FI_DEV_GPU_UTIL, "),
        ([{**LINE, "field": "DCGM_FI_DRIVER_VERSION"}], "families[0].field: 'DCGM_FI_DRIVER_VERSION' is not allowed"),
        ([{**LINE, "unit": "kW"}], "families[0].unit: 'kW' is not allowed; give ratio, %, "),
        ([{**LINE, "unit": "MiB"}], "families[0].unit: DCGM_FI_DEV_POWER_USAGE is in W; give its unit, or one like it"),
        ([{"family": "x", "field": LINE["field"]}], "families[0].unit: DCGM_FI_DEV_POWER_USAGE is in W"),
        ([{**LINE, "field": "DCGM_FI_DEV_PCIE_LINK_GEN"}], "families[0].unit: DCGM_FI_DEV_PCIE_LINK_GEN is a number"),
        ([{**LINE, "where": {"a": "b"}}], "families[0].where.a: 'b' is no list"),
        ([{**LINE, "parts": ["a-b"]}], "families[0].parts[0]: 'a-b' is not allowed; give a label's name"),
        ([{**LINE, "plus": "x"}], "families[0].plus: 'x' is no list"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused_with_what_is_allowed(content: object, complaint: str) -> None:
    with pytest.raises(Invalid, match=f"^{re.escape(complaint)}"):
        read_families(content)


# what the exporters' HELP texts say
@pytest.mark.parametrize(
    ("text", "unit", "names"),
    [
        ("Graphics engine usage in Percentage (0-100)", Unit.PERCENT, ""),
        ("Graphics engine usage in Percentage (0-100)", Unit.RATIO, "percentage"),
        ("Avg utilization of engine group (in %), per GPU tile", Unit.RATIO, "%"),
        ("Used GPU memory / Total used GPU memory (in %), per GPU tile", Unit.PERCENT, ""),
        ("NeuronCore utilization ratio", Unit.RATIO, ""),
        ("Total VRAM memory of the GPU (in MB)", Unit.MIB, ""),
        ("Total VRAM memory of the GPU (in MB)", Unit.BYTES, "MB"),
        ("Accumulated energy consumed by the GPU in uJ", Unit.MICROJOULES, ""),
        ("Accumulated energy consumed by the GPU in uJ", Unit.JOULES, "uJ"),
        ("Power usage in milli-watts", Unit.MILLIWATTS, ""),
        ("Power usage in milli-watts", Unit.WATTS, "milli-watts"),
        ("GPU Power usage in Watts", Unit.WATTS, ""),
        ("Temperature of the hardware component in degrees Celsius.", Unit.CELSIUS, ""),
        ("Temperature in Kelvin", Unit.CELSIUS, "kelvin"),
        ("List of current GPU clock frequencies in MHz", Unit.MEGAHERTZ, ""),
        ("the npu ai core current frequency, unit is 'MHz'", Unit.HERTZ, "MHz"),
        # a text that names a unit of something else, or none
        ("Memory used at 50 % of the clock", Unit.MIB, ""),
        ("the npu power", Unit.WATTS, ""),
        ("", Unit.WATTS, ""),
    ],
)
def test_the_unit_that_a_text_names(text: str, unit: Unit, names: str) -> None:
    assert unit_named(text, unit) == names


def test_every_unit_has_a_quantity_whose_base_is_that_of_dcgm_4_9() -> None:
    for unit in Unit:
        base = base_of(unit)
        assert base.times == base.per == 1
        assert base_of(base) is base
    for row in TABLE:
        assert base_of(row.unit) is base_of(row.newer_unit), row.name


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_families_that_are_shipped_can_be_read(file: object) -> None:
    content = quick_yaml.load((ROOT / str(file)).read_text())
    families = read_families(content["families"])
    assert families
    # no line stands for another one of the same samples
    assert len({(each.family, each.field, each.where) for each in families}) == len(families)
