"""Workloads: the walk up, what is remembered, and what failures cost."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from exporter.errors import Malformed, SourceError, Unavailable, Unsupported
from exporter.model.pods import OwnerReference, PodInfo
from exporter.ownership.workloads import Workload
from exporter.sources.kubernetes.api import KubernetesApi
from exporter.sources.kubernetes.workloads import FAILURE_KEPT_SECONDS, KEPT_SECONDS, MOST_PODS, Workloads
from tests.support.clock import Clock

TEAM_KIND = {
    "resources": [{"name": "pytorchjobs", "kind": "PyTorchJob"}, {"name": "pytorchjobs/status", "kind": "PyTorchJob"}]
}


class Api(KubernetesApi):
    """Objects by path; a failure is raised."""

    def __init__(self, objects: dict[str, Any]) -> None:
        self.objects = objects
        self.calls: list[str] = []
        self.closed = False

    async def get(self, path: str) -> Any:
        self.calls.append(path)
        await asyncio.sleep(0)
        found = self.objects.get(path)
        if isinstance(found, SourceError):
            raise found
        if found is None:
            raise Unsupported(f"the Kubernetes API knows no {path}", remedy="nothing")
        return found

    async def close(self) -> None:
        self.closed = True


async def ask(workloads: Workloads, pods: Sequence[PodInfo]) -> None:
    attempt = workloads.begin(pods)
    assert attempt
    await attempt


def owner(kind: str, name: str, api_version: str = "apps/v1", *, controls: bool = True) -> OwnerReference:
    return OwnerReference(
        api_version=api_version, kind=kind, name=name, uid=f"uid-{kind}-{name}", is_controller=controls
    )


def owned_by(kind: str, name: str, api_version: str = "apps/v1") -> dict[str, Any]:
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"u-{kind}-{name}", "controller": True}
    return {"metadata": {"ownerReferences": [reference]}}


def pod(*owners: OwnerReference, name: str = "p", uid: str = "1", **labels: str) -> PodInfo:
    return PodInfo(namespace="ns", name=name, uid=uid, labels=labels, owners=owners)


RS = "/apis/apps/v1/namespaces/ns/replicasets/web-abc"
REFUSED = Unavailable("permission", "403", remedy="a role")
NO_JSON = Malformed("garbage", "no JSON", remedy="its address")
JOB = "/apis/batch/v1/namespaces/ns/jobs/train-1"
NOTHING: dict[str, Any] = {"metadata": {}}
ODD: dict[str, Any] = {"metadata": {"ownerReferences": "x"}}
DEPLOYMENT = owned_by("Deployment", "web")
ROLLOUT = owned_by("Rollout", "web", "argoproj.io/v1alpha1")
CRON_JOB = owned_by("CronJob", "train", "batch/v1")


@pytest.mark.parametrize(
    ("of", "objects", "found", "calls"),
    [
        (pod(), {}, ("p", "Pod"), 0),
        (pod(owner("Node", "n", "v1")), {}, ("p", "Pod"), 0),
        (pod(owner("ConfigMap", "c", "v1", controls=False)), {}, ("p", "Pod"), 0),
        (pod(owner("ReplicaSet", "web-abc")), {RS: owned_by("Deployment", "web")}, ("web", "Deployment"), 1),
        (pod(owner("ReplicaSet", "web-abc")), {RS: NOTHING}, ("web-abc", "ReplicaSet"), 1),
        (pod(owner("ReplicaSet", "web-abc")), {RS: ROLLOUT}, ("web", "Rollout"), 1),
        (pod(owner("StatefulSet", "db")), {}, ("db", "StatefulSet"), 0),
        (pod(owner("DaemonSet", "agent")), {}, ("agent", "DaemonSet"), 0),
        (pod(owner("Job", "train-1", "batch/v1")), {JOB: CRON_JOB}, ("train", "CronJob"), 1),
        (pod(owner("Job", "train-1", "batch/v1")), {JOB: NOTHING}, ("train-1", "Job"), 1),
        (
            pod(owner("PyTorchJob", "llm", "kubeflow.org/v1")),
            {"/apis/kubeflow.org/v1": TEAM_KIND, "/apis/kubeflow.org/v1/namespaces/ns/pytorchjobs/llm": NOTHING},
            ("llm", "PyTorchJob"),
            2,
        ),
        (
            pod(owner("Job", "train-1", "batch/v1")),
            {
                JOB: owned_by("PyTorchJob", "llm", "kubeflow.org/v1"),
                "/apis/kubeflow.org/v1": TEAM_KIND,
                "/apis/kubeflow.org/v1/namespaces/ns/pytorchjobs/llm": owned_by("Pipeline", "all", "team.io/v1"),
                "/apis/team.io/v1": {"resources": [{"name": "pipelines", "kind": "Pipeline"}]},
                "/apis/team.io/v1/namespaces/ns/pipelines/all": NOTHING,
            },
            ("all", "Pipeline"),
            5,
        ),
        # a label names it; the kind is what owns it
        (pod(owner("ReplicaSet", "web-abc"), app="shop"), {RS: DEPLOYMENT}, ("shop", "Deployment"), 1),
        (pod(team="x", app="shop"), {}, ("shop", "Pod"), 0),
        # The nearest that is known, where nobody can say what is above it.
        (pod(owner("ReplicaSet", "web-abc")), {RS: REFUSED}, ("web-abc", "ReplicaSet"), 1),
        (pod(owner("ReplicaSet", "web-abc")), {}, ("web-abc", "ReplicaSet"), 1),
        (pod(owner("Odd", "o", "odd.io/v1")), {"/apis/odd.io/v1": {"resources": "none"}}, ("o", "Odd"), 1),
        (pod(owner("ReplicaSet", "web-abc")), {RS: ODD}, ("web-abc", "ReplicaSet"), 1),
        (pod(owner("ReplicaSet", "web-abc")), {RS: NO_JSON}, ("web-abc", "ReplicaSet"), 1),
        # issue 7, line 28: names of 253 characters are names, and a dot belongs to a name
        (
            pod(owner("Job", "a.b" + "c" * 250, "batch/v1")),
            {f"/apis/batch/v1/namespaces/ns/jobs/a.b{'c' * 250}": NOTHING},
            ("a.b" + "c" * 250, "Job"),
            1,
        ),
    ],
)  # fmt: skip
async def test_the_walk(of: PodInfo, objects: dict[str, Any], found: tuple[str, str], calls: int) -> None:
    api = Api(objects)
    workloads = Workloads(api=api, labels=("app.kubernetes.io/name", "app"))
    await ask(workloads, [of])
    known = workloads.of(of)
    assert known
    assert (known.name, known.kind) == found
    assert len(api.calls) == calls
    # nobody is asked a second time
    assert workloads.begin([of]) is None
    assert len(api.calls) == calls
    await workloads.close()
    assert api.closed


# issue 7, line 28
@pytest.mark.parametrize(
    ("kind", "name", "api_version"),
    [
        ("ReplicaSet", "../../../../api/v1/pods?limit=0#", "apps/v1"),
        ("ReplicaSet", "web-abc?x=y", "apps/v1"),
        ("ReplicaSet", "web-abc#", "apps/v1"),
        ("ReplicaSet", "web%2Fabc", "apps/v1"),
        ("ReplicaSet", "..", "apps/v1"),
        ("ReplicaSet", "", "apps/v1"),
        ("ReplicaSet", "web\n", "apps/v1"),
        ("ReplicaSet", "c" * 254, "apps/v1"),
        ("Pod", "p", "v1/../../api/v1"),
        ("Secret", "token", "../api/v1"),
        ("Odd", "o", "odd.io/v1/namespaces/kube-system/secrets"),
        ("Odd", "o", "odd.io/.."),
        ("Odd", "o", "/v1"),
        ("Odd", "o", "v2"),
        ("Odd", "o", ""),
        ("Odd", "o", f"{'o' * 254}/v1"),
        ("O/d", "o", "odd.io/v1"),
        ("", "o", "odd.io/v1"),
    ],
)
async def test_a_pod_does_not_choose_what_is_asked_of_the_api(kind: str, name: str, api_version: str) -> None:
    """Whoever makes a pod writes its ownerReferences; they are asked for with the exporter's rights."""
    api = Api({})
    workloads = Workloads(api=api)
    of = pod(owner(kind, name, api_version))
    await ask(workloads, [of])
    known = workloads.of(of)
    assert known
    assert (known.name, known.kind) == ("p", "Pod")
    assert api.calls == []


# issue 7, line 28
async def test_nor_does_an_object_above_it_or_what_a_group_says_it_serves() -> None:
    odd = {"resources": [{"name": "../../../api/v1/secrets", "kind": "Odd"}, {"name": "odd?x", "kind": "Query"}]}
    job = owned_by("ReplicaSet", "../../secrets/x")
    api = Api({JOB: job, "/apis/odd.io/v1": odd})
    workloads = Workloads(api=api)
    pods = [
        pod(owner("Job", "train-1", "batch/v1"), uid="1"),
        pod(owner("Odd", "o", "odd.io/v1"), uid="2"),
        pod(owner("Query", "q", "odd.io/v1"), uid="3"),
    ]
    await ask(workloads, pods)
    assert [(found.name, found.kind) for of in pods if (found := workloads.of(of))] == [
        ("train-1", "Job"),
        ("o", "Odd"),
        ("q", "Query"),
    ]
    assert set(api.calls) == {JOB, "/apis/odd.io/v1"}


# issue 7, line 28
async def test_a_pod_cannot_move_another_ones_workload() -> None:
    """It names the UID of their ReplicaSet beside the name of its own."""
    theirs = owner("ReplicaSet", "web-abc")
    mine = replace(theirs, name="mine")
    made_anew = {"metadata": {"uid": "another", **owned_by("Deployment", "mine")["metadata"]}}
    api = Api({RS: DEPLOYMENT, RS.replace("web-abc", "mine"): made_anew})
    workloads = Workloads(api=api)
    pods = [pod(mine, uid="1"), pod(theirs, uid="2")]
    for of in pods:
        await ask(workloads, [of])
    found = [workloads.of(of) for of in pods]
    assert [(of.name, of.kind) for of in found if of] == [("mine", "ReplicaSet"), ("web", "Deployment")]


async def test_a_circle_ends() -> None:
    path = "/apis/batch/v1/namespaces/ns/jobs/"
    api = Api({path + "a": owned_by("Job", "b", "batch/v1"), path + "b": owned_by("Job", "a", "batch/v1")})
    workloads = Workloads(api=api)
    of = pod(owner("Job", "a", "batch/v1"))
    await ask(workloads, [of])
    known = workloads.of(of)
    assert known
    assert known.kind == "Job"
    assert len(api.calls) < 5


async def test_a_known_workload_is_kept_for_5_minutes() -> None:
    clock = Clock()
    api = Api({RS: owned_by("Deployment", "web")})
    workloads = Workloads(api=api, clock=clock)
    of = pod(owner("ReplicaSet", "web-abc"))
    await ask(workloads, [of])
    clock.ahead = KEPT_SECONDS - 1
    workloads.begin([of])
    assert len(api.calls) == 1
    clock.ahead = KEPT_SECONDS + 1
    assert workloads.begin([of]) is None, "nobody waits for what is shown meanwhile"
    assert workloads.of(of)
    while len(api.calls) == 1:
        await asyncio.sleep(0)
    assert len(api.calls) == 2


async def test_a_failure_is_tried_again_after_30_seconds() -> None:
    clock = Clock()
    api = Api({RS: REFUSED})
    workloads = Workloads(api=api, clock=clock)
    of = pod(owner("ReplicaSet", "web-abc"))
    await ask(workloads, [of])
    clock.ahead = FAILURE_KEPT_SECONDS - 1
    workloads.begin([of])
    assert len(api.calls) == 1
    api.objects[RS] = owned_by("Deployment", "web")
    clock.ahead = FAILURE_KEPT_SECONDS + 1
    workloads.begin([of])
    while (known := workloads.of(of)) is None or known.kind != "Deployment":
        await asyncio.sleep(0)


async def test_a_pod_that_was_made_anew_under_its_name_is_another() -> None:
    api = Api({RS: owned_by("Deployment", "web")})
    workloads = Workloads(api=api)
    old, new = pod(owner("ReplicaSet", "web-abc")), pod(uid="2")
    await ask(workloads, [old])
    assert workloads.of(new) is None
    await ask(workloads, [new])
    known = workloads.of(new)
    assert known
    assert known.kind == "Pod"


async def test_pods_of_one_replica_set_ask_once() -> None:
    api = Api({RS: owned_by("Deployment", "web")})
    workloads = Workloads(api=api)
    pods = [pod(owner("ReplicaSet", "web-abc"), name=f"p{n}", uid=f"{n}") for n in range(500)]
    await ask(workloads, pods)
    assert all(workloads.of(of) for of in pods)
    assert len(api.calls) <= 8, "as many as are asked at once"


async def test_10_000_pods_leave_4096() -> None:
    workloads = Workloads(api=Api({}))
    for start in range(0, 10_000, 1000):
        pods = [pod(name=f"p{n}", uid=f"{n}") for n in range(start, start + 1000)]
        await ask(workloads, pods)
        assert workloads.of(pods[-1])
    assert len(workloads) == MOST_PODS == 4096
    assert workloads.of(pod(uid="0")) is None
    assert workloads.of(pod(uid="9999"))


class Endless(Api):
    """Every object is there, each kind in a group of its own."""

    async def get(self, path: str) -> Any:
        is_discovery = path.count("/") == 3
        return {"resources": [{"name": "things", "kind": "Thing"}]} if is_discovery else NOTHING


# issue 7, line 41: MOST_PODS of workloads.py
async def test_controllers_and_kinds_are_remembered_up_to_a_number() -> None:
    workloads = Workloads(api=Endless({}))
    for start in range(0, MOST_PODS + 200, 500):
        pods = [
            pod(owner("Thing", f"t{number}", f"group{number}.example/v1"), name=f"p{number}", uid=f"{number}")
            for number in range(start, start + 500)
        ]
        await ask(workloads, pods)
        assert workloads.of(pods[-1]) == Workload(f"t{start + 499}", "Thing")
    for remembered in (workloads._pods, workloads._controllers, workloads._plurals):
        assert len(remembered) == MOST_PODS


@pytest.mark.parametrize(
    ("of", "found"),
    [
        (pod(), "Pod"),
        (pod(owner("StatefulSet", "db")), "StatefulSet"),
        (pod(owner("ReplicaSet", "web-abc")), None),
        (pod(owner("Job", "train-1", "batch/v1")), None),
    ],
)
async def test_without_an_api_only_what_pods_say_themselves_is_known(
    of: PodInfo, found: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    workloads = Workloads(api=None)
    await ask(workloads, [replace(of)])
    known = workloads.of(of)
    assert (known and known.kind) == found
    assert not caplog.records
