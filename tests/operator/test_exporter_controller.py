"""What a GPUExporter's status is made of: its objects, its pods, what their exporters say, and what it lacks."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest

from exporter.errors import Trouble, Unavailable
from exporter.lenient import AnyObject, mappings
from exporter.operator.api.reader import Reader, Use
from exporter.operator.controllers import ExporterController
from exporter.operator.exporter_health import ExporterHealth
from exporter.operator.exporters.exporter_pods import on_node
from exporter.operator.objects.kinds import GPU_EXPORTER, NODE, POD, Key, Kind
from exporter.operator.reconcile import DesiredObjects, LookResult
from exporter.reading import Invalid
from tests.operator.made import Object, ago, daemon_set, gpu_exporter, pod

KEY = Key(GPU_EXPORTER.name, "ml", "gpu")
MINE: Object = {"collectors": {"configMap": {"name": "mine", "key": "list.csv"}}}


def namespace_of(item: Object) -> str:
    return "" if item["kind"] in ("ClusterRoleBinding", "Node") else "ml"


class Stored(Reader):
    """Objects that are there."""

    def __init__(self, *items: Object, pods: Sequence[Object] = ()) -> None:
        self.items = {Key(item["kind"], namespace_of(item), item["metadata"]["name"]): item for item in items}
        self.pods = pods

    async def get(self, key: Key) -> AnyObject | None:
        return self.items.get(key)

    async def listed(
        self, kind: Kind, namespace: str | None, labels: Mapping[str, str] = MappingProxyType({}), **_: object
    ) -> Sequence[AnyObject]:
        if kind is NODE:
            assert namespace is None
            items = [item for key, item in self.items.items() if key.kind == kind.name]
            return [item for item in items if labels.items() <= item["metadata"].get("labels", {}).items()]
        assert (kind, namespace) == (POD, "ml")
        assert labels["app.kubernetes.io/instance"] in ("gpu", "default")
        return self.pods

    async def neighbours(self, kind: Kind, namespace: str | None, use: Use) -> Sequence[AnyObject]:
        assert (kind, namespace) == (GPU_EXPORTER, None)
        return [use(item) for key, item in self.items.items() if key.kind == kind.name]


def counters(*, key: str = "list.csv", kind: str = "data") -> Object:
    return {"kind": "ConfigMap", "metadata": {"name": "mine"}, kind: {key: "DCGM_FI_DEV_GPU_UTIL, gauge, x"}}


@pytest.fixture
async def looks() -> ExporterHealth:
    return ExporterHealth(on_change=lambda _: None)


async def aim_of(reader: Stored, **spec: Any) -> DesiredObjects:
    return await ExporterController(reader, ExporterHealth(on_change=lambda _: None)).desired(
        gpu_exporter(**spec), frozenset()
    )


async def status_with(
    reader: Stored, looks: ExporterHealth, problem: Invalid | None = None, **spec: Any
) -> Mapping[str, Any]:
    controller = ExporterController(reader, looks)
    owner = gpu_exporter(**spec)
    desired: DesiredObjects | None = None
    try:
        desired = await controller.desired(owner, frozenset())
    except Invalid as error:
        problem = error
    live = {Key("DaemonSet", "ml", "gpu"): daemon_set(1)}
    return await controller.status(LookResult(owner=owner, desired=desired, live=live, problem=problem))


def reason(status: Mapping[str, Any], kind: str = "Degraded") -> str:
    return next(str(each["reason"]) for each in status["conditions"] if each["type"] == kind)


def told(status: Mapping[str, Any], condition: int = 0) -> str:
    return str(status["conditions"][condition]["message"])


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ((), "the ConfigMap mine of spec.collectors.configMap is not there"),
        ((counters(key="other.csv"),), "the ConfigMap mine of spec.collectors.configMap has no key list.csv"),
        (({"kind": "ConfigMap", "metadata": {"name": "mine"}, "data": [1]},), "has no key list.csv"),
    ],
)
async def test_a_missing_list_of_fields_is_told(
    looks: ExporterHealth, items: tuple[Object, ...], expected: str
) -> None:
    """Its pods would wait for it without a word: a volume that cannot be mounted is in events alone."""
    status = await status_with(Stored(*items), looks, **MINE)
    assert {reason(status, kind) for kind in ("Ready", "Progressing", "Degraded")} == {"CollectorsMissing"}
    assert expected in status["conditions"][0]["message"]


# issue 15, line 13
async def test_without_its_list_of_fields_a_daemon_set_stays_as_it_is(looks: ExporterHealth) -> None:
    made = {item["kind"]: item for item, _ in (await aim_of(Stored())).plan.apply if "data" not in item}
    listed = {"kind": "ConfigMap", "metadata": made["DaemonSet"]["metadata"] | {"name": "gpu-counters"}}
    live = Stored(*made.values(), listed)
    plan = (await aim_of(live, **MINE, workloads="off", probe="on")).plan
    assert [*plan.delete] == []
    # settings arrive all the same: one of them is the probe's switch
    assert {item["metadata"]["name"] for item, _ in plan.apply} == {"gpu", "gpu-config"}
    assert {item["kind"] for item, _ in plan.apply} == {"ConfigMap", "Service"}
    live.items |= Stored(counters()).items
    plan = (await aim_of(live, **MINE, workloads="off")).plan
    assert "DaemonSet" in {item["kind"] for item, _ in plan.apply}
    assert {item["kind"] for item in plan.delete} == {"ConfigMap", "ServiceAccount", "ClusterRoleBinding"}


# issue 15, line 13
async def test_nodes_without_their_list_of_fields_are_in_trouble(looks: ExporterHealth) -> None:
    status = await status_with(Stored(pods=[pod("a"), pod("b")]), looks, **MINE)
    assert (status["nodesInTrouble"], {each["reason"] for each in status["troubles"]}) == (2, {"CollectorsMissing"})
    assert told(status).endswith("-> make it, in the GPUExporter's namespace; until then the DaemonSet stays as it is")
    assert told(status, 2) == told(status)


# issue 15, line 14
@pytest.mark.parametrize("name", ["gpu", "default"])
async def test_an_account_of_somebody_else_gets_no_role_and_runs_no_pods(looks: ExporterHealth, name: str) -> None:
    owner = gpu_exporter()
    owner["metadata"]["name"] = name
    controller = ExporterController(Stored(), looks)
    made = {item["kind"]: item for item, _ in (await controller.desired(owner, frozenset())).plan.apply}
    called = made["ServiceAccount"]["metadata"]["name"]
    assert called != "default"  # every pod of the namespace runs under that one
    account: Object = {"kind": "ServiceAccount", "metadata": {"name": called}}
    # its own was there before, and is bound
    controller = ExporterController(
        Stored(account, made["ClusterRoleBinding"], made["DaemonSet"], pods=[pod("a")]), looks
    )
    desired = await controller.desired(owner, frozenset())
    assert {item["kind"] for item, _ in desired.plan.apply} == {"Service", "ConfigMap"}
    assert [item["kind"] for item in desired.plan.delete] == ["ClusterRoleBinding"]
    status = await controller.status(LookResult(owner=owner, desired=desired, live=desired.live))
    assert {reason(status, kind) for kind in ("Ready", "Progressing", "Degraded")} == {"NotOurs"}
    assert "no rights are given to it, and the DaemonSet stays as it is" in told(status)
    assert status["nodesInTrouble"] == 1


# issue 22, line 9
async def test_somebody_elses_daemon_set_counts_no_nodes_and_is_not_asked(looks: ExporterHealth) -> None:
    """Such as a chart's, whose release has the GPUExporter's name: its pods have the same labels."""
    about = {"name": "gpu", "namespace": "ml", "uid": "uid-theirs"}
    theirs: Object = {"kind": "DaemonSet", **daemon_set(1), "metadata": {**about, "generation": 1}}
    of_theirs = {"kind": "DaemonSet", "name": "gpu", "uid": "uid-theirs", "controller": True}
    reader = Stored(theirs, pods=[pod("a", ownerReferences=[of_theirs])])
    controller, owner = ExporterController(reader, looks), gpu_exporter()
    desired = await controller.desired(owner, frozenset())
    assert [*desired.live] == []
    status = await controller.status(LookResult(owner=owner, desired=desired, live=desired.live))
    assert reason(status, "Ready") == "NotOurs"
    assert {"nodesWanted", "nodesReady"}.isdisjoint(status)
    assert looks.bounds["operator_exporters"].used() == 0


# issue 22, line 9
async def test_events_that_are_refused_leave_the_exporters_ready(looks: ExporterHealth) -> None:
    trouble = Trouble("Refused", "the Kubernetes API refuses it with 403: by policy", "change what it names")
    controller = ExporterController(Stored(), looks, event_troubles=lambda _: [trouble])
    shown = []
    specs: Sequence[Object] = ({"kernelLog": "on", "events": "on"}, {})
    for spec in specs:
        owner = gpu_exporter(**spec)
        desired = await controller.desired(owner, frozenset())
        live = {Key("DaemonSet", "ml", "gpu"): daemon_set(1)}
        status = await controller.status(LookResult(owner=owner, desired=desired, live=live))
        assert reason(status, "Ready") == "AllNodesReady"
        kinds = {each["type"]: each["reason"] for each in mappings(status, "conditions")}
        shown.append(kinds.get("EventsWritten"))
    assert shown == ["Refused", None]


def named(name: str, seconds_ago: float, **spec: Any) -> Object:
    """A GPUExporter as the API server gives it: with the defaults of the schema."""
    item = gpu_exporter(**{"nodeSelector": {"gpu": "yes"}, "tolerations": [], **spec})
    about = {"name": name, "uid": f"uid-{name}", "creationTimestamp": ago(seconds_ago)}
    return {**item, "metadata": {**item["metadata"], **about}}


async def affinity_of(owner: Object, *items: Object, looks: ExporterHealth) -> tuple[Any, str]:
    """What a GPUExporter's pods must not be near to, and the reason that is told; None and "" where all is well."""
    node = {"kind": "Node", "metadata": {"name": "n1", "labels": {"gpu": "yes", "pool": "a"}}, "spec": {}}
    controller = ExporterController(Stored(owner, node, *items), looks)
    desired = await controller.desired(owner, frozenset())
    (made,) = (item for item, _ in desired.plan.apply if item["kind"] == "DaemonSet")
    affinity = made["spec"]["template"]["spec"].get("affinity")
    terms = affinity and affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    status = await controller.status(
        LookResult(owner=owner, desired=desired, live={Key("DaemonSet", "ml", "gpu"): daemon_set(1)})
    )
    return terms, reason(status, "Ready")


# issue 15, line 16
async def test_the_younger_of_two_exporters_leaves_nodes_to_the_older(looks: ExporterHealth) -> None:
    young, free = named("gpu", 10), (None, "AllNodesReady")
    pool: Object = {"nodeSelector": {"pool": "a"}}
    without_pool = [{"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["a"]}]}]
    taken = (without_pool, "Overlaps")
    assert await affinity_of(young, named("old", 20), looks=looks) == ([{}], "Overlaps")
    assert await affinity_of(young, named("old", 20, **pool), looks=looks) == taken
    assert await affinity_of(young, named("even-younger", 5), looks=looks) == free
    assert await affinity_of(young, named("old", 20, nodeSelector={"gpu": "no"}), looks=looks) == free
    assert await affinity_of(young, named("old", 20, nodeSelector={"pool": "b"}), looks=looks) == free
    # what has no DaemonSet although it was looked at takes no nodes; otherwise its DaemonSet says which
    old = {**named("old", 20), "status": {"conditions": []}}
    assert await affinity_of(young, old, looks=looks) == free
    template = {"spec": {"template": {"spec": pool}}}
    about = {"name": "old", "ownerReferences": [{"uid": "uid-old", "controller": True}]}
    assert await affinity_of(young, old, {"kind": "DaemonSet", "metadata": about, **template}, looks=looks) == taken
    going = named("old", 20)
    going["metadata"]["deletionTimestamp"] = ago(1)
    assert await affinity_of(young, going, looks=looks) == free


# issue 15, line 16
async def test_an_operator_that_may_not_list_nodes_says_so(
    looks: ExporterHealth, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Stored.listed

    async def refusing(reader: Stored, kind: Kind, *more: Any, **others: Any) -> Sequence[AnyObject]:
        if kind is NODE:
            raise Unavailable("permission", "403", remedy="apply it")
        return await listed(reader, kind, *more, **others)

    monkeypatch.setattr(Stored, "listed", refusing)
    assert await affinity_of(named("gpu", 10), named("old", 20), looks=looks) == (None, "Forbidden")


async def test_a_pod_monitor_that_cannot_be_is_told(looks: ExporterHealth) -> None:
    status = await status_with(Stored(), looks, serviceMonitor={"enabled": "on"})
    assert reason(status, "Ready") == "PodMonitorMissing"
    assert reason(await status_with(Stored(), looks, serviceMonitor={"enabled": "auto"}), "Ready") == "AllNodesReady"


@pytest.mark.parametrize("kind", ["data", "binaryData"])
async def test_a_list_of_fields_that_is_there_is_no_obstacle(looks: ExporterHealth, kind: str) -> None:
    assert reason(await status_with(Stored(counters(kind=kind)), looks, **MINE), "Ready") == "AllNodesReady"
    assert reason(await status_with(Stored(), looks), "Ready") == "AllNodesReady"


async def test_an_invalid_spec_names_its_field(looks: ExporterHealth) -> None:
    status = await status_with(Stored(), looks, sharing="fair")
    assert reason(status) == "InvalidSpec"
    assert status["conditions"][0]["message"].startswith("spec.sharing: 'fair' is not allowed")


async def test_its_exporters_are_asked_while_it_is_there(
    looks: ExporterHealth, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Stored(pods=[pod("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2")])
    status = await status_with(reader, looks)
    assert looks.bounds["operator_exporters"].used() == 2
    assert reason(status) == "NotAskedYet"
    down = on_node("b", "kubelet", Trouble("refused", "nobody listens -> look at the kubelet"))
    monkeypatch.setattr(looks, "troubles", lambda key: [down] if key == KEY else None)
    status = await status_with(reader, looks)
    assert (reason(status), status["nodesInTrouble"]) == ("NodesInTrouble", 1)
    assert not await ExporterController(reader, looks).gone(KEY)
    assert looks.bounds["operator_exporters"].used() == 0


async def test_images_of_the_operator_are_for_exporters_that_name_none(looks: ExporterHealth) -> None:
    controller = ExporterController(Stored(), looks, image="own:1", dcgm_image="dcgm:1")
    named: Object = {"image": "a", "dcgmImage": "b"}
    for spec, images in (({}, ["own:1", "dcgm:1"]), (named, ["a", "b"])):
        desired = await controller.desired(gpu_exporter(**spec), frozenset())
        (made,) = (item for item, _ in desired.plan.apply if item["kind"] == "DaemonSet")
        pod = made["spec"]["template"]["spec"]
        assert {each["image"] for each in (*pod["containers"], *pod["initContainers"])} == {*images}
