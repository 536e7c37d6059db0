"""Which devices of a claim its containers asked for, as long as somebody knew it."""

from dataclasses import replace

import pytest

from exporter.model.devices import Assignment, Claim
from exporter.model.pods import AllocatedDevice, Owner, PodInfo
from exporter.ownership.requests import Requests

GENERATED, NAMED, OTHER = "pair-0-gpus-bcdfg", "two-requests", "pair-0-gpus-hjklm"
NAME = ("ml", "pair-0")


def listed(claim: str = GENERATED, uid: str = "claim-1") -> frozenset[Assignment]:
    """What the kubelet says: both containers have both devices of the claim."""
    return frozenset(
        Assignment(
            owner=Owner(namespace="ml", pod="pair-0", container=container),
            resource="gpu.nvidia.com",
            device_id=f"gpu.nvidia.com/n/{device}",
            claim=Claim(
                namespace="ml",
                name=claim,
                driver="gpu.nvidia.com",
                pool="n",
                device=device,
                cdi_names=(f"k8s.gpu.nvidia.com/claim={uid}-{device}",),
            ),
        )
        for container in ("main", "side")
        for device in ("gpu-0", "gpu-1")
    )


def pod(uid: str = "pod-1", claim_uid: str = "claim-1", *, says: bool = True) -> PodInfo:
    """Its containers' statuses say who got which; without `says` they do not yet."""
    got = {
        container: (AllocatedDevice(resource="claim:g", device_id=f"k8s.gpu.nvidia.com/claim={claim_uid}-{device}"),)
        for container, device in (("main", "gpu-0"), ("side", "gpu-1"))
    }
    return PodInfo(namespace="ml", name="pair-0", uid=uid, labels={}, allocated=got if says else {})


def held(assignments: frozenset[Assignment]) -> dict[str, list[str]]:
    of: dict[str, list[str]] = {}
    for each in sorted(assignments, key=lambda each: each.order):
        of.setdefault(each.owner.container, []).append(each.device_id.rpartition("/")[2])
    return of


APART = {"main": ["gpu-0"], "side": ["gpu-1"]}
BOTH = {"main": ["gpu-0", "gpu-1"], "side": ["gpu-0", "gpu-1"]}


# issue 22, line 3
@pytest.mark.parametrize("claim", [GENERATED, NAMED])
@pytest.mark.parametrize(
    ("then", "says", "expected"),
    [
        pytest.param("the same", None, APART, id="nobody knows the pod"),
        pytest.param("the same", pod(says=False), APART, id="the pod's status is empty"),
        pytest.param("the same", pod(uid="pod-2", says=False), BOTH, id="another pod of the name"),
        pytest.param("another claim", None, BOTH, id="another claim, and nobody knows the pod"),
        pytest.param("made anew", None, BOTH, id="a claim made anew, and nobody knows the pod"),
        pytest.param("made anew", pod(uid="pod-2", claim_uid="claim-2"), APART, id="a new pod with a new claim"),
    ],
)
def test_what_was_known_of_a_claims_requests_stays(
    claim: str, then: str, says: PodInfo | None, expected: dict[str, list[str]]
) -> None:
    requests = Requests()
    assert held(requests.of_their_containers(listed(claim), {NAME: pod()})) == APART
    now = {
        "the same": listed(claim),
        "another claim": listed(OTHER, uid="claim-2"),
        "made anew": listed(claim, uid="claim-2"),
    }[then]
    for _ in range(3):
        assert held(requests.of_their_containers(now, {NAME: says} if says else {})) == expected


def test_only_claims_in_a_status_say_which_devices_a_container_got() -> None:
    names = {container: of[0] for container, of in pod().allocated.items()}
    of_plugin = AllocatedDevice(resource="nvidia.com/gpu", device_id=names["side"].device_id)
    mixed = replace(pod(), allocated={"main": (names["main"], of_plugin), "side": (names["side"],)})
    requests = Requests()
    assert held(requests.of_their_containers(listed(), {NAME: mixed})) == APART
    # a status that names a claim and not yet its device
    unnamed = {container: (replace(device, device_id=""),) for container, device in names.items()}
    assert held(requests.of_their_containers(listed(), {NAME: replace(pod(), allocated=unnamed)})) == APART


# issue 22, line 3
def test_what_was_known_is_gone_with_the_claim() -> None:
    requests = Requests()
    requests.of_their_containers(listed(NAMED), {NAME: pod()})
    assert not requests.of_their_containers(frozenset(), {})
    assert held(requests.of_their_containers(listed(NAMED), {})) == BOTH, "another pod may have the claim now"


# issue 22, line 3
def test_a_claim_of_which_nothing_was_known_is_held_by_all_its_containers() -> None:
    assert held(Requests().of_their_containers(listed(), {})) == BOTH
    both = {"main": pod().allocated["main"]}
    half = Requests().of_their_containers(listed(), {NAME: replace(pod(), allocated=both)})
    assert held(half) == {"main": ["gpu-0"], "side": ["gpu-0", "gpu-1"]}
