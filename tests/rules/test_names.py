"""The rules ask for metrics that there are: the exporter, or a simulated dcgm-exporter, serves each of them."""

import re

import pytest

from exporter.cluster.outputs.own_metrics import OF_NODES
from exporter.outputs.families.catalogue import FAMILIES
from tests.rules.opencost import OF_OPENCOST
from tests.rules.shipped import metrics, records, rules
from tests.rules.test_queues import FAMILIES as OF_QUEUES
from tests.rules.test_tokens import PROMPTS, SERVERS
from tests.support.exporter import Start
from tests.support.names import names_on, simulated_names

OWN: dict[str, set[str]] = {
    **{family.name: set(family.labels) for family in FAMILIES},
    **{family.name: set(family.labels) for family in OF_NODES},
}
LABELS_OF_RULES = {"cluster"}  # an external label
RENAMED = {f"opencost_{name}" for name in OF_OPENCOST}  # by scrape-config-opencost.yaml
BY_PROMETHEUS = {"up", "ALERTS"}
# as their documentation and sources name them: docs/bill.md#tokens
OF_MODEL_SERVERS = {*SERVERS, *PROMPTS}
RECORD = re.compile(
    r"[a-z]+(?:_[a-z]+)*:[a-z_0-9]+:(?:sum|max|model|rate5m|ratio|ratio_rate5m|new15m|new1d|worst|first_holders|queue)"
)
SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\{([^{}]*)\}")
BY = re.compile(r"\b(?:by|on|group_left) \(([^)]*)\)")


@pytest.fixture(scope="module")
def dcgm() -> set[str]:
    return simulated_names()


async def test_every_metric_of_a_rule_is_served_by_somebody(start: Start, dcgm: set[str]) -> None:
    exporter = await start()
    _, page = await exporter.get("/metrics")
    # families without a sample on this node, and the program's own (process_…), which prometheus_client names
    own = OWN.keys() | names_on(page)
    for rule in rules():
        others = BY_PROMETHEUS | OF_MODEL_SERVERS | RENAMED | OF_QUEUES.keys()
        for name in metrics(rule["expr"]) - records().keys() - others:
            assert name in own or name in dcgm, (rule.get("alert") or rule["record"], name)


def test_a_wrong_name_would_be_noticed() -> None:
    expression = (
        'sum by (le) (rate(a_total{x="by (y)"}[5m] offset 1h)) > 0.5 and on (b) c_d unless 0 * level:c:sum < 1e9'
    )
    assert metrics(expression) == {"a_total", "c_d", "level:c:sum"}


def test_every_label_of_a_rule_is_one_that_its_metrics_have() -> None:
    """As the families have them, with those that the scrape configs add, pods' own, and those of dcgm-exporter."""
    of_targets = {"node", "instance", "job", "metrics_path", "exporter"}
    of_pods = {"workload_name", "workload_kind", "queue"}
    of_dcgm = {"gpu", "UUID", "GPU_I_ID", "namespace", "pod", "container", "gpu_shared"}
    for rule in rules():
        names = metrics(rule["expr"])
        known = of_targets | LABELS_OF_RULES
        known |= {"alertname", "alertstate"} if "ALERTS" in names else set()
        for name in names:
            known |= OWN.get(name.removesuffix("_bucket"), set())
            known |= of_pods if name.startswith("pod_gpu_") or name in records() else set()
            known |= of_dcgm if name.startswith("DCGM_") else set()
            known |= {"namespace", "pod", "instance", "engine", "model_name"} if name in OF_MODEL_SERVERS else set()
            known |= labels_of(records()[name]) if name in records() else set()
            known |= set(OF_QUEUES.get(name, ()))
            known |= OWN["pod_gpu_allocated_ratio"] if name in RENAMED else set()
        # label_replace makes one
        known |= set(re.findall(r'"(\w+)", "(?:\$1|[\w./]+)"', rule["expr"])) | (
            {"model"} if "group_left" in rule["expr"] else set()
        )
        for _, matchers in SELECTOR.findall(rule["expr"]):
            assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) <= known, rule
        assert labels_of(rule["expr"]) <= known, rule


def labels_of(expression: str) -> set[str]:
    """What an expression sums and matches by."""
    return {label for names in BY.findall(expression) for label in re.split(r",\s*", names)} - {""}


def test_records_are_named_level_metric_operation() -> None:
    assert all(RECORD.fullmatch(name) for name in records().keys() - OF_OPENCOST)
