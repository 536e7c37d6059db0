"""A value that is made again only if an input is another object."""

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Generic, TypeVar, TypeVarTuple

Made = TypeVar("Made")
Inputs = TypeVarTuple("Inputs")


class Memo(Generic[Made]):
    """A value and the inputs of which it was made. The value stays as long as each input is the same object.

    Inputs are compared by identity, since a comparison of values would cost time at every scrape. So an input must not
    be an object that is made anew for every call, or that changes.
    """

    __slots__ = ("inputs", "value")

    def __init__(self, value: Made) -> None:
        """`value` stands until the first inputs come."""
        self.value = value
        self.inputs: tuple[Any, ...] = ()

    def of(self, make: Callable[[*Inputs], Made], *inputs: *Inputs) -> Made:
        """The value of these inputs. It calls `make` only if one of them is another object than last time."""
        if len(inputs) != len(self.inputs) or not all(map(is_, inputs, self.inputs)):
            self.value = make(*inputs)
            self.inputs = inputs
        return self.value

    def is_of(self, *inputs: object) -> bool:
        """Whether the value is of these inputs: for a value that also depends on something else, such as the time."""
        return len(inputs) == len(self.inputs) and all(map(is_, inputs, self.inputs))

    def keep(self, value: Made, *inputs: object) -> None:
        """Keep a value that the caller made of these inputs."""
        self.value = value
        self.inputs = inputs


def same(some: Sequence[object], others: Sequence[object]) -> bool:
    """Whether both hold the same objects."""
    return len(some) == len(others) and all(map(is_, some, others))
