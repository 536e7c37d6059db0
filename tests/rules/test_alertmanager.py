"""deploy/prometheus/alertmanager.yaml in a real Alertmanager: one dead GPU is one page, and who is told of what."""

import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from tests.rules.nodes import HISTORIES
from tests.rules.shipped import alerts
from tests.rules.test_one_page import alerts_of
from tests.support import alertmanager as support
from tests.support import quick_yaml
from tests.support.alertmanager import SHIPPED, Alertmanager, alertmanager
from tests.support.components import real
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real
# above what it waits for alerts that belong together
SETTLED_SECONDS = 2.5
WAKES = ("page", "ticket")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    with alertmanager(tmp_path_factory.mktemp("alertmanager")) as found:
        yield found


# issue 22, line 24
def test_without_alertmanager_the_tests_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(*_: str) -> Path:
        pytest.skip("not here")

    monkeypatch.setattr(support, "real", missing)
    before = set(threading.enumerate())
    with pytest.raises(pytest.skip.Exception, match="not here"), alertmanager(tmp_path):
        pass
    # a thread that is no daemon would hold up the interpreter for ever
    assert [thread.name for thread in threading.enumerate() if thread not in before and not thread.daemon] == []


def labels(name: str, **others: str) -> dict[str, str]:
    """An alert of the rules'."""
    return {"alertname": name, "severity": alerts()[name]["labels"]["severity"], "node": "n", **others}


def told(server: Alertmanager, cluster: str, receivers: Iterable[str] = WAKES) -> list[dict[str, Any]]:
    """What these receivers were told of a cluster."""
    return [
        message
        for receiver, message in server.sent
        if receiver in receivers and {alert["labels"]["cluster"] for alert in message["alerts"]} == {cluster}
    ]


def test_amtool_takes_it() -> None:
    ended = subprocess.run(
        [real("amtool"), "check-config", SHIPPED], capture_output=True, text=True, check=False, timeout=30
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "5 inhibit rules" in ended.stdout


def test_it_names_alerts_that_there_are() -> None:
    text = SHIPPED.read_text()
    rules = quick_yaml.load(text)["inhibit_rules"]
    for rule in rules:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            if not matcher.startswith("alertname"):
                continue
            pattern = matcher.split('"')[1]
            prefix, _, rest = pattern.partition("(")
            names = [prefix + each for each in rest.partition(")")[0].split("|")] if rest else pattern.split("|")
            assert set(names) <= alerts().keys() | {"PodGpuExporter.*"}, matcher
            if after := rest.partition(")")[2].strip("|"):
                assert after in alerts(), matcher


# issue 30, "Must show" 4
def test_a_gpu_that_dies_is_one_notification_from_first_to_last(server: Alertmanager) -> None:
    """Each history is a cluster; what fires at its moments comes one after the other."""
    for moments in zip_longest(*(history.moments for history in HISTORIES.values())):
        firing = [
            {"cluster": cluster, **alert}
            for cluster, moment in zip(HISTORIES, moments, strict=True)
            if moment
            for alert in alerts_of(moment)
        ]
        server.raise_alerts(firing)
        time.sleep(SETTLED_SECONDS)
    expected = [cluster for cluster, history in HISTORIES.items() if history.page]
    wait_until(lambda: all(told(server, cluster) for cluster in expected), why=lambda: server.sent)
    for cluster, history in HISTORIES.items():
        names = [{alert["labels"]["alertname"] for alert in each["alerts"]} for each in told(server, cluster)]
        assert names == ([{history.page}] if history.page else []), cluster


def test_what_dies_with_a_gpu_wakes_nobody_else(server: Alertmanager) -> None:
    """Even where rules of one's own have not kept it quiet."""
    of_gpu = {"cluster": "a", "UUID": "GPU-3"}
    server.raise_alerts(
        [
            labels("GpuFailing", **of_gpu),
            labels("GpuDegraded", **of_gpu),
            labels("GpuHot", gpu="3", **of_gpu),
            labels("GpuXid", xid="79", namespace="ml", pod="p", **of_gpu),
            labels("GpuHeldWhileFailing", namespace="ml", pod="p", **of_gpu),
            labels("PodGpuExporterNoGpuMetrics", cluster="a", instance="n:9400"),
            labels("PodGpuExporterDeviceUnmatched", cluster="a", instance="n:9400"),
            labels("PodGpuExporterRestarting", cluster="a", instance="n:9400"),
            # another GPU, another node, and what has another cause
            labels("GpuDegraded", cluster="a", UUID="GPU-4"),
            labels("PodGpuExporterNoGpuMetrics", cluster="a", instance="m:9400") | {"node": "m"},
            labels("PodGpuExporterConfigReloadFailed", cluster="a", instance="n:9400"),
        ]
    )
    wait_until(lambda: len(told(server, "a")) >= 4, why=lambda: server.sent)
    time.sleep(SETTLED_SECONDS)
    woken = sorted(
        (receiver, alert["labels"]["alertname"], alert["labels"].get("UUID", alert["labels"].get("instance")))
        for receiver, message in server.sent
        if receiver in WAKES
        for alert in message["alerts"]
        if alert["labels"]["cluster"] == "a"
    )
    assert woken == [
        ("page", "GpuFailing", "GPU-3"),
        ("page", "PodGpuExporterNoGpuMetrics", "m:9400"),
        ("ticket", "GpuDegraded", "GPU-4"),
        ("ticket", "PodGpuExporterConfigReloadFailed", "n:9400"),
    ]
    (of_team,) = told(server, "a", ["team"])
    assert [alert["labels"]["alertname"] for alert in of_team["alerts"]] == ["GpuHeldWhileFailing"]


def test_a_node_that_is_down_has_no_other_news(server: Alertmanager) -> None:
    server.raise_alerts(
        [
            labels("PodGpuExporterDown", cluster="b", instance="n:9400"),
            labels("PodGpuExporterClusterNodeMissing", cluster="b"),
            labels("PodGpuExporterOwnersStale", cluster="b", instance="n:9400"),
        ]
    )
    wait_until(lambda: told(server, "b"), why=lambda: server.sent)
    time.sleep(SETTLED_SECONDS)
    assert [[alert["labels"]["alertname"] for alert in each["alerts"]] for each in told(server, "b")] == [
        ["PodGpuExporterDown"]
    ]
