"""`helm test` asks the exporter of a node what doctor says, by the Service."""

import subprocess
import sys
from typing import Any

import pytest

from tests.support.chart import hooks_in, merged, rendered
from tests.support.demo import demo
from tests.support.manifests import Object, valid

pytestmark = pytest.mark.real
PEERS = [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]


def doctor(values: Object) -> Any:
    (pod,) = hooks_in(values)
    (container,) = pod["spec"]["containers"]
    return container


# issue 22, line 21
@pytest.mark.parametrize(
    ("values", "port"),
    [({}, 9400), ({"service": {"port": 80}}, 9400), ({"service": {"port": 80, "clusterIP": ""}}, 80)],
    ids=str,
)
def test_it_asks_where_the_service_leads(values: Object, port: int) -> None:
    valid(hooks_in(values), "1.34")
    (service,) = [found for found in rendered(values) if found["kind"] == "Service"]
    place = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc:{port}"
    assert doctor(values)["args"] == ["doctor", f"--web.listen-address={place}"]
    (daemon,) = [found for found in rendered(values) if found["kind"] == "DaemonSet"]
    assert doctor(values)["image"] == daemon["spec"]["template"]["spec"]["containers"][-1]["image"]
    # no selector of the chart's is met by the pod
    (pod,) = hooks_in(values)
    assert not service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


# issue 22, line 21
@pytest.mark.parametrize(
    "values",
    [
        {"mode": "none"},
        {"service": {"enabled": False}},
        {"tlsServerConfig": {"enabled": True, "existingSecret": "tls"}},
        {"webConfig": {"existingSecret": "web"}},
        {"networkPolicy": {"enabled": True, "from": PEERS}},
    ],
    ids=str,
)
def test_there_is_none_where_it_could_not_ask(values: Object) -> None:
    assert hooks_in(values) == []
    assert hooks_in(merged({"networkPolicy": {"enabled": True}}, {}))


# issue 22, line 21
def test_its_command_says_how_an_exporter_is() -> None:
    with demo("--gpus=2", "--shared=0", "--mig=0") as url:
        arguments = doctor({})["args"]
        here = [arguments[0], f"--web.listen-address={url.removeprefix('http://')}"]
        ended = subprocess.run(
            [sys.executable, "-m", "exporter", *here], capture_output=True, text=True, timeout=60, check=False
        )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "asked the exporter" in ended.stdout


# issue 22, line 21
def test_a_silent_exporter_elsewhere_is_not_judged_by_this_machine() -> None:
    command = [sys.executable, "-m", "exporter", *doctor({})["args"]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "pod-gpu-metrics-exporter.pod-gpu-metrics.svc:9400" in ended.stderr
