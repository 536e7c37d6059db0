"""Certificates for tests, made anew in each run."""

from dataclasses import dataclass
from pathlib import Path

import trustme


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
