"""What families of one generation of DCGM are called in the other, and what becomes of their values."""

import pytest

from exporter.dcgm.fields import FIELDS
from exporter.dcgm.generation_names import NEWER, OLDER, label_names_in, names_in, renamed
from exporter.dcgm.table import TABLE, Unit
from release.dictionary import known_names
from tests.support.places import DATA

# In the words of NVIDIA: the release notes of dcgm-exporter 4.9.0 say that 23 fields of its files have other names, and
# which units change. The names are those of DCGM's header and of the tests of its Go bindings.
RENAMED = {
    "SM_CLOCK": ("SM_CLOCK_HERTZ", 10**6),
    "MEM_CLOCK": ("MEMORY_CLOCK_HERTZ", 10**6),
    "MEMORY_TEMP": ("MEMORY_TEMP_CELSIUS", 1),
    "GPU_TEMP": ("GPU_TEMP_CELSIUS", 1),
    "POWER_USAGE": ("BOARD_POWER_WATTS", 1),
    "TOTAL_ENERGY_CONSUMPTION": ("GPU_ENERGY_JOULES_TOTAL", 1e-3),
    "PCIE_REPLAY_COUNTER": ("PCIE_REPLAY_TOTAL", 1),
    "GPU_UTIL": ("GPU_UTIL_RATIO", 1e-2),
    "MEM_COPY_UTIL": ("MEMORY_UTIL_RATIO", 1e-2),
    "ENC_UTIL": ("ENC_UTIL_RATIO", 1e-2),
    "DEC_UTIL": ("DEC_UTIL_RATIO", 1e-2),
    "XID_ERRORS": ("XID_ERROR", 1),
    "FB_FREE": ("FB_FREE_BYTES", 2**20),
    "FB_USED": ("FB_USED_BYTES", 2**20),
    "FB_RESERVED": ("FB_RESERVED_BYTES", 2**20),
    "UNCORRECTABLE_REMAPPED_ROWS": ("ROW_REMAP_UNCORRECTABLE_TOTAL", 1),
    "CORRECTABLE_REMAPPED_ROWS": ("ROW_REMAP_CORRECTABLE_TOTAL", 1),
    "ROW_REMAP_FAILURE": ("ROW_REMAP_FAILED", 1),
    "NVLINK_BANDWIDTH_TOTAL": ("NVLINK_THROUGHPUT_BYTES_PER_SECOND", 1_024_000),
    "PROF_GR_ENGINE_ACTIVE": ("PROF_GR_ENGINE_UTIL_RATIO", 1),
    "PROF_PIPE_TENSOR_ACTIVE": ("PROF_TENSOR_UTIL_RATIO", 1),
    "PROF_DRAM_ACTIVE": ("PROF_DRAM_UTIL_RATIO", 1),
}
# the fields of DCGM 4.7 in base units that no file of dcgm-exporter has (go-dcgm's tests)
IN_BASE_UNITS = {
    "BAR1_TOTAL": ("BAR1_CAPACITY_BYTES", 2**20),
    "BAR1_USED": ("BAR1_USED_BYTES", 2**20),
    "BAR1_FREE": ("BAR1_FREE_BYTES", 2**20),
    "VIDEO_CLOCK": ("VIDEO_CLOCK_HERTZ", 10**6),
    "APP_SM_CLOCK": ("SM_APP_CLOCK_HERTZ", 10**6),
    "APP_MEM_CLOCK": ("MEMORY_APP_CLOCK_HERTZ", 10**6),
    "MAX_SM_CLOCK": ("SM_MAX_CLOCK_HERTZ", 10**6),
    "MAX_MEM_CLOCK": ("MEMORY_MAX_CLOCK_HERTZ", 10**6),
    "MAX_VIDEO_CLOCK": ("VIDEO_MAX_CLOCK_HERTZ", 10**6),
    "FAN_SPEED": ("FAN_SPEED_RATIO", 1e-2),
    "POWER_MGMT_LIMIT": ("BOARD_POWER_LIMIT_REQUESTED_WATTS", 1),
    "RETIRED_SBE": ("PAGE_RETIRED_SBE_TOTAL", 1),
    "RETIRED_DBE": ("PAGE_RETIRED_DBE_TOTAL", 1),
    "PSTATE": ("GPU_PSTATE", 1),
    "SLOWDOWN_TEMP": ("GPU_TEMP_SLOWDOWN_CELSIUS", 1),
}


SEEN_IN_4_6 = [
    tuple(f"DCGM_FI_{name}" for name in line.split("\t"))
    for line in (DATA / "dcgm" / "names-4.6.tsv").read_text().splitlines()
    if not line.startswith("#")
]


def known_to(go_dcgm: str) -> set[str]:
    return known_names((DATA / "dcgm" / "go-dcgm-names.tsv").read_text())[go_dcgm]


def whole(name: str) -> str:
    return f"DCGM_FI_{name}" if name.startswith("PROF_") else f"DCGM_FI_DEV_{name}"


@pytest.mark.parametrize(("older", "newer", "factor"), [(name, *new) for name, new in RENAMED.items()])
def test_a_field_has_the_other_generations_name_and_unit(older: str, newer: str, factor: float) -> None:
    there, back = names_in(NEWER)[whole(older)], names_in(OLDER)[whole(newer)]
    assert (there.name, back.name) == (whole(newer), whole(older))
    assert there.times / there.per == factor
    assert (back.times, back.per) == (there.per, there.times)
    assert there.kind == back.kind


def test_23_names_and_11_units_change_in_dcgm_exporters_files() -> None:
    assert len(RENAMED) + 1 == 23  # with the version of the driver, which is a label
    assert sum(factor != 1 for _, factor in RENAMED.values()) == 11


@pytest.mark.parametrize("generation", [OLDER, NEWER])
def test_a_field_of_the_generation_keeps_its_name_and_values(generation: str) -> None:
    names = names_in(generation)
    for row in TABLE:
        name = row.newer_family if generation == NEWER else row.family
        if row.kind != "label":
            assert names[name].name == name
            assert names[name].times == names[name].per == 1


def test_help_texts_name_the_unit_that_goes_out() -> None:
    assert names_in(OLDER)["DCGM_FI_DEV_FB_USED_BYTES"].help == "Memory in use (in MiB)."
    assert names_in(NEWER)["DCGM_FI_DEV_FB_USED"].help == "Memory in use (in bytes)."
    assert names_in(NEWER)["DCGM_FI_DEV_GPU_UTIL"].help == "Share of time in which a kernel ran (0 to 1)."
    assert names_in(NEWER)["DCGM_FI_PROF_SM_ACTIVE"].help == names_in(OLDER)["DCGM_FI_PROF_SM_ACTIVE"].help
    for row in TABLE:
        # the text ends with the unit, so that another one can take its place
        if row.newer_unit is not row.unit:
            assert row.help.endswith(")."), row.help
            assert row.unit is not Unit.NUMBER


def test_another_name_of_one_generation_is_renamed_too() -> None:
    # DCGM 4.7 still has the field in MB/s, under a name that no file of dcgm-exporter asks for
    assert names_in(NEWER)["DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL"].times == 1_024_000
    assert names_in(OLDER)["DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL"].name == "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"


def test_the_shell_versions_names_stay() -> None:
    assert "dcgm_gpu_temp" in FIELDS
    assert [name for name in names_in(NEWER) if not name.startswith("DCGM_")] == []


def test_labels_have_the_generations_names() -> None:
    driver, newer = "DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION"
    both = (driver, newer)
    for generations, names in (((OLDER,), (driver,)), ((NEWER,), (newer,)), (both_generations := (OLDER, NEWER), both)):
        labels = label_names_in(*generations)
        assert labels["Hostname"] == ("hostname",)
        assert {labels.get(label, (label,)) for label in both} == {names}
        assert both_generations != generations or labels["DCGM_FI_DEV_BOARD_SERIAL"] == (
            "DCGM_FI_DEV_SERIAL",
            "DCGM_FI_DEV_BOARD_SERIAL",
        )


# issue 22, line 10
def test_each_name_that_changed_with_dcgm_4_6_is_renamed_both_ways() -> None:
    pairs = list(renamed())
    # 325 with 4.6.0, and 36 with 4.6.1
    assert len(pairs) == len(set(pairs)) == 361
    assert set(SEEN_IN_4_6) <= set(pairs)
    names_of_4_6 = known_to("4.6.1")
    assert [name for pair in pairs for name in pair if name not in names_of_4_6] == []
    older, newer, labels = names_in(OLDER), names_in(NEWER), label_names_in(NEWER)
    others = {old: new for old, new in pairs if old in newer and newer[old].name != new}
    # 4.9 has a field in bytes of its own
    assert others == {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL"}
    for old, new in pairs:
        assert labels[old] == (new,)
        if old not in others and old != "DCGM_FI_DRIVER_VERSION":  # a label everywhere
            assert (newer[old].name, newer[new].name) == (new, new)
            assert (older[old].name, older[new].name) == (old, old)


# issue 22, line 37
@pytest.mark.parametrize(("older", "newer", "factor"), [(name, *new) for name, new in IN_BASE_UNITS.items()])
def test_a_field_in_its_base_unit_is_the_same_amount(older: str, newer: str, factor: float) -> None:
    there, back = names_in(NEWER)[whole(older)], names_in(OLDER)[whole(newer)]
    assert (there.name, there.times / there.per) == (whole(newer), factor)
    assert (back.name, back.per / back.times) == (whole(older), factor)
    assert whole(older) in known_to("4.6.1")


# issue 22, line 37
@pytest.mark.parametrize(
    "reason", ["POWER", "THERMAL", "SYNC_BOOST", "BOARD_LIMIT", "LIMIT", "LOW_UTIL", "RELIABILITY"]
)
def test_throttling_counts_under_the_newer_names(reason: str) -> None:
    field = FIELDS[f"DCGM_FI_DEV_GPU_{reason}_THROTTLE_SECONDS_TOTAL"]
    assert (field.accounts, field.times / field.per) == (("violations", 0), 10**9)


# issue 22, line 37
@pytest.mark.parametrize("name", (DATA / "dcgm" / "exporter-list.txt").read_text().split())
def test_each_name_of_dcgm_exporters_own_list_is_in_both_generations(name: str) -> None:
    for generation in (OLDER, NEWER):
        assert name in names_in(generation) or name in dict(renamed()) or name == "DCGM_FI_DEV_VBIOS_VERSION"
