"""A page whose lines say the longest that they can, as a node and the cluster role have it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from exporter.cluster.outputs.look import ClusterLook
from exporter.dcgm.fields import METRICS
from exporter.model.device_row import DeviceRow, from_object
from exporter.model.slices import at_once
from exporter.outputs.output import Answer
from exporter.outputs.page.device_table import devices_table, summary, tools
from exporter.outputs.page.document import SCRIPT, STYLE, alert, document, sources
from exporter.outputs.page.tree import figures_of
from exporter.outputs.page.view import PageView
from tests.support.answers import answer_of
from tests.support.clusters import view_of

NODE = "gpu-node-10"
_MEASURED_IDLE = {"measured": {"utilization_ratio": 0.0}, "gpu_utilization": 60.0}
_BEFORE = {"holder_since": "2026-11-01T10:00:00.000Z", "read_at": "2026-11-01T10:00:00.000Z"}
_IDLE = {"idle_since": "2026-11-01T09:00:00.000Z", "timestamp": "2026-11-01T09:59:00.000Z"}
_USED_BY = {"used_by": [{"pod": "debug", "namespace": "ml", "memory_used_bytes": 2**31}]}
_DEVICES: tuple[dict[str, Any], ...] = (
    {**_MEASURED_IDLE, **_IDLE, "power_usage": 1200.0, "temperature": 104.0},
    {**_BEFORE, "health": "degraded", "health_reasons": ["Xid 119 (GSP RPC timeout)"], "last_xid": 119},
    {"gpu_utilization": 100.0, "health": "failing", "health_reasons": ["rows are not remapped"], "last_xid": 119},
    {"gpu_utilization": 0.0, **_IDLE, **_USED_BY},
    {"pod": "", **_BEFORE, **_USED_BY},
    {"pod": "", "health": "gone", "health_reasons": ["the GPU has fallen off the bus"], "last_xid": 79},
    {"pod": "", "state": "unknown"},
)
_INSTANCES: tuple[dict[str, Any], ...] = tuple(
    {
        "entity": "mig",
        "mig_instance_id": f"{at}",
        "mig_profile": "1g.10gb+me",
        "device_uuid": "GPU-10",
        "device_id": "10",
        "temperature": 45.0,
    }
    for at in (12, 13)
)


def rows_of(*, with_instances: bool) -> list[DeviceRow]:
    """Rows of devices, each of a pod with a name as the jobs of a queue have them."""
    common = {
        **dict.fromkeys(METRICS),
        "node_name": NODE,
        "model_name": "NVIDIA H200",
        "device": "",
        "entity": "gpu",
        "health": "ok",
        "framebuffer_used": 81_000,
        "framebuffer_free": 0,
        "gpu_shared": False,
        "container": "main",
        "namespace": "research",
        "workload_name": "pretrain-moe-4",
        "workload_kind": "Job",
    }
    return [
        from_object(
            {**common, "device_id": f"{at}", "device_uuid": f"GPU-{at}", "pod": f"pretrain-moe-4-{at}-bhprj", **fields}
        )
        for at, fields in enumerate((*_DEVICES, *(_INSTANCES if with_instances else ())))
    ]


def _page(rows: list[DeviceRow], view: PageView, *, with_node: bool) -> Answer:
    table, fold = at_once(devices_table(rows, view, with_node=with_node))
    figures = summary(at_once(figures_of(rows)), view)
    sections = (alert("", {}), figures, tools(view, fold, with_node=with_node), *table, sources({}))
    return document(f"GPUs of {NODE}", "9 GPUs", sections, ())


@asynccontextmanager
async def pages_of_the_longest() -> AsyncIterator[str]:
    """Where /node/ and /cluster/ have the page; with `/cut` behind it there are MIG instances, too."""

    async def answer(request: web.Request) -> web.Response:
        for output in (STYLE, SCRIPT):
            if request.path.endswith(output.path):
                file = answer_of(output, ClusterLook(view=view_of(), health={}, at_seconds=0.0))
                return web.Response(body=file.pieces[0], headers={"Content-Type": file.content_type})
        _, which, cut = request.path.split("/")
        view = PageView.of(tuple(request.query.items()))
        made = _page(rows_of(with_instances=cut == "cut"), view, with_node=which == "cluster")
        return web.Response(
            body=b"".join(made.pieces), headers={"Content-Type": made.content_type, **dict(made.headers)}
        )

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/")).rstrip("/")
