"""GPUExporters: their objects and their status (exporters/), and what the exporters say (exporter_health.py)."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime

from exporter.errors import SourceError, Trouble
from exporter.lenient import AnyObject, mapping, text
from exporter.operator.api.reader import Reader
from exporter.operator.event_texts import events_of
from exporter.operator.exporter_health import ExporterHealth
from exporter.operator.exporters.desired import all_keys, desired
from exporter.operator.exporters.nodes import node_of
from exporter.operator.exporters.overlaps import age, both, choice_of, shared, spec_of_nodes, used_of
from exporter.operator.exporters.status import (
    NO_POD_MONITORS,
    ExporterObjects,
    in_the_way,
    invalid,
    no_counters,
    overlaps,
    status_of,
)
from exporter.operator.objects import kinds
from exporter.operator.objects.fields import as_trouble, is_going
from exporter.operator.objects.kinds import Key, Kind, base_name, is_for, key_of, metadata, selector
from exporter.operator.objects.needs_write import Plan, plan
from exporter.operator.objects.resources import GPUExporterSpec, read_exporter
from exporter.operator.reconcile import Controller, Desired, Outcome
from exporter.reading import Invalid


class ExporterController(Controller):
    """What runs on nodes."""

    kind = kinds.GPU_EXPORTER
    look_again_seconds = 30.0
    events = staticmethod(events_of)

    def __init__(
        self,
        reader: Reader,
        health: ExporterHealth,
        *,
        event_troubles: Callable[[Key], Sequence[Trouble]] = lambda _: (),
        namespaces: Sequence[str] = (),
        image: str | None = None,
        dcgm_image: str | None = None,
    ) -> None:
        """`image` and `dcgm_image` are the defaults (None: this version's). No `namespaces` means all.

        `event_troubles` are why events on pods are not written for a GPUExporter that wants them.
        """
        self._namespaces: Sequence[str | None] = tuple(namespaces) or (None,)
        self._lists: Sequence[Sequence[AnyObject]] = ()  # of GPUExporters, as the reader gave them last
        self._nodes: dict[frozenset[tuple[str, str]], Sequence[AnyObject]] = {}  # by the labels that select them
        self._image, self._dcgm_image = image, dcgm_image
        self._reader = reader
        self._health = health
        self._event_troubles = event_troubles

    async def desired(self, owner: AnyObject, served: AbstractSet[Kind]) -> Desired:
        """What is to be written for it, and what is there."""
        key, uid = key_of(owner), text(metadata(owner), "uid")
        spec = read_exporter(owner)
        spec = replace(spec, image=spec.image or self._image, dcgm_image=spec.dcgm_image or self._dcgm_image)
        lacking = await self._lacking(spec, key.namespace, served)
        avoids = await self._avoids(owner, spec, lacking)
        wanted = desired(key.name, key.namespace, uid, spec, pod_monitors=kinds.POD_MONITOR in served, avoids=avoids)
        live = await self._reader.all_of(each for each in all_keys(key.name, key.namespace) if _is_served(each, served))
        compared = plan(key, uid, wanted, live)
        if _holding(compared, lacking):
            compared = _held(compared, [item for item in live.values() if is_for(item, key)])
        return Desired(plan=compared, live=live, about=lacking)

    async def _avoids(
        self, owner: AnyObject, spec: GPUExporterSpec, lacking: list[Trouble]
    ) -> Sequence[Mapping[str, str]]:
        """The node selectors of older GPUExporters that have nodes of this one; why is added to what is `lacking`."""
        exporters = await self._exporters()
        avoids = []
        try:
            for rival in exporters:
                if age(rival) >= age(owner) or is_going(rival) or not await self._shared(spec, spec_of_nodes(rival)):
                    continue
                # its DaemonSet may not have the nodes of its spec yet
                key = key_of(rival)
                daemon_set = Key(kinds.DAEMON_SET.name, key.namespace, base_name(key.name))
                theirs = choice_of(rival, await self._reader.get(daemon_set))
                if theirs and (names := await self._shared(spec, theirs)):
                    avoids.append(theirs.node_selector)
                    lacking.append(overlaps(key, names[0]))
        except SourceError as error:
            if error.reason != "permission":
                raise
            lacking.append(as_trouble(error))
        return avoids

    async def _exporters(self) -> Sequence[AnyObject]:
        """All GPUExporters, as far as others are concerned with them. With a new list, nodes are listed anew, too."""
        lists = [await self._reader.neighbours(kinds.GPU_EXPORTER, each, used_of) for each in self._namespaces]
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
            self._nodes[selected] = await self._reader.listed(kinds.NODE, None, labels)
        return shared(one, other, self._nodes[selected])

    async def _lacking(self, spec: GPUExporterSpec, namespace: str, served: AbstractSet[Kind]) -> list[Trouble]:
        """What the spec names and the cluster does not have."""
        lacking = []
        named = spec.collectors.config_map if spec.collectors else None
        if named is not None:
            # a pod that mounts none waits without a word
            live = await self._reader.get(Key(kinds.CONFIG_MAP.name, namespace, named.name))
            if live is None or not (named.key in mapping(live, "data") or named.key in mapping(live, "binaryData")):
                lacking.append(no_counters(named.name, named.key, is_there=live is not None))
        if spec.service_monitor.enabled == "on" and kinds.POD_MONITOR not in served:
            lacking.append(NO_POD_MONITORS)
        return lacking

    async def status(self, outcome: Outcome) -> Mapping[str, object]:
        """Its status, whole. That the operator may not list pods is an obstacle, and no error."""
        key, obstacles = key_of(outcome.owner), _obstacles(outcome)
        has_events = text(mapping(outcome.owner, "spec"), "events") == "on"
        obstacles += self._event_troubles(key) if has_events else ()
        pods: Sequence[AnyObject] = ()
        try:
            pods = await self._reader.listed(kinds.POD, key.namespace, selector(key.name), _used_of)
        except SourceError as error:
            if error.reason != "permission":
                raise
            obstacles.append(as_trouble(error))
        else:
            self._health.follow(key, pods, has_events=has_events)
        daemon_set = next((item for each, item in outcome.live.items() if each.kind == kinds.DAEMON_SET.name), None)
        seen = ExporterObjects(
            daemon_set=daemon_set,
            pods=pods,
            troubles=self._health.troubles(key),
            obstacles=obstacles,
            holding=_holding(outcome.desired.plan, outcome.desired.about) if outcome.desired else (),
        )
        return status_of(outcome.owner, seen, datetime.now(UTC))

    def keep_only(self, keys: AbstractSet[Key]) -> None:
        """Ask the exporters of no others."""
        self._health.keep_only(keys)

    async def gone(self, key: Key) -> Sequence[AnyObject]:
        """The binding that no namespaced object can own. Raises SourceError: it cannot be read."""
        self._health.forget(key)
        live = await self._reader.all_of(each for each in all_keys(key.name, key.namespace) if not each.namespace)
        return [item for item in live.values() if is_for(item, key)]


def _used_of(pod: AnyObject) -> AnyObject:
    """A pod without what nobody reads here: whoever makes pods in the namespace decides how large that is."""
    about = {name: value for name, value in metadata(pod).items() if name not in ("annotations", "managedFields")}
    return {**pod, "metadata": about, "spec": {"nodeName": node_of(pod)}}


def _is_served(key: Key, served: AbstractSet[Kind]) -> bool:
    kind = kinds.BY_NAME[key.kind]
    return kind in served or kind not in kinds.COME_AND_GO


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
