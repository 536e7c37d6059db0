"""The files that a configuration names. Each is read once, before the parts are made, so that all parts agree.

The inventory file is not among them: it is a source, read again whenever it changes (sources/node_inventory.py).
"""

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from exporter.config.common import WebSettings
from exporter.config.files import read_structured
from exporter.config.http_file import HttpConfig, read_http_config, read_secret
from exporter.config.node_settings import Config
from exporter.config.tls import ClientTls, client_context, server_context
from exporter.config.web_file import WebConfig, read_web_config
from exporter.errors import ConfigError

_NO_HTTP_CONFIG = HttpConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFiles:
    """The contents of a node's files.

    Attributes:
        rules: the file of --device-rules, not yet checked; None without a file.
        http: the file of --dcgm.http-config.
        otlp_http: the file of --otlp.http-config.
    """

    rules: object = None
    http: HttpConfig = _NO_HTTP_CONFIG
    otlp_http: HttpConfig = _NO_HTTP_CONFIG


def read_node_files(config: Config) -> NodeFiles:
    """Read the files of a node. Raises ConfigError: one of them, or a file that it names, cannot be used."""
    path = config.devices.rules_file
    dcgm = config.dcgm
    rules = read_structured(path, "--device-rules") if path is not None else None
    http = read_http_file(dcgm.http_config_file, "--dcgm.http-config")
    where = f"--dcgm.http-config: {dcgm.http_config_file!r}"
    if http.scheme and any("@" in urlsplit(url).netloc for url in dcgm.urls):
        raise ConfigError(f"{where}: a --dcgm.url has a user in it; name the password in one place")
    if http.scheme and dcgm.selectors and not dcgm.urls and http.tls == ClientTls():
        raise ConfigError(
            f"{where}: a password or a token is never sent over plain HTTP to a pod that --dcgm.selector finds; give"
            " tls_config too, and they are asked over HTTPS"
        )
    otlp_http = read_http_file(config.otlp.http_config_file, "--otlp.http-config")
    if otlp_http.scheme and any(name.lower() == "authorization" for name, _ in config.otlp.headers):
        raise ConfigError(
            f"--otlp.http-config: {config.otlp.http_config_file!r}: OTEL_EXPORTER_OTLP_HEADERS has an Authorization,"
            " too; name the secret in one place"
        )
    return NodeFiles(rules=rules, http=http, otlp_http=otlp_http)


def read_http_file(path: str | None, flag: str) -> HttpConfig:
    """Read the file of --dcgm.http-config, or of a flag like it. Without a file the defaults of `HttpConfig` hold.

    Certificates and secrets are only tried here: sources/http.py reads them again whenever their files change. Raises
    ConfigError: the file, or a file that it names, cannot be used.
    """
    if path is None:
        return HttpConfig()
    where = f"{flag}: {path!r}"
    http = read_http_config(read_structured(path, flag), path, flag)
    client_context(http.tls, where)
    for secret in (http.username, http.credentials):
        read_secret(secret, where)
    return http


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """A web config, and the TLS of the listening sockets."""

    config: WebConfig
    tls: ssl.SSLContext | None = None


def read_web(settings: WebSettings) -> Web:
    """Read --web.config.file with its certificates; without a file the defaults hold.

    Raises ConfigError: the file, or a file that it names, cannot be used.
    """
    web = read_web_file(settings)
    where = f"--web.config.file: {settings.config_file!r}"
    return Web(config=web, tls=server_context(web.tls, where) if web.tls else None)


def read_web_file(settings: WebSettings) -> WebConfig:
    """Read --web.config.file without its certificates. Raises ConfigError: the file cannot be used."""
    path = settings.config_file
    return read_web_config(read_structured(path, "--web.config.file"), path) if path is not None else WebConfig()
