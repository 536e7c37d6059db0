"""Pages of 25 families, joined in each mode of `--sharing`: for 112 MIG instances, and for 8 GPUs of 4 owners each.

The GPUs are joined with and without measured use of their owners. Each page is new, and so are the measured values.
"""

from collections.abc import Callable
from itertools import count

from benchmarks import accounts
from benchmarks.join import new_joiner
from benchmarks.table import Row, median_seconds, rounds
from exporter.model.devices import Assignment, DeviceKey, Inventory, Owners
from exporter.model.measured import Measured, Use
from exporter.model.pages import Page
from exporter.model.pods import Owner
from exporter.ownership.current import CurrentOwners
from exporter.ownership.labels import COPY, SPLIT, LabelPolicy

GPUS, SHARES = range(8), range(4)
FAMILIES = (
    *(f"DCGM_FI_DEV_{name}" for name in ("TOTAL_ENERGY_CONSUMPTION", "POWER_USAGE", "GPU_UTIL", "FB_USED", "FB_FREE")),
    *(f"DCGM_FI_PROF_{name}_ACTIVE" for name in ("GR_ENGINE", "SM", "PIPE_TENSOR", "DRAM")),
    *(f"DCGM_FI_PROF_{name}_BYTES" for name in ("PCIE_TX", "PCIE_RX")),
    *(f"DCGM_FI_DEV_F{number}" for number in range(14)),
)
_PAGES = 10
_KEYS = {accounts.uuid_of(gpu): DeviceKey(uuid=accounts.uuid_of(gpu)) for gpu in GPUS}
_OWNERS = {
    uuid: tuple(Owner(namespace="team", pod=f"serve-{uuid[4:12]}-{share}", container="main") for share in SHARES)
    for uuid in _KEYS
}


def run(effort: float) -> list[Row]:
    policies = {"copy": COPY, "split": SPLIT}
    times = rounds(300, effort)
    found = []
    for name, sharing in policies.items():
        mig, shared = _joins(sharing, accounts.page, *_instances()), _joins(sharing, _page, Inventory(), _assignments())
        measured = _joins(sharing, _page, Inventory(), _assignments(), is_measured=True)
        for what, join in (
            ("112 MIG instances", mig),
            ("8 GPUs of 4 owners", shared),
            ("the same, measured", measured),
        ):
            ms = median_seconds(join, rounds=times) * 1e3
            found.append(Row(f"join with --sharing {name}, {what}", f"{ms:.2f} ms", None, ms))
    return found


def _joins(
    sharing: str,
    make: Callable[[int], bytes],
    inventory: Inventory,
    held: frozenset[Assignment],
    *,
    is_measured: bool = False,
) -> Callable[[], object]:
    """A function that joins the next page with each call, as a look does."""
    policy = LabelPolicy(sharing=sharing)
    joiner, owners = new_joiner(policy), CurrentOwners(policy)
    bodies = [make(look) for look in range(_PAGES)]
    readings = [_measured(number) for number in range(_PAGES)]
    moments = count()

    def join() -> object:
        moment = next(moments)
        body, reading = bodies[moment % _PAGES], readings[moment % _PAGES]
        page = Page(source="dcgm", body=body, read_at_seconds=0.0, moment=float(moment))

        def of(_: Owners) -> Measured:
            return reading

        return joiner.join_for(
            [body],
            lambda subjects: owners.update(
                held, subjects, inventory=inventory, pages=(page,), measured=of if is_measured else None
            ),
        )

    join()
    return join


def _instances() -> tuple[Inventory, frozenset[Assignment]]:
    inventory, held = accounts.held()
    return inventory, frozenset(held)


def _assignments() -> frozenset[Assignment]:
    return frozenset(
        Assignment(owner=owner, resource="nvidia.com/gpu.shared", device_id=f"{uuid}::{share}")
        for uuid, owners in _OWNERS.items()
        for share, owner in enumerate(owners)
    )


def _page(look: int) -> bytes:
    def value(family: str, gpu: int) -> str:
        return f"{123_456_789_012 + 3_000_000 * look + gpu}" if "ENERGY" in family else f"{look + gpu / 7:.6f}"

    return "".join(
        f'{family}{{gpu="{gpu}",UUID="{accounts.uuid_of(gpu)}",device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",'
        f'Hostname="n"}} {value(family, gpu)}\n'
        for family in FAMILIES
        for gpu in GPUS
    ).encode()


def _measured(look: int) -> Measured:
    of = [(uuid, number, owner) for uuid, owners in _OWNERS.items() for number, owner in enumerate(owners)]
    return Measured(
        uses={
            (_KEYS[uuid], owner): Use(memory_bytes=(look + number) * 10**9, sm_ratio=number / 10, processes=1)
            for uuid, number, owner in of
        },
        sm_ns={
            key: {owner: look * number * 10**9 for number, owner in enumerate((*_OWNERS[uuid], None))}
            for uuid, key in _KEYS.items()
        },
    )
