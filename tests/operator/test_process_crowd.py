"""The operator as a process: what the editor of one namespace does there costs other namespaces nothing.

# issue 15, line 15
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.operator.objects.kinds import GPU_AUTOSCALER, INSTANCE_LABEL, MANAGER_LABEL, Key, key_of
from exporter.operator.work_queue import BURST
from tests.operator.test_process_autoscaling import autoscaler
from tests.support.operator import Api, Object, OperatorProcess, exporter, is_seen, until
from tests.support.real_api import IS_REAL

pytestmark = pytest.mark.skipif(IS_REAL, reason="what fills the simulated API server is put into its store")
CROWD = 1000
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment"}


@pytest.fixture
def own_api() -> Iterator[Api]:
    api = Api()
    api.start()
    for name in ("crowd", "quiet"):
        api.add_namespace(name)
    yield api
    api.stop()


def looks(process: OperatorProcess, kind: str) -> float:
    """How often objects of a kind were looked at."""
    name = f'pod_gpu_exporter_operator_reconciliations_total{{kind="{kind}"'
    return sum(float(line.rpartition(" ")[2]) for line in process.get("/metrics")[1].splitlines() if name in line)


def most_memory_bytes(process: OperatorProcess) -> int:
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def crowded(number: int) -> Object:
    """A GPUAutoscaler of 1 kB, of a workload of its own."""
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"d{number}"}
    item = autoscaler("crowd", f"a{number}", scaleTargetRef=ref, minReplicas=1)
    item["metadata"] |= {"uid": f"u{number}", "generation": 1, "annotations": {"text": "x" * 700}}
    return item


def config_map(number: int, size: int) -> Object:
    """One that says that the operator made it."""
    labels = {MANAGER_LABEL: "pod-gpu-metrics-operator", INSTANCE_LABEL: "gpu"}
    about = {"name": f"c{number}", "namespace": "crowd", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"text": "x" * size}}


# "Must show" 4
def test_a_thousand_autoscalers_of_one_tenant_delay_nobody(own_api: Api, tmp_path: Path) -> None:
    own_api.fill(
        item
        for number in range(CROWD)
        for item in (
            crowded(number),
            {**DEPLOYMENT, "metadata": {"name": f"d{number}", "namespace": "crowd"}},
        )
    )
    process = OperatorProcess(own_api, tmp_path)
    try:
        process.says("leading")
        until(lambda: looks(process, GPU_AUTOSCALER.name) >= 3, why=lambda: process.told)
        before = looks(process, GPU_AUTOSCALER.name)
        key = key_of(own_api.put(exporter("gpu", "quiet")))
        until(lambda: own_api.get(Key("DaemonSet", "quiet", "gpu")), why=lambda: looks(process, GPU_AUTOSCALER.name))
        until(lambda: is_seen(own_api, key), why=lambda: process.told)
        # one of theirs for each of ours, and what was looked at while this asked; before it were all that there are
        assert looks(process, GPU_AUTOSCALER.name) - before < CROWD / 10
        until(lambda: looks(process, GPU_AUTOSCALER.name) >= CROWD / 30, why=lambda: process.told)
        # of three looks one at the most lists all of them: once for those that were named together
        assert own_api.asked().count(f"GET {GPU_AUTOSCALER.path('crowd')}") < CROWD / 100
    finally:
        assert process.end() == 0, process.told


def test_writes_without_end_to_one_object_are_looked_at_now_and_then(own_api: Api, tmp_path: Path) -> None:
    process = OperatorProcess(own_api, tmp_path)
    try:
        process.says("leading")
        for number in range(20 * BURST):
            own_api.fill([config_map(1, size=number)])
        key = key_of(own_api.put(exporter("gpu", "quiet")))
        until(lambda: is_seen(own_api, key), why=lambda: process.told)
        assert looks(process, GPU_AUTOSCALER.name) < 3 * BURST
    finally:
        assert process.end() == 0, process.told


def test_large_config_maps_with_our_label_take_no_memory(own_api: Api, tmp_path: Path) -> None:
    """90 of 1 MB: 308 MiB when all of each was watched."""
    peaks = []
    for user in "ab":
        process = OperatorProcess(own_api, tmp_path, user)
        try:
            process.says("leading")
            key = key_of(own_api.put(exporter(user, "quiet")))
            until(lambda key=key: is_seen(own_api, key))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            own_api.fill([config_map(0, size=1)])
            peaks.append(most_memory_bytes(process))
        finally:
            assert process.end() == 0, process.told
        own_api.fill(config_map(number, size=1_000_000) for number in range(90))
    assert peaks[1] < 1.3 * peaks[0], peaks
