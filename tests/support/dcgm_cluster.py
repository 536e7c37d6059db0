"""A cluster without this project's exporter: dcgm-exporters of every kind, behind an API server's proxy and its RBAC.

All pages come from one server, which listens on all of loopback: each dcgm-exporter's pod has an address of its own
there, and port and path are the same for all, as in a cluster.
"""

import asyncio
import json
import os
import re
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from exporter.simulator.dcgm import SimulatedDcgm
from exporter.simulator.serving import Serving
from exporter.simulator.world import World
from tests.support.api_server.server import SimulatedApiServer
from tests.support.background import Background
from tests.support.certificates import Authority
from tests.support.components import free_port, real
from tests.support.kubectl_gpu import ADMIN, JANE, MODULE, Ended, kubeconfig_of, run_plugin
from tests.support.places import ROOT

Object = dict[str, Any]
OPERATOR = {"app": "nvidia-dcgm-exporter"}  # NVIDIA's GPU operator
CHART = {"app.kubernetes.io/name": "dcgm-exporter"}
GKE = {"app.kubernetes.io/name": "gke-managed-dcgm-exporter"}
NAMESPACE = "gpu-operator"
HANG, FORBIDDEN = "hang", "forbidden"
_ALL_OF_LOOPBACK = "0.0.0.0"  # noqa: S104 - an address of loopback for each pod
# in kube-rbac-proxy's words, which gets no token through the API server's proxy
_FORBIDDEN_TEXT = "Forbidden (user=system:anonymous, verb=get, resource=, subresource=)\n"
_MIG_RESOURCE = "nvidia.com/mig-1g.10gb"


class Run(NamedTuple):
    """How a command ended, what it printed, and how long it took."""

    code: int
    out: str
    err: str
    seconds: float


@dataclass(kw_only=True)
class GpuNode:
    """A node with its dcgm-exporter.

    `holders` has the pod of each GPU by its index, as the kubelet gave them; the page names it where `with_k`.
    `instances` has those of MIG instances by index and GPU_I_ID. `refuses` is HANG or FORBIDDEN, in place of a page.
    """

    name: str
    gpus: int = 8
    mig: int = 0
    holders: Mapping[int, str] = field(default_factory=dict)
    instances: Mapping[tuple[int, int], str] = field(default_factory=dict)
    busy: frozenset[int] = frozenset()
    with_k: bool = True
    label_names: tuple[str, str, str] = ("pod", "namespace", "container")
    refuses: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: OPERATOR)
    namespace: str = NAMESPACE
    is_https: bool = False
    tells_scheme: bool = True  # by its probes
    is_up: bool = True


class DcgmCluster:
    """Nodes, their dcgm-exporters and pods. The API server can be changed at will (`api`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plugins = folder / "plugins"
        self.api = SimulatedApiServer()
        self.pages: dict[str, bytes] = {}
        self.refusals: dict[str, str] = {}
        self._authority = Authority(folder, "cluster")
        self._background = Background()
        self._servers: list[Serving] = []
        self._ports = {"http": 0, "https": 0}
        self._templates: dict[tuple[int, int], str] = {}
        self._addresses = 0
        self._ends = asyncio.Event()

    def start(self) -> None:
        self._background.run(self._start())
        self.plugins.mkdir()
        script = self.plugins / "kubectl-gpu"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{MODULE}" "$@"\n')
        script.chmod(0o755)

    async def _start(self) -> None:
        pair = self._authority.issue("api", "127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        self.api.users = {ADMIN: "system:admin", JANE: JANE}
        await self.api.start(tls=context)
        for scheme, tls in (("http", None), ("https", context)):
            app = web.Application()
            app.router.add_get("/metrics", self._page)
            serving = Serving(app, drain_seconds=0.1)
            await serving.start(_ALL_OF_LOOPBACK, 0, tls)
            self._servers.append(serving)
            self._ports[scheme] = serving.address[1]

    def stop(self) -> None:
        self._background.run(self._stop())
        self._background.close()

    async def _stop(self) -> None:
        self._ends.set()
        for serving in self._servers:
            await serving.stop()
        await self.api.stop()

    async def _page(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        address = request.transport.get_extra_info("sockname")[0]
        refusal = self.refusals.get(address, "")
        if refusal == HANG:
            await self._ends.wait()
        if refusal == FORBIDDEN:
            # as kube-rbac-proxy does, which gets no token through the API server's proxy
            return web.Response(
                status=403, text="Forbidden (user=system:anonymous, verb=get, resource=, subresource=)\n"
            )
        return web.Response(body=self.pages[address])

    def add(self, *nodes: GpuNode) -> None:
        """Put nodes, their dcgm-exporters and the pods of their holders into the cluster."""
        for node in nodes:
            self._addresses += 1
            address = f"127.1.{self._addresses // 200}.{self._addresses % 200 + 1}"
            self.pages[address] = self._page_of(node)
            self.refusals[address] = node.refuses
            self.api.put(self._exporter(node, address))
            of_mig = {_MIG_RESOURCE: 7 * node.mig} if node.mig else {}
            self.put_node(node.name, {"nvidia.com/gpu": node.gpus - node.mig, **of_mig})
            asked: dict[str, Counter[str]] = {}
            for holder in node.holders.values():
                asked.setdefault(holder, Counter())["nvidia.com/gpu"] += 1
            for holder in node.instances.values():
                asked.setdefault(holder, Counter())[_MIG_RESOURCE] += 1
            for holder, limits in asked.items():
                self.put_pod(holder, node.name, limits)

    def put_node(self, name: str, amounts: Mapping[str, int], labels: Mapping[str, str] | None = None) -> None:
        allocatable = {"cpu": "96", "pods": "110", **{resource: str(count) for resource, count in amounts.items()}}
        metadata = {"name": name, "labels": labels or {}}
        self.api.put({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": allocatable}})

    def put_pod(self, holder: str, node: str, limits: Mapping[str, int], *, phase: str = "Running") -> None:
        namespace, _, name = holder.partition("/")
        asked = {resource: str(count) for resource, count in limits.items()}
        containers = [{"name": "main", "resources": {"limits": asked}}, {"name": "log"}]
        self.api.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"namespace": namespace, "name": name},
                "spec": {"nodeName": node, "containers": containers},
                "status": {"phase": phase},
            }
        )

    def _exporter(self, node: GpuNode, address: str) -> Object:
        port = self._ports["https" if node.is_https else "http"] if node.is_up else free_port()
        scheme = "HTTPS" if node.is_https and node.tells_scheme else "HTTP"
        container = {
            "name": "nvidia-dcgm-exporter",
            "ports": [{"name": "metrics", "containerPort": port}],
            "readinessProbe": {"httpGet": {"path": "/health", "port": port, "scheme": scheme}},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": node.namespace, "name": f"dcgm-{node.name}", "labels": {**node.labels}},
            "spec": {"nodeName": node.name, "containers": [container]},
            "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
        }

    def _page_of(self, node: GpuNode) -> bytes:
        """A whole page of the simulated dcgm-exporter, with the node's UUIDs and activity, and the labels of -k."""
        shape = (node.gpus, node.mig)
        if shape not in self._templates:
            self._templates[shape] = SimulatedDcgm(World(gpus=node.gpus, mig=node.mig, seed=1), generation="4.8").page()
        lines = [_line_of(line, node) for line in self._templates[shape].splitlines()]
        return ("\n".join(lines) + "\n").encode()

    def kubectl(self, *arguments: str, user: str = ADMIN) -> Run:
        """As a user runs it: the real kubectl finds the plugin in its PATH; `gpu` is the first argument."""
        began = time.monotonic()
        ended = subprocess.run(
            [real("kubectl"), *arguments], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT,
            env=self.environment(user),
        )  # fmt: skip
        return Run(ended.returncode, ended.stdout, ended.stderr, time.monotonic() - began)

    def gpu(self, *arguments: str, user: str = ADMIN) -> Ended:
        """The plugin in this process, which saves the start of two programs; it runs the real kubectl."""
        return run_plugin(arguments, self.environment(user))

    def environment(self, user: str = ADMIN) -> Mapping[str, str]:
        config = self.folder / f"{user}.kubeconfig"
        config.write_text(json.dumps(kubeconfig_of(self.api.url, user, self._authority.ca)))
        path = os.pathsep.join((str(self.plugins), str(real("kubectl").parent), "/usr/bin", "/bin"))
        return {
            "HOME": str(self.folder),
            "KUBECONFIG": str(config),
            "PATH": path,
            "COLUMNS": "160",
            "TMPDIR": str(self.folder),
        }

    def json(self, *arguments: str, user: str = ADMIN) -> Any:
        """What `kubectl gpu … -o json` prints."""
        ended = self.gpu(*arguments, "-o", "json", user=user)
        assert ended.code == 0, ended.err
        return json.loads(ended.out)


_ACTIVITY = {"DCGM_FI_DEV_GPU_UTIL": "97", "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.93"}
_HOST = 'hostname="gpu-node-1"'
_GPU = re.compile(r'gpu="(\d+)"')
_INSTANCE = re.compile(r'GPU_I_ID="(\d+)"')


def _line_of(line: str, node: GpuNode) -> str:
    index = _GPU.search(line)
    if line.startswith("#") or index is None:
        return line
    gpu = int(index[1])
    instance = _INSTANCE.search(line)
    head, _, value = line.rpartition("} ")
    name = head.partition("{")[0]
    busy = gpu in node.busy
    value = {
        "DCGM_FI_DEV_GPU_UTIL": "97" if busy else "0",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.93" if busy else "0",
    }.get(name, value)
    head = head.replace('UUID="GPU-', f'UUID="GPU-{node.name}-').replace(
        'hostname="gpu-node-1"', f'hostname="{node.name}"'
    )
    holder = node.instances.get((gpu, int(instance[1]))) if instance else node.holders.get(gpu)
    if node.with_k and holder:
        namespace, _, pod = holder.partition("/")
        values = (pod, namespace, "main")
        pairs = zip(node.label_names, values, strict=True)
        head += "".join(f',{label}="{text}"' for label, text in pairs)
    return f"{head}}} {value}"
