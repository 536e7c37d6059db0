"""The decoder of node exporters' answers: what real ones say, and what anybody may say instead."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.cluster.exporters.node_answer import (
    METRICS,
    MOST_FIELDS,
    MOST_ROW_CHARS,
    MOST_ROWS,
    NodeAnswer,
    read_answer,
)
from exporter.dcgm.fields import METRICS as METRICS_OF_FIELDS
from exporter.errors import Malformed
from exporter.model.device_row import as_object
from exporter.model.slices import at_once
from tests.support.exporter import config_of, running
from tests.support.simulated import SimulatedNode, World

Row = dict[str, Any]
NODE = "gpu-node-1"


def row(number: int = 0, **fields: Any) -> Row:
    """An object as an exporter writes it; a field that is ... is left out."""
    whole = {
        "node_name": NODE,
        "model_name": "NVIDIA H100 80GB HBM3",
        "device": f"nvidia{number}",
        "device_id": str(number),
        "device_uuid": f"GPU-{number}",
        "entity": "gpu",
        "pod": "trainer-0",
        "container": "main",
        "namespace": "ml",
        "gpu_shared": False,
        **dict.fromkeys(METRICS_OF_FIELDS),
        "gpu_utilization": 40 + number,
        "timestamp": "2026-11-22T07:37:11.721Z",
        **fields,
    }
    return {name: value for name, value in whole.items() if value is not ...}


def read(body: bytes | list[Any], node: str | None = NODE) -> NodeAnswer:
    return at_once(read_answer(body if isinstance(body, bytes) else json.dumps(body).encode(), node))


def refusal(body: bytes | list[Any], node: str | None = NODE) -> Malformed:
    with pytest.raises(Malformed) as raised:
        read(body, node)
    return raised.value


# issue 11, "Must show" 5
@pytest.mark.parametrize("sharing", ["copy", "split", "device"])
async def test_what_a_real_exporter_says_of_whole_shared_and_cut_gpus(sharing: str) -> None:
    simulated = SimulatedNode(World(gpus=6, shared=2, mig=2, seed=11))
    await simulated.start()
    config = config_of(
        kubelet_socket=str(simulated.socket),
        dcgm_url=simulated.url,
        node_name=NODE,
        sharing=sharing,
        labels_pod_uid="on",
        workload_labels="on",
    )
    async with running(config) as exporter, exporter.session.get(f"{exporter.base}/container/metrics") as response:
        body = await response.read()
    await simulated.stop()
    told = json.loads(body)
    found = read(body)
    assert {found.node} == {NODE} == {of["node_name"] for of in told}
    assert found.size == len(body)
    assert [json.loads(device.text) for device in found.devices] == told
    for device, of in zip(found.devices, told, strict=True):
        assert as_object(device.row) == of
    assert any(of["entity"] == "mig" and "mig_instance_id" in of for of in told)
    assert sharing == "device" or any(of["gpu_shared"] for of in told)


def test_the_metrics_are_those_of_the_output() -> None:
    assert frozenset(METRICS_OF_FIELDS) == METRICS


def test_a_node_without_devices_has_none() -> None:
    assert read(b" [ ]\n") == NodeAnswer(node=NODE, devices=(), size=5)
    assert read(b"[]", None).node == ""


def test_the_name_of_a_node_that_is_not_known_comes_from_its_answer() -> None:
    assert read([row(0), row(1)], None).node == NODE


def test_an_older_exporter_says_less_and_a_newer_one_more() -> None:
    of = {"model_name", "device", "device_id", "entity", "timestamp", *METRICS_OF_FIELDS}
    (older,) = read([{name: value for name, value in row().items() if name not in of}]).devices
    assert (older.row.device_uuid, older.row.model_name, older.row.entity) == ("GPU-0", "", "gpu")
    assert (older.row.gpu_utilization, older.row.timestamp, older.row.state) == (None, None, "held")
    (newer,) = read([row(pod_gpu_allocated_ratio=0.5, nested={"a": [1]}, flag=True, workload_name="t")]).devices
    assert newer.row.workload_name == "t"
    assert json.loads(newer.text)["nested"] == {"a": [1]}
    assert not newer.row.unknown_fields, "the text has them"


# issue 11, "Must show" 5
def test_an_answer_takes_no_more_memory_than_is_counted_for_it() -> None:
    """Honest objects, and those that have as many numbers and names as are kept."""
    families = {f"pod_gpu_{number:060}": 0.1 for number in range(100)}
    body = json.dumps([row(number, **{**dict.fromkeys(METRICS, 0.1), **families}) for number in range(200)]).encode()
    for of in (json.dumps([row(number) for number in range(200)]).encode(), body):
        tracemalloc.start()
        found = read(of)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < 1.5 * found.kept_bytes


def test_a_device_without_a_uuid_is_known_by_its_index() -> None:
    two = read([row(0, device_uuid=""), row(1, device_uuid="")]).devices
    assert [device.row.row_device[1] for device in two] == ["nvidia0", "nvidia1"]


# issue 11, "Must show" 5
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "not a JSON array"),
        (b"<html>", "not a JSON array"),
        (b"{}", "not a JSON array"),
        (b"\xef\xbb\xbf[]", "not a JSON array"),
        (b"\xff\xfe[\0]\0", "not UTF-8"),
        (b"[", "object 0 is not JSON"),
        (b"[]]", "more after"),
        (b"[] {}", "more after"),
        (b"[,]", "object 0 is not JSON"),
        (b"[1]", "object 0 is not a JSON object"),
        (b"[null]", "object 0 is not a JSON object"),
        (b"[{}]", "no field node_name"),
        (b"[" * 10_000, "nested too deeply"),
        (b'[{"a":' * 5_000, "nested too deeply"),
        (json.dumps([row()]).encode()[:-1], "neither a comma nor"),
        (json.dumps([row()]).encode()[:-1] + b",]", "object 1 is not JSON"),
        (json.dumps([row()]).encode()[:-40], "object 0 is not JSON"),
        (json.dumps([row()]).encode().replace(b'"pod"', b'"pod": "x", "pod"'), "there twice"),
        (json.dumps([row()]).encode().replace(b": 40", b": NaN"), "NaN"),
        (json.dumps([row()]).encode().replace(b": 40", b": -Infinity"), "-Infinity"),
        (json.dumps([row()]).encode().replace(b": 40", b": 1e999"), "no number that can be"),
        (json.dumps([row()]).encode().replace(b": 40", b": " + b"9" * 400), "no number that can be"),
        (json.dumps([row()]).encode().replace(b": 40", b": " + b"9" * 9_000), "digits"),
        (json.dumps([row()]).encode().replace(b"trainer-0", b"\\ud800"), "half a character"),
        (json.dumps([row()]).encode().replace(b"trainer-0", b"\xed\xa0\x80"), "not UTF-8"),
        (json.dumps([row()]).encode().replace(b"trainer-0", b"a\nb"), "object 0 is not JSON"),
        ([row(nested={"a": "\ud800"})], "half a character"),
        ([row(nested=[{"b": "\ud800"}])], "half a character"),
        ([row(pod=7)], "pod is not text"),
        ([row(pod=None)], "pod is not text"),
        ([row(pod=...)], "no field pod"),
        ([row(pod="p" * 600)], "more than 512 characters"),
        ([row(mig_instance_id=3)], "mig_instance_id is not text"),
        ([row(gpu_shared="no")], "gpu_shared"),
        ([row(gpu_shared=...)], "gpu_shared"),
        ([row(sm_active="0.5")], "sm_active is neither a number nor null"),
        ([row(sm_active=True)], "sm_active is neither a number nor null"),
        ([row(sm_active=[1])], "sm_active is neither a number nor null"),
        ([row(**{f"f{number}": 1 for number in range(MOST_FIELDS)})], "more than 256 fields"),
        ([row(), row()], "object 1 is of the same device and container"),
        ([row(0), row(1, node_name="")], "node_name is empty"),
        ([row(0, node_name="a\nb")], "cannot be printed"),
    ],
)
def test_what_is_no_answer_is_refused_whole(body: bytes | list[Any], says: str) -> None:
    error = refusal(body)
    assert (error.reason, says in str(error)) == ("garbage", True), str(error)
    assert error.trouble.remedy
    assert len(str(error)) < 500


# issue 11, "Must show" 5
def test_another_nodes_name_is_refused_with_what_to_do() -> None:
    error = refusal([row(0), row(1, node_name="other")])
    assert str(error) == "it answers as the node 'other', and is the exporter of 'gpu-node-1'"
    assert "NODE_NAME" in error.trouble.remedy
    assert "of several nodes" in str(refusal([row(0), row(1, node_name="other")], None))
    assert len(str(refusal([row(0, node_name="x" * 500)]))) < 200


# issue 11, "Must show" 5
def test_more_than_a_node_has_is_not_taken() -> None:
    assert len(read([row(number) for number in range(MOST_ROWS)]).devices) == MOST_ROWS
    assert refusal([row(number) for number in range(MOST_ROWS + 1)]).reason == "oversize"
    long = refusal([row(nested=[{}] * MOST_ROW_CHARS), row(1)])
    assert (long.reason, "has more than" in str(long)) == ("oversize", True)


# what JSON has to escape, what UTF-8 writes in several bytes, and what it cannot write
TEXT = st.text('a1"\\/\n\0 \x7fé\u2028\ud800\U0001f600', max_size=8)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(
    st.builds(
        lambda number, fields: row(number, **fields),
        st.integers(0, 3),
        st.dictionaries(st.sampled_from([*row(), "mig_instance_id", "workload_kind", "unknown"]), ANY_JSON, max_size=3),
    ),
    max_size=4,
)


def check(body: bytes) -> None:
    """An answer is refused, or read as any strict reader of JSON reads it."""
    try:
        found = read(body, None)
    except Malformed:
        return
    told = json.loads(body)
    assert [json.loads(device.text) for device in found.devices] == told
    rows = [device.row for device in found.devices]
    assert len({(row.row_device, row.namespace, row.pod, row.container) for row in rows}) == len(told)
    for row, said in zip(rows, told, strict=True):
        numbers = {name: said.get(name) for name in METRICS}
        assert {name: getattr(row, name) for name in METRICS} == {
            name: number if number is not None and abs(number) < 10**18 else None for name, number in numbers.items()
        }


@given(rows=ROWS, escaped=st.booleans())
def test_any_fields(rows: list[Row], escaped: bool) -> None:
    try:
        check(json.dumps(rows, ensure_ascii=escaped).encode())
    except UnicodeEncodeError:
        return  # a lone surrogate, which is no UTF-8


@given(at=st.integers(0, 900), cut=st.integers(0, 30), put=st.binary(max_size=8))
def test_any_damage(at: int, cut: int, put: bytes) -> None:
    body = json.dumps([row(0), row(1)]).encode()
    check(body[:at] + put + body[at + cut :])


@given(body=st.binary(max_size=60) | ANY_JSON.map(lambda any_json: json.dumps(any_json).encode()))
def test_anything(body: bytes) -> None:
    check(body)
