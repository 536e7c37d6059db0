"""Every path of the cluster role: GET and HEAD only, a password but for probes, over TLS to exporters that want one."""

import asyncio
import base64
import json
from pathlib import Path

import bcrypt
import pytest
import yaml
from aiohttp import web

from exporter.cluster.outputs.cluster_outputs import OUTPUTS
from exporter.config.cluster_settings import load_cluster
from tests.cluster.test_role import TWO, cluster_config, running, seeing
from tests.support.certificates import Authority
from tests.support.exporter import Start
from tests.support.waiting import until

PATHS = [output.path for output in OUTPUTS] + ["/autoscale/ml/trainer/gpu_utilization"]
PROBES = [output.path for output in OUTPUTS if output.is_probe]


async def test_a_path_below_an_endpoint_answers_get_and_head_alone() -> None:
    path = PATHS[-1]
    async with seeing(TWO) as asked:
        for method in ("POST", "PUT", "DELETE"):
            async with asked.session.request(method, asked.base + path) as response:
                assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
        async with asked.session.head(asked.base + path) as head, asked.session.get(asked.base + path) as got:
            assert head.status == got.status
            assert head.headers["Content-Type"] == got.headers["Content-Type"]


async def test_every_path_but_probes_needs_the_password(tmp_path: Path) -> None:
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    (tmp_path / "web.yml").write_text(yaml.safe_dump({"basic_auth_users": {"prometheus": hashed}}))
    async with running(cluster_config(web_config_file=str(tmp_path / "web.yml"))) as asked:
        for path in PATHS:
            status, _, _ = await asked.get(path)
            assert (status == 401) is (path not in PROBES), path
        secret = base64.b64encode(b"prometheus:right").decode()
        status, _, _ = await asked.get("/metrics", Authorization=f"Basic {secret}")
        assert status == 200


async def test_exporters_that_want_tls_and_a_password(start: Start, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    pair = authority.issue("server", "127.0.0.1")
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    (tmp_path / "web.yml").write_text(
        yaml.safe_dump(
            {
                "tls_server_config": {"cert_file": str(pair.cert), "key_file": str(pair.key)},
                "basic_auth_users": {"cluster": hashed},
            }
        )
    )
    node = await start(node_name="gpu-1", web_config_file=str(tmp_path / "web.yml"))
    secured = node.base.replace("http:", "https:")
    http = tmp_path / "http.yml"
    http.write_text(
        yaml.safe_dump(
            {"basic_auth": {"username": "cluster", "password": "right"}, "tls_config": {"ca_file": str(authority.ca)}}
        )
    )
    flags = {"cluster.node": [f"gpu-1={secured}"], "web.listen-address": ["127.0.0.1:0"]}
    async with running(load_cluster(flags, {}, None)) as asked:

        async def is_refused() -> bool:
            status, text, _ = await asked.get("/container/metrics")
            return status == 503 and "gpu-1" in text

        await until(is_refused)
    async with running(load_cluster({**flags, "cluster.http-config": [str(http)]}, {}, None)) as asked:

        async def is_shown() -> bool:
            status, text, _ = await asked.get("/container/metrics")
            return status == 200 and {row["node_name"] for row in json.loads(text)} == {"gpu-1"}

        await until(is_shown)


@pytest.mark.parametrize("way", ["service", "selector"])
async def test_exporters_that_the_kubernetes_api_tells_of(start: Start, way: str) -> None:
    one = await start(node_name="gpu-1")
    port = one.base.rpartition(":")[2]
    asked_for = []
    over = asyncio.Event()
    slices = {
        "metadata": {"name": "exporter-x", "uid": "1", "resourceVersion": "1"},
        "addressType": "IPv4",
        "ports": [{"name": "metrics", "port": int(port), "protocol": "TCP"}],
        "endpoints": [
            {"addresses": ["127.0.0.1"], "nodeName": "gpu-1", "conditions": {"ready": True}},
            {"addresses": ["127.0.0.2"], "nodeName": "gpu-2", "conditions": {"ready": False}},
        ],
    }
    pods = [
        {
            "metadata": {"name": f"exporter-{number}", "uid": str(number), "resourceVersion": "1"},
            "spec": {"nodeName": f"gpu-{number}"},
            "status": {"phase": "Running", "podIP": f"127.0.0.{number}"},
        }
        for number in (1, 2)
    ]

    async def api(request: web.Request) -> web.StreamResponse:
        asked_for.append((request.path, request.query.get("labelSelector")))
        if request.query.get("watch"):
            await over.wait()
            return web.Response()
        items = [slices] if way == "service" else pods
        return web.json_response({"items": items, "metadata": {"resourceVersion": "1"}})

    app = web.Application()
    app.router.add_get("/{path:.*}", api)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    flags = {"web.listen-address": ["127.0.0.1:0"], "kubernetes.url": [f"http://127.0.0.1:{runner.addresses[0][1]}"]}
    flags |= {"kubernetes.token-file": ["/nonexistent/token"]}
    if way == "service":
        flags |= {"cluster.service": ["gpu/exporter"]}
        wanted = ("/apis/discovery.k8s.io/v1/namespaces/gpu/endpointslices", "kubernetes.io/service-name=exporter")
    else:
        flags |= {"cluster.selector": ["app=exporter"], "cluster.namespace": ["gpu"], "cluster.port": [port]}
        wanted = ("/api/v1/namespaces/gpu/pods", "app=exporter")
    try:
        async with running(load_cluster(flags, {}, None)) as asked:

            async def are_told() -> bool:
                """Whether the API has named both, and the one that is ready has answered."""
                status, text, headers = await asked.get("/container/metrics")
                named = {row["node_name"] for row in json.loads(text)} if status == 200 else set()
                return (named, headers.get("X-Missing-Nodes")) == ({"gpu-1"}, "gpu-2")

            await until(are_told)
            assert wanted in asked_for
            _, text, _ = await asked.get("/debug/nodes")
            assert "endpointslices" in text or "exporter_pods" in text

            async def is_ready() -> bool:
                status, text, _ = await asked.get("/-/ready")
                return status == 200 and "1 of 2 nodes are missing: gpu-2" in text

            await until(is_ready)
            over.set()
    finally:
        over.set()
        await runner.cleanup()
