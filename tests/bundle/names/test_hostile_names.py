"""Names that are hard to tell from other words, and places that are hard to read."""

import json
import re
from collections.abc import Mapping, Sequence
from time import process_time
from typing import Any

import pytest

from exporter._gen import podresources_v1_pb2 as v1
from exporter.bundle.names.replacing import replaced
from exporter.bundle.recording import PeerAnswer, RecordedCall, RecordedMoment, Recording
from exporter.errors import Trouble
from exporter.sources.kubelet.pod_resources import parse
from exporter.sources.kubernetes.node_objects import read_pod
from tests.bundle.names.worlds import KUBELET_LIST, bytes_of

GPU = "GPU-5e1f0a3c-90d2-4b7e-8a6f-1c2d3e4f5a6b"
UUID = "0b7c9f4e-1d2a-4c3b-9e8f-7a6b5c4d3e2f"
Holder = tuple[str, str, str]


def listed(holders: Sequence[Holder], resource: str = "nvidia.com/gpu", device_id: str = GPU) -> bytes:
    response = v1.ListPodResourcesResponse()
    for namespace, pod, container in holders:
        entry = response.pod_resources.add(namespace=namespace, name=pod)
        devices = [v1.ContainerDevices(resource_name=resource, device_ids=[device_id])]
        entry.containers.add(name=container, devices=devices)
    body: bytes = response.SerializeToString()
    return body


def recording_of(*answers: PeerAnswer, settings: Mapping[str, tuple[str, ...]] | None = None, **more: Any) -> Recording:
    of_moment = {name: more.pop(name) for name in ("files", "calls", "kernel_log", "outputs") if name in more}
    moment = RecordedMoment(at_seconds=1.0, answers=answers, **of_moment)
    return Recording(made_by="1", settings=settings or {}, moments=(moment,), **more)


def of_kubelet(body: bytes) -> PeerAnswer:
    return PeerAnswer(peer="kubelet", name="kubelet", question=KUBELET_LIST, body=body)


def holders_in(body: bytes) -> list[Holder]:
    owners = sorted(assignment.owner for assignment in parse(body).assignments)
    return [(owner.namespace, owner.pod, owner.container) for owner in owners]


def new_holders(*holders: Holder, report: str = "") -> tuple[list[Holder], Recording, Mapping[str, str]]:
    recording, names = replaced(recording_of(of_kubelet(listed(holders)), report=report))
    return holders_in(recording.moments[0].answers[0].body), recording, names


def test_common_words_are_replaced_as_names_and_stay_as_words() -> None:
    report = "The page has metrics of each gpu by default; monitoring is on, and main is a word."
    holders_now, recording, names = new_holders(
        ("default", "metrics", "gpu"), ("monitoring", "exporter", "main"), report=report
    )
    assert holders_now == [("default", "pod-2", "container-1"), ("monitoring", "pod-1", "container-2")]
    assert recording.report == report
    assert names.keys() == {"metrics", "gpu", "exporter", "main"}


WORDS = [("search", "main", "server"), ("search", "metrics-0", "server"), ("pod", "pod", "pod"), ("ml", "main", "ai")]


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("the search for a server is on: see the main page", "the search for a server is on: see the main page"),
        ("search/main/server holds it", "namespace-3/pod-1/container-2 holds it"),
        ("GPU 3 (nvidia.com/gpu, search/main/server)", "GPU 3 (nvidia.com/gpu, namespace-3/pod-1/container-2)"),
        ("ml/main and main/ai", "namespace-1/pod-1 and pod-1/container-1"),
        ("search/metrics-0.", "namespace-3/pod-2-0."),
        ("search/zoltan-0 is gone", "namespace-3/zoltan-0 is gone"),
        ("search/engine", "search/engine"),
        ("the pods main, metrics-0 and pod", "the pods pod-1, pod-2-0 and pod"),
        ("a pod has no main container", "a pod has no main container"),
        ("in the namespace search", "in the namespace namespace-3"),
        ('the namespace "search"', 'the namespace "namespace-3"'),
        ("claim main (search/main)", "claim main (namespace-3/pod-1)"),
        ('{"namespace": "search"}', '{"namespace": "namespace-3"}'),
        ("spec.nodeName=agent, exported_pod=main", "spec.nodeName=node-1, exported_pod=pod-1"),
        ("https://10.20.30.40/gpu/metrics", "https://198.18.0.1/gpu/metrics"),
        ("http://agent:9400/metrics, dcgm:agent:9400", "http://node-1:9400/metrics, dcgm:node-1:9400"),
        ("GET /api/v1/namespaces/search/pods/main", "GET /api/v1/namespaces/namespace-3/pods/pod-1"),
        ("system:serviceaccount:search:main", "system:serviceaccount:namespace-3:pod-1"),
        ("gpu.nvidia.com/agent/gpu-0", "gpu.nvidia.com/node-1/gpu-0"),
        ("kubectl -n search get pods", "kubectl -n namespace-3 get pods"),
        (f"/var/log/pods/search_main_{UUID}/server/0.log", "/var/log/pods/namespace-3_pod-1_UUID/container-2/0.log"),
        ("namespace/pod/container, driver/pool/device", "namespace/pod/container, driver/pool/device"),
    ],
)
def test_a_common_word_is_a_name_where_the_text_says_so(text: str, new: str) -> None:
    recording, _ = replaced(recording_of(of_kubelet(listed(WORDS)), report=text, node="agent"))
    assert re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", recording.report) == new


@pytest.mark.parametrize("part", ["a ", "pod=", "search/main/", "0123456789abcdef", "a_b_c-", "'"])
def test_a_text_costs_no_more_than_its_length(part: str) -> None:
    def cost(length: int) -> float:
        text = part * (length // len(part))
        recording = recording_of(of_kubelet(listed(WORDS)), report=text, log=(text,), files={"root/x": text.encode()})
        before = process_time()
        replaced(recording)
        return process_time() - before

    # four times as much: sixteen times the time if it were as the square. A busy machine makes some of them slower.
    least = max(cost(10_000) for _ in range(2))
    assert any(cost(40_000) < 10 * least for _ in range(3))


def test_common_words_in_the_places_of_names_are_replaced() -> None:
    metadata = {"name": "main", "namespace": "search", "labels": {"team": "vision"}}
    pod = {"metadata": metadata, "spec": {"nodeName": "agent", "containers": [{"name": "server"}]}}
    page = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",Hostname="agent",exported_namespace="research",team="chat"} 40\n'
    recording, names = replaced(
        recording_of(
            PeerAnswer(
                peer="kubernetes", name="pods", question="/api/v1/pods", body=json.dumps({"items": [pod]}).encode()
            ),
            PeerAnswer(peer="page", name="dcgm:agent:9400", question="http://agent:9400/metrics", body=page),
            settings={"claims.admin-namespaces": ("trainer,kube-system",), "dcgm.selector": ("app=exporter",)},
            outputs={
                "/x": b'[{"pod":"main","owner":"search/main/server","claim":"search/gpu","state":"idle"}]',
                "/y": b'{"settings":{"claims.admin-namespaces":{"value":"trainer,kube-system","from":"flag"}}}',
            },
            log=('level=info msg="the pod main is gone" namespace=search',),
        )
    )
    words = {"main", "search", "vision", "agent", "server", "research", "chat", "trainer", "gpu"}
    assert words <= names.keys()
    first, second = recording.moments[0].answers
    bodies = [first.body, second.body.replace(b'gpu="0"', b""), *recording.moments[0].outputs.values()]
    everything = " ".join([*(body.decode() for body in bodies), second.name, second.question, repr(recording.settings)])
    assert words.isdisjoint(re.findall(r"\w+", everything))
    assert recording.settings["dcgm.selector"] == ("app=exporter",)
    assert '"state":"idle"' in everything
    assert recording.log == (f'level=info msg="the pod {names["main"]} is gone" namespace={names["search"]}',)


def test_names_that_contain_each_other_stay_apart() -> None:
    holders = [("a", "ab", "ab-c"), ("ab", "ab-c", "a"), ("ab-c", "a", "ab"), ("zoltan", "zoltan-x", "zoltan-x-y")]
    texts = [f"{'/'.join(holder)} holds a GPU" for holder in holders]
    holders_now, recording, names = new_holders(*holders, report="\n".join(texts))
    assert len(set(holders_now)) == len(holders)
    assert len(set(names.values())) == len(names)
    by_text = sorted(tuple(line.partition(" ")[0].split("/")) for line in recording.report.splitlines())
    assert by_text == sorted(holders_now)
    assert "zoltan" not in recording.report


def test_a_short_name_is_replaced_where_it_stands_with_others() -> None:
    ((namespace, pod, container),), recording, _ = new_holders(
        ("zq", "wx", "qx"), report="qx is short; zq/wx/qx has it"
    )
    assert "zq" not in (namespace, pod, container)
    assert recording.report == f"qx is short; {namespace}/{pod}/{container} has it"


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("StatefulSet", "jupyter-zoltan-0"),
        ("StatefulSet", "jupyter-zoltan-12"),
        ("ReplicaSet", "zoltan-7c9f5d678-x2k4b"),
        ("Job", "zoltan-28374650-zz9qk"),
        ("DaemonSet", "zoltan-x2k4b"),
    ],
)
def test_a_pod_stays_of_its_kind(kind: str, name: str) -> None:
    owner = re.sub(r"-(?:[0-9]{1,2}|[a-z0-9]{5})$", "", name)
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": UUID, "controller": True}
    metadata = {"name": name, "namespace": "zoltans", "uid": UUID, "ownerReferences": [reference]}
    body = json.dumps({"items": [{"metadata": metadata}]}).encode()
    recording, names = replaced(
        recording_of(PeerAnswer(peer="kubernetes", name="pods", question="/api/v1/pods", body=body))
    )
    (item,) = json.loads(recording.moments[0].answers[0].body)["items"]
    pod = read_pod(item)
    ending = name.removeprefix(owner)
    assert pod.owners[0].kind == kind
    assert pod.name.startswith(f"{pod.owners[0].name}-")
    assert re.fullmatch(r"-[0-9]{1,2}" if ending[1:].isdigit() else "-[bcdfghjklmnpqrstvwxz2456789]{5}", ending)
    assert len(pod.name.removeprefix(pod.owners[0].name)) == len(ending)
    assert names[name] == pod.name
    assert pod.uid == pod.owners[0].uid != UUID


def test_a_statefulset_of_a_person_is_pod_and_a_number() -> None:
    holders_now, _, _ = new_holders(
        ("zoltans", "jupyter-zoltan-0", "notebook"), ("zoltans", "jupyter-zoltan-1", "notebook")
    )
    assert [pod for _, pod, _ in holders_now] == ["pod-1-0", "pod-1-1"]


def test_a_name_that_is_a_uuid_becomes_a_uuid() -> None:
    holders_now, recording, _ = new_holders(
        (UUID, UUID, UUID), report=f"{UUID} and {UUID[:8]} and pod{UUID.replace('-', '_')}"
    )
    ((namespace, pod, container),) = holders_now
    assert namespace == pod == container != UUID
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", pod)
    assert recording.report == f"{pod} and {pod[:8]} and pod{pod.replace('-', '_')}"


def test_ids_of_devices_keep_their_forms() -> None:
    forms = [GPU, f"{GPU}::3", GPU.removeprefix("GPU-"), f"MIG-{GPU}/1/0", f"MIG-{UUID}", f"{GPU[4:]}-_-2", f"{GPU}-7"]
    stay = ["nvidia0", "nvidia1/gi2", "nvidia3/vgpu1", "4/vgpu", "12", "Ascend910-3", "0000:65:00.0", "card1-0"]
    bodies = [listed([("n", "p", "c")], device_id=device_id) for device_id in (*forms, *stay)]
    recording, _ = replaced(recording_of(*map(of_kubelet, bodies)))
    new = [next(iter(parse(answer.body).assignments)).device_id for answer in recording.moments[0].answers]
    uuid = new[0].removeprefix("GPU-")
    assert new[: len(forms)] == [form.replace(GPU[4:], uuid).replace(UUID, new[4][4:]) for form in forms]
    assert uuid not in GPU
    assert new[len(forms) :] == stay


@pytest.mark.parametrize(
    "value",
    ["zol.*tan|(x", "żółtan läßt", "zoltan" * 42, '{"zoltan": ["zoltan", 1]}', "zoltan\\", 'zo"ltan\n', "🜁zoltan"],
)
def test_any_value_of_a_label_goes(value: str) -> None:
    page = 'DCGM_FI_DEV_GPU_TEMP{{gpu="0",team="{0}",exported_pod="{0}"}} 40\n'.format(
        value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    )
    answer = PeerAnswer(peer="page", name="dcgm", question="http://localhost/metrics", body=page.encode())
    recording, _ = replaced(recording_of(answer, report=f"it is {value}."))
    body = recording.moments[0].answers[0].body.decode()
    match = re.fullmatch(r'DCGM_FI_DEV_GPU_TEMP\{gpu="0",team="([a-z]+-[0-9]+)",exported_pod="\1"\} 40\n', body)
    assert match, body
    assert not {"zoltan", "żółtan", "läßt", "ltan"} & set(re.findall(r"[^\W_]+", recording.report))


def test_patterns_of_settings_fit_what_they_fitted() -> None:
    labels = {"costCenter": "x", "costly": "y", "team": "z", "acme.example/owner": "zoltan"}
    body = json.dumps({"items": [{"metadata": {"name": "p", "namespace": "n", "labels": labels}}]}).encode()
    patterns = ("cost.*", r"\bteam\b", r"acme\.example/.*", "nothing")
    recording, _ = replaced(
        recording_of(
            PeerAnswer(peer="kubernetes", name="pods", question="/api/v1/pods", body=body),
            of_kubelet(listed([("n", "p", "c")], "acme.example/gpux")),
            of_kubelet(listed([("n", "p", "c")], "acme.example/gpuy")),
            settings={"labels.pod-labels": patterns, "resources": ("acme.example/gpu*", "nvidia.com/*")},
        )
    )
    (item,) = json.loads(recording.moments[0].answers[0].body)["items"]
    keys = dict(zip(labels, item["metadata"]["labels"], strict=True))
    for old, new in zip(patterns, recording.settings["labels.pod-labels"], strict=True):
        for key, new_key in keys.items():
            assert bool(re.fullmatch(old, key)) == bool(re.fullmatch(new, new_key)), (old, new, key)
    resources = [next(iter(parse(answer.body).assignments)).resource for answer in recording.moments[0].answers[1:]]
    assert recording.settings["resources"] == (",".join(resources), "nvidia.com/*")
    assert "acme" not in repr(recording)


def test_resources_and_annotations_of_allocators_stay() -> None:
    annotation = f"{GPU},NVIDIA,10489,12:;;"
    annotations = {"hami.io/vgpu-devices-allocated": annotation, "zoltan.example/note": "by zoltan"}
    metadata = {"name": "p", "namespace": "n", "annotations": annotations}
    limits = {"volcano.sh/vgpu-number": "1", "huawei.com/Ascend910B4": "1", "nvidia.com/GA102GL_A10": "1"}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}
    body = json.dumps({"items": [pod]}).encode()
    recording, _ = replaced(
        recording_of(
            PeerAnswer(peer="kubernetes", name="pods", question="/api/v1/pods", body=body),
            of_kubelet(listed([("n", "p", "c")])),
        )
    )
    first, second = recording.moments[0].answers
    (item,) = json.loads(first.body)["items"]
    device_id = next(iter(parse(second.body).assignments)).device_id
    assert item["metadata"]["annotations"].pop("hami.io/vgpu-devices-allocated") == annotation.replace(GPU, device_id)
    assert item["spec"]["containers"][0]["resources"]["limits"] == limits
    assert "zoltan" not in json.dumps(item)


def test_nothing_secret_is_left() -> None:
    secrets = (
        "Authorization: Basic em9sdGFuOnF1eXN0eQ==",
        "Bearer quystyquystyquysty",
        "https://zoltan:quysty@localhost:9400/metrics",
        "password=quysty",
        "-----BEGIN PRIVATE KEY-----\nquysty\n-----END PRIVATE KEY-----",
    )
    recording, _ = replaced(
        recording_of(
            report="\n".join(secrets),
            log=secrets,
            files={"root/proc/1/environ": b"A=quysty", "root/etc/cdi/a.yaml": b"env:\n  - TOKEN=quysty\n"},
            outputs={"/x": json.dumps({"env": {"A": "quysty"}, "b": list(secrets)}).encode()},
        )
    )
    assert b"quysty" not in b"".join(bytes_of(recording))
    assert b"zoltan" not in b"".join(bytes_of(recording))


def test_garbage_stays_garbage() -> None:
    answers = (
        of_kubelet(b"\xff\xffzoltan"),
        PeerAnswer(peer="kubernetes", name="pods", question="/api/v1/pods", body=b"{zoltan"),
        PeerAnswer(peer="page", name="dcgm", question="", body=b"zoltan{ 1\nDCGM_FI_X{a=zoltan} 1\n# zoltan\n\xff 1\n"),
        PeerAnswer(peer="page", name="dcgm", question="", trouble=Trouble("garbage", "it says 'zoltan'", "ask zoltan")),
    )
    files = {"kubelet/device-plugins/kubelet_internal_checkpoint": b"[zoltan", "root/x": b"\xffzoltan"}
    recording, _ = replaced(
        recording_of(*answers, of_kubelet(listed([("zoltan", "zoltan", "zoltan")])), files=files, log=('{"a": zoltan',))
    )
    assert b"zoltan" not in b"".join(bytes_of(recording))
    with pytest.raises(Exception, match="ListPodResourcesResponse"):
        parse(recording.moments[0].answers[0].body)


def test_calls_of_nvml_keep_what_decides() -> None:
    calls = (
        RecordedCall(function="nvmlDeviceGetUUID", arguments=(f"nvmlDeviceGetHandleByUUID({GPU})",), result=GPU),
        RecordedCall(function="nvmlDeviceGetSerial", result="1650123000042"),
        RecordedCall(function="nvmlDeviceGetName", result="NVIDIA GeForce RTX 9090 Zuper"),
        RecordedCall(function="nvmlDeviceGetPciInfo", result={"busId": "00000000:65:00.0", "device": 0x123}),
        RecordedCall(function="nvmlSystemGetProcessName", arguments=(5,), result="/opt/zoltan/run --key x"),
    )
    recording, _ = replaced(recording_of(calls=calls))
    uuid, serial, name, pci, process = recording.moments[0].calls
    assert uuid.arguments == (f"nvmlDeviceGetHandleByUUID({uuid.result})",)
    assert uuid.result != GPU
    assert re.fullmatch("[0-9]{13}", str(serial.result))
    assert serial.result != "1650123000042"
    assert (name, pci) == calls[2:4]
    assert process.result == "process-1"


def test_new_names_are_nobodys_names() -> None:
    holders = [(f"namespace-{number}", f"pod-{number}", f"container-{number}") for number in (1, 2, 3)]
    holders_now, _, names = new_holders(("zoltan", "xyloph", "quirx"), *holders)
    assert len(set(holders_now)) == len(holders) + 1
    assert not set(names.values()) & set(names)


def test_a_replaced_recording_is_replaced_again() -> None:
    once, _ = replaced(
        recording_of(of_kubelet(listed([("zoltan", "xyloph-0", "quirx")])), report="zoltan/xyloph-0/quirx")
    )
    twice, _ = replaced(once)
    ((namespace, pod, container),) = holders_in(twice.moments[0].answers[0].body)
    assert twice.report == f"{namespace}/{pod}/{container}"


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("[fd00:1234::a]:9400", r"\[2001:db8::1\]:9400"),
        ("fd00:1234::a is 10.20.30.40:9400", r"2001:db8::1 is 198\.18\.0\.\d:9400"),
        ("127.0.0.1, ::1 and 0.0.0.0 and [::]:9400", r"127\.0\.0\.1, ::1 and 0\.0\.0\.0 and \[::\]:9400"),
        ("driver 550.163.01, BIOS 96.00.74.00.01", r"driver 550\.163\.01, BIOS 96\.00\.74\.00\.01"),
        ("at 2026-11-28T18:24:00.123Z, 12:34:56", r"at 2026-11-28T18:24:00\.123Z, 12:34:56"),
        ("PCI:0000:65:00 and 00000000:3B:00.0", r"PCI:0000:65:00 and 00000000:3B:00\.0"),
        ("aa:bb:cc:12:34:56", r"(?!aa)[0-9a-f]{2}(:[0-9a-f]{2}){5}"),
        ("zoltan@quirx.example wrote", r"user-1@host-1 wrote"),
        ("/home/zoltan/a/quirx.sock cannot be read", r"/home/user-1/a/word\d\.sock cannot be read"),
        ("/var/lib/kubelet/pod-resources/kubelet.sock", r"/var/lib/kubelet/pod-resources/kubelet\.sock"),
        ("https://zoltan.quirx.example:6443/api/v1/pods?x=1", r"https://host-1:6443/api/v1/pods\?x=1"),
        (
            "User \"system:serviceaccount:zoltans:quirx\" cannot list the pods' labels, it isn't 'wixil'",
            r"User \"system:serviceaccount:word\d:word\d\" cannot list the pods' labels, it isn't 'word\d'",
        ),
        ("no route to ip-10-1-2-3.eu-central-1.compute.internal: gone", r"no route to host-1: gone"),
        ("zoltan-7.c.quirx-prod.internal, ip-10-1-2-3", r"host-2, host-1"),
        ("the skip-10-1 of a chip-1-2-3-4 is internal.", r"the skip-10-1 of a chip-1-2-3-4 is internal\."),
        ("the Müllerstraße and Кириллица of it", r"the word1 and word2 of it"),
        ("dcgm:zoltan:9400 at http://zoltan:9400/metrics", r"dcgm:host-1:9400 at http://host-1:9400/metrics"),
    ],
)
def test_forms_in_texts(text: str, form: str) -> None:
    recording, _ = replaced(recording_of(report=text))
    assert re.fullmatch(form, recording.report), recording.report


def test_names_of_labels_that_a_user_gave_are_replaced_alike() -> None:
    page = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",quirxpod="zoltan",wxy="z",pod_label="q",xylo_phon="v"} 40\n'
    labels = {"xylo-phon": "v"}
    body = json.dumps({"items": [{"metadata": {"name": "p", "namespace": "n", "labels": labels}}]}).encode()
    recording, _ = replaced(
        recording_of(
            PeerAnswer(peer="kubernetes", name="pods", question="/api/v1/pods", body=body),
            settings={"labels.names": ("pod=quirxpod,namespace=wxy,container=pod_label",)},
            outputs={"/gpu/metrics": page},
        )
    )
    (names,) = recording.settings["labels.names"]
    pod, namespace, container = (part.partition("=")[2] for part in names.split(","))
    line = recording.moments[0].outputs["/gpu/metrics"].decode()
    assert re.findall(r"(\w+)=", line)[:4] == ["gpu", pod, namespace, container]
    (item,) = json.loads(recording.moments[0].answers[0].body)["items"]
    (key,) = item["metadata"]["labels"]
    assert f'{key.replace("-", "_")}="' in line
    assert not {"quirxpod", "wxy", "xylo", "phon"} & set(re.findall("[a-z]+", line))


def test_a_word_may_be_a_node_and_a_label() -> None:
    metadata = {"name": "p", "namespace": "n", "labels": {"zoltan": "zoltan"}}
    body = json.dumps({"items": [{"metadata": metadata, "spec": {"nodeName": "zoltan"}}]}).encode()
    recording, names = replaced(
        recording_of(
            PeerAnswer(peer="kubernetes", name="pods", question="/api/v1/pods", body=body),
            settings={"node-name": ("zoltan",)},
            outputs={"/metrics/nodes": b'zoltan_info{node="zoltan",label_zoltan="zoltan"} 1\n'},
        )
    )
    (item,) = json.loads(recording.moments[0].answers[0].body)["items"]
    ((key, value),) = item["metadata"]["labels"].items()
    assert recording.settings == {"node-name": ("node-1",)}
    assert (item["spec"]["nodeName"], value, names["zoltan"]) == ("node-1",) * 3
    page = recording.moments[0].outputs["/metrics/nodes"].decode()
    assert page == f'node_1_info{{node="node-1",label_{key}="node-1"}} 1\n'


def test_ids_of_no_form_keep_what_says_what_they_are() -> None:
    ids = ["GPU-zoltan", "GPU-zoltan::4", "MIG-zoltan-2", "MIG-GPU-quirx/1/0", "zoltandev7"]
    bodies = [listed([("n", "p", "c")], device_id=device_id) for device_id in ids]
    page = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-zoltan"} 40\n'
    recording, _ = replaced(
        recording_of(*map(of_kubelet, bodies), PeerAnswer(peer="page", name="d", question="", body=page))
    )
    *answers, of_page = recording.moments[0].answers
    new = [next(iter(parse(answer.body).assignments)).device_id for answer in answers]
    assert new[1] == f"{new[0]}::4"
    assert [device_id.partition("-")[0] for device_id in new[:4]] == ["GPU", "GPU", "MIG", "MIG"]
    assert re.fullmatch(r"MIG-GPU-[a-z0-9-]+/1/0", new[3])
    assert f'UUID="{new[0]}"' in of_page.body.decode()
    assert not re.search("zoltan|quirx", " ".join(new))
