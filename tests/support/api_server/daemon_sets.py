"""The controller of DaemonSets: a pod on each node that is meant, and a status that says how far that is.

It stands for kube-controller-manager, the scheduler and kubelets at once: a pod that it makes runs, and is ready unless
its node is among `unready`.
"""

import asyncio
import copy
import hashlib
import json
from collections.abc import Mapping

from tests.support.api_server.answers import Object
from tests.support.api_server.deleting import delete
from tests.support.api_server.kinds import DAEMON_SET, NODE, POD
from tests.support.api_server.store import Key, Store
from tests.support.api_server.writing import Intent, Writer, now

# The counts that a status tells though they are none.
_ALWAYS = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
_HASH = "controller-revision-hash"
_INTENT = Intent(manager="kube-controller-manager")
SETTLE_SECONDS = 0.02


class DaemonSets:
    """Keeps the pods of DaemonSets on nodes.

    `unready` are the nodes whose pods are not ready. `addresses` are the IP addresses of pods by their nodes; a node
    that is not among them gives one of its own. `seconds` is how long it takes to see a change.
    """

    def __init__(self, store: Store, writer: Writer) -> None:
        self.unready: set[str] = set()
        self.addresses: dict[str, str] = {}
        self.seconds = SETTLE_SECONDS
        self._store = store
        self._writer = writer

    def add_node(self, name: str, labels: Mapping[str, str], *, taints: tuple[Object, ...] = ()) -> None:
        """Make a node, or change its labels and taints."""
        item = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": f"uid-of-node-{name}",
                "creationTimestamp": now(),
                "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels},
            },
            "spec": {"taints": list(taints)} if taints else {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        self._store.put(Key(NODE.resource, "", name), item)

    def remove_node(self, name: str) -> None:
        """Take a node away."""
        self._store.drop(Key(NODE.resource, "", name))

    async def run(self) -> None:
        """Work after each change, until it is cancelled."""
        while True:
            self.settle()
            await self._store.news()
            await asyncio.sleep(self.seconds)

    def settle(self) -> None:
        """Do all that is to be done now."""
        nodes = [item for _, item in self._store.all(NODE.resource)]
        for key, item in tuple(self._store.all(DAEMON_SET.resource)):
            if "deletionTimestamp" not in item["metadata"]:
                self._keep(key, item, nodes)

    def _keep(self, key: Key, item: Object, nodes: list[Object]) -> None:
        """Put the pods of one DaemonSet right, and its status."""
        template = item["spec"]["template"]
        revision = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
        meant = {node["metadata"]["name"] for node in nodes if is_meant(template["spec"], node)}
        pods = dict(self._pods_of(item))
        there = {pod["spec"]["nodeName"]: (pod_key, pod) for pod_key, pod in pods.items()}
        for node, (pod_key, pod) in there.items():
            is_old = pod["metadata"]["labels"].get(_HASH) != revision
            rolls = item["spec"].get("updateStrategy", {}).get("type") != "OnDelete"
            if node not in meant or (is_old and rolls):
                delete(self._store, POD, pod_key, {})
        now_there = {pod["spec"]["nodeName"] for _, pod in self._pods_of(item)}
        for node in sorted(meant - now_there):
            self._create(key, item, node, revision)
        for pod_key, pod in tuple(self._pods_of(item)):
            self._make_ready(pod_key, pod)
        self._tell(key, item, meant, revision)

    def _pods_of(self, item: Object) -> list[tuple[Key, Object]]:
        uid, namespace = item["metadata"]["uid"], item["metadata"]["namespace"]
        return [
            (key, pod)
            for key, pod in self._store.all(POD.resource, namespace)
            if any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences") or ())
        ]

    def _create(self, key: Key, item: Object, node: str, revision: str) -> None:
        template = item["spec"]["template"]
        labels = {**(template.get("metadata", {}).get("labels") or {}), _HASH: revision}
        owner = {
            "apiVersion": DAEMON_SET.api_version, "kind": DAEMON_SET.name, "name": key.name,
            "uid": item["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        metadata = {
            "generateName": f"{key.name}-",
            "labels": labels,
            "annotations": template.get("metadata", {}).get("annotations") or {},
            "ownerReferences": [owner],
        }
        body = {"metadata": metadata, "spec": {**template["spec"], "nodeName": node}}
        self._writer.create(POD, key.namespace, body, _INTENT)

    def _make_ready(self, key: Key, pod: Object) -> None:
        """Say of a pod that it runs, and whether it is ready."""
        node = pod["spec"]["nodeName"]
        is_ready = "False" if node in self.unready else "True"
        former = {told["type"]: told for told in pod["status"].get("conditions") or ()}
        if former.get("Ready", {}).get("status") == is_ready and pod["status"].get("podIP") == self._address(node):
            return
        told = [
            {"type": kind, "status": is_ready, "lastTransitionTime": now()} for kind in ("Ready", "ContainersReady")
        ]
        address = self._address(node)
        status = {"phase": "Running", "conditions": told, "podIP": address, "podIPs": [{"ip": address}]}
        self._store.put(key, {**pod, "status": {**pod["status"], **status}})

    def _address(self, node: str) -> str:
        if node not in self.addresses:
            self.addresses[node] = f"10.244.{len(self.addresses) // 250}.{len(self.addresses) % 250 + 2}"
        return self.addresses[node]

    def _tell(self, key: Key, item: Object, meant: set[str], revision: str) -> None:
        """Write the status, where it is another."""
        pods = [pod for _, pod in self._pods_of(item)]
        ready = sum(any(_is_true(told) for told in pod["status"].get("conditions") or ()) for pod in pods)
        updated = sum(pod["metadata"]["labels"].get(_HASH) == revision for pod in pods)
        wanted = len(meant)
        status = {
            "currentNumberScheduled": len(pods),
            "numberMisscheduled": 0,
            "desiredNumberScheduled": wanted,
            "numberReady": ready,
            "observedGeneration": item["metadata"]["generation"],
            "updatedNumberScheduled": updated,
            "numberAvailable": ready,
            "numberUnavailable": wanted - ready,
        }
        told = {name: count for name, count in status.items() if count or name in _ALWAYS}
        if told == item.get("status"):
            return  # to write what is so already changes nothing, and is most of the work of a test with many of them
        self._writer.patch(DAEMON_SET, key, lambda live: {**copy.deepcopy(live), "status": told}, "status", _INTENT)


def _is_true(condition: Object) -> bool:
    return bool(condition["type"] == "Ready" and condition["status"] == "True")


def is_meant(spec: Object, node: Object) -> bool:
    """Whether pods of this specification are to run on the node, by its labels and taints."""
    labels = node["metadata"].get("labels") or {}
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if required and not any(_matches(term, labels) for term in required["nodeSelectorTerms"]):
        return False
    if any(labels.get(name) != value for name, value in (spec.get("nodeSelector") or {}).items()):
        return False
    tolerations = spec.get("tolerations") or ()
    taints = [taint for taint in node["spec"].get("taints") or () if taint["effect"] != "PreferNoSchedule"]
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def _matches(term: Object, labels: Object) -> bool:
    """Whether a node is in a term of an affinity, which has expressions with NotIn alone; an empty one matches none."""
    expressions = term.get("matchExpressions") or ()
    return bool(expressions) and all(labels.get(each["key"]) not in each["values"] for each in expressions)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect", taint["effect"]) not in ("", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key", taint["key"]) in ("", taint["key"])
    return bool(toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))
