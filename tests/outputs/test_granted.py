"""What an allocator granted, wherever it is read: JSON, the page, /debug/mapping, gpu-manager's families.

`top` and `kubectl gpu` are made of the same rows.
"""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from exporter.accounts.over_commitment import over_committed
from exporter.exposition.families import render
from exporter.kubectl import device_holders, why
from exporter.model.device_row import DeviceRow, as_object, from_object
from exporter.model.devices import Assignment, DeviceKey, Match, Owners
from exporter.model.grants import Grant, Word
from exporter.model.slices import at_once
from exporter.model.snapshot import Snapshot
from exporter.outputs import device_rows
from exporter.outputs.allocator_findings import of_allocators
from exporter.outputs.diagnosis import Diagnosis
from exporter.outputs.families.family import filled
from exporter.outputs.families.gpu_manager import FAMILIES
from exporter.outputs.mapping import debug
from exporter.outputs.output import Look
from exporter.outputs.page.device_table import devices_table
from exporter.outputs.page.view import PageView
from exporter.ownership.labels import SPLIT, LabelPolicy
from exporter.top.columns import UNICODE
from exporter.top.command import document
from exporter.top.screen import draw
from exporter.top.shown_devices import shown_of
from exporter.top.state import State
from tests.support.looks import GPU, Looks, owner, row
from tests.support.strategies import attribution_of

PAGE = row("DCGM_FI_DEV_FB_TOTAL", "81559") + row("DCGM_FI_DEV_FB_USED", "100")
GRANTS = {
    "a": Grant(allocator="HAMi", memory_mib=10_240, cores_percent=45),
    "b": Grant(allocator="KAI", fraction=0.5),
    "c": Grant(allocator="gpushare", memory_mib=512, cores_percent=0),
}


def seen(grants: dict[str, Grant]) -> Snapshot:
    looks = Looks(grants=grants)
    snapshot = looks.snapshot(PAGE, {pod: [("nvidia.com/gpu", f"{GPU(0)}::{pod}")] for pod in "abcd"})
    attribution = attribution_of(snapshot.owners, looks.policy)
    return replace(snapshot, joined=looks.joiner.join([PAGE.encode()], attribution), attribute=attribution)


def rows(grants: dict[str, Grant]) -> dict[str, DeviceRow]:
    return {of.pod: of for of in at_once(device_rows.rows(seen(grants)))}


# issue 24, part 5
def test_json_has_the_grant_and_nothing_of_those_without() -> None:
    objects = {pod: as_object(of) for pod, of in rows(GRANTS).items()}
    fields = ("allocator", "requested_memory_mib", "requested_cores_percent", "requested_fraction")
    assert {pod: {name: of[name] for name in fields if name in of} for pod, of in objects.items()} == {
        "a": {"allocator": "HAMi", "requested_memory_mib": 10_240, "requested_cores_percent": 45},
        "b": {"allocator": "KAI", "requested_fraction": 0.5},
        "c": {"allocator": "gpushare", "requested_memory_mib": 512},
        "d": {},
    }
    assert {pod: from_object(of).granted for pod, of in objects.items()} == {
        "a": "10 GiB, 45 %", "b": "50 %", "c": "512 MiB", "d": "",
    }  # fmt: skip


def test_the_page_top_and_kubectl_say_it_beside_the_holder() -> None:
    of_pods = [*rows(GRANTS).values()]
    table = "\n".join(at_once(devices_table(of_pods, PageView(fold="none"), with_node=False))[0])
    table = re.sub("</?bdi>", "", table)
    assert [*re.findall(r"ns-(\w)/<strong>\w</strong></a>(?: <small>([^<]*)</small>)?", table)] == [
        ("a", "10 GiB, 45 %"), ("b", "50 %"), ("c", "512 MiB"), ("d", ""),
    ]  # fmt: skip
    alone = "\n".join(at_once(devices_table(of_pods[:1], PageView(fold="none"), with_node=False))[0])
    assert "<dt>Granted</dt><dd><bdi>10 GiB, 45 %, by HAMi</bdi></dd>" in alone
    shown = shown_of("node", "u", {}, of_pods, "")
    lines = ["".join(span.text for span in line) for line in draw(shown, State(), 160, UNICODE).lines]
    assert any("GRANTED" in line for line in lines)
    assert any("10 GiB, 45 %" in line and "ns-a/a" in line for line in lines)
    owners = document(shown, State())["devices"][0]["owners"]
    assert [of["granted"] for of in owners] == ["10 GiB, 45 %", "50 %", "512 MiB", None]
    lines = device_holders.table(of_pods, of_pods).splitlines()
    assert "GRANTED" in lines[0]
    assert [re.search(r"10 GiB, 45 %|50 %|512 MiB|ok   -", line) is not None for line in lines[1:4]] == [True] * 3


def test_where_nothing_was_granted_nobody_sees_a_difference() -> None:
    of_pods = [*rows({}).values()]
    shown = shown_of("node", "u", {}, of_pods, "")
    screen = "".join(span.text for line in draw(shown, State(), 160, UNICODE).lines for span in line)
    table = "\n".join(at_once(devices_table(of_pods, PageView(fold="none"), with_node=False))[0])
    assert "GRANTED" not in f"{screen}{device_holders.table(of_pods, of_pods)}".upper()
    assert "granted" not in table.lower()


def pod(name: str) -> dict[str, Any]:
    containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    return {
        "metadata": {"namespace": f"ns-{name}", "name": name},
        "spec": {"nodeName": "n", "containers": containers},
        "status": {"phase": "Running"},
    }


def test_kubectl_gpu_why_says_what_the_allocator_gave() -> None:
    snapshot = seen({})
    key = DeviceKey(uuid=GPU(0))
    matches = [
        Match(
            assignment=Assignment(
                owner=owner(name), resource="nvidia.com/gpu", device_id=f"{GPU(1)}-{number}", word=Word(grant=grant)
            ),
            ref=None,
            key=None if name == "c" else key,
            samples=2,
        )
        for name, grant in GRANTS.items()
        for number in range(2)
    ]
    owners = Owners(holders=snapshot.owners.holders, matches=tuple(matches))
    about = debug(replace(snapshot, owners=owners)) | {"doctor": Diagnosis(summary="", findings=()).as_json()}
    answered = json.loads(json.dumps(about))
    messages = {name: [str(of.trouble.message) for of in why.explain(pod(name), answered).findings] for name in "abc"}
    assert messages == {"a": ["HAMi gave it 10 GiB and 45 % of GPU 0"], "b": ["KAI gave it 50 % of GPU 0"], "c": []}


def asked(grants: dict[str, Grant]) -> dict[str, tuple[float, float]]:
    """Cards and MiB by pod, as gpu-manager's families have them."""
    text = render(filled(FAMILIES, Look(snapshot=seen(grants)))).decode()
    cards, memory = (
        {of: float(value) for of, value in re.findall(rf'{family}{{pod_name="(\w)".*}} (\S+)', text)}
        for family in ("container_request_gpu_utilization", "container_request_gpu_memory")
    )
    return {of: (cards[of], memory[of]) for of in cards}


@pytest.mark.parametrize(
    ("grant", "cards", "memory"),
    [
        (Grant(allocator="HAMi", memory_mib=10_240, cores_percent=45), 0.45, 10_240),
        (Grant(allocator="HAMi", memory_mib=10_240, cores_percent=0), 10_240 / 81_559, 10_240),
        (Grant(allocator="KAI", fraction=0.5), 0.5, 81_559 / 2),
        (Grant(allocator="HAMi", memory_mib=2 * 81_559), 2, 2 * 81_559),
        (Grant(allocator="HAMi", cores_percent=100), 1, 81_559),
        (None, 0.25, 81_559 / 4),
    ],
)
def test_gpu_managers_families_have_what_was_granted(grant: Grant | None, cards: float, memory: float) -> None:
    assert asked({"a": grant} if grant else {})["a"] == pytest.approx((cards, memory))


# issue 24, part 5
def test_split_divides_by_grants_where_all_holders_have_one() -> None:
    page = row("DCGM_FI_DEV_POWER_USAGE", "300")
    for grants, parts in (
        (
            {"a": Grant(allocator="HAMi", memory_mib=3), "b": Grant(allocator="HAMi", memory_mib=1, cores_percent=9)},
            "225 75",
        ),
        ({"a": Grant(allocator="HAMi", memory_mib=3)}, "150 150"),
        ({}, "150 150"),
    ):
        looks = Looks(grants=grants, policy=LabelPolicy(sharing=SPLIT))
        held = {pod: [("nvidia.com/gpu", f"{GPU(0)}::{pod}")] for pod in "ab"}
        attribution = attribution_of(looks.snapshot(page, held).owners, looks.policy)
        body = looks.joiner.join([page.encode()], attribution).body.decode()
        assert " ".join(re.findall(r'pod="[ab]".*} (\S+)', body)) == parts


@pytest.mark.parametrize(
    ("page", "grants", "says"),
    [
        (
            PAGE,
            {"a": Grant(allocator="HAMi", memory_mib=60_000), "b": Grant(allocator="HAMi", memory_mib=40_000)},
            "123%",
        ),
        (PAGE, {"a": Grant(allocator="HAMi", memory_mib=60_000), "b": Grant(allocator="HAMi", memory_mib=21_559)}, ""),
        (PAGE, {"a": Grant(allocator="KAI", fraction=0.75), "b": Grant(allocator="KAI", fraction=0.75)}, "150%"),
        ("", {"a": Grant(allocator="HAMi", memory_mib=60_000), "b": Grant(allocator="HAMi", memory_mib=90_000)}, ""),
        (PAGE, {}, ""),
        (PAGE, {"a": Grant(allocator="KAI", fraction=0.55), "b": Grant(allocator="KAI", fraction=0.5)}, "105%"),
        (PAGE, {"a": Grant(allocator="KAI", fraction=0.54), "b": Grant(allocator="KAI", fraction=0.5)}, ""),
        (PAGE, {"a": Grant(allocator="KAI", fraction=1.5), "b": Grant(allocator="KAI")}, "150%"),
        (None, {"a": Grant(allocator="KAI", fraction=1.5)}, "150%"),
    ],
)
def test_doctor_says_which_gpu_is_over_committed(page: str | None, grants: dict[str, Grant], says: str) -> None:
    joined = None if page is None else Looks().snapshot(page or row("X", "1")).joined
    snapshot = replace(seen(grants), joined=joined)
    messages = [of.trouble.message for of in of_allocators(snapshot) if of.about == GPU(0)]
    expected = [f"the GPU is over-committed: its holders were granted {says} of it"] if says else []
    assert messages == expected


def test_an_instance_of_rounded_memory_is_not_over_committed() -> None:
    looks = Looks(mig={"MIG-1": (0, "1", "1g.5gb")}, grants={"a": Grant(allocator="HAMi", memory_mib=5120)})
    page = row("DCGM_FI_DEV_FB_TOTAL", "4600", instance="1", profile="1g.5gb")
    snapshot = looks.snapshot(page, {"a": [("nvidia.com/gpu", "MIG-1")]})
    assert over_committed(snapshot.owners, snapshot.joined) == {}
