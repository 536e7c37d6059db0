"""/openapi.json, held to the description that people read.

`make golden` writes it anew.
"""

import json
from collections.abc import Mapping
from typing import get_type_hints

from exporter.cluster.outputs.cluster_outputs import OUTPUTS as OF_CLUSTER
from exporter.lenient import AnyObject
from exporter.model.device_row import ALWAYS, DeviceRow, DeviceUser, Number, OwnUse, WholeDevice
from exporter.model.states import DeviceState
from tests.support import quick_yaml
from tests.support.cluster_role import running_cluster
from tests.support.exporter import PATHS, Start
from tests.support.golden import Golden
from tests.support.places import ROOT

# For people, and as they like: /debug/ says what a look amounts to; the description does not describe itself.
NOT_DESCRIBED = ("/debug/mapping", "/debug/nodes", "/openapi.json")
SERVED = ROOT / "exporter" / "outputs" / "openapi.json"


def test_openapi_json_is_the_description_in_docs(golden: Golden) -> None:
    described = quick_yaml.load((ROOT / "docs" / "openapi.yaml").read_text())
    golden.holds(SERVED, json.dumps(described, indent=1) + "\n")


async def test_openapi_json_is_what_the_exporter_serves(start: Start) -> None:
    exporter = await start(kubelet_socket="/no/such/kubelet.sock", dcgm_url="http://127.0.0.1:1/metrics")
    async with exporter.session.get(f"{exporter.base}/openapi.json") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "application/json; charset=utf-8"
        assert json.loads(await response.read()) == json.loads(SERVED.read_text())


# issue 15, line 26
async def test_every_path_that_answers_in_json_is_described(start: Start) -> None:
    described: Mapping[str, object] = quick_yaml.load((ROOT / "docs" / "openapi.yaml").read_text())["paths"]
    node = await start()
    asked = [node.base + path for path in PATHS]
    async with running_cluster({"cluster.node": [f"gpu-node-1={node.base}"]}) as cluster:
        asked += [cluster.base + output.path + ("ml/x/y" if output.is_below else "") for output in OF_CLUSTER]
        answers = {}
        for url in asked:
            async with node.session.get(url) as response:
                answers[response.url.path] = response.content_type
    in_json = {path for path, content_type in answers.items() if content_type == "application/json"}
    assert {path for path in in_json if not any(_is_of(path, known) for known in described)} == {*NOT_DESCRIBED}
    assert in_json >= {"/container/metrics", "/processes", "/autoscale/ml/x/y", "/openapi.json"}


def _is_of(path: str, described: str) -> bool:
    """Whether a path is one of those that a path of the description stands for: `{…}` is any part."""
    parts, of_described = path.split("/"), described.split("/")
    return len(parts) == len(of_described) and all(
        of.startswith("{") or part == of for part, of in zip(parts, of_described, strict=True)
    )


KINDS: Mapping[object, object] = {
    str: "string",
    bool: "boolean",
    Number: "number",
    int | None: ["integer", "null"],
    str | None: ["string", "null"],
    DeviceState: [*DeviceState],
    Mapping[str, str]: "object",
    AnyObject | None: "object",
    OwnUse | None: "object",
    WholeDevice | None: "object",
    tuple[str, ...]: "array",
    tuple[DeviceUser, ...]: "array",
}
PARTS = {"measured": OwnUse._fields, "whole_device": WholeDevice._fields, "used_by": DeviceUser._fields}


def test_the_description_of_a_device_has_the_fields_of_its_type() -> None:
    """A field of `DeviceRow` that nobody described fails here, and so does one that is described and is not there."""
    schemas = quick_yaml.load((ROOT / "docs" / "openapi.yaml").read_text())["components"]["schemas"]
    described = schemas["Container"]
    types = {name: kind for name, kind in get_type_hints(DeviceRow).items() if name != "unknown_fields"}
    assert {*described["properties"]} == {*types}
    assert {*described["required"]} == {*ALWAYS}
    for name, kind in types.items():
        schema = described["properties"][name]
        is_number = schema.get("$ref") == "#/components/schemas/Metric"
        says = "number" if is_number else schema.get("type") or schema["enum"]
        if name in ("entity", "health"):  # texts of a few words
            assert isinstance(says, list)
            assert kind is str
        else:
            assert says == KINDS[kind], name
    for name, fields in PARTS.items():
        schema = described["properties"][name]
        assert {*schema.get("items", schema)["properties"]} == {*fields}, name
