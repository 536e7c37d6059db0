"""GPUAutoscalers: the one object that scales for each, and what that says of itself (autoscalers/)."""

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain

from exporter.errors import SourceError, Trouble
from exporter.lenient import AnyObject, mapping, text
from exporter.operator.api.reader import Reader
from exporter.operator.autoscalers.choice import (
    LOOK_AGAIN_SECONDS,
    NamespaceObjects,
    Via,
    Wanted,
    desired,
    name_of,
    uid_of,
    used_of,
    with_what_stays,
)
from exporter.operator.autoscalers.objects import object_name
from exporter.operator.autoscalers.scaling import decision
from exporter.operator.autoscalers.status import ScaledNow, autoscaler_status
from exporter.operator.autoscalers.troubles import LiveTarget, reason_of, resource_of, target_of
from exporter.operator.event_texts import events_of_autoscaler
from exporter.operator.objects import kinds
from exporter.operator.objects.fields import is_going
from exporter.operator.objects.kinds import Key, Kind, controller_of, key_of, metadata
from exporter.operator.objects.needs_write import plan
from exporter.operator.objects.resources import ScaleTarget, read_autoscaler
from exporter.operator.reconcile import Controller, Desired, Outcome
from exporter.reading import Invalid

# A GPUAutoscaler has one object, and KEDA makes one more: if somebody made others in its name, not all are read whole.
MOST_OWN = 8
_WAYS: Mapping[str, Via] = {kinds.SCALED_OBJECT.name: "keda", kinds.AUTOSCALER.name: "hpa"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _About:
    """What there was when `desired` looked."""

    wanted: Wanted
    scalers: Sequence[AnyObject]
    address: str


class AutoscalerController(Controller):
    """What scales workloads."""

    kind = kinds.GPU_AUTOSCALER
    look_again_seconds = LOOK_AGAIN_SECONDS
    events = staticmethod(events_of_autoscaler)

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

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
                target=await self._target(spec.scale_target_ref, key.namespace),
                scalers=scalers,
                autoscalers=await self._reader.neighbours(kinds.GPU_AUTOSCALER, key.namespace, used_of),
            )
            annotations = mapping(metadata(owner), "annotations")
            wanted, address = desired(spec, key.name, key.namespace, uid, there, annotations), spec.cluster_address
        names = {key_of(item) for item in wanted.apply}
        in_place = {key_of(item): item for item in scalers if key_of(item) in names}
        compared = plan(key, uid, wanted.apply, in_place)
        return Desired(
            # what stays though it is not wanted now goes on scaling: what is to go is named
            plan=compared._replace(delete=wanted.delete),
            live={key_of(item): item for item in own},
            waits_for=wanted.waits_for,
            about=_About(wanted=wanted, scalers=scalers, address=address),
        )

    async def status(self, outcome: Outcome) -> Mapping[str, object]:
        """Its status, whole. Events that the operator may not list are none."""
        obstacles, about = outcome.refusals, outcome.desired.about if outcome.desired else None
        if not isinstance(about, _About):
            return autoscaler_status(outcome.owner, ScaledNow(wanted=None, obstacles=obstacles), datetime.now(UTC))
        wanted, old = about.wanted, mapping(outcome.owner, "status")
        via = next((_WAYS[key.kind] for key, item in outcome.live.items() if not is_going(item)), None)
        decided = None
        if via is not None:
            uid = text(metadata(outcome.owner), "uid")
            scalers = [item for item in about.scalers if item not in wanted.delete]
            events = await self._events(scalers, uid)
            decided = decision(via, uid, about.address, scalers, events, old.get("lastScale"))
        elif wanted.waits_for:
            # the old object is still going, and the new one is not there yet
            via = next((way for way in _WAYS.values() if way == old.get("via")), None)
        scaled = ScaledNow(wanted=wanted, via=via, decision=decided, obstacles=obstacles)
        return autoscaler_status(outcome.owner, scaled, datetime.now(UTC))

    async def _scalers(self, key: Key, uid: str, *, has_keda: bool) -> Sequence[AnyObject]:
        """What scales in the namespace. What is the GPUAutoscaler's is read whole, and as it is now."""
        scaling = (kinds.AUTOSCALER, kinds.SCALED_OBJECT) if has_keda else (kinds.AUTOSCALER,)
        near = [item for kind in scaling for item in await self._reader.neighbours(kind, key.namespace, used_of)]
        own = {uid, *(uid_of(item) for item in near if controller_of(item).get("uid") == uid)}
        mine = [item for item in near if controller_of(item).get("uid") in own]
        asked = [(kind, object_name(key.name)) for kind in scaling]
        asked += [(kinds.BY_NAME[item["kind"]], name_of(item)) for item in mine[:MOST_OWN]]
        selected = self._reader.selected
        names = ((kind, {"metadata.name": name}) for kind, name in dict.fromkeys(asked))
        whole = await asyncio.gather(*(selected(kind, fields, key.namespace) for kind, fields in names))
        others = [item for item in near if (kinds.BY_NAME[item["kind"]], name_of(item)) not in asked]
        return [*chain.from_iterable(whole), *others]

    async def _target(self, ref: ScaleTarget, namespace: str) -> LiveTarget:
        """What is to be scaled; nothing is refused for what the operator may not read."""
        try:
            resource = resource_of(ref, await self._reader.document(Kind(ref.api_version, ref.kind, "").root))
            item = None
            if resource is not None and resource.is_scalable:
                path = Kind(ref.api_version, ref.kind, resource.plural).path(namespace, ref.name)
                item = await self._reader.document(path)
        except SourceError as error:
            if error.reason == "permission":
                return LiveTarget(state="unknown")
            raise
        return target_of(resource, item)

    async def _events(self, scalers: Sequence[AnyObject], uid: str) -> Sequence[AnyObject]:
        """The events of what scales for it: of its own object, and of the HPA that KEDA made for that."""
        own = {text(metadata(item), "uid") for item in scalers if controller_of(item).get("uid") == uid}
        below = {text(metadata(item), "uid") for item in scalers if controller_of(item).get("uid") in own}
        events: list[AnyObject] = []
        for of in sorted(own | below):
            try:
                namespace = text(metadata(scalers[0]), "namespace")
                events += await self._reader.selected(kinds.EVENT, {"regarding.uid": of}, namespace)
            except SourceError as error:
                if error.reason != "permission":
                    raise
        return events
