"""`--labels.owners` on and off, each in a real Prometheus: docs/promql.md and the dashboards get equal answers."""

from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack

import pytest

from benchmarks.churn import PAIRS
from deploy.grafana.generator import promql
from tests.support.background import Background
from tests.support.exporter import config_of, running
from tests.support.prometheus import Answers, Prometheus, prometheus, shipped_jobs
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

ON, OFF = "on", "off"
OF_PODS = "cluster, namespace, pod"
# issue 28, churn-free series
QUERIES = {
    **{without: (with_owners, without) for with_owners, without in PAIRS},
    **{
        query: (query, query)
        for query in (
            promql.of_pods("activity", promql.NAMESPACE),
            promql.of_pods("sm clock", promql.NAMESPACE),
            promql.memory_of_pods(promql.NAMESPACE, OF_PODS),
            promql.memory(promql.CLUSTER),
            promql.ratio("activity", promql.CLUSTER),
            promql.flow("pcie sent", promql.CLUSTER),
        )
    },
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Prometheus]]:
    """A node that stands still, with whole GPUs, shares and MIG instances."""
    background = Background()
    node = SimulatedNode(World(gpus=6, shared=2, mig=1, seed=4, clock=lambda: 10**12), counters="full")
    given = {"kubelet_socket": str(node.socket), "inventory_file": str(node.inventory_file)}
    stack = AsyncExitStack()

    async def begin() -> Mapping[str, str]:
        await node.start()
        stack.push_async_callback(node.stop)
        configs = {each: config_of(**given, dcgm_url=node.url, labels_owners=each) for each in (ON, OFF)}
        exporters = {each: await stack.enter_async_context(running(config)) for each, config in configs.items()}
        return {each: exporter.base.removeprefix("http://") for each, exporter in exporters.items()}

    try:
        targets = background.run(begin())
        folders = {each: tmp_path_factory.mktemp(each) for each in targets}
        with (
            prometheus(folders[ON], of_node(targets[ON])) as on,
            prometheus(folders[OFF], of_node(targets[OFF])) as off,
        ):
            for server in (on, off):
                server.wait_for_scrapes(2)
                server.stand_where_all_are_up()
            yield {ON: on, OFF: off}
    finally:
        background.run(stack.aclose())
        background.close()


def of_node(target: str) -> list[dict[str, object]]:
    """The shipped scrape config; its target's own labels are those of the exporter's pod."""
    jobs = shipped_jobs(target)
    for job in jobs:
        job["static_configs"][0]["labels"] = {**job["static_configs"][0]["labels"], "node": "gpu-node-1"}
    return jobs


def asked(server: Prometheus, query: str) -> Answers:
    for variable in ("cluster", "namespace"):
        query = query.replace(f"${variable}", ".*" if variable == "cluster" else ".+")
    return sorted(server.query(query.replace("[5m:30s]", "[5m:1s]")), key=str)


@pytest.mark.parametrize("query", QUERIES)
def test_a_question_has_the_same_answer_with_either_setting(servers: Mapping[str, Prometheus], query: str) -> None:
    with_owners, without = QUERIES[query]
    answers: list[Answers] = []

    def are_equal() -> bool:
        answers[:] = [asked(servers[ON], with_owners), asked(servers[OFF], without)]
        return bool(answers[0]) and answers[0] == answers[1]

    wait_until(are_equal, why=lambda: answers)


@pytest.mark.parametrize("query", [without for _, without in PAIRS if "pod_gpu_info * on" in without])
def test_what_joins_answers_with_owners_too(servers: Mapping[str, Prometheus], query: str) -> None:
    wait_until(lambda: asked(servers[ON], query) == asked(servers[OFF], query) != [], why=lambda: query)


def test_no_sample_names_a_pod_not_even_that_of_the_exporter(servers: Mapping[str, Prometheus]) -> None:
    of_pods = '{metrics_path="/gpu/metrics",__name__=~"DCGM_.*",pod!=""}'
    assert servers[ON].query(of_pods)
    assert servers[OFF].query(of_pods) == []
    assert servers[OFF].query(of_pods.replace('pod!=""', 'pod=""'))
