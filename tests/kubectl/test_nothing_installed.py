"""`kubectl gpu --nothing-installed`: a real kubectl, in front of dcgm-exporters behind the simulated API's proxy."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from exporter.kubectl.api_proxy import ApiProxy
from exporter.kubectl.binary import Kubectl
from exporter.top.transport import Gone
from tests.support import quick_yaml
from tests.support.components import free_port, real
from tests.support.dcgm_cluster import CHART, FORBIDDEN, GKE, HANG, NAMESPACE, DcgmCluster, GpuNode, Run
from tests.support.kubectl_gpu import ADMIN, JANE, run_plugin
from tests.support.places import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real
TRIES = 5
FIRST_LINE_SECONDS = 5.0
WAIT_SECONDS = 2.0  # for the one that hangs
FLAG = "--nothing-installed"
ROLES = quick_yaml.load_all((ROOT / "deploy/kubectl/nothing-installed.yaml").read_text())
OF_PAGES, OF_REQUESTS = (item["rules"] for item in ROLES if item["kind"] == "ClusterRole")


def made_fleet() -> list[GpuNode]:
    """Forty nodes whose pages name pods, four whose pages do not, and two that refuse."""
    nodes = [
        GpuNode(
            name=f"gpu-{number}",
            holders={0: f"ml/train-{number}", 1: f"ml/train-{number}", 2: f"chat/serve-{number}"},
            busy=frozenset({0, 1}),
        )
        for number in range(1, 41)
    ]
    plain = partial(GpuNode, with_k=False, labels=CHART, namespace="monitoring")
    return [
        *nodes,
        plain(name="gpu-41", holders=dict.fromkeys(range(8), "ml/whole"), busy=frozenset(range(8))),
        plain(name="gpu-42", gpus=1, holders={0: "ml/one"}),
        plain(name="gpu-43", holders={0: "ml/two", 5: "ml/two", 6: "dev/three"}, busy=frozenset({0})),
        plain(name="gpu-44"),
        GpuNode(name="gpu-45", refuses=FORBIDDEN),
        GpuNode(name="gpu-46", refuses=HANG),
    ]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DcgmCluster]:
    yield from running(tmp_path_factory.mktemp("fleet"), made_fleet())


@pytest.fixture
def small(tmp_path: Path) -> Iterator[DcgmCluster]:
    """A cluster to which a test adds nodes."""
    yield from running(tmp_path, [])


def running(folder: Path, nodes: list[GpuNode]) -> Iterator[DcgmCluster]:
    made = DcgmCluster(folder)
    try:
        made.start()
        made.add(*nodes)
        yield made
    finally:
        made.stop()


def by_device(devices: Any) -> dict[str, str]:
    """The holder of each device, else its state."""
    return {f"{device['node_name']}/{device['device_id']}": device["pod"] or device["state"] for device in devices}


def no_proxy_is_left(cluster: DcgmCluster) -> bool:
    """Whether the folder of the sockets is gone, and so kubectl proxy."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return f"--unix-socket {cluster.folder}" not in listed


# issue 26, "Must show" 5
def test_the_first_useful_lines_of_forty_six_nodes(fleet: DcgmCluster, capsys: pytest.CaptureFixture[str]) -> None:
    tries: list[Run] = []
    is_quick = is_whole = False
    wait_seconds = WAIT_SECONDS / 2
    while len(tries) < TRIES and not (is_quick and is_whole):
        # on a busy machine some of the pages take longer than 2 s
        wait_seconds *= 2
        # what the machine needs for the programs alone: a busy one needs more for all of it
        alone = fleet.kubectl("gpu", "top", "--once", FLAG, "--exporter", "nowhere").seconds
        longer = ("--wait", f"{wait_seconds:g}s") if tries else ()
        tries.append(fleet.kubectl("gpu", "top", "--once", FLAG, *longer))
        is_quick = tries[-1].seconds < max(FIRST_LINE_SECONDS, wait_seconds + 5 * alone)
        # nor is the last one even asked within it
        silent = f"missing gpu-46: dcgm-exporter gives no answer within {wait_seconds:g} s: --wait gives it"
        is_whole = "345 GPUs" in tries[-1].out and silent in tries[-1].out
    with capsys.disabled():
        seconds = ", ".join(f"{ended.seconds:.1f} s" for ended in tries)
        sys.stdout.write(f"\n46 dcgm-exporters, one of which hangs: all that the others say after {seconds}\n")
    assert is_quick
    shown = tries[-1]
    assert shown.code == 0, shown.err
    assert shown.out.startswith("46 nodes  345 GPUs  129 held")
    assert (
        "missing gpu-45: dcgm-exporter asks for a password or a token, which the API server's proxy does not pass"
        in shown.out
    )
    assert is_whole, shown.out
    for node, holder in (("gpu-7 ", "ml/train-7 "), ("gpu-41", "ml/whole"), ("gpu-42", "ml/one"), ("gpu-44", "free")):
        lines = [line for line in shown.out.splitlines() if line.startswith(f"{node} ")]
        assert holder in lines[0], lines
    unknown = [line for line in shown.out.splitlines() if "holder unknown (" in line]
    assert len(unknown) == 8
    assert all("dev/three (1) and ml/two (2) ask for 3 of" in line for line in unknown)
    assert no_proxy_is_left(fleet)


def test_who_and_idle_say_what_is_sure_and_what_is_not(small: DcgmCluster) -> None:
    chosen = [node for node in made_fleet() if node.name in ("gpu-1", "gpu-42", "gpu-43", "gpu-45")]
    small.add(*chosen)
    assert by_device(small.json("idle", FLAG, "-A")) == {"gpu-1/2": "serve-1", "gpu-42/0": "one"}
    perhaps = small.gpu("who", "ml/two", FLAG)
    assert perhaps.out.count("holder unknown") == 8
    assert perhaps.out.splitlines()[-1] == (
        "gpu-43/0, 1, 2, 3, 4, 5, 6, 7: dev/three (1) and ml/two (2) ask for 3 of these 8 GPUs;"
        " which ones, only the kubelet on the node knows"
    )
    missing, *notes = perhaps.err.splitlines()
    assert missing == (
        "the node gpu-45 is missing: dcgm-exporter asks for a password or a token, which the API server's proxy does"
        " not pass on (HTTP status 403) -> install the exporter on the nodes, which reads the page from nearby"
    )
    assert notes == [
        "No page says since when a pod holds a GPU or leaves it idle, and how healthy the GPU is.",
        "The exporter on the nodes knows it (docs/install.md).",
    ]


def test_pages_of_every_kind(small: DcgmCluster) -> None:
    small.add(
        GpuNode(
            name="legacy", gpus=2, holders={0: "ml/a"}, label_names=("pod_name", "pod_namespace", "container_name")
        ),
        GpuNode(name="gke", gpus=2, holders={1: "ml/b"}, labels=GKE, namespace="gke-managed-system"),
        GpuNode(
            name="aws",
            gpus=1,
            holders={0: "ml/c"},
            is_https=True,
            labels={"app.kubernetes.io/name": "dcgm", "app.kubernetes.io/component": "dcgm-exporter"},
        ),
        GpuNode(name="tls", gpus=1, holders={0: "ml/g"}, is_https=True, tells_scheme=False),
        GpuNode(name="down", gpus=1, is_up=False),
        GpuNode(name="mig", gpus=2, mig=1, instances={(1, 9): "ml/d"}, busy=frozenset({1})),
        GpuNode(name="shared", gpus=1, holders={0: "ml/e"}),
        GpuNode(name="stale", gpus=2, holders={0: "ml/f"}),
    )
    small.put_node("bare", {"nvidia.com/gpu": 8}, {"nvidia.com/gpu.present": "true"})
    small.put_pod("ml/e2", "shared", {"nvidia.com/gpu.shared": 1})
    small.put_pod("ml/f", "stale", {"nvidia.com/gpu": 1}, phase="Succeeded")
    rows = [row for name in ("legacy", "gke", "aws", "tls") for row in small.json("who", name, FLAG)]
    of_two = {"legacy/0": "a", "legacy/1": "free", "gke/0": "free", "gke/1": "b"}
    assert by_device(rows) == {**of_two, "aws/0": "c", "tls/0": "g"}
    instances = small.json("who", "mig", FLAG)
    held = [row for row in instances if row["pod"]]
    assert [(row["mig_instance_id"], row["mig_profile"], row["pod"]) for row in held] == [("9", "1g.10gb", "d")]
    shared = small.gpu("who", "shared", FLAG)
    assert "of a shared GPU dcgm-exporter names one pod only" in shared.out
    assert "Pods share GPUs: no page says what each of them uses." in shared.err
    assert (
        "the node down is missing: dcgm-exporter does not answer: error trying to reach service: dial tcp 127."
        in shared.err
    )
    assert "the node bare is missing: no dcgm-exporter runs there -> does the nodeSelector of its" in shared.err
    stale = small.gpu("who", "stale", FLAG).out
    assert "stale/0: the page still names ml/f, which has ended (Succeeded)" in stale
    shown = small.json("top", FLAG, "-n", "ml")
    assert {device["node"] for device in shown["devices"]} == {"legacy", "gke", "aws", "tls", "mig", "shared"}


def test_what_a_user_may_decides_what_is_known(small: DcgmCluster) -> None:
    node = GpuNode(name="n1", gpus=2, holders={0: "ml/a"})
    small.add(node, replace(node, name="n2", with_k=False, holders=dict.fromkeys(range(2), "ml/b")))
    pages = [(NAMESPACE, rule) for rule in OF_PAGES]
    requests = [("", rule) for rule in OF_REQUESTS]
    small.api.rules = [*pages, *requests]
    everything = small.json("who", "n1", FLAG, user=JANE) + small.json("who", "n2", FLAG, user=JANE)
    assert by_device(everything) == {"n1/0": "a", "n1/1": "free", "n2/0": "b", "n2/1": "b"}
    # what the page names is known, and no more
    small.api.rules = pages
    rows = small.json("who", "n1", FLAG, user=JANE) + small.json("who", "n2", FLAG, user=JANE)
    assert by_device(rows) == {"n1/0": "a", "n1/1": "free", "n2/0": "unknown", "n2/1": "unknown"}
    assert rows[-1]["state_reason"] == "the page names no pods, and you may not list those of the node"
    # whether the node shares its GPUs is not known
    small.api.rules = [*pages, *((where, rule) for where, rule in requests if "nodes" not in rule["resources"])]
    rows = small.json("who", "n2", FLAG, user=JANE)
    assert by_device(rows) == {"n2/0": "unknown", "n2/1": "unknown"}
    assert "you may not get the node, which says whether it shares GPUs" in rows[0]["state_reason"]
    ask = "ask the cluster's admin for the ClusterRole pod-gpu-metrics-trial (deploy/kubectl/nothing-installed.yaml)"
    small.api.rules = requests
    assert small.gpu("idle", FLAG, user=JANE).err == (
        "kubectl gpu: no GPU can be shown: on n1 and n2, jane may not get pods/proxy in the namespace"
        f" gpu-operator -> {ask}\n"
    )
    small.api.rules = [("nowhere", rule) for rule in OF_PAGES]
    assert small.gpu("idle", FLAG, user=JANE).err == (
        f"kubectl gpu: jane may not list pods in all namespaces -> {ask}, or name the namespace of dcgm-exporter:"
        " --exporter NAMESPACE\n"
    )


def test_what_is_away_is_said_in_one_line(small: DcgmCluster) -> None:
    assert small.gpu("idle", FLAG).err.startswith("kubectl gpu: no dcgm-exporter runs in this cluster: no pod has one")
    small.add(GpuNode(name="n1", gpus=1))
    small.add(GpuNode(name="n2", gpus=1), GpuNode(name="n3", refuses=FORBIDDEN))
    small.pages = dict.fromkeys(small.pages, b"")
    assert small.gpu("idle", FLAG).err == (
        "kubectl gpu: no GPU can be shown: on n1 and n2, dcgm-exporter's page is empty (and on 1 node for other"
        " reasons) -> look at the log of dcgm-exporter\n"
    )
    assert small.gpu("top", FLAG, "--wait", "0s").err.startswith("kubectl gpu: --wait: '0s' is not allowed; it takes a")
    assert "it takes NAMESPACE" in small.gpu("top", FLAG, "--exporter", "a/b").err
    assert 'context "nope" does not exist' in small.gpu("idle", FLAG, "--context", "nope").err


NO_PLUGIN, PLUGIN_FAILS = "/nonexistent/auth", "false"


def kubeconfig_with(cluster: DcgmCluster, command: str) -> str:
    """The kubeconfig of an admin whose credentials come from a command, in a file of its own."""
    text = (cluster.folder / f"{ADMIN}.kubeconfig").read_text()
    config = json.loads(text)
    version = "client.authentication.k8s.io/v1"
    config["users"][0]["user"] = {"exec": {"apiVersion": version, "command": command, "interactiveMode": "Never"}}
    path = cluster.folder / "of-a-command"
    path.write_text(json.dumps(config))
    return str(path)


def test_a_kubeconfig_that_leads_nowhere_is_named(small: DcgmCluster) -> None:
    """Whether kubectl proxy says so, as here, or kubectl itself."""
    small.add(GpuNode(name="n1", gpus=1))
    nowhere = small.gpu("idle", FLAG, "--kubeconfig", os.devnull).err
    assert nowhere == (
        "kubectl gpu: the kubeconfig names no API server -> give --kubeconfig or --context, or set KUBECONFIG\n"
    )
    for command in (NO_PLUGIN, PLUGIN_FAILS):
        config = kubeconfig_with(small, command)
        for words in (("idle", FLAG), ("queue",)):
            error = small.gpu(*words, "--kubeconfig", config).err
            assert error.startswith("kubectl gpu: kubectl gets no credentials: exec: "), error
            assert error.endswith(" -> log in again, or install what the kubeconfig's users[].user.exec names\n"), error


def test_names_reach_the_terminal_without_its_escapes(small: DcgmCluster) -> None:
    """No API server gives such names. A page may have them, and what answers as an API server."""
    red = "\x1b[31mred\x07"
    small.add(
        GpuNode(name="n1", gpus=1, holders={0: f"ml/a{red}"}),
        GpuNode(name="n2", gpus=2, holders={0: f"ml/b{red}", 1: "ml/c"}, with_k=False),
        GpuNode(name=f"n3{red}", refuses=FORBIDDEN),
    )
    small.put_node(f"n4{red}", {"nvidia.com/gpu": 8}, {"nvidia.com/gpu.present": "true"})
    for words in (("top", "--once"), ("who", "n1"), ("who", "n2"), ("idle",)):
        ended = small.gpu(*words, FLAG)
        assert ended.code == 0, ended.err
        assert set(ended.out + ended.err).isdisjoint("\x1b\x07"), ended
    assert r"the node n4\x1b[31mred\x07 is missing: no dcgm-exporter runs there" in ended.err


def test_a_look_that_shows_nothing_says_why_and_no_more(small: DcgmCluster) -> None:
    small.add(GpuNode(name="n1", gpus=1, holders={0: "ml/a"}))
    assert small.gpu("who", "b", FLAG).err == (
        "kubectl gpu: b: no pod in your namespace that holds a GPU, no node and no GPU -> -A looks in all namespaces\n"
    )
    assert small.gpu("top", "--once", FLAG, "-n", "dev").out.endswith("no pod of the namespace dev holds a GPU\n")


def test_a_script_called_kubectl_ends_with_us_too(small: DcgmCluster) -> None:
    """Such scripts choose a version or log in, and may print words before the first ones of kubectl."""
    small.add(GpuNode(name="n1", gpus=1, holders={0: "ml/a"}))
    folder = small.folder / "scripts"
    folder.mkdir()
    script = folder / "kubectl"
    script.write_text(f'#!/bin/sh\necho "Using version 1.36"; sleep 0.3\n{real("kubectl")} "$@"\n')
    script.chmod(0o755)
    environment = {**small.environment()}
    environment["PATH"] = os.pathsep.join((str(folder), environment["PATH"]))
    ended = run_plugin(("who", "n1", FLAG), environment)
    assert (ended.code, "ml/a" in ended.out) == (0, True), ended
    assert no_proxy_is_left(small)
    assert not [*small.folder.glob("kubectl-gpu-*")]


def test_krews_archive_needs_no_library_of_the_machine(small: DcgmCluster, krews_plugin: Path) -> None:
    small.add(GpuNode(name="n1", gpus=1, holders={0: "ml/a"}))
    small.plugins = krews_plugin
    ended = small.kubectl("gpu", "who", "n1", FLAG)
    assert ended.code == 0, ended.err
    assert "ml/a" in ended.out


def test_kubectl_proxy_passes_on_nothing_but_gets_and_ends_with_us(
    small: DcgmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in small.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", str(small.folder))
    with ApiProxy(Kubectl(())) as api:
        assert api.item("/api/v1/pods", 10)["kind"] == "PodList"
        assert api.get("/api/v1/secrets", 10).status == 403
        socket = next(Path(small.folder).glob("kubectl-gpu-*/api"))
        assert socket.parent.stat().st_mode & 0o777 == 0o700
        for method in ("POST", "DELETE"):
            ended = subprocess.run(
                ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", method, "--unix-socket", str(socket),
                 "http://localhost/api/v1/namespaces/ml/pods"],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert ended.stdout == "403"
    assert not socket.parent.exists()
    assert not [line for line in small.api.asked if not line.startswith("GET ")]
    refused = r"^the API server does not answer: dial tcp .*connection refused -> is it the right one\?"
    nobody = Kubectl((f"--server=https://127.0.0.1:{free_port()}",))
    with ApiProxy(nobody) as api, pytest.raises(Gone, match=refused):
        api.item("/api/v1/pods", 10)
    with pytest.raises(Gone, match='context "nope" does not exist'):
        ApiProxy(Kubectl(("--context=nope",)))


def test_kubectl_proxy_ends_even_if_we_are_killed(small: DcgmCluster) -> None:
    small.add(GpuNode(name="n1", gpus=1, refuses=HANG))
    command = [str(real("kubectl")), "gpu", "top", "--once", FLAG, "--wait", "1m"]
    with subprocess.Popen(command, env=small.environment(), stderr=subprocess.DEVNULL) as running:
        wait_until(lambda: not no_proxy_is_left(small))
        wait_until(lambda: any("proxy/metrics" in line for line in small.api.asked))
        os.kill(running.pid, signal.SIGKILL)
    wait_until(lambda: no_proxy_is_left(small))
    wait_until(lambda: not [*small.folder.glob("kubectl-gpu-*")])
