"""`--dcgm.http-config` and its like: TLS and authorisation towards upstreams, in the form of Prometheus' `http_config`.

https://prometheus.io/docs/prometheus/latest/configuration/configuration/#scrape_config describes the form. What this
program cannot do (OAuth 2, proxies, redirects) is refused, never ignored.
"""

from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path

from exporter.config.files import read_regular
from exporter.config.parsers import Pairs
from exporter.config.sections import Section
from exporter.config.tls import ClientTls, read_tls
from exporter.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret, or the file that holds it. The file wins, and is read for every request."""

    value: str = field(default="", repr=False)
    file: str = ""


_NO_SECRET = Secret()
_NO_TLS = ClientTls()


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    """How to connect to an upstream. `scheme` is the word before the credentials; "Basic" has a `username`, too."""

    scheme: str = ""
    username: Secret = _NO_SECRET
    credentials: Secret = _NO_SECRET
    headers: Pairs = field(default=(), repr=False)
    tls: ClientTls = _NO_TLS


def read_http_config(content: object, path: str, flag: str = "--dcgm.http-config") -> HttpConfig:
    """The settings of the parsed file `path`. It names files relative to its own folder.

    Raises ConfigError: the content is not allowed. The error's one line shows no secret.
    """
    folder = Path(path).parent
    top = Section(content, f"{flag}: {path!r}")
    basic = top.section("basic_auth")
    authorization = top.section("authorization")
    if basic.is_given and authorization.is_given:
        raise top.error("basic_auth", "and authorization cannot both be given")
    scheme = ""
    username = Secret()
    credentials = Secret()
    if basic.is_given:
        scheme = "Basic"
        username = _secret(basic, "username", folder)
        credentials = _secret(basic, "password", folder)
        if username == Secret():
            raise basic.error("username", "is missing")
    if authorization.is_given:
        scheme = authorization.text("type", "Bearer")
        credentials = _secret(authorization, "credentials", folder)
        if not scheme.isalnum() or scheme.lower() == "basic":
            raise authorization.error("type", "must be one word such as Bearer; for Basic use basic_auth")
        if credentials == Secret():
            raise authorization.error("credentials", "is missing")
    if top.flag("follow_redirects", default=False):
        raise top.error("follow_redirects", "must be false: the upstream is the one that is configured")
    top.flag("enable_http2", default=False)  # this program speaks HTTP/1.1, as every server of HTTP/2 can
    http = HttpConfig(
        scheme=scheme,
        username=username,
        credentials=credentials,
        headers=_headers(top.section("http_headers")),
        tls=_tls(top.section("tls_config"), folder),
    )
    top.close()
    return http


def read_secret(secret: Secret, where: str) -> str:
    """The text of a secret, stripped. Raises ConfigError: its file cannot be read, or has several lines."""
    if not secret.file:
        return secret.value
    try:
        text = read_regular(secret.file).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{where}: {secret.file!r} cannot be read: {why}") from error
    if not text.isprintable():
        raise ConfigError(f"{where}: {secret.file!r} must hold one line of printable text")
    return text


def authorization(config: HttpConfig, where: str) -> dict[str, str]:
    """The Authorization header of one request; empty without credentials. Secrets' files are read each time.

    Raises ConfigError: see `read_secret`.
    """
    if not config.scheme:
        return {}
    secret = read_secret(config.credentials, where)
    if config.scheme == "Basic":
        secret = b64encode(f"{read_secret(config.username, where)}:{secret}".encode()).decode()
    return {"Authorization": f"{config.scheme} {secret}"}


def _secret(section: Section, key: str, folder: Path) -> Secret:
    value = section.line(key)
    file = section.file(f"{key}_file", folder)
    if value and file:
        raise section.error(key, f"and {key}_file cannot both be given")
    return Secret(value=value, file=file)


def _headers(section: Section) -> Pairs:
    headers = []
    for name in section:
        for value in section.section(name).texts("values"):
            if not _is_header(name, value):
                raise section.error(repr(name), "is no header that can be sent, or has a line break in its value")
            headers.append((name, value))
    return tuple(headers)


def _is_header(name: str, value: str) -> bool:
    own = {"host", "authorization", "accept", "accept-encoding", "via", "connection", "content-length", "user-agent"}
    is_token = bool(name) and name.isascii() and all(char.isalnum() or char in "-_" for char in name)
    return is_token and name.lower() not in own and not set(value) & set("\r\n\0")


def _tls(section: Section, folder: Path) -> ClientTls:
    verifies = not section.flag("insecure_skip_verify", default=False)
    server_name = section.text("server_name")
    tls = read_tls(ClientTls, section, folder, "ca_file", server_name=server_name, verifies=verifies)
    if bool(tls.cert_file) is not bool(tls.key_file):
        raise section.error("cert_file", "and key_file go together: one is given without the other")
    return tls
