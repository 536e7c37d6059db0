"""The figures of a device and of its holders, from rows with the whole device's values, copies or parts of them."""

from collections.abc import Sequence

import pytest

from exporter.dividing.figures import (
    Figures,
    gigabytes_over_nvlink,
    is_older,
    of_cut_gpu,
    of_device,
    of_holder,
    repeated,
    total_of,
)
from exporter.model.device_row import DeviceRow, DeviceUser, Number, OwnUse, WholeDevice
from exporter.model.states import DeviceState

MIB = 2**20


def row(
    *,
    used: Number = None,
    free: Number = None,
    total: Number = None,
    watts: Number = None,
    engine: Number = None,
    percent: Number = None,
    own: OwnUse | None = None,
    whole: WholeDevice | None = None,
) -> DeviceRow:
    """A holder's row: MiB, W, GR_ENGINE_ACTIVE (0 to 1), GPU_UTIL (percent), its own use, the whole device's values."""
    return DeviceRow(
        pod="p",
        framebuffer_used=used,
        framebuffer_free=free,
        framebuffer_total=total,
        power_usage=watts,
        graphics_engine_active=engine,
        gpu_utilization=percent,
        measured=own,
        whole_device=whole,
    )


# --- a holder ---------------------------------------------------------------------------------------------------------


MEASURED = row(used=8_000, watts=300, engine=0.5, own=OwnUse(6_000 * MIB, 0.25))


def test_a_holder_of_a_shared_device_has_its_own_use_alone() -> None:
    assert of_holder(MEASURED, is_alone=False) == Figures(activity=0.25, memory_used_mib=6_000)
    assert of_holder(MEASURED._replace(measured=None), is_alone=False) == Figures()


def test_who_holds_a_device_alone_has_its_other_figures_too() -> None:
    assert of_holder(MEASURED, is_alone=True) == Figures(activity=0.25, memory_used_mib=6_000, power_watts=300)
    page_alone = of_holder(MEASURED._replace(measured=None), is_alone=True)
    assert page_alone == Figures(activity=0.5, memory_used_mib=8_000, power_watts=300)


def test_the_activity_in_percent() -> None:
    assert [Figures(activity=activity).utilization_percent for activity in (None, 0.0, 0.25)] == [None, 0, 25]


# --- a device ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "free", "total", "expected"),
    [
        (6_000, 2_000, 9_000, 9_000),
        pytest.param(6_000, 2_000, None, 8_000, id="a page without FB_TOTAL: what is used and what is free"),
        (6_000, None, None, None),
        (None, 2_000, None, None),
    ],
)
def test_the_memory_of_a_device(used: Number, free: Number, total: Number, expected: Number) -> None:
    assert of_device([row(used=used, free=free, total=total)]).memory_total_mib == expected


def test_a_mig_instance_shows_no_power_which_is_the_whole_gpus() -> None:
    instance = row(watts=300, used=1_000)._replace(entity="mig", temperature=60)
    assert of_device([instance]) == Figures(memory_used_mib=1_000, temperature_celsius=60)


HALVES = [row(watts=150, used=4_000), row(watts=150, used=4_000)]
OF_OWN = OwnUse(memory_used_bytes=1_000 * MIB)


@pytest.mark.parametrize(
    ("rows", "sharing", "watts", "used"),
    [
        pytest.param(HALVES, "split", 300, 8_000, id="split: the parts' sum"),
        pytest.param(HALVES, "copy", 150, 4_000, id="copied: one of them"),
        pytest.param(HALVES, "", None, None, id="equal parts and copies look alike"),
        pytest.param([row(watts=150, used=3_000), row(watts=100, used=4_000)], "", 250, 7_000, id="W differ: parts"),
        pytest.param(
            [row(watts=150, used=3_000, free=1), row(watts=150, used=4_000, free=2)], "", 300, 7_000, id="free differs"
        ),
        pytest.param([row(used=1_000, own=OF_OWN), row(used=4_000)], "copy", None, 4_000, id="measured, and a copy"),
        pytest.param(
            [row(used=1_000, watts=150, own=OF_OWN), row(used=2_000, watts=150, own=OF_OWN)],
            "copy",
            150,
            3_000,
            id="all measured: used memory is each owner's, power is not",
        ),
        pytest.param([row(watts=90, own=OF_OWN), row(watts=150)], "copy", 90, None, id="power is no owner's"),
        pytest.param(
            [row(watts=150, used=4_000, whole=WholeDevice(power_usage=310, framebuffer_used=9_000))] * 2,
            "split",
            310,
            9_000,
            id="the whole device's own",
        ),
        pytest.param(
            [row(watts=150, whole=WholeDevice(power_usage=0))] * 2,
            "split",
            0,
            None,
            id="the whole device draws nothing",
        ),
        pytest.param([row(watts=150, used=3_000), row()], "copy", 150, 3_000, id="a row lacks the values"),
        pytest.param([row()] * 2, "split", None, None, id="nothing is known"),
    ],
)
def test_power_and_used_memory_of_a_device(
    rows: Sequence[DeviceRow], sharing: str, watts: Number, used: Number
) -> None:
    figures = of_device(rows, sharing)
    assert (figures.power_watts, figures.memory_used_mib) == (watts, used)


@pytest.mark.parametrize(("sharing", "total"), [("split", 10_000), ("copy", 5_000), ("", None)])
def test_the_memory_of_a_device_with_two_holders_is_all_of_it(sharing: str, total: Number) -> None:
    parts = [row(used=4_000, free=1_000, own=OF_OWN)] * 2
    assert of_device([part._replace(framebuffer_total=5_000) for part in parts], sharing).memory_total_mib == total
    used_and_free = of_device(parts, sharing)
    assert used_and_free.memory_total_mib == {"split": 10_000, "copy": 9_000, "": None}[sharing]


IDLE = OwnUse(utilization_ratio=0.0)


@pytest.mark.parametrize(
    ("rows", "activity"),
    [
        pytest.param([row(engine=0.5, percent=90)] * 2, 0.5, id="all rows repeat GR_ENGINE_ACTIVE"),
        pytest.param([row(engine=0.25), row(engine=0.5)], None, id="parts by an unknown rule"),
        pytest.param(
            [row(engine=0.5, whole=WholeDevice(graphics_engine_active=0.75))] * 2, 0.75, id="the device's own"
        ),
        pytest.param([row(percent=10, whole=WholeDevice(gpu_utilization=80))] * 2, 0.8, id="its own GPU_UTIL"),
        pytest.param(
            [row(engine=0.5, whole=WholeDevice(gpu_utilization=80))] * 2, 0.5, id="GR_ENGINE_ACTIVE says more"
        ),
        pytest.param([row(engine=0.25, percent=60), row(engine=0.5, percent=60)], 0.6, id="parts of it, and GPU_UTIL"),
        pytest.param([row(percent=90, own=OF_OWN), row(percent=40)], 0.9, id="only memory is an owner's"),
        pytest.param([row(percent=60)] * 2, 0.6, id="GPU_UTIL, which no measurement divides"),
        pytest.param([row(percent=40), row(percent=60)], 0.6, id="copies that were read a moment apart"),
        pytest.param([row(percent=90, own=IDLE), row(percent=40)], 0.4, id="an owner's part, and the device's"),
        pytest.param([row(percent=30, own=IDLE), row(percent=40, own=IDLE)], 0.7, id="the owners' parts"),
        pytest.param([row(percent=70, own=IDLE), row(percent=60, own=IDLE)], 1.0, id="kernels at the same time"),
        pytest.param([row()] * 2, None, id="nothing is known"),
    ],
)
def test_the_activity_of_a_device_with_two_holders(rows: Sequence[DeviceRow], activity: Number) -> None:
    assert of_device(rows).activity == activity


# --- a GPU that is cut into MIG instances -----------------------------------------------------------------------------


def instance(watts: Number) -> DeviceRow:
    return row(watts=watts)._replace(entity="mig")


@pytest.mark.parametrize(
    ("own_used", "own_total", "instances", "used", "total"),
    [
        (700, 900, [(100, 400), (200, 400)], 700, 900),
        pytest.param(700, None, [(100, 400), (200, 400)], 300, 800, id="the GPU's and the instances' are not mixed"),
        pytest.param(None, 900, [(100, 400), (200, 400)], 300, 800, id="nor here"),
        pytest.param(None, None, [(100, 400), (None, 400)], None, 800, id="an instance without"),
        pytest.param(None, 900, [], None, None, id="no instance"),
    ],
)
def test_the_memory_of_a_cut_gpu(
    own_used: Number, own_total: Number, instances: Sequence[tuple[Number, Number]], used: Number, total: Number
) -> None:
    of_instances = [Figures(memory_used_mib=of_used, memory_total_mib=of_total) for of_used, of_total in instances]
    figures = of_cut_gpu(row(used=own_used, total=own_total), [], of_instances)
    assert (figures.memory_used_mib, figures.memory_total_mib) == (used, total)


@pytest.mark.parametrize(
    ("own", "instances", "watts"),
    [
        (310, [300, 300], 310),
        pytest.param(None, [300, 302], 302, id="repeated, read a moment apart"),
        pytest.param(None, [100, 200], 300, id="parts"),
        pytest.param(None, [None, None], None, id="nothing is known"),
    ],
)
def test_the_power_of_a_cut_gpu(own: Number, instances: Sequence[Number], watts: Number) -> None:
    assert of_cut_gpu(row(watts=own), [instance(number) for number in instances], []).power_watts == watts


def test_a_cut_gpu_is_as_hot_as_its_hottest_sensor() -> None:
    of_instances = [Figures(temperature_celsius=degrees) for degrees in (61, None, 58)]
    assert of_cut_gpu(None, [], of_instances).temperature_celsius == 61
    assert of_cut_gpu(row()._replace(temperature=64), [], of_instances).temperature_celsius == 64
    assert of_cut_gpu(None, [], []) == Figures()


def test_a_cut_gpu_is_as_active_as_its_own_row_says() -> None:
    of_instances = [Figures(activity=0.25)]
    assert of_cut_gpu(row(engine=0.75), [], of_instances).activity == 0.75
    assert of_cut_gpu(None, [], of_instances).activity is None


# --- NVLink, sums, copies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "received", "entity", "gigabytes"),
    [
        (3e9, 0.5e9, "gpu", 3.5),
        (0, 0, "gpu", 0),
        (None, 0.5e9, "gpu", None),
        (3e9, None, "gpu", None),
        pytest.param(3e9, 0.5e9, "mig", None, id="a MIG instance repeats the GPU's"),
    ],
)
def test_gigabytes_over_nvlink(sent: Number, received: Number, entity: str, gigabytes: Number) -> None:
    of_row = DeviceRow(entity=entity, nvlink_tx_bytes=sent, nvlink_rx_bytes=received)
    assert gigabytes_over_nvlink([of_row] * 2) == gigabytes
    assert gigabytes_over_nvlink([of_row]) == gigabytes


@pytest.mark.parametrize(("values", "expected"), [([5], 5), ([5, 5], 5), ([5, None], 5), ([5, 6], None), ([], None)])
def test_a_value_that_all_rows_repeat(values: Sequence[Number], expected: Number) -> None:
    assert repeated([row(watts=value) for value in values], "power_usage") == expected


@pytest.mark.parametrize(("values", "total"), [([1, 2], 3), ([0], 0), ([], None), ([1, None], None), ([None], None)])
def test_a_total_is_known_if_every_value_is(values: Sequence[Number], total: Number) -> None:
    assert total_of(values) == total


# --- a page that is older than the state ------------------------------------------------------------------------------


def held(ratios: Sequence[Number], page: Number, state: DeviceState) -> list[DeviceRow]:
    """A row for each holder: its own measured activity, and the page's of the device."""
    return [row(engine=page, own=OwnUse(processes=1, utilization_ratio=own))._replace(state=state) for own in ratios]


@pytest.mark.parametrize(
    ("ratios", "page", "state", "expected"),
    [
        pytest.param([0.5, 0.0], 0.04, DeviceState.USED, True, id="used, and the page says idle"),
        ([0.5, 0.0], 0.05, DeviceState.USED, False),
        pytest.param([0.03, 0.01], 0.09, DeviceState.IDLE, True, id="idle, and 0.05 more on the page"),
        ([0.03, 0.01], 0.08, DeviceState.IDLE, False),
        ([0.03, 0.01], 0.9, DeviceState.HELD, False),
        pytest.param([0.5, None], 0.01, DeviceState.USED, False, id="a holder is not measured"),
        pytest.param([0.5, 0.5], None, DeviceState.USED, False, id="no page"),
    ],
)
def test_a_page_older_than_the_state(
    ratios: Sequence[Number], page: Number, state: DeviceState, expected: bool
) -> None:
    rows = held(ratios, page, state)
    assert is_older(rows) is expected
    used_by_others = [rows[0]._replace(used_by=(DeviceUser(pod="other"),)), *rows[1:]]
    assert not is_older(used_by_others)


@pytest.mark.parametrize(
    ("page", "state", "expected"),
    [(0.01, DeviceState.USED, True), (0.5, DeviceState.USED, False), (0.5, DeviceState.IDLE, True)],
)
def test_a_page_older_than_the_state_of_a_device_with_one_holder(
    page: Number, state: DeviceState, expected: bool
) -> None:
    of_one = row(engine=page, own=OwnUse(processes=1, utilization_ratio=0.5))._replace(state=state)
    assert is_older([of_one]) is expected
