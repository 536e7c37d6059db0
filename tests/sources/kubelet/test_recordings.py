"""The recorded answers of real kubelets (1.20.2 and 1.36.2), read by the parser and kept by the rules."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from exporter.errors import Malformed
from exporter.model.devices import Assignment, PodResources
from exporter.model.pods import Owner
from exporter.ownership.retention import GRACE_SECONDS, Retained, answered
from exporter.sources.kubelet.pod_resources import parse
from tests.support.places import DATA

RECORDINGS = DATA / "kubelet-1.20.2"
NAMES = sorted({path.name.partition(".")[0] for path in RECORDINGS.glob("*.pb")})


def read(name: str, version: str = "v1") -> bytes:
    return (RECORDINGS / f"{name}.{version}.pb").read_bytes()


def text_of(path: Path) -> dict[str, list[str]]:
    """Pods and their device ids, read from the text form beside a recording."""
    pods: dict[str, list[str]] = {}
    for block in path.read_text().split("pod_resources {")[1:]:
        names = re.findall(r'^ {2}name: "(.*)"', block, re.MULTILINE)
        pods[names[0]] = sorted(re.findall(r'device_ids: "(.*)"', block))
    return pods


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
@pytest.mark.parametrize("name", NAMES)
def test_a_recording_says_what_its_text_form_says(name: str, version: str) -> None:
    answer = parse(read(name, version), version)
    expected = text_of(RECORDINGS / f"{name}.{version}.txt")
    held: dict[str, list[str]] = {pod: [] for _, pod in answer.listed}
    for assignment in sorted(answer.assignments, key=lambda found: found.order):
        held[assignment.owner.pod].append(assignment.device_id)
    assert {pod: sorted(ids) for pod, ids in held.items()} == expected


def test_a_container_with_gpus_on_two_numa_nodes_has_all_of_them() -> None:
    answer = parse(read("four-gpus-two-numa-nodes"))
    assert {assignment.resource for assignment in answer.assignments} == {"nvidia.com/gpu"}
    assert len(answer.assignments) == 4
    assert len({assignment.owner for assignment in answer.assignments}) == 1


def test_two_containers_of_a_pod_have_their_own() -> None:
    owners = {assignment.owner: assignment.device_id for assignment in parse(read("init-and-crashing")).assignments}
    worker = Owner(namespace="ml", pod="two-containers-gpu-node-1", container="worker-a")
    assert owners[worker] == "GPU-2b399198-c670-a848-173b-d3400051a200"


def test_a_completed_pod_is_listed_and_holds_nothing() -> None:
    answer = parse(read("completed-pod-lingers"))
    assert {pod for _, pod in answer.listed} > {assignment.owner.pod for assignment in answer.assignments}


def test_no_owner_is_lost_over_the_recorded_restart() -> None:
    state = answered(Retained(), parse(read("after-restart")), now=0.0, reconnected=False)
    before = state.assignments
    for now, name in ((5.0, "empty"), (5.1, "restart-without-plugin")):
        state = answered(state, parse(read(name)), now=now, reconnected=name == "empty")
        assert state.assignments == before
    assert state.unlisted == {}


@pytest.mark.parametrize("body", [b"\xff\xff\xff", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\n\x02\n\xff"])
def test_garbage_is_no_answer(body: bytes) -> None:
    with pytest.raises(Malformed) as raised:
        parse(body)
    assert raised.value.reason == "garbage"


NEWER = DATA / "kubelet-1.36.2"
GLOBS = ("nvidia.com/*",)


def newer(name: str) -> PodResources:
    return parse((NEWER / f"{name}.pb").read_bytes(), resources=GLOBS, claims=True)


def pods_in(assignments: Iterable[Assignment]) -> set[str]:
    return {found.owner.pod for found in assignments}


# issue 7, line 42
def test_the_order_of_an_answer_makes_no_difference() -> None:
    before, started = (NEWER / "before.pb").read_bytes(), (NEWER / "started.pb").read_bytes()
    assert before != started
    assert parse(before, claims=True) == parse(started, claims=True)
    assert parse(before, resources=(), claims=True).outside == parse(started, resources=(), claims=True).outside


# issue 7, line 42
def test_no_owner_is_lost_over_the_recorded_restart_of_1_36() -> None:
    state = answered(Retained(), newer("before"), now=0.0, reconnected=True)
    held = state.assignments
    assert len(pods_in(held)) == 13
    for now, name in ((5.0, "starting-empty"), (5.8, "starting-partial"), (5.86, "started")):
        state = answered(state, newer(name), now=now, reconnected=name == "starting-empty")
        assert state.assignments is held
    assert state.unlisted == {}


# issue 7, line 8
# issue 7, line 42
def test_init_containers_hold_no_device_in_the_kubelets_answer() -> None:
    answer = newer("during-init")
    assert ("serving", "init-only") in answer.listed
    holding = {(found.owner.pod, found.owner.container) for found in answer.assignments}
    assert ("init-handover", "main") in holding
    assert {container for pod, container in holding if pod.startswith("init-")} == {"main"}
    assert "init-only" not in {pod for pod, _ in holding}


# issue 7, line 42
def test_only_pods_that_a_kubelet_rejects_lose_their_devices() -> None:
    state = answered(Retained(), newer("plugin-gone"), now=0.0, reconnected=True)
    held = pods_in(state.assignments)
    after = newer("plugin-gone-kubelet-restarted")
    state = answered(state, newer("starting-empty"), now=5.0, reconnected=True)
    state = answered(state, after, now=6.0, reconnected=False)
    assert pods_in(state.assignments) == held
    state = answered(state, after, now=6.0 + GRACE_SECONDS, reconnected=False)
    assert held - pods_in(state.assignments) == {"init-handover", "crash-loop"}


# issue 7, found beside line 12
def test_each_device_of_a_recorded_claim_has_its_own_cdi_name() -> None:
    """The kubelet lists with the second device the name of the first as well."""
    claims = {found.claim for found in newer("before").assignments if found.claim and found.owner.pod == "mig-pod"}
    assert len(claims) == 2
    for claim in claims:
        (name,) = claim.cdi_names
        assert name.endswith(claim.device)
