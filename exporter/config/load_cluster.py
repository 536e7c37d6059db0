"""A cluster role's configuration: flags, environment and file become one frozen `ClusterConfig`, as load.py says."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from exporter.config.cluster import SETTINGS, ClusterConfig, ClusterSettings
from exporter.config.contradictions import check_not_own_address, check_once
from exporter.config.gather import by_name, gather, make
from exporter.config.given import Given, by_default
from exporter.errors import ConfigError

_SETTINGS = by_name(SETTINGS)
_WAYS = ("cluster.node", "cluster.service", "cluster.selector", "cluster.prometheus")
# One server answers for all nodes, and knows what it has scraped: of a page in 30 s, say, if all goes well.
_OF_PROMETHEUS = {"cluster.timeout": "10s", "cluster.max-age": "90s", "cluster.max-bytes": "67108864"}


def load_cluster(
    flags: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    file: Mapping[str, Any] | None,
    config_file: str | None = None,
    own_namespace: str = "",
) -> ClusterConfig:
    """Put the sources together; for the arguments see load.py.

    Raises:
        ConfigError: with one line that names the key, the value and what is allowed.
    """
    given = gather(_SETTINGS, flags, environ, file)
    given.update(_following(given, environ.get("POD_NAMESPACE", "").strip() or own_namespace))
    config = make(ClusterConfig, _SETTINGS, given, environ, config_file)
    _check_together(config)
    return config


def _following(given: Mapping[str, Given], own_namespace: str) -> dict[str, Given]:
    """What follows from other settings: other defaults with Prometheus, and the namespace of pods found by labels."""
    if "cluster.prometheus" in given:
        return {
            name: by_default(f"--{name} with --cluster.prometheus", text)
            for name, text in _OF_PROMETHEUS.items()
            if given[name].origin == "default"
        }
    if "cluster.selector" not in given or "cluster.namespace" in given or not own_namespace:
        return {}
    return {"cluster.namespace": Given("this pod's own namespace", (own_namespace,))}


def _check_together(config: ClusterConfig) -> None:
    """Refuse what cannot all be meant.

    Raises:
        ConfigError: with one line that names both settings.
    """
    cluster = config.cluster
    given = dict(config.given)
    ways = [f"--{name}" for name in _WAYS if name in given]
    if not ways:
        raise ConfigError(f"nothing says where the node exporters are: give one of --{', --'.join(_WAYS)}")
    if len(ways) > 1:
        raise ConfigError(f"{ways[0]}: it contradicts {ways[1]}; node exporters are found in one way")
    _check_prometheus(config)
    if not cluster.nodes and not cluster.prometheus_url and not config.kubernetes.url:
        raise ConfigError(
            f"{ways[0]}: it needs the Kubernetes API: run in a pod with a service account, or name it with"
            " --kubernetes.url"
        )
    if cluster.selector is None and "cluster.namespace" in given:
        raise ConfigError("--cluster.namespace: it goes with --cluster.selector; leave it out")
    if cluster.selector is not None and cluster.namespace is None:
        raise ConfigError("--cluster.selector: it is not known in which namespace; name it with --cluster.namespace")
    if cluster.port is not None and cluster.nodes:
        raise ConfigError("--cluster.port: the port is a part of each --cluster.node; leave it out")
    if cluster.port is not None and cluster.selector and not cluster.port.isdigit():
        raise ConfigError(
            f"--cluster.port: {cluster.port!r} is not allowed with --cluster.selector; it takes a port's number"
        )
    _check_times(cluster)
    _check_keda(config)
    for flag, values in (
        ("--cluster.node", tuple(url for _, url in cluster.nodes)),
        ("--cluster.node", tuple(name for name, _ in cluster.nodes if name)),
        ("--web.listen-address", config.web.listen_addresses),
    ):
        check_once(flag, values)
    for _, url in cluster.nodes:
        check_not_own_address("--cluster.node", urlsplit(url), config.web.listen_addresses)


def _check_prometheus(config: ClusterConfig) -> None:
    cluster = config.cluster
    if cluster.prometheus_url:
        check_not_own_address("--cluster.prometheus", urlsplit(cluster.prometheus_url), config.web.listen_addresses)
        if cluster.port is not None:
            raise ConfigError("--cluster.port: the port is a part of --cluster.prometheus; leave it out")
        return
    for name in ("cluster.prometheus-matchers", "cluster.prometheus-labels"):
        if name in dict(config.given):
            raise ConfigError(f"--{name}: it goes with --cluster.prometheus; leave it out")


def _check_keda(config: ClusterConfig) -> None:
    address = config.keda.listen_address
    if address and address.port and address in config.web.listen_addresses:
        raise ConfigError(f"--keda.listen-address: {address} is --web.listen-address too; give it a port of its own")


def _check_times(cluster: ClusterSettings) -> None:
    if cluster.max_age_seconds < cluster.interval_seconds + cluster.timeout_seconds:
        raise ConfigError(
            f"--cluster.max-age: {cluster.max_age_seconds:g}s is less than --cluster.interval and --cluster.timeout"
            f" together ({cluster.interval_seconds + cluster.timeout_seconds:g}s): nodes would be missing between two"
            " good answers"
        )
