"""TLS contexts: for clients that connect to this program, and for upstreams that it connects to.

The names of versions and cipher suites are those of Go's crypto/tls, which Prometheus' configuration files use.

Tests: tests/config/test_named_files.py.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from exporter.config.files import check_regular
from exporter.config.sections import Section
from exporter.errors import ConfigError

VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
# Go's names for suites of TLS 1.2 that OpenSSL still has. Suites of TLS 1.3 cannot be chosen, as in Go.
CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
}


TlsT = TypeVar("TlsT", bound="Tls")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The TLS settings that clients and servers share: files in PEM ("" for none), and the range of versions."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    min_version: str = "TLS12"
    max_version: str = "TLS13"

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the settings name. If one of them changes, so does the configuration."""
        return tuple(path for path in (self.cert_file, self.key_file, self.ca_file) if path)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls(Tls):
    """`tls_server_config` of a web config. `client_certificate` is "none", "if_given" or "required"."""

    client_certificate: str = "none"
    client_allowed_sans: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls(Tls):
    """`tls_config` of a client. Without `ca_file` the system's authorities are trusted."""

    server_name: str = ""
    verifies: bool = True


def read_tls(cls: type[TlsT], section: Section, folder: Path, ca: str, **more: Any) -> TlsT:  # noqa: ANN401 - cls' fields
    """Read the TLS settings of a section.

    Args:
        cls: the class to make.
        section: the section of a file.
        folder: the file's folder, in which relative paths begin.
        ca: the section's key for the authorities' file.
        more: further fields of `cls`.

    Raises:
        ConfigError: see `Section`.
    """
    return cls(
        ca_file=section.file(ca, folder),
        cert_file=section.file("cert_file", folder),
        key_file=section.file("key_file", folder),
        min_version=section.one_of("min_version", VERSIONS, default="TLS12"),
        max_version=section.one_of("max_version", VERSIONS, default="TLS13"),
        **more,
    )


def server_context(tls: ServerTls, where: str) -> ssl.SSLContext:
    """The context for listening sockets. `where` names the web config. Raises ConfigError: a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit(context, tls.min_version, tls.max_version, where)
    _load_pair(context, tls.cert_file, tls.key_file, where)
    if tls.ca_file:
        _load_authorities(context, tls.ca_file, where)
    if tls.client_certificate != "none":
        context.verify_mode = ssl.CERT_REQUIRED if tls.client_certificate == "required" else ssl.CERT_OPTIONAL
    if tls.ciphers:
        context.set_ciphers(":".join(CIPHERS[name] for name in tls.ciphers))
    return context


def client_context(tls: ClientTls, where: str) -> ssl.SSLContext:
    """The context for connections to an upstream. Raises ConfigError: a file cannot be used."""
    context = ssl.create_default_context() if not tls.ca_file else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Certificates are judged as Go's clients judge them, with every version of Python (3.13 changed the default): an
    # authority without keyUsage or authorityKeyIdentifier, as many clusters have, is accepted, and a trusted
    # intermediate authority ends the chain. The chain, the name and the dates are checked as always.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _limit(context, tls.min_version, tls.max_version, where)
    if tls.ca_file:
        _load_authorities(context, tls.ca_file, where)
    if tls.cert_file:
        _load_pair(context, tls.cert_file, tls.key_file, where)
    if not tls.verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _limit(context: ssl.SSLContext, least: str, most: str, where: str) -> None:
    if VERSIONS[least] > VERSIONS[most]:
        raise ConfigError(f"{where}: min_version: {least!r} is not allowed; it is above max_version {most}")
    context.minimum_version = VERSIONS[least]
    context.maximum_version = VERSIONS[most]


def _load_pair(context: ssl.SSLContext, cert_file: str, key_file: str, where: str) -> None:
    def no_password() -> str:
        # otherwise OpenSSL would ask on the terminal, and wait
        raise ConfigError(f"{where}: key_file: {key_file!r} is encrypted; give a key without a passphrase")

    try:
        for path in (cert_file, key_file):
            check_regular(path)
        context.load_cert_chain(cert_file, key_file, password=no_password)
    except OSError as error:
        raise ConfigError(f"{where}: cert_file {cert_file!r} and key_file {key_file!r}: {_why(error)}") from error


def _load_authorities(context: ssl.SSLContext, path: str, where: str) -> None:
    try:
        check_regular(path)
        context.load_verify_locations(cafile=path)
    except OSError as error:
        raise ConfigError(f"{where}: {path!r} holds no certificate authority: {_why(error)}") from error


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"no certificate and key in PEM that belong together ({error.reason or 'not PEM'})"
    return error.strerror or str(error)
