"""Certificates for tests, made anew in each run."""

import datetime as dt
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


class Authority:
    """An authority; its own certificate is at `ca`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._authority = trustme.CA(organization_name=name)
        self._folder = folder
        self.ca = folder / f"{name}-ca.pem"
        self._authority.cert_pem.write_to_path(str(self.ca))

    def issue(self, file: str, *names: str) -> Pair:
        issued = self._authority.issue_cert(*names)
        pair = Pair(self._folder / f"{file}.pem", self._folder / f"{file}-key.pem")
        pair.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(pair.key))
        return pair


class LaxAuthority:
    """An authority as many clusters have it: without keyUsage, subjectKeyIdentifier or authorityKeyIdentifier.

    RFC 5280 asks for them. Go's clients do not, and neither does OpenSSL without X509_V_FLAG_X509_STRICT.
    """

    def __init__(self, folder: Path, name: str = "lax") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca = folder / f"{name}-ca.pem"
        certificate = (
            self._begin(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, file: str, address: str = "127.0.0.1", days: int = 1) -> Pair:
        """A server's certificate for an IP address; one of -1 days is over."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        certificate = (
            self._begin(subject, key.public_key(), days)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = Pair(self._folder / f"{file}.pem", self._folder / f"{file}-key.pem")
        pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return pair

    def _begin(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int = 1) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=30))
            .not_valid_after(now + dt.timedelta(days=days))
        )
