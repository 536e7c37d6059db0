"""The settings that every role has: its own addresses, the Kubernetes API, and the log.

Tests: tests/config/test_config.py.
"""

from dataclasses import dataclass
from typing import Literal

from exporter.config.parsers import FILE, Address, SettingKind, address, base_url, log_level, one_of
from exporter.config.settings import optional, setting, several

_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """The addresses to listen on, and the file that says who may ask."""

    listen_addresses: tuple[Address, ...] = several(
        "web.listen-address",
        SettingKind(address, "an address such as :9400, 127.0.0.1:9400 or [::1]:9400", "ADDRESS"),
        "Where to listen.",
        default=":9400",
        also_env="HTTP_LISTEN_PORT",
    )
    config_file: str | None = optional(
        "web.config.file",
        FILE,
        "TLS, client certificates, passwords and headers, as Prometheus' exporter-toolkit has them.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """The Kubernetes API. Inside a pod no setting is needed."""

    url: str | None = optional(
        "kubernetes.url",
        SettingKind(base_url, "an http or https URL without a query", "URL"),
        "The Kubernetes API. Default: https:// with KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.",
    )
    token_file: str = setting(
        "kubernetes.token-file",
        FILE,
        "The token for the Kubernetes API, read for every request.",
        default=f"{_SERVICE_ACCOUNT}/token",
    )
    ca_file: str = setting(
        "kubernetes.ca-file",
        FILE,
        "The certificate authority of the Kubernetes API; the system's if there is no such file.",
        default=f"{_SERVICE_ACCOUNT}/ca.crt",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The level and the form of the log."""

    level: str = setting(
        "log.level",
        SettingKind(log_level, "debug, info, warn or error", "LEVEL"),
        "The least serious level that is logged.",
        default="info",
        also_env="LOG_LEVEL",
    )
    format: Literal["logfmt", "json"] = setting(
        "log.format", one_of("logfmt", "json"), "How messages are logged, on standard error.", default="logfmt"
    )
