"""deploy/operator/operator.yaml: the operator may do what it does and no more, and takes what it is given."""

from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any, NamedTuple

import pytest

from exporter.config.operator_settings import SETTINGS, load_operator
from exporter.operator.exporters.desired import CLUSTER_ROLE, DCGM_IMAGE, IMAGE
from exporter.operator.objects.kinds import AUTOSCALER, GPU_AUTOSCALER, POD_MONITOR, SCALED_OBJECT, Key, key_of
from exporter.operator.outputs import OUTPUTS
from tests.support import quick_yaml
from tests.support.api_server.handling import ADMIN
from tests.support.operator import LEASE_NAMESPACE, Api, OperatorProcess, exporter, is_seen, list_of_fields, until
from tests.support.places import ROOT

Object = dict[str, Any]
MANIFEST = ROOT / "deploy" / "operator" / "operator.yaml"
OBJECTS: list[Object] = list(quick_yaml.load_all(MANIFEST.read_text()))
ACCOUNT = "pod-gpu-metrics-operator"
# Held by what it writes, not by what it asks: see the tests below, and those with a real API server.
WITHOUT_A_REQUEST = {
    ("", "pod-gpu-metrics.dev", "gpuexporters/finalizers", "update"),
    ("", "pod-gpu-metrics.dev", "gpuautoscalers/finalizers", "update"),
    ("", "rbac.authorization.k8s.io", "clusterroles", "bind"),
    # a real API server wants these of who gives an object its owner back (OwnerReferencesPermissionEnforcement)
    ("", "apps", "daemonsets", "delete"),
    ("", "", "services", "delete"),
}


class Right(NamedTuple):
    """What may be done where: in one namespace, or with "" everywhere."""

    namespace: str
    group: str
    resource: str
    verb: str


def named(kind: str, name: str) -> Object:
    (found,) = (item for item in OBJECTS if (item["kind"], item["metadata"]["name"]) == (kind, name))
    return found


def bound() -> list[tuple[str, Object]]:
    """The rules that the bindings give the operator, by namespace."""
    found = []
    for binding in OBJECTS:
        if binding["kind"] not in ("ClusterRoleBinding", "RoleBinding"):
            continue
        assert [subject["name"] for subject in binding["subjects"]] == [ACCOUNT]
        # the process in these tests has its lease in a namespace of its own
        where = LEASE_NAMESPACE if binding["kind"] == "RoleBinding" else ""
        reference = binding["roleRef"]
        found += [(where, rule) for rule in named(reference["kind"], reference["name"])["rules"]]
    return found


def rights(rules: list[tuple[str, Object]]) -> set[Right]:
    return {
        Right(where, group, resource, verb)
        for where, rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


class Asked:
    """What the operator asked for, and what of it was refused."""

    def __init__(self) -> None:
        self.rights: set[Right] = set()
        self.refused: set[str] = set()

    def so_far(self, api: Api) -> set[Right]:
        """The rights that it has used."""
        if api.real is not None:
            self._read(api.real.audited())
        if api.simulated is not None:
            self.refused |= api.simulated.forbidden
            self.rights |= {
                Right(path.namespace if path.resource == "leases" else "", path.group, path.resource, verb)
                for verb, path in tuple(api.simulated.paths)
            }
        return self.rights

    def _read(self, audited: Iterable[Object]) -> None:
        """Take what a real API server has noted."""
        for event in audited:
            if (of := event.get("objectRef")) is None:
                continue  # what is served, which everybody may ask
            resource = "/".join(filter(None, (of["resource"], of.get("subresource", ""))))
            where = of.get("namespace", "") if resource == "leases" else ""
            status = event["responseStatus"]
            # an apply of what is not there yet is a create, too
            verbs = {event["verb"], "create"} if status["code"] == HTTPStatus.CREATED else {event["verb"]}
            self.rights |= {Right(where, of.get("apiGroup", ""), resource, verb) for verb in verbs}
            if status["code"] == HTTPStatus.FORBIDDEN:
                self.refused.add(status["message"])


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """All that an operator with these rights asks for, through a life of both kinds."""
    asked, api = Asked(), Api(has_policy=True)
    api.start()
    try:
        if api.simulated is not None:
            api.simulated.users = {"token-a": f"system:serviceaccount:pod-gpu-metrics:{ACCOUNT}", "admin": ADMIN}
            api.simulated.rules = bound()
        process = OperatorProcess(api, tmp_path_factory.mktemp("operator"))
        try:
            live_through(api)
            # the operator may have listed the last kinds without watching them yet
            until(lambda: rights(bound()) - asked.so_far(api) == WITHOUT_A_REQUEST)
        finally:
            assert process.end() == 0, process.told
        asked.so_far(api)
        yield asked
    finally:
        api.stop()


def live_through(api: Api) -> None:
    """Make, change and delete, so that each of the operator's objects is made, put right and deleted."""
    api.define(POD_MONITOR)
    api.add_namespace("ml")
    key = key_of(api.put(exporter("gpu", "ml")))
    until(lambda: is_seen(api, key), why=lambda: api.get(key))
    until(lambda: any(each.kind == "PodMonitor" for each in api.made_in("ml")))
    for each in api.made_in("ml"):
        for _ in range(3):  # what comes again becomes a series of one event
            until(lambda each=each: api.get(each))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            api.patch(each, {"metadata": {"labels": {"app.kubernetes.io/instance": "somebody-elses"}}})
            until(lambda each=each: _instance(api, each) == "gpu", why=lambda each=each: api.get(each))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    api.put(list_of_fields("mine", "ml"))
    less = {"collectors": {"configMap": {"name": "mine"}}, "workloads": "off", "serviceMonitor": {"enabled": "off"}}
    api.patch(key, {"spec": less})
    until(lambda: not {"ServiceAccount", "PodMonitor"} & {each.kind for each in api.made_in("ml")})
    until(lambda: Key("ConfigMap", "ml", "gpu-counters") not in api.made_in("ml"))
    twin = key_of(api.put(exporter("twin", "ml")))  # nodes are listed where two may choose the same ones
    until(lambda: is_seen(api, twin))
    for each in (twin, key):
        api.remove(each)
    until(lambda: not api.made_in("ml"))
    scale(api)


def scale(api: Api) -> None:
    """Workloads of each kind that is looked at; with KEDA, without it, and by somebody else."""
    api.add_namespace("serving")
    for kind, plural in (("Deployment", "deployments"), ("StatefulSet", "statefulsets"), ("ReplicaSet", "replicasets")):
        pod = {"metadata": {"labels": {"app": kind}}, "spec": {"containers": [{"name": "main", "image": "main:1"}]}}
        more = {"serviceName": "main"} if kind == "StatefulSet" else {}
        target = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": kind.lower(), "namespace": "serving"}}
        workload = {**target, "spec": {**more, "selector": {"matchLabels": {"app": kind}}, "template": pod}}
        assert api.ask("POST", f"/apis/apps/v1/namespaces/serving/{plural}", workload)[0] == 201
        ref = {"apiVersion": "apps/v1", "kind": kind, "name": kind.lower()}
        spec = {"scaleTargetRef": ref, "metric": "gpu_utilization", "target": 70, "maxReplicas": 8}
        about = {"apiVersion": GPU_AUTOSCALER.api_version, "kind": GPU_AUTOSCALER.name}
        api.put({**about, "metadata": target["metadata"], "spec": spec})
    for kind, field in (("HorizontalPodAutoscaler", "maxReplicas"), ("ScaledObject", "maxReplicaCount")):
        until(lambda kind=kind: [each.kind for each in api.made_in("serving")] == [kind] * 3, 20)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        each = Key(kind, "serving", "deployment")
        api.patch(each, {"spec": {field: 9}})
        until(lambda each=each, field=field: (api.get(each) or {})["spec"][field] == 8)  # type: ignore[misc]
        if kind == "HorizontalPodAutoscaler":
            api.define(SCALED_OBJECT)
    theirs = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "deployment"}, "maxReplicas": 3}
    about = {"apiVersion": AUTOSCALER.api_version, "kind": AUTOSCALER.name}
    api.put({**about, "metadata": {"name": "theirs", "namespace": "serving"}, "spec": theirs})
    # others' objects are not watched: it sees them when it looks the next time
    api.patch(Key("GPUAutoscaler", "serving", "deployment"), {"metadata": {"annotations": {"look": "again"}}})
    until(lambda: api.get(Key("ScaledObject", "serving", "deployment")) is None)


def _instance(api: Api, key: Key) -> str:
    item = api.get(key)
    return str(item["metadata"]["labels"].get("app.kubernetes.io/instance")) if item else ""


def test_nothing_that_it_does_is_refused(asked: Asked) -> None:
    assert asked.refused == set()


def test_it_has_no_right_that_it_does_not_use(asked: Asked) -> None:
    assert rights(bound()) - asked.rights == WITHOUT_A_REQUEST


def test_it_has_every_right_that_it_uses(asked: Asked) -> None:
    assert asked.rights - rights(bound()) == set()


def test_it_may_bind_the_one_role_that_exporters_get() -> None:
    """Without `bind` or the role's own rights a real API server refuses the binding: privilege escalation."""
    (rule,) = [rule for _, rule in bound() if "bind" in rule["verbs"]]
    assert rule["resourceNames"] == [CLUSTER_ROLE]
    given = named("ClusterRole", CLUSTER_ROLE)["rules"]
    (shipped,) = (
        item
        for item in quick_yaml.load_all((ROOT / "deploy" / "rbac.yaml").read_text())
        if item["kind"] == "ClusterRole"
    )
    assert given == shipped["rules"]


def test_no_rule_has_a_wildcard_or_makes_roles() -> None:
    for item in OBJECTS:
        for rule in item.get("rules", ()):
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
            assert not {"escalate", "impersonate"} & {*rule["verbs"]}
            assert not {"secrets", "roles", "pods/exec", "deployments/scale"} & {*rule["resources"]}
            assert "nodes" not in rule["resources"] or rule["verbs"] == ["list"]


def test_nobody_gets_exporters_by_a_role_of_kubernetes() -> None:
    """Who makes one has root on the nodes that it names."""
    for item in OBJECTS:
        aggregated = [label for label in item["metadata"]["labels"] if "aggregate-to" in label]
        for rule in item["rules"] if aggregated else ():
            if "gpuexporters" in rule["resources"]:
                assert rule["verbs"] == ["get", "list", "watch"]


def test_the_program_takes_what_the_manifest_gives_it() -> None:
    pod = named("Deployment", ACCOUNT)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command, *flags = container["args"]
    assert command == "operator"
    environment = {"POD_NAMESPACE": "pod-gpu-metrics", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert {entry["name"] for entry in container["env"]} <= {*environment, *(setting.env for setting in SETTINGS)}
    given = {name.removeprefix("--"): [text] for name, _, text in (flag.partition("=") for flag in flags)}
    config = load_operator({"kubernetes.url": ["https://10.0.0.1"], **given}, environment, None)
    assert config.operator.exporter_image == container["image"] == IMAGE
    assert config.operator.dcgm_image == DCGM_IMAGE
    assert config.operator.lease_namespace == "pod-gpu-metrics"
    (lease,) = [rule for rule in named("Role", ACCOUNT)["rules"] if "update" in rule["verbs"]]
    assert lease["resourceNames"] == [config.operator.lease_name]
    assert [port["containerPort"] for port in container["ports"]] == [
        address.port for address in config.web.listen_addresses
    ]
    probes = {output.path for output in OUTPUTS if output.is_probe}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in probes


# issue 14: "runs as non-root"
def test_it_runs_without_root_and_without_anything_that_it_does_not_need() -> None:
    pod = named("Deployment", ACCOUNT)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True
    }  # fmt: skip
    assert not {"hostPID", "hostNetwork", "volumes"} & pod.keys()
