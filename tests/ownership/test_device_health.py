"""How devices are that containers hold: the kubelet's word, and what its device plugins offer."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from exporter._gen import pods_pb2
from exporter.model.devices import (
    Allocatable,
    Assignment,
    Claim,
    DeviceHealth,
    DeviceKey,
    Match,
    Owners,
    SliceDevice,
)
from exporter.model.grants import Grant, Word
from exporter.model.pods import AllocatedDevice, Owner, PodInfo
from exporter.ownership.device_health import HealthWatch
from exporter.ownership.owners import Knowledge
from exporter.sources.kubelet import allocatable
from exporter.sources.kubelet.kubelet_pods import parse_pod
from exporter.sources.kubelet.pod_resources import parse
from exporter.sources.kubernetes.node_objects import read_pod
from tests.support.owners import build_owners

# as users know them
GRACE_SECONDS = 30.0
MOST_MESSAGE_CHARS = 512

DATA = Path(__file__).parent.parent / "data/device-health-1.36.2"
A = Owner(namespace="ml", pod="train-0", container="main")
B = Owner(namespace="ml", pod="train-1", container="main")
GPU = "nvidia.com/gpu"
HEALTHY = DeviceHealth(word="Healthy")
SICK = DeviceHealth(word="Unhealthy", message="Xid 79")
LEFT_OUT = "its device plugin no longer offers it"
Pods = dict[tuple[str, str], PodInfo]


def recorded_pod(step: str, source: str) -> PodInfo:
    if source == "kubelet":
        return parse_pod(pods_pb2.GetPodResponse.FromString((DATA / f"{step}.getpod.pb").read_bytes()).pod)
    return read_pod(json.loads((DATA / f"{step}.pod.json").read_text()))


def recorded(step: str, source: str) -> tuple[Owners, Pods, Allocatable]:
    answer, pod = parse((DATA / f"{step}.list.pb").read_bytes()), recorded_pod(step, source)
    offered = allocatable.parse((DATA / f"{step}.allocatable.pb").read_bytes(), ["*"])
    return build_owners(answer.assignments), {(pod.namespace, pod.name): pod}, offered


# issue 19, line 1
@pytest.mark.parametrize("source", ["kubelet", "kubernetes"])
@pytest.mark.parametrize(
    ("step", "third", "fourth"),
    [
        ("healthy", "Healthy", "Healthy"),
        ("unhealthy", "Unhealthy", "Healthy"),
        ("left-out", "Unknown", "Healthy"),
        ("plugin-dead", "Unknown", "Unknown"),
        ("restarted-unhealthy", "Unhealthy", "Healthy"),
    ],
)
def test_recorded_answers(step: str, third: str, fourth: str, source: str) -> None:
    watch, seen = HealthWatch(), recorded(step, source)
    watch.look(*seen, 0.0)
    words = {key.uuid[-1]: health.word for (key, _), health in watch.look(*seen, GRACE_SECONDS).items()}
    assert words == {"3": third, "4": fourth}
    without, owners, _, offered = HealthWatch(), *seen
    assert without.look(owners, {}, offered, 0.0) == {}
    without_pods = without.look(owners, {}, offered, GRACE_SECONDS).items()
    assert {key.uuid[-1] for (key, _), _ in without_pods} == {
        number for number, word in (("3", third), ("4", fourth)) if word != "Healthy"
    }
    assert all(health.word == "Unknown" for _, health in without_pods)
    assert all(health.message.startswith(LEFT_OUT) for _, health in without_pods)


# issue 19, line 1
@pytest.mark.parametrize("source", ["kubelet", "kubernetes"])
@pytest.mark.parametrize(
    ("step", "first", "second"),
    [
        ("claim-unhealthy", DeviceHealth(word="Unhealthy", message="uncorrectable ECC error (Xid 48)"), HEALTHY),
        ("claim-unknown", DeviceHealth(word="Unknown"), HEALTHY),
        ("claim-healthy", replace(HEALTHY, message="ok"), replace(HEALTHY, message="ok")),
    ],
)
def test_recorded_claims(step: str, first: DeviceHealth, second: DeviceHealth, source: str) -> None:
    slices = {
        ("gpu.example.com", "node-1", f"gpu-{number}"): SliceDevice(uuid=f"GPU-{number}", kind="gpu")
        for number in range(2)
    }
    answer = parse((DATA / f"{step}.list.pb").read_bytes(), claims=True)
    held = [assignment for assignment in answer.assignments if assignment.owner.pod == "dra-0"]
    pod = recorded_pod(step, source)
    healths = HealthWatch().look(
        build_owners(held, {}, Knowledge(slices=slices)), {(pod.namespace, pod.name): pod}, {}, 0.0
    )
    assert {key.uuid: health for (key, _), health in healths.items()} == {"GPU-0": first, "GPU-1": second}


def holding(*device_ids: str, owner: Owner = A) -> Owners:
    return build_owners([Assignment(owner=owner, resource=GPU, device_id=device_id) for device_id in device_ids])


def status(*devices: tuple[str, str, str], resource: str = GPU, owner: Owner = A) -> Pods:
    of_container = tuple(
        AllocatedDevice(resource=resource, device_id=device_id, health=health, message=message)
        for device_id, health, message in devices
    )
    pod = PodInfo(
        namespace=owner.namespace, name=owner.pod, uid="u", labels={}, allocated={owner.container: of_container}
    )
    return {(owner.namespace, owner.pod): pod}


def offering(*device_ids: str) -> Allocatable:
    return {GPU: dict.fromkeys(device_ids, 1)} if device_ids else {}


GPU_1 = DeviceKey(uuid="GPU-1")
WELL, ILL = status(("GPU-1", "Healthy", "")), status(("GPU-1", "Unhealthy", "Xid 79"))


def test_unhealthy_with_a_message_and_well_again() -> None:
    watch, owners = HealthWatch(), holding("GPU-1")
    assert watch.look(owners, WELL, offering("GPU-1"), 0.0) == {(GPU_1, A): HEALTHY}
    assert watch.look(owners, ILL, offering("GPU-1"), 1.0) == {(GPU_1, A): SICK}
    assert watch.look(owners, ILL, offering(), 500.0) == {(GPU_1, A): SICK}
    assert watch.look(owners, WELL, offering("GPU-1"), 501.0) == {(GPU_1, A): HEALTHY}


def test_the_devices_of_a_dead_plugin_are_unknown_after_a_while() -> None:
    watch, owners = HealthWatch(), holding("GPU-1")
    watch.look(owners, WELL, offering("GPU-1"), 0.0)
    nothing = offering()
    assert watch.look(owners, WELL, nothing, 10.0) == {(GPU_1, A): HEALTHY}
    assert watch.look(owners, WELL, nothing, 10.0 + GRACE_SECONDS - 0.1) == {(GPU_1, A): HEALTHY}
    unknown = {(GPU_1, A): DeviceHealth(word="Unknown", message=LEFT_OUT)}
    assert watch.look(owners, WELL, nothing, 10.0 + GRACE_SECONDS) == unknown
    assert watch.look(owners, WELL, nothing, 1e6) == unknown
    assert watch.look(owners, WELL, offering("GPU-1"), 1e6 + 1) == {(GPU_1, A): HEALTHY}


# issue 19, line 1
def test_a_kubelet_that_restarts_makes_no_unhealthy_device_healthy() -> None:
    """As measured: no plugin, then a plugin without the device, and for a second the word Healthy."""
    watch, owners = HealthWatch(), holding("GPU-1", "GPU-2")
    both = status(("GPU-1", "Unhealthy", "Xid 79"), ("GPU-2", "Healthy", ""))
    claimed_well = status(("GPU-1", "Healthy", ""), ("GPU-2", "Healthy", ""))
    before = watch.look(owners, both, offering("GPU-2"), 0.0)
    assert {key.uuid: health.word for (key, _), health in before.items()} == {"GPU-1": "Unhealthy", "GPU-2": "Healthy"}
    for at, (pods, offered) in enumerate(
        ((both, offering()), (claimed_well, offering()), (claimed_well, offering("GPU-2")), (both, offering("GPU-2")))
    ):
        assert watch.look(owners, pods, offered, 1.0 + at) == before


def test_of_several_shares_the_worst_counts_and_others_shares_do_not() -> None:
    owners = build_owners(
        [Assignment(owner=A, resource=GPU, device_id=f"GPU-1::{number}") for number in range(2)]
        + [Assignment(owner=B, resource=GPU, device_id="GPU-1::2")]
    )
    pods = status(("GPU-1::0", "Healthy", ""), ("GPU-1::1", "Unhealthy", "Xid 79"))
    pods |= status(("GPU-1::2", "Healthy", ""), owner=B)
    assert HealthWatch().look(owners, pods, None, 0.0) == {(GPU_1, A): SICK, (GPU_1, B): HEALTHY}


def test_a_claims_device_by_its_cdi_name_is_never_missed_on_offer() -> None:
    name = "k8s.gpu.nvidia.com/claim=c-GPU-01000100-0000-0000-0000-000000000001"
    claim = Claim(namespace="ml", name="gpu", driver="gpu.nvidia.com", pool="n", device="gpu-1", cdi_names=(name,))
    held = Assignment(owner=A, resource=claim.driver, device_id=claim.device_id, claim=claim)
    owners = build_owners([held])
    assert owners.matches[0].key is not None
    pods = status((name, "Unknown", ""), ("another", "Unhealthy", "not this one"), resource="claim:gpu/left")
    watch = HealthWatch()
    for at in (0.0, GRACE_SECONDS):
        assert {health.word for health in watch.look(owners, pods, offering(), at).values()} == {"Unknown"}


@pytest.mark.parametrize("pods", [{}, status(), status(("GPU-1", "", "")), status(("GPU-2", "Healthy", ""))])
def test_without_a_word_nothing_is_said(pods: Pods) -> None:
    assert HealthWatch().look(holding("GPU-1"), pods, offering("GPU-1"), 0.0) == {}
    assert HealthWatch().look(holding("GPU-1"), pods, None, 0.0) == {}


def test_a_word_that_is_not_known_is_unknown_and_nobody_keeps_what_is_gone() -> None:
    watch, owners = HealthWatch(), holding("GPU-1")
    assert watch.look(owners, status(("GPU-1", "Poorly", "hm")), None, 0.0) == {
        (GPU_1, A): DeviceHealth(word="Unknown", message="hm")
    }
    long = watch.look(owners, status(("GPU-1", "Unhealthy", "x" * 100_000)), None, 0.5)
    assert [len(health.message) for health in long.values()] == [MOST_MESSAGE_CHARS]
    healths = watch.look(owners, WELL, offering("GPU-1"), 1.0)
    assert watch.look(owners, WELL, offering("GPU-1"), 2.0) is healths, "equal values are the same object"
    assert watch.look(holding("GPU-1", owner=B), WELL, offering("GPU-1"), 3.0) == {}
    assert watch.look(replace(owners), {}, None, 4.0) == {}


def test_an_answer_counts_if_it_was_asked_for_after_the_last_change() -> None:
    watch, owners, nothing = HealthWatch(), holding("GPU-1"), offering()
    anew, others = status(("GPU-1", "Healthy", "")), holding("GPU-1")
    looks: Sequence[tuple[Owners, Pods, Allocatable, float, float | None]] = (
        (owners, WELL, nothing, 10.0, 10.0),
        (owners, WELL, nothing, 20.0, 10.0),
        (owners, WELL, offering("GPU-2"), 25.0, 10.0),
        (owners, anew, nothing, 30.0, 30.0),
        (others, anew, nothing, 40.0, 40.0),
        (others, anew, offering("GPU-1"), 50.0, None),
        # the kubelet calls it unhealthy
        (others, ILL, nothing, 60.0, None),
    )
    doubted = []
    for held, pods, offered, at, _ in looks:
        watch.look(held, pods, offered, at)
        doubted.append(watch.doubted_at)
    assert doubted == [at for *_, at in looks]


def test_a_device_without_a_word_that_nobody_offers_may_be_unhealthy() -> None:
    watch, owners, nothing = HealthWatch(), holding("GPU-1"), offering()
    assert watch.look(owners, {}, nothing, 0.0) == {}
    assert watch.look(owners, {}, nothing, GRACE_SECONDS - 0.1) == {}
    message = "its device plugin no longer offers it, or says that it is unhealthy"
    assert watch.look(owners, {}, nothing, GRACE_SECONDS) == {(GPU_1, A): DeviceHealth(word="Unknown", message=message)}


def test_each_device_has_its_own_time_without_an_offer() -> None:
    watch, owners = HealthWatch(), holding("GPU-1", "GPU-2")
    both = status(("GPU-1", "Healthy", ""), ("GPU-2", "Healthy", ""))
    one, none = offering("GPU-2"), offering()
    for at, offered in ((0.0, offering("GPU-1", "GPU-2")), (10.0, one), (20.0, none)):
        watch.look(owners, both, offered, at)

    def words(at: float) -> dict[str, str]:
        return {key.uuid: health.word for (key, _), health in watch.look(owners, both, none, at).items()}

    assert words(39.9) == {"GPU-1": "Healthy", "GPU-2": "Healthy"}
    assert words(40.0) == {"GPU-1": "Unknown", "GPU-2": "Healthy"}
    assert words(49.9) == {"GPU-1": "Unknown", "GPU-2": "Healthy"}
    assert words(50.0) == {"GPU-1": "Unknown", "GPU-2": "Unknown"}


def test_nothing_is_worked_out_again_while_nothing_changed() -> None:
    watch, owners, offered = HealthWatch(), holding("GPU-1"), offering("GPU-1")
    healths = watch.look(owners, WELL, offered, 0.0)
    assert watch.look(owners, WELL, offered, 1e9) is healths
    assert watch.look(replace(owners), dict(WELL), dict(offered), 1e9) is healths


def test_the_kubelet_s_word_on_a_token_is_not_on_its_device() -> None:
    token = Assignment(owner=A, resource=GPU, device_id="GPU-1", word=Word(grant=Grant(allocator="HAMi")))
    owners = build_owners([token])
    match = replace(owners.matches[0], key=GPU_1)
    held = Assignment(owner=B, resource=GPU, device_id="GPU-1")
    owners = replace(
        owners, matches=(match, replace(match, assignment=held), replace(match, assignment=held, key=None))
    )
    pods = {**ILL, **status(("GPU-1", "Healthy", ""), owner=B)}
    assert HealthWatch().look(owners, pods, None, 0.0) == {(GPU_1, B): HEALTHY}


def test_an_id_that_is_counted_is_on_offer_with_any_id_of_its_gpu() -> None:
    memory = "aliyun.com/gpu-mem"
    for of_offer, is_missing in (("GPU-1-_-9", False), ("GPU-2-_-3", True)):
        for resource, missing in ((memory, is_missing), (GPU, True)):
            held = Assignment(owner=A, resource=resource, device_id="GPU-1-_-3")
            match = Match(assignment=held, ref=None, key=GPU_1)
            watch = HealthWatch()
            watch.look(Owners(matches=(match,)), {}, {resource: {of_offer: 1}}, 0.0)
            assert (watch.doubted_at is not None) == missing
    other = Match(assignment=Assignment(owner=A, resource=GPU, device_id="GPU-1"), ref=None, key=GPU_1)
    watch = HealthWatch()
    watch.look(Owners(matches=(other, replace(other, key=None))), {}, {"another.com/gpu": {"GPU-1": 1}}, 0.0)
    assert watch.doubted_at == 0.0, "another resource has an id of that name"


def test_a_word_on_another_resource_s_id_is_not_its_own() -> None:
    assert HealthWatch().look(holding("GPU-1"), status(("GPU-1", "Unhealthy", ""), resource="x.com/y"), None, 0.0) == {}
    twice = status(("GPU-1", "Healthy", ""), ("GPU-1", "Unhealthy", "Xid 79"), ("GPU-1", "Unknown", ""))
    assert HealthWatch().look(holding("GPU-1"), twice, None, 0.0) == {(GPU_1, A): SICK}
    other = {key: replace(pod, allocated={"side": pod.allocated["main"]}) for key, pod in twice.items()}
    assert HealthWatch().look(holding("GPU-1"), other, None, 0.0) == {}
