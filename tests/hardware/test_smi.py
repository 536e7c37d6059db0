"""What is read of nvidia-smi's documents: the elements of three generations of drivers, with made-up values."""

import pytest

from tests.hardware.smi import FAMILIES, read_log

GPU = "GPU-00000000-1111-2222-3333-444455556666"


def document(inside: str) -> bytes:
    return (
        f"<?xml version='1.0' ?><nvidia_smi_log><driver_version>580.105.08</driver_version>"
        f"<gpu id='00000000:53:00.0'><uuid>{GPU}</uuid><minor_number>3</minor_number>{inside}</gpu></nvidia_smi_log>"
    ).encode()


@pytest.mark.parametrize(
    ("family", "inside", "value"),
    [
        ("GPU_TEMP", "<temperature><gpu_temp>41 C</gpu_temp></temperature>", 41),
        ("MEMORY_TEMP", "<temperature><memory_temp>N/A</memory_temp></temperature>", None),
        # 570 to 595: average and instant; T4 has no average
        (
            "POWER_USAGE",
            (
                "<gpu_power_readings><average_power_draw>70.01 W</average_power_draw>"
                "<instant_power_draw>75.00 W</instant_power_draw></gpu_power_readings>"
            ),
            70.01,
        ),
        (
            "POWER_USAGE",
            (
                "<gpu_power_readings><average_power_draw>N/A</average_power_draw>"
                "<instant_power_draw>33.51 W</instant_power_draw></gpu_power_readings>"
            ),
            33.51,
        ),
        # 535, and those before
        ("POWER_USAGE", "<gpu_power_readings><power_draw>12.5 W</power_draw></gpu_power_readings>", 12.5),
        ("POWER_USAGE", "<power_readings><power_draw>75.5 W</power_draw></power_readings>", 75.5),
        # the module's power, which is more than the GPU's, is none of it
        (
            "POWER_USAGE",
            "<module_power_readings><average_power_draw>488.29 W</average_power_draw></module_power_readings>",
            None,
        ),
        (
            "ENFORCED_POWER_LIMIT",
            "<gpu_power_readings><current_power_limit>700.00 W</current_power_limit></gpu_power_readings>",
            700,
        ),
        # the greatest clocks have elements of the same names
        ("SM_CLOCK", "<max_clocks><sm_clock>1980 MHz</sm_clock></max_clocks>", None),
        ("SM_CLOCK", "<clocks><sm_clock>345 MHz</sm_clock></clocks>", 345),
        ("FB_TOTAL", "<fb_memory_usage><total>81559 MiB</total></fb_memory_usage>", 81559),
        ("FB_USED", "<bar1_memory_usage><used>2 MiB</used></bar1_memory_usage>", None),
        (
            "ECC_DBE_VOL_TOTAL",
            (
                "<ecc_errors><volatile><sram_uncorrectable_parity>1</sram_uncorrectable_parity>"
                "<sram_uncorrectable_secded>2</sram_uncorrectable_secded><dram_uncorrectable>4</dram_uncorrectable>"
                "</volatile><aggregate><dram_uncorrectable>99</dram_uncorrectable></aggregate></ecc_errors>"
            ),
            7,
        ),
        (
            "ECC_SBE_VOL_TOTAL",
            (
                "<ecc_errors><volatile><sram_correctable>N/A</sram_correctable><dram_correctable>0</dram_correctable>"
                "</volatile></ecc_errors>"
            ),
            0,
        ),
        ("ECC_SBE_VOL_TOTAL", "<ecc_errors><volatile/></ecc_errors>", None),
        (
            "PCIE_LINK_WIDTH",
            (
                "<pci><pci_gpu_link_info><link_widths><max_link_width>16x</max_link_width>"
                "<current_link_width>8x</current_link_width></link_widths></pci_gpu_link_info></pci>"
            ),
            8,
        ),
        ("ROW_REMAP_PENDING", "<remapped_rows><remapped_row_pending>Yes</remapped_row_pending></remapped_rows>", 1),
        ("ROW_REMAP_FAILURE", "<remapped_rows>N/A</remapped_rows>", None),
        (
            "CLOCKS_EVENT_REASONS",
            (
                "<clocks_event_reasons><clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>"
                "<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>"
                "<clocks_event_reason_hw_power_brake_slowdown>Active</clocks_event_reason_hw_power_brake_slowdown>"
                "</clocks_event_reasons>"
            ),
            0x84,
        ),
        (
            "CLOCKS_EVENT_REASONS",
            (
                "<clocks_throttle_reasons><clocks_throttle_reason_gpu_idle>Active</clocks_throttle_reason_gpu_idle>"
                "</clocks_throttle_reasons>"
            ),
            1,
        ),
        ("CLOCKS_EVENT_REASONS", "<clocks_event_reasons>N/A</clocks_event_reasons>", None),
        (
            "POWER_VIOLATION",
            (
                "<clocks_event_reasons_counters><clocks_event_reasons_counters_sw_power_cap>12 us"
                "</clocks_event_reasons_counters_sw_power_cap></clocks_event_reasons_counters>"
            ),
            12_000,
        ),
    ],
)
def test_a_value_is_read_by_its_element_in_the_familys_unit(family: str, inside: str, value: float | None) -> None:
    assert read_log(document(inside)).gpus[GPU].values.get(f"DCGM_FI_DEV_{family}") == value


def test_what_nvidia_smi_does_not_say_is_no_value_and_never_0() -> None:
    gpu = read_log(document("<serial>N/A</serial>")).gpus[GPU]
    assert not gpu.values
    assert gpu.serial == ""
    assert gpu.labels["device"] == "nvidia3"
    assert gpu.labels["pci_bus_id"] == "00000000:53:00.0"


def test_a_gpu_that_is_lost_says_so_in_every_element() -> None:
    inside = "<fb_memory_usage><total>GPU is lost</total></fb_memory_usage><serial>GPU is lost</serial>"
    assert "DCGM_FI_DEV_FB_TOTAL" not in read_log(document(inside)).gpus[GPU].values


def test_processes_have_their_memory_by_pid() -> None:
    inside = """<processes><process_info><pid>42</pid><used_memory>4610 MiB</used_memory></process_info>
        <process_info><pid>43</pid><used_memory>N/A</used_memory></process_info></processes>"""
    assert read_log(document(inside)).gpus[GPU].memory_of == {42: 4610.0, 43: None}


@pytest.mark.parametrize("text", [b"", b"NVIDIA-SMI has failed", b"<nvidia_smi_log><gpu>"])
def test_what_is_no_document_is_refused_in_words(text: bytes) -> None:
    with pytest.raises(ValueError, match="no XML of nvidia-smi"):
        read_log(text)


def test_each_family_is_one_that_nvml_fills() -> None:
    from exporter.sources.nvml.nvml_page import FAMILIES as OF_NVML  # noqa: PLC0415 - the readers know no exporter

    assert FAMILIES.keys() <= OF_NVML.keys()
