"""DCGM's dictionary, and the script that makes it of DCGM's headers."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.dcgm.dictionary import Dictionary, read
from release import dictionary as script
from release.dictionary import Generation, as_text, decoded, disagreements, encoded, from_header, mended, with_more

HEADER = """
/** GPU Utilization */
#define DCGM_FI_DEV_GPU_UTIL_RATIO 203
#define DCGM_FI_FIRST_VGPU_FIELD_ID 520
#define DCGM_FI_DEV_VGPU_VM_ID 520
#define DCGM_FI_MAX_FIELDS (DCGM_FI_DEV_VGPU_VM_ID + 1)
#define DCGM_FI_DEV_GPU_UTIL      DCGM_FI_DEV_GPU_UTIL_RATIO    //  203
#define DCGM_FV_FLAG_LIVE_DATA 0x00000001
"""
# what the committed headers say, as DCGM's own release notes and headers have it
FACTS = {
    ("4.5.3", 203): ("DEV_GPU_UTIL",),
    ("4.6.0", 203): ("DEV_GPU_UTIL", "DEV_GPU_UTIL_RATIO"),
    ("4.7.0", 203): ("DEV_GPU_UTIL",),
    ("4.7.0", 1613): ("DEV_GPU_UTIL_RATIO",),
    ("4.6.1", 254): ("DEV_FB_USED_PERCENT", "DEV_FB_USED_RATIO"),
    ("3.3.9", 112): ("DEV_CLOCK_THROTTLE_REASONS",),
    ("4.0.0", 112): ("DEV_CLOCK_THROTTLE_REASONS", "DEV_CLOCKS_EVENT_REASONS"),
    ("4.6.0", 1603): (),
    ("4.6.1", 1603): ("DEV_SM_CLOCK_HERTZ",),
}


def committed() -> Dictionary:
    return read(script.DICTIONARY.read_text().splitlines())


def known() -> Mapping[str, set[str]]:
    return script.known_names(script.KNOWN.read_text())


# issue 26, part 5
def test_the_table_agrees_with_dcgms_headers() -> None:
    text = script.TABLE.read_text()
    complaints = [complaint for row in script.rows(text) for complaint in disagreements(committed(), known(), row)]
    assert complaints == []
    assert mended(committed(), text) == text


# issue 26, part 5
@pytest.mark.parametrize(("generation", "number"), FACTS)
def test_a_field_has_the_names_of_the_generation(generation: str, number: int) -> None:
    book = committed()
    entry = book.entries[number]
    assert book.names(entry, generation) == FACTS[generation, number]


def test_a_base_unit_is_that_of_an_older_field() -> None:
    book = committed()
    pairs = {entry.number: entry.in_base_unit_of for entry in book.entries.values() if entry.in_base_unit_of}
    assert pairs[1603] == 100
    assert pairs[1627] == 252
    assert set(pairs.values()) <= book.entries.keys()


def test_what_the_script_reads_of_a_header() -> None:
    generation = from_header(HEADER)
    assert generation.numbers == {"DEV_GPU_UTIL_RATIO": 203, "DEV_GPU_UTIL": 203, "DEV_VGPU_VM_ID": 520}
    assert generation.deprecated == {"DEV_GPU_UTIL"}


def test_what_a_generation_adds_whose_header_cannot_be_read() -> None:
    later, base = with_more(from_header(HEADER), "# facts\n-203 DEV_GPU_UTIL_RATIO\n1613 DEV_GPU_UTIL_RATIO =203\n")
    assert later.numbers == {"DEV_GPU_UTIL": 203, "DEV_GPU_UTIL_RATIO": 1613, "DEV_VGPU_VM_ID": 520}
    assert (later.deprecated, base) == (set(), {1613: 203})


def test_the_committed_file_is_what_the_script_writes() -> None:
    book = committed()
    base = {entry.number: entry.in_base_unit_of for entry in book.entries.values() if entry.in_base_unit_of is not None}
    again = encoded(decoded(book), book.partial, base)
    assert again == book
    assert as_text(again) == script.DICTIONARY.read_text()


@given(
    st.dictionaries(st.sampled_from(["3.3.9", "4.4.0", "4.6.1"]), st.dictionaries(st.sampled_from("ABCDE"), st.just(0)))
)
def test_generations_come_back_from_the_file_as_they_were(names: dict[str, dict[str, int]]) -> None:
    generations = {
        version: Generation({name: ord(name) + number for name, number in of_version.items()})
        for version, of_version in {"1.0.0": {}, **names}.items()
    }
    try:
        written = as_text(encoded(generations, ["4.6.1"] if "4.6.1" in names else [], {}))
    except ValueError:
        return  # a name went and came again
    back = decoded(read(written.splitlines()))
    assert {version: generation.numbers for version, generation in back.items()} == {
        version: generation.numbers for version, generation in generations.items()
    }


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"name": "DEV_NO_SUCH"}, "no header has DEV_NO_SUCH"),
        ({"name": "DEV_GPU_TEMP", "newer": ["DEV_GPU_TEMP_KELVIN", "NUMBER"]}, "calls it DEV_GPU_TEMP_CELSIUS"),
        ({"name": "DEV_GPU_TEMP", "is_in_file": False}, "calls it DEV_GPU_TEMP_CELSIUS"),
        ({"name": "DEV_SM_CLOCK", "newer": ["DEV_SM_CLOCK_HERTZ", "HERTZ"], "since": "4.4"}, "`since` is wrong"),
        ({"name": "DEV_CLOCKS_EVENT_REASONS"}, "go-dcgm 3.3.9 does not know it"),
        (
            {"name": "DEV_CLOCKS_EVENT_REASONS", "since": "4.4", "before": "DEV_GPU_TEMP"},
            "DEV_GPU_TEMP is no name of field 112",
        ),
        ({"name": "DEV_PCIE_LINK_GEN", "also": ["DCGM_FI_DEV_NOT"]}, "no header has DEV_NOT"),
    ],
)
def test_a_row_that_says_otherwise_is_named(row: Mapping[str, object], complaint: str) -> None:
    complaints = list(disagreements(committed(), known(), row))
    assert any(complaint in text for text in complaints), complaints


def test_the_script_takes_a_new_release_and_mends_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DICTIONARY", "TABLE", "KNOWN"):
        copy = tmp_path / getattr(script, name).name
        copy.write_text(getattr(script, name).read_text())
        monkeypatch.setattr(script, name, copy)
    headers = tmp_path / "headers"
    headers.mkdir()
    (headers / "4.9.0.more").write_text("310 DEV_ECC_SBE_VOLATILE_TOTAL\n")
    (headers / "4.9.0.go").write_text('\t"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 310,\n')
    before = script.TABLE.read_text()
    assert script.main([str(headers)]) == 1  # its go-dcgm knows but one name
    assert script.TABLE.read_text() != before
    row = next(row for row in script.rows(script.TABLE.read_text()) if row["name"] == "DEV_ECC_SBE_VOL_TOTAL")
    assert row["newer"] == ["DEV_ECC_SBE_VOLATILE_TOTAL", "NUMBER"]
    book = committed()
    assert book.generations[-1] == "4.9.0"
    assert "4.9.0" in book.partial
    assert known()["4.9.0"] == {"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"}
