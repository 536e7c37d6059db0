"""The ledger's rules, each by a table or a history small enough to be reckoned by hand."""

from exporter.model.accounts import Account
from tests.support.looks import GPU, Looks, energy, joules, row, seconds, whole


def test_energy_and_time_go_to_who_held_the_gpu_at_the_look_before() -> None:
    looks = Looks().at(0, energy("5000"), {"a": whole(0)}).at(10, energy("7500"), {"b": whole(0)})
    looks.at(20, energy("8000"), {"b": whole(0)})
    assert (joules(looks.account("a")), joules(looks.account("b")), joules(looks.account(None))) == (2.5, 0.5, 0)
    assert (seconds(looks.account("a").allocated_ns), seconds(looks.account("b").allocated_ns)) == (10, 10)
    assert (looks.account("a").allocated_ratio, looks.account("b").allocated_ratio) == (None, 1)


def test_rows_are_there_with_0_at_the_first_look() -> None:
    looks = Looks().at(0, energy("5000") + row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0.5"), {"a": whole(0)})
    found: Account = looks.account("a")
    assert (found.allocated_ns, found.active_ns, found.idle_ns, found.energy_uj) == (0, 0, 0, 0)
    assert (looks.account(None).energy_uj, looks.account(None).allocated_ns) == (0, None)


POWER, ACTIVE = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
MIG = {f"MIG-{instance}": (0, str(instance), "1g.10gb") for instance in range(7, 14)}


def instances(family: str, *values: str) -> str:
    """Rows of the instances 7, 8 and so on of GPU 0."""
    return "".join(
        row(family, value, instance=str(instance), profile="1g.10gb") for instance, value in enumerate(values, 7)
    )


def mig(*instances: int) -> list[tuple[str, str]]:
    return [("nvidia.com/mig-1g.10gb", f"MIG-{instance}") for instance in instances]


def test_the_families() -> None:
    page = energy("5000") + row(ACTIVE, "0.04")
    looks = Looks().at(0, page, {"a": whole(0)}).at(10.5, page.replace("5000", "7501"), {"a": whole(0)})
    labels = f'namespace="ns-a",pod="a",container="main",UUID="{GPU(0)}",GPU_I_ID="",node="n"'
    nobodys = f'namespace="",pod="",container="",UUID="{GPU(0)}",GPU_I_ID="",node="n"'
    assert [line for line in looks.text().splitlines() if not line.startswith("#")] == [
        f"pod_gpu_allocated_ratio{{{labels}}} 1",
        f"pod_gpu_allocated_seconds_total{{{labels}}} 10.5",
        f"pod_gpu_active_seconds_total{{{labels}}} 0.42",
        f"pod_gpu_idle_seconds_total{{{labels}}} 10.5",
        f"pod_gpu_energy_joules_total{{{labels}}} 2.501",
        f"pod_gpu_energy_joules_total{{{nobodys}}} 0",
        'pod_gpu_accounting_gap_seconds_total{reason="exporter"} 0',
        'pod_gpu_accounting_gap_seconds_total{reason="kubelet"} 0',
        'pod_gpu_accounting_gap_seconds_total{reason="page"} 0',
        'node_gpu_capacity{model="NVIDIA H100 80GB HBM3",node="n"} 1',
        'node_gpu_allocated_ratio{model="NVIDIA H100 80GB HBM3",node="n"} 1',
    ]


# issue 9, "Must show" 3
def test_the_watts_of_a_gpu_on_the_rows_of_its_instances_are_counted_once() -> None:
    page, held = instances(POWER, *["310"] * 7), {f"p{instance}": mig(instance) for instance in range(7, 14)}
    looks = Looks(mig=MIG).at(0, page, held).at(10, page, held)
    of_pods = [looks.account(f"p{instance}", instance=str(instance)).energy_uj for instance in range(7, 14)]
    assert (sum(filter(None, of_pods)), max(filter(None, of_pods)) - min(filter(None, of_pods))) == (3_100_000_000, 1)


# issue 9, "Must show" 3
def test_the_watts_of_instances_that_differ_are_their_own() -> None:
    page = instances(POWER, "100", "50")
    looks = Looks(mig=MIG).at(0, page, {"a": mig(7)}).at(10, page, {"a": mig(7)})
    assert (joules(looks.account("a", instance="7")), joules(looks.account(None, instance="8"))) == (1000, 500)
