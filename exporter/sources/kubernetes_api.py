"""The HTTP client of the Kubernetes API: lists, objects and the lines of a watch, or a SourceError that says why not.

Plain HTTP: aiohttp is here anyway, and a client library would weigh more than the exporter.
"""

import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from exporter.errors import Malformed, TimedOut, Unavailable, Unsupported

LONGEST_PAUSE_SECONDS = 30.0
# The API ends a watch by itself after this long; silence for longer is a connection that nobody holds any more.
WATCH_SECONDS = 240
SILENCE_SECONDS = 270.0
ANSWER_SECONDS = 30.0
MAX_BYTES = 64 * 1024 * 1024

Object = Mapping[str, Any]


class Forgotten(Exception):
    """410 Gone: the API no longer knows the place where the watch was."""


class KubernetesApi:
    """One API server, by its URL. The token is read for every request: it is replaced while the program runs."""

    def __init__(self, *, url: str, token_file: str, ca_file: str) -> None:
        self._url = url.rstrip("/")
        self._token_file = Path(token_file)
        self._ca_file = Path(ca_file)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """End the connections."""
        if self._session is not None:
            await self._session.close()

    async def list(self, path: str, parameters: Mapping[str, str]) -> Object:
        """A whole list.

        Raises:
            Forgotten, SourceError: see `lines`.
        """
        body = bytearray()
        async for chunk in self._chunks(path, parameters, ANSWER_SECONDS):
            body += chunk
            if len(body) > MAX_BYTES:
                raise Malformed("oversize", f"the Kubernetes API answers {path} with more than {MAX_BYTES} bytes")
        return read_object(bytes(body), path)

    async def get(self, path: str) -> Object:
        """One object.

        Raises:
            SourceError: see `lines`. An object that is not there is Unsupported.
        """
        return await self.list(path, {})

    async def lines(
        self, path: str, parameters: Mapping[str, str], on_open: Callable[[], None]
    ) -> AsyncIterator[Object]:
        """The events of a watch, as they come, until the API ends it. `on_open` hears that it is taken up.

        Raises:
            Forgotten: 410 Gone.
            SourceError: nobody answers, or with a status other than 200, or with what is no JSON.
        """
        rest = b""
        async for chunk in self._chunks(path, parameters, None, on_open):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_BYTES:
                raise Malformed("oversize", f"one event of {path} is larger than {MAX_BYTES} bytes")
            for line in lines:
                if line.strip():
                    yield read_object(line, path)

    async def _chunks(
        self, path: str, parameters: Mapping[str, str], seconds: float | None, on_open: Callable[[], None] | None = None
    ) -> AsyncIterator[bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(auto_decompress=True)
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=10.0, sock_read=SILENCE_SECONDS)
        try:
            async with self._session.get(
                self._url + path,
                params=parameters,
                headers=self._headers(),
                ssl=self._ssl(),
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                self._check(response, path)
                if on_open:
                    on_open()
                async for chunk in response.content.iter_any():
                    yield chunk
        except TimeoutError as error:
            raise TimedOut("deadline", f"the Kubernetes API at {self._url} does not answer {path}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable("unreachable", f"the Kubernetes API at {self._url}: {error}") from error

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "pod-gpu-metrics-exporter"}
        try:
            headers["Authorization"] = f"Bearer {self._token_file.read_text(encoding='ascii').strip()}"
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable("permission", f"{self._token_file} cannot be read: {error}") from error
        return headers

    def _ssl(self) -> ssl.SSLContext | bool:
        if not self._url.startswith("https:") or not self._ca_file.exists():
            return True
        # made for every connection, so that a renewed certificate authority is taken up: there are few connections
        return ssl.create_default_context(cafile=str(self._ca_file))

    def _check(self, response: aiohttp.ClientResponse, path: str) -> None:
        status = response.status
        if status == HTTPStatus.OK:
            return
        if status == HTTPStatus.GONE:
            raise Forgotten
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise Unavailable(
                "permission",
                f"the Kubernetes API refuses {path} with {status}: the service account needs list and watch on it"
                " (deploy/rbac.yaml)",
            )
        if status == HTTPStatus.NOT_FOUND:
            raise Unsupported("unimplemented", f"the Kubernetes API knows no {path}")
        later = response.headers.get("Retry-After", "")
        raise Unavailable(
            "rate_limited" if status == HTTPStatus.TOO_MANY_REQUESTS else "http_status",
            f"the Kubernetes API answers {path} with HTTP status {status}",
            retry_after_seconds=min(float(later), LONGEST_PAUSE_SECONDS) if later.isdigit() else None,
        )


def read_object(body: bytes, path: str) -> Object:
    """A JSON object.

    Raises:
        Malformed: it is none.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed("garbage", f"the Kubernetes API answers {path} with what is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise Malformed("garbage", f"the Kubernetes API answers {path} with what is no object")
    return found
