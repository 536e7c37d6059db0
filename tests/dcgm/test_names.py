"""What families of one generation of DCGM are called in the other, and what becomes of their values."""

import pytest

from exporter.dcgm.fields import FIELDS, NEWER, OLDER, label_names_in, names_in
from exporter.dcgm.table import TABLE, Unit

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
    "NVLINK_BANDWIDTH_TOTAL": ("NVLINK_THROUGHPUT_BYTES_PER_SECOND", 10**6),
    "PROF_GR_ENGINE_ACTIVE": ("PROF_GR_ENGINE_UTIL_RATIO", 1),
    "PROF_PIPE_TENSOR_ACTIVE": ("PROF_TENSOR_UTIL_RATIO", 1),
    "PROF_DRAM_ACTIVE": ("PROF_DRAM_UTIL_RATIO", 1),
}


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
    assert names_in(NEWER)["DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL"].times == 10**6
    assert names_in(OLDER)["DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL"].name == "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"


def test_the_shell_versions_names_stay() -> None:
    assert "dcgm_gpu_temp" in FIELDS
    assert [name for name in names_in(NEWER) if not name.startswith("DCGM_")] == []


def test_labels_have_the_generations_names() -> None:
    driver, newer = "DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION"
    assert label_names_in(OLDER) == {"Hostname": ("hostname",), newer: (driver,)}
    assert label_names_in(NEWER) == {"Hostname": ("hostname",), driver: (newer,)}
    both = (driver, newer)
    assert label_names_in(OLDER, NEWER) == {"Hostname": ("hostname",), driver: both, newer: both}
