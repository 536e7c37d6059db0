"""OTLP into real receivers: VictoriaMetrics, and a collector (rotel) that passes it on to another VictoriaMetrics.

Debian builds Prometheus without its OTLP receiver, so it is not among them.
"""

import asyncio
import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from math import isclose
from pathlib import Path

import pytest

from tests.support.components import free_port, newer
from tests.support.exporter import config_of, running
from tests.support.otlp import Name, expected_of
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import until, wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]
# of a page's values: what is not one of them
MADE = ("hw.status", "hw.gpu.io")
QUESTIONS = count()
ATTRIBUTES = ("hw.id", "hw.gpu.task", "hw.sensor_location", "error.type", "pod_gpu.reason")


@contextmanager
def program(folder: Path, *command: str | Path) -> Iterator[None]:
    with (folder / f"{Path(command[0]).name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[str]:
    """A server, by its address."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    with program(
        folder,
        newer("victoria-metrics"),
        f"-storageDataPath={folder}/data",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-search.latencyOffset=0s",
        "-memory.allowedBytes=64MB",
    ):
        base = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(base, "/health"))
        yield base


@contextmanager
def collector(folder: Path) -> Iterator[tuple[str, str]]:
    """A collector and the server that it passes all on to, by their addresses."""
    port = free_port()
    with (
        victoria_metrics(folder / "behind") as base,
        program(
            folder,
            newer("rotel-agent"),
            "start",
            f"--otlp-http-endpoint=127.0.0.1:{port}",
            f"--otlp-grpc-endpoint=127.0.0.1:{free_port()}",
            "--exporter=otlp",
            "--otlp-exporter-protocol=http",
            f"--otlp-exporter-endpoint={base}/opentelemetry",
            "--batch-timeout=100ms",
        ),
    ):
        wait_until(lambda: answers(f"http://127.0.0.1:{port}", "/v1/metrics"))
        yield f"http://127.0.0.1:{port}", base


def answers(base: str, path: str) -> bool:
    """Whether anybody answers there, whatever it says."""
    try:
        urllib.request.urlopen(f"{base}{path}", timeout=30)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def values(base: str) -> dict[Name, float]:
    """The last values of all series, by metric and what tells its series apart.

    VictoriaMetrics remembers for ten seconds which series fit a matcher, so each question has a matcher of its own.
    """
    matcher = f'{{__name__=~"(hw|pod_gpu)[.].+|question-{next(QUESTIONS)}"}}'
    question = urllib.parse.urlencode({"query": matcher, "nocache": "1"})
    with urllib.request.urlopen(f"{base}/api/v1/query?{question}", timeout=30) as answer:
        rows = json.load(answer)["data"]["result"]
    kept = ("k8s.namespace.name", "k8s.pod.name", "k8s.container.name", *ATTRIBUTES)
    found = {
        (
            row["metric"]["__name__"],
            frozenset((name, text) for name, text in row["metric"].items() if name in kept),
        ): float(row["value"][1])
        for row in rows
        if row["metric"]["__name__"] not in MADE
    }
    assert len(found) == sum(row["metric"]["__name__"] not in MADE for row in rows)
    return found


# issue 17, Must show 3
@pytest.mark.parametrize("generation", ["3", "4.9"])
def test_every_value_in_real_receivers_is_the_pages(tmp_path: Path, generation: str) -> None:
    with ExitStack() as stack:
        direct = stack.enter_context(victoria_metrics(tmp_path / "direct"))
        at_collector, behind = stack.enter_context(collector(tmp_path))
        receivers = {f"{direct}/opentelemetry": direct, at_collector: behind}

        async def to_both() -> None:
            await asyncio.gather(*(push_and_compare(*receiver, generation) for receiver in receivers.items()))

        asyncio.run(to_both())


async def push_and_compare(endpoint: str, base: str, generation: str) -> None:
    # dcgm-exporter answers from its cache: one page for all looks
    node = SimulatedNode(
        World(gpus=4, shared=1, mig=1, seed=4), generation=generation, counters="full", collect_seconds=3600.0
    )
    await node.start()
    try:
        settings = {"dcgm_url": node.url, "kubelet_socket": str(node.socket), "otlp_endpoint": endpoint}
        async with running(config_of(**settings, otlp_interval="300ms", accounting_interval="500ms")) as exporter:
            page = expected_of(await exporter.page())
            assert len({name for name, _ in page}) >= 6
            assert any(("hw.id") in dict(of) and "/" in dict(of)["hw.id"] for _, of in page), "MIG"

            async def is_there() -> bool:
                there = await asyncio.to_thread(values, base)
                return not others(page, there) and any(name == "pod_gpu.allocated" for name, _ in there)

            await until(is_there, why=lambda: others(page, values(base)))
        # and nothing else of the page
        assert {name for name in values(base) if name[0].startswith("hw.")} == page.keys()
    finally:
        await node.stop()


def others(page: dict[Name, float], there: dict[Name, float]) -> list[object]:
    """What is not as on the page. VictoriaMetrics keeps 12 digits of a fraction, and whole numbers exactly."""
    return [
        (name, value, there.get(name))
        for name, value in page.items()
        if name not in there or not isclose(there[name], value, rel_tol=0 if value.is_integer() else 1e-11)
    ]
