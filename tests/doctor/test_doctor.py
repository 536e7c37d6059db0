"""`doctor`: each of the usual mistakes, made for real where that can be done, is named with its remedy."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from exporter.bundle import archive
from exporter.config.tls import ServerTls, server_context
from exporter.doctor import checkup
from exporter.errors import ConfigError
from exporter.outputs.diagnosis import Finding, Level
from exporter.simulator.allocators import Kai
from exporter.sources.cdi import specs
from exporter.sources.kubelet.socket import is_mount_point
from exporter.sources.source import PATIENCE_SECONDS
from tests.support.allocators import allocated_node, given_to
from tests.support.certificates import LaxAuthority
from tests.support.doctor_here import doctor_in_thread
from tests.support.exporter import config_of
from tests.support.simulated import Container, Pod, SimulatedKubelet, SimulatedNode, World
from tests.support.simulated_api import SimulatedApi

NOBODY = 65534


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """Four whole GPUs."""
    simulated = SimulatedNode(World(gpus=4, seed=7))
    await simulated.start()
    yield simulated
    await simulated.stop()


async def look(node: SimulatedNode, **settings: Any) -> checkup.Checkup:
    return await checkup.examine(config_of(**{"kubelet_socket": str(node.socket), "dcgm_url": node.url, **settings}))


def the(seen: checkup.Checkup, text: str) -> Finding:
    """The one finding that says so."""
    found = [finding for finding in seen.report.findings if text in finding.trouble.message]
    assert len(found) >= 1, seen.report.render()
    return found[0]


def hand_out(node: SimulatedNode, resource: str, device_id: str, name: str = "odd") -> None:
    container = Container(name="main", devices=((resource, device_id),))
    node.world.pods += (Pod(namespace="ml", name=name, containers=(container,), uid=name),)


async def test_all_is_well(node: SimulatedNode) -> None:
    seen = await look(node)
    assert seen.report.works()
    assert {finding.level for finding in seen.report.findings} == {Level.OK}
    held = sum(len(pod.devices) for pod in node.world.pods)
    assert held > 1
    assert seen.report.render().startswith(f"{held} of {held} devices attributed.\n")
    assert seen.report.render().endswith("\nThe main job works.\n")
    assert seen.report.render().count(" samples\n") == len(
        [f for f in seen.report.findings if f.about.startswith("GPU-")]
    )


# issue 26, "Less in the way"
async def test_the_rules_of_a_vendor_that_nobody_saw_are_called_experimental(node: SimulatedNode) -> None:
    seen = await look(node, device_rules="amd")
    finding = the(seen, "the rules for amd are experimental: nobody has seen them on hardware (docs/vendors.md)")
    assert (finding.level, finding.about) == (Level.OK, "--device-rules")
    assert "experimental" not in (await look(node)).report.render()


# noted in issue 25: 24 ids where the kubelet had handed out 8
async def test_only_ids_that_the_kubelet_handed_out_are_counted() -> None:
    kai = allocated_node(Kai(), gpus=4)
    listed = [device_id for pod in kai.world.pods for container in pod.containers for _, device_id in container.devices]
    assert len(given_to(kai.world)) > len(listed)
    await kai.start()
    try:
        settings = {"kubelet_pods_socket": str(kai.pods_socket), "resources": "nvidia.com/*"}
        seen = await look(kai, **settings)
    finally:
        await kai.stop()
    assert the(seen, "device ids are handed out").trouble.message.endswith(f"; {len(listed)} device ids are handed out")


async def test_1_the_sockets_directory_is_not_mounted(node: SimulatedNode, tmp_path: Path) -> None:
    seen = await look(node, kubelet_socket=str(tmp_path / "pod-resources" / "kubelet.sock"))
    assert "directory is not mounted" in the(seen, "is not mounted").trouble.message
    assert f"-v {tmp_path}/pod-resources:{tmp_path}/pod-resources:ro" in the(seen, "is not mounted").trouble.remedy
    assert not seen.report.works()
    empty = await look(node, kubelet_socket=str(tmp_path / "kubelet.sock"))
    assert "--root-dir" in the(empty, "no socket in it").trouble.remedy


@pytest.mark.parametrize("levels", [0, 1])
async def test_2_no_right_to_open_it(node: SimulatedNode, levels: int) -> None:
    folder, socket = node.socket.parent, node.socket
    if levels:
        (folder / "pod-resources").mkdir()
        socket = folder / "pod-resources" / "kubelet.sock"
    root = os.geteuid() == 0
    folder.chmod(0)  # as the kubelet's folder is to everyone but root
    if root:
        os.seteuid(NOBODY)
    try:
        seen = await look(node, kubelet_socket=str(socket))
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o700)
    assert "run as uid 0" in the(seen, "no right to open").trouble.remedy
    assert not seen.report.works()


async def test_3_the_socket_file_is_mounted_and_dead(node: SimulatedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = node.socket.parent / "mountinfo"
    mounts.write_text(f"36 35 98:0 / {node.socket} rw,noatime - tmpfs none rw\n")
    monkeypatch.setattr(is_mount_point, "__defaults__", (mounts,))
    await node.kubelet.stop()
    seen = await look(node)
    assert "mount the directory" in the(seen, "is mounted as a file, and dead").trouble.remedy
    mounts.write_text("36 35 98:0 / / rw,noatime - tmpfs none rw\n")
    assert "look at its log" in the(await look(node), "nobody listens on").trouble.remedy


# issue 7, line 3
async def test_a_kubelet_that_lists_no_pod(node: SimulatedNode) -> None:
    node.kubelet.api_away = True
    await node.kubelet.restart(down_seconds=0.0, empty_seconds=0.0, partial_seconds=0.0)
    found = the(await look(node), "the kubelet lists no pod")
    assert found.level is Level.WARNING
    assert "can the node reach the API server?" in found.trouble.remedy


@pytest.mark.real
async def test_3_in_a_real_mount_namespace(node: SimulatedNode, tmp_path: Path) -> None:
    """The socket file is bound to another place, and the kubelet makes a new one."""
    target = tmp_path / "kubelet.sock"
    target.touch()
    script = tmp_path / "inside.py"
    script.write_text(
        "import asyncio, sys; from exporter.doctor import checkup; from tests.support.exporter import config_of\n"
        "sys.stdin.readline()\n"
        f"print(asyncio.run(checkup.examine(config_of(kubelet_socket={str(target)!r},"
        f" dcgm_url={node.url!r}))).report.render())"
    )
    command = f"mount --bind {node.socket} {target} && echo mounted && exec {sys.executable} {script}"
    process = await asyncio.create_subprocess_exec(
        "unshare", "--mount", "sh", "-c", command,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"mounted\n"
    await node.kubelet.restart(down_seconds=0.0, empty_seconds=0.0, partial_seconds=0.0)
    report, _ = await process.communicate(b"go\n")
    assert b"is mounted as a file, and dead" in report


async def test_4_only_v1alpha1(node: SimulatedNode) -> None:
    await node.kubelet.stop()
    old = SimulatedKubelet(node.socket, lambda: node.world.pods, versions=("v1alpha1",))
    await old.start()
    try:
        seen = await look(node)
        assert "upgrade" in the(seen, "serves only v1alpha1").trouble.remedy
        assert seen.report.works()
    finally:
        await old.stop()


async def test_5_dcgm_exporter_refuses_or_its_port_is_our_own(node: SimulatedNode) -> None:
    url = node.url
    await node.dcgm.stop()
    seen = await look(node)
    assert "Its default is 9400" in the(seen, "nobody listens").trouble.remedy
    assert not seen.report.works()
    with pytest.raises(ConfigError, match=r"this exporter's own address.*one of the two must move"):
        config_of(web_listen_address=":9400", dcgm_url="http://localhost:9400/metrics")

    # by another name than the configuration can see through
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text='pod_gpu_exporter_build_info{version="1"} 1\nx 1\n')

    own = web.Application()
    own.router.add_get("/metrics", answer)
    runner = web.AppRunner(own)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(re.findall(r":(\d+)/", url)[0])).start()
    try:
        seen = await look(node)
        assert "name dcgm-exporter's port" in the(seen, "an exporter's own").trouble.remedy
        assert not seen.report.works()
    finally:
        await runner.cleanup()


async def test_6_the_page_is_another_nodes(node: SimulatedNode) -> None:
    elsewhere = SimulatedNode(World(gpus=8, seed=99), host_name="gpu-node-2")
    await elsewhere.start()
    try:
        seen = await look(node, dcgm_url=elsewhere.url)
        says = the(seen, "another node").trouble.message
        held = sum(len(container.devices) for pod in node.world.pods for container in pod.containers)
        assert says.endswith(f"none of its 8 UUIDs is among this kubelet's {held}")
        assert "ClusterIP" in the(seen, "another node").trouble.remedy
        assert not seen.report.works()
    finally:
        await elsewhere.stop()


async def test_7_a_resource_outside(node: SimulatedNode) -> None:
    hand_out(node, "amd.com/gpu", "0000:c1:00.0")
    seen = await look(node)
    assert (
        "add --resources amd.com/gpu"
        in the(seen, "resource amd.com/gpu is outside --resources (nvidia.com/*, tencent.com/vcuda-*, ").trouble.remedy
    )
    assert seen.report.works()
    seen = await look(node, resources="intel.com/*")
    assert not seen.report.works()


async def test_8_a_mig_id_and_no_inventory(simulated: SimulatedNode) -> None:
    seen = await look(simulated)
    assert "--inventory.file" in the(seen, "MIG id and no inventory").trouble.remedy
    assert not seen.report.works()  # a container holds what was not attributed
    simulated.inventory_file.write_text('{"gpus": []}')
    seen = await look(simulated, inventory_file=str(simulated.inventory_file))
    assert "up to date" in the(seen, "the inventory does not name").trouble.remedy
    simulated.inventory_file.write_text(json.dumps(simulated.world.inventory()))
    seen = await look(simulated, inventory_file=str(simulated.inventory_file))
    assert {finding.level for finding in seen.report.findings} == {Level.OK}


async def test_9_an_id_of_unknown_form(node: SimulatedNode) -> None:
    hand_out(node, "nvidia.com/gpu", "quantum-7")
    seen = await look(node)
    assert "--device-rules" in the(seen, "form of this device id is not known").trouble.remedy


async def test_10_keep_hides_the_kubelets_word(node: SimulatedNode) -> None:
    plain = node.dcgm.page
    node.dcgm.page = lambda: plain().replace('UUID="', 'pod="theirs",namespace="x",container="y",UUID="')  # type: ignore[method-assign]
    seen = await look(node, labels_conflict="keep")
    assert "--labels.conflict replace" in the(seen, "keep hides the kubelet's word").trouble.remedy
    assert seen.report.works()
    assert {finding.level for finding in (await look(node)).report.findings} == {Level.OK}


# issue 7, line 13
async def test_7_of_13_devices_attributed_and_one_line_a_cause() -> None:
    node = SimulatedNode(World(gpus=8, mig=1, seed=7))
    whole = [slot for gpu in node.world.gpus for slot in gpu.slots if not gpu.instances]
    cut = [slot for gpu in node.world.gpus for slot in gpu.slots if gpu.instances][:6]
    node.world.pods = ()
    for number, (resource, device_id) in enumerate((*whole, *cut)):
        hand_out(node, resource, device_id, f"pod-{number}")
    await node.start()
    try:
        seen = await look(node)
        lines = seen.report.render().splitlines()
        assert lines[0] == "7 of 13 devices attributed."
        assert [line for line in lines if line.startswith("problem")] == [
            (
                "problem  6 devices: MIG id and no inventory: samples name an instance by its parent's UUID and"
                " GPU_I_ID, and nothing here says which instance this id is"
            )
        ]
        (finding,) = [finding for finding in seen.report.findings if finding.level is Level.PROBLEM]
        assert "--inventory.file" in finding.trouble.remedy
        assert {name.split()[0] for name in finding.devices} == {device_id for _, device_id in cut}
        assert "and 1 more" in seen.report.render()
        assert lines[-1] == "The main job does not work, or not for every device: see above."
        assert not seen.report.works()
        # what dcgm-exporter itself says of them is an answer too
        plain = node.dcgm.page
        owners = {
            str(gpu.instances[number].instance_id): f"pod-{7 + number}"
            for gpu in node.world.gpus[7:]
            for number in range(6)
        }
        node.dcgm.page = lambda: re.sub(  # type: ignore[method-assign]
            r'GPU_I_ID="(\d+)"',
            lambda found: f'{found[0]},pod="{owners.get(found[1], "")}",namespace="ml",container="main"',
            plain(),
        )
        seen = await look(node)
        assert seen.report.summary == "13 of 13 devices attributed"
        assert seen.report.works(strict=True)
    finally:
        await node.stop()


# issue 7, line 12
@pytest.mark.parametrize("dra", ["off", "auto"])
async def test_gpus_by_claim_that_are_not_followed(dra: str) -> None:
    """With `auto` for want of a source: neither a token nor a CDI name that holds a UUID."""
    node = SimulatedNode(World(gpus=4, claims=4, seed=7))
    await node.start()
    try:
        seen = await look(node, dra=dra)
        held = sum(len(container.claims) for pod in node.world.pods for container in pod.containers)
        assert held > 1
        assert seen.report.summary == f"0 of {held} devices attributed"
        assert not seen.report.works()
        (finding,) = [finding for finding in seen.report.findings if finding.level is Level.PROBLEM]
        assert finding.about == f"{held} devices"
        assert "claim" in finding.trouble.message
        assert ("--dra" if dra == "off" else "Kubernetes API") in finding.trouble.remedy
        mapping = json.loads(seen.files["mapping.json"])
        assert {row["reason"] for row in mapping["assigned"]} == {"dra_off" if dra == "off" else "claim_unresolved"}
        assert {row["claim"] != "" for row in mapping["assigned"]} == {True}
        assert all("a DRA claim holds" in row["reason"] for row in mapping["seen"])
        assert "names no container" not in json.dumps(mapping)
        found = await look(node, dra="auto", kubernetes_url=node.api_url)
        assert found.report.summary == f"{held} of {held} devices attributed"
        assert found.report.works(strict=True)
    finally:
        await node.stop()


# issue 7, line 11
async def test_a_page_that_says_that_it_is_of_this_node_is_not_called_anothers(node: SimulatedNode) -> None:
    twin = SimulatedNode(World(gpus=8, seed=99), host_name="gpu-node-1")
    await twin.start()
    try:
        seen = await look(node, dcgm_url=twin.url)
        assert "another node" not in seen.report.render() + seen.files["mapping.json"].decode()
        finding = the(seen, "no upstream page has a sample of this device")
        assert "nvidia-smi" in finding.trouble.remedy
        assert not seen.report.works()
    finally:
        await twin.stop()


# issue 7, line 13
async def test_warnings_count_only_when_asked_for(node: SimulatedNode) -> None:
    hand_out(node, "amd.com/gpu", "0000:c1:00.0")
    seen = await look(node)
    assert seen.report.works()
    assert not seen.report.works(strict=True)
    assert seen.report.render().endswith("\nThe main job works; warnings: 1.\n")


def refused(status: int, **answer: object) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status", "code": status, **answer}, status=status)

    return handle


# issue 7, line 11
@pytest.mark.parametrize(
    ("status", "message", "token", "says", "remedy"),
    [
        (401, "Unauthorized", "old", "does not accept the token in", "the token has expired or is another cluster's"),
        (401, "Unauthorized", "", "it was asked without a token", "automountServiceAccountToken: true"),
        (403, 'pods is forbidden: User "x" cannot list', "t", "with 403: pods is forbidden", "list and watch on pods"),
        (403, 'pods is forbidden: RBAC: role "x" not found', "t", "with 403: pods", "has just started"),
        (503, "", "t", "answers /api/v1/pods with HTTP status 503", "only what it adds is missing"),
    ],
)
async def test_11_a_kubernetes_api_that_refuses(
    node: SimulatedNode, tmp_path: Path, status: int, message: str, token: str, says: str, remedy: str
) -> None:
    app = web.Application()
    app.router.add_get("/{path:.*}", refused(status, message=message))
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    if token:
        (tmp_path / "token").write_text(token)
    try:
        seen = await look(
            node,
            labels_pod_uid="on",
            pods_source="api",
            kubernetes_url=f"http://127.0.0.1:{runner.addresses[0][1]}",
            kubernetes_token_file=str(tmp_path / "token"),
        )
    finally:
        await runner.cleanup()
    found = the(seen, says)
    assert (found.about, found.level) == ("pods", Level.WARNING)
    assert remedy in found.trouble.remedy


# issue 7, line 11
async def test_11_a_kubernetes_api_with_a_wrong_certificate_or_no_listener(node: SimulatedNode, tmp_path: Path) -> None:
    ours, theirs = LaxAuthority(tmp_path, "ours"), LaxAuthority(tmp_path, "theirs")
    pair = theirs.issue("server")
    context = server_context(ServerTls(cert_file=str(pair.cert), key_file=str(pair.key)), "test")
    api = SimulatedApi(node.world)
    url = await api.start(tls=context)
    settings = {
        "labels_pod_uid": "on", "pods_source": "api", "kubernetes_url": url, "kubernetes_ca_file": str(ours.ca),
    }  # fmt: skip
    try:
        assert (
            "must hold the authority"
            in the(await look(node, **settings), "its certificate is not accepted").trouble.remedy
        )
    finally:
        await api.stop()
    seen = await look(node, **settings)
    assert "is the API server running" in the(seen, f"{url}: nobody listens there").trouble.remedy
    assert "object at 0x" not in seen.report.render()


async def test_what_came_from_elsewhere_cannot_write_on_the_terminal(node: SimulatedNode) -> None:
    hand_out(node, "nvidia.com/gpu", "\x1b[2Jevil\r\n")
    report = (await look(node)).report.render()
    assert "\x1b" not in report
    assert "\\x1b[2Jevil\\r\\n" in report


async def test_the_command_and_its_bundle(node: SimulatedNode, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.tar.gz"
    url = node.url.replace("http://", "http://user:hunter2@") + "?token=hunter2"
    (tmp_path / "token").write_text("hunter2")
    command = [
        "--kubelet.socket", str(node.socket), "--dcgm.url", url,
        "--web.listen-address", "127.0.0.1:1", "--bundle", str(bundle), "--plain",
        "--kubernetes.token-file", str(tmp_path / "token"),
    ]  # fmt: skip
    done = await doctor_in_thread(*command)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "The main job works.\n" in done.stdout
    with tarfile.open(bundle) as packed:
        contents = b"".join(file.read() for name in packed.getnames() if (file := packed.extractfile(name)))
    assert b"hunter2" not in contents
    recording = archive.read(bundle)
    assert recording.settings["dcgm.url"] == (node.url,)
    assert recording.report in done.stdout
    (moment,) = recording.moments
    assert b"DCGM_FI_DEV_GPU_TEMP" in moment.outputs["/gpu/metrics"]
    await node.kubelet.stop()
    done = await doctor_in_thread(*command)
    assert done.returncode == 1
    assert "The main job does not work" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.usefixtures("half_a_second")
async def test_inventories_that_are_read_slowly_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look waits for them a moment, which on a busy machine is over before the first file is read."""

    def read_slowly(*of: Any) -> Any:
        time.sleep(2 * PATIENCE_SECONDS)
        return read(*of)

    read = specs.read
    monkeypatch.setattr(specs, "read", read_slowly)
    simulated = SimulatedNode(World(gpus=2, mig=1, seed=7))
    await simulated.start()
    try:
        seen = await look(simulated, root=str(simulated.root))
    finally:
        await simulated.stop()
    held = sum(len(pod.devices) for pod in simulated.world.pods)
    assert seen.report.render().startswith(f"{held} of {held} devices attributed.\n")
    assert any(device.startswith("MIG-") for pod in simulated.world.pods for device in pod.devices)
