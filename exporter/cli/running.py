"""Asking the exporter that runs on this machine, on the address where it listens."""

import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from exporter.config.parsers import Address
from exporter.errors import ExporterError

TIMEOUT_SECONDS = 20.0  # it asks its own sources before it answers
MOST_BYTES = 256 * 1024 * 1024
_ANY = {"": "localhost", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where "any address" is reached


class NotReadable(ExporterError):
    """No exporter answers there, or it refuses to be read. The text says which."""


def connection_here(host: str, port: int, timeout_seconds: float, *, tls: bool) -> http.client.HTTPConnection:
    """To this machine: the name in its certificate does not matter, and neither does who signed it."""
    if not tls:
        return http.client.HTTPConnection(host, port, timeout=timeout_seconds)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=timeout_seconds, context=context)


@dataclass(frozen=True, slots=True)
class Running:
    """An exporter that answers, by http or https."""

    address: Address
    tls: bool

    def __str__(self) -> str:
        host = _ANY.get(self.address.host, self.address.host)
        return f"{'https' if self.tls else 'http'}://{Address(host=host, port=self.address.port)}"

    def get(self, path: str) -> tuple[int, bytes]:
        """An answer's status and body. Raises OSError or http.client.HTTPException where nobody answers in HTTP."""
        host = _ANY.get(self.address.host, self.address.host)
        connection = connection_here(host, self.address.port, TIMEOUT_SECONDS, tls=self.tls)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read(MOST_BYTES)
        finally:
            connection.close()


def find(address: Address) -> tuple[Running, Mapping[str, Any], bytes]:
    """The exporter that listens at `address`, its /debug/mapping as JSON, and the same as the bytes that came.

    Raises NotReadable: there is none, or it asks for a password or a client certificate.
    """
    for tls in (False, True):
        running = Running(address, tls)
        try:
            status, body = running.get("/debug/mapping")
        except ConnectionRefusedError as error:
            raise NotReadable(f"no exporter answers at {running}") from error
        except TimeoutError as error:
            raise NotReadable(f"{running} does not answer within {TIMEOUT_SECONDS:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            if not tls:
                continue  # a TLS port does not speak plain HTTP
            # TLS 1.3 closes the connection without a reason if the client has no certificate
            why = "it asks for a client certificate, or speaks neither HTTP nor TLS"
            raise NotReadable(f"what listens at {address} cannot be read: {why}") from error
        if status == HTTPStatus.BAD_REQUEST and not tls:
            continue  # Go and this program answer so to plain HTTP on a port that speaks TLS
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise NotReadable(f"the exporter at {running} asks for a password (--web.config.file)")
        try:
            mapping = json.loads(body) if status == HTTPStatus.OK else None
        except (ValueError, RecursionError):
            mapping = None
        if not isinstance(mapping, dict) or "doctor" not in mapping:
            raise NotReadable(f"what answers at {running} is not this exporter (HTTP status {status})")
        return running, mapping, body
    raise NotReadable(f"what listens at {address} cannot be read")
