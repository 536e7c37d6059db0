"""What kube-controller-manager, the scheduler and kubelets do in a cluster, as far as the operator's tests need it.

It works beside a real API server, which has none of them; the simulated one has its own. What no owner is left of is
deleted, and DaemonSets have a pod on each node that their selector names, and a status. Where there is a real
kube-controller-manager, that one does this: pods are only bound to nodes, made ready, and ended.
"""

import asyncio
from collections.abc import Iterable, Mapping

import aiohttp

from exporter.log import debug
from exporter.operator.objects.kinds import DAEMON_SET, GPU_AUTOSCALER, GPU_EXPORTER, MADE, POD, SCALED_OBJECT, Kind
from tests.support.api_server.daemon_sets import is_meant
from tests.support.real_api import HAS_MANAGER, Object, RealServer

LOOK_SECONDS = 0.1
_OWNERS = (GPU_EXPORTER, GPU_AUTOSCALER, SCALED_OBJECT, DAEMON_SET)


class Controllers:
    """Looks at everything, again and again. `nodes` are their labels, `unready` those whose pods are not ready."""

    def __init__(self, server: RealServer) -> None:
        self.nodes: Mapping[str, Mapping[str, str]] = {}
        self.unready: frozenset[str] = frozenset()
        self._server = server

    async def run(self) -> None:
        """Until it is cancelled; while the API server is away nothing happens."""
        while True:
            try:
                if HAS_MANAGER:
                    await self._run_pods()
                else:
                    await self._collect()
                    await self._keep_daemon_sets()
            except aiohttp.ClientError:
                debug("the API server is away")
            await asyncio.sleep(LOOK_SECONDS)

    async def _run_pods(self) -> None:
        """As the scheduler and kubelets, for pods of DaemonSets."""
        for pod in await self._all(POD) or ():
            about, spec = pod["metadata"], pod["spec"]
            if "deletionTimestamp" in about:
                await self._delete(POD, pod)
            elif "nodeName" not in spec:
                target = {"kind": "Node", "name": _node_meant(spec["affinity"])}
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": about["name"]}, "target": target}
                await self._server.ask("POST", f"{POD.path(about['namespace'], about['name'])}/binding", binding)
            else:
                await self._make_ready(pod)

    async def _collect(self) -> None:
        """Delete what no owner is left of. Of an owner whose kind is not served nobody knows: what it owns stays."""
        dependents = [(kind, item) for kind in (*MADE, POD) for item in await self._all(kind) or ()]
        owners = {kind.name: await self._all(kind) for kind in _OWNERS}
        known = {name for name, items in owners.items() if items is not None}
        uids = {item["metadata"]["uid"] for items in owners.values() for item in items or ()}
        for kind, item in dependents:
            references = item["metadata"].get("ownerReferences", ())
            if references and all(each["kind"] in known and each["uid"] not in uids for each in references):
                await self._delete(kind, item)

    async def _keep_daemon_sets(self) -> None:
        pods = await self._all(POD) or []
        for item in await self._all(DAEMON_SET) or ():
            spec = item["spec"]["template"]["spec"]
            wanted = {
                name
                for name, labels in self.nodes.items()
                if is_meant(spec, {"metadata": {"labels": labels}, "spec": {}})
            }
            own = [pod for pod in pods if _is_owned(pod, item)]
            for pod in own:
                if pod["spec"]["nodeName"] not in wanted:
                    await self._delete(POD, pod)
            for node in wanted - {pod["spec"]["nodeName"] for pod in own}:
                await self._server.ask("POST", POD.path(item["metadata"]["namespace"]), _pod(item, node))
            for pod in own:
                await self._make_ready(pod)
            await self._tell(item, wanted, own)

    async def _make_ready(self, pod: Object) -> None:
        is_ready = str(pod["spec"]["nodeName"] not in self.unready)
        told = pod["status"].get("conditions", ())
        if any((each["type"], each["status"]) == ("Ready", is_ready) for each in told):
            return
        conditions = [{"type": kind, "status": is_ready} for kind in ("Ready", "ContainersReady")]
        await self._tell_status(POD, pod, {"phase": "Running", "conditions": conditions})

    async def _tell(self, item: Object, wanted: set[str], pods: Iterable[Object]) -> None:
        on = {pod["spec"]["nodeName"] for pod in pods} & wanted
        ready = len(on - self.unready)
        status = {
            "currentNumberScheduled": len(on),
            "numberMisscheduled": 0,
            "desiredNumberScheduled": len(wanted),
            "numberReady": ready,
            "observedGeneration": item["metadata"]["generation"],
            "updatedNumberScheduled": len(on),
            "numberAvailable": ready,
            "numberUnavailable": len(wanted) - ready,
        }
        if any(item["status"].get(name, 0) != count for name, count in status.items()):
            await self._tell_status(DAEMON_SET, item, status)

    async def _tell_status(self, kind: Kind, item: Object, status: Object) -> None:
        about = item["metadata"]
        path = kind.path(about["namespace"], about["name"])
        parameters = "?fieldManager=kube-controller-manager"
        await self._server.ask("PATCH", f"{path}/status{parameters}", {"status": status})

    async def _delete(self, kind: Kind, item: Object) -> None:
        about = item["metadata"]
        options = {"preconditions": {"uid": about["uid"]}, "gracePeriodSeconds": 0}
        await self._server.ask("DELETE", kind.path(about.get("namespace"), about["name"]), options)

    async def _all(self, kind: Kind) -> list[Object] | None:
        """All objects of a kind; None where it is not served."""
        status, answer = await self._server.ask("GET", kind.path(None))
        return answer["items"] if status == 200 else None


def _node_meant(affinity: Object) -> str:
    """For which node the DaemonSet's controller made a pod."""
    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return str(term["matchFields"][0]["values"][0])


def _is_owned(pod: Object, by: Object) -> bool:
    return any(each["uid"] == by["metadata"]["uid"] for each in pod["metadata"].get("ownerReferences", ()))


def _pod(item: Object, node: str) -> Object:
    template, about = item["spec"]["template"], item["metadata"]
    owner = {"apiVersion": DAEMON_SET.api_version, "kind": DAEMON_SET.name, "name": about["name"], "uid": about["uid"]}
    return {
        "metadata": {
            "generateName": f"{about['name']}-",
            "labels": template["metadata"]["labels"],
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {**template["spec"], "nodeName": node},
    }
