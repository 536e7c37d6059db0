"""GPUAutoscalers: the one object that scales for each, and what that says of itself (autoscalers/)."""

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain

from exporter.errors import SourceError
from exporter.operator.api.reader import Reader
from exporter.operator.autoscalers.choice import LOOK_AGAIN_SECONDS, There, Via, Wanted, desired, with_what_stays
from exporter.operator.autoscalers.hindrance import of_invalid
from exporter.operator.autoscalers.objects import object_name
from exporter.operator.autoscalers.scalers import name_of, uid_of, used_of
from exporter.operator.autoscalers.scaling import decision
from exporter.operator.autoscalers.status import Scaled, autoscaler_status
from exporter.operator.autoscalers.targets import Target, group_path, object_path, resource_of, target_of
from exporter.operator.care import Aim, Outcome
from exporter.operator.decisions import Event, events_of_autoscaler
from exporter.operator.objects.conditions import utc_now
from exporter.operator.objects.edits import Change
from exporter.operator.objects.kinds import (
    AUTOSCALER,
    BY_NAME,
    EVENT,
    GPU_AUTOSCALER,
    SCALED_OBJECT,
    Key,
    Kind,
    controller_of,
    key_of,
    metadata,
)
from exporter.operator.objects.obstacles import Obstacle, refused
from exporter.operator.objects.parts import AnyObject, is_going, mapping, text
from exporter.operator.objects.plan import plan
from exporter.operator.objects.reading import Invalid
from exporter.operator.objects.resources import ScaleTarget, read_autoscaler

# A GPUAutoscaler has one object, and KEDA makes one more: if somebody made others in its name, not all are read whole.
MOST_OWN = 8
_WAYS: Mapping[str, Via] = {SCALED_OBJECT.name: "keda", AUTOSCALER.name: "hpa"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What was found when the aim was taken."""

    wanted: Wanted
    scalers: Sequence[AnyObject]
    address: str


class CareOfAutoscalers:
    """What scales workloads."""

    kind = GPU_AUTOSCALER
    look_again_seconds = LOOK_AGAIN_SECONDS

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def aim(self, owner: AnyObject, served: AbstractSet[Kind]) -> Aim:
        """What is to be written for it.

        Raises:
            SourceError: it is not known what there is.
        """
        key, uid = key_of(owner), text(metadata(owner), "uid")
        kinds = [kind for kind in (AUTOSCALER, SCALED_OBJECT) if kind is AUTOSCALER or kind in served]
        scalers = await self._scalers(key, uid, kinds)
        own = [item for item in scalers if controller_of(item).get("uid") == uid]
        try:
            spec = read_autoscaler(owner)
        except Invalid as error:
            wanted, address = Wanted(trouble=with_what_stays(of_invalid(error), own)), ""
        else:
            there = There(
                keda=SCALED_OBJECT in served,
                target=await self._target(spec.scale_target_ref, key.namespace),
                scalers=scalers,
                autoscalers=await self._reader.neighbours(GPU_AUTOSCALER, key.namespace, used_of),
            )
            annotations = mapping(metadata(owner), "annotations")
            wanted, address = desired(spec, key.name, key.namespace, uid, there, annotations), spec.cluster_address
        uids = {reference.uid for reference in wanted.delete}
        names = {key_of(item) for item in wanted.apply}
        in_place = {key_of(item): item for item in scalers if key_of(item) in names}
        compared = plan(key, uid, wanted.apply, in_place)
        return Aim(
            # what stays though it is not wanted now goes on scaling: what is to go is named
            plan=compared._replace(delete=[item for item in scalers if metadata(item).get("uid") in uids]),
            live={key_of(item): item for item in own},
            waits_for=wanted.waits_for,
            known=_Known(wanted=wanted, scalers=scalers, address=address),
        )

    async def status(self, outcome: Outcome) -> Mapping[str, object]:
        """Its status, whole.

        Raises:
            SourceError: the events of what scales cannot be listed.
        """
        obstacles, known = _obstacles(outcome), outcome.aim.known if outcome.aim else None
        if not isinstance(known, _Known):
            return autoscaler_status(outcome.owner, Scaled(is_known=False, obstacles=obstacles), utc_now())
        wanted, old = known.wanted, mapping(outcome.owner, "status")
        via = _via(outcome.live)
        found = None
        if via is not None:
            uid = text(metadata(outcome.owner), "uid")
            gone = {reference.uid for reference in wanted.delete}
            scalers = [item for item in known.scalers if metadata(item).get("uid") not in gone]
            events = await self._events(scalers, uid)
            found = decision(via, uid, known.address, scalers, events, old.get("lastScale"))
        elif wanted.waits_for:
            # the old object is still going, and the new one is not there yet
            via = next((way for way in _WAYS.values() if way == old.get("via")), None)
        scaled = Scaled(
            via=via, decision=found, trouble=wanted.trouble, obstacles=obstacles, waits_for=wanted.waits_for
        )
        return autoscaler_status(outcome.owner, scaled, utc_now())

    def events(self, old: AnyObject, new: AnyObject, changes: Sequence[Change]) -> Sequence[Event]:
        """What people are told."""
        return events_of_autoscaler(old, new, changes)

    def keep_only(self, keys: AbstractSet[Key]) -> None:
        """Nothing to do: it remembers nothing of any GPUAutoscaler."""

    async def gone(self, key: Key) -> Sequence[AnyObject]:  # noqa: ARG002 - as every care has it
        """Nothing: all that it has is its own, and the garbage collector's."""
        return ()

    async def _scalers(self, key: Key, uid: str, kinds: Sequence[Kind]) -> Sequence[AnyObject]:
        """What scales in the namespace. What is the GPUAutoscaler's is read whole, and as it is now."""
        near = [item for kind in kinds for item in await self._reader.neighbours(kind, key.namespace, used_of)]
        own = {uid, *(uid_of(item) for item in near if controller_of(item).get("uid") == uid)}
        mine = [item for item in near if controller_of(item).get("uid") in own]
        asked = [(kind, object_name(key.name)) for kind in kinds]
        asked += [(BY_NAME[item["kind"]], name_of(item)) for item in mine[:MOST_OWN]]
        whole = await asyncio.gather(
            *(
                self._reader.selected(kind, {"metadata.name": name}, key.namespace)
                for kind, name in dict.fromkeys(asked)
            )
        )
        others = [item for item in near if (BY_NAME[item["kind"]], name_of(item)) not in asked]
        return [*chain.from_iterable(whole), *others]

    async def _target(self, ref: ScaleTarget, namespace: str) -> Target:
        """What is to be scaled; nothing is refused for what the operator may not read."""
        try:
            listed = await self._reader.document(group_path(ref))
            resource = resource_of(ref, listed)
            item = None
            if resource is not None and resource.is_scalable:
                item = await self._reader.document(object_path(ref, resource, namespace))
        except SourceError as error:
            if error.reason == "permission":
                return Target(state="unknown")
            raise
        return target_of(resource, item)

    async def _events(self, scalers: Sequence[AnyObject], uid: str) -> Sequence[AnyObject]:
        """The events of what scales for it: of its own object, and of the HPA that KEDA made for that."""
        own = {text(metadata(item), "uid") for item in scalers if controller_of(item).get("uid") == uid}
        below = {text(metadata(item), "uid") for item in scalers if controller_of(item).get("uid") in own}
        found = []
        for of in sorted(own | below):
            try:
                found.append(await self._reader.selected(EVENT, {"regarding.uid": of}, _namespace_of(scalers)))
            except SourceError as error:
                if error.reason != "permission":
                    raise
        return list(chain.from_iterable(found))


def _via(own: Mapping[Key, AnyObject]) -> Via | None:
    """The kind of object that scales now, of those that the GPUAutoscaler has; None where it has none."""
    return next((_WAYS[key.kind] for key, item in own.items() if not is_going(item)), None)


def _namespace_of(items: Sequence[AnyObject]) -> str:
    return text(metadata(items[0]), "namespace") if items else ""


def _obstacles(outcome: Outcome) -> Sequence[Obstacle]:
    problem = outcome.problem
    found = [refused(problem)] if isinstance(problem, SourceError) else []
    return [*found, *(refused(error) for _, error in outcome.refused)]
