"""Rows with what each owner is measured to use, on joined pages."""

from collections.abc import Sequence

import pytest

from exporter.attribution.current import CurrentOwners
from exporter.attribution.labels import COPY, DEVICE, SPLIT, LabelPolicy
from exporter.exposition.join import Joiner
from exporter.model.devices import Assignment, DeviceKey, Inventory
from exporter.model.measured import Measured, Use
from exporter.model.pages import JoinedPage, Page, Subject
from exporter.model.pods import Owner

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


def measured(a: Use, b: Use) -> Measured:
    return Measured(uses={(GPU, A): a, (GPU, B): b, (OTHER_GPU, C): use(7, 0.07)})


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

    def look(self, read: Page, of: Measured | None) -> dict[tuple[str, str], str]:
        """The values that go out, by family and pod."""
        self.joined = self.joiner.join_for(
            [read.body],
            lambda subjects: self.owners.update(
                self.held, subjects, inventory=INVENTORY, pages=[read], measured=lambda _: of
            ),
        )
        return self.shown()

    def shown(self) -> dict[tuple[str, str], str]:
        assert self.joined is not None
        families = (
            b"DCGM_FI_DEV_FB_USED",
            b"DCGM_FI_DEV_GPU_UTIL",
            b"DCGM_FI_DEV_FB_USED_BYTES",
            b"DCGM_FI_DEV_GPU_UTIL_RATIO",
        )
        cells = [*self.joined.cells(frozenset(families))]
        values = {
            (cell.family.decode(), cell.row.owner.pod if cell.row.owner else ""): cell.value.decode() for cell in cells
        }
        assert len(values) == len(cells)
        samples = [line for line in self.joined.body.decode().splitlines() if not line.startswith("#")]
        written = sorted(line.rpartition(" ")[2] for line in samples if line.partition("{")[0].encode() in families)
        assert written == sorted(values.values())
        return values


MEMORY, BUSY = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_UTIL"
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
def test_where_an_owners_use_is_not_known_the_device_is_shown_as_without_it(
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
