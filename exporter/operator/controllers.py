"""What is looked after: GPUExporters (exporters/, exporter_health.py) and GPUAutoscalers (autoscalers/)."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain

from exporter.errors import SourceError, Trouble
from exporter.lenient import AnyObject, mapping, text
from exporter.operator.api.reader import Reader
from exporter.operator.autoscalers import choice
from exporter.operator.autoscalers.choice import SCALERS, NamespaceObjects, Wanted, name_of, uid_of, with_what_stays
from exporter.operator.autoscalers.status import autoscaler_status, decision
from exporter.operator.autoscalers.troubles import Resource, reason_of, resource_of, why_not
from exporter.operator.event_texts import events_of, events_of_autoscaler
from exporter.operator.exporter_health import ExporterHealth
from exporter.operator.exporters import overlaps
from exporter.operator.exporters.desired import all_keys, desired
from exporter.operator.exporters.nodes import node_of
from exporter.operator.exporters.overlaps import age, both, choice_of, shared, spec_of_nodes
from exporter.operator.exporters.status import (
    NO_POD_MONITORS,
    ExporterObjects,
    in_the_way,
    invalid,
    no_counters,
    overlap,
    status_of,
)
from exporter.operator.objects import kinds
from exporter.operator.objects.fields import as_trouble, is_going
from exporter.operator.objects.kinds import Key, Kind, base_name, controller_of, is_for, key_of, metadata, selector
from exporter.operator.objects.needs_write import Plan, plan
from exporter.operator.objects.resources import GPUExporterSpec, ScaleTarget, read_autoscaler, read_exporter
from exporter.operator.reconcile import Controller, Desired, Outcome
from exporter.reading import Invalid


@contextmanager
def _noting_a_missing_right(troubles: list[Trouble]) -> Iterator[None]:
    """Go on without what the operator may not read; why is added to `troubles`."""
    try:
        yield
    except SourceError as error:
        if error.reason != "permission":
            raise
        troubles.append(as_trouble(error))


@dataclass(eq=False)
class ExporterController(Controller):
    """What runs on nodes.

    `image` and `dcgm_image` are the defaults (None: this version's). No `namespaces` means all. `event_troubles` are
    why events on pods are not written for a GPUExporter that wants them.
    """

    kind = kinds.GPU_EXPORTER
    events = staticmethod(events_of)

    reader: Reader
    health: ExporterHealth
    event_troubles: Callable[[Key], Sequence[Trouble]] = lambda _: ()
    namespaces: Sequence[str] = ()
    image: str | None = None
    dcgm_image: str | None = None
    # of GPUExporters, as the reader gave them last
    _lists: Sequence[Sequence[AnyObject]] = ()
    # by the labels that select them
    _nodes: dict[frozenset[tuple[str, str]], Sequence[AnyObject]] = field(default_factory=dict)

    async def desired(self, owner: AnyObject, served: AbstractSet[Kind]) -> Desired:
        """What is to be written for it, and what is there."""
        key, uid = key_of(owner), text(metadata(owner), "uid")
        spec = read_exporter(owner)
        spec = replace(spec, image=spec.image or self.image, dcgm_image=spec.dcgm_image or self.dcgm_image)
        lacking = await self._lacking(spec, key.namespace, served)
        avoids = await self._avoids(owner, spec, lacking)
        wanted = desired(key.name, key.namespace, uid, spec, pod_monitors=kinds.POD_MONITOR in served, avoids=avoids)
        keys = all_keys(key.name, key.namespace)
        live = await self.reader.all_of(each for each in keys if kinds.BY_NAME[each.kind].is_in(served))
        compared = plan(key, uid, wanted, live)
        if _holding(compared, lacking):
            compared = _held(compared, [item for item in live.values() if is_for(item, key)])
        return Desired(plan=compared, live=_own(live, compared), about=lacking)

    async def _avoids(
        self, owner: AnyObject, spec: GPUExporterSpec, lacking: list[Trouble]
    ) -> Sequence[Mapping[str, str]]:
        """The node selectors of older GPUExporters that have nodes of this one; why is added to what is `lacking`."""
        exporters = await self._exporters()
        avoids = []
        with _noting_a_missing_right(lacking):
            for rival in exporters:
                if age(rival) >= age(owner) or is_going(rival) or not await self._shared(spec, spec_of_nodes(rival)):
                    continue
                # its DaemonSet may not have the nodes of its spec yet
                key = key_of(rival)
                daemon_set = Key(kinds.DAEMON_SET.name, key.namespace, base_name(key.name))
                theirs = choice_of(rival, await self.reader.get(daemon_set))
                if theirs and (names := await self._shared(spec, theirs)):
                    avoids.append(theirs.node_selector)
                    lacking.append(overlap(key, names[0]))
        return avoids

    async def _exporters(self) -> Sequence[AnyObject]:
        """All GPUExporters, as far as others are concerned with them. With a new list, nodes are listed anew, too."""
        lists = [
            await self.reader.neighbours(kinds.GPU_EXPORTER, each, overlaps.used_of)
            for each in self.namespaces or (None,)
        ]
        if len(lists) != len(self._lists) or any(new is not old for new, old in zip(lists, self._lists, strict=True)):
            self._lists = lists
            self._nodes.clear()
        return [item for each in lists for item in each]

    async def _shared(self, one: GPUExporterSpec, other: GPUExporterSpec | None) -> Sequence[str]:
        """The names of the nodes that both choose."""
        labels = both(one, other) if other else None
        if other is None or labels is None:
            return ()
        selected = frozenset(labels.items())
        if selected not in self._nodes:
            self._nodes[selected] = await self.reader.listed(kinds.NODE, None, labels)
        return shared(one, other, self._nodes[selected])

    async def _lacking(self, spec: GPUExporterSpec, namespace: str, served: AbstractSet[Kind]) -> list[Trouble]:
        """What the spec names and the cluster does not have."""
        lacking = []
        named = spec.collectors.config_map if spec.collectors else None
        if named is not None:
            # a pod that mounts none waits without a word
            live = await self.reader.get(Key(kinds.CONFIG_MAP.name, namespace, named.name))
            if live is None or not (named.key in mapping(live, "data") or named.key in mapping(live, "binaryData")):
                lacking.append(no_counters(named.name, named.key, is_there=live is not None))
        if spec.service_monitor.enabled == "on" and kinds.POD_MONITOR not in served:
            lacking.append(NO_POD_MONITORS)
        return lacking

    async def status(self, outcome: Outcome) -> Mapping[str, object]:
        """Its status, whole. That the operator may not list pods is an obstacle, and no error."""
        key, obstacles = key_of(outcome.owner), _obstacles(outcome)
        has_events = text(mapping(outcome.owner, "spec"), "events") == "on"
        daemon_set = next((item for each, item in outcome.live.items() if each.kind == kinds.DAEMON_SET.name), None)
        pods: Sequence[AnyObject] = ()
        with _noting_a_missing_right(obstacles):
            labelled = await self.reader.listed(kinds.POD, key.namespace, selector(key.name), use=_used_of)
            # what is not known because of a problem may be its DaemonSet, too
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
        """Ask the exporters of no others."""
        self.health.keep_only(keys)

    async def gone(self, key: Key) -> Sequence[AnyObject]:
        """The binding that no namespaced object can own. Raises SourceError: it cannot be read."""
        self.health.forget(key)
        live = await self.reader.all_of(each for each in all_keys(key.name, key.namespace) if not each.namespace)
        return [item for item in live.values() if is_for(item, key)]


def _used_of(pod: AnyObject) -> AnyObject:
    """A pod without what nobody reads here: whoever makes pods in the namespace decides how large that is."""
    about = {name: value for name, value in metadata(pod).items() if name not in ("annotations", "managedFields")}
    return {**pod, "metadata": about, "spec": {"nodeName": node_of(pod)}}


def _is_of(pod: AnyObject, daemon_set: AnyObject | None) -> bool:
    """Whether a DaemonSet may have made a pod: another object's pods can have the same labels."""
    controller = controller_of(pod)
    return not controller or controller.get("uid") == metadata(daemon_set or {}).get("uid")


def _own(live: Mapping[Key, AnyObject], compared: Plan) -> Mapping[Key, AnyObject]:
    """What is there without what is somebody else's under a name that is wanted."""
    foreign = {id(item) for item in compared.not_ours}
    return {key: item for key, item in live.items() if id(item) not in foreign}


def _held(compared: Plan, bindings: Sequence[AnyObject]) -> Plan:
    """A plan without the DaemonSet and what it uses; a foreign account gets no role, and loses any in `bindings`."""
    is_foreign = any(key_of(item).kind == kinds.SERVICE_ACCOUNT.name for item in compared.not_ours)
    left_out = (kinds.DAEMON_SET.name, kinds.CLUSTER_ROLE_BINDING.name) if is_foreign else (kinds.DAEMON_SET.name,)
    return compared._replace(
        apply=[(item, there) for item, there in compared.apply if item["kind"] not in left_out],
        delete=bindings if is_foreign else (),
    )


def _holding(compared: Plan, lacking: Sequence[Trouble]) -> Sequence[Trouble]:
    """Why the DaemonSet and all that it uses stay as they are: a foreign account, or no list of fields."""
    foreign = [item for item in compared.not_ours if key_of(item).kind == kinds.SERVICE_ACCOUNT.name]
    return [*map(in_the_way, foreign), *(each for each in lacking if each.reason == "CollectorsMissing")]


def _obstacles(outcome: Outcome) -> list[Trouble]:
    """Why not all is as it is wanted, the worst first."""
    obstacles = [invalid(outcome.problem)] if isinstance(outcome.problem, Invalid) else outcome.refusals
    if outcome.desired is not None:
        obstacles += [*map(in_the_way, outcome.desired.plan.not_ours), *outcome.desired.about]
    return obstacles


# A GPUAutoscaler has one object, and KEDA makes one more: if somebody made others in its name, not all are read whole.
MOST_OWN = 8
_VIA = {kind.name: via for via, kind in SCALERS.items()}


@dataclass(frozen=True, slots=True)
class AutoscalerController(Controller):
    """What scales workloads."""

    kind = kinds.GPU_AUTOSCALER
    events = staticmethod(events_of_autoscaler)

    reader: Reader

    async def desired(self, owner: AnyObject, served: AbstractSet[Kind]) -> Desired:
        """What is to be written for it, and what is there."""
        key, uid = key_of(owner), text(metadata(owner), "uid")
        scalers = await self._scalers(key, uid, has_keda=kinds.SCALED_OBJECT in served)
        own = [item for item in scalers if controller_of(item).get("uid") == uid]
        try:
            spec = read_autoscaler(owner)
        except Invalid as error:
            wanted, address = Wanted(trouble=with_what_stays(Trouble(reason_of(error.field), str(error)), own)), ""
        else:
            there = NamespaceObjects(
                keda=kinds.SCALED_OBJECT in served,
                not_scalable=await self._why_not(spec.scale_target_ref, key.namespace),
                scalers=scalers,
                autoscalers=await self.reader.neighbours(kinds.GPU_AUTOSCALER, key.namespace, choice.used_of),
            )
            annotations, address = mapping(metadata(owner), "annotations"), spec.cluster_address
            wanted = choice.desired(spec, key.name, key.namespace, uid, there, annotations)
        names = {key_of(item) for item in wanted.apply}
        in_place = {key_of(item): item for item in scalers if key_of(item) in names}
        compared = plan(key, uid, wanted.apply, in_place)
        return Desired(
            # what stays though it is not wanted now goes on scaling: what is to go is named
            plan=compared._replace(delete=wanted.delete),
            live={key_of(item): item for item in own},
            waits_for=wanted.waits_for,
            about=(wanted, scalers, address),
        )

    async def status(self, outcome: Outcome) -> Mapping[str, object]:
        """Its status, whole. Events that the operator may not list are none."""
        owner, obstacles, now = outcome.owner, outcome.refusals, datetime.now(UTC)
        if outcome.desired is None:
            return autoscaler_status(owner, now, wanted=None, obstacles=obstacles)
        wanted, scalers, address = outcome.desired.about
        old, decided = mapping(owner, "status"), None
        via = next((_VIA[key.kind] for key, item in outcome.live.items() if not is_going(item)), None)
        if via is not None:
            uid = text(metadata(owner), "uid")
            scalers = [item for item in scalers if item not in wanted.delete]
            decided = decision(via, uid, address, scalers, await self._events(scalers, uid), old.get("lastScale"))
        elif wanted.waits_for:
            # the old object is still going, and the new one is not there yet
            via = next((each for each in SCALERS if each == old.get("via")), None)
        return autoscaler_status(owner, now, wanted=wanted, via=via, decision=decided, obstacles=obstacles)

    async def _scalers(self, key: Key, uid: str, *, has_keda: bool) -> Sequence[AnyObject]:
        """What scales in the namespace. What is the GPUAutoscaler's is read whole, and as it is now."""
        scaling = (kinds.AUTOSCALER, kinds.SCALED_OBJECT) if has_keda else (kinds.AUTOSCALER,)
        near = [item for kind in scaling for item in await self.reader.neighbours(kind, key.namespace, choice.used_of)]
        own = {uid, *(uid_of(item) for item in near if controller_of(item).get("uid") == uid)}
        mine = [item for item in near if controller_of(item).get("uid") in own]
        asked = [(kind, base_name(key.name)) for kind in scaling]
        asked += [(kinds.BY_NAME[item["kind"]], name_of(item)) for item in mine[:MOST_OWN]]
        names = ((kind, {"metadata.name": name}) for kind, name in dict.fromkeys(asked))
        whole = await asyncio.gather(*(self.reader.listed(kind, key.namespace, fields=each) for kind, each in names))
        others = [item for item in near if (kinds.BY_NAME[item["kind"]], name_of(item)) not in asked]
        return [*chain.from_iterable(whole), *others]

    async def _why_not(self, ref: ScaleTarget, namespace: str) -> Trouble | None:
        """Why it cannot be scaled; nothing is refused for what the operator may not read."""
        resource: Resource | None = Resource("", is_scalable=True)
        item: AnyObject | None = {}
        with _noting_a_missing_right([]):
            resource = resource_of(ref, await self.reader.document(Kind(ref.api_version, ref.kind, "").root))
            if resource is not None and resource.is_scalable:
                path = Kind(ref.api_version, ref.kind, resource.plural).path(namespace, ref.name)
                item = await self.reader.document(path)
        return why_not(ref, namespace, resource, item)

    async def _events(self, scalers: Sequence[AnyObject], uid: str) -> Sequence[AnyObject]:
        """The events of what scales for it: of its own object, and of the HPA that KEDA made for that."""
        own = {text(metadata(item), "uid") for item in scalers if controller_of(item).get("uid") == uid}
        below = {text(metadata(item), "uid") for item in scalers if controller_of(item).get("uid") in own}
        events: list[AnyObject] = []
        for each in sorted(own | below):
            with _noting_a_missing_right([]):
                namespace = text(metadata(scalers[0]), "namespace")
                events += await self.reader.listed(kinds.EVENT, namespace, fields={"regarding.uid": each})
        return events
