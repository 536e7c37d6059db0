"""A node that is played back from a bundle: the exporter in front of it says what it said of the recorded one."""

import ctypes
import difflib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession

from exporter.bundle.collecting.looking import collect
from exporter.bundle.recording import PeerAnswer, RecordedMoment, Recording
from exporter.errors import ConfigError, ExporterError
from exporter.simulator.replay.replay_node import ReplayNode
from exporter.sources.nvml import nvml_source
from tests.support.bundles import (
    config_of_node,
    findings_in,
    in_recorded_words,
    recorded_moments,
    replay_of,
    without_times,
)
from tests.support.nvml import until_nobody_uses_it
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import until

REPORT = "/debug/mapping"
PAGES = ("/gpu/metrics", "/container/metrics", "/metrics/nodes", "/events", REPORT)


@asynccontextmanager
async def simulated(world: World, host_name: str = "gpu-node-1") -> AsyncIterator[SimulatedNode]:
    """A node with NVML, which no other node of this process has meanwhile."""
    node = SimulatedNode(world, host_name)
    node.has_device_checkpoint = True
    try:
        await node.start()
        node.nvml.load()
        yield node
    finally:
        await node.stop()
        if node.nvml.loaded:
            await until_nobody_uses_it()
            ctypes.CDLL(None).dlclose(ctypes.c_void_p(node.nvml.loaded._handle))


async def test_pages_and_findings_come_back_at_each_moment() -> None:
    world = World(gpus=8, mig=1, shared=2, claims=2, dynamic=1, seed=7)
    async with simulated(world) as node:

        def lose_a_gpu() -> None:
            node.failure.fail()
            node.failure.look(node.processes.pids)

        recording = await recorded_moments(node, config_of_node(node), (list, world.step, lose_a_gpu))
        root = str(node.root)
    await is_played_as_recorded(recording, root)


async def test_a_page_of_nvml_and_a_page_in_a_file_come_back(tmp_path: Path) -> None:
    async with simulated(World(gpus=4, mig=1, shared=1, seed=7)) as node:
        of_nvml = config_of_node(node, dcgm_mode="off", dcgm_url=[])
        recording = await recorded_moments(node, of_nvml, (list, node.world.step))
        file = tmp_path / "dcgm.prom"
        beside = file.with_suffix(".new")
        beside.write_text(node.dcgm.page())
        beside.rename(file)
        of_file = config_of_node(node, dcgm_file=str(file), dcgm_url=[])
        another = await recorded_moments(node, of_file, (list,))
        root = str(node.root)
    await is_played_as_recorded(recording, root)
    await is_played_as_recorded(another, root)


# issue 27: as on a busy machine, where the second look of a moment comes when NVML's next reading is due
async def test_a_moment_with_several_readings_of_nvml_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_source, "AGAIN_SECONDS", 0.0)
    async with simulated(World(gpus=2, shared=1, seed=7)) as node:
        recording = await recorded_moments(node, config_of_node(node), (list,))
        root = str(node.root)
    (moment,) = recording.moments
    asked = [call.arguments[0] for call in moment.calls if call.function == "nvmlDeviceGetProcessUtilization"]
    assert len(asked) > len({*asked}), "a GPU was read several times"
    assert b'gpu_shared="true"' in moment.outputs["/gpu/metrics"]
    await is_played_as_recorded(recording, root)


# as in a cluster: no Pods API, and a service account's token, which the machine of the replay lacks
async def test_pods_that_the_api_server_told_come_back(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    async with simulated(World(gpus=2, seed=7)) as node:
        settings = {"kubelet_pods_socket": str(tmp_path / "none.sock"), "kubernetes_token_file": str(token)}
        config = config_of_node(node, labels_pod_uid="on", **settings)
        recording = await recorded_moments(node, config, (list,))
        root = str(node.root)
    assert b"pod_uid=" in recording.moments[0].outputs["/gpu/metrics"]
    await is_played_as_recorded(recording, root)


async def test_no_token_of_this_machine_is_read() -> None:
    async with replay_of(bundle_with(kubernetes__url="https://api:6443")) as node:
        assert not Path(node.config().kubernetes.token_file).exists()
        assert Path(node.config().kubernetes.token_file).is_relative_to(node.folder)


async def is_played_as_recorded(recording: Recording, root: str) -> None:
    """A new exporter in front of a new replay says at each moment what the bundle has. `root` is the recorded one's."""
    for number in range(len(recording.moments)):
        differences: Mapping[str, Sequence[str]] = {}

        async def is_as_recorded(number: int = number) -> bool:
            nonlocal differences
            differences = await differences_at(number, recording, root)
            return not any(differences.values())

        await until(is_as_recorded, why=lambda: differences)  # noqa: B023 - it is asked within this turn


async def differences_at(number: int, recording: Recording, root: str) -> Mapping[str, Sequence[str]]:
    """What an exporter says otherwise at a moment, by path.

    Its replay is new, too: the simulated kernel's log forgets what an exporter has read.
    """
    outputs = recording.moments[number].outputs
    differences = {}
    async with replay_of(recording) as replayed:
        await replayed.show(number)
        (look,) = (await collect(replayed.config())).moments
        for path in PAGES:
            text = outputs[path].decode().replace(root, "")
            again = in_recorded_words(replayed, look.outputs[path])
            one, other = (_findings(of) if path == REPORT else without_times(of) for of in (text, again))
            differences[path] = _difference(one, other)
    return differences


def _findings(text: str) -> str:
    """Each finding of a report on a line of its own."""
    return "\n".join(map(str, findings_in(text)))


def _difference(recorded: str, replayed: str) -> Sequence[str]:
    before, after = (text.replace(',"', ',\n"').split("\n") for text in (recorded, replayed))
    lines = difflib.unified_diff(before, after, lineterm="", n=0)
    return [line[:400] for line in lines if not line.startswith(("---", "+++", "@@"))][:20]


def bundle_with(**settings: str) -> Recording:
    """A bundle with these settings, in which nobody answers."""
    texts = {name.replace("__", ".").replace("_", "-"): (text,) for name, text in settings.items()}
    return Recording(made_by="1", settings=texts, moments=(RecordedMoment(at_seconds=0.0),))


@pytest.mark.parametrize(
    ("name", "text", "replayed"),
    [
        ("device_rules", "amd", True),
        ("device_rules", "/etc/passwd", False),
        ("inventory__file", "/etc/passwd", False),
        ("dcgm__http_config", "/etc/passwd", False),
        ("kubernetes__token_file", "/etc/passwd", False),
        ("otlp__endpoint", "http://collector:4318", False),
        ("accounting__state", "/var/lib/state", False),
        ("web__listen_address", ":1", False),
        ("probe__mode", "on", False),
        ("sharing", "split", True),
        ("no__such_setting", "1", False),
    ],
)
async def test_settings_that_mean_another_machine_are_left_out(name: str, text: str, *, replayed: bool) -> None:
    recording = bundle_with(**{name: text})
    (setting,) = recording.settings
    async with replay_of(recording) as node:
        given = dict(node.config().given)
    is_there = setting in given and given[setting].values == (text,) and not node.config().is_default(setting)
    assert is_there is replayed


@pytest.mark.parametrize(("allow", "has_others"), [((), False), ((".*",), True)])
async def test_a_discovered_pods_page_has_the_families_that_settings_allow(
    allow: tuple[str, ...], *, has_others: bool
) -> None:
    body = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1"} 30\ngo_goroutines 7\n'
    page = PeerAnswer(peer="page", name="dcgm:10.0.0.7:9400", question="http://10.0.0.7:9400/metrics", body=body)
    settings = {"dcgm.selector": ("auto",), **({"families.allow": allow} if allow else {})}
    recording = Recording(made_by="1", settings=settings, moments=(RecordedMoment(at_seconds=0.0, answers=(page,)),))
    async with replay_of(recording) as node, ClientSession() as session:
        answer = await session.get(node.config().dcgm.urls[0])
        served = await answer.read()
    assert b"DCGM_FI_DEV_GPU_TEMP" in served
    assert (b"go_goroutines" in served) is has_others


async def test_more_pages_than_an_exporter_has_are_refused() -> None:
    pages = [
        PeerAnswer(peer="page", name=f"dcgm:{number}", question="http://10.0.0.7:1/metrics") for number in range(300)
    ]
    moment = RecordedMoment(at_seconds=0.0, answers=tuple(pages))
    with pytest.raises(ExporterError, match="300 pages"):
        ReplayNode(Recording(made_by="1", settings={"dcgm.mode": ("off",)}, moments=(moment,)))


async def test_a_record_without_a_time_is_played() -> None:
    record = f"6,1,{'9' * 5000},-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1"
    moment = RecordedMoment(at_seconds=0.0, kernel_log=(record, ""))
    async with replay_of(Recording(made_by="1", settings={}, moments=(moment,))) as node:
        assert node.shown == 0


async def test_a_broken_setting_is_told() -> None:
    with pytest.raises(ExporterError, match=r"the bundle's --dcgm\.url cannot be read"):
        ReplayNode(bundle_with(dcgm__url="http://[x:1/metrics"))
    async with replay_of(bundle_with(sharing="evil")) as node:
        with pytest.raises(ConfigError, match="evil"):
            node.config()
