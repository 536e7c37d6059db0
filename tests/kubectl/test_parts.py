"""What `kubectl gpu` decides: whom a name means, what a table says, what of doctor's report is about a pod."""

from typing import Any

import pytest

from exporter.errors import ExporterError
from exporter.kubectl import device_holders, why
from exporter.kubectl.binary import Kubectl, KubectlRefusal
from exporter.model.device_row import DeviceRow, from_object
from exporter.outputs.diagnosis import Diagnosis, Level, fine, problem, warning

MAY_NOT = 'User "j" cannot list resource "services" in API group ""'
UUID = "GPU-1e2feb89-414c-443c-9027-c4d1c386bbc4"


def row(**fields: Any) -> DeviceRow:
    usual = {"node_name": "n1", "device_id": "0", "device_uuid": UUID, "mig_instance_id": "", "state": "used"}
    held = {"namespace": "ml", "pod": "a", "container": "main", "gpu_shared": False, "health": "ok"}
    return from_object({**usual, **held, **fields})


ROWS = [
    row(),
    row(device_id="1", device_uuid="GPU-2", namespace="dev", state="idle", idle_since="2026-11-26T10:00:00.000Z"),
    row(device_id="2", device_uuid="GPU-3", pod="", namespace="", entity="mig-parent", state="cut"),
    row(device_id="2", device_uuid="GPU-3", mig_instance_id="7", pod="n1", state="idle"),
    row(device_id="2", device_uuid="GPU-3", mig_instance_id="8", pod="b", state="idle", idle_since="2026-11-26T09:00Z"),
]


@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [
        ("a", "ml", [0]),
        ("a", "", [0, 1]),
        ("a", "dev", [1]),
        ("dev/a", "ml", [1]),
        ("po/a", "ml", [0]),
        ("n1", "ml", [3]),
        ("node/n1", "ml", [0, 1, 3, 4]),
        ("n1", "dev", [0, 1, 3, 4]),
        (UUID, "ml", [0]),
        ("n1/2", "ml", [3, 4]),
        ("n1/2/8", "ml", [4]),
        ("n1/9", "ml", []),
        ("pod/n1", "dev", []),
    ],
)
def test_a_name_is_a_pods_then_a_nodes_then_a_gpus(name: str, namespace: str, expected: list[int]) -> None:
    assert [ROWS.index(each) for each in device_holders.who(ROWS, name, namespace)] == expected


def test_the_longest_idle_comes_first_and_the_unknown_last() -> None:
    assert [ROWS.index(each) for each in device_holders.idle(ROWS, "")] == [4, 1, 3]
    assert device_holders.idle(ROWS, "dev") == [ROWS[1]]


def test_a_table_says_below_it_what_is_wrong() -> None:
    user = {"namespace": "x", "pod": "stranger"}
    share = row(
        device_id="3", device_uuid="3", pod="a\x1b[2J", gpu_shared=True, gpu_utilization=99, framebuffer_used=2048
    )
    rows = [
        row(health="failing", health_reasons=["Xid 79 (fallen off the bus)"], last_xid=79),
        row(device_id="1", device_uuid="1", last_xid=31, holder_since="2026-11-26T10:00:00.000Z"),
        row(device_id="2", device_uuid="2", pod="", used_by=[user], gpu_utilization=41.0, framebuffer_used=2048),
        share,
    ]
    lines = device_holders.table(rows, [*rows, share._replace(pod="b")]).splitlines()
    assert lines[2].endswith("2026-11-26 10:00 UTC")
    assert lines[3].split()[3:] == ["-", "main", "used", "41%", "2.0G", "ok", "-"]
    # of a share that nobody measures no part is known; control characters are written as escapes
    assert lines[4].split()[3:] == ["ml/a\\x1b[2J", "main", "used", "-", "-", "ok", "-"]
    assert lines[5:] == [
        "n1/0 is failing: Xid 79 (fallen off the bus)",
        "n1/1: the last XID was 31",
        "n1/2: used by x/stranger, which does not hold it",
    ]


def pod(**limits: str) -> dict[str, Any]:
    containers = [{"name": "main", "resources": {"limits": {"cpu": "1", **limits}}}]
    spec = {"nodeName": "n1", "containers": containers, "resourceClaims": [{"name": "gpu"}]}
    return {"metadata": {"namespace": "ml", "name": "a"}, "spec": spec, "status": {"phase": "Running"}}


def test_of_doctors_report_only_what_concerns_the_pod_is_shown() -> None:
    alike = problem("3 devices", "no sample names it", "look")
    report = Diagnosis(
        summary="",
        findings=(
            problem("dcgm:localhost:9401", "refused", "start it"),
            fine("kubelet", "answers"),
            type(alike)(Level.PROBLEM, alike.about, alike.trouble, ("x (r, ml/a/main)", "y (r, ml/ab/main)")),
            warning(UUID, "used by others"),
            warning("GPU-2", "of another pod"),
        ),
    )
    assigned = {"namespace": "ml", "pod": "a", "uuid": UUID, "matched": False}
    made = why.explain(pod(), {"doctor": report.as_json(), "assigned": [assigned]})
    assert made.summary == "0 of 1 devices of ml/a have metrics with its name"
    assert [each.about for each in made.findings] == ["dcgm:localhost:9401", "x (r, ml/a/main)", UUID]
    assert not made.works()
    with pytest.raises(ExporterError, match="of another version -> update"):
        why.explain(pod(), {"assigned": []})


def failed(reason: str) -> dict[str, Any]:
    """A pod of one container that has failed for this reason of the kubelet's."""
    terminated = {"exitCode": 1, "reason": reason, "finishedAt": "2026-11-21T12:03:10Z"}
    status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": terminated}}]}
    return {**pod(**{"nvidia.com/gpu": "1"}), "status": status}


def test_of_a_pod_that_failed_its_node_may_know_more() -> None:
    item = failed("Error")
    first = why.before_the_node(item)
    assert first is not None
    assert [finding.about for finding in first.findings] == ["ml/a"]
    report = Diagnosis(
        summary="",
        findings=(
            problem("dcgm:localhost:9401", "refused", "start it"),
            warning("ml/a/main", "its container main ended"),
            warning("ml/ab/main", "another"),
        ),
    )
    assert why.asks_after_its_end(item)
    whole = why.with_findings_of_node(first, item, {"doctor": report.as_json()})
    assert [finding.about for finding in whole.findings] == ["ml/a", "ml/a/main"]
    # an exporter of another version knows no more
    assert why.with_findings_of_node(first, item, {}) == first
    assert not why.asks_after_its_end(pod())


@pytest.mark.parametrize("place", ["state", "lastState"])
def test_the_kernels_kill_is_not_the_gpus_memory(place: str) -> None:
    item = failed("OOMKilled")
    (status,) = item["status"]["containerStatuses"]
    status[place] = status.pop("state")
    diagnosis = why.before_the_node(item)
    assert diagnosis is not None
    assert diagnosis.findings[-1].trouble.message == (
        "the kernel killed its container main at 12:03 UTC (OOMKilled): it needed more of the machine's memory than its"
        " limit, which says nothing of the GPU's memory"
    )
    status[place]["terminated"]["finishedAt"] = "soon"
    again = why.before_the_node(item)
    assert again is not None
    assert "its container main (OOMKilled)" in again.findings[-1].trouble.message


def test_what_a_pod_asks_for_are_extended_resources_and_claims() -> None:
    assert why.asks_for(pod(**{"nvidia.com/gpu": "1"})) == ["nvidia.com/gpu", "the claim gpu"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("error: You must be logged in to the server (Unauthorized)", "the API server does not take the kubeconfig's"),
        ("Error from server (InternalError): oops", "the API server says InternalError: oops"),
        ("Error from server: oops", "the API server says no: oops"),
        (
            f"Error from server (Forbidden): services is forbidden: {MAY_NOT} at the cluster scope",
            "j may not list services in all namespaces -> ask the cluster's admin for the ClusterRole",
        ),
    ],
)
def test_kubectls_errors_become_a_line(words: str, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'end'\nWarning: old\n{words}\nend\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(KubectlRefusal) as refused:
        Kubectl(()).raw("/x")
    assert str(refused.value).startswith(line)
