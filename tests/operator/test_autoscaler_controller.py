"""A GPUAutoscaler's status through the life of what scales for it: `via` is what is there, and not what is to come."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from exporter.errors import SourceError, Unavailable
from exporter.lenient import AnyObject
from exporter.operator.api.reader import Reader, Use
from exporter.operator.api.writer import Refused
from exporter.operator.controllers import AutoscalerController
from exporter.operator.objects.kinds import AUTOSCALER, SCALED_OBJECT, Key, Kind, key_of, name_of
from exporter.operator.reconcile import DesiredObjects, LookResult
from tests.operator.autoscaling import REF, UID, applied, as_stored, gpu_autoscaler
from tests.operator.made import Object
from tests.operator.specs import complaints

WITH_KEDA, WITHOUT = frozenset({SCALED_OBJECT}), frozenset[Kind]()
NAMES = ("deployments", "deployments/scale")
DEPLOYMENTS = {"resources": [{"name": name, "kind": "Deployment", "namespaced": True} for name in NAMES]}
HPA = as_stored(applied(keda=False))
SCALED = as_stored(applied(keda=True))
SPEAKS = {"currentReplicas": 2, "desiredReplicas": 3, "conditions": [{"type": "AbleToScale", "status": "True"}]}


class Stored(Reader):
    """A namespace with a Deployment."""

    def __init__(self, *scalers: Object) -> None:
        self.scalers = scalers
        self.fails: SourceError | None = None

    async def neighbours(self, kind: Kind, _: str | None, use: Use) -> Sequence[AnyObject]:
        if self.fails:
            raise self.fails
        items = (*self.scalers, gpu_autoscaler("trainer", UID))
        return [use(item) for item in items if item["kind"] == kind.name]

    async def listed(
        self, kind: Kind, *_: Any, fields: Mapping[str, str] = MappingProxyType({}), **__: Any
    ) -> Sequence[AnyObject]:
        return [
            item for item in self.scalers if (item["kind"], name_of(item)) == (kind.name, fields.get("metadata.name"))
        ]

    async def document(self, path: str) -> AnyObject | None:
        return DEPLOYMENTS if path.endswith("/v1") else {"metadata": {"name": REF["name"]}}


async def told(
    stored: Stored, served: frozenset[Kind], old: Object | None = None, *, refuses: bool = False, **spec: Any
) -> Mapping[str, Any]:
    """The status after a look at which all is written, but for what the API server `refuses`."""
    owner = gpu_autoscaler("trainer", UID)
    owner |= {"status": old or {}, "spec": {**owner["spec"], **spec}}
    controller = AutoscalerController(stored)
    desired: DesiredObjects | None = None
    problem, live, refused = None, dict[Key, AnyObject](), []
    try:
        desired = await controller.desired(owner, served)
        live.update(desired.live)
        for item in desired.plan.delete:
            live.pop(key_of(item), None)
        for item, _ in desired.plan.apply if not desired.waits_for else ():
            if refuses:
                refused.append(Refused("/x", 400, "no", "Invalid"))
            else:
                live[key_of(item)] = item
    except SourceError as error:
        problem = error
    outcome = LookResult(owner=owner, desired=desired, live=live, problem=problem, refused=refused)
    status = await controller.status(outcome)
    assert complaints("GPUAutoscaler", {**gpu_autoscaler("trainer", UID), "status": status}) == []
    return status


def reason(status: Mapping[str, Any]) -> str:
    return str(status["conditions"][0]["reason"])


async def test_what_is_applied_scales() -> None:
    assert (await told(Stored(), WITHOUT))["via"] == "hpa"
    assert (await told(Stored(), WITH_KEDA))["via"] == "keda"


async def test_a_mistake_in_the_spec_leaves_the_status_of_what_goes_on_scaling() -> None:
    for bad in ({"target": "much"}, {"minReplicas": 9, "maxReplicas": 3}, {"metric": "nonsense"}):
        status = await told(Stored({**HPA, "status": SPEAKS}), WITHOUT, **bad)
        assert (status["via"], status["currentReplicas"], status["desiredReplicas"]) == ("hpa", 2, 3)
        assert "Meanwhile HorizontalPodAutoscaler trainer stays as it was" in status["conditions"][0]["message"]
    # nothing scales where there is nothing
    status = await told(Stored(), WITHOUT, {"via": "hpa"}, target="much")
    assert ("via" in status, reason(status)) == (False, "InvalidSpec")


async def test_the_new_way_is_told_when_it_is_there() -> None:
    before = await told(Stored(HPA), WITHOUT)
    waits = await told(Stored(HPA), WITH_KEDA, dict(before))
    assert (waits["via"], reason(waits)) == ("hpa", "Waiting")
    still = await told(Stored(as_stored(HPA, going=True)), WITH_KEDA, dict(waits))
    assert (still["via"], reason(still)) == ("hpa", "Waiting")
    refused = await told(Stored(), WITH_KEDA, dict(still), refuses=True)
    assert ("via" in refused, reason(refused)) == (False, "Refused")
    now = await told(Stored(), WITH_KEDA, dict(still))
    assert (now["via"], reason(now)) == ("keda", "Starting")


async def test_what_is_there_though_a_change_of_it_is_refused_goes_on() -> None:
    status = await told(Stored(SCALED), WITH_KEDA, refuses=True, maxReplicas=9)
    assert (status["via"], reason(status)) == ("keda", "Refused")


async def test_what_is_not_known_stays_as_it_was() -> None:
    before = await told(Stored({**HPA, "status": SPEAKS}), WITHOUT)
    stored = Stored(HPA)
    stored.fails = Unavailable("permission", "403", remedy="give it the right")
    status = await told(stored, WITHOUT, dict(before))
    assert reason(status) == "Forbidden"
    assert {**before, "conditions": ()} == {**status, "conditions": ()}


async def test_somebody_elses_autoscaler_leaves_none_of_ours() -> None:
    theirs = {**HPA, "metadata": {"name": "mine", "namespace": "ml", "uid": "x"}}
    status = await told(Stored(HPA, theirs), WITHOUT, {"via": "hpa"})
    assert ("via" in status, reason(status)) == (False, "TargetScaledByOther")
    assert AUTOSCALER.name in status["conditions"][0]["message"]
