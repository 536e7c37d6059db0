"""What containers asked for in GPUs and what they use of them: gpu-manager's families, from any page and holders."""

import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from exporter.exposition.families import render
from exporter.exposition.join import Joiner
from exporter.model.devices import CORES, MEMORY, Assignment, DeviceKey, Owners
from exporter.model.driver import GpuProcess
from exporter.model.measured import Measured, Unowned, Use
from exporter.model.snapshot import Snapshot
from exporter.outputs.families.family import filled
from exporter.outputs.families.gpu_manager import FAMILIES
from exporter.outputs.output import Look
from exporter.ownership.labels import LabelPolicy
from tests.support.components import LINT, check
from tests.support.looks import GPU, Held, Looks, owner, row, whole
from tests.support.owners import build_owners
from tests.support.strategies import attribution_of, owner_states, pages

SHARED = "nvidia.com/gpu.shared"
USED, FREE, TOTAL, RESERVED, BUSY = (
    f"DCGM_FI_DEV_{name}" for name in ("FB_USED", "FB_FREE", "FB_TOTAL", "FB_RESERVED", "GPU_UTIL")
)
MIG = "MIG-{:08d}-1111-2222-3333-444455556666".format
_SAMPLE = re.compile(r"(\w+){(.*)} (\S+)")


def units(cores: int = 0, memory: int = 0, first: int = 0) -> list[tuple[str, str]]:
    """Ids of gpu-manager's."""
    return [
        *((CORES, f"{CORES}-{number}") for number in range(first, first + cores)),
        *((MEMORY, f"{MEMORY}-268435456-{number}") for number in range(first, first + memory)),
    ]


def text_of(snapshot: Snapshot) -> str:
    return render(filled(FAMILIES, Look(snapshot=snapshot))).decode()


def values(snapshot: Snapshot, pod: str = "a") -> dict[str, dict[str, float]]:
    """By family without its common part, and by the last label, of one pod."""
    found: dict[str, dict[str, float]] = {}
    for family, labels, value in _SAMPLE.findall(text_of(snapshot)):
        of = dict(pair.split("=") for pair in labels.replace('"', "").split(","))
        if of["pod_name"] == pod:
            assert list(of)[:4] == ["pod_name", "namespace", "node", "container_name"]
            assert (of["namespace"], of["node"], of["container_name"]) == (f"ns-{pod}", "n", "main")
            name = family.removeprefix("container_").replace("request_gpu", "asked").removeprefix("gpu_")
            found.setdefault(name, {})[list(of.values())[-1]] = float(value)
    return found


def page_of(*gpus: int, used: int = 1000, free: int = 3000, busy: int = 40) -> str:
    rows = ((USED, used), (FREE, free), (BUSY, busy))
    return "".join(row(family, str(value + gpu), gpu) for gpu in gpus for family, value in rows)


def test_the_names_and_labels_are_gpu_managers() -> None:
    """Facts from its pkg/services/display/display.go."""
    lines = text_of(Looks().snapshot(page_of(0), {"a": whole(0)})).splitlines()
    of = 'pod_name="a",namespace="ns-a",node="n",container_name="main"'
    assert [line for line in lines if not line.startswith("# HELP")] == [
        "# TYPE container_gpu_utilization gauge",
        f'container_gpu_utilization{{{of},gpu="gpu0"}} 40',
        f'container_gpu_utilization{{{of},gpu="total"}} 40',
        "# TYPE container_gpu_memory_total gauge",
        f'container_gpu_memory_total{{{of},gpu_memory="gpu0"}} 1000',
        f'container_gpu_memory_total{{{of},gpu_memory="total"}} 1000',
        "# TYPE container_request_gpu_utilization gauge",
        f'container_request_gpu_utilization{{{of},req_of_gpu="total"}} 1',
        "# TYPE container_request_gpu_memory gauge",
        f'container_request_gpu_memory{{{of},req_of_gpu_memory="total"}} 4000',
    ]


# issue 10, B: total is the sum
def test_of_several_gpus_each_is_a_card_and_the_total_is_their_sum() -> None:
    assert values(Looks().snapshot(page_of(0, 1, 10), {"a": whole(0, 10)})) == {
        "utilization": {"gpu0": 40, "gpu10": 50, "total": 90},
        "memory_total": {"gpu0": 1000, "gpu10": 1010, "total": 2010},
        "asked_utilization": {"total": 2},
        "asked_memory": {"total": 8020},
    }


def test_what_is_not_known_is_left_out_and_so_is_a_sum_with_it() -> None:
    page = page_of(0) + row(USED, "77", 1) + row(BUSY, "9223372036854775794", 1)
    assert values(Looks().snapshot(page, {"a": whole(0, 1)})) == {
        "utilization": {"gpu0": 40},
        "memory_total": {"gpu0": 1000, "gpu1": 77, "total": 1077},
        "asked_utilization": {"total": 2},
    }
    # without a page only the kubelet's word is left
    assert values(Looks().snapshot(None, {"a": whole(0, 1)})) == {"asked_utilization": {"total": 2}}


@pytest.mark.parametrize(
    ("page", "all_of_it"),
    [
        (row(USED, "10") + row(FREE, "70"), 80),
        (row(USED, "10") + row(FREE, "70") + row(RESERVED, "1"), 81),
        (row(USED, "10") + row(FREE, "70") + row(TOTAL, "82"), 82),
        (row("DCGM_FI_DEV_FB_USED_BYTES", str(10 * 2**20)) + row("DCGM_FI_DEV_FB_FREE_BYTES", str(7 * 2**20)), 17),
        (row("DCGM_FI_DEV_FB_CAPACITY_BYTES", "83886080"), 80),
        (row(TOTAL, "82") + row("DCGM_FI_DEV_FB_CAPACITY_BYTES", "9000000"), 82),  # the first of two names counts
        (row(FREE, "70"), None),
        (row(USED, "NaN") + row(FREE, "70"), None),
    ],
)
def test_all_memory_is_what_the_page_says_of_it(page: str, all_of_it: float | None) -> None:
    found = values(Looks().snapshot(page, {"a": whole(0)}))
    assert found.get("asked_memory", {}).get("total") == all_of_it


# issue 10, B: for shares of a GPU the fraction
def test_the_use_of_a_share_is_known_only_if_it_is_measured() -> None:
    looks = Looks(offered={(SHARED, DeviceKey(uuid=GPU(0))): 4})
    held: Held = {"a": [(SHARED, f"{GPU(0)}::0"), (SHARED, f"{GPU(0)}::1")], "b": [(SHARED, f"{GPU(0)}::2")]}
    seen = looks.snapshot(page_of(0), held)
    assert values(seen) == {"asked_utilization": {"total": 0.5}, "asked_memory": {"total": 2000}}
    assert values(seen, "b") == {"asked_utilization": {"total": 0.25}, "asked_memory": {"total": 1000}}
    # also while it has no neighbour: the next one may come at any time
    alone = looks.snapshot(page_of(0), {"a": held["a"]})
    assert "memory_total" not in values(alone)
    uses = {
        (DeviceKey(uuid=GPU(0)), owner("a")): Use(memory_bytes=3 * 2**29, sm_ratio=0.57, processes=2),
        (DeviceKey(uuid=GPU(0)), owner("b")): Use(memory_bytes=None, sm_ratio=0.0, processes=0),
    }
    measured = replace(seen, measured=Measured(uses=uses))
    assert values(measured)["utilization"] == {"gpu0": 57, "total": 57}
    assert values(measured)["memory_total"] == {"gpu0": 1536, "total": 1536}
    assert values(measured, "b")["utilization"] == {"gpu0": 0, "total": 0}
    assert "memory_total" not in values(measured, "b")


def test_a_mig_instance_is_its_part_of_a_card_and_has_no_utilisation() -> None:
    looks = Looks(mig={MIG(1): (0, "1", "3g.40gb"), MIG(2): (0, "2", "1g.10gb"), MIG(3): (1, "1", "1g.10gb")})
    page = "".join(
        row(family, value, gpu, instance, profile)
        for gpu, instance, profile in ((0, "1", "3g.40gb"), (0, "2", "1g.10gb"), (1, "1", "1g.10gb"))
        for family, value in ((USED, "10"), (FREE, "30"), (BUSY, "9"))
    )
    held: Held = {"a": [("nvidia.com/mig-3g.40gb", MIG(1)), ("nvidia.com/mig-1g.10gb", MIG(2))], "b": whole(1)}
    seen = looks.snapshot(page, held)
    assert values(seen) == {
        "memory_total": {"gpu0": 20, "total": 20},
        "asked_utilization": {"total": pytest.approx(4 / 7)},
        "asked_memory": {"total": 80},
    }
    # whoever holds a GPU that is cut holds its instances
    assert values(seen, "b")["memory_total"] == {"gpu1": 10, "total": 10}
    assert values(seen, "b")["asked_utilization"] == {"total": 1}
    # of a GPU that is held whole, the use is that of all its instances, or its own row
    assert values(looks.snapshot(page, {"c": whole(0)}), "c")["memory_total"] == {"gpu0": 20, "total": 20}
    own = looks.snapshot(page + row(USED, "25"), {"c": whole(0)})
    assert values(own, "c")["memory_total"] == {"gpu0": 25, "total": 25}
    # of an instance of no known GPU nobody can say what part it is
    assert "asked_utilization" not in values(Looks().snapshot(page, {"a": held["a"]}))


# issue 10, B: tencent.com/vcuda-core (100 a card) and vcuda-memory (256 MiB a unit)
@pytest.mark.parametrize(
    ("ids", "cards", "memory"),
    [
        (units(50, 30), 0.5, 30 * 256),
        (units(100), 1, 4000),  # whoever has whole cards has all of their memory
        (units(200), 2, 8000),
        (units(10), 0.1, None),
        (units(0, 4), 0, 1024),
    ],
)
def test_units_are_counted(ids: list[tuple[str, str]], cards: float, memory: float | None) -> None:
    held = {"a": ids}
    same = page_of(0) + page_of(1, used=999, free=2999)
    found = values(snapshot_in_units(same, held))
    assert found["asked_utilization"] == {"total": cards}
    assert found.get("asked_memory", {}).get("total") == memory
    assert "memory_total" not in found, "which card it uses nobody knows"


def test_of_cards_of_several_sizes_nobody_knows_which_one_it_is() -> None:
    assert "asked_memory" not in values(snapshot_in_units(page_of(0, 1), {"a": units(100)}))


def snapshot_in_units(page: str, held: Held) -> Snapshot:
    """As the kubelet's source reads it: all ids of a resource together."""
    seen = Looks().snapshot(page, {})
    assert seen.joined is not None
    ids = {
        pod: {resource: [of for name, of in of_pod if name == resource] for resource, _ in of_pod}
        for pod, of_pod in held.items()
    }
    assignments = [
        Assignment(owner=owner(pod), resource=resource, device_id=min(of), units=len(of))
        for pod, of_pod in ids.items()
        for resource, of in of_pod.items()
    ]
    return replace(seen, owners=build_owners(assignments, seen.joined.subjects))


def test_what_a_holder_of_units_uses_is_what_its_processes_use() -> None:
    seen = snapshot_in_units(page_of(0, 1), {"a": units(50, 30), "b": units(50, 30, first=50)})
    uses = {
        (DeviceKey(uuid=GPU(0)), owner("a")): Use(memory_bytes=2**29, sm_ratio=0.4, processes=2),
        (DeviceKey(uuid=GPU(1)), owner("a")): Use(memory_bytes=2**28, sm_ratio=0.2, processes=1),
    }
    measured = Measured(uses=uses)
    with_it = replace(seen, measured=measured)
    assert values(with_it)["memory_total"] == {"gpu0": 512, "gpu1": 256, "total": 768}
    assert values(with_it)["utilization"] == {"gpu0": 40, "gpu1": 20, "total": 60}
    # all processes are known, and none of them is its own
    assert values(with_it, "b")["memory_total"] == {"total": 0}
    device = DeviceKey(uuid=GPU(1))
    process = GpuProcess(pid=1, device=device, memory_bytes=1, sm_ratio=0.1, kinds=frozenset({"compute"}))
    nameless = Unowned(process=process, reason="unknown_container")
    for unknown in (
        replace(measured, unowned=(nameless,)),
        replace(measured, unread=frozenset({GPU(1)})),
        replace(measured, unexplained={device: "memory"}),
    ):
        there_may_be_more = replace(seen, measured=unknown)
        assert values(there_may_be_more)["memory_total"] == {"gpu0": 512, "gpu1": 256}
        assert "utilization" not in values(there_may_be_more, "b")
    its_own = replace(measured, unexplained={device: "kernels_of_processes"})
    assert values(replace(seen, measured=its_own), "b")["utilization"] == {"total": 0}
    elsewhere = Unowned(process=process, reason="no_container")
    assert values(replace(seen, measured=replace(measured, unowned=(elsewhere,))), "b")["utilization"] == {"total": 0}


def test_an_instance_that_the_page_has_as_a_gpu_is_still_an_instance() -> None:
    page = page_of(0).replace(GPU(0), MIG(1))
    of_cards = values(Looks().snapshot(page, {"a": [("nvidia.com/mig-1g.10gb", MIG(1))]}))
    assert of_cards == {"memory_total": {"gpu0": 1000, "total": 1000}, "asked_memory": {"total": 4000}}


def test_use_that_is_not_measured_is_the_pages() -> None:
    uses = {(DeviceKey(uuid=GPU(0)), owner("a")): Use(memory_bytes=None, sm_ratio=None, processes=1)}
    seen = replace(Looks().snapshot(page_of(0), {"a": whole(0)}), measured=Measured(uses=uses))
    assert values(seen)["memory_total"] == {"gpu0": 1000, "total": 1000}
    assert values(seen)["utilization"] == {"gpu0": 40, "total": 40}


def test_of_two_holders_of_a_gpu_the_page_tells_the_use_of_neither() -> None:
    seen = Looks().snapshot(page_of(0), {"a": whole(0)})
    (holder,) = seen.owners.holders[DeviceKey(uuid=GPU(0))]
    both = {DeviceKey(uuid=GPU(0)): (holder, replace(holder, owner=owner("b")))}
    two = values(replace(seen, owners=replace(seen.owners, holders=both)))
    assert not two.keys() & {"utilization", "memory_total"}


def test_two_gpus_of_one_index_are_one_series() -> None:
    page = page_of(0) + row(USED, "5", 1).replace('gpu="1"', 'gpu="0"')
    assert values(Looks().snapshot(page, {"a": whole(0, 1)}))["memory_total"] == {"gpu0": 1005, "total": 1005}


def test_a_row_of_a_virtual_gpu_is_not_the_devices() -> None:
    page = row(USED, "5", vgpu="1") + page_of(0)
    assert values(Looks().snapshot(page, {"a": whole(0)}))["memory_total"] == {"gpu0": 1000, "total": 1000}


def any_look(body: bytes, owners: Owners) -> Snapshot:
    policy = LabelPolicy()
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    return Snapshot(
        node="n",
        owners=owners,
        joined=joiner.join([body], attribution_of(owners, policy)),
        health={},
        assignments_age_seconds=0.0,
    )


@settings(max_examples=25, deadline=None)
@given(body=pages, owners=owner_states())
def test_any_page_makes_series_that_are_there_once_and_numbers(body: bytes, owners: Owners) -> None:
    lines = [line for line in text_of(any_look(body, owners)).split("\n") if line and not line.startswith("#")]
    series = Counter(line.rpartition(" ")[0] for line in lines)
    assert all(count == 1 for count in series.values())
    assert all(math.isfinite(float(line.rpartition(" ")[2])) for line in lines)
    holders = {holder.owner for held in owners.holders.values() for holder in held}
    assert len(lines) <= 4 * len(holders) + 2 * sum(len(held) for held in owners.holders.values())


@pytest.mark.real
def test_promtool_has_nothing_to_say_but_of_the_name(promtool: Path) -> None:
    looks = Looks(offered={(SHARED, DeviceKey(uuid=GPU(1))): 4})
    text = text_of(looks.snapshot(page_of(0, 1), {"a": whole(0), "b": [(SHARED, f"{GPU(1)}::0")]}))
    code, complaints = check(promtool, text.encode())
    assert code in (0, LINT)
    assert [line for line in complaints if not line.startswith("container_gpu_memory_total ")] == []
