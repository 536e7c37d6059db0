"""The operator's configuration: flags, environment and file become one frozen `OperatorConfig`, as load.py says."""

from collections.abc import Mapping, Sequence
from typing import Any

from exporter.config.contradictions import check_once
from exporter.config.gather import by_name, gather, make
from exporter.config.given import Given
from exporter.config.operator import MOST_LEASE_SECONDS, SETTINGS, OperatorConfig
from exporter.errors import ConfigError

_SETTINGS = by_name(SETTINGS)


def load_operator(
    flags: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    file: Mapping[str, Any] | None,
    config_file: str | None = None,
    own_namespace: str = "",
) -> OperatorConfig:
    """Put the sources together; for the arguments see load.py.

    Raises:
        ConfigError: with one line that names the key, the value and what is allowed.
    """
    given = gather(_SETTINGS, flags, environ, file)
    own = environ.get("POD_NAMESPACE", "").strip() or own_namespace
    if own and "operator.lease-namespace" not in given:
        given["operator.lease-namespace"] = Given("this pod's own namespace", (own,))
    config = make(OperatorConfig, _SETTINGS, given, environ, config_file)
    _check_together(config)
    return config


def _check_together(config: OperatorConfig) -> None:
    """Refuse what cannot all be meant.

    Raises:
        ConfigError: with one line that names the setting.
    """
    operator = config.operator
    if not config.kubernetes.url:
        raise ConfigError(
            "the operator needs the Kubernetes API: run in a pod with a service account, or name it with"
            " --kubernetes.url"
        )
    if operator.leader_election == "on" and operator.lease_namespace is None:
        raise ConfigError(
            "--operator.leader-election: it is not known in which namespace the lease is; name it with"
            " --operator.lease-namespace, or turn it off where only one replica ever runs"
        )
    if operator.lease_seconds % 1 or operator.lease_seconds > MOST_LEASE_SECONDS:
        raise ConfigError(
            f"--operator.lease-duration: {operator.lease_seconds:g}s is not allowed; it takes whole seconds, an hour at"
            " most"
        )
    check_once("--operator.namespace", operator.namespaces)
    check_once("--web.listen-address", config.web.listen_addresses)
