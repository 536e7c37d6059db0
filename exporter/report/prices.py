"""What GPU-hours and kWh cost. Prices have no currency: they are in whatever the user counts in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType

from exporter.report.rows import Amounts

SECONDS_OF_HOUR = 3600.0
JOULES_OF_KWH = 3.6e6
_MOST = 1e12  # of whatever currency; sums of it are still numbers
_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """`of_any` is the price of a GPU-hour of models that `of_models` does not name; None where there is none.

    A name in `of_models` is a model's, or a pattern with `*` in it; upper and lower case are alike.
    """

    of_any: float | None = None
    of_models: Mapping[str, float] = field(default_factory=lambda: _NONE)
    of_kwh: float | None = None

    @property
    def are_given(self) -> bool:
        """Whether anything has a price."""
        return self.of_any is not None or bool(self.of_models) or self.of_kwh is not None

    @property
    def are_of_gpus(self) -> bool:
        """Whether GPU-hours have one."""
        return self.of_any is not None or bool(self.of_models)

    def of_model(self, model: str) -> float | None:
        """The price of a GPU-hour: by the name itself, else by the longest pattern, else the one of all others."""
        name = model.casefold()
        fits = [pattern for pattern in self.of_models if fnmatchcase(name, pattern.casefold())]
        if not fits:
            return self.of_any
        best = max(fits, key=lambda pattern: (pattern.casefold() == name, len(pattern)))
        return self.of_models[best]

    def cost(self, amounts: Amounts, model: str) -> float | None:
        """Of what a model's row had; None where hours were held whose price is not given."""
        hours = 0.0
        if self.are_of_gpus and amounts.held:
            price = self.of_model(model)
            if price is None:
                return None
            hours = amounts.held / SECONDS_OF_HOUR * price
        return hours + amounts.joules / JOULES_OF_KWH * (self.of_kwh or 0.0)


def read_price(text: str) -> float:
    """A price: 0 to 1e12.

    Raises:
        ValueError: it is none.
    """
    price = float(text)
    if not 0 <= price <= _MOST or "_" in text:
        raise ValueError(text)
    return price


def read_prices(texts: Sequence[str], of_kwh: str | None) -> Prices:
    """`2.50` for all models, and `MODEL=PRICE` for those that differ.

    Raises:
        ValueError: one line that names the flag.
    """
    flag = "--price-per-gpu-hour"
    of_any: float | None = None
    of_models: dict[str, float] = {}
    for text in texts:
        model, equals, price = text.rpartition("=")
        try:
            found = read_price(price)
        except ValueError as error:
            raise ValueError(f"{flag}: {text!r} is not allowed; it takes PRICE or MODEL=PRICE, such as 2.50") from error
        if (equals and (not model or model in of_models)) or (not equals and of_any is not None):
            raise ValueError(f"{flag}: {text!r} is the second price of the same, or has no model")
        if equals:
            of_models[model] = found
        else:
            of_any = found
    try:
        kwh = None if of_kwh is None else read_price(of_kwh)
    except ValueError as error:
        raise ValueError(f"--price-per-kwh: {of_kwh!r} is not allowed; it takes a price, such as 0.30") from error
    return Prices(of_any=of_any, of_models=MappingProxyType(of_models), of_kwh=kwh)
