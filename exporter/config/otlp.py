"""OpenTelemetry's own environment variables that matter for a push. Pure: the environment comes in as a value.

https://opentelemetry.io/docs/specs/otel/protocol/exporter/ and …/configuration/sdk-environment-variables/ describe
them.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from exporter.config.parsers import Pairs
from exporter.config.settings import SettingTexts
from exporter.errors import Trouble

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_METRICS_ENDPOINT = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
_METRICS_HEADERS = "OTEL_EXPORTER_OTLP_METRICS_HEADERS"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_RESOURCE = "OTEL_RESOURCE_ATTRIBUTES"
_SERVICE = "OTEL_SERVICE_NAME"
_SPOKEN = "http/protobuf"
_PATH = "/v1/metrics"


def endpoint(environ: Mapping[str, str]) -> dict[str, SettingTexts]:
    """The environment's endpoint as --otlp.endpoint; empty if the environment names none."""
    for name in (_METRICS_ENDPOINT, _ENDPOINT):
        if text := environ.get(name, "").strip():
            return {"otlp.endpoint": SettingTexts(name, (text,))}
    return {}


def url_of(endpoint: str | None, given: SettingTexts | None) -> str | None:
    """The URL to push to: the endpoint itself if it is for metrics alone, else /v1/metrics below it.

    None without an endpoint. `given` says where the endpoint comes from.
    """
    if endpoint is None or (given is not None and given.where == _METRICS_ENDPOINT) or endpoint.endswith(_PATH):
        return endpoint
    return f"{endpoint}{_PATH}"


def headers(environ: Mapping[str, str]) -> Pairs:
    """The headers of each push. Headers that are for metrics alone win over headers for all signals."""
    of_all = dict(_pairs(environ, _HEADERS))
    of_metrics = dict(_pairs(environ, _METRICS_HEADERS))
    return tuple((of_all | of_metrics).items())


def resource(environ: Mapping[str, str], node: str) -> Pairs:
    """The attributes of the resource that measures: by default this exporter on this node."""
    own = {"service.name": "pod-gpu-metrics-exporter", "service.instance.id": node, "k8s.node.name": node}
    service = environ.get(_SERVICE, "").strip()
    return tuple((own | dict(_pairs(environ, _RESOURCE)) | ({"service.name": service} if service else {})).items())


def doubts(environ: Mapping[str, str], url: str | None) -> Iterator[Trouble]:
    """Doubts about variables that ask for something this program cannot do; none if nothing is pushed (no `url`)."""
    if url is None:
        return
    for name in _PROTOCOLS:
        protocol = environ.get(name, "").strip()
        if protocol and protocol != _SPOKEN:
            message = f"{name} is {protocol!r}, and is ignored: only {_SPOKEN} is spoken"
            yield Trouble("", message, "name the receiver's port of OTLP over HTTP, 4318 by default, as the endpoint")
            break
    for name in (_HEADERS, _METRICS_HEADERS, _RESOURCE):
        if wrong := sum("=" not in part for part in _parts(environ, name)):
            message = f"{name}: {wrong} of its parts are no key=value, and are ignored"
            yield Trouble("", message, "write key1=value1,key2=value2; other characters are written as %2C and so on")


def _parts(environ: Mapping[str, str], name: str) -> list[str]:
    return [part.strip() for part in environ.get(name, "").split(",") if part.strip()]


def _pairs(environ: Mapping[str, str], name: str) -> Iterator[tuple[str, str]]:
    for part in _parts(environ, name):
        key, separator, text = part.partition("=")
        if separator and key.strip():
            yield unquote(key.strip()), unquote(text.strip())
