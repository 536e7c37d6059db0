"""Prices, and the costs of amounts: exact sums, rounded so that the rows of a column add up to its total. Pure.

A quantity is rounded once: to a billionth of an hour or kWh, for each group, cluster and model. After that, sums and
products are exact (`Fraction`) in any order, so every form of a report has the same total.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fnmatch import fnmatchcase
from fractions import Fraction
from math import floor
from types import MappingProxyType
from typing import NamedTuple, Self

from exporter.errors import ConfigError, read_flag
from exporter.model.nothing import NOTHING
from exporter.report.rows import Amounts

SECONDS_OF_HOUR = 3600.0
JOULES_OF_KWH = 3.6e6
_MOST = 10**12  # of any currency; sums of such prices are still numbers
# A price begins with a digit: a shell turns $2.50 into `.50`, since its variable $2 is empty.
_PRICE = re.compile(r"[0-9]{1,13}(?:\.[0-9]{0,20})?")
_BILLION = 10**9
_NO_CURRENCY = "which begins with a digit and names no currency (--currency does; of $2.50 a shell leaves .50)"
_NONE: Mapping[str, Decimal] = NOTHING
Cost = Fraction | None


class Costs(NamedTuple):
    """Three costs; None if a price is missing.

    `held` is the cost of hours held and of energy. `idle`, a part of it, is the cost of idle hours. `free` is the cost
    of hours that nobody held, and no part of `held`.
    """

    held: Cost = Fraction(0)
    idle: Cost = Fraction(0)
    free: Cost = Fraction(0)

    def plus(self, other: Self) -> "Costs":
        """The sum of each cost; unknown if either part is."""
        return Costs(*map(_sum, self, other))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The prices of GPU-hours and of a kWh.

    `of_models` has a GPU-hour's price by a model's name or by a pattern with `*`; upper and lower case are alike.
    `of_any` is the price for all other models, None if they have none.
    """

    of_any: Decimal | None = None
    of_models: Mapping[str, Decimal] = field(default_factory=lambda: _NONE)
    of_kwh: Decimal | None = None

    @property
    def are_given(self) -> bool:
        """Whether GPU-hours or energy have a price."""
        return self.are_of_gpus or self.of_kwh is not None

    @property
    def are_of_gpus(self) -> bool:
        """Whether GPU-hours have a price."""
        return self.of_any is not None or bool(self.of_models)

    def of_model(self, model: str) -> Decimal | None:
        """The price of a model's GPU-hour: by its name, else by the longest pattern that fits, else `of_any`."""
        name = model.casefold()
        fits = [pattern for pattern in self.of_models if fnmatchcase(name, pattern.casefold())]
        if not fits:
            return self.of_any
        best = max(fits, key=lambda pattern: (pattern.casefold() == name, len(pattern)))
        return self.of_models[best]

    def of(self, model: str, amounts: Amounts) -> Costs:
        """The costs of amounts of a model's GPUs."""
        energy = quantity(amounts.joules, JOULES_OF_KWH) * Fraction(self.of_kwh or 0)
        if not self.are_of_gpus:
            return Costs(None if self.of_kwh is None else energy, None, None)
        price = self.of_model(model)
        held = _cost_of_hours(amounts.held, price)
        idle = _cost_of_hours(amounts.idle, price)
        free = _cost_of_hours(amounts.free, price)
        return Costs(_sum(energy, held), idle, free)


def _sum(one: Cost, other: Cost) -> Cost:
    """The sum; unknown if either cost is."""
    if one is None or other is None:
        return None
    return one + other


def _cost_of_hours(seconds: float, price: Decimal | None) -> Cost:
    """The cost of hours. It is 0 for no hours, even if their price is unknown."""
    hours = quantity(seconds, SECONDS_OF_HOUR)
    if price is not None:
        return hours * Fraction(price)
    return None if hours else Fraction(0)


def quantity(amount: float, of_one: float) -> Fraction:
    """An amount in the unit of a price, to a billionth: seconds as hours, or joules as kWh."""
    return Fraction(round(amount / of_one * _BILLION), _BILLION)


def apportioned(costs: Iterable[Cost], places: int) -> Sequence[Decimal | None]:
    """Costs rounded to `places` decimals, so that they add up to the rounded sum: the largest remainders go up.

    An unknown cost stays None, and is in no sum.
    """
    scaled = [None if cost is None else cost * 10**places for cost in costs]
    exact = {at: value for at, value in enumerate(scaled) if value is not None}
    units = {at: floor(value) for at, value in exact.items()}
    left = round(sum(exact.values(), Fraction(0))) - sum(units.values())
    largest_remainder_first = sorted(exact, key=lambda at: units[at] - exact[at])
    for at in largest_remainder_first[:left]:
        units[at] += 1
    return [Decimal(units[at]).scaleb(-places) if at in units else None for at in range(len(scaled))]


def plain(number: Fraction) -> str:
    """The product of a quantity and a price as text, with all its decimals."""
    with localcontext(prec=100):
        return f"{Decimal(number.numerator) / Decimal(number.denominator):f}"


def read_price(text: str) -> Decimal:
    """Read a price: 0 to 1e12, with a digit first and up to 20 decimals.

    Raises:
        ValueError: the text is no such price.
    """
    if not _PRICE.fullmatch(text) or Decimal(text) > _MOST:
        raise ValueError(text)
    return Decimal(text)


def read_prices(texts: Sequence[str], of_kwh: str | None) -> Prices:
    """Read prices of GPU-hours and of a kWh: `2.50` for all models, and `MODEL=PRICE` for models that differ.

    Raises:
        ConfigError: A text is no price, or two texts are about the same model. The message names the flag.
    """
    flag = "--price-per-gpu-hour"
    takes = f"PRICE or MODEL=PRICE, such as 2.50, {_NO_CURRENCY}"
    of_models: dict[str, Decimal] = {}  # "" stands for any model
    for text in texts:
        model, equals, _ = text.rpartition("=")
        price = read_flag(flag, text, lambda text: read_price(text.rpartition("=")[2]), takes)
        if model in of_models or (equals and not model):
            raise ConfigError(f"{flag}: {text!r} is the second price of the same, or has no model")
        of_models[model] = price
    kwh = (
        None
        if of_kwh is None
        else read_flag("--price-per-kwh", of_kwh, read_price, f"a price, such as 0.30, {_NO_CURRENCY}")
    )
    return Prices(of_any=of_models.pop("", None), of_models=MappingProxyType(of_models), of_kwh=kwh)
