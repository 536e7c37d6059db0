"""The ledger's rules, each by a table or a history small enough to be reckoned by hand."""

import sys
from dataclasses import replace

import pytest

from exporter.accounts.entries import MOST_ACCOUNTS, Entries
from exporter.accounts.ledger import Ledger, Rules
from exporter.model.accounts import Account
from exporter.model.devices import DeviceKey
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from tests.support.ledgers import note
from tests.support.looks import GPU, SECOND, Held, Looks, energy, joules, owner, row, seconds, whole

POWER, ACTIVE, UTIL = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
MIG = {f"MIG-{instance}": (0, str(instance), "1g.10gb") for instance in range(7, 14)}
SHARED = "nvidia.com/gpu.shared"


def instances(family: str, *values: str, profile: str = "1g.10gb") -> str:
    """Rows of the instances 7, 8 and so on of GPU 0."""
    return "".join(row(family, value, instance=str(number), profile=profile) for number, value in enumerate(values, 7))


def mig(*instances: int) -> list[tuple[str, str]]:
    return [("nvidia.com/mig-1g.10gb", f"MIG-{instance}") for instance in instances]


def shares(*numbers: int) -> list[tuple[str, str]]:
    return [(SHARED, f"{GPU(0)}::{number}") for number in numbers]


A: Held = {"a": whole(0)}
B: Held = {"b": whole(0)}
B1: Held = {"b": [("nvidia.com/gpu", "nvidia1")]}


def test_the_holders_are_those_of_the_last_look() -> None:
    key = DeviceKey(uuid=GPU(0))
    looks = Looks().at(0, energy("5000"), A)
    assert looks.ledger.holders.owners == {key: (owner("a"),)}
    assert looks.at(10, energy("7500"), B).ledger.holders.owners == {key: (owner("b"),)}
    assert looks.at(20, energy("7500")).ledger.holders.owners == {key: ()}


def test_energy_and_time_go_to_who_held_the_gpu_at_the_look_before() -> None:
    looks = Looks().at(0, energy("5000"), A).at(10, energy("7500"), B).at(20, energy("8000"), B)
    assert (joules(looks.account("a")), joules(looks.account("b")), joules(looks.account(None))) == (2.5, 0.5, 0)
    assert (
        seconds(looks.account("a").amounts.get("allocated_ns")),
        seconds(looks.account("b").amounts.get("allocated_ns")),
    ) == (10, 10)
    assert (looks.account("a").allocated_ratio, looks.account("b").allocated_ratio) == (None, 1)


def test_rows_are_there_with_0_at_the_first_look() -> None:
    looks = Looks().at(0, energy("5000") + row(ACTIVE, "0.5"), A)
    found: Account = looks.account("a")
    assert (
        found.amounts.get("allocated_ns"),
        found.amounts.get("active_ns"),
        found.amounts.get("idle_ns"),
        found.amounts.get("energy_uj"),
    ) == (0, 0, 0, 0)
    assert (looks.account(None).amounts.get("energy_uj"), looks.account(None).amounts.get("allocated_ns")) == (0, None)


def test_what_the_page_does_not_tell_has_no_row() -> None:
    found = Looks().at(0, row("DCGM_FI_DEV_FB_USED", "1"), A).at(10, row("DCGM_FI_DEV_FB_USED", "1"), A).account("a")
    assert (
        found.amounts.get("allocated_ns"),
        found.amounts.get("active_ns"),
        found.amounts.get("idle_ns"),
        found.amounts.get("energy_uj"),
    ) == (10 * SECOND, None, None, None)


def test_the_families() -> None:
    page = energy("5000") + row(ACTIVE, "0.04")
    looks = Looks().at(0, page, A).at(10.5, page.replace("5000", "7501"), A)
    labels = f'namespace="ns-a",pod="a",container="main",UUID="{GPU(0)}",GPU_I_ID="",node="n"'
    nobodys = f'namespace="",pod="",container="",UUID="{GPU(0)}",GPU_I_ID="",node="n"'
    assert [line for line in looks.text().splitlines() if not line.startswith("#")] == [
        f"pod_gpu_allocated_ratio{{{labels}}} 1",
        f"pod_gpu_allocated_seconds_total{{{labels}}} 10.5",
        f"pod_gpu_active_seconds_total{{{labels}}} 0.42",
        f"pod_gpu_observed_seconds_total{{{labels}}} 10.5",
        f"pod_gpu_idle_seconds_total{{{labels}}} 10.5",
        f"pod_gpu_idle_unknown_seconds_total{{{labels}}} 0",
        f"pod_gpu_energy_joules_total{{{labels}}} 2.501",
        f"pod_gpu_energy_joules_total{{{nobodys}}} 0",
        f"pod_gpu_idle_since_timestamp_seconds{{{labels}}} 0",
        'pod_gpu_accounting_gap_seconds_total{reason="exporter"} 0',
        'pod_gpu_accounting_gap_seconds_total{reason="kubelet"} 0',
        'pod_gpu_accounting_gap_seconds_total{reason="page"} 0',
        'node_gpu_capacity{model="NVIDIA H100 80GB HBM3",node="n"} 1',
        'node_gpu_allocated_ratio{model="NVIDIA H100 80GB HBM3",node="n"} 1',
    ]


@pytest.mark.parametrize(
    ("page", "active", "idle"),
    [
        (row(ACTIVE, "0.5"), 5, 0),
        (row(ACTIVE, "0.05"), 0.5, 0),
        (row(ACTIVE, "0.049999"), 0.49999, 10),
        (row(ACTIVE, "0.5") + row(UTIL, "99"), 5, 0),
        (row(ACTIVE, "9223372036854775794") + row(UTIL, "20"), 2, 0),
        (row("DCGM_FI_DEV_GPU_UTIL_RATIO", "0.2"), 2, 0),
        (row(ACTIVE, "1.02"), 10, 0),
    ],
)
def test_used_and_idle_time(page: str, active: float, idle: float) -> None:
    found = Looks().at(0, page, A).at(10, page, A).account("a")
    assert (seconds(found.amounts.get("active_ns")), seconds(found.amounts.get("idle_ns"))) == (active, idle)


# issue 9, "Must show" 3
@pytest.mark.parametrize("parent", ["", row(POWER, "310")])
def test_the_watts_of_a_gpu_on_the_rows_of_its_instances_are_counted_once(parent: str) -> None:
    page, held = parent + instances(POWER, *["310"] * 7), {f"p{number}": mig(number) for number in range(7, 14)}
    looks = Looks(mig=MIG).at(0, page, held).at(10, page, held)
    of_pods = [
        looks.account(f"p{number}", instance=str(number)).amounts.get("energy_uj") or 0 for number in range(7, 14)
    ]
    assert (sum(of_pods), max(of_pods) - min(of_pods)) == (3_100_000_000, 1)


# issue 9, "Must show" 3
@pytest.mark.parametrize("parent", ["", row(POWER, "150")])
def test_the_watts_of_instances_that_differ_are_their_own(parent: str) -> None:
    page = parent + instances(POWER, "100", "50")
    looks = Looks(mig=MIG).at(0, page, {"a": mig(7)}).at(10, page, {"a": mig(7)})
    assert (joules(looks.account("a", instance="7")), joules(looks.account(None, instance="8"))) == (1000, 500)


def test_the_joules_of_instances_that_differ_are_their_own() -> None:
    held = {"a": mig(7)}
    looks = (
        Looks(mig=MIG).at(0, instances(ENERGY, "1000", "9000"), held).at(10, instances(ENERGY, "3000", "9500"), held)
    )
    # the instance with most is gone: what is left is still its own
    looks.at(20, instances(ENERGY, "3500"), held)
    assert (joules(looks.account("a", instance="7")), joules(looks.account(None, instance="8"))) == (2.5, 0.5)


def test_a_gpu_is_divided_by_activity_and_slices() -> None:
    cut = {"MIG-1": (0, "1", "3g.40gb"), "MIG-2": (0, "2", "2g.20gb"), "MIG-3": (0, "3", "1g.10gb")}
    held: Held = {"a": [("r", "MIG-1")], "b": [("r", "MIG-2")], "c": [("r", "MIG-3")]}

    def page(value: int, *active: str) -> str:
        return "".join(
            row(ENERGY, str(value), instance=number, profile=profile)
            + row(ACTIVE, of, instance=number, profile=profile)
            for (_, number, profile), of in zip(cut.values(), active, strict=True)
        )

    looks = Looks(mig=cut).at(0, page(0, "0", "0", "0"), held).at(10, page(6000, "0.5", "0.25", "1"), held)
    assert [joules(looks.account(pod, instance=i)) for pod, i in (("a", "1"), ("b", "2"), ("c", "3"))] == [3, 1, 2]
    looks.at(20, page(12_000, "0", "0", "0"), held)
    assert [joules(looks.account(pod, instance=i)) for pod, i in (("a", "1"), ("b", "2"), ("c", "3"))] == [6, 3, 3]


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        (("5000", "7000", "9000"), 4),
        (("5000", "2499", "3000"), 3),  # a start from 0
        (("5000", "4999", "5001"), 0.001),  # another reader's delay
        (("5000", "9223372036854775794", "6000"), 1),  # not supported for once
        (("5000", "NaN", "6000"), 1),
        (("1.2345678e+06", "1.2345679e+06", "1.2345680e+06"), 0.0002),
    ],
)
def test_a_counter(values: tuple[str, ...], drawn: float) -> None:
    looks = Looks()
    for number, value in enumerate(values):
        looks.at(10 * number, energy(value), A)
    assert joules(looks.account("a")) == drawn


def test_a_counter_goes_before_power_while_it_is_remembered() -> None:
    looks = Looks().at(0, energy("5000") + row(POWER, "100"), A).at(10, row(POWER, "100"), A)
    assert joules(looks.at(20, energy("6000"), A).account("a")) == 1
    for number in range(3, 40):
        looks.at(10 * number, row(POWER, "100"), A)
    # five minutes after the last value of the counter, at the look of 320 s, it is power
    assert joules(looks.account("a")) == 1 + 100 * (390 - 310)


@pytest.mark.parametrize(
    ("held", "offered", "ratios"),
    [
        ({"a": shares(0)}, 4, {"a": 0.25}),
        ({"a": shares(0, 3), "b": shares(1)}, 4, {"a": 0.5, "b": 0.25}),
        ({"a": shares(0, 3), "b": shares(1)}, 0, {"a": 2 / 3, "b": 1 / 3}),  # kubelet 1.20 does not say what it offers
        ({"a": shares(0)}, 0, {"a": 1}),
        ({"a": whole(0), "b": whole(0)}, 1, {"a": 0.5, "b": 0.5}),  # a claim that two pods share
        ({"a": [*whole(0), *shares(0)], "b": shares(1, 2, 3)}, 4, {"a": 0.625, "b": 0.375}),  # both handed out
    ],
)
def test_shares(held: Held, offered: int, ratios: dict[str, float]) -> None:
    looks = Looks(offered={(SHARED, DeviceKey(uuid=GPU(0))): offered} if offered else {})
    page = energy("1000")
    looks.at(0, page, held).at(10, energy("2000"), held)
    for pod, ratio in ratios.items():
        account = looks.account(pod)
        assert account.allocated_ratio == pytest.approx(ratio)
        assert seconds(account.amounts.get("allocated_ns")) == pytest.approx(10 * ratio)
        assert joules(account) == pytest.approx(1 / len(ratios))
    assert looks.ledger.accounts.allocated["NVIDIA H100 80GB HBM3"] == pytest.approx(sum(ratios.values()))


@pytest.mark.parametrize(
    ("model", "profile", "resource", "ratio"),
    [
        ("NVIDIA H100 80GB HBM3", "3g.40gb", "nvidia.com/mig-3g.40gb", 3 / 7),
        ("NVIDIA A30", "2g.12gb", "nvidia.com/mig-2g.12gb", 2 / 4),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "1g.24gb", "nvidia.com/mig-1g.24gb", 1 / 4),
        ("NVIDIA RTX PRO 4500 Blackwell", "1g.16gb", "nvidia.com/mig-1g.16gb", 1 / 2),
        ("of next year", "8g.400gb", "nvidia.com/mig-8g.400gb", 1),  # no less than there is
        ("of next year", "1g.50gb", "nvidia.com/mig-1g.50gb", 1 / 7),
        ("NVIDIA H100 80GB HBM3", "3g.40gb", "nvidia.com/mig-1c.3g.40gb", 1 / 7),  # a compute instance
        ("NVIDIA H100 80GB HBM3", "1g.10gb+me", "nvidia.com/mig-1g.10gb.me", 1 / 7),
    ],
)
def test_instances_are_parts_of_a_gpu(model: str, profile: str, resource: str, ratio: float) -> None:
    page = row(POWER, "1", instance="1", profile=profile, model=model)
    looks = Looks(mig={"MIG-1": (0, "1", profile)}).at(0, page, {"a": [(resource, "MIG-1")]})
    assert looks.account("a", instance="1").allocated_ratio == pytest.approx(ratio)
    assert looks.ledger.accounts.capacity == {model: 1}
    assert looks.ledger.accounts.allocated == {model: pytest.approx(ratio)}


# issue 15, line 2
def test_what_nvml_says_of_a_gpus_slices_counts_before_its_model() -> None:
    page = row(POWER, "1", instance="1", profile="2g.20gb", model="of next year")
    looks = Looks(mig={"MIG-1": (0, "1", "2g.20gb")}, slices=5)
    looks.at(0, page, {"a": [("nvidia.com/mig-2g.20gb", "MIG-1")]})
    assert looks.account("a", instance="1").allocated_ratio == 2 / 5


# issue 15, line 2
def test_the_largest_profile_of_a_model_counts_for_all_its_gpus() -> None:
    rows = [row(POWER, "1", gpu, "1", profile, model="new") for gpu, profile in enumerate(("8g.80gb", "2g.20gb"))]
    mig = {"MIG-0": (0, "1", "8g.80gb"), "MIG-1": (1, "1", "2g.20gb")}
    looks = Looks(mig=mig).at(0, "".join(rows), {"a": [("nvidia.com/mig-2g.20gb", "MIG-1")]})
    assert looks.account("a", gpu=1, instance="1").allocated_ratio == 2 / 8


def test_who_holds_all_of_a_gpu_that_is_cut_holds_its_instances() -> None:
    page = instances(ENERGY, "1000", "1000", profile="3g.40gb")
    looks = Looks().at(0, page, A).at(10, page.replace("1000", "2000"), A)
    found = [looks.account("a", instance=number) for number in ("7", "8")]
    assert [(account.allocated_ratio, joules(account)) for account in found] == [(0.5, 0.5), (0.5, 0.5)]


def test_an_instance_that_nothing_resolves_is_a_part_of_no_known_gpu() -> None:
    looks = Looks().at(0, energy("1"), {"a": [("nvidia.com/mig-3g.40gb", "MIG-x")]})
    (found,) = [account for account in looks.ledger.accounts.rows if account.owner == owner("a")]
    assert (found.device.uuid, found.allocated_ratio) == ("MIG-x", 3 / 7)
    assert looks.ledger.accounts.capacity == {"NVIDIA H100 80GB HBM3": 1}


GAPS = {"exporter": 0, "kubelet": 0, "page": 0}


def test_a_gap_of_each_kind_goes_to_who_holds_the_gpu_at_both_ends() -> None:
    start, end = energy("1000") + row(ACTIVE, "0.5"), energy("3000") + row(ACTIVE, "0.5")
    for reason in ("exporter", "kubelet"):
        for last, of_a, of_b, of_nobody in ((A, 2, 0, 0), (B, 0, 0, 2)):
            looks = Looks().at(0, start, A)
            if reason == "kubelet":
                looks.at(10, start, A, kubelet=False)
                assert looks.ledger.accounts.gap_ns == {**GAPS, reason: 10 * SECOND}
            looks.at(20.5, end, last)
            assert looks.ledger.accounts.gap_ns == {**GAPS, reason: 20.5 * SECOND}
            assert (joules(looks.account("a")), joules(looks.account(None))) == (of_a, of_nobody)
            assert seconds(looks.account("a").amounts.get("allocated_ns")) == (20.5 if of_a else 0)
            assert looks.account("a").amounts.get("active_ns") == 0
            if last is B:
                assert joules(looks.account("b")) == of_b
            looks.at(30.5, end, last)
            assert looks.ledger.accounts.gap_ns == {**GAPS, reason: 20.5 * SECOND}


# issue 15, line 3
def test_while_the_page_is_away_the_kubelet_tells_who_holds_what() -> None:
    page = energy("1000") + row(ACTIVE, "0.5")
    by_name: Held = {"c": [("nvidia.com/gpu", "nvidia0")]}
    looks = (
        Looks().at(0, page, A).at(10, None, B).at(20, None, by_name).at(30, None).at(40, page.replace("1000", "5000"))
    )
    assert looks.ledger.accounts.gap_ns == {**GAPS, "page": 40 * SECOND}
    assert looks.ledger.accounts.capacity == {"NVIDIA H100 80GB HBM3": 1}
    found = [looks.account(pod) for pod in "abc"]
    assert [seconds(account.amounts.get("allocated_ns")) for account in found] == [10, 10, 10]
    assert [joules(account) for account in (*found, looks.account(None))] == [1, 1, 1, 1]
    assert [account.amounts.get("observed_ns") or 0 for account in found] == [0, 0, 0]


def test_a_ledger_with_too_many_gpus_remembers_those_seen_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.accounts.ledger.MOST_GPUS", 2)
    looks = Looks().at(0, energy("0")).at(10, energy("0", 1)).at(20, energy("0", 2))
    assert looks.ledger.states.keys() == {GPU(1), GPU(2)}
    again = Looks().at(0, energy("0")).at(10, energy("0", 1)).at(20, energy("0")).at(30, energy("0", 2))
    assert again.ledger.states.keys() == {GPU(0), GPU(2)}
    looks.at(30, "".join(energy("1000", gpu) for gpu in range(3)))  # a page with more of them is remembered whole
    assert [joules(looks.account(None, gpu)) for gpu in range(3)] == [0, 1, 1]


# issue 15, line 3
def test_a_page_that_is_away_from_the_start_leaves_the_inventory() -> None:
    looks = Looks(mig={"MIG-1": (1, "3", "1g.10gb")}).at(0, None, A).at(10, None, A)
    assert seconds(looks.account("a").amounts.get("allocated_ns")) == 10
    # without one nobody knows what the kubelet's ids are called on the page
    assert Looks().at(0, None, B1).at(10, None, B1).ledger.accounts.rows == ()


# issue 15, line 4
@pytest.mark.parametrize(
    ("pods", "active"),
    [
        ("aabbb", {"a": 10, "b": 10}),  # half of 40 s, by time
        ("a.bb.", {"a": 20 / 3, "b": 40 / 3}),  # nobody is active while nobody holds it
        ("a....", {"a": 10}),  # no longer than it held
        ("....b", {"b": 10}),  # it came while the page was read, and has it of its first time
        ("bbbbb", {"b": 20}),  # it came with the page before: what is after this one, the next one tells
    ],
)
def test_a_page_is_shared_by_who_held_the_gpu_in_its_own_time(pods: str, active: dict[str, float]) -> None:
    looks = Looks().at(-10, energy("0") + row(ACTIVE, "0"))
    for number, pod in enumerate(pods):
        page = energy("1000" if number < 4 else "2000") + row(ACTIVE, "0" if number < 4 else "0.5")
        looks.at(10 * number, page, {pod: whole(0)} if pod != "." else {})
    page = energy("3000") + row(ACTIVE, "0")
    looks.at(50, page, {pods[-1]: whole(0)} if pods[-1] != "." else {})
    found = {of.owner.pod: (of.amounts.get("active_ns") or 0) / SECOND for of in looks.ledger.accounts.rows if of.owner}
    assert found == pytest.approx(active)


# issue 15, line 4
def test_while_nobody_holds_a_gpu_it_draws_the_least_that_is_known() -> None:
    looks = Looks().at(0, energy("0")).at(10, energy("600")).at(20, energy("1200"), A).at(30, energy("1200"), {})
    looks.at(40, energy("9800"))
    # 60 W for the 10 s that nobody held it
    assert (joules(looks.account("a")), joules(looks.account(None))) == (8, 1.8)


def test_a_look_that_is_a_little_late_is_no_gap() -> None:
    looks = Looks().at(0, energy("1000"), A).at(20, energy("2000"), B)
    assert (joules(looks.account("a")), looks.ledger.accounts.gap_ns) == (1, GAPS)


def test_of_two_pages_one_fails() -> None:
    both = energy("1000") + energy("1000", 1) + row(ACTIVE, "1") + row(ACTIVE, "1", 1)
    held: Held = {"a": whole(0), "b": whole(1)}
    looks = Looks().at(0, both, held).at(10, energy("2000") + row(ACTIVE, "1"), held, one_page_fails=True)
    assert looks.ledger.accounts.gap_ns == {**GAPS, "page": 10 * SECOND}
    looks.at(20, both.replace("1000", "3000"), held)
    found = [
        (joules(a), seconds(a.amounts.get("allocated_ns")), seconds(a.amounts.get("active_ns")))
        for a in (looks.account("a"), looks.account("b", 1))
    ]
    # the kubelet's word was there all the time; how active the second GPU was nobody saw
    assert found == [(2, 20, 20), (2, 20, 0)]
    assert looks.ledger.accounts.gap_ns == {**GAPS, "page": 10 * SECOND}


def test_a_pod_of_the_same_name_with_another_uid_is_another_account() -> None:
    looks = Looks().at(0, energy("1000"), A).at(10, energy("2000"), A, uids={"a": "u1"})
    looks.at(20, energy("3000"), A)  # the pods' source is away for a moment
    looks.at(30, energy("4000"), A, uids={"a": "u2"}).at(40, energy("5000"), A, uids={"a": "u2"})
    found = {account.labels: joules(account) for account in looks.ledger.accounts.rows if account.owner}
    assert found == {(("pod_uid", "u1"),): 3, (("pod_uid", "u2"),): 1}


def test_labels_of_pods_and_workloads_stay_when_nobody_knows_them_any_more() -> None:
    page = energy("1") + energy("1", 1)
    looks = Looks().at(0, page, {"a": whole(0), "b": whole(1)}, labels={"a": "x"}, workloads={"b": "w"}).at(10, page)
    assert looks.account("a").labels == (("label_team", "x"),)
    assert looks.account("b", 1).labels == (("workload_name", "w"), ("workload_kind", "Deployment"))
    lines = [line for line in looks.text().splitlines() if line.startswith("pod_gpu_allocated_seconds_total{")]
    assert [line.partition('node="n",')[2] for line in lines] == [
        'label_team="x",workload_kind="",workload_name=""} 10',
        'label_team="",workload_kind="Deployment",workload_name="w"} 10',
    ]


def test_a_container_that_is_gone_is_shown_twice_and_kept_for_a_while() -> None:
    looks = Looks(rules=Rules(keep_ns=60 * SECOND)).at(0, energy("1000"), A).at(10, energy("2000"))
    looks.ledger.note_shown()
    for moment in range(20, 200, 10):
        looks.at(moment, energy("2000"))
    assert joules(looks.account("a")) == 1  # shown once
    looks.ledger.note_shown()
    looks.at(200, energy("2000"))
    assert [account.owner for account in looks.ledger.accounts.rows] == [None]


def test_who_comes_back_goes_on() -> None:
    looks = Looks().at(0, energy("1000"), A).at(10, energy("2000")).at(20, energy("2500"), A)
    assert joules(looks.at(30, energy("3000"), A).account("a")) == 1.5


def test_the_oldest_of_those_gone_make_room() -> None:
    entries, device = Entries(), DeviceKey(uuid="GPU-1")
    of = [entries.of(owner(f"p{number}"), device) for number in range(MOST_ACCOUNTS)]
    entries.note_held(set(of[1:]), 5)
    entries.note_held(set(of[2:]), 7)
    new = [entries.of(owner(f"new{number}"), device) for number in range(3)]
    assert len(entries) == MOST_ACCOUNTS
    # nobody else is gone: the third is counted for nobody to see
    assert [entry.is_dropped for entry in (*of[:3], *new)] == [True, True, False, False, False, True]


@pytest.mark.parametrize("sharing", ["copy", "split", "device"])
def test_accounts_are_the_same_in_every_sharing_mode(sharing: str) -> None:
    looks = Looks(policy=LabelPolicy(sharing=sharing))
    held: Held = {"a": shares(0), "b": shares(1)}
    for number in range(3):
        page = energy(str(1000 * number)) + row(ACTIVE, "0.5")
        snapshot = looks.snapshot(page, held)
        joined = looks.joiner.join([page.encode()], Attribution(snapshot.owners, looks.policy))
        note(looks.ledger, replace(snapshot, joined=joined), 10 * number * SECOND, looks.rules)
    assert [joules(looks.account(pod)) for pod in ("a", "b", None)] == [1, 1, 0]
    assert seconds(looks.account("a").amounts.get("active_ns")) == 5


def test_gpus_that_only_the_inventory_knows_are_capacity() -> None:
    looks = Looks(mig={"MIG-1": (1, "3", "1g.10gb")}).at(0, energy("1"), A)
    assert looks.ledger.accounts.capacity == {"NVIDIA H100 80GB HBM3": 1, "": 1}
    # a GPU whose samples have no UUID is the inventory's of the same number
    looks = Looks(mig={"MIG-1": (1, "3", "1g.10gb")}).at(0, 'dcgm_power_usage{gpu="1",modelName="T4"} 50\n', B1)
    assert looks.ledger.accounts.capacity == {"T4": 1}


# issue 15, line 18
def test_a_look_at_twice_as_many_new_gpus_takes_twice_as_much_work() -> None:
    def calls(count: int) -> int:
        """Of functions, in a look that has other GPUs than the two looks before."""
        looks, ledger, made = Looks(), Ledger(), 0

        def count_call(*_: object) -> None:
            nonlocal made
            made += 1

        for look in range(3):
            gpus = range(look * count, (look + 1) * count)
            page = "".join(row(POWER, "70", gpu=gpu) + row(ACTIVE, "0.5", gpu=gpu) for gpu in gpus)
            snapshot = looks.snapshot(page, {})
            if look == 2:
                sys.setprofile(count_call)
            try:
                note(ledger, snapshot, 10 * look * SECOND, Rules())
            finally:
                sys.setprofile(None)
        return made

    assert calls(400) < 3 * calls(200)
