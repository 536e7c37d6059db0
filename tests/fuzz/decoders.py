"""Fuzzes what reads the answers of others: the kubelet's protobuf, the Kubernetes API's JSON, and files of users.

CUDA binaries are among these files.

Whatever comes, it is read or refused as Malformed (files: as a ConfigError of one line).
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress

from exporter.cluster.exporters.node_answer import read_answer
from exporter.cluster.prometheus.collecting import Collected
from exporter.cluster.prometheus.query_answer import VectorSeries, read_vector
from exporter.cluster.prometheus.targets import read_targets
from exporter.config.http_file import read_http_config
from exporter.config.strict_yaml import load_plain
from exporter.config.web_file import read_web_config
from exporter.errors import ConfigError, DuplicateKey, Malformed, Unavailable
from exporter.model.slices import at_once
from exporter.ownership.device_ids import read_rules
from exporter.ownership.inventories import (
    SourceInventory,
    inventory_of,
    put_together,
    read_inventory,
    read_mig_minors,
    read_spec,
)
from exporter.probe.cuda_binary import read_cuda_binary
from exporter.probe.elf import in_memory
from exporter.reading import Invalid
from exporter.sources.kubelet import device_checkpoint, pod_resources
from exporter.sources.kubelet import kubelet_pods as pods_api
from exporter.sources.kubernetes import api as kubernetes_api
from exporter.sources.kubernetes.node_objects import ApiPods, ApiSlices
from tests.support.canned import NOW, target
from tests.support.cluster_settings import endpoint_slices


def read_list(version: str) -> Callable[[bytes], object]:
    return lambda body: pod_resources.parse(body, version, claims=True)


def read_event(kind: type[ApiPods] | type[ApiSlices]) -> Callable[[bytes], object]:
    """An event of a watch, and a list, as the API's sources take them."""

    async def read(body: bytes) -> None:
        source = kind(
            api=kubernetes_api.KubernetesApi(url="http://x", token_file="/x", ca_file="/x"),
            node_name="n",
            on_health=lambda *_: None,
        )
        found = kubernetes_api.read_object(body, "/x")
        source._take(found)

    return lambda body: asyncio.run(read(body))


def read_places(body: bytes) -> None:
    """An event of EndpointSlices, as the cluster role takes it."""
    api = kubernetes_api.KubernetesApi(url="http://x", token_file="/x", ca_file="/x")
    places = endpoint_slices(api=api, namespace="x", service="y", on_health=lambda *_: None)
    places._take(kubernetes_api.read_object(body, "/x"))


def read_exporter(body: bytes) -> None:
    """What a node's exporter says, whichever node it is of."""
    for device in at_once(read_answer(body, None)).devices:
        json.loads(device.text)


def read_prometheus(body: bytes) -> None:
    """What Prometheus says of its targets, of what exporters say of themselves, or of samples, as the role asks it."""
    rows: list[VectorSeries] = []
    at_once(read_vector(body, rows.append))
    asked = [VectorSeries(dict(labels), NOW, value) for labels, value in target()]
    targets = read_targets([*asked, *(row for row in rows if "about" in row.labels)], NOW, 30.0)
    found = Collected(targets, ("pod", "namespace", "container"))
    for row in rows:
        for take in (found.take_own, found.take_sample):
            with suppress(Malformed):
                take(row)
    for node in at_once(found.views()).values():
        for device in node.devices:
            json.loads(device.text)


def read_file(read: Callable[[object, str], object]) -> Callable[[bytes], object]:
    """A file's content, by way of JSON."""

    def run(body: bytes) -> object:
        try:
            return read(kubernetes_api.read_object(body, "/x"), "/x")
        except (ConfigError, Invalid, ValueError) as error:
            if "\n" in str(error):
                raise AssertionError(f"more than a line: {error}") from error
            return None

    return run


def read_cdi(body: bytes) -> None:
    """A CDI spec in YAML, of which JSON is a part; after a zero byte the driver's list of MIG capabilities."""
    text, _, minors = body.decode(errors="replace").partition("\0")
    try:
        devices = read_spec(load_plain(text))
    except (ValueError, DuplicateKey) as error:
        if "\n" in str(error):
            raise AssertionError(f"more than a line: {error}") from error
        return
    places = read_mig_minors(minors, {cap for device in devices for cap in device.caps})
    put_together([SourceInventory(name="cdi", inventory=inventory_of({"a": devices, "b": devices[1:]}, places))])


DECODERS = (
    read_list("v1"),
    read_list("v1alpha1"),
    lambda body: pods_api.parse_pod(body, frozenset({"hami.io/vgpu-devices-allocated"})),
    read_event(ApiPods),
    read_event(ApiSlices),
    read_file(read_web_config),
    read_file(read_http_config),
    read_file(lambda content, _: read_inventory(content)),
    read_file(lambda content, _: read_rules(content)),
    read_cdi,
    read_exporter,
    read_places,
    read_prometheus,
    lambda body: read_cuda_binary(in_memory(body)),
    device_checkpoint.parse,
)


def one_input(data: bytes) -> None:
    """The first byte chooses a decoder."""
    if not data:
        return
    try:
        DECODERS[data[0] % len(DECODERS)](data[1:])
    except (Malformed, kubernetes_api.Forgotten):
        pass
    except Unavailable:
        pass  # the API said that its watch failed
