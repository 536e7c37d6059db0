"""GPUExporters: their objects and their status (exporters/), and what the exporters say by looks.py."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from exporter.errors import SourceError
from exporter.operator.api.reader import Reader
from exporter.operator.care import Aim, Outcome
from exporter.operator.decisions import Event, events_of
from exporter.operator.exporters.nodes import node_of
from exporter.operator.exporters.objects import all_references, desired
from exporter.operator.exporters.obstacles import in_the_way, invalid, no_counters, no_pod_monitors, overlaps
from exporter.operator.exporters.overlaps import age, both, choice_of, shared, spec_of_nodes, used_of
from exporter.operator.exporters.status import Seen, status_of
from exporter.operator.looks import Looks
from exporter.operator.objects.conditions import utc_now
from exporter.operator.objects.edits import Change
from exporter.operator.objects.kinds import (
    BY_NAME,
    CLUSTER_ROLE_BINDING,
    COME_AND_GO,
    CONFIG_MAP,
    DAEMON_SET,
    GPU_EXPORTER,
    NODE,
    POD,
    POD_MONITOR,
    SERVICE_ACCOUNT,
    Key,
    Kind,
    is_for,
    key_of,
    metadata,
)
from exporter.operator.objects.names import base_name, selector
from exporter.operator.objects.obstacles import Obstacle, refused
from exporter.operator.objects.parts import AnyObject, is_going, mapping, text
from exporter.operator.objects.plan import Plan, plan
from exporter.operator.objects.reading import Invalid
from exporter.operator.objects.resources import GPUExporterSpec, read_exporter


class CareOfExporters:
    """What runs on nodes."""

    kind = GPU_EXPORTER
    look_again_seconds = 30.0

    def __init__(
        self,
        reader: Reader,
        looks: Looks,
        *,
        namespaces: Sequence[str] = (),
        image: str | None = None,
        dcgm_image: str | None = None,
    ) -> None:
        """`image` and `dcgm_image` are those of GPUExporters that name none; None: the ones of this version.

        `namespaces` are those that the operator looks at; empty: all.
        """
        self._namespaces: Sequence[str | None] = tuple(namespaces) or (None,)
        self._lists: Sequence[Sequence[AnyObject]] = ()  # of GPUExporters, as the reader gave them last
        self._nodes: dict[frozenset[tuple[str, str]], Sequence[AnyObject]] = {}  # by the labels that select them
        self._image, self._dcgm_image = image, dcgm_image
        self._reader = reader
        self._looks = looks

    async def aim(self, owner: AnyObject, served: AbstractSet[Kind]) -> Aim:
        """What is to be written for it.

        Raises:
            Invalid: its spec cannot be used.
            SourceError: it is not known what there is.
        """
        key, uid = key_of(owner), text(metadata(owner), "uid")
        spec = self._with_images(read_exporter(owner))
        lacking = await self._lacking(spec, key.namespace, served)
        avoids = await self._avoids(owner, spec, lacking)
        wanted = desired(key.name, key.namespace, uid, spec, pod_monitors=POD_MONITOR in served, avoids=avoids)
        live = await self._reader.all_of(each for each in _may_have(key) if _is_served(each, served))
        compared = plan(key, uid, wanted, live)
        if any(obstacle.holds for obstacle in (*map(in_the_way, compared.not_ours), *lacking)):
            compared = _held(compared, [item for item in live.values() if is_for(item, key)])
        return Aim(plan=compared, live=live, known=lacking)

    def _with_images(self, spec: GPUExporterSpec) -> GPUExporterSpec:
        return replace(spec, image=spec.image or self._image, dcgm_image=spec.dcgm_image or self._dcgm_image)

    async def _avoids(
        self, owner: AnyObject, spec: GPUExporterSpec, lacking: list[Obstacle]
    ) -> Sequence[Mapping[str, str]]:
        """The node selectors of older GPUExporters that have nodes of this one; why is added to what is `lacking`."""
        exporters = await self._exporters()
        avoids = []
        try:
            for rival in exporters:
                if age(rival) >= age(owner) or is_going(rival) or not await self._shared(spec, spec_of_nodes(rival)):
                    continue
                # what it wants may not be so yet
                theirs = choice_of(rival, await self._reader.get(_daemon_set_of(rival)))
                if theirs and (names := await self._shared(spec, theirs)):
                    avoids.append(theirs.node_selector)
                    lacking.append(overlaps(key_of(rival), names[0]))
        except SourceError as error:
            if error.reason != "permission":
                raise
            lacking.append(refused(error))
        return avoids

    async def _exporters(self) -> Sequence[AnyObject]:
        """All GPUExporters, as far as others are concerned with them. With a new list, nodes are listed anew, too."""
        lists = [await self._reader.neighbours(GPU_EXPORTER, each, used_of) for each in self._namespaces]
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
            self._nodes[selected] = await self._reader.listed(NODE, None, labels)
        return shared(one, other, self._nodes[selected])

    async def _lacking(self, spec: GPUExporterSpec, namespace: str, served: AbstractSet[Kind]) -> list[Obstacle]:
        """What the spec names and the cluster does not have."""
        lacking = []
        named = spec.collectors.config_map if spec.collectors else None
        if named is not None:
            # a pod that mounts none waits without a word
            found = await self._reader.get(Key(CONFIG_MAP.name, namespace, named.name))
            if found is None or not (named.key in mapping(found, "data") or named.key in mapping(found, "binaryData")):
                lacking.append(no_counters(named.name, named.key, is_there=found is not None))
        if spec.service_monitor.enabled == "on" and POD_MONITOR not in served:
            lacking.append(no_pod_monitors())
        return lacking

    async def status(self, outcome: Outcome) -> Mapping[str, object]:
        """Its status, whole.

        Raises:
            SourceError: its pods cannot be listed, for another reason than that the operator may not.
        """
        key, obstacles = key_of(outcome.owner), _obstacles(outcome)
        pods: Sequence[AnyObject] = ()
        try:
            pods = await self._reader.listed(POD, key.namespace, selector(key.name), _used_of)
        except SourceError as error:
            if error.reason != "permission":
                raise
            obstacles.append(refused(error))
        else:
            self._looks.follow(key, pods)
        daemon_set = next((item for each, item in outcome.live.items() if each.kind == DAEMON_SET.name), None)
        seen = Seen(daemon_set=daemon_set, pods=pods, troubles=self._looks.troubles(key), obstacles=obstacles)
        return status_of(outcome.owner, seen, utc_now())

    def events(self, old: AnyObject, new: AnyObject, changes: Sequence[Change]) -> Sequence[Event]:
        """What people are told."""
        return events_of(old, new, changes)

    def keep_only(self, keys: AbstractSet[Key]) -> None:
        """Ask the exporters of no others."""
        self._looks.keep_only(keys)

    async def gone(self, key: Key) -> Sequence[AnyObject]:
        """The binding that no namespaced object can own.

        Raises:
            SourceError: it cannot be read.
        """
        self._looks.forget(key)
        live = await self._reader.all_of(each for each in _may_have(key) if not each.namespace)
        return [item for item in live.values() if is_for(item, key)]


def _may_have(owner: Key) -> Sequence[Key]:
    return [Key(found.kind, found.namespace, found.name) for found in all_references(owner.name, owner.namespace)]


def _used_of(pod: AnyObject) -> AnyObject:
    """A pod without what is not looked at, which may be large: whoever makes pods in the namespace says how large."""
    about = {name: value for name, value in metadata(pod).items() if name not in ("annotations", "managedFields")}
    return {**pod, "metadata": about, "spec": {"nodeName": node_of(pod)}}


def _daemon_set_of(exporter: AnyObject) -> Key:
    key = key_of(exporter)
    return Key(DAEMON_SET.name, key.namespace, base_name(key.name))


def _is_served(key: Key, served: AbstractSet[Kind]) -> bool:
    kind = BY_NAME[key.kind]
    return kind in served or kind not in COME_AND_GO


def _held(compared: Plan, bindings: Sequence[AnyObject]) -> Plan:
    """What is left of a plan while the DaemonSet and all that it uses stay as they are.

    An account of somebody else gets no role, and loses the one that its predecessor had by `bindings`.
    """
    is_foreign = any(key_of(item).kind == SERVICE_ACCOUNT.name for item in compared.not_ours)
    left_out = (DAEMON_SET.name, CLUSTER_ROLE_BINDING.name) if is_foreign else (DAEMON_SET.name,)
    return compared._replace(
        apply=[(item, there) for item, there in compared.apply if item["kind"] not in left_out],
        delete=bindings if is_foreign else (),
    )


def _obstacles(outcome: Outcome) -> list[Obstacle]:
    """Why not all is as it is wanted, the worst first."""
    found = []
    if isinstance(outcome.problem, Invalid):
        found.append(invalid(outcome.problem))
    elif outcome.problem is not None:
        found.append(refused(outcome.problem))
    found += [refused(error) for _, error in outcome.refused]
    if outcome.aim is not None:
        found += [in_the_way(item) for item in outcome.aim.plan.not_ours]
        found += outcome.aim.known
    return found
