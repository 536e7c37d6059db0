"""What a container asked of CUDA. cuda_figures.json has each figure: its name, what it is, and its field of `CudaUse`.

As an object they have the names of the families pod_gpu_cuda_*, without that prefix and _total.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pkgutil import get_data
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.model.cuda import CudaUse

_OTHER = "other"


@dataclass(frozen=True, slots=True)
class CudaFigure:
    """A figure: a number in units of 10**-`power`, or a number for each value of `label`. `grows`: it never falls."""

    name: str
    text: str
    of: str
    power: int = 0
    label: str = ""
    grows: bool = True

    def amount(self, use: "CudaUse") -> int | float | Mapping[str, int]:
        """The amount of this figure in a container's use."""
        amount: Any = attrgetter(self.of)(use)
        shown: int | float | Mapping[str, int] = _BY_LABEL[self.label](amount) if self.label else amount
        return shown


def as_object(use: "CudaUse") -> dict[str, Any]:
    """The figures as an object of JSON. Copies by direction, and errors by code, are objects within it."""
    amounts = ((figure, figure.amount(use)) for figure in FIGURES)
    return {
        figure.name: amount if isinstance(amount, Mapping) or not figure.power else amount / 10**figure.power
        for figure, amount in amounts
    }


def _by_direction(amounts: Sequence[int]) -> dict[str, int]:
    """Amounts of copies by direction."""
    from exporter.model.cuda import DIRECTIONS  # noqa: PLC0415 - only a node with a probe needs it

    return dict(zip(DIRECTIONS, amounts, strict=True))


def _by_code(errors: Mapping[int, int]) -> dict[str, int]:
    """Errors by code, as a decimal number; last the sum of all codes that are not counted one by one."""
    from exporter.model.cuda import OTHER_ERRORS  # noqa: PLC0415 - see above

    named = {str(code): errors[code] for code in sorted(errors) if code != OTHER_ERRORS}
    return {**named, _OTHER: errors[OTHER_ERRORS]} if OTHER_ERRORS in errors else named


_BY_LABEL: Mapping[str, Callable[[Any], dict[str, int]]] = {"direction": _by_direction, "code": _by_code}
FIGURES = tuple(CudaFigure(**row) for row in json.loads(get_data(__package__, "cuda_figures.json") or b""))
