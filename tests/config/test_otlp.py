"""Where metrics are pushed to: flags and OpenTelemetry's own environment, with what is wrong about them."""

from pathlib import Path

import pytest

from exporter.config.load import load
from exporter.config.named_files import read_node_files
from exporter.config.node_settings import Config
from exporter.errors import ConfigError

PREFIX = "OTEL_EXPORTER_OTLP_"


def config(environ: dict[str, str] | None = None, /, **flags: str) -> Config:
    return load(
        {name.replace("_", ".", 1).replace("_", "-"): [text] for name, text in flags.items()}, environ or {}, None, "n"
    )


@pytest.mark.parametrize(
    ("environ", "flags", "url"),
    [
        ({}, {}, None),
        ({}, {"otlp_endpoint": "http://c:4318"}, "http://c:4318/v1/metrics"),
        ({}, {"otlp_endpoint": "http://c:4318/"}, "http://c:4318/v1/metrics"),
        ({}, {"otlp_endpoint": "http://c:9090/api/v1/otlp"}, "http://c:9090/api/v1/otlp/v1/metrics"),
        ({}, {"otlp_endpoint": "https://c/v1/metrics"}, "https://c/v1/metrics"),
        ({"ENDPOINT": "http://e:4318"}, {}, "http://e:4318/v1/metrics"),
        ({"METRICS_ENDPOINT": "http://m/push"}, {}, "http://m/push"),
        ({"METRICS_ENDPOINT": "http://m/push", "ENDPOINT": "http://e"}, {}, "http://m/push"),
        ({"METRICS_ENDPOINT": "http://m/push"}, {"otlp_endpoint": "http://c"}, "http://c/v1/metrics"),
        ({"ENDPOINT": " "}, {}, None),
    ],
)
def test_where_it_pushes(environ: dict[str, str], flags: dict[str, str], url: str | None) -> None:
    assert config({PREFIX + name: text for name, text in environ.items()}, **flags).otlp.url == url


def test_its_own_environment_wins_over_opentelemetrys() -> None:
    environ = {"POD_GPU_EXPORTER_OTLP_ENDPOINT": "http://own", f"{PREFIX}METRICS_ENDPOINT": "http://m/push"}
    assert config(environ).otlp.url == "http://own/v1/metrics"


@pytest.mark.parametrize("text", ["collector:4318", "grpc://c:4317", "http://", "http://u:p@c:4318", "http://c/?a=b"])
def test_an_endpoint_that_is_no_url_says_what_one_is(text: str) -> None:
    for environ, flags in (({}, {"otlp_endpoint": text}), ({f"{PREFIX}ENDPOINT": text}, {})):
        with pytest.raises(ConfigError, match=r"http://collector:4318 \(OTLP over HTTP; gRPC is not spoken\)"):
            config(environ, **flags)


def test_headers_and_the_resource_are_opentelemetrys() -> None:
    environ = {
        f"{PREFIX}HEADERS": "authorization=Bearer%20x,x-scope=1",
        f"{PREFIX}METRICS_HEADERS": "x-scope=2",
        "OTEL_RESOURCE_ATTRIBUTES": "k8s.cluster.name=a%2Cb, service.name=other",
        "OTEL_SERVICE_NAME": "gpus",
    }
    otlp = config(environ, otlp_endpoint="http://c").otlp
    assert otlp.headers == (("authorization", "Bearer x"), ("x-scope", "2"))
    assert dict(otlp.resource) == {
        "service.name": "gpus",
        "service.instance.id": "n",
        "k8s.node.name": "n",
        "k8s.cluster.name": "a,b",
    }
    assert "Bearer" not in repr(otlp)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({f"{PREFIX}PROTOCOL": "grpc"}, "only http/protobuf is spoken"),
        ({f"{PREFIX}METRICS_PROTOCOL": "http/json", f"{PREFIX}PROTOCOL": "http/protobuf"}, "only http/protobuf"),
        ({f"{PREFIX}HEADERS": "token"}, "1 of its parts are no key=value"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "a=b,c"}, "1 of its parts are no key=value"),
    ],
)
def test_what_it_cannot_do_is_told_where_it_pushes(environ: dict[str, str], words: str) -> None:
    (doubt,) = config(environ, otlp_endpoint="http://c").doubts
    assert words in doubt.message
    assert doubt.remedy
    assert "token" not in doubt.message
    assert config(environ).doubts == ()


def test_a_file_without_an_endpoint_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing is pushed without"):
        config(otlp_http_config="/x.yaml")


def test_a_secret_in_two_places_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "http.yaml"
    path.write_text("authorization: {credentials: x}\n")
    environ = {f"{PREFIX}HEADERS": "Authorization=y"}
    with pytest.raises(ConfigError, match="name the secret in one place"):
        read_node_files(config(environ, otlp_endpoint="http://c", otlp_http_config=str(path)))
