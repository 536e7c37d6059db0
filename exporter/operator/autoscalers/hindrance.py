"""Why a GPUAutoscaler does not do what it says, as its status tells it. Pure."""

from typing import NamedTuple

from exporter.operator.objects.reading import Invalid

# The fields that have a reason of their own; each stands for those below it, too.
_REASONS = {
    "spec.scaleTargetRef": "InvalidTarget",
    "spec.metric": "MetricUnknown",
    "spec.behavior": "InvalidBehavior",
}
INVALID_SPEC = "InvalidSpec"


class Hindrance(NamedTuple):
    """`reason` is one word for programs, `message` names the field where one is at fault, and says what to do.

    Where it does not block, the workload is scaled all the same, though not in every way that is asked for.
    """

    reason: str
    message: str
    blocks: bool = True


def at(field: str, why: str, remedy: str, *, reason: str | None = None, blocks: bool = True) -> Hindrance:
    """What is wrong with a field."""
    return Hindrance(reason or reason_of(field), f"{field}: {why} -> {remedy}", blocks)


def of_invalid(error: Invalid) -> Hindrance:
    """What the reader of a spec says; it says what to do, too."""
    return Hindrance(reason_of(error.field), str(error))


def reason_of(field: str) -> str:
    """The reason for a field that cannot be used."""
    return next(
        (
            reason
            for known, reason in _REASONS.items()
            if field == known or field.startswith((f"{known}.", f"{known}["))
        ),
        INVALID_SPEC,
    )
