"""`--web.config.file`: TLS, passwords and headers for clients, in the form of Prometheus' exporter-toolkit.

https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md describes the form. The program
refuses settings that it cannot follow: a file that asks for protection must get it, or the program does not start.

Tests: tests/web/test_protection.py.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.config.sections import Section
from exporter.config.tls import CIPHERS, ServerTls, read_tls

CLIENT_CERTIFICATE = {
    "": "none",
    "NoClientCert": "none",
    "VerifyClientCertIfGiven": "if_given",
    "RequireAndVerifyClientCert": "required",
}
HEADERS = (
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
)
_BCRYPT = re.compile(r"\$2[abxy]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """A web config. `users` are bcrypt hashes by name. Without users there are no passwords, without `tls` no TLS."""

    users: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ServerTls | None = None


def read_web_config(content: object, path: str) -> WebConfig:
    """The settings of the parsed file `path`. It names files relative to its own folder.

    Raises ConfigError: the content is not allowed. The error's one line shows no hash.
    """
    top = Section(content, f"--web.config.file: {path!r}")
    users = top.section("basic_auth_users")
    http = top.section("http_server_config")
    http.flag("http2", default=False)  # Go's default is true; this program speaks HTTP/1.1, as every client can
    headers = http.section("headers")
    for name in headers:
        if name not in HEADERS:
            raise headers.error(name, f"is not a header that can be set; {', '.join(HEADERS)} can")
    web = WebConfig(
        users={name: _hash(users, name) for name in users},
        headers={name: headers.line(name) for name in headers},
        tls=_tls(top.section("tls_server_config"), Path(path).parent),
    )
    top.close()
    return web


def _hash(users: Section, name: str) -> bytes:
    text = users.text(name)
    if not _BCRYPT.fullmatch(text) or not _takes(text):
        raise users.error(name, "has no bcrypt hash; make one with: htpasswd -nBC 10 ''")
    if not name or ":" in name:
        raise users.error(name, "is not allowed; a user's name has no colon and is not empty")
    return text.encode()


def _takes(text: str) -> bool:
    """Whether bcrypt accepts a hash. It refuses some texts of the right form, since a salt has spare bits."""
    import bcrypt  # noqa: PLC0415 - its memory only where there are passwords

    try:
        bcrypt.checkpw(b"", f"{text[:4]}04{text[6:]}".encode())  # at the least cost
    except ValueError:
        return False
    return True


def _tls(section: Section, folder: Path) -> ServerTls | None:
    """The section `tls_server_config`; None without it. Relative paths start from `folder`. Raises ConfigError."""
    if not section.is_given:
        return None
    tls = read_tls(
        ServerTls,
        section,
        folder,
        "client_ca_file",
        client_certificate=CLIENT_CERTIFICATE[section.one_of("client_auth_type", CLIENT_CERTIFICATE, default="")],
        client_allowed_sans=section.texts("client_allowed_sans"),
        ciphers=section.texts("cipher_suites"),
    )
    # the server's order of suites counts, as in Go, which ignores this key, too
    section.flag("prefer_server_cipher_suites", default=True)
    if not tls.cert_file or not tls.key_file:
        raise section.error("cert_file", "and key_file are needed both; inline `cert` and `key` are not supported")
    if (tls.client_certificate != "none") is not bool(tls.ca_file):
        raise section.error("client_auth_type", "and client_ca_file go together: one is given without the other")
    if tls.client_allowed_sans and tls.client_certificate != "required":
        raise section.error("client_allowed_sans", "needs client_auth_type: RequireAndVerifyClientCert")
    for name in tls.ciphers:
        if name not in CIPHERS:
            raise section.error("cipher_suites", f"{name!r} is not one of {', '.join(CIPHERS)}")
    return tls
