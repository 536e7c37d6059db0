"""Measuring where something is missing, and while the configuration changes."""

import asyncio
import json
import shutil
import threading
from typing import Any

import pytest

from exporter.config.node_settings import Config
from exporter.doctor import checkup
from exporter.outputs.diagnosis import Finding, Level
from exporter.sources.nvml import library, nvml_source
from tests.node import test_measuring
from tests.node.test_measuring import held_by_several, measured, of_node, own
from tests.support.exporter import Exporter, config_of, running
from tests.support.rows import rows_of
from tests.support.simulated import SimulatedNode
from tests.support.waiting import is_quick, until

node = test_measuring.node


# issue 10, "Must show" 6
@pytest.mark.parametrize(
    ("spoil", "says", "remedy"),
    [
        ("library", "there is no", "NVIDIA_DRIVER_CAPABILITIES=utility"),
        ("proc", "does not show the processes of the host", "hostPID: true"),
        ("logs", "there is no /var/log/containers", "mount the host's"),
    ],
)
async def test_doctor_and_the_mapping_say_what_measuring_lacks_unasked(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch, spoil: str, says: str, remedy: str
) -> None:
    if spoil == "library":
        monkeypatch.setattr(library, "NAME", "/nonexistent/libnvidia-ml.so.1")
    elif spoil == "proc":
        (node.root / "proc/1/cgroup").unlink()
    else:
        shutil.rmtree(node.root / "var/log/containers")
    for mode, level in (("auto", Level.OK), ("on", Level.WARNING)):
        config = config_of(**of_node(node, nvml_mode=mode))
        (finding,) = await until(lambda config=config: _findings(config, says))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        seen = await checkup.examine(config)
        assert (finding.level, remedy in finding.trouble.remedy) == (level, True), finding
        assert seen.report.works(strict=True) is (mode == "auto")
        async with running(config) as exporter:
            told = await until(lambda exporter=exporter: _unmeasured(exporter))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            assert (says in told["message"], remedy in told["remedy"]) == (True, True)
            is_a_failure = "source_up{source" in "".join(
                line for line in (await exporter.get("/metrics"))[1].splitlines() if line.endswith("} 0")
            )
            assert is_a_failure is (mode == "on")
    if spoil != "library":
        node.write_processes()


async def _findings(config: Config, says: str) -> list[Finding]:
    """Those that say something; a busy machine may learn of it late."""
    return [each for each in (await checkup.examine(config)).report.findings if says in each.trouble.message]


async def _unmeasured(exporter: Exporter) -> Any:
    return json.loads((await exporter.get("/debug/mapping"))[1])["unmeasured"]


async def test_nothing_is_said_of_measuring_where_it_works_or_nobody_shares(node: SimulatedNode) -> None:
    for more in ({"nvml_mode": "auto"}, {"nvml_mode": "off"}):
        seen = await checkup.examine(config_of(**of_node(node, **more)))
        assert seen.report.works(strict=True)
        assert not [each for each in seen.report.findings if each.about == "measured use"]
    assert any(
        each.about == "processes" for each in (await checkup.examine(config_of(**of_node(node)))).report.findings
    )


async def reload(exporter: Exporter, **settings: str) -> None:
    failures = exporter.service.telemetry.reload_failures
    exporter.service._reread = lambda: config_of(**settings)
    await exporter.service.reload()
    assert exporter.service.telemetry.reload_failures == failures


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == nvml_source.NAME]


# issue 10, "Must show" 6
async def test_a_reload_while_it_measures_loses_nothing_and_leaves_no_thread(node: SimulatedNode) -> None:
    async with running(config_of(**of_node(node))) as exporter:
        page = await measured(exporter, node)
        (uuid, *_) = sorted(held_by_several(node))
        for sharing in ("split", "copy", "split", "copy"):
            await reload(exporter, **of_node(node, sharing=sharing))
            page = await exporter.page()
            assert ("", "") in rows_of(page)["DCGM_FI_DEV_FB_USED"][uuid], "from the first page on"
            assert len(own((await exporter.get("/metrics"))[1], "pod_gpu_memory_used_bytes")) > 1
            assert threads() == [nvml_source.NAME]
        # what is measured anew takes a reading; the last of two that overlap goes on
        for mode in ("auto", "on", "auto", "on"):
            await reload(exporter, **of_node(node, nvml_mode=mode))
            await measured(exporter, node)
        await until(lambda: threads() == [nvml_source.NAME])
        node.nvml.write(node.world.gpus, ["hang nvmlDeviceGetCount_v2 60000"])
        await asyncio.sleep(0.5)
        await exporter.page()
        await reload(exporter, **of_node(node, nvml_mode="off"))
        assert await is_quick(exporter.page, 0.3), "nobody waits for a call of a library that is let go of"
        node.write_processes()
        await until(lambda: not threads() and not library.Library.users)
        await reload(exporter, **of_node(node))
        assert ("", "") in rows_of(await measured(exporter, node))["DCGM_FI_DEV_FB_USED"][uuid]


async def test_whoever_measures_by_new_settings_hears_the_same_driver(node: SimulatedNode) -> None:
    """The next one follows the readings before the last one ends."""
    nvml = nvml_source.Nvml(is_missed=True, on_health=lambda *_: None)
    heard: list[str] = []

    def one(_: object) -> None:
        heard.append("one")

    def other(_: object) -> None:
        heard.append("other")

    nvml.followers.append(one)
    nvml.followers.append(other)
    nvml.followers.remove(one)
    nvml.begin()
    await until(lambda: bool(heard))
    assert heard == ["other"]
    await nvml.close()
