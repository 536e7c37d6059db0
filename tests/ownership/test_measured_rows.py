"""Rows with what each owner is measured to use, on joined pages."""

from collections.abc import Sequence

import pytest

from exporter.exposition.join import Joiner
from exporter.model.devices import Assignment, DeviceKey, Inventory
from exporter.model.measured import Measured, Use
from exporter.model.pages import JoinedPage, Page, Subject
from exporter.model.pods import Owner
from exporter.ownership.current import CurrentOwners
from exporter.ownership.labels import COPY, DEVICE, SPLIT, LabelPolicy

A, B, C = (Owner(namespace="ml", pod=pod, container="main") for pod in "abc")
SHARED, ALONE = "GPU-11111111-2222-3333-4444-555566667777", "GPU-99999999-2222-3333-4444-555566667777"
GPU, OTHER_GPU = DeviceKey(uuid=SHARED), DeviceKey(uuid=ALONE)
MIB = 2**20
INVENTORY = Inventory()


def holds(owner: Owner, device_id: str) -> Assignment:
    return Assignment(owner=owner, resource="nvidia.com/gpu", device_id=device_id)


HELD = frozenset({holds(A, f"{SHARED}::0"), holds(B, f"{SHARED}::1"), holds(C, ALONE)})


def use(memory: int | None, sm: float | None) -> Use:
    return Use(memory_bytes=None if memory is None else memory * MIB, sm_ratio=sm, processes=1)


def measured(a: Use, b: Use, nobodys: Use | None = None, ran: Sequence[float] = ()) -> Measured:
    """`ran` are the seconds of A's kernels, of B's and of nobody's."""
    return Measured(
        uses={(GPU, A): a, (GPU, B): b, (OTHER_GPU, C): use(7, 0.07)},
        nobodys={GPU: nobodys} if nobodys else {},
        sm_ns={GPU: {of: round(seconds * 1e9) for of, seconds in zip((A, B, None), ran, strict=True)}} if ran else {},
    )


NOW = measured(use(300, 0.25), use(200, 0.5))
UNKNOWN = measured(use(None, None), use(200, 0.5))


def sample(family: str, value: str, uuid: str = SHARED, more: str = "") -> str:
    return f'{family}{{gpu="0",UUID="{uuid}",device="nvidia0",modelName="H100"{more}}} {value}\n'


def page(*lines: str, moment: float = 1.0) -> Page:
    return Page(source="dcgm", body="".join(lines).encode(), read_at_seconds=0.0, moment=moment)


class Node:
    """Joins one page after another, as a look at a node does."""

    def __init__(self, sharing: str, *, incoming_wins: bool = False) -> None:
        self.policy = LabelPolicy(sharing=sharing, incoming_wins=incoming_wins)
        self.owners = CurrentOwners(self.policy)
        self.joiner = Joiner(
            read_subject=self.policy.read_subject, is_owner_label=self.policy.is_owner_label, wanted=lambda _: True
        )
        self.joined: JoinedPage | None = None
        self.held = HELD

    def look(self, read: Page, of: Measured | None, *, is_cut: bool = False) -> dict[tuple[str, str], str]:
        """The values that go out, by family and pod; `is_cut`: and instance."""
        self.joined = self.joiner.join_for(
            [read.body],
            lambda subjects: self.owners.update(
                self.held, subjects, inventory=INVENTORY, pages=[read], measured=lambda _: of
            ),
        )
        return self.shown(is_cut=is_cut)

    def shown(self, *, is_cut: bool = False) -> dict[tuple[str, str], str]:
        assert self.joined is not None
        families = [family.encode() for family in (MEMORY, BUSY, POWER, ACTIVE, FREE, ENERGY)]
        families += [b"DCGM_FI_DEV_FB_USED_BYTES", b"DCGM_FI_DEV_GPU_UTIL_RATIO"]
        cells = [*self.joined.cells(frozenset(families))]
        values = {
            (
                cell.family.decode(),
                (cell.row.owner.pod if cell.row.owner else "") + is_cut * f" {cell.subject.instance}",
            ): cell.value.decode()
            for cell in cells
        }
        assert len(values) == len(cells)
        samples = [line for line in self.joined.body.decode().splitlines() if not line.startswith("#")]
        written = sorted(line.rpartition(" ")[2] for line in samples if line.partition("{")[0].encode() in families)
        assert written == sorted(values.values())
        return values


MEMORY, BUSY, FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_FREE"
POWER, ACTIVE, ENERGY = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
BOTH = (sample(MEMORY, "1000"), sample(BUSY, "80"))
OWN = {(MEMORY, "a"): "300", (MEMORY, "b"): "200", (MEMORY, ""): "500", (BUSY, "a"): "25", (BUSY, "b"): "50"}


# issue 10, B: measured sharing
@pytest.mark.parametrize("sharing", [COPY, SPLIT])
def test_each_owner_of_a_shared_device_has_its_own_value(sharing: str) -> None:
    assert Node(sharing).look(page(*BOTH), NOW) == OWN


def test_the_names_of_dcgm_4_9() -> None:
    shown = Node(COPY).look(page(sample(f"{MEMORY}_BYTES", str(1000 * MIB)), sample(f"{BUSY}_RATIO", "0.800000")), NOW)
    assert shown == {
        (f"{MEMORY}_BYTES", "a"): str(300 * MIB),
        (f"{MEMORY}_BYTES", "b"): str(200 * MIB),
        (f"{MEMORY}_BYTES", ""): str(500 * MIB),
        (f"{BUSY}_RATIO", "a"): "0.250000",
        (f"{BUSY}_RATIO", "b"): "0.500000",
    }


def test_a_device_that_nobody_shares_has_its_own_value() -> None:
    shown = Node(SPLIT).look(page(sample(MEMORY, "1000", ALONE), sample(BUSY, "80", ALONE)), NOW)
    assert shown == {(MEMORY, "c"): "1000", (BUSY, "c"): "80"}


def test_a_share_without_a_neighbour_has_what_it_uses() -> None:
    node = Node(COPY)
    node.held = frozenset({holds(A, f"{SHARED}::0")})
    alone = Measured(uses={(GPU, A): use(300, 0.25)})
    assert node.look(page(*BOTH), alone) == {(MEMORY, "a"): "300", (MEMORY, ""): "700", (BUSY, "a"): "25"}


@pytest.mark.parametrize(
    ("sharing", "shown"),
    [
        (COPY, {(MEMORY, "a"): "1000", (MEMORY, "b"): "1000", (BUSY, "a"): "80", (BUSY, "b"): "80"}),
        (SPLIT, {(MEMORY, "a"): "500", (MEMORY, "b"): "500", (BUSY, "a"): "80", (BUSY, "b"): "80"}),
        (DEVICE, {(MEMORY, ""): "1000", (BUSY, ""): "80"}),
    ],
)
def test_a_device_with_an_owner_of_unknown_use_is_shown_as_unmeasured(
    sharing: str, shown: dict[tuple[str, str], str]
) -> None:
    for of in (None, UNKNOWN, Measured(uses={(GPU, A): use(300, 0.25)}), Measured()):
        assert Node(sharing).look(page(*BOTH), of) == shown


def test_memory_may_be_known_where_utilisation_is_not() -> None:
    shown = Node(COPY).look(page(*BOTH), measured(use(300, None), use(200, 0.5)))
    assert shown == {
        **{of: value for of, value in OWN.items() if of[0] == MEMORY},
        (BUSY, "a"): "80",
        (BUSY, "b"): "80",
    }


def test_in_sharing_device_nothing_is_measured() -> None:
    assert Node(DEVICE).look(page(*BOTH), NOW) == {(MEMORY, ""): "1000", (BUSY, ""): "80"}


WORK = (sample(POWER, "300.00"), sample(ACTIVE, "0.600000"))


# issue 10, B: measured sharing
@pytest.mark.parametrize(
    ("of", "power", "active"),
    [
        (measured(use(1, 0.25), use(1, 0.5)), ("100.00", "200.00", "0.00"), ("0.200000", "0.400000", "0.000000")),
        # what processes of nobody did is on the row without owner
        (
            measured(use(1, 0.25), use(1, 0.5), use(1, 0.25)),
            ("75.00", "150.00", "75.00"),
            ("0.150000", "0.300000", "0.150000"),
        ),
        (measured(use(1, 0.0), use(1, 0.01)), ("0.00", "300.00", "0.00"), ("0.000000", "0.600000", "0.000000")),
        # nobody did anything: equal parts, as without measuring
        (measured(use(1, 0.0), use(1, 0.0)), ("150.00", "150.00", "0.00"), ("0.300000", "0.300000", "0.000000")),
        # memory alone is not known
        (measured(use(None, 0.25), use(1, 0.5)), ("100.00", "200.00", "0.00"), ("0.200000", "0.400000", "0.000000")),
        # unknown
        (measured(use(1, None), use(1, 0.5)), ("150.00", "150.00", None), ("0.600000", "0.600000", None)),
        (measured(use(1, 0.5), use(1, 0.5), use(1, None)), ("150.00", "150.00", None), ("0.600000", "0.600000", None)),
        (None, ("150.00", "150.00", None), ("0.600000", "0.600000", None)),
    ],
)
def test_power_and_activity_are_divided_by_the_time_of_kernels(
    of: Measured | None, power: tuple[str | None, ...], active: tuple[str | None, ...]
) -> None:
    shown = Node(SPLIT).look(page(*WORK), of)
    assert tuple(shown.get((POWER, pod)) for pod in ("a", "b", "")) == power
    assert tuple(shown.get((ACTIVE, pod)) for pod in ("a", "b", "")) == active
    copied = Node(COPY).look(page(*WORK), of)
    assert copied == {
        (POWER, "a"): "300.00",
        (POWER, "b"): "300.00",
        (ACTIVE, "a"): "0.600000",
        (ACTIVE, "b"): "0.600000",
    }


@pytest.mark.parametrize(
    ("sharing", "of", "shown"),
    [
        # every owner may take what is free
        (COPY, NOW, {(FREE, "a"): "700", (FREE, "b"): "700"}),
        # it is nobody's part of the device
        (SPLIT, NOW, {(FREE, ""): "700"}),
        (SPLIT, UNKNOWN, {(FREE, "a"): "350", (FREE, "b"): "350"}),
        (SPLIT, measured(use(1, None), use(1, None)), {(FREE, ""): "700"}),
        (DEVICE, NOW, {(FREE, ""): "700"}),
    ],
)
def test_free_memory(sharing: str, of: Measured, shown: dict[tuple[str, str], str]) -> None:
    assert Node(sharing).look(page(sample(FREE, "700")), of) == shown


def test_a_share_without_a_neighbour_shares_its_work_with_nobody() -> None:
    node = Node(SPLIT)
    node.held = frozenset({holds(A, f"{SHARED}::0")})
    alone = Measured(uses={(GPU, A): use(300, 0.25)}, nobodys={GPU: use(1, 0.5)})
    assert node.look(page(*WORK), alone) == {
        (POWER, "a"): "100.00",
        (POWER, ""): "200.00",
        (ACTIVE, "a"): "0.200000",
        (ACTIVE, ""): "0.400000",
    }


def test_a_counter_grows_by_the_time_of_kernels_since_it_last_grew() -> None:
    node = Node(SPLIT)
    a, b = use(1, 0.5), use(1, 0.5)
    reads: Sequence[tuple[str, Sequence[float], tuple[str, str, str]]] = (
        ("1000", (5, 7, 1), ("0", "0", "0")),
        ("1300", (6, 9, 1), ("100", "200", "0")),
        # dcgm-exporter reads it seldom: what ran meanwhile is not lost
        ("1300", (9, 9, 1), ("100", "200", "0")),
        ("1700", (9, 9, 2), ("400", "200", "100")),
        # what ran is not known at one end
        ("1800", (), ("450", "250", "100")),
        ("1900", (20, 9, 2), ("500", "300", "100")),
        ("2000", (20, 10, 2), ("500", "400", "100")),
        # nothing ran
        ("2011", (20, 10, 2), ("506", "405", "100")),
        # measured anew, from 0 on
        ("2111", (3, 11, 2), ("581", "430", "100")),
        # the device starts again
        ("10", (3, 11, 3), ("581", "430", "110")),
    )
    for moment, (energy, ran, shown) in enumerate(reads):
        of = measured(a, b, ran=ran)
        now = node.look(page(sample(ENERGY, energy), moment=float(moment)), of)
        assert tuple(now[ENERGY, pod] for pod in ("a", "b", "")) == shown
        # the same page is the same, whoever reads it, and whatever ran meanwhile
        again = node.look(page(sample(ENERGY, energy), moment=float(moment)), measured(a, b, ran=(99, 99, 99)))
        assert again == now


def test_an_owner_that_comes_has_no_part_of_what_was_before() -> None:
    node = Node(SPLIT)
    both, node.held = node.held, frozenset({holds(A, f"{SHARED}::0")})

    def alone(seconds: float) -> Measured:
        return Measured(uses={(GPU, A): use(1, 1.0)}, sm_ns={GPU: {A: round(seconds * 1e9), None: 0}})

    def look(energy: str, of: Measured, moment: float) -> tuple[str | None, ...]:
        shown = node.look(page(sample(ENERGY, energy), moment=moment), of)
        return tuple(shown.get((ENERGY, pod)) for pod in ("a", "b", ""))

    assert look("0", alone(1), 1) == ("0", None, "0")
    assert look("60", alone(2), 2) == ("60", None, "0")
    node.held = both
    assert look("60", measured(use(1, 1.0), use(1, 1.0), ran=(3, 40, 0)), 3) == ("60", "0", "0")
    assert look("90", measured(use(1, 1.0), use(1, 1.0), ran=(4, 41, 0)), 4) == ("80", "10", "0")
    # whoever comes while a page is shown
    node.held = frozenset({holds(A, f"{SHARED}::0")})
    assert look("100", alone(6), 5) == ("90", None, "0")
    node.held = both
    assert look("100", measured(use(1, 1.0), use(1, 1.0), ran=(6, 50, 0)), 5) == ("90", "10", "0")
    assert look("110", measured(use(1, 1.0), use(1, 1.0), ran=(7, 59, 0)), 6) == ("91", "19", "0")
    assert look("120", measured(use(1, 1.0), use(1, 1.0), ran=(8, 68, 0)), 7) == ("92", "28", "0")


def test_whoever_comes_while_a_page_is_shown_has_its_own_value_at_once() -> None:
    node = Node(COPY)
    both, node.held = node.held, frozenset({holds(A, f"{SHARED}::0")})
    alone = Measured(uses={(GPU, A): use(300, 0.25)})
    assert node.look(page(*BOTH), alone) == {(MEMORY, "a"): "300", (MEMORY, ""): "700", (BUSY, "a"): "25"}
    node.held = both
    assert node.look(page(*BOTH), NOW) == OWN


def test_a_gpu_that_nobody_shares_is_its_holders_whatever_runs_there() -> None:
    node = Node(SPLIT)
    for energy in ("100", "190"):
        of = Measured(
            uses={(OTHER_GPU, C): use(1, 0.1)},
            nobodys={OTHER_GPU: use(1, 0.9)},
            sm_ns={OTHER_GPU: {C: int(energy), None: 9 * int(energy)}},
        )
        shown = node.look(page(sample(ENERGY, energy, ALONE), sample(POWER, "70", ALONE), moment=float(energy)), of)
    assert shown == {(ENERGY, "c"): "90", (ENERGY, ""): "0", (POWER, "c"): "70"}


INSTANCE, OTHER_INSTANCE = DeviceKey(uuid=SHARED, instance="7"), DeviceKey(uuid=SHARED, instance="8")


# issue 10, B: measured sharing
def test_a_shared_mig_instance_divides_its_part_of_the_gpu() -> None:
    node = Node(SPLIT)
    node.held = frozenset(
        {holds(A, f"MIG-{SHARED}/7/0::0"), holds(B, f"MIG-{SHARED}/7/0::1"), holds(C, f"MIG-{SHARED}/8/0")}
    )

    def of(seconds: float) -> Measured:
        return Measured(
            uses={(INSTANCE, A): use(1, 0.1), (INSTANCE, B): use(1, 0.3), (OTHER_INSTANCE, C): use(1, None)},
            sm_ns={INSTANCE: {A: round(1e9 * seconds), B: round(3e9 * seconds), None: 0}},
        )

    for number in range(2):
        lines = [
            sample(family, value, more=f',GPU_I_ID="{instance}",GPU_I_PROFILE="1g.10gb"')
            for instance in "78"
            for family, value in ((ENERGY, str(800 * number)), (POWER, "80.0"))
        ]
        shown = node.look(page(*lines, moment=float(number)), of(number), is_cut=True)
    assert shown == {
        (ENERGY, "a 7"): "100", (ENERGY, "b 7"): "300", (ENERGY, " 7"): "0",
        (ENERGY, "c 8"): "400", (ENERGY, " 8"): "0",
        (POWER, "a 7"): "10.0", (POWER, "b 7"): "30.0", (POWER, " 7"): "0.0", (POWER, "c 8"): "40.0",
    }  # fmt: skip


def test_rows_of_virtual_gpus_win_over_every_measured_one() -> None:
    families = (MEMORY, BUSY, POWER, ACTIVE, ENERGY, FREE)
    of_pods = [
        sample(family, value, more=f',vgpu="{ord(pod)}",pod="{pod}",namespace="ml",container="main"')
        for family in families
        for pod, value in (("a", "111"), ("b", "222"))
    ]
    of_device = [sample(family, "1000") for family in families]
    for sharing in (COPY, SPLIT):
        node = Node(sharing)
        for moment in (1.0, 2.0):
            now = measured(use(300, 0.25), use(200, 0.5), use(1, 0.1), ran=(moment, moment, moment))
            shown = node.look(page(*of_device, *of_pods, moment=moment), now)
            assert shown == {
                (family, pod): value for family in families for pod, value in (("a", "111"), ("b", "222"), ("", "1000"))
            }


def test_rows_of_virtual_gpus_win() -> None:
    def of_pod(pod: str, value: str) -> str:
        return sample(MEMORY, value, more=f',vgpu="{ord(pod)}",pod="{pod}",namespace="ml",container="main"')

    shown = Node(COPY).look(
        page(sample(MEMORY, "1000"), of_pod("a", "111"), of_pod("b", "222"), sample(BUSY, "80")), NOW
    )
    assert shown == {
        (MEMORY, "a"): "111",
        (MEMORY, "b"): "222",
        (MEMORY, ""): "1000",
        (BUSY, "a"): "25",
        (BUSY, "b"): "50",
    }


def test_what_the_page_says_wins_where_that_is_asked_for() -> None:
    came = sample(MEMORY, "1000", more=',pod="x",namespace="ml",container="main"')
    assert Node(COPY, incoming_wins=True).look(page(came), NOW) == {(MEMORY, "x"): "1000"}
    assert Node(COPY).look(page(came), NOW) == {of: value for of, value in OWN.items() if of[0] == MEMORY}


def test_what_is_measured_moves_with_pages_and_rows_are_not_made_anew() -> None:
    node = Node(COPY)
    assert node.look(page(*BOTH), NOW) == OWN
    assert node.joined is not None
    rows, later = node.owners.attribution, measured(use(301, 0.26), use(199, 0.51))
    # the same page says the same
    node.owners.update(HELD, node.joined.subjects, inventory=INVENTORY, pages=[page(*BOTH)], measured=lambda _: later)
    assert node.shown() == OWN
    shown = node.look(page(*BOTH, moment=2.0), later)
    assert (shown[MEMORY, "a"], shown[MEMORY, "b"], shown[BUSY, "a"]) == ("301", "199", "26")
    assert node.look(page(*BOTH, moment=3.0), NOW) == OWN
    assert node.owners.attribution is rows


def test_rows_are_made_anew_where_it_is_known_of_others() -> None:
    node = Node(COPY)
    reads: Sequence[tuple[Measured | None, bool]] = (
        (None, False),
        (NOW, True),
        (UNKNOWN, False),
        (NOW, True),
        (None, False),
    )
    for number, (of, is_own) in enumerate(reads):
        shown = node.look(page(*BOTH, moment=float(number)), of)
        assert (shown == OWN) is is_own
        assert ((MEMORY, "") in shown) is is_own


def test_a_page_that_was_joined_before_can_still_be_read() -> None:
    node = Node(COPY)
    assert node.look(page(*BOTH), NOW) == OWN
    node.owners.update(HELD, dict[Subject, int](), inventory=INVENTORY, pages=[page(moment=2.0)], measured=None)
    assert node.shown() == OWN
