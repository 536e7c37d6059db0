"""The cluster role behind a real socket: what it answers, when it is ready, and what a reload changes."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp
import jsonschema
import pytest

from exporter.cluster.cluster import Cluster, ClusterHandover
from exporter.cluster.outputs.cluster_outputs import OUTPUTS
from exporter.cluster.outputs.look import MOST_HEADER_CHARS
from exporter.cluster.role import CLUSTER
from exporter.config.cluster_settings import ClusterConfig, load_cluster
from exporter.errors import Trouble
from exporter.model.cluster_view import ClusterView
from exporter.model.snapshot import Health
from exporter.role import RoleKind
from exporter.service import Service
from exporter.sources.source import Attempt, Bound, SourceCache
from tests.support import quick_yaml
from tests.support.clusters import GONE, held, node_of, view_of
from tests.support.exporter import Start
from tests.support.places import ROOT
from tests.support.waiting import is_quick, until

API = quick_yaml.load((ROOT / "docs" / "openapi.yaml").read_text())
UNKNOWN = Trouble("permission", "the API server does not let list endpointslices", "give it the role")


class Seen:
    """A source that knows what the test says."""

    name = "exporters"
    health = Health(up=True, duration_seconds=0.1)
    patience_seconds = 0.5
    bounds: Mapping[str, Bound] = MappingProxyType({})

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self.begun = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_closed = False

    def begin(self) -> Attempt:
        self.begun += 1
        return asyncio.create_task(self.answers.wait())

    async def close(self) -> None:
        self.is_closed = True


def cluster_config(*nodes: str, **more: str) -> ClusterConfig:
    flags = {"cluster.node": nodes or ("http://a:1",), "web.listen-address": ["127.0.0.1:0"]}
    return load_cluster(flags | {name.replace("_", "."): [text] for name, text in more.items()}, {}, None)


@dataclass
class Asked:
    base: str
    service: Service[ClusterConfig]
    session: aiohttp.ClientSession

    async def get(self, path: str, **headers: str) -> tuple[int, str, Mapping[str, str]]:
        async with self.session.get(self.base + path, headers=headers) as response:
            return response.status, await response.text(), response.headers


@asynccontextmanager
async def running(config: ClusterConfig, kind: RoleKind[ClusterConfig] = CLUSTER) -> AsyncIterator[Asked]:
    service = Service(config, kind, lambda: config)
    try:
        (address,) = await service.listen()
        async with aiohttp.ClientSession() as session:
            yield Asked(f"http://{address}", service, session)
    finally:
        await service.close()


@asynccontextmanager
async def seeing(view: ClusterView, source: Seen | None = None) -> AsyncIterator[Asked]:
    """A role that has a source of what the test says."""
    source = source or Seen(view)

    def make(_: ClusterConfig, __: object) -> Cluster:
        cache = SourceCache(lambda *_: None)
        return Cluster(
            source=source,
            others=(),
            cache=cache,
            pulse_seconds=3600,
            patience_seconds=2.0,
            handover=ClusterHandover(),
        )

    async with running(cluster_config(), replace(CLUSTER, make=make)) as asked:
        yield asked


TWO = view_of(
    node_of("n1", held("a", "GPU-1"), held("", "GPU-2")),
    node_of("n-2", held("b", "GPU-3", node="n-2"), held("c", "GPU-4", workload="other", namespace="web", node="n-2")),
)
ONE_GONE = view_of(*TWO.nodes.values(), node_of("n3", held("z", "GPU-9"), trouble=GONE))


async def test_container_metrics_are_the_objects_of_all_nodes_as_they_came() -> None:
    async with seeing(TWO) as asked:
        status, text, headers = await asked.get("/container/metrics")
        assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
        assert json.loads(text) == [json.loads(device.text) for node in TWO.nodes.values() for device in node.devices]
        assert "X-Missing-Nodes" not in headers


@pytest.mark.parametrize(
    ("query", "pods"),
    [
        ("", ["a", "", "b", "c"]),
        ("?pod=b", ["b"]),
        ("?namespace=ml", ["a", "b"]),
        ("?container=main", ["a", "b", "c"]),
        ("?node=n-2", ["b", "c"]),
        ("?workload=other", ["c"]),
        ("?workload=trainer&node=n1", ["a"]),
        ("?node=elsewhere", []),
        ("?pod=", ["a", "", "b", "c"]),
    ],
)
async def test_every_filter(query: str, pods: list[str]) -> None:
    async with seeing(TWO) as asked:
        _, text, _ = await asked.get(f"/container/metrics{query}")
        assert [row["pod"] for row in json.loads(text)] == pods


@pytest.mark.parametrize("query", ["?pods=a", "?pod=a&pod=b"])
async def test_a_wrong_query(query: str) -> None:
    async with seeing(TWO) as asked:
        status, text, _ = await asked.get(f"/container/metrics{query}")
        assert (status, "error" in json.loads(text)) == (400, True)


async def test_missing_nodes_are_named_in_every_answer() -> None:
    async with seeing(ONE_GONE) as asked:
        status, text, headers = await asked.get("/container/metrics")
        assert (status, headers["X-Missing-Nodes"]) == (200, "n3")
        assert "GPU-9" not in text, "it is too old to count"
        status, text, headers = await asked.get("/metrics/nodes")
        assert (status, headers["X-Missing-Nodes"], "n3_info" in text) == (200, "n3", False)
        assert f"# node n3 is missing: {GONE.message}" in text
        status, text, _ = await asked.get("/-/ready")
        assert (status, text) == (200, f"ready; 1 of 3 nodes are missing: n3: {GONE}\n")
        _, text, _ = await asked.get("/metrics")
        assert "pod_gpu_exporter_cluster_nodes 3\n" in text
        assert 'pod_gpu_exporter_cluster_missing_nodes{reason="refused"} 1\n' in text
        assert re.findall(r"node_up(.*)", text)[2:] == ['{node="n1"} 1', '{node="n-2"} 1', '{node="n3"} 0']
        _, text, _ = await asked.get("/")
        assert "2 have answered, 1 are missing" in text
        _, text, _ = await asked.get("/debug/nodes")
        nodes = {node["name"]: node for node in json.loads(text)["nodes"]}
        assert (nodes["n3"]["missing"], nodes["n3"]["reason"], nodes["n3"]["remedy"]) == (True, "refused", GONE.remedy)
        assert nodes["n-2"]["containers"] == 2
        status, text, _ = await asked.get("/autoscale/ml/trainer/gpu_utilization")
        said = json.loads(text)
        assert (status, said["missing_nodes"], "n3" in said["error"]) == (503, ["n3"], True)
        status, text, _ = await asked.get("/container/metrics?node=n3")
        assert (status, GONE.message in json.loads(text)["error"]) == (503, True)


async def test_no_node_at_all_is_503_and_never_an_empty_array() -> None:
    for view in (view_of(node_of("n1", held(), trouble=GONE)), view_of(trouble=UNKNOWN)):
        async with seeing(view) as asked:
            for path in ("/container/metrics", "/metrics/nodes", "/container/metrics?pod=a"):
                status, text, _ = await asked.get(path)
                assert (status, "->" in text) == (503, True)
    async with seeing(view_of(*TWO.nodes.values(), trouble=UNKNOWN)) as asked:
        status, text, _ = await asked.get("/container/metrics")
        assert (status, UNKNOWN.message in text) == (503, True), "some that are not known may be missing in it"
        status, text, _ = await asked.get("/container/metrics?node=n1")
        assert (status, len(json.loads(text))) == (200, 2)
        status, text, _ = await asked.get("/metrics/nodes")
        assert (status, f"# it is not known which other nodes there are: {UNKNOWN}" in text) == (200, True)


async def test_the_header_has_room_for_some_names_and_no_line_ends() -> None:
    many = view_of(node_of("ok", held()), *(node_of(f"gone-{number}\r\nX: y,", trouble=GONE) for number in range(2000)))
    async with seeing(many) as asked:
        status, _, headers = await asked.get("/container/metrics")
        assert status == 200
        assert MOST_HEADER_CHARS - 100 < len(headers["X-Missing-Nodes"]) < MOST_HEADER_CHARS + 10
        assert headers["X-Missing-Nodes"].endswith(", ...")
        assert "X" not in headers
        status, text, _ = await asked.get("/-/ready")
        assert (status, "and 1980 more" in text) == (200, True)


async def test_nodes_are_families_as_a_nodes_own_exporter_writes_them() -> None:
    async with seeing(TWO) as asked:
        _, text, _ = await asked.get("/metrics/nodes")
        assert 'n_2_info{gpu_id="GPU-3",gpu_model="NVIDIA H100",namespace="ml",node="n-2",pod_name="b"} 1\n' in text
        assert re.findall("# TYPE (.*)", text) == ["n1_info gauge", "n_2_info gauge"]


async def test_an_autoscalers_answer() -> None:
    async with seeing(TWO) as asked:
        status, text, _ = await asked.get("/autoscale/ml/trainer/gpu_utilization")
        assert (status, json.loads(text)) == (
            200,
            {"value": 100.0, "pods": 2, "nodes": ["n1", "n-2"], "missing_nodes": []},
        )
        for path, said in (
            ("/autoscale/", 400),
            ("/autoscale/ml/trainer", 400),
            ("/autoscale/ml/trainer/gpu_utilization?kind=pod", 400),
            ("/autoscale/ml/trainer%2Fx/gpu_utilization", 400),
            ("/autoscale/ml/trainer/pod", 400),
            ("/autoscale/ml/deployment:trainer/gpu_utilization", 200),
            ("/autoscale/ml/deployment%3Atrainer/gpu_utilization", 200),
            ("/autoscale", 404),
            ("/autoscale/ml/trainr/gpu_utilization", 404),  # issue 22, line 17
        ):
            status, _, _ = await asked.get(path)
            assert status == said, path


def schema_of(path: str, status: str) -> dict[str, Any]:
    responses = API["paths"][path]["get"]["responses"]
    content = responses[status]
    if "$ref" in content:
        content = API["components"]["responses"][content["$ref"].rpartition("/")[2]]
    return {**content["content"]["application/json"]["schema"], "components": API["components"]}


async def test_an_autoscalers_answers_are_as_described() -> None:
    path = "/autoscale/{namespace}/{workload}/{metric}"
    none = view_of(node_of("n"))
    shared = view_of(node_of("n", held(shared=True)))
    for view, status in ((TWO, "200"), (ONE_GONE, "503"), (shared, "409"), (none, "404")):
        async with seeing(view) as asked:
            found, text, _ = await asked.get("/autoscale/ml/trainer/gpu_utilization")
            assert str(found) == status
            jsonschema.validate(json.loads(text), schema_of(path, status))
            found, text, _ = await asked.get("/autoscale/ml/trainer/no_such_metric")
            assert found == 400
            jsonschema.validate(json.loads(text), schema_of(path, "400"))


@pytest.mark.timeout(120)
async def test_schemathesis_finds_nothing(start: Start, tmp_path: Path) -> None:
    node = await start(node_name="gpu-1")
    async with running(cluster_config(f"gpu-1={node.base}")) as asked:
        program = Path(sys.executable).with_name("schemathesis")
        command = [program, "run", ROOT / "docs" / "openapi.yaml", "--url", asked.base, "--max-examples", "10"]
        command += ["--include-path-regex", "^/(container/metrics|autoscale/.*)$"]  # others are a node's
        # a missing value is 503, as it is described
        command += ["--exclude-checks", "not_a_server_error"]
        ran = await asyncio.create_subprocess_exec(
            *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd=tmp_path
        )
        said, _ = await ran.communicate()
        assert ran.returncode == 0, said.decode()


async def test_ready_once_the_nodes_are_known_and_each_was_asked_then_for_good() -> None:
    source = Seen(view_of(trouble=UNKNOWN))
    source.answers.clear()
    async with seeing(source.view, source) as asked:
        status, text, _ = await asked.get("/-/ready")
        assert (status, UNKNOWN.message in text) == (503, True)
        source.view = view_of(node_of("n1", trouble=GONE))
        status, text, _ = await asked.get("/-/ready")
        assert (status, text) == (503, "not ready: the nodes are being asked for the first time\n")
        source.answers.set()

        async def is_ready() -> bool:
            return (await asked.get("/-/ready"))[0] == 200

        await until(is_ready)
        source.view = view_of(trouble=UNKNOWN)
        assert (await asked.get("/-/ready"))[0] == 200
        assert (await asked.get("/-/healthy"))[0] == 200


async def test_only_a_request_before_the_first_answers_waits() -> None:
    source = Seen(TWO)
    source.answers.clear()
    loop = asyncio.get_running_loop()
    async with seeing(TWO, source) as asked:
        began = loop.time()
        status, _, _ = await asked.get("/container/metrics", **{"X-Prometheus-Scrape-Timeout-Seconds": "0.4"})
        assert (status, loop.time() - began > 0.15) == (200, True)
        source.answers.set()
        await asked.get("/container/metrics")
        begun = source.begun
        source.answers.clear()
        assert await is_quick(lambda: asked.get("/container/metrics"), 0.15), "answers come from what is kept"
        assert source.begun == begun


async def test_the_exporters_of_two_nodes_and_a_reload(start: Start) -> None:
    one, other = await start(node_name="gpu-1"), await start(node_name="gpu-2")
    config = cluster_config(f"gpu-1={one.base}", other.base)
    async with running(config) as asked:

        async def are_all_told() -> bool:
            status, text, _ = await asked.get("/container/metrics")
            return status == 200 and {row["node_name"] for row in json.loads(text)} == {"gpu-1", "gpu-2"}

        await until(are_all_told)
        _, alone, _ = await asked.get("/container/metrics?node=gpu-1")
        _, of_node = await one.get("/container/metrics")
        for rows in (mine := json.loads(alone), theirs := json.loads(of_node)):
            for row in rows:
                del row["timestamp"]
        assert [row["device_uuid"] for row in mine] == [row["device_uuid"] for row in theirs]
        _, text, _ = await asked.get("/metrics/nodes")
        _, of_node = await one.get("/metrics/nodes")
        assert set(of_node.splitlines()) <= set(text.splitlines())
        role = asked.service._role
        await asked.service.reload()
        assert isinstance(role, Cluster)
        assert asked.service._role is not role
        # what does not change goes on
        assert [*asked.service._role.cache.sources.values()] == [*role.cache.sources.values()]  # type: ignore[attr-defined]
        assert (await asked.get("/container/metrics"))[0] == 200
    assert "pod_gpu_exporter_cluster_nodes" not in (await one.get("/metrics"))[1]


async def test_a_reload_closes_the_source_that_is_not_wanted_any_more(start: Start) -> None:
    one, other = await start(node_name="gpu-1"), await start(node_name="gpu-2")
    configs = [cluster_config(f"gpu-1={one.base}"), cluster_config(f"gpu-2={other.base}")]
    service = Service(configs[0], CLUSTER, lambda: configs[1])
    try:
        (address,) = await service.listen()
        async with aiohttp.ClientSession(f"http://{address}") as session:

            async def nodes() -> set[str]:
                """Names the nodes of the rows; none while the source has not answered yet, which is no 200."""
                async with session.get("/container/metrics") as response:
                    return {row["node_name"] for row in await response.json()} if response.status == 200 else set()

            assert await until(nodes) == {"gpu-1"}
            before = [*service._role.cache.sources.values()]  # type: ignore[attr-defined]
            await service.reload()
            assert await until(nodes) == {"gpu-2"}
            await until(lambda: not service._leaving)
            assert [*service._role.cache.sources.values()] != before  # type: ignore[attr-defined]
    finally:
        await service.close()


def test_every_output_that_is_no_probe_can_be_reached_from_the_page() -> None:
    unsaid = [output.path for output in OUTPUTS if not output.says]
    assert unsaid == ["/", "/static/page.css", "/static/page.js", "/healthz"]
    for output in OUTPUTS:
        if output.is_probe:
            assert output.needs <= {"readiness"}, output.path
