"""The controller of DaemonSets: a pod on each node that is meant, and a status that says how far that is.

It stands for kube-controller-manager, the scheduler and kubelets at once: a pod that it makes runs, and is ready unless
its node is among `unready`.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from tests.support.api_server.answers import Object
from tests.support.api_server.kinds import DAEMON_SET, NODE, POD
from tests.support.api_server.store import Change, Key, Store
from tests.support.api_server.writing import Writer, now

# The counts that a status shows even when they are 0.
_ALWAYS = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
_HASH = "controller-revision-hash"
_WATCHED = frozenset({NODE.resource, POD.resource, DAEMON_SET.resource})
SETTLE_SECONDS = 0.02


class DaemonSets:
    """Keeps the pods of DaemonSets on nodes.

    `unready` are the nodes whose pods are not ready. `addresses` are the IP addresses of pods by their nodes; a pod on
    another node has none.
    """

    def __init__(self, store: Store, writer: Writer) -> None:
        self.unready: set[str] = set()
        self.addresses: dict[str, str] = {}
        self._store = store
        self._writer = writer
        self._has_work = False
        store.listeners.append(self._note)

    def add_node(self, name: str, labels: Mapping[str, str]) -> None:
        """Make a node, or change its labels."""
        item = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "uid": f"uid-of-node-{name}",
                "creationTimestamp": now(),
                "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels},
            },
            "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        self._store.put(Key(NODE.resource, "", name), item)

    async def run(self) -> None:
        """Work after each change, until it is cancelled."""
        while True:
            while self._has_work:
                self._has_work = False
                self._settle()
            await self._store.news()
            await asyncio.sleep(SETTLE_SECONDS)

    def _note(self, change: Change) -> None:
        self._has_work |= change.key.resource in _WATCHED

    def _settle(self) -> None:
        """Do all that is to be done now."""
        nodes = [item for _, item in self._store.all(NODE.resource)]
        pods: defaultdict[str, list[tuple[Key, Object]]] = defaultdict(list)  # by the uid of their owner
        for key, pod in self._store.all(POD.resource):
            for owner in pod["metadata"].get("ownerReferences") or ():
                pods[owner["uid"]].append((key, pod))
        for key, item in tuple(self._store.all(DAEMON_SET.resource)):
            self._keep(key, item, nodes, pods[item["metadata"]["uid"]])

    def _keep(self, key: Key, item: Object, nodes: Sequence[Object], pods: Sequence[tuple[Key, Object]]) -> None:
        """Put the pods of one DaemonSet right, and its status."""
        template = item["spec"]["template"]
        revision = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:10]
        meant = {node["metadata"]["name"] for node in nodes if is_meant(template["spec"], node)}
        there: dict[str, tuple[Key, Object]] = {}
        for pod_key, pod in pods:
            is_old = pod["metadata"].get("labels", {}).get(_HASH) != revision
            if is_old or pod["spec"]["nodeName"] not in meant:
                self._store.drop(pod_key)
            else:
                there[pod["spec"]["nodeName"]] = pod_key, pod
        for node in sorted(meant):
            self._run_pod(*there.get(node) or self._new_pod(key, item, node, revision), node)
        ready = len(meant - self.unready)
        status = {
            "currentNumberScheduled": len(meant),
            "numberMisscheduled": 0,
            "desiredNumberScheduled": len(meant),
            "numberReady": ready,
            "observedGeneration": item["metadata"].get("generation", 1),
            "updatedNumberScheduled": len(meant),
            "numberAvailable": ready,
            "numberUnavailable": len(meant) - ready,
        }
        status = {name: count for name, count in status.items() if count or name in _ALWAYS}
        if status != item.get("status"):
            self._store.put(key, {**item, "status": status})

    def _new_pod(self, key: Key, item: Object, node: str, revision: str) -> tuple[Key, Object]:
        template = item["spec"]["template"]
        owner = {
            "apiVersion": DAEMON_SET.api_version, "kind": DAEMON_SET.name, "name": key.name,
            "uid": item["metadata"]["uid"], "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        given = self._writer.new_metadata()
        metadata = {
            **given,
            "name": f"{key.name}-{given['uid'][:5]}",
            "namespace": key.namespace,
            "labels": {**template["metadata"]["labels"], _HASH: revision},
            "ownerReferences": [owner],
        }
        pod = {"apiVersion": POD.api_version, "kind": POD.name, "metadata": metadata}
        return Key(POD.resource, key.namespace, metadata["name"]), {
            **pod, "spec": {**template["spec"], "nodeName": node}, "status": {},
        }  # fmt: skip

    def _run_pod(self, key: Key, pod: Object, node: str) -> None:
        """The pod is there and runs; its status says whether it is ready."""
        is_ready = str(node not in self.unready)
        address = self.addresses.get(node, "")
        former = {condition["type"]: condition for condition in pod["status"].get("conditions") or ()}
        if former.get("Ready", {}).get("status") == is_ready and pod["status"].get("podIP") == address:
            return
        conditions = [
            {"type": kind, "status": is_ready, "lastTransitionTime": now()} for kind in ("Ready", "ContainersReady")
        ]
        status = {"phase": "Running", "conditions": conditions, "podIP": address, "podIPs": [{"ip": address}]}
        self._store.put(key, {**pod, "status": {**pod["status"], **status}})


def is_meant(spec: Object, node: Object) -> bool:
    """Whether pods of this specification are to run on the node, by its labels; no node here has taints."""
    labels = node["metadata"].get("labels") or {}
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if required and not any(_matches(term, labels) for term in required["nodeSelectorTerms"]):
        return False
    return all(labels.get(name) == value for name, value in (spec.get("nodeSelector") or {}).items())


def _matches(term: Object, labels: Object) -> bool:
    """Whether a node is in a term of an affinity, which has expressions with NotIn alone; an empty one matches none."""
    expressions = term.get("matchExpressions") or ()
    return bool(expressions) and all(labels.get(wanted["key"]) not in wanted["values"] for wanted in expressions)
