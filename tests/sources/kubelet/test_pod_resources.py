"""An answer of List: what is read of it, and what a huge one costs."""

import pytest

from exporter._gen import podresources_v1_pb2 as v1
from exporter.errors import Malformed
from exporter.model.devices import Assignment
from exporter.model.pods import Owner
from exporter.sources.kubelet import pod_resources
from exporter.sources.kubelet.pod_resources import MOST_ASSIGNMENTS, MOST_OUTSIDE, parse

GPU, OTHER = "nvidia.com/gpu", "example.com/gpu-mib"
GLOBS = ("nvidia.com/*",)


def answer(*entries: tuple[str, int], claims: int = 0, driver: str = "gpu.nvidia.com") -> bytes:
    """One container with an entry of so many ids of each of these resources, and a claim with so many devices."""
    claimed = [v1.ClaimResource(driver_name=driver, device_name=f"gpu-{number}") for number in range(claims)]
    container = v1.ContainerResources(
        name="main",
        devices=[
            v1.ContainerDevices(resource_name=resource, device_ids=[f"id-{number:07}" for number in range(count)])
            for resource, count in entries
        ],
        dynamic_resources=[v1.DynamicResource(claim_name="c", claim_namespace="ml", claim_resources=claimed)]
        * bool(claims),
    )
    pod = v1.PodResources(namespace="ml", name="train", containers=[container])
    body: bytes = v1.ListPodResourcesResponse(pod_resources=[pod]).SerializeToString()
    return body


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Assignment]:
    """Every Assignment that reading makes."""
    found: list[Assignment] = []

    def make(**parts: object) -> Assignment:
        found.append(Assignment(**parts))  # type: ignore[arg-type] # as they come
        return found[-1]

    monkeypatch.setattr(pod_resources, "Assignment", make)
    return found


# issue 7, line 41
@pytest.mark.parametrize(
    ("most", "one_more"),
    [
        (answer((GPU, MOST_ASSIGNMENTS)), answer((GPU, MOST_ASSIGNMENTS + 1))),
        (answer((GPU, 30_000), (GPU + ".shared", 20_000)), answer((GPU, 30_000), (GPU + ".shared", 20_001))),
        (answer((GPU, 49_000), claims=1_000), answer((GPU, 49_000), claims=1_001)),
    ],
)
def test_no_more_devices_than_the_bound_are_read(most: bytes, one_more: bytes) -> None:
    read = parse(most, resources=GLOBS, claims=True)
    assert len({(found.resource, found.device_id) for found in read.assignments}) == MOST_ASSIGNMENTS
    with pytest.raises(Malformed, match="at most 50000 are read") as raised:
        parse(one_more, resources=GLOBS, claims=True)
    assert raised.value.reason == "oversize"


# issue 7, line 41
def test_no_more_containers_than_the_bound_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pod = v1.PodResources(namespace="ml", name="many", containers=[v1.ContainerResources(name="no-device")] * 50)
    pod.containers.extend(
        v1.ContainerResources(name=f"c-{number}", devices=[v1.ContainerDevices(resource_name=OTHER)])
        for number in range(20)
    )
    body = v1.ListPodResourcesResponse(pod_resources=[pod]).SerializeToString()
    monkeypatch.setattr(pod_resources, "MOST_ASSIGNMENTS", 20)
    assert parse(body).assignments == frozenset()
    monkeypatch.setattr(pod_resources, "MOST_ASSIGNMENTS", 19)
    with pytest.raises(Malformed, match="more than 19 containers"):
        parse(body)


# issue 7, line 23
def test_ids_are_counted_before_anything_is_made_of_them(made: list[Assignment]) -> None:
    with pytest.raises(Malformed, match="200000 devices"):
        parse(answer((GPU, 200_000)), resources=GLOBS)
    assert made == []


# issue 7, line 23
def test_ids_of_other_resources_do_not_count(made: list[Assignment]) -> None:
    read = parse(answer((OTHER, 200_000), (GPU, 2)), resources=GLOBS)
    assert len(made) == MOST_OUTSIDE + 2
    assert len(read.assignments) == 2
    assert [found.device_id for found in read.outside] == [f"id-{number:07}" for number in range(MOST_OUTSIDE)]
    with_claims = parse(answer((OTHER, MOST_OUTSIDE - 1), claims=3, driver="dra.net"), resources=GLOBS, claims=True)
    assert [found.resource for found in with_claims.outside] == ["dra.net"] * 3 + [OTHER] * (MOST_OUTSIDE - 3)


# issue 18: a claim whose driver never prepares on the node
def test_a_claim_without_devices_is_kept_outside_by_its_name() -> None:
    response = v1.ListPodResourcesResponse.FromString(answer((GPU, 1), claims=1))
    del response.pod_resources[0].containers[0].dynamic_resources[0].claim_resources[:]
    read = parse(response.SerializeToString(), resources=GLOBS, claims=True)
    assert [found.device_id for found in read.assignments] == ["id-0000000"]
    ((name, driver),) = [(found.claim.name, found.claim.driver) for found in read.outside if found.claim]
    assert (name, driver) == ("c", "")


def test_a_pod_without_a_name_holds_nothing() -> None:
    response = v1.ListPodResourcesResponse.FromString(answer((GPU, 1), (OTHER, 1), claims=1))
    nameless = response.pod_resources.add()
    nameless.containers.add().CopyFrom(response.pod_resources[0].containers[0])
    both = parse(response.SerializeToString(), resources=GLOBS, claims=True)
    assert both.assignments == parse(answer((GPU, 1), (OTHER, 1), claims=1), resources=GLOBS, claims=True).assignments
    assert {held.owner.pod for held in (*both.assignments, *both.outside)} == {"train"}


def test_what_lies_outside_is_told_with_its_claims() -> None:
    read = parse(answer((OTHER, 1), (GPU, 1), claims=1), resources=("amd.com/*",), claims=True)
    # NVIDIA's driver for GPUs is always meant
    assert [found.device_id for found in read.assignments] == ["gpu.nvidia.com//gpu-0"]
    assert [(found.resource, found.device_id) for found in read.outside] == [(OTHER, "id-0000000"), (GPU, "id-0000000")]
    nic = v1.ClaimResource(driver_name="dra.net", pool_name="p", device_name="eth1")
    with_nic = v1.ListPodResourcesResponse.FromString(answer((GPU, 1), claims=1))
    with_nic.pod_resources[0].containers[0].dynamic_resources[0].claim_resources.append(nic)
    body = with_nic.SerializeToString()
    assert [found.device_id for found in parse(body, resources=GLOBS, claims=True).outside] == ["dra.net/p/eth1"]
    # issue 7, line 12: with --dra off they are told, too, so that it can be said what holds a GPU
    off = parse(body, resources=GLOBS)
    assert {found.device_id for found in off.outside} == {"dra.net/p/eth1", "gpu.nvidia.com//gpu-0"}
    assert {found.claim for found in off.assignments} == {None}


def claimed(*devices: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """A claim whose devices 0, 1, 2… are listed with these CDI names: the names that each is read with."""
    resources = [
        v1.ClaimResource(
            driver_name="gpu.nvidia.com", device_name=str(number), cdi_devices=[v1.CDIDevice(name=one) for one in names]
        )
        for number, names in enumerate(devices)
    ]
    container = v1.ContainerResources(
        name="main", dynamic_resources=[v1.DynamicResource(claim_name="c", claim_resources=resources)]
    )
    pod = v1.PodResources(namespace="ml", name="train", containers=[container])
    body = v1.ListPodResourcesResponse(pod_resources=[pod]).SerializeToString()
    found = parse(body, resources=GLOBS, claims=True).assignments
    return {one.claim.device: one.claim.cdi_names for one in found if one.claim}


# issue 7, found beside line 12
@pytest.mark.parametrize(
    ("listed", "own"),
    [
        ([("a",), ("a", "b"), ("a", "b", "c")], [("a",), ("b",), ("c",)]),
        ([("a", "b", "c"), ("a",), ("a", "b")], [("c",), ("a",), ("b",)]),
        ([("a1", "a2"), ("a1", "a2", "b1", "b2")], [("a1", "a2"), ("b1", "b2")]),
        # a kubelet that lists each with its own, and what cannot be told apart
        ([("a",), ("b",)], [("a",), ("b",)]),
        ([("a", "b"), ("a", "b")], [("a", "b"), ("a", "b")]),
        ([(), ("a",)], [(), ("a",)]),
    ],
)
def test_a_device_is_read_with_the_cdi_names_that_are_its_own(
    listed: list[tuple[str, ...]], own: list[tuple[str, ...]]
) -> None:
    assert claimed(*listed) == {str(number): names for number, names in enumerate(own)}


Entry = tuple[str, str, tuple[str, ...]]  # device, share and CDI names of a ClaimResource


def entries_prepared(*times: tuple[str, ...]) -> list[Entry]:
    """What kubelet 1.36.2 lists of a claim that was prepared so many times, each time with its devices in an order."""
    names = [device for of_time in times for device in of_time]
    return [(device, "", tuple(f"cdi-{name}" for name in names[: at + 1])) for at, device in enumerate(names)]


def read_of(entries: list[Entry]) -> list[tuple[str, str, tuple[str, ...]]]:
    """The devices that are read of a claim with these entries, in order."""
    resources = [
        v1.ClaimResource(
            driver_name="gpu.nvidia.com",
            device_name=device,
            share_id=share or None,
            cdi_devices=[v1.CDIDevice(name=name) for name in names],
        )
        for device, share, names in entries
    ]
    container = v1.ContainerResources(
        name="main", dynamic_resources=[v1.DynamicResource(claim_name="c", claim_resources=resources)]
    )
    pod = v1.PodResources(namespace="ml", name="train", containers=[container])
    body = v1.ListPodResourcesResponse(pod_resources=[pod]).SerializeToString()
    claims = [one.claim for one in parse(body, resources=GLOBS, claims=True).assignments if one.claim]
    return sorted((claim.device, claim.share, claim.cdi_names) for claim in claims)


ONE, TWO = ("gpu-6", "", ("cdi-gpu-6",)), ("gpu-7", "", ("cdi-gpu-7",))


# issue 22, line 2
@pytest.mark.parametrize(
    ("entries", "devices"),
    [
        pytest.param(entries_prepared(("gpu-6",), ("gpu-6",)), [ONE], id="the recorded two"),
        pytest.param(entries_prepared(*[("gpu-6",)] * 9), [ONE], id="nine"),
        pytest.param(entries_prepared(*[("gpu-6", "gpu-7")] * 3), [ONE, TWO], id="two devices"),
        pytest.param(entries_prepared(("gpu-6", "gpu-7"), ("gpu-7", "gpu-6")), [ONE, TWO], id="in another order"),
        pytest.param(entries_prepared(("gpu-6", "gpu-7"), ("gpu-6",)), [ONE, TWO], id="not all of them again"),
        pytest.param([ONE, ONE, TWO, TWO], [ONE, TWO], id="a kubelet that lists each with its own names"),
        pytest.param(
            [("gpu-6", "", ("a",)), ("gpu-6", "", ("a", "b")), ("gpu-6", "", ("a", "b", "a"))],
            [("gpu-6", "", ("a", "b"))],
            id="several CDI devices",
        ),
        pytest.param(
            [("gpu-6", "x", ("a",)), ("gpu-6", "y", ("a", "b")), ("gpu-6", "x", ("a", "b", "a"))],
            [("gpu-6", "x", ("a",)), ("gpu-6", "y", ("b",))],
            id="shares are devices",
        ),
        pytest.param([("gpu-6", "", ()), ("gpu-6", "", ())], [("gpu-6", "", ())], id="no CDI device"),
    ],
)
def test_the_entries_of_one_device_of_a_claim_are_one_device(entries: list[Entry], devices: list[Entry]) -> None:
    assert read_of(entries) == devices
    assert read_of(entries[::-1]) == devices


# issue 10, B: tencent.com/vcuda-core and tencent.com/vcuda-memory
def test_ids_that_count_units_are_one_assignment_a_container() -> None:
    cores, memory = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
    ids = [f"{cores}-{number}" for number in range(300)]
    response = v1.ListPodResourcesResponse(
        pod_resources=[
            v1.PodResources(
                namespace="ml",
                name="train",
                containers=[
                    v1.ContainerResources(
                        name="main",
                        devices=[
                            *(v1.ContainerDevices(resource_name=cores, device_ids=[one]) for one in reversed(ids)),
                            v1.ContainerDevices(resource_name=cores, device_ids=ids[:20]),  # twice is once
                            v1.ContainerDevices(resource_name=memory, device_ids=["b", "a"]),
                            v1.ContainerDevices(resource_name="tencent.com/vcuda-other", device_ids=["x", "y"]),
                            v1.ContainerDevices(resource_name=memory, device_ids=[]),
                        ],
                    ),
                    v1.ContainerResources(
                        name="none", devices=[v1.ContainerDevices(resource_name=memory, device_ids=[])]
                    ),
                ],
            )
        ]
    ).SerializeToString()
    owner = Owner(namespace="ml", pod="train", container="main")
    found = parse(response, resources=("nvidia.com/*", "tencent.com/vcuda-*"))
    assert found.assignments == {
        Assignment(owner=owner, resource=cores, device_id=f"{cores}-0", units=300),
        Assignment(owner=owner, resource=memory, device_id="a", units=2),
        Assignment(owner=owner, resource="tencent.com/vcuda-other", device_id="x"),
        Assignment(owner=owner, resource="tencent.com/vcuda-other", device_id="y"),
    }
    assert parse(response, resources=GLOBS).assignments == frozenset()
