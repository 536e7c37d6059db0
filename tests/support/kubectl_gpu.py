"""A cluster for `kubectl gpu`: two simulated nodes, their exporters and the cluster role behind an API server's proxy.

kubectl is a real one, with a kubeconfig; so are the exporters, and the API server where KUBEBUILDER_ASSETS names one.
"""

import io
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import urlsplit

from exporter.cli.main import run_group
from exporter.config.node_settings import SETTINGS, Config
from exporter.kubectl.command import PROGRAM, commands
from exporter.kubectl.places import CLUSTER, NAMESPACE, NODE
from exporter.simulator import demo, simulated_node
from exporter.simulator.parts import Pod
from tests.support import quick_yaml
from tests.support.api_server.containers import Container
from tests.support.api_server.kinds import kinds_of
from tests.support.api_server.server import SimulatedApiServer
from tests.support.background import Background
from tests.support.certificates import Authority
from tests.support.cluster_role import running_cluster
from tests.support.components import real
from tests.support.exporter import config_of
from tests.support.places import ROOT
from tests.support.real_api import IS_REAL, START_SECONDS
from tests.support.real_proxy import RealApi
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import wait_until

Object = dict[str, Any]
NAME_LABEL = "app.kubernetes.io/name"
VIEWER = ROOT / "deploy/kubectl/viewer.yaml"
REPORTER = ROOT / "deploy/kubectl/reporter.yaml"
ADMIN, JANE, JOE = (
    "admin",
    "jane",
    "joe",
)  # Jane may what viewer.yaml gives in the exporter's namespace; Joe may nothing
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}  # as people may at home
MODULE = "from exporter.kubectl.command import main; main()"


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


class GpuCluster:
    """Still nodes: pods come and go only where a test says so. The API server can be changed at will (`api`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._authority = Authority(folder, "cluster")
        self._background = Background()
        self.api: SimulatedApiServer | RealApi = RealApi(self._background, JANE) if IS_REAL else SimulatedApiServer()
        self.nodes = [
            SimulatedNode(World(gpus=4, shared=1, mig=1, seed=1), "gpu-node-1", collect_seconds=0),
            SimulatedNode(World(gpus=2, seed=2), "gpu-node-2", collect_seconds=0),
        ]
        self.exporters: dict[str, str] = {}
        self.cluster = ""
        self._stack = AsyncExitStack()

    def start(self) -> None:
        self._background.run(self._start(), START_SECONDS)
        (viewer,) = (item for item in quick_yaml.load_all(VIEWER.read_text()) if item["kind"] == "ClusterRole")
        self.viewer = [(NAMESPACE, rule) for rule in viewer["rules"]]  # by a RoleBinding there
        (reporter,) = (item for item in quick_yaml.load_all(REPORTER.read_text()) if item["kind"] == "ClusterRole")
        self.reporter = [(NAMESPACE, rule) for rule in reporter["rules"]]
        for name in {NAMESPACE, "serving", "monitoring"}.union(*map(_namespaces_of, self.nodes)):
            self.api.add_namespace(name)
        self.api.rules = [*self.viewer, ("serving", READ_PODS)]
        self.put_service(NAMESPACE, CLUSTER, self.cluster)
        for each in self.nodes:
            name = each.api.node_name
            self.put_exporter_pod(name, self.exporters[name])
            self._run_container(each, self.exporters[name])
            for pod in each.world.pods:
                self.api.put(_pod(pod, name))
        (self.folder / "plugins").mkdir()
        script = self.folder / "plugins" / "kubectl-gpu"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{MODULE}" "$@"\n')
        script.chmod(0o755)
        wait_until(lambda: self.gpu("who", "gpu-node-2").code == 0)

    async def _start(self) -> None:
        pair = self._authority.issue("api", "127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # kubectl sends no token over plain HTTP
        context.load_cert_chain(pair.cert, pair.key)
        self._stack.push_async_callback(self.api.stop)
        if isinstance(self.api, RealApi):
            await self.api.start()
        else:
            self.api.users = {ADMIN: "system:admin", JANE: JANE}
            await self.api.start(tls=context)
        _, self.exporters = await self._stack.enter_async_context(demo.running(self.nodes, _config_of))
        flags = {"cluster.node": [f"{name}={url}" for name, url in self.exporters.items()], "cluster.interval": ["1s"]}
        role = await self._stack.enter_async_context(running_cluster(flags))
        self.cluster = role.base

    def stop(self) -> None:
        self._background.run(self._stack.aclose())
        self._background.close()

    @contextmanager
    def with_kinds(self, *definitions: Object) -> Iterator[None]:
        """Serve the kinds of these CustomResourceDefinitions until the block ends. Their objects go with them."""
        api = self.api
        if isinstance(api, RealApi):
            for definition in definitions:
                api.define(definition)
            yield
            for definition in definitions:
                api.undefine(definition)
            return
        kinds = [kind for definition in definitions for kind in kinds_of(definition)]
        for kind in kinds:
            api.kinds.add(kind)
        yield
        for kind in kinds:
            for item in api.all(kind.name):
                self._background.run(self._drop(api, item))
            api.kinds.remove(kind.resource)

    def put_service(
        self,
        namespace: str,
        name: str,
        url: str,
        *,
        port: str = "metrics",
        is_ready: bool = True,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """A Service with one pod, which is a server on loopback."""
        number, address = urlsplit(url).port, self._address_of(url)
        about = {"namespace": namespace, "name": name, "labels": labels or {NAME_LABEL: name}}
        ports = [{"name": port, "port": number}]
        self.api.put({"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": {"ports": ports}})
        self.api.put(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {**about, "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4",
                "ports": ports,
                "endpoints": [{"addresses": [address], "conditions": {"ready": is_ready}}],
            }
        )

    def put_exporter_pod(self, node: str, url: str, *, name: str = "") -> None:
        """The pod of a node's exporter, as daemonset.yaml makes it."""
        ports, address = [{"name": "metrics", "containerPort": urlsplit(url).port}], self._address_of(url)
        containers = [{"name": "dcgm-exporter"}, {"name": "exporter", "ports": ports}]
        self.api.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"namespace": NAMESPACE, "name": name or f"exporter-{node}", "labels": {NAME_LABEL: NODE}},
                "spec": {"nodeName": node, "containers": containers},
                "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
            }
        )

    @property
    def containers(self) -> dict[tuple[str, str, str], Container]:
        """The containers that run, by namespace, pod and name. A real API server has none."""
        assert isinstance(self.api, SimulatedApiServer)
        return self.api.containers.by_place

    def _run_container(self, of: SimulatedNode, url: str) -> None:
        """The exporter's container, in which doctor may be run: it sees what the exporter sees."""
        if isinstance(self.api, RealApi):
            return  # it has no kubelet, and so no container
        given = {**_settings_of(of), "web.listen-address": urlsplit(url).netloc, "node.name": of.api.node_name}
        settings = {setting.env: given[setting.name] for setting in SETTINGS if setting.name in given}
        path = os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin"))
        place = (NAMESPACE, f"exporter-{of.api.node_name}", "exporter")
        self.containers[place] = Container({**os.environ, **settings, "PATH": path}, "ts=1 msg=now\n")

    def _address_of(self, url: str) -> str:
        """Where the API server's proxy reaches a server on loopback."""
        if not isinstance(self.api, RealApi):
            return "127.0.0.1"
        port = urlsplit(url).port
        assert port is not None
        self.api.relay(port)
        return self.api.address

    @contextmanager
    def without(self, kind: str, name: str, namespace: str = NAMESPACE) -> Iterator[None]:
        """An object is not there until the block ends."""
        item = self.remove(kind, name, namespace)
        yield
        self.api.put(item)

    def remove(self, kind: str, name: str, namespace: str = NAMESPACE) -> Object:
        """Take an object away; what it was."""
        item = self.api.get(kind, namespace, name)
        assert item is not None
        if isinstance(self.api, RealApi):
            self.api.drop(item)
        else:
            self._background.run(self._drop(self.api, item))
        return item

    async def _drop(self, api: SimulatedApiServer, item: Object) -> None:
        (key,) = (key for key, other in api.store.all() if other is item)
        api.store.drop(key)

    def kubectl(self, *arguments: str, user: str = ADMIN, plugins: Path | None = None) -> Ended:
        """The real kubectl, which finds the plugin in its PATH; `gpu` is the first argument."""
        ended = subprocess.run(
            [real("kubectl"), *arguments], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT,
            env=self._environment(user, self.api.url, plugins),
        )  # fmt: skip
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def gpu(self, *arguments: str, user: str = ADMIN, env: Mapping[str, str] | None = None, server: str = "") -> Ended:
        """The plugin in this process, which saves the start of two programs; it runs the real kubectl."""
        return run_plugin(arguments, {**self._environment(user, server or self.api.url), **(env or {})})

    @property
    def _ca_file(self) -> Path:
        return self.api.ca_file if isinstance(self.api, RealApi) else self._authority.ca

    def _environment(self, user: str, server: str, plugins: Path | None = None) -> Mapping[str, str]:
        config = self.folder / f"{user}.kubeconfig"
        config.write_text(json.dumps(kubeconfig_of(server, user, self._ca_file)))
        path = os.pathsep.join(
            (str(plugins or self.folder / "plugins"), str(real("kubectl").parent), "/usr/bin", "/bin")
        )
        return {"HOME": str(self.folder), "KUBECONFIG": str(config), "PATH": path, "COLUMNS": "160"}

    def json(self, *arguments: str, **more: Any) -> Any:
        """What `kubectl gpu … -o json` prints."""
        ended = self.gpu(*arguments, "-o", "json", **more)
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    def line(self, *arguments: str, code: int = 1, **more: Any) -> str:
        """The one line that a failed command says."""
        ended = self.gpu(*arguments, **more)
        lines = ended.err.splitlines()
        assert (ended.code, len(lines), ended.out) == (code, 1, ""), ended
        return lines[0].removeprefix("kubectl gpu: ")


def run_plugin(arguments: Sequence[str], environment: Mapping[str, str]) -> Ended:
    """`kubectl gpu` in this process: how it ended, and what it printed."""
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with patch.dict(os.environ, environment), redirect_stdout(out), redirect_stderr(err):
        try:
            code = run_group(commands, arguments, PROGRAM)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Ended(code, *(each.buffer.getvalue().decode() for each in (out, err)))


def link_plugin(program: Path, folder: Path) -> None:
    """What krew does: link the program into a folder of the PATH. python3 there has no library of the machine."""
    folder.mkdir()
    (folder / "kubectl-gpu").symlink_to(program)
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec {Path(sys.executable).resolve()} -I -S "$@"\n')
    python.chmod(0o755)


def _namespaces_of(of: SimulatedNode) -> set[str]:
    return {pod.namespace for pod in of.world.pods}


def _settings_of(of: SimulatedNode) -> Mapping[str, str]:
    """What the exporter on a node is told, by the names of settings."""
    return {
        "kubelet.socket": str(of.socket),
        "dcgm.url": of.url,
        "inventory.file": str(of.inventory_file),
        "nvml.mode": "off",
    }


def _config_of(of: simulated_node.SimulatedNode) -> Config:
    return config_of(
        node_name=of.api.node_name,
        kubelet_socket=str(of.socket),
        dcgm_url=of.url,
        inventory_file=str(of.inventory_file),
    )


def _pod(pod: Pod, node: str) -> Object:
    """As the API server has it: what its containers were given is what they asked for."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": pod.namespace, "name": pod.name},
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": each.name, "resources": {"limits": {resource: "1" for resource, _ in each.devices}}}
                for each in pod.containers
            ],
        },
        "status": {"phase": pod.phase},
    }


def kubeconfig_of(server: str, user: str, ca: Path) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "users": [{"name": user, "user": {"token": user}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user, "namespace": "serving"}}],
    }
