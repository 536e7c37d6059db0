"""`--web.config.file`: who may connect and how, in the form of Prometheus' exporter-toolkit.

https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md describes the form. What this
program cannot do is refused, never ignored: a file that asks for protection must get it or end the start.
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
    """`users` are bcrypt hashes by name; no users is no authentication, no `tls` is plain HTTP."""

    users: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ServerTls | None = None


def read_web_config(content: object, path: str) -> WebConfig:
    """The file `path`; names in it without a `/` are beside it. Raises ConfigError: one line, without a hash in it."""
    top = Section(content, f"--web.config.file: {path!r}")
    users = top.section("basic_auth_users")
    http = top.section("http_server_config")
    http.flag("http2", default=False)  # Go's default is true; this program speaks HTTP/1.1, which every client does too
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
    """Whether bcrypt itself can compare with a hash: not every text of its form is one (a salt has spare bits)."""
    import bcrypt  # noqa: PLC0415 - its memory only where there are passwords

    try:
        bcrypt.checkpw(b"", f"{text[:4]}04{text[6:]}".encode())  # at its least cost
    except ValueError:
        return False
    return True


def _tls(section: Section, folder: Path) -> ServerTls | None:
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
    # the order of suites is the server's, as in Go, which ignores this key too
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
