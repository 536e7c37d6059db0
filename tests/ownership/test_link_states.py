"""Links as they are: which are called down, the fabric, and what PCIe could be."""

import gc
import weakref
from collections.abc import Mapping, Sequence

import pytest

from exporter.model.devices import DeviceKey, Holder, Inventory, InventoryGpu, Owners
from exporter.model.driver import DriverReading
from exporter.model.gpu_links import Fabric, GpuLinks, PcieLink
from exporter.model.health import DeviceVerdict
from exporter.model.link_events import ERRORS_BEGAN, WENT_DOWN
from exporter.model.pages import JoinedPage
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.model.snapshot import Snapshot
from exporter.outputs.event_rows import event_rows, newest_event
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.link_health import LinkHealth
from exporter.ownership.sample_rows import Attribution
from exporter.ownership.verdicts import Verdicts
from tests.support.looks import GPU, Looks, owner, row

# as users know them
FABRIC_SECONDS = 300.0
LOAD_SECONDS = 120.0

NOW = 1_000_000.0
STATE = "DCGM_FI_DEV_NVLINK_GET_STATE"
WIDTH, MOST_LANES = "DCGM_FI_DEV_PCIE_LINK_WIDTH", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"
GENERATION, HIGHEST = "DCGM_FI_DEV_PCIE_LINK_GEN", "DCGM_FI_DEV_PCIE_MAX_LINK_GEN"
BUSY = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


class Node:
    """A node's looks at a page and at NVML."""

    def __init__(self) -> None:
        self.looks = Looks()
        self.verdicts = Verdicts()

    def look(
        self,
        rows: Sequence[str] = (),
        links: Mapping[int, GpuLinks] | None = None,
        at: float = 0.0,
        held: Mapping[DeviceKey, tuple[Holder, ...]] | None = None,
    ) -> Mapping[str, DeviceVerdict]:
        """The verdicts by number of the GPU, and of the instance if it is one."""
        page = ["".join(rows).encode()]
        joined = self.looks.joiner.join(page, Attribution(Owners(), LabelPolicy())) if rows else None
        by_nvml = {GPU(number): of_gpu for number, of_gpu in (links or {}).items()}
        inventory = Inventory(gpus=tuple(InventoryGpu(uuid=uuid) for uuid in by_nvml))
        reading = DriverReading(inventory=inventory, links=by_nvml, read_at=at) if links else None
        snapshot = Snapshot(
            node="n",
            owners=Owners(holders=held or {}),
            joined=joined,
            health={},
            assignments_age_seconds=0.0,
            page_sources=(),
            inventory=inventory,
        )
        verdicts = at_once(self.verdicts.look(snapshot, (), reading, NOW + at))
        numbers = {GPU(number): str(number) for number in range(9)}
        return {numbers[key.uuid] + key.instance: verdict for key, verdict in verdicts.items()}


def states(gpu: int, states_of_links: str, *, family: str = STATE) -> list[str]:
    """The rows of a GPU's links from link 0 on: `1` is up, `0` down, `2` asleep."""
    return [row(family, state, gpu, nvlink=str(link)) for link, state in enumerate(states_of_links)]


def texts(verdict: DeviceVerdict) -> list[str]:
    return [reason.message for reason in verdict.reasons]


@pytest.mark.parametrize("family", [STATE, "DCGM_FI_DEV_NVLINK_LINK_STATUS"])
def test_a_link_that_was_up_and_is_down_is_named_until_it_is_up_again(family: str) -> None:
    node = Node()
    assert texts(node.look(states(0, "1121", family=family))["0"]) == []
    down = node.look(states(0, "1021", family=family), at=30)["0"]
    assert (down.verdict, down.code) == ("degraded", "nvlink-down")
    assert texts(down) == ["link 1 of NVLink is down"]
    assert texts(node.look(states(0, "1000", family=family), at=60)["0"]) == ["links 1, 2 and 3 of NVLink are down"]
    assert node.look(states(0, "1112", family=family), at=90)["0"].verdict == "ok"


@pytest.mark.parametrize(
    ("gpus", "down"),
    [
        # from the first look on: as the others of the model are
        (("1111", "1111", "1101"), {"2": ["link 2 of NVLink is down"]}),
        # a pair of cards with fewer bridges than another pair, cards without a bridge, and nothing to compare with
        (("1111", "1111", "1100", "1100"), {}),
        (("1111", "1111", "0000"), {}),
        (("1100",), {}),
        # NVLink is switched off
        (("0000", "0000"), {}),
    ],
)
def test_a_link_that_is_born_down(gpus: Sequence[str], down: Mapping[str, list[str]]) -> None:
    rows = [line for number, of_gpu in enumerate(gpus) for line in states(number, of_gpu)]
    verdicts = Node().look(rows)
    assert {number: texts(verdict) for number, verdict in verdicts.items() if verdict.reasons} == down


def test_links_of_other_models_say_nothing_of_a_gpu_s() -> None:
    def links(gpu: int, of_gpu: str, model: str) -> list[str]:
        return [row(STATE, state, gpu, nvlink=str(link), model=model) for link, state in enumerate(of_gpu)]

    assert not any(map(texts, Node().look([*links(0, "110", "A"), *links(1, "111", "B")]).values()))
    assert not any(map(texts, Node().look([*links(0, "110", ""), *links(1, "111", "")]).values()))
    # its own past counts whatever the others are
    node = Node()
    node.look([*links(0, "111", "A"), *links(1, "110", "B")])
    down = node.look([*links(0, "011", "A"), *links(1, "110", "B")], at=30)
    assert (texts(down["0"]), texts(down["1"])) == (["link 0 of NVLink is down"], [])


def test_links_that_were_up_are_forgotten_with_a_gpu_that_is_cut() -> None:
    node = Node()
    other = [row(STATE, "1", 1, nvlink="0", model="B")]
    node.look([*states(0, "11"), *other])
    node.look([row(STATE, "1", 0, "7", "1g.10gb", nvlink="0"), *other], at=30)
    assert not any(map(texts, node.look([*states(0, "10"), *other], at=60).values()))


def test_many_links_that_are_down_are_the_first_and_a_number() -> None:
    node = Node()
    node.look(states(0, "1" * 12))
    assert texts(node.look(states(0, "100000100000"), at=30)["0"]) == [
        "links 1, 2, 3, 4, 5, 7 and 4 more of NVLink are down"
    ]


def test_a_state_without_a_link_s_number_says_nothing() -> None:
    node = Node()
    for at, state in ((0, "1"), (30, "0")):
        rows = [
            *states(0, "1"),
            row(STATE, state, nvlink="x"),
            row(STATE, state),
            row(STATE, state, nvlink="5", vgpu="7"),
        ]
        assert texts(node.look(rows, at=at)["0"]) == []


def test_no_link_is_down_once_nvlink_is_switched_off() -> None:
    node = Node()
    node.look([*states(0, "11"), *states(1, "11")])
    assert not any(map(texts, node.look([*states(0, "00"), *states(1, "00")], at=30).values()))
    # and then a link of one of them is no news
    assert not any(map(texts, node.look([*states(0, "10"), *states(1, "10")], at=60).values()))


def test_a_gpu_that_is_cut_uses_no_nvlink() -> None:
    node = Node()
    other = states(1, "11")
    node.look([*states(0, "11"), *other])
    cut = [row(STATE, "0", 0, "7", "1g.10gb", nvlink=link) for link in ("0", "1")]
    assert not any(map(texts, node.look([*cut, *other], at=30).values()))


def test_nvml_names_the_peer_of_a_link() -> None:
    node = Node()
    up = GpuLinks(states={"4": 1, "5": 1}, peers={"4": "the NVSwitch", "5": "GPU 1"})
    node.look(links={0: up})
    down = node.look(links={0: GpuLinks(states={"4": 1, "5": 0}, peers=up.peers)}, at=30)
    assert texts(down["0"]) == ["link 5 (to GPU 1) of NVLink is down"]


def test_errors_name_the_peer_that_nvml_knows() -> None:
    node = Node()
    links = {0: GpuLinks(states={"5": 1}, peers={"5": "GPU 1"})}
    family = "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L5"
    node.look([row(family, "7")], links)
    (text,) = texts(node.look([row(family, "207")], links, at=30)["0"])
    assert text == "errors of NVLink on link 5 (to GPU 1) within the last hour: 200 replays"


@pytest.mark.parametrize(
    ("family", "value", "verdict", "text"),
    [
        ("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "0", "ok", None),
        ("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "3", "ok", None),
        ("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "4", "failing", "it could not join NVLink's fabric"),
        ("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", "0", "ok", None),
        ("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", "1", "ok", None),
        ("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", "2", "degraded", "NVLink's fabric is not well"),
        ("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", "3", "degraded", "NVLink's fabric is not well: its capacity is limited"),
        # all that a mask can say is 2 for no, or 0 where the GPU cannot say it
        ("DCGM_FI_DEV_FABRIC_HEALTH_MASK", str(0b10_10_10_10 | 1 << 8), "ok", None),
        ("DCGM_FI_DEV_FABRIC_HEALTH_MASK", "0", "ok", None),
        ("DCGM_FI_DEV_FABRIC_HEALTH_MASK", "1", "degraded", "NVLink's fabric is not well: its bandwidth is lowered"),
        (
            "DCGM_FI_DEV_FABRIC_HEALTH_MASK",
            str(5 << 8 | 1 << 4),
            "degraded",
            "NVLink's fabric is not well: a route is not well and the GPU has too few NVLinks",
        ),
        ("DCGM_FI_DEV_FABRIC_HEALTH_MASK", "9223372036854775794", "ok", None),
        *(
            ("DCGM_FI_DEV_FABRIC_HEALTH_MASK", str(mask), "degraded", f"NVLink's fabric is not well: {text}")
            for mask, text in (
                (1 << 2, "a route recovers"),
                (1 << 4 | 3, "a route is not well"),
                (1 << 6, "accesses that timed out are being mended"),
                (2 << 8, "the system's GUID is wrong"),
                (3 << 8, "the serial number of the chassis is wrong"),
                (4 << 8, "the GPU is in no partition"),
                (6 << 8, "the GPU's firmware does not fit"),
                (7 << 8, "the GPU's place is wrong"),
                (8 << 8, "the GPU's state is wrong"),
                (1 << 12 | 8 << 8, "the GPU's state is wrong"),
            )
        ),
    ],
)
def test_what_a_page_says_of_the_fabric(family: str, value: str, verdict: str, text: str | None) -> None:
    judged = Node().look([row(family, value)])["0"]
    assert (judged.verdict, texts(judged)) == (verdict, [text] if text else [])


def test_a_fabric_that_starts_has_some_minutes() -> None:
    node = Node()
    rows = [row("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "2")]
    assert node.look(rows)["0"].verdict == "ok"
    assert node.look(rows, at=FABRIC_SECONDS - 1)["0"].verdict == "ok"
    assert node.look(rows, at=FABRIC_SECONDS)["0"].code == "fabric"
    assert node.look([row("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "3")], at=FABRIC_SECONDS + 30)["0"].verdict == "ok"


def test_a_mask_says_more_than_the_summary_of_the_fabric() -> None:
    summary = row("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", "3")
    judged = Node().look([summary, row("DCGM_FI_DEV_FABRIC_HEALTH_MASK", "1")])["0"]
    assert texts(judged) == ["NVLink's fabric is not well: its bandwidth is lowered"]


def test_a_fabric_that_never_starts_is_late_and_a_known_fault_wins() -> None:
    node = Node()
    rows = [row("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "1")]
    node.look(rows)
    assert texts(node.look(rows, at=FABRIC_SECONDS)["0"]) == ["it has not joined NVLink's fabric for minutes"]
    ill = [*rows, row("DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY", "2")]
    assert texts(node.look(ill, at=FABRIC_SECONDS + 30)["0"]) == ["NVLink's fabric is not well"]
    node.look([row("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "3")], at=FABRIC_SECONDS + 60)
    assert texts(node.look(rows, at=FABRIC_SECONDS + 90)["0"]) == [], "it starts again"


def test_nvml_alone_says_the_same_of_the_fabric() -> None:
    links = {0: GpuLinks(fabric=Fabric(manager=4)), 1: GpuLinks(fabric=Fabric(manager=3, summary=1))}
    verdicts = Node().look(links=links)
    assert {number: verdict.verdict for number, verdict in verdicts.items()} == {"0": "failing", "1": "ok"}


def test_the_errors_of_each_link_that_nvml_counts_stand_for_the_page_s_sum() -> None:
    node = Node()
    total = "DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY"
    node.look([row(total, "9")], {0: GpuLinks(counters={"replay/5": 9, "replay/6": 0})})
    # NVML's links are read once a minute, and the page comes sooner
    soon = node.look([row(total, "11")], {0: GpuLinks(counters={"replay/5": 9, "replay/6": 0})}, at=30)["0"]
    assert soon.verdict == "ok"
    later = node.look([row(total, "12")], {0: GpuLinks(counters={"replay/5": 12, "replay/6": 0})}, at=60)["0"]
    assert texts(later) == ["errors of NVLink on link 5 within the last hour: 3 replays"]


def test_a_card_that_was_born_narrow_is_noticed() -> None:
    judged = Node().look([row(WIDTH, "8"), row(MOST_LANES, "16")])["0"]
    assert (judged.verdict, judged.code) == ("degraded", "pcie-width")
    assert texts(judged) == ["its PCIe link has 8 lanes, of the 16 that card and slot can have"]
    # of a page without the limits NVML knows them
    by_nvml = Node().look([row(WIDTH, "8")], {0: GpuLinks(pcie=PcieLink(most_lanes=16))})["0"]
    assert texts(by_nvml) == texts(judged)


def test_a_slot_with_fewer_lanes_is_advice_and_no_fault() -> None:
    rows = [row(family, "8", 1) for family in (WIDTH, MOST_LANES)] + [
        row(family, "16") for family in (WIDTH, MOST_LANES)
    ]
    judged = Node().look(rows)
    assert {verdict.verdict for verdict in judged.values()} == {"ok"}
    (advice,) = judged["1"].advice
    assert advice.message == "its slot gives it 8 lanes of PCIe; another GPU of this model has 16"
    assert judged["0"].advice == ()
    # of other models, or of unknown ones, nothing follows
    for models in (("A", "B"), ("", "")):
        links = {
            number: row(MOST_LANES, lanes, number, model=models[number]) for number, lanes in enumerate(("8", "16"))
        }
        assert not any(verdict.advice for verdict in Node().look([*links.values()]).values())
    assert Node().look([row(MOST_LANES, "16"), row(WIDTH, "1", 1)])["1"].advice == ()


def test_a_slot_of_an_older_generation_is_advice_and_no_fault() -> None:
    links = {0: GpuLinks(pcie=PcieLink(generation=4, highest_generation=4, generation_of_card=5))}
    judged = Node().look(links=links)["0"]
    assert judged.verdict == "ok"
    assert [advice.message for advice in judged.advice] == ["its slot supports PCIe generation 4, and the card 5"]
    for pcie in (PcieLink(highest_generation=5, generation_of_card=5), PcieLink(generation_of_card=5), PcieLink()):
        assert Node().look(links={0: GpuLinks(pcie=pcie)})["0"].advice == ()


@pytest.mark.parametrize(
    ("activity", "generation", "code"),
    [
        ("0.9", "1", "pcie-generation"),
        ("0.1", "3", "pcie-generation"),
        ("0.09", "1", ""),
        ("0.9", "4", ""),
        ("0.9", "", ""),
        ("0.0", "1", ""),
        ("", "1", ""),
    ],
)
def test_a_low_generation_counts_under_load_alone(activity: str, generation: str, code: str) -> None:
    node = Node()
    rows = [
        row(family, value) for family, value in ((GENERATION, generation), (HIGHEST, "4"), (BUSY, activity)) if value
    ]
    for seconds in (0.0, LOAD_SECONDS - 1):
        assert node.look(rows, at=seconds)["0"].code == ""
    assert node.look(rows, at=LOAD_SECONDS)["0"].code == code


@pytest.mark.parametrize(("percent", "code"), [("10", "pcie-generation"), ("9", "")])
def test_a_gpu_is_busy_by_its_utilisation_too(percent: str, code: str) -> None:
    node = Node()
    rows = [row(GENERATION, "1"), row(HIGHEST, "4"), row("DCGM_FI_DEV_GPU_UTIL", percent), row(BUSY, "0.01")]
    node.look(rows)
    judged = node.look(rows, at=LOAD_SECONDS)["0"]
    assert judged.code == code
    if code:
        text = "under load its PCIe link stays below generation 4, which card and slot support"
        assert texts(judged) == [text]


def test_a_gpu_is_as_busy_as_its_busiest_instance() -> None:
    node = Node()
    rows = [row(GENERATION, "1"), row(HIGHEST, "4")]
    rows += [row(BUSY, value, 0, instance, "1g.10gb") for instance, value in (("7", "0.9"), ("8", "0.0"))]
    node.look(rows)
    assert node.look(rows, at=LOAD_SECONDS)["0"].code == "pcie-generation"


def test_a_gpu_that_wakes_up_has_time_to_raise_its_generation() -> None:
    node = Node()
    for number in range(20):
        is_busy = number % 3 > 0
        rows = [row(GENERATION, "1"), row(HIGHEST, "4"), row(BUSY, "0.9" if is_busy else "0.0")]
        assert node.look(rows, at=30.0 * number)["0"].code == ""


def test_a_page_that_is_away_leaves_its_last_word_for_a_while() -> None:
    node = Node()
    node.look([row(WIDTH, "8"), row(MOST_LANES, "16")])
    assert node.look(at=110)["0"].code == "pcie-width"
    assert node.look(at=120)["0"].code != "pcie-width"


def held_by(*pods: str) -> Mapping[DeviceKey, tuple[Holder, ...]]:
    holders = tuple(Holder(owner=owner(pod), resource="nvidia.com/gpu", shared=False) for pod in pods)
    return {DeviceKey(uuid=GPU(0)): holders}


@pytest.mark.parametrize(
    ("before", "now", "holders"),
    [("a", "a", (owner("a"),)), ("", "", ()), ("a", "b", None), ("ab", "ab", (owner("a"), owner("b")))],
)
def test_an_event_names_who_held_the_gpu_all_the_time(before: str, now: str, holders: tuple[Owner, ...] | None) -> None:
    node = Node()
    family = "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L5"
    node.look([*states(0, "11"), *states(1, "11"), row(family, "7")], held=held_by(*before))
    node.look([*states(0, "10"), *states(1, "11"), row(family, "9")], at=30, held=held_by(*now))
    node.look([*states(0, "10"), *states(1, "11"), row(family, "99")], at=60, held=held_by(*now))
    assert [
        (event.name, event.at_seconds, event.uuid, event.trouble.message) for event in node.verdicts.link_events
    ] == [
        (WENT_DOWN, NOW + 30, GPU(0), "link 1 of NVLink is down"),
        (ERRORS_BEGAN, NOW + 30, GPU(0), "errors of NVLink on link 5 within the last hour: 2 replays"),
    ]
    assert {event.holders for event in node.verdicts.link_events} == {holders}
    assert {event.index for event in node.verdicts.link_events} == {"0"}


def test_the_newest_events_of_links_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.ownership.verdicts.MOST_EVENTS", 3)
    node = Node()
    for number, of_gpu in enumerate(["111", "011", "001", "000", "011", "001"]):
        node.look([*states(0, of_gpu), *states(1, "111")], at=30.0 * number)
    assert [event.at_seconds - NOW for event in node.verdicts.link_events] == [150, 90, 60]


def test_errors_begin_again_after_an_hour_and_a_link_goes_down_again() -> None:
    node = Node()
    family = "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L5"
    for number, (state, replays) in enumerate([("11", "0"), ("10", "1"), ("11", "1"), ("10", "2")]):
        node.look([*states(0, state), *states(1, "11"), row(family, replays)], at=4000.0 * number)
    assert [event.name for event in node.verdicts.link_events] == [WENT_DOWN, ERRORS_BEGAN] * 2


def test_events_show_what_happened_to_links_without_the_kernel_s_log() -> None:
    node = Node()
    family = "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L5"
    node.look([row(family, "7")], held=held_by("a"))
    node.look([row(family, "9")], at=30, held=held_by("a"))
    snapshot = Snapshot(
        node="n",
        owners=Owners(),
        joined=None,
        health={},
        assignments_age_seconds=None,
        link_events=node.verdicts.link_events,
    )
    (shown,) = event_rows(snapshot) or ()
    assert (shown["kind"], shown["name"], shown["device_uuid"]) == ("nvlink", ERRORS_BEGAN, GPU(0))
    assert shown["holders"] == [{"namespace": "ns-a", "pod": "a", "container": "main"}]
    assert newest_event(snapshot) == f"{NOW + 30:.3f} nvlink 1"


def test_a_page_that_was_read_is_not_kept() -> None:
    """One of 112 MIG instances has megabytes."""
    page = JoinedPage(pieces=(), size=0, subjects={}, sample_count=0, rejected={})
    health = LinkHealth()
    at_once(health.read(page, None, NOW))
    at_once(health.read(page, None, NOW + 60))
    kept = weakref.ref(page)
    del page
    gc.collect()
    assert kept() is None
