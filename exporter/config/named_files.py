"""What the files hold that a configuration names. Each is read once, and before anything is made of it.

So all parts of a node have the same configuration, whatever happens to a file meanwhile. The inventory is none of these
files: it is a source, which is read again whenever it changes (sources/inventory_file.py).
"""

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from exporter.config.common import WebSettings
from exporter.config.files import read_structured
from exporter.config.http_file import HttpConfig, read_http_config, read_secret
from exporter.config.node import Config
from exporter.config.pages import DcgmSettings
from exporter.config.tls import ClientTls, client_context, server_context
from exporter.config.web_file import WebConfig, read_web_config
from exporter.errors import ConfigError

_NO_HTTP_CONFIG = HttpConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFiles:
    """`rules` is the content of --device-rules, not yet judged; `http` what --dcgm.http-config says."""

    rules: object = None
    http: HttpConfig = _NO_HTTP_CONFIG


def read_node_files(config: Config) -> NodeFiles:
    """The files of a node. Those that are not named say nothing special.

    Raises:
        ConfigError: one of them, or a file that it names, cannot be used.
    """
    path = config.devices.rules_file
    rules = read_structured(path, "--device-rules") if path is not None else None
    return NodeFiles(rules=rules, http=_http_config(config.dcgm))


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """A web config, and the TLS of the listening sockets."""

    config: WebConfig
    tls: ssl.SSLContext | None = None


def read_web(settings: WebSettings) -> Web:
    """What --web.config.file says, or nothing special.

    Raises:
        ConfigError: the file, or a file that it names, cannot be used.
    """
    found = read_web_file(settings)
    where = f"--web.config.file: {settings.config_file!r}"
    return Web(config=found, tls=server_context(found.tls, where) if found.tls else None)


def read_web_file(settings: WebSettings) -> WebConfig:
    """The same without a look at the certificates.

    Raises:
        ConfigError: the file cannot be used.
    """
    path = settings.config_file
    return read_web_config(read_structured(path, "--web.config.file"), path) if path is not None else WebConfig()


def _http_config(dcgm: DcgmSettings) -> HttpConfig:
    path = dcgm.http_config_file
    if path is None:
        return _NO_HTTP_CONFIG
    found = read_http_config(read_structured(path, "--dcgm.http-config"), path)
    where = f"--dcgm.http-config: {path!r}"
    if found.scheme and any("@" in urlsplit(url).netloc for url in dcgm.urls):
        raise ConfigError(f"{where}: a --dcgm.url has a user in it; name the password in one place")
    if found.scheme and dcgm.selectors and not dcgm.urls and found.tls == ClientTls():
        raise ConfigError(
            f"{where}: a password or a token is never sent over plain HTTP to a pod that --dcgm.selector finds; give"
            " tls_config too, and they are asked over HTTPS"
        )
    check_usable(found, where)
    return found


def check_usable(found: HttpConfig, where: str) -> None:
    """Certificates and secrets are made anew whenever their files change (sources/http.py): here they are only tried.

    Raises:
        ConfigError: one of them cannot be used.
    """
    client_context(found.tls, where)
    for secret in (found.username, found.credentials):
        read_secret(secret, where)
