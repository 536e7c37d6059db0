"""The cluster role's configuration: precedence, contradictions, files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from exporter.config.cluster_settings import SETTINGS, ClusterConfig, load_cluster, read_cluster_http
from exporter.config.parsers import Address
from exporter.errors import ConfigError

NODE = "http://10.0.0.1:9400"
API = {"KUBERNETES_SERVICE_HOST": "10.0.0.9"}


def load(
    flags: Mapping[str, Sequence[str]] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Mapping[str, object] | None = None,
    **more: str,
) -> ClusterConfig:
    return load_cluster(flags or {}, environ or {}, file, **more)


def test_the_defaults() -> None:
    cluster = load({"cluster.node": [NODE]}).cluster
    assert cluster.nodes == (("", NODE),)
    assert (cluster.interval_seconds, cluster.timeout_seconds, cluster.max_age_seconds) == (10.0, 2.0, 30.0)
    assert (cluster.max_bytes, cluster.service, cluster.selector, cluster.http_config_file) == (
        4194304,
        None,
        None,
        None,
    )


def test_keda_may_ask_nowhere_unless_it_is_said_where() -> None:
    assert load({"cluster.node": [NODE]}).keda.listen_address is None
    found = load({"cluster.node": [NODE]}, {"POD_GPU_EXPORTER_KEDA_LISTEN_ADDRESS": "[::1]:9401"}).keda
    assert found.listen_address == Address(host="::1", port=9401)


def test_a_flag_wins_over_the_environment_and_that_over_the_file() -> None:
    file = {"cluster": {"interval": "1s", "timeout": "3s", "max-age": "1m", "node": [NODE, "b=https://b:9400/"]}}
    environ = {"POD_GPU_EXPORTER_CLUSTER_INTERVAL": "2s", "POD_GPU_EXPORTER_CLUSTER_TIMEOUT": "4s"}
    cluster = load({"cluster.interval": ["5s"]}, environ, file).cluster
    assert (cluster.interval_seconds, cluster.timeout_seconds, cluster.max_age_seconds) == (5.0, 4.0, 60.0)
    assert cluster.nodes == (("", NODE), ("b", "https://b:9400"))


def test_every_setting_can_be_given_by_the_environment() -> None:
    names = {setting.env for setting in SETTINGS}
    assert "POD_GPU_EXPORTER_CLUSTER_HTTP_CONFIG" in names
    assert len(names) == len(SETTINGS)
    doubts = load({"cluster.node": [NODE]}, {"POD_GPU_EXPORTER_CLUSTER_INTERVALL": "1s"}).doubts
    assert "did you mean POD_GPU_EXPORTER_CLUSTER_INTERVAL?" in doubts[0].remedy


def test_the_three_ways_to_find_exporters() -> None:
    service = load({"cluster.service": ["gpu/exporter"], "cluster.port": ["metrics"]}, API).cluster
    assert (service.service, service.port) == (("gpu", "exporter"), "metrics")
    labels = {"cluster.selector": ["app=x,team=y"]}
    pods = load(labels, {**API, "POD_NAMESPACE": "own"}).cluster
    assert (pods.selector, pods.namespace) == ((("app", "x"), ("team", "y")), "own")
    assert load(labels, API, own_namespace="of-the-account").cluster.namespace == "of-the-account"
    named = load({**labels, "cluster.namespace": ["gpu"]}, {**API, "POD_NAMESPACE": "own"}).cluster
    assert named.namespace == "gpu"


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({}, "nothing says where the node exporters are"),
        ({"cluster.node": [NODE], "cluster.service": ["a/b"]}, "--cluster.node: it contradicts --cluster.service"),
        ({"cluster.service": ["a/b"], "cluster.selector": ["a=b"]}, "contradicts --cluster.selector"),
        ({"cluster.service": ["a/b"]}, "needs the Kubernetes API"),
        ({"cluster.node": [NODE, f"{NODE}/"]}, f"--cluster.node: {NODE} is named twice"),
        ({"cluster.node": ["a=http://a:1", "a=http://b:1"]}, "--cluster.node: a is named twice"),
        ({"cluster.node": ["http://localhost:9400"]}, "is this exporter's own address"),
        ({"cluster.node": ["http://user:pw@a:9400"]}, "'http://a:9400' is not allowed"),
        ({"cluster.node": ["http://a:9400/?x=1"]}, "is not allowed"),
        ({"cluster.node": ["ftp://a"]}, "is not allowed"),
        ({"cluster.node": ["a b=http://a:9400"]}, "is not allowed"),
        ({"cluster.node": [NODE], "cluster.namespace": ["a"]}, "it goes with --cluster.selector"),
        ({"cluster.node": [NODE], "cluster.port": ["9400"]}, "--cluster.port"),
        ({"cluster.selector": ["a=b"], "kubernetes.url": [NODE]}, "name it with --cluster.namespace"),
        (
            {
                "cluster.selector": ["a=b"],
                "kubernetes.url": [NODE],
                "cluster.namespace": ["a"],
                "cluster.port": ["web"],
            },
            "it takes a port's number",
        ),
        ({"cluster.service": ["a/b"], "kubernetes.url": [NODE], "cluster.port": ["123456"]}, "is not allowed"),
        ({"cluster.service": ["ab"]}, "it takes NAMESPACE/NAME"),
        ({"cluster.service": ["a/b/c"]}, "it takes NAMESPACE/NAME"),
        ({"cluster.node": [NODE], "cluster.max-age": ["10s"]}, "is less than --cluster.interval and --cluster.timeout"),
        ({"cluster.node": [NODE], "cluster.interval": ["0s"]}, "above 0"),
        ({"cluster.node": [NODE], "web.listen-address": [":1", ":1"]}, "is named twice"),
        ({"cluster.prometheus": [NODE], "cluster.node": [NODE]}, "--cluster.node: it contradicts --cluster.prometheus"),
        ({"cluster.prometheus": [NODE], "cluster.selector": ["a=b"]}, "contradicts --cluster.prometheus"),
        ({"cluster.prometheus": ["http://localhost:9400"]}, "is this exporter's own address"),
        ({"cluster.prometheus": ["http://me:pw@a:9090"]}, "'http://a:9090' is not allowed"),
        ({"cluster.prometheus": ["a:9090"]}, "is not allowed"),
        ({"cluster.prometheus": [NODE], "cluster.port": ["9090"]}, "--cluster.port"),
        ({"cluster.prometheus": [NODE], "cluster.namespace": ["a"]}, "it goes with --cluster.selector"),
        ({"cluster.prometheus": [NODE], "cluster.max-age": ["15s"]}, "is less than --cluster.interval"),
        ({"cluster.prometheus": [NODE], "cluster.prometheus-matchers": ['{a="b"}']}, "is not allowed"),
        ({"cluster.prometheus": [NODE], "cluster.prometheus-matchers": ['a="b"} or up{c="d"']}, "is not allowed"),
        ({"cluster.prometheus": [NODE], "cluster.prometheus-labels": ["pod=a,pod=b"]}, "is not allowed"),
        ({"cluster.node": [NODE], "cluster.prometheus-matchers": ['a="b"']}, "it goes with --cluster.prometheus"),
        ({"cluster.node": [NODE], "cluster.prometheus-labels": ["pod"]}, "it goes with --cluster.prometheus"),
        ({"cluster.node": [NODE], "keda.listen-address": [":9400"]}, "--keda.listen-address: :9400 is --web.listen"),
        ({"cluster.node": [NODE], "keda.listen-address": ["9401"]}, "--keda.listen-address: '9401' is not allowed"),
    ],
)
def test_what_cannot_be_meant_is_refused(flags: Mapping[str, Sequence[str]], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(flags)
    assert says in str(error.value)
    assert "pw" not in str(error.value)


def test_prometheus_has_other_defaults_and_needs_no_kubernetes_api() -> None:
    cluster = load({"cluster.prometheus": ["http://p:9090/prefix/"]}).cluster
    assert (cluster.prometheus_url, cluster.prometheus_matchers, cluster.prometheus_labels) == (
        "http://p:9090/prefix",
        None,
        None,
    )
    assert (cluster.timeout_seconds, cluster.max_age_seconds, cluster.max_bytes) == (10.0, 90.0, 67108864)
    more = {"cluster.timeout": ["2s"], "cluster.max-age": ["30s"], "cluster.prometheus-labels": ["legacy"]}
    given = load({"cluster.prometheus": [NODE], **more}, {"POD_GPU_EXPORTER_CLUSTER_MAX_BYTES": "4194304"}).cluster
    assert (given.timeout_seconds, given.max_age_seconds, given.max_bytes) == (2.0, 30.0, 4194304)
    assert given.prometheus_labels == ("pod_name", "pod_namespace", "container_name")


@pytest.mark.parametrize("text", ['cluster="a"', ' a=~"x|y" , b!="", c!~"\\"" ', 'a="},{"'])
def test_matchers_of_promql(text: str) -> None:
    cluster = load({"cluster.prometheus": [NODE], "cluster.prometheus-matchers": [text]}).cluster
    assert cluster.prometheus_matchers == text.strip()


def test_a_password_may_go_to_a_prometheus_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "http.yml"
    path.write_text("http_headers: {X-Scope-OrgID: {values: [tenant]}}\nbasic_auth: {username: me, password: secret}\n")
    found = read_cluster_http(load({"cluster.prometheus": [NODE], "cluster.http-config": [str(path)]}, API).cluster)
    assert (found.scheme, found.headers) == ("Basic", (("X-Scope-OrgID", "tenant"),))


def test_a_key_of_the_node_is_none_of_the_cluster() -> None:
    with pytest.raises(ConfigError, match=r"'kubelet\.socket' is not a key"):
        load(file={"kubelet.socket": "/x", "cluster.node": NODE})


def test_the_files_that_are_watched(tmp_path: Path) -> None:
    http, web, file = (str(tmp_path / name) for name in ("http.yml", "web.yml", "config.yml"))
    flags = {"cluster.node": [NODE], "cluster.http-config": [http], "web.config.file": [web]}
    assert set(load(flags, config_file=file).files) == {http, web, file}


def test_the_http_config_is_read_and_its_errors_name_the_flag(tmp_path: Path) -> None:
    path = tmp_path / "http.yml"
    by_name = {"cluster.node": [NODE], "cluster.http-config": [str(path)]}
    path.write_text("basic_auth: {username: me, password: secret}\n")
    found = read_cluster_http(load(by_name).cluster)
    assert (found.scheme, found.username.value) == ("Basic", "me")
    with pytest.raises(ConfigError, match="never sent over plain HTTP") as error:
        read_cluster_http(load({"cluster.service": ["a/b"], "cluster.http-config": [str(path)]}, API).cluster)
    assert "secret" not in str(error.value)
    path.write_text("basic_auht: {}\n")
    with pytest.raises(ConfigError, match=r"--cluster\.http-config"):
        read_cluster_http(load(by_name).cluster)
