"""docs/endpoints.md: every path of each role, and the fields of the answers in JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from docs.generator.markdown import code, description, document, prose, table
from exporter.cluster.outputs.cluster_outputs import OUTPUTS as CLUSTER_OUTPUTS
from exporter.model.states import WORDS, DeviceState
from exporter.operator.outputs import OUTPUTS as OPERATOR_OUTPUTS
from exporter.outputs.node_outputs import OUTPUTS
from exporter.outputs.output import Output
from exporter.outputs.probes import HEALTHY, HEALTHZ

_INTRO = """\
All paths answer GET and HEAD, and change nothing. With `--web.config.file` they ask for a password or a client
certificate, except the kubelet's probes `/-/healthy`, `/healthz` and `/-/ready`. Under load every path but these may
answer 503 with `Retry-After`."""
_KEDA = """\
With `--keda.listen-address` it also answers [KEDA's triggers](cluster.md#keda) `external` and `external-push`, by gRPC
on a port of its own."""
_JSON = """\
[openapi.yaml](openapi.yaml) has every type and detail; exporter and cluster role serve it at `/openapi.json`.
Status 400: a wrong question; 401: no password; 403 or 404: switched off; 503: no answer now. `error` says why.
In the tables `?` marks a field that may be left out. A value that nobody reported is `null`, never 0."""
_CONTAINERS = """\
```
$ curl -s 'localhost:9400/container/metrics?namespace=speech'
[{"node_name":"gpu-node-1","model_name":"NVIDIA H100 80GB HBM3","device":"nvidia4","device_id":"4",
  "device_uuid":"GPU-e4b06ce6-…","entity":"gpu","pod":"jupyter-fatma-0","container":"notebook","namespace":"speech",
  "workload_name":"jupyter-fatma","workload_kind":"StatefulSet","gpu_shared":false,"sm_active":null, …,
  "framebuffer_used":22021, …,"temperature":31, …,"power_usage":70,"gpu_utilization":0, …,"state":"idle"}]
```"""
_NOTES = """\
- Filters match exactly, and all of them must match.
- To count GPUs, count the distinct `device_uuid`s that do not begin with `MIG-`: a GPU in MIG mode may have no object
  of its own.
- Units do not depend on dcgm-exporter's version.
- If no source of samples answers, the answer is 503, never an empty array.
- `workload_…` and `queue` need the pods of the node (the kubelet's Pods API or the Kubernetes API), and the
  controller above a ReplicaSet or a Job needs `deploy/rbac.yaml`. Otherwise they are left out.
- `/gpu/metrics` passes dcgm-exporter's samples on: for up to 30 s after a change of hands they, too, describe the
  previous holder.
- More: [MIG](devices.md#mig), [health of held devices](devices.md#health-of-held-devices), [measured
  use](sharing.md#measured-use), [other users](sharing.md#who-uses-a-gpu-and-does-not-hold-it),
  [queues](bill.md#queues), the same by [OTLP](scrape.md#pushing-by-otlp)."""
_STATES = """\
## States

`state`, the [page](dashboards.md#the-page-for-people), [`top`](kubectl.md#top-gpus-and-their-pods-in-a-terminal) and
the dashboards use these words. *Active* means at least `--accounting.idle-below` (5 %)."""
_AFTER_STATES = "If a device has several objects, its state is the first of these that one of them has."
# what a state means, in the order that counts for a device
_MEANS = {
    DeviceState.USED: "a container holds the device, and it is active",
    DeviceState.HELD: "a container holds the device; its activity is not known",
    DeviceState.IDLE: "a container holds the device, and it is not active",
    DeviceState.OUTSIDE: "no container holds the device, but it is active or has memory in use",
    DeviceState.UNKNOWN: "the holder is not known; `state_reason` says why",
    DeviceState.FAILING: "no container holds the device, and none should: its [verdict](health.md) is failing or gone",
    DeviceState.FREE: "no container holds the device",
    DeviceState.CUT: "the GPU is cut into MIG instances, which are devices of their own",
}
# the section's own words after the description of a path, and the objects that it answers with
_OF_PATH = {"/container/metrics": (_CONTAINERS, _NOTES)}
# the path that another page describes
_ELSEWHERE = {
    "/autoscale/{namespace}/{workload}/{metric}": "[Autoscaling](cluster.md#autoscaling) has its parameters and errors."
}
_FIELDS = {"/container/metrics": "Container", "/processes": "Process", "/events": "Event"}
_STATE_FIELD = "one of [eight words](#states)"
_OF_ROLES = frozenset({"X-Newest-Event"})  # a header that only the cluster role needs
_MOST_FIELDS = 7  # of an inner object; docs/openapi.yaml has longer ones
# the page for people names neither itself nor its own parts
_UNSAID = {"/": "a page for people", HEALTHZ.path: HEALTHY.says}
Json = Mapping[str, Any]


def page() -> str:
    """The page."""
    from docs.generator.everything import FOLDER  # noqa: PLC0415 - that module imports this one

    api = yaml.safe_load((FOLDER / "openapi.yaml").read_text())
    return document(
        "Endpoints",
        _INTRO,
        "## Of a node's exporter",
        _table(OUTPUTS),
        "## Of the cluster role",
        _table([output for output in CLUSTER_OUTPUTS if not _is_as(output, OUTPUTS)]),
        f"As above: {', '.join(code(output.path) for output in CLUSTER_OUTPUTS if _is_as(output, OUTPUTS))}.",
        _KEDA,
        "## Of the operator",
        _table(OPERATOR_OUTPUTS),
        "## What answers in JSON",
        _JSON,
        *_operations(api),
        "Next: [metrics](metrics.md), [scrape](scrape.md)",
    )


def _table(outputs: Sequence[Output[Any]]) -> str:
    rows: dict[str, list[str]] = {}
    for output in outputs:
        rows.setdefault(prose(_says(output)), []).append(code(_path(output)))
    return table(("path", "answers"), [(", ".join(paths), says) for says, paths in rows.items()])


def _is_as(output: Output[Any], others: Sequence[Output[Any]]) -> bool:
    return any((output.path, _says(output)) == (other.path, _says(other)) for other in others)


def _path(output: Output[Any]) -> str:
    return f"{output.path}{output.says.partition(':')[0]}" if output.is_below else output.path


def _says(output: Output[Any]) -> str:
    says = output.says.partition(": ")[2] if output.is_below else output.says
    return says or _UNSAID.get(output.path, "a part of the page for people")


def _operations(api: Json) -> Iterator[str]:
    for path, methods in api["paths"].items():
        operation = methods["get"]
        before, after = _OF_PATH.get(path, ("", ""))
        yield f"## {path}"
        yield from filter(None, (before,))
        yield prose(f"{operation['summary']}. {_first(description(operation, f'docs/openapi.yaml: {path}'))}")
        if path in _ELSEWHERE:
            yield _ELSEWHERE[path]
            continue
        notes = "\n".join((*_headers(api, operation, path), *filter(None, (after,))))
        yield from filter(None, (_parameters(operation), notes))
        if path in _FIELDS:
            yield table(("field", ""), _fields(api, api["components"]["schemas"][_FIELDS[path]]))
        if path == "/container/metrics":
            yield _STATES
            yield table(("`state`", "in words", "means"), [(code(s), WORDS[s], _MEANS[s]) for s in DeviceState])
            yield _AFTER_STATES


def _first(text: str) -> str:
    """The first paragraph; docs/openapi.yaml alone has the others."""
    return text.partition("\n")[0]


def _parameters(operation: Json) -> str:
    names = ", ".join(code(each["name"]) for each in operation.get("parameters", ()))
    return f"Filters: {names}." if names else ""


def _headers(api: Json, operation: Json, path: str) -> Iterator[str]:
    """The headers of the answers, as a list."""
    for said in operation["responses"].values():
        response = _followed(api, said)
        description(response, f"docs/openapi.yaml: a response of {path}")
        for name, header in response.get("headers", {}).items():
            if name not in _OF_ROLES:
                says = _first(description(header, f"docs/openapi.yaml: header {name} of {path}"))
                yield f"- Header {code(name)}: {prose(says)}"


def _fields(api: Json, schema: Json) -> list[Sequence[str]]:
    """A row for each field; fields that have the same description are one row."""
    needed = frozenset(schema["required"])
    rows: dict[str, list[str]] = {}
    for name, described in schema["properties"].items():
        says = _STATE_FIELD if name == "state" else _of_field(api, described)
        rows.setdefault(says, []).append(code(name) + ("" if name in needed else "?"))
    return [(", ".join(names), says) for says, names in rows.items()]


def _of_field(api: Json, described: Json) -> str:
    followed = _followed(api, described)
    inner = followed.get("items", followed) if followed.get("type") == "array" else followed
    says = _first(described.get("description", ""))
    parts = [prose(says)]
    if not all(each in says for each in followed.get("enum", ())):
        parts.append("One of " + _type(followed))
    if 0 < len(inner.get("properties", ())) <= _MOST_FIELDS:
        parts.append("Fields: " + ", ".join(map(code, inner["properties"])))
    return ". ".join(part.rstrip(".") for part in parts if part)


def _type(schema: Json) -> str:
    return ", ".join(code(each) for each in schema["enum"] if each)


def _followed(api: Json, described: Json) -> Json:
    """The description that a $ref leads to; without a $ref, the description itself."""
    if "$ref" not in described:
        return described
    found: Json = api
    for part in described["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return found
