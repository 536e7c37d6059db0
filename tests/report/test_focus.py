"""Rows of FOCUS, held to the rules of its 1.2 and 1.3: https://focus.finops.org/focus-specification/."""

import csv
import io
import json
import re
from collections import defaultdict
from dataclasses import replace
from decimal import Decimal

import pytest

from exporter.report.costs import Prices
from exporter.report.focus import render_focus
from exporter.report.groups import GroupBy
from exporter.report.rows import Amounts, SpanFacts
from exporter.report.span import make_span
from tests.report.made import A100, H100, HOUR, ROWS, made, row

# mandatory columns of 1.2 and 1.3 that are never null, and those that may be
NEVER_NULL = {
    "BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory",
    "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost",
    "ProviderName", "PublisherName", "ServiceCategory", "ServiceName", "ServiceProviderName", "HostProviderName",
}  # fmt: skip
MAY_BE_NULL = {"BillingAccountName", "ChargeClass", "ChargeDescription", "PricingQuantity", "PricingUnit"}
# columns that must be there, and have a value in a row of usage, where a provider measures use and has a price list
OF_USAGE = {
    "ChargeDescription", "ConsumedQuantity", "ConsumedUnit", "ContractedUnitPrice", "ListUnitPrice", "PricingCategory",
    "PricingQuantity", "PricingUnit", "SkuId", "SkuMeter", "SkuPriceId", "ServiceSubcategory", "ChargeFrequency",
}  # fmt: skip
OTHERS = {"SubAccountId", "SubAccountName", "SubAccountType", "Tags"}
# of split costs, since 1.3: there if a provider splits them
ALLOCATED = {
    "AllocatedMethodDetails", "AllocatedMethodId", "AllocatedResourceId", "AllocatedResourceName", "AllocatedTags",
}  # fmt: skip
NUMERIC = re.compile(r"-?[0-9]+(\.[0-9]+)?")
MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
UNIT = re.compile(r"[A-Za-z]+(-(Hours|Days))?")
PRICES = Prices(of_models={H100: Decimal("4.19"), A100: Decimal("1.875")}, of_kwh=Decimal("0.2875"))


def charges(by: GroupBy | None = None, prices: Prices = PRICES) -> list[dict[str, str]]:
    rows = [*ROWS, row("odd", "p", Amounts(HOUR / 7, idle=HOUR / 13, joules=12345.678), label_team='a"b,c;d\n')]
    return list(csv.DictReader(io.StringIO(render_focus(made(by, prices, rows), "EUR"), newline="")))


# issue 20, line 1
@pytest.mark.parametrize("by", [GroupBy("namespace"), GroupBy("model"), GroupBy("label", "team"), GroupBy("workload")])
def test_each_row_is_as_the_specification_has_it(by: GroupBy) -> None:
    for charge in charges(by):
        custom = {name for name in charge if name.startswith("x_")}
        assert charge.keys() - custom == NEVER_NULL | MAY_BE_NULL | OF_USAGE | OTHERS | ALLOCATED
        assert [name for name in NEVER_NULL | OF_USAGE if not charge[name]] == []
        for name in charge:
            if name.endswith(("Cost", "Quantity", "UnitPrice")):
                assert NUMERIC.fullmatch(charge[name]), name
            elif name.endswith(("Start", "End")):
                assert MOMENT.fullmatch(charge[name]), name
            elif name.endswith("Unit"):
                assert UNIT.fullmatch(charge[name]), name
        assert charge["BillingPeriodStart"] <= charge["ChargePeriodStart"] < charge["ChargePeriodEnd"]
        assert charge["ChargePeriodEnd"] <= charge["BillingPeriodEnd"]
        assert (charge["ChargeCategory"], charge["ChargeClass"]) == ("Usage", "")
        assert charge["BillingCurrency"] == "EUR"
        assert charge["PricingCategory"] in {"Standard", "Dynamic", "Committed", "Other"}
        assert charge["ChargeFrequency"] in {"One-Time", "Recurring", "Usage-Based"}
        assert charge["HostProviderName"] == charge["ServiceProviderName"]
        assert bool(charge["SubAccountId"]) == bool(charge["SubAccountType"])
        assert all(type(value) is str for value in json.loads(charge["Tags"]).values())
        quantity = Decimal(charge["PricingQuantity"])
        for cost, price in (("ContractedCost", "ContractedUnitPrice"), ("ListCost", "ListUnitPrice")):
            assert quantity * Decimal(charge[price]) == Decimal(charge[cost])
        assert charge["BilledCost"] == charge["EffectiveCost"] == charge["ListCost"]


# issue 20, line 1
def test_the_charges_add_up_to_the_report_and_what_was_free_is_nobodys() -> None:
    rows, report = charges(), made(prices=PRICES)
    free = [charge for charge in rows if not charge["SubAccountId"] and charge["PricingUnit"] == "GPU-Hours"]
    assert {charge["ConsumedQuantity"] for charge in free} == {"0"}
    assert sum(Decimal(charge["PricingQuantity"]) for charge in free) == pytest.approx(Decimal(38), abs=Decimal("0.2"))
    of_vision = [charge for charge in rows if charge["SubAccountId"] == "vision"]
    (line,) = (line for line in report.groups if line.name == "vision")
    assert line.costs.held is not None
    assert sum(Decimal(charge["BilledCost"]) for charge in of_vision) == Decimal(str(float(line.costs.held)))
    assert sum(Decimal(charge["x_IdleCost"]) for charge in of_vision) == Decimal("4.19") + Decimal("1.875")


# issue 22, line 39
@pytest.mark.parametrize("by", [GroupBy("namespace"), GroupBy("workload")])
def test_the_parts_of_a_models_hours_add_up_to_one(by: GroupBy) -> None:
    ratios = defaultdict[tuple[str, str], list[Decimal]](list)
    for charge in charges(by):
        assert charge["AllocatedMethodId"]
        assert bool(charge["AllocatedResourceId"]) == bool(charge["AllocatedResourceName"])
        assert charge["AllocatedResourceId"] == charge["SubAccountId"]
        (element,) = json.loads(charge["AllocatedMethodDetails"], parse_float=Decimal)["Elements"]
        assert (element["UsageUnit"], charge["AllocatedTags"]) == (charge["PricingUnit"], "")
        model = json.loads(charge["Tags"]).get("model", "")
        ratios[model, charge["PricingUnit"]].append(Decimal(element["AllocatedRatio"]))
    assert {key: sum(parts) for key, parts in ratios.items()} == dict.fromkeys(ratios, 1)
    assert max(len(parts) for parts in ratios.values()) > 1


def test_what_has_no_price_is_no_charge_and_a_top_folds_none() -> None:
    only = Prices(of_models={H100: Decimal(4)})
    assert {json.loads(charge["Tags"])["model"] for charge in charges(prices=only)} == {H100}
    assert render_focus(made(prices=Prices()), "EUR") == "\r\n"


def test_the_billing_period_is_the_month_or_the_longer_span() -> None:
    rows = charges()
    assert {(row["BillingPeriodStart"], row["BillingPeriodEnd"]) for row in rows} == {
        ("2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z")
    }
    span = make_span(start="2026-08-20", end="2026-10-02", now_ms=1_793_000_000_000)
    longer = csv.DictReader(io.StringIO(render_focus(replace(made(prices=PRICES), span=span), "EUR")))
    assert {(row["BillingPeriodStart"], row["BillingPeriodEnd"]) for row in longer} == {
        ("2026-08-20T00:00:00Z", "2026-10-02T00:00:00Z")
    }


def test_a_span_that_ends_with_its_month_is_billed_in_that_month() -> None:
    span = make_span(start="2026-09-15", end="2026-10-01", now_ms=1_793_000_000_000)
    rows = csv.DictReader(io.StringIO(render_focus(replace(made(prices=PRICES), span=span), "EUR")))
    assert {(row["BillingPeriodStart"], row["BillingPeriodEnd"]) for row in rows} == {
        ("2026-09-01T00:00:00Z", "2026-10-01T00:00:00Z")
    }


def test_a_part_of_an_hour_has_nine_digits_and_the_least_part_none() -> None:
    thirds = [row(name, "p", Amounts(2 * HOUR)) for name in "abc"]
    rows = [*thirds, row("least", "p", Amounts(3.6e-6))]
    text = render_focus(made(prices=PRICES, rows=rows, facts=SpanFacts(models={"GPU-1": H100})), "EUR")
    charges = list(csv.DictReader(io.StringIO(text, newline="")))
    elements = {one["SubAccountId"]: json.loads(one["AllocatedMethodDetails"])["Elements"] for one in charges}
    assert {name: element["AllocatedRatio"] for name, (element,) in elements.items()} == {
        "a": 0.333333334, "b": 0.333333333, "c": 0.333333333, "least": 0.0,
    }  # fmt: skip
    assert elements["least"][0]["UsageQuantity"] == 1e-9


def test_each_row_says_what_it_is_of_and_what_was_idle() -> None:
    of_vision = [
        one for one in charges() if one["SubAccountId"] == "vision" and one["ChargeDescription"].endswith(H100)
    ]
    held, energy = of_vision
    names = ("ChargeDescription", "PricingUnit", "PricingQuantity", "ConsumedQuantity", "BilledCost")
    assert [held[name] for name in names] == [f"Hours held of {H100}", "GPU-Hours", "20", "20", "83.8"]
    assert [energy[name] for name in names] == [f"Energy of {H100}", "kWh", "6", "6", "1.725"]
    assert [held[name] for name in ("x_IdleQuantity", "x_IdleCost", "SubAccountType")] == ["1", "4.19", "namespace"]
    assert [energy[name] for name in ("x_IdleQuantity", "x_IdleCost")] == ["0", "0"]
    assert json.loads(held["Tags"]) == {"namespace": "vision", "model": H100}
    (free,) = (one for one in charges() if one["ChargeDescription"] == f"Hours that nobody held of {A100}")
    assert [free[name] for name in (*names[1:3], "SubAccountType")] == ["GPU-Hours", "10", ""]
    assert held["BillingAccountId"] == "default"


def test_a_row_of_a_cluster_and_an_unknown_model_says_so() -> None:
    (key, amounts, labels) = row("a", "p", Amounts(HOUR), uuid="GPU-9")
    of_cluster = [(key._replace(cluster="x"), amounts, labels)]
    any_model = Prices(of_any=Decimal(2))
    text = render_focus(made(prices=any_model, rows=of_cluster, facts=SpanFacts()), "EUR")
    (charge,) = csv.DictReader(io.StringIO(text, newline=""))
    assert (charge["BillingAccountId"], charge["SkuId"]) == ("x", "Hours held of unknown model")
    assert json.loads(charge["Tags"]) == {"namespace": "a", "cluster": "x"}
