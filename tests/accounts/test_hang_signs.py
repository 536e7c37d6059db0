"""What a page says of a device whose kernels may only wait."""

import pytest

from exporter.accounts.hang_signs import DeviceSigns, SignsReader
from exporter.model.devices import DeviceKey
from exporter.model.slices import at_once
from tests.support.looks import GPU, Looks, row

VALUES = {
    "PROF_GR_ENGINE_ACTIVE": "0.5",
    "DEV_GPU_UTIL": "40",
    "DEV_POWER_USAGE": "300.5",
    "PROF_PIPE_TENSOR_ACTIVE": "0.125",
    "PROF_DRAM_ACTIVE": "0.25",
    "DEV_MEM_COPY_UTIL": "30",
    "PROF_PIPE_FP16_ACTIVE": "0.01",
    "PROF_PIPE_FP32_ACTIVE": "0.02",
    "PROF_PIPE_FP64_ACTIVE": "0.04",
    "PROF_PIPE_INT_ACTIVE": "0.03",
    "PROF_PCIE_TX_BYTES": "1",
    "PROF_PCIE_RX_BYTES": "2",
    "PROF_NVLINK_TX_BYTES": "4",
    "PROF_NVLINK_RX_BYTES": "8",
}
ALL = DeviceSigns(
    gr_engine=0.5, utilization=0.4, power=300.5, tensor=0.125, dram=0.25, copies=0.3, pipes=0.04, pcie=3, nvlink=12
)


def signs(**values: str) -> DeviceSigns:
    """Of a page with these fields."""
    page = 'DCGM_FI_DEV_SM_CLOCK{UUID="x"} 1\n' + "".join(row(f"DCGM_FI_{name}", of) for name, of in values.items())
    joined = Looks().snapshot(page).joined
    assert joined is not None
    return at_once(SignsReader().read(joined)).get(DeviceKey(uuid=GPU(0)), DeviceSigns())


def test_a_page_with_all_fields_tells_all_signs() -> None:
    assert signs(**VALUES) == ALL


@pytest.mark.parametrize("name", VALUES)
def test_a_page_with_one_field_tells_one_sign(name: str) -> None:
    one = signs(**{name: VALUES[name]})
    signs_there = [sign for sign in DeviceSigns.__slots__ if getattr(one, sign) is not None]
    assert len(signs_there) == 1
    if "BYTES" in name or "PIPE_FP" in name or "PIPE_INT" in name:
        assert getattr(one, signs_there[0]) == float(VALUES[name])
    else:
        assert getattr(one, signs_there[0]) == getattr(ALL, signs_there[0])


@pytest.mark.parametrize("value", ["0", "1"])
def test_a_profiling_counter_goes_before_the_drivers_utilisation(value: str) -> None:
    both = {"PROF_GR_ENGINE_ACTIVE": value, "PROF_DRAM_ACTIVE": value, "DEV_GPU_UTIL": "40", "DEV_MEM_COPY_UTIL": "30"}
    of_both = signs(**both)
    assert (of_both.activity, of_both.memory) == (float(value), float(value))
    of_driver = signs(DEV_GPU_UTIL="40", DEV_MEM_COPY_UTIL="30")
    assert (of_driver.activity, of_driver.memory) == (0.4, 0.3)
    assert (DeviceSigns().activity, DeviceSigns().memory) == (None, None)
