"""A real kubectl fetches a bundle: by doctor in the exporter's pod, or of what can be had without it."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from exporter.bundle.archive import read
from exporter.kubectl.places import NAMESPACE
from tests.support.kubectl_gpu import ADMIN, JANE, JOE, READ_PODS, GpuCluster
from tests.support.real_api import IS_REAL

pytestmark = [pytest.mark.real, pytest.mark.skipif(IS_REAL, reason="envtest has no kubelet, and so no container")]
NODE = "gpu-node-1"
PLACE = (NAMESPACE, f"exporter-{NODE}", "exporter")


@pytest.fixture(autouse=True)
def all_stays(cluster: GpuCluster) -> Iterator[None]:
    rules, containers = cluster.api.rules, dict(cluster.containers)
    yield
    cluster.api.rules = rules
    cluster.containers.update(containers)


def pods_of(cluster: GpuCluster) -> set[str]:
    return {pod.name for pod in cluster.nodes[0].world.pods}


def test_doctor_in_the_pod_makes_it(cluster: GpuCluster, tmp_path: Path) -> None:
    cluster.api.rules = [*cluster.reporter, ("serving", READ_PODS)]
    file = tmp_path / "bundle.tar.gz"
    ended = cluster.gpu("bundle", NODE, str(file), user=JANE)
    assert ended.code == 0, ended.err
    assert "names are replaced" in ended.out
    recording = read(file)
    assert {answer.peer for answer in recording.moments[0].answers} >= {"page", "kubelet"}
    assert not recording.is_plain
    assert b"pod-1" in recording.moments[0].outputs["/gpu/metrics"]
    assert not any(pod.encode() in recording.moments[0].outputs["/gpu/metrics"] for pod in pods_of(cluster))
    assert not any("doctor" in absence.what for absence in recording.absences)


def test_the_real_program_runs_it_for_a_pod_and_keeps_names(cluster: GpuCluster, tmp_path: Path) -> None:
    pod = min(pod.name for pod in cluster.nodes[0].world.pods if pod.namespace == "serving")
    file = tmp_path / "bundle.tar.gz"
    ended = cluster.kubectl("gpu", "bundle", pod, str(file), "--plain", user=ADMIN)
    assert ended.code == 0, ended.err
    recording = read(file)
    assert recording.is_plain
    assert pod.encode() in recording.moments[0].outputs["/gpu/metrics"]


def test_a_file_that_nobody_names_has_no_name_of_the_node(
    cluster: GpuCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster.api.rules = cluster.viewer
    began = datetime.now(UTC)
    ended = cluster.gpu("bundle", NODE, user=JANE)
    assert ended.code == 0, ended.err
    (file,) = tmp_path.iterdir()
    minutes = [moment.strftime("gpu-bundle-%Y%m%d-%H%M.tar.gz") for moment in (began, datetime.now(UTC))]
    assert minutes[0] <= file.name <= minutes[1]
    assert f"bundle show {file.name}" in ended.out


def test_a_file_that_is_there_is_kept(cluster: GpuCluster, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    file.write_text("mine")
    assert "is there already -> give another name, or --force" in cluster.line("bundle", NODE, str(file))
    assert file.read_text() == "mine"


def test_without_the_right_to_exec_it_has_what_the_exporter_answers(cluster: GpuCluster, tmp_path: Path) -> None:
    cluster.api.rules = cluster.viewer
    file = tmp_path / "bundle.tar.gz"
    ended = cluster.gpu("bundle", NODE, str(file), user=JANE)
    assert ended.code == 0, ended.err
    assert '"jane" may not' in ended.err
    recording = read(file)
    assert not {"jane", f"exporter-{NODE}"} & set(re.findall(r"[\w-]+", repr(recording)))
    lacks = {absence.what: absence.why for absence in recording.absences}
    (of_doctor,) = (why for what, why in lacks.items() if what.startswith("doctor in the pod"))
    assert of_doctor.remedy.endswith("pod-gpu-metrics-reporter (deploy/kubectl/reporter.yaml)")
    assert any(what.startswith("the events of") for what in lacks)
    assert {"/gpu/metrics", "/debug/mapping", "/debug/log"} <= set(recording.moments[0].outputs)
    assert not any(pod.encode() in recording.moments[0].outputs["/gpu/metrics"] for pod in pods_of(cluster))


def test_of_a_crash_looping_exporter_it_has_the_logs_and_the_reason(cluster: GpuCluster, tmp_path: Path) -> None:
    before = cluster.containers[PLACE]
    cluster.containers[PLACE] = replace(
        before,
        environment=None,
        log="ts=9 msg=listening\n",
        previous_log="".join(f"ts={n} msg=x\n" for n in range(2_000)),
    )
    pod = cluster.api.get("Pod", NAMESPACE, f"exporter-{NODE}")
    assert pod is not None
    waiting = {"name": "exporter", "restartCount": 7, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    container = {
        **pod["spec"]["containers"][1],
        "env": [{"name": "TOKEN", "value": "hunter2"}],
        "args": ["--x=hunter2"],
    }
    ports = [{"name": "metrics", "containerPort": 1}]
    cluster.api.put(
        {
            **pod,
            "spec": {**pod["spec"], "containers": [{"name": "dcgm-exporter"}, {**container, "ports": ports}]},
            "status": {**pod["status"], "containerStatuses": [waiting]},
        }
    )
    file = tmp_path / "bundle.tar.gz"
    try:
        ended = cluster.gpu("bundle", f"node/{NODE}", str(file))
    finally:
        cluster.api.put(pod)
    assert ended.code == 0, ended.err
    recording = read(file)
    assert len(recording.log) == 1_000
    assert recording.log[-1] == "ts=9 msg=listening"
    assert recording.moments[0].outputs == {}
    assert any(absence.what == "what the running exporter answers" for absence in recording.absences)
    about_pod = recording.moments[0].answers[0]
    body = json.loads(about_pod.body)
    assert body["status"]["containerStatuses"][0]["restartCount"] == 7
    assert b"hunter2" not in about_pod.body


@pytest.mark.parametrize(
    ("arguments", "user", "line"),
    [
        (("nowhere",), ADMIN, "no exporter runs on the node nowhere"),
        (("serving/absent",), ADMIN, "the API server says NotFound"),
        ((NODE, "/nonexistent/folder/x"), ADMIN, "cannot be written"),
        ((NODE, "--for", "soon"), ADMIN, "a duration such as 30s or 2m"),
        ((NODE, "--for", "1h"), ADMIN, "at most 10m"),
        ((NODE,), JOE, "may not list pods"),
    ],
)
def test_what_cannot_be_is_a_line(
    arguments: tuple[str, ...],
    user: str,
    line: str,
    cluster: GpuCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if user == JOE:
        cluster.api.rules = []
    ended = cluster.gpu("bundle", *arguments, user=JANE if user == JOE else user)
    assert ended.code != 0
    assert line in ended.err.splitlines()[-1], ended.err


def test_beside_a_dead_exporter_it_has_the_log_of_the_pod(cluster: GpuCluster, tmp_path: Path) -> None:
    """Doctor runs in the pod, and no exporter answers it there: names in the log are replaced as everywhere."""
    pod = min(pods_of(cluster))
    before = cluster.containers[PLACE]
    assert before.environment is not None
    elsewhere = {**before.environment, "POD_GPU_EXPORTER_WEB_LISTEN_ADDRESS": "127.0.0.1:1"}
    cluster.containers[PLACE] = replace(before, environment=elsewhere, log=f'ts=1 msg="no owner" pod={pod}\n')
    file = tmp_path / "bundle.tar.gz"
    ended = cluster.gpu("bundle", NODE, str(file))
    assert ended.code == 0, ended.err
    recording = read(file)
    assert recording.of_exporter == {}
    assert {answer.peer for answer in recording.moments[0].answers} >= {"page", "kubelet"}
    (line,) = recording.log
    assert line.startswith('ts=1 msg="no owner" pod=pod-')
    assert any("no exporter answers" in absence.why.message for absence in recording.absences)
    assert not any("before the last start" in absence.what for absence in recording.absences), "it never ended"
    assert f"exporter-{NODE}" not in repr(recording)
    # the pod itself is no answer that a replay would give
    assert not [answer for answer in recording.moments[-1].answers if answer.name == "kubectl"]


def test_krews_plugin_makes_one_without_any_library_of_the_machine(
    cluster: GpuCluster, tmp_path: Path, krews_plugin: Path
) -> None:
    """It has no protobuf: doctor replaces the names in the pod. Those in the pod's log would be others."""
    before = cluster.containers[PLACE]
    assert before.environment is not None
    elsewhere = {**before.environment, "POD_GPU_EXPORTER_WEB_LISTEN_ADDRESS": "127.0.0.1:1"}
    for rules, environment in ((None, elsewhere), (cluster.viewer, before.environment)):
        cluster.api.rules = rules or [*cluster.reporter]
        cluster.containers[PLACE] = replace(before, environment=environment)
        file = tmp_path / f"{bool(rules)}.tar.gz"
        ended = cluster.kubectl("gpu", "bundle", NODE, str(file), user=JANE, plugins=krews_plugin)
        assert ended.code == 0, ended.err
        recording = read(file)
        assert not recording.is_plain
        page = recording.moments[0].outputs["/gpu/metrics"]
        assert b"pod-1" in page
        assert not any(pod.encode() in page for pod in pods_of(cluster))
        lacks = [str(absence.why) for absence in recording.absences if absence.what == "the pod's log"]
        assert bool(lacks) == (rules is None)
