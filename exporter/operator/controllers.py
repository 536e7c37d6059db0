"""The controllers of GPUExporters (exporters/, exporter_health.py) and of GPUAutoscalers (autoscalers/).

Tests: tests/operator/test_exporter_controller.py, tests/operator/test_autoscaler_controller.py.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain

from exporter.errors import SourceError, Trouble
from exporter.lenient import AnyObject, mapping, text
from exporter.model.memo import Memo
from exporter.operator.api.reader import Reader
from exporter.operator.autoscalers import choice
from exporter.operator.autoscalers.autoscaler_status import autoscaler_status, decision
from exporter.operator.autoscalers.choice import SCALERS, NamespaceObjects, Via, WantedScaler, with_what_stays
from exporter.operator.autoscalers.troubles import Resource, reason_of, resource_of, why_not
from exporter.operator.event_texts import events_of, events_of_autoscaler
from exporter.operator.exporter_health import ExporterHealth
from exporter.operator.exporters import overlaps
from exporter.operator.exporters.desired import all_keys, desired
from exporter.operator.exporters.exporter_pods import node_of
from exporter.operator.exporters.exporter_status import (
    NO_POD_MONITORS,
    ExporterObjects,
    in_the_way,
    invalid,
    no_counters,
    overlap,
    status_of,
)
from exporter.operator.exporters.overlaps import age, both, choice_of, shared, spec_of_nodes
from exporter.operator.objects import kinds
from exporter.operator.objects.kinds import (
    Key,
    Kind,
    base_name,
    controller_of,
    is_for,
    key_of,
    metadata,
    name_of,
    selector,
    uid_of,
)
from exporter.operator.objects.needs_write import WritePlan, plan
from exporter.operator.objects.object_fields import as_trouble, is_going
from exporter.operator.objects.resources import GPUExporterSpec, Object, ScaleTarget, read_autoscaler, read_exporter
from exporter.operator.reconcile import Controller, DesiredObjects, LookResult
from exporter.reading import Invalid


@contextmanager
def _noting_a_missing_right(troubles: list[Trouble]) -> Iterator[None]:
    """Go on if the operator may not read something, and add the trouble to `troubles`."""
    try:
        yield
    except SourceError as error:
        if error.reason != "permission":
            raise
        troubles.append(as_trouble(error))


@dataclass(eq=False)
class ExporterController(Controller):
    """The controller of GPUExporters.

    Attributes:
        event_troubles: gives the reasons why events on pods are not written for a GPUExporter that wants them.
        namespaces: the namespaces that the operator looks after; empty for all.
        image: the default image of the exporter, None for this version's.
        dcgm_image: the default image of dcgm-exporter, None for this version's.
    """

    kind = kinds.GPU_EXPORTER
    events = staticmethod(events_of)

    reader: Reader
    health: ExporterHealth
    event_troubles: Callable[[Key], Sequence[Trouble]] = lambda _: ()
    namespaces: Sequence[str] = ()
    image: str | None = None
    dcgm_image: str | None = None
    # made of the lists of GPUExporters that the reader gave last
    _listed: Memo[None] = field(default_factory=lambda: Memo(None))
    # nodes, by the labels that select them
    _nodes: dict[frozenset[tuple[str, str]], Sequence[AnyObject]] = field(default_factory=dict)

    async def desired(self, owner: AnyObject, served: AbstractSet[Kind]) -> DesiredObjects:
        """The objects of a GPUExporter to write, and its live objects."""
        key = key_of(owner)
        uid = uid_of(owner)
        spec = read_exporter(owner)
        spec = replace(spec, image=spec.image or self.image, dcgm_image=spec.dcgm_image or self.dcgm_image)
        lacking = await self._lacking(spec, key.namespace, served)
        avoids = await self._avoids(owner, spec, lacking)
        wanted = desired(key.name, key.namespace, uid, spec, pod_monitors=kinds.POD_MONITOR in served, avoids=avoids)
        possible = all_keys(key.name, key.namespace)
        live = await self.reader.all_of(item for item in possible if kinds.BY_NAME[item.kind].is_in(served))
        compared = plan(key, uid, wanted, live)
        if _holding(compared, lacking):
            compared = _held(compared, [item for item in live.values() if is_for(item, key)])
        return DesiredObjects(plan=compared, live=_own(live, compared), about=lacking)

    async def _avoids(
        self, owner: AnyObject, spec: GPUExporterSpec, lacking: list[Trouble]
    ) -> Sequence[Mapping[str, str]]:
        """The node selectors of older GPUExporters that choose nodes of this one. Their troubles go to `lacking`."""
        exporters = await self._exporters()
        avoids = []
        with _noting_a_missing_right(lacking):
            for rival in exporters:
                if age(rival) >= age(owner) or is_going(rival):
                    continue
                if not await self._shared(spec, spec_of_nodes(rival)):
                    continue
                # the older one's DaemonSet may not have the nodes of its spec yet
                key = key_of(rival)
                daemon_set = Key(kinds.DAEMON_SET.name, key.namespace, base_name(key.name))
                choice = choice_of(rival, await self.reader.get(daemon_set))
                names = await self._shared(spec, choice)
                if choice and names:
                    avoids.append(choice.node_selector)
                    lacking.append(overlap(key, names[0]))
        return avoids

    async def _exporters(self) -> Sequence[AnyObject]:
        """All GPUExporters, with the fields that `overlaps` reads. If a list is new, nodes are listed again, too."""
        lists = [
            await self.reader.neighbours(kinds.GPU_EXPORTER, namespace, overlaps.used_of)
            for namespace in self.namespaces or (None,)
        ]
        self._listed.of(lambda *_: self._nodes.clear(), *lists)
        return [*chain.from_iterable(lists)]

    async def _shared(self, spec: GPUExporterSpec, rival: GPUExporterSpec | None) -> Sequence[str]:
        """The names of the nodes that both specs choose."""
        if rival is None:
            return ()
        labels = both(spec, rival)
        if labels is None:
            return ()
        selected = frozenset(labels.items())
        if selected not in self._nodes:
            self._nodes[selected] = await self.reader.listed(kinds.NODE, None, labels)
        return shared(spec, rival, self._nodes[selected])

    async def _lacking(self, spec: GPUExporterSpec, namespace: str, served: AbstractSet[Kind]) -> list[Trouble]:
        """The troubles of things that the spec names and the cluster lacks."""
        lacking = []
        named = spec.collectors.config_map if spec.collectors else None
        if named is not None:
            # a pod whose ConfigMap is missing would wait without a word
            live = await self.reader.get(Key(kinds.CONFIG_MAP.name, namespace, named.name))
            if live is None or not (named.key in mapping(live, "data") or named.key in mapping(live, "binaryData")):
                lacking.append(no_counters(named.name, named.key, is_there=live is not None))
        if spec.service_monitor.enabled == "on" and kinds.POD_MONITOR not in served:
            lacking.append(NO_POD_MONITORS)
        return lacking

    async def status(self, outcome: LookResult) -> Mapping[str, object]:
        """The whole status of a GPUExporter. If the operator may not list pods, that is an obstacle, and no error."""
        key = key_of(outcome.owner)
        obstacles = _obstacles(outcome)
        has_events = text(mapping(outcome.owner, "spec"), "events") == "on"
        daemon_set = outcome.live.get(Key(kinds.DAEMON_SET.name, key.namespace, base_name(key.name)))
        pods: Sequence[AnyObject] = ()
        with _noting_a_missing_right(obstacles):
            labelled = await self.reader.listed(kinds.POD, key.namespace, selector(key.name), use=_used_of)
            # if a problem hides the objects, the DaemonSet may be unknown, too
            pods = labelled if outcome.desired is None else [pod for pod in labelled if _is_of(pod, daemon_set)]
            self.health.follow(key, pods, has_events=has_events)
        seen = ExporterObjects(
            daemon_set=daemon_set,
            pods=pods,
            troubles=self.health.troubles(key),
            event_troubles=self.event_troubles(key) if has_events else None,
            obstacles=obstacles,
            holding=_holding(outcome.desired.plan, outcome.desired.about) if outcome.desired else (),
        )
        return status_of(outcome.owner, seen, datetime.now(UTC))

    def keep_only(self, keys: AbstractSet[Key]) -> None:
        """Ask the exporters of only these GPUExporters."""
        self.health.keep_only(keys)

    async def gone(self, key: Key) -> Sequence[AnyObject]:
        """The ClusterRoleBinding, which no namespaced object can own. Raises SourceError if it cannot be read."""
        self.health.forget(key)
        live = await self.reader.all_of(other for other in all_keys(key.name, key.namespace) if not other.namespace)
        return [item for item in live.values() if is_for(item, key)]


def _used_of(pod: AnyObject) -> AnyObject:
    """A pod without the fields that nobody reads here. They may be as large as the maker of the pod likes."""
    about = {name: value for name, value in metadata(pod).items() if name not in ("annotations", "managedFields")}
    return {**pod, "metadata": about, "spec": {"nodeName": node_of(pod)}}


def _is_of(pod: AnyObject, daemon_set: AnyObject | None) -> bool:
    """Whether a DaemonSet may have made a pod. Pods of another object can have the same labels."""
    controller = controller_of(pod)
    return not controller or controller.get("uid") == metadata(daemon_set or {}).get("uid")


def _own(live: Mapping[Key, AnyObject], compared: WritePlan) -> Mapping[Key, AnyObject]:
    """The live objects without those of somebody else under a wanted name."""
    foreign = {id(item) for item in compared.not_ours}
    return {key: item for key, item in live.items() if id(item) not in foreign}


def _held(compared: WritePlan, bindings: Sequence[AnyObject]) -> WritePlan:
    """The plan without the DaemonSet.

    If the ServiceAccount is somebody else's, it gets no role, and loses the role that it has in `bindings`.
    """
    foreign = _foreign_accounts(compared)
    left_out = [kinds.DAEMON_SET.name]
    if foreign:
        left_out.append(kinds.CLUSTER_ROLE_BINDING.name)
    return compared._replace(
        apply=[(item, there) for item, there in compared.apply if item["kind"] not in left_out],
        delete=bindings if foreign else (),
    )


def _holding(compared: WritePlan, lacking: Sequence[Trouble]) -> Sequence[Trouble]:
    """The troubles that keep the DaemonSet as it is: a foreign account, or a missing list of fields."""
    no_list = (trouble for trouble in lacking if trouble.reason == "CollectorsMissing")
    return [*map(in_the_way, _foreign_accounts(compared)), *no_list]


def _foreign_accounts(compared: WritePlan) -> Sequence[AnyObject]:
    return [item for item in compared.not_ours if key_of(item).kind == kinds.SERVICE_ACCOUNT.name]


def _obstacles(outcome: LookResult) -> list[Trouble]:
    """The reasons why not all objects are as wanted, the worst first."""
    obstacles = [invalid(outcome.problem)] if isinstance(outcome.problem, Invalid) else outcome.refusals
    if outcome.desired is not None:
        obstacles += [*map(in_the_way, outcome.desired.plan.not_ours), *outcome.desired.about]
    return obstacles


# A GPUAutoscaler has one object, and KEDA makes another. If somebody makes more in its name, only this many are read.
MOST_OWN = 8
_VIA = {kind.name: via for via, kind in SCALERS.items()}


@dataclass(frozen=True, slots=True)
class AutoscalerController(Controller):
    """The controller of GPUAutoscalers."""

    kind = kinds.GPU_AUTOSCALER
    events = staticmethod(events_of_autoscaler)

    reader: Reader

    async def desired(self, owner: AnyObject, served: AbstractSet[Kind]) -> DesiredObjects:
        """The object of a GPUAutoscaler to write, and its live objects."""
        key = key_of(owner)
        uid = uid_of(owner)
        has_keda = kinds.SCALED_OBJECT in served
        scalers = await self._scalers(key, uid, has_keda=has_keda)
        own = _controlled(scalers, uid)
        address = ""
        try:
            spec = read_autoscaler(owner)
        except Invalid as error:
            wanted = WantedScaler(trouble=with_what_stays(Trouble(reason_of(error.field), str(error)), own))
        else:
            there = NamespaceObjects(
                keda=has_keda,
                not_scalable=await self._why_not(spec.scale_target_ref, key.namespace),
                scalers=scalers,
                autoscalers=await self.reader.neighbours(kinds.GPU_AUTOSCALER, key.namespace, choice.used_of),
            )
            address = spec.cluster_address
            wanted = choice.desired(spec, key.name, key.namespace, uid, there, mapping(metadata(owner), "annotations"))
        compared = plan(key, uid, wanted.apply, _with_names_of(wanted.apply, scalers))
        return DesiredObjects(
            # an object that is no longer wanted may go on scaling; only those in `wanted.delete` go
            plan=compared._replace(delete=wanted.delete),
            live={key_of(item): item for item in own},
            waits_for=wanted.waits_for,
            about=(wanted, scalers, address),
        )

    async def status(self, outcome: LookResult) -> Mapping[str, object]:
        """The whole status of a GPUAutoscaler. Events that the operator may not list are left out."""
        owner = outcome.owner
        obstacles = outcome.refusals
        now = datetime.now(UTC)
        if outcome.desired is None:
            return autoscaler_status(owner, now, wanted=None, obstacles=obstacles)
        wanted, scalers, address = outcome.desired.about
        old = mapping(owner, "status")
        decided = None
        via = _via_of(outcome.live)
        if via is not None:
            uid = uid_of(owner)
            scalers = [item for item in scalers if item not in wanted.delete]
            decided = decision(via, uid, address, scalers, await self._events(scalers, uid), old.get("lastScale"))
        elif wanted.waits_for:
            # the old object is still going, and the new one is not there yet
            via = next((scaler for scaler in SCALERS if scaler == old.get("via")), None)
        return autoscaler_status(owner, now, wanted=wanted, via=via, decision=decided, obstacles=obstacles)

    async def _scalers(self, key: Key, uid: str, *, has_keda: bool) -> Sequence[AnyObject]:
        """The HPAs and ScaledObjects of the namespace. The GPUAutoscaler's own are read whole, and as they are now."""
        scaling = (kinds.AUTOSCALER, kinds.SCALED_OBJECT) if has_keda else (kinds.AUTOSCALER,)
        near: list[AnyObject] = []
        for kind in scaling:
            near += await self.reader.neighbours(kind, key.namespace, choice.used_of)
        mine = _controlled(near, uid, *map(uid_of, _controlled(near, uid)))
        read_whole = dict.fromkeys((kind.name, base_name(key.name)) for kind in scaling)
        read_whole |= dict.fromkeys(map(_kind_and_name, mine[:MOST_OWN]))
        lists = await asyncio.gather(
            *(
                self.reader.listed(kinds.BY_NAME[kind], key.namespace, fields={"metadata.name": name})
                for kind, name in read_whole
            )
        )
        others = [item for item in near if _kind_and_name(item) not in read_whole]
        return [*chain.from_iterable(lists), *others]

    async def _why_not(self, ref: ScaleTarget, namespace: str) -> Trouble | None:
        """The trouble of a target that cannot be scaled. A target that the operator may not read has none."""
        resource: Resource | None = Resource("", is_scalable=True)
        item: AnyObject | None = {}
        with _noting_a_missing_right([]):
            resource = resource_of(ref, await self.reader.document(Kind(ref.api_version, ref.kind, "").root))
            if resource is not None and resource.is_scalable:
                path = Kind(ref.api_version, ref.kind, resource.plural).path(namespace, ref.name)
                item = await self.reader.document(path)
        return why_not(ref, namespace, resource, item)

    async def _events(self, scalers: Sequence[AnyObject], uid: str) -> Sequence[AnyObject]:
        """The events of the GPUAutoscaler's own object, and of the HPA that KEDA made for that object."""
        own = {*map(uid_of, _controlled(scalers, uid))}
        below = {*map(uid_of, _controlled(scalers, *own))}
        events: list[AnyObject] = []
        for uid_below in sorted(own | below):
            with _noting_a_missing_right([]):
                namespace = key_of(scalers[0]).namespace
                events += await self.reader.listed(kinds.EVENT, namespace, fields={"regarding.uid": uid_below})
        return events


def _controlled(items: Sequence[AnyObject], *uids: str) -> Sequence[AnyObject]:
    """The objects that an object with one of these uids controls."""
    return [item for item in items if controller_of(item).get("uid") in uids]


def _kind_and_name(item: AnyObject) -> tuple[str, str]:
    return item["kind"], name_of(item)


def _with_names_of(wanted: Sequence[Object], scalers: Sequence[AnyObject]) -> Mapping[Key, AnyObject]:
    """The objects that have the name of a wanted object."""
    by_key = {key_of(item): item for item in scalers}
    return {key: by_key[key] for key in map(key_of, wanted) if key in by_key}


def _via_of(live: Mapping[Key, AnyObject]) -> Via | None:
    """The kind of object that scales now; None if none does. An object that is being deleted does not count."""
    return next((_VIA[key.kind] for key, item in live.items() if not is_going(item)), None)
