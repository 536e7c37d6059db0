"""The work of accounts pauses after so many items, so that the exporter of a large node answers meanwhile."""

from collections.abc import Callable

import pytest

from exporter.accounts.cards import cards_by_owner
from exporter.accounts.device_values import FAMILIES_OF_DEVICES, DeviceValues
from exporter.accounts.entries import Entries
from exporter.accounts.holders import Holders
from exporter.accounts.holdings import gpus_of
from exporter.accounts.ledger import Ledger, Rules
from exporter.accounts.observation import ObservationReader
from exporter.model.devices import DeviceKey, Holder, Inventory, Owners
from exporter.model.pages import JoinedPage
from exporter.model.slices import Work
from tests.support.looks import Looks, energy, owner, row


def pauses(work: Work[object]) -> int:
    return sum(1 for _ in work)


def page(gpus: int) -> JoinedPage:
    text = "".join(energy("1", gpu) + row("DCGM_FI_DEV_FB_USED", "1", gpu) for gpu in range(gpus))
    joined = Looks().snapshot(text).joined
    assert joined is not None
    return joined


def of_values(gpus: int) -> int:
    return pauses(DeviceValues().read(page(gpus).readings(FAMILIES_OF_DEVICES)))


def of_samples(gpus: int) -> int:
    """Of a page with new series: to list them, to work out their meaning, and to read them."""
    return pauses(ObservationReader().read(page(gpus)))


def of_same_series(gpus: int) -> int:
    """To list them, and to read them."""
    reader, joined = ObservationReader(), page(gpus)
    pauses(reader.read(joined))
    return pauses(reader.read(joined))


def of_gpus(gpus: int) -> int:
    return pauses(gpus_of(Owners(), page(gpus).subjects, Inventory(), {}, {}))


def of_holders(gpus: int) -> int:
    """For the GPUs, and for their entries."""
    text = "".join(energy("1", gpu) for gpu in range(gpus))
    return pauses(Holders(Entries()).update(Looks().snapshot(text), 0))


def of_looks(gpus: int) -> int:
    """As for holders, and for the amounts."""
    text = "".join(energy("1", gpu) for gpu in range(gpus))
    return pauses(Ledger().work_for(Looks().snapshot(text), 0, Rules()))


def of_cards(gpus: int) -> int:
    """For the GPUs (ten of them, each of a hundred), for what is used, and for the containers."""
    holder = Holder(owner=owner("a"), resource="nvidia.com/gpu", shared=False)
    holders = {
        DeviceKey(uuid=f"GPU-{gpu}"): (Holder(owner=owner(f"{gpu}"), resource=holder.resource, shared=False),)
        for gpu in range(gpus)
    }
    return pauses(cards_by_owner(Owners(holders=holders), (), (), Inventory(), None, {}))


@pytest.mark.parametrize(
    ("of", "items", "more"),
    [
        (of_values, 1_000, 1),
        (of_samples, 1_000, 3),
        (of_same_series, 1_000, 2),
        (of_gpus, 100, 1),
        (of_gpus, 1_000, 2),
        (of_holders, 100, 2),
        (of_looks, 100, 3),
        (of_cards, 1_000, 3),
    ],
)
def test_work_pauses_once_for_so_many_items(of: Callable[[int], int], items: int, more: int) -> None:
    assert of(items) - of(items - 1) == more
    assert of(items - 1) == of(items - 2)


def test_holders_that_nothing_has_changed_for_take_no_work() -> None:
    looks, holders = Looks(), Holders(Entries())
    snapshot = looks.snapshot("".join(energy("1", gpu) for gpu in range(200)))
    assert pauses(holders.update(snapshot, 0)) > 0
    assert pauses(holders.update(snapshot, 10)) == 0
