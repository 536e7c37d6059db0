"""Every source of a node is one object with one interface, there or not."""

from pathlib import Path

import pytest

from exporter.config.named_files import NodeFiles
from exporter.config.node_settings import Config
from exporter.model.snapshot import Health
from exporter.node.build import make_node
from exporter.node.joining import Joining
from exporter.node.kept_owners import KeptOwners
from exporter.node.node import Node
from exporter.sources.kubelet.assignments import KubeletSource
from exporter.sources.kubernetes.workloads import Workloads
from exporter.sources.node_pods import NoPods
from exporter.sources.pages.discovery import Discovery
from exporter.sources.pages.url import DcgmSource
from exporter.sources.source import OptionalSource, Source, absent, is_absent, missing
from tests.support.exporter import config_of, running
from tests.support.node_parts import part_of, source_of
from tests.support.simulated import SimulatedNode

NOBODY = "http://127.0.0.1:1/metrics"


def node_of(config: Config, before: Node | None = None) -> Node:
    return make_node(config, NodeFiles(), handover=before.handover if before else None)


async def test_a_source_that_is_not_there_says_why_and_is_not_shown(simulated: SimulatedNode) -> None:
    node = node_of(config_of(kubelet_socket=str(simulated.socket), dcgm_url=simulated.url, inventory="off"))
    try:
        shared = part_of(node, Joining).sources
        (inventory,) = shared.inventory.parts
        for source in (inventory, source_of(node, Discovery), shared.pods, shared.slices, source_of(node, Workloads)):
            assert is_absent(source.health), source.name
            assert len(source.health.message) > len("no "), source.name
            assert not source.begin()
        snapshot = await node.look(None)
        assert {*snapshot.health} == {"kubelet", source_of(node, DcgmSource).name}
    finally:
        await node.close()


async def test_every_bound_is_shown_with_its_limit_even_without_its_source(
    simulated: SimulatedNode, tmp_path: Path
) -> None:
    given = {"kubelet_socket": str(simulated.socket), "dcgm_url": simulated.url, "labels_pod_uid": "on"}
    shown = []
    apis = {"kubernetes_url": "http://127.0.0.1:9", "pods_source": "api", "dra": "on"}
    for more in ({}, {"nvml_mode": "off"}, apis):
        async with running(config_of(**given, **more)) as exporter:
            await exporter.page()
            metrics = (await exporter.get("/metrics"))[1]
            shown.append({line for line in metrics.splitlines() if line.startswith("pod_gpu_exporter_bound_limit{")})
    assert shown[0] == shown[1] == shown[2]
    assert {
        'of="pods"',
        'of="pods_gone"',
        'of="resourceslices"',
        'of="assignments"',
        'of="series"',
        'of="accounts"',
        'of="offered_devices"',
        'of="nvml_gpus"',
        'of="gpu_processes"',
    } <= {line.partition("{")[2].partition("}")[0] for line in shown[0]}


async def test_a_late_source_is_looked_for_until_it_is_there() -> None:
    heard: list[Health] = []
    why = missing("no token is there", "mount one")
    nothing = NoPods(why, lambda _, health: heard.append(health))
    there: list[Source] = []
    late: OptionalSource[Source] = OptionalSource(lambda: there[0] if there else None, nothing)
    assert (late.begin(), late.health, late.is_there) == (None, why, False)
    assert heard == [why]
    there.append(NoPods(absent("found", ""), lambda *_: None))
    late.begin()
    assert (late.now is there[0], late.is_there) == (True, True)
    there.clear()
    late.begin()
    assert late.is_there
    assert {of: (bound.most > 0, bound.used()) for of, bound in late.bounds.items()} == {
        "pods": (True, 0),
        "pods_gone": (True, 0),
    }


@pytest.mark.parametrize(
    ("other", "goes_on"), [({"kubelet_timeout": "9s"}, True), ({"kubelet_socket": "/nonexistent/other"}, False)]
)
async def test_assignments_outlive_a_source_while_they_are_the_same_kubelets(
    simulated: SimulatedNode, other: dict[str, str], goes_on: bool
) -> None:
    given = {"kubelet_socket": str(simulated.socket), "dcgm_url": simulated.url}
    first = node_of(config_of(**given))
    held = (await first.look(None)).owners.matches
    assert held
    await simulated.kubelet.stop()
    second = node_of(config_of(**{**given, **other}), first)
    try:
        await first.give_way(second)
        kubelet = source_of(second, KubeletSource)
        assert kubelet is not source_of(first, KubeletSource)
        snapshot = await second.look(None)
        assert snapshot.health["kubelet"].up is False
        assert (snapshot.owners.matches == held) is goes_on
        assert (kubelet.age_seconds is not None) is goes_on
    finally:
        await second.close()


async def test_a_configuration_that_cannot_be_used_changes_nothing_that_lasts(
    simulated: SimulatedNode, tmp_path: Path
) -> None:
    path = tmp_path / "inventory.json"
    path.write_text("no inventory")
    given = {"kubelet_socket": str(simulated.socket), "dcgm_url": simulated.url}
    first = node_of(config_of(**given))
    try:
        handover, kept = first.handover, first.handover.the(KeptOwners)
        before = (handover.cache, kept.owners, kept.book("copy"))
        with pytest.raises(Exception, match=r"inventory.file"):
            node_of(config_of(**given, inventory_file=str(path), sharing="split"), first)
        assert (handover.cache, kept.owners, kept.book("copy")) == before
    finally:
        await first.close()


# issue 22, line 22: the old way, `docker run` with `--volumes-from` and no arguments
@pytest.mark.parametrize(
    ("is_there", "named", "remedy"),
    [
        (True, {}, "--dcgm.file {file} --labels.names legacy"),
        (True, {"dcgm_url": NOBODY}, "is dcgm-exporter running"),
        (False, {}, "is dcgm-exporter running"),
    ],
)
async def test_without_a_source_the_remedy_names_dcgm_exporters_old_file(
    simulated: SimulatedNode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_there: bool,
    named: dict[str, str],
    remedy: str,
) -> None:
    monkeypatch.setattr("exporter.config.load.DEFAULT_DCGM_URL", NOBODY)
    file = tmp_path / "run/prometheus/dcgm.prom"
    if is_there:
        file.parent.mkdir(parents=True)
        file.write_text('dcgm_gpu_temp{gpu="0",uuid="GPU-1"} 1\n')
    config = config_of(kubelet_socket=str(simulated.socket), root=str(tmp_path), **named)
    async with running(config) as exporter:
        status, text = await exporter.get("/gpu/metrics")
    assert status == 503
    assert remedy.format(file=file) in text
