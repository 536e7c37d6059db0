"""The report as CSV with rows of FOCUS 1.3 (FinOps Open Cost and Usage Specification), which cost tools load. Pure.

A row is a group's hours held, hours free, or energy, on one model's GPUs in one cluster. It has one price, so that
quantity times unit price is exactly the cost. The rows of all groups for a model in a cluster are the parts of one
origin charge. FOCUS 1.3 has all columns that are mandatory in 1.2, under the same names.
https://focus.finops.org/focus-specification/ says what each column means, and which columns may be null.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from exporter.report.costs import JOULES_OF_KWH, SECONDS_OF_HOUR, apportioned, plain, quantity
from exporter.report.forms import rows_as_csv
from exporter.report.report import Charge, Report
from exporter.report.span import start_of_month, written

_DIGITS_OF_RATIO = 9
_GPU_HOURS = "GPU-Hours"
_METHOD = "held-time"  # docs/bill.md names it
_PROVIDER = "pod-gpu-metrics-exporter"
_ALWAYS = {"ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based", "PricingCategory": "Standard"}
_SERVICE = {"ServiceCategory": "Compute", "ServiceSubcategory": "Containers", "ServiceName": "Kubernetes GPUs"}
_COSTS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
_UNIT_PRICES = ("ContractedUnitPrice", "ListUnitPrice")
_PROVIDERS = ("HostProviderName", "InvoiceIssuerName", "ProviderName", "PublisherName", "ServiceProviderName")


class _FocusRow(NamedTuple):
    """A row, its quantity, and its origin charge: cluster, model and unit."""

    origin: tuple[str, str, str]
    quantity: Fraction
    row: Mapping[str, str]


def render_focus(report: Report, currency: str) -> str:
    """The CSV of all charges that have a price; `currency` is a code of ISO 4217."""
    common = _of_all(report, currency)
    parts: list[_FocusRow] = []
    for charge in report.charges:
        parts += _of_charge(report, charge)
    rows = [{**common, **part.row, **allocated} for part, allocated in zip(parts, _allocated(parts), strict=True)]
    names = sorted(rows[0]) if rows else []
    cells = [[row[name] for name in names] for row in rows]
    return rows_as_csv([names, *cells])


def _of_all(report: Report, currency: str) -> Mapping[str, str]:
    """The columns that are the same in every row. If the span is within a month, the billing period is that month."""
    span = report.span
    begin = start_of_month(span.from_ms, 0, span.zone)
    end = start_of_month(span.from_ms, 1, span.zone)
    if span.to_ms > end:
        begin = span.from_ms
        end = span.to_ms
    return {
        "BillingAccountName": "",
        "BillingCurrency": currency,
        "BillingPeriodStart": written(begin),
        "BillingPeriodEnd": written(end),
        "ChargeClass": "",
        "ChargePeriodStart": written(span.from_ms),
        "ChargePeriodEnd": written(span.to_ms),
        **dict.fromkeys(_PROVIDERS, _PROVIDER),
        **_ALWAYS,
        **_SERVICE,
    }


def _allocated(parts: Sequence[_FocusRow]) -> Sequence[Mapping[str, str]]:
    """The columns of split costs, for each part. The ratios of an origin charge's parts add up to 1.

    Hours that nobody held are unallocated: their rows name no resource.
    """
    places_of_origins = defaultdict[tuple[str, str, str], list[int]](list)
    for place, part in enumerate(parts):
        places_of_origins[part.origin].append(place)
    columns: dict[int, Mapping[str, str]] = {}
    for places in places_of_origins.values():
        total = sum((parts[place].quantity for place in places), Fraction(0))
        shares = apportioned((parts[place].quantity / total for place in places), _DIGITS_OF_RATIO)
        for place, share in zip(places, shares, strict=True):
            columns[place] = _columns_of_part(parts[place], float(share or 0))
    return [columns[place] for place in range(len(parts))]


def _columns_of_part(part: _FocusRow, ratio: float) -> Mapping[str, str]:
    element = {
        "AllocatedRatio": ratio,
        "UsageUnit": part.row["PricingUnit"],
        "UsageQuantity": float(part.quantity),
    }
    return {
        "AllocatedMethodId": _METHOD,
        "AllocatedMethodDetails": json.dumps({"Elements": [element]}),
        "AllocatedResourceId": part.row["SubAccountId"],
        "AllocatedResourceName": part.row["SubAccountName"],
        "AllocatedTags": "",
    }


def _of_charge(report: Report, charge: Charge) -> Iterator[_FocusRow]:
    """The rows of a charge: hours held, hours free, and energy."""
    common = _of_all_its_rows(report, charge)
    model = charge.model or "unknown model"
    price = report.prices.of_model(charge.model)
    if price is not None:
        yield from _of_hours(charge, common, model, price)
    energy = quantity(charge.amounts.joules, JOULES_OF_KWH)
    price_of_kwh = report.prices.of_kwh
    if energy and price_of_kwh is not None:
        row = {**common, **_priced(f"Energy of {model}", "kWh", energy, price_of_kwh)}
        yield _FocusRow((charge.cluster, charge.model, "kWh"), energy, row)


def _of_all_its_rows(report: Report, charge: Charge) -> Mapping[str, str]:
    by = str(report.by)
    name = charge.name or ""
    tags = {by: charge.name, "model": charge.model, "cluster": charge.cluster}
    return {
        "BillingAccountId": charge.cluster or "default",
        "SubAccountId": name,
        "SubAccountName": name,
        "SubAccountType": by if name else "",
        "Tags": json.dumps({tag: value for tag, value in tags.items() if value}),
        "x_IdleQuantity": "0",
        "x_IdleCost": "0",
    }


def _of_hours(charge: Charge, common: Mapping[str, str], model: str, price: Decimal) -> Iterator[_FocusRow]:
    """The rows of hours held and hours free, at the model's price of an hour."""
    origin = (charge.cluster, charge.model, _GPU_HOURS)
    held = quantity(charge.amounts.held, SECONDS_OF_HOUR)
    if held:
        idle = quantity(charge.amounts.idle, SECONDS_OF_HOUR)
        columns_of_idle = {"x_IdleQuantity": plain(idle), "x_IdleCost": plain(idle * Fraction(price))}
        priced = _priced(f"Hours held of {model}", _GPU_HOURS, held, price)
        yield _FocusRow(origin, held, {**common, **priced, **columns_of_idle})
    free = quantity(charge.amounts.free, SECONDS_OF_HOUR)
    if free:
        priced = _priced(f"Hours that nobody held of {model}", _GPU_HOURS, free, price)
        yield _FocusRow(origin, free, {**common, **priced, "ConsumedQuantity": "0"})


def _priced(says: str, unit: str, amount: Fraction, price: Decimal) -> Mapping[str, str]:
    return {
        **dict.fromkeys(_COSTS, plain(amount * Fraction(price))),
        **dict.fromkeys(_UNIT_PRICES, f"{price:f}"),
        **dict.fromkeys(("ChargeDescription", "SkuId", "SkuPriceId", "SkuMeter"), says),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), unit),
        **dict.fromkeys(("PricingQuantity", "ConsumedQuantity"), plain(amount)),
    }
