"""What a report groups rows of the accounts by, and what they cost, in whatever the user counts in. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Literal

from exporter.report.rows import Amounts, RowKey

Kind = Literal["namespace", "workload", "label", "model", "node", "pod"]
KINDS: tuple[Kind, ...] = ("namespace", "workload", "model", "node", "pod")
_LABEL = "label:"
WORKLOAD_LABELS = ("workload_name", "workload_kind")
# kube-state-metrics' convention, which --labels.pod-labels keeps
_POD_LABEL_PREFIX = "label_"
SECONDS_OF_HOUR = 3600.0
JOULES_OF_KWH = 3.6e6
_MOST = 1e12  # of whatever currency; sums of it are still numbers
_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class GroupBy:
    """What to group by. `label` is the pod's label, where it is by one."""

    kind: Kind
    label: str = ""

    def __str__(self) -> str:
        return f"{_LABEL}{self.label}" if self.label else self.kind

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names that the pod's label may have on a series: as the exporter adds it, else its own."""
        name = re.sub(r"[^a-zA-Z0-9_]", "_", self.label)
        return (_POD_LABEL_PREFIX + name, name) if self.label else ()

    @property
    def wanted(self) -> frozenset[str]:
        """The labels of series from which groups get their names."""
        return frozenset((*WORKLOAD_LABELS, *self.label_names))

    def name_of(self, key: RowKey, labels: Mapping[str, str], model: str) -> str | None:
        """The group of a row; None where nobody held it, or the group is unknown."""
        match self.kind:
            case "model":
                return model or None
            case "node":
                return key.node or None
            case "workload":
                return workload_of(key, labels)
            case "label":
                return next((labels[name] for name in self.label_names if labels.get(name)), None)
            case "pod":
                return f"{key.namespace}/{key.pod}" if key.pod else None
            case "namespace":
                return key.namespace or None


def read_by(text: str) -> GroupBy:
    """`namespace`, `workload`, `model`, `node`, `pod` or `label:NAME`.

    Raises:
        ValueError: it is none of these.
    """
    for kind in KINDS:
        if text == kind:
            return GroupBy(kind)
    label = text.removeprefix(_LABEL)
    if label == text or not label:
        raise ValueError(text)
    return GroupBy("label", label)


def workload_of(key: RowKey, labels: Mapping[str, str]) -> str | None:
    """A row's workload, such as `shop/Deployment/render`; else its pod; None of what nobody held."""
    if not key.pod:
        return None
    name = labels.get("workload_name")
    kind = labels.get("workload_kind")
    return f"{key.namespace}/{kind}/{name}" if name and kind else f"{key.namespace}/{name or key.pod}"


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
        return self.are_of_gpus or self.of_kwh is not None

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
        """The cost of what a model's row had; None where a price of hours that were held is missing."""
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
            price_read = read_price(price)
        except ValueError as error:
            raise ValueError(f"{flag}: {text!r} is not allowed; it takes PRICE or MODEL=PRICE, such as 2.50") from error
        if (equals and (not model or model in of_models)) or (not equals and of_any is not None):
            raise ValueError(f"{flag}: {text!r} is the second price of the same, or has no model")
        if equals:
            of_models[model] = price_read
        else:
            of_any = price_read
    try:
        kwh = None if of_kwh is None else read_price(of_kwh)
    except ValueError as error:
        raise ValueError(f"--price-per-kwh: {of_kwh!r} is not allowed; it takes a price, such as 0.30") from error
    return Prices(of_any=of_any, of_models=MappingProxyType(of_models), of_kwh=kwh)
