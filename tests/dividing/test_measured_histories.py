"""Random histories of a node whose shared GPUs are measured: pods, processes, shares, readings, and several readers.

Whatever happens, the rows of a page are the devices' values to the last printed digit, and no counter falls.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from exporter.exposition.families import unescape
from exporter.exposition.join import Joiner
from exporter.exposition.lines import SampleLine, read_line
from exporter.model.devices import Assignment, DeviceKey, Inventory, InventoryGpu, MigInstance, Owners
from exporter.model.driver import DriverReading, GpuProcess
from exporter.model.measured import HostProcesses, Measured, Process, ProcessPlace, Total
from exporter.model.pages import Page
from exporter.model.pods import Owner, PodInfo
from exporter.ownership.current import CurrentOwners
from exporter.ownership.labels import SPLIT, LabelPolicy
from exporter.usage.owner_use import measure
from exporter.usage.process_owners import containers_of_pods
from exporter.usage.sm_times import SmTimes

MIB = 2**20
ONE, TWO, CUT = (f"GPU-{digit * 8}-2222-3333-4444-555566667777" for digit in "123")
INSTANCES = ("7", "8")
SOURCE_OF = {ONE: "dcgm:one", TWO: "dcgm:other", CUT: "dcgm:other"}
INVENTORY = Inventory(
    gpus=(
        InventoryGpu(uuid=ONE),
        InventoryGpu(uuid=TWO),
        InventoryGpu(uuid=CUT, mig=tuple(MigInstance(uuid=f"MIG-{each}", instance_id=each) for each in INSTANCES)),
    )
)
DEVICES = (DeviceKey(uuid=ONE), DeviceKey(uuid=TWO), *(DeviceKey(uuid=CUT, instance=each) for each in INSTANCES))
# the device ids of shares that can be handed out, and one of a GPU that is held as a whole
IDS = (*(f"{gpu}::{share}" for gpu in (ONE, TWO) for share in range(3)), TWO, "MIG-7::0", "MIG-7::1", "MIG-8::0")
PODS = range(5)
NOBODYS, STRANGER = 5, 6  # a process in no container, and one in a pod that nobody knows
PREFIX = "DCGM_FI_DEV_"
ENERGY, POWER, USED, FREE = (
    PREFIX + name for name in ("TOTAL_ENERGY_CONSUMPTION", "POWER_USAGE", "FB_USED", "FB_FREE")
)
ACTIVE, BUSY = "DCGM_FI_PROF_SM_ACTIVE", PREFIX + "GPU_UTIL"
Values = dict[tuple[str, DeviceKey], Decimal]
Shown = dict[tuple[str, DeviceKey], dict[str, Decimal]]


def owner(number: int) -> Owner:
    return Owner(namespace="ml", pod=f"pod-{number}", container="main")


def place(number: int) -> ProcessPlace | None:
    uid = f"{number:08x}-0000-4000-8000-000000000000"
    return None if number == NOBODYS else ProcessPlace(container_id=f"{number:064x}", pod_uid=uid)


KNOWN = [
    containers_of_pods(
        PodInfo(
            namespace="ml",
            name=f"pod-{number}",
            uid=f"{number:08x}-0000-4000-8000-000000000000",
            labels={},
            container_ids={"main": f"containerd://{number:064x}"},
        )
        for number in PODS
    )
]


@dataclass
class Reader:
    """Somebody who scrapes these sources, with a join of its own."""

    sources: tuple[str, ...]
    joiner: Joiner


@dataclass
class World:
    """GPUs, who holds them, what runs on them, and the exporter in front of them."""

    random: Random
    at: float = 100.0
    held: frozenset[Assignment] = frozenset()
    values: Values = field(default_factory=dict)
    energy: dict[str, int] = field(default_factory=lambda: {ONE: 10**9, TWO: 1_234_567, CUT: 123_456_789})
    reading: DriverReading | None = None
    seen: HostProcesses | None = None
    pages: dict[str, list[tuple[Page, Values]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.policy = LabelPolicy(sharing=SPLIT)
        self.owners = CurrentOwners(self.policy)
        self.times = SmTimes()
        self.readers = [
            Reader(
                sources,
                Joiner(
                    read_subject=self.policy.read_subject,
                    is_owner_label=self.policy.is_owner_label,
                    wanted=lambda _: True,
                ),
            )
            for sources in (("dcgm:one", "dcgm:other"), ("dcgm:one",), ("dcgm:other",))
        ]

    def assign(self) -> None:
        holders = {device_id: self.random.choice((*PODS, None, None)) for device_id in IDS}
        if self.random.randrange(4):
            del holders[TWO]
        self.held = frozenset(
            Assignment(owner=owner(number), resource="nvidia.com/gpu", device_id=device_id)
            for device_id, number in holders.items()
            if number is not None
        )

    def read_driver(self) -> None:
        """Processes come and go; of some is not known how long they ran, or what memory they have."""
        random = self.random
        pids = {1000 + number * 10 + n: number for number in (*PODS, NOBODYS, STRANGER) for n in range(2)}
        odd = random.random() < 0.2
        processes = [
            GpuProcess(
                pid=pid,
                device=random.choice(DEVICES),
                memory_bytes=None if odd and not random.randrange(8) else random.choice((0, 3 * MIB, 10**9)),
                sm_ratio=None if odd and not random.randrange(8) else random.choice((0.0, 0.0, 0.1, 1 / 3, 1.0)),
                kinds=frozenset({"compute"}),
            )
            for pid, number in pids.items()
            if random.randrange(2) and (odd or number != STRANGER)
        ]
        self.reading = DriverReading(
            inventory=INVENTORY,
            processes=None if not random.randrange(12) else tuple(processes),
            unknown=frozenset({ONE}) if not random.randrange(12) else frozenset(),
            memory_used={device: random.choice((0, 10**9, 2 * 10**9)) for device in DEVICES if random.randrange(2)},
            read_at=self.at,
        )
        known = {pid: Process(pid=pid, started_at=1.0, place=place(number)) for pid, number in pids.items()}
        self.seen = HostProcesses(by_pid=known, asked_for=frozenset(known), read_at=self.at)
        self.measured(self.owners.owners)
        if not random.randrange(15):
            self.times.pause()

    def measured(self, owners: Owners) -> Measured | None:
        if self.reading is None or self.seen is None:
            return None
        totals = {device: Total(memory_bytes=used) for device, used in self.reading.memory_used.items()}
        return self.times.add(self.reading, measure(self.reading, self.seen, KNOWN, owners, totals))

    def read_page(self, source: str) -> None:
        random, lines = self.random, [""]
        for gpu in (ONE, TWO, CUT):
            self.energy[gpu] += random.choice((0, 1, 7, 123_456))
            if self.energy[gpu] > 10**8 and not random.randrange(20):
                self.energy[gpu] = random.choice((0, 5))  # the GPU starts anew
            watts = Decimal(random.randrange(10**8)).scaleb(-6)
            for device in (device for device in DEVICES if device.uuid == gpu):
                mine = {
                    ENERGY: Decimal(self.energy[gpu]),
                    POWER: watts,
                    USED: Decimal(random.randrange(5000)),
                    FREE: Decimal(random.randrange(5000)),
                    ACTIVE: Decimal(random.randrange(10**6)).scaleb(-6),
                    BUSY: Decimal(random.randrange(101)),
                }
                self.values |= {(family, device): value for family, value in mine.items()}
        for (family, device), value in self.values.items():
            if SOURCE_OF[device.uuid] == source:
                mig = f',GPU_I_ID="{device.instance}",GPU_I_PROFILE="1g.10gb"' if device.instance else ""
                lines.append(f'{family}{{gpu="0",UUID="{device.uuid}",modelName="H100"{mig}}} {value}\n')
        page = Page(source=source, body="".join(lines).encode(), read_at_seconds=0.0, moment=self.at)
        self.pages[source].append((page, dict(self.values)))

    def scrape(self, reader: Reader, pages: list[Page]) -> Shown:
        joined = reader.joiner.join_for(
            [page.body for page in pages],
            lambda subjects: self.owners.update(
                self.held, subjects, inventory=INVENTORY, pages=pages, of=reader.sources, measured=self.measured
            ),
        )
        shown: Shown = defaultdict(dict)
        for line in joined.body.split(b"\n"):
            sample = read_line(line)
            if isinstance(sample, SampleLine):
                labels = {name.decode(): unescape(text) for name, text in sample.labels}
                device = DeviceKey(uuid=labels["UUID"], instance=labels.get("GPU_I_ID", ""))
                rows, pod = shown[sample.name.decode(), device], labels["pod"]
                assert pod not in rows, "a series is there once"
                rows[pod] = Decimal(sample.value.decode())
        return shown


class Books:
    """What every counter's rows have shown so far."""

    def __init__(self) -> None:
        self._rows: dict[DeviceKey, dict[str, Decimal]] = defaultdict(dict)
        self._devices: dict[str, int] = {}
        self._newest: dict[str, float] = {}

    def add(self, shown: Shown, pages: list[tuple[Page, Values]]) -> None:
        """Check a scrape against the one before."""
        moments = [(page.moment, self._newest.get(page.source, -1.0)) for page, _ in pages]
        is_new = any(now > before for now, before in moments) and all(now >= before for now, before in moments)
        grown: dict[str, Decimal] = defaultdict(Decimal)
        for (family, device), rows in shown.items():
            if family != ENERGY:
                continue
            assert "" in rows
            for pod, value in rows.items():
                # whoever is new begins at 0
                by = value - self._rows[device].get(pod, Decimal(0))
                assert by >= 0, "a counter fell"
                grown[device.uuid] += by
                self._rows[device][pod] = value
        for gpu, by in grown.items():
            _, values = next(page for page in pages if page[0].source == SOURCE_OF[gpu])
            now = int(
                next(value for (family, device), value in values.items() if (family, device.uuid) == (ENERGY, gpu))
            )
            if not is_new:
                assert not by, "a page that was there before"
                continue
            before, self._devices[gpu] = self._devices.get(gpu), now
            expected = 0 if before is None else now - before if now >= before else now
            assert by == expected, "what a device drew is what its rows grew by"
        if is_new:
            self._newest |= {page.source: page.moment for page, _ in pages}


def check_gauges(shown: Shown, values: Values) -> set[str]:
    """The families whose rows were measured, on a page with these values."""
    measured = set()
    for device in {device for _, device in shown}:
        for family in (POWER, USED, FREE, ACTIVE, BUSY):
            rows, value = shown[family, device], values[family, device]
            if family == ACTIVE and "" not in rows:
                assert set(rows.values()) == {value}, "nobody divides it"
            elif family == BUSY:
                assert all(0 <= part <= 100 for part in rows.values())
            elif family != POWER or device.uuid != CUT:
                assert sum(rows.values()) == value, (family, rows)
            assert all(part >= 0 for part in rows.values())
            if "" in rows and len(rows) > 1:
                measured.add(family)
        assert ("" in shown[ACTIVE, device]) == ("" in shown[POWER, device])
        assert set(shown[FREE, device]) in ({""}, set(shown[USED, device]))
    if any(device.uuid == CUT for _, device in shown):
        watts = [
            part
            for (family, device), rows in shown.items()
            if (family, device.uuid) == (POWER, CUT)
            for part in rows.values()
        ]
        assert sum(watts) == values[POWER, DEVICES[-1]]
    return measured


# issue 10, "Must show" 3
@pytest.mark.history
@settings(deadline=None, max_examples=30, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(seed=st.integers(0, 2**32), steps=st.integers(5, 40))
def test_energy_activity_and_memory_are_conserved_and_no_counter_falls(seed: int, steps: int) -> None:
    random = Random(seed)
    world, books = World(random), Books()
    for _ in range(steps):
        world.at += random.choice((0.1, 1.0, 15.0))
        if not random.randrange(8):
            world.assign()
        if random.randrange(4):
            world.read_driver()
        for source in ("dcgm:one", "dcgm:other"):
            if random.randrange(4):
                world.read_page(source)
        for reader in random.sample(world.readers, random.randrange(4)):
            read = [world.pages[source] for source in reader.sources]
            if not all(read):
                continue
            # now and then a page that somebody has held for a while
            pages = [some[-1 - random.choice((0, 0, 0, min(1, len(some) - 1)))] for some in read]
            shown = world.scrape(reader, [page for page, _ in pages])
            for page, values in pages:
                of_page = {of: rows for of, rows in shown.items() if SOURCE_OF[of[1].uuid] == page.source}
                check_gauges(of_page, values)
            books.add(shown, pages)
