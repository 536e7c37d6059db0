"""The API server by one `kubectl proxy`, for many GETs at once: a kubectl for each would take 60 ms of a core.

kubectl listens on a Unix socket in a folder that only this user may enter, and asks with the user's own rights. It
passes on nothing but GETs of the paths that this room asks for. It ends with this program, however that ends: a shell
waits for the end of its standard input, which this program holds, ends kubectl, and takes the folder away.

Tests: tests/kubectl/test_looks_without_exporter.py.
"""

import http.client
import json
import os
import re
import select
import shutil
import socket
import subprocess
import tempfile
import time
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlencode

from exporter.kubectl.binary import CONTEXTS, CREDENTIALS, NO_SERVER_NAMED, Kubectl, KubectlRefusal, failure_of
from exporter.lenient import AnyObject, mapping, text
from exporter.top.transport import MOST_BYTES, Gone
from exporter.wording import one_line

_PREFIX = "kubectl-gpu-"
_SOCKET = "api"
_LONGEST_SOCKET_BYTES = 103  # of macOS; Linux takes 107
_START_SECONDS = 10.0  # kubectl listens before it asks anybody
_PIECE_BYTES = 256 * 1024
# the pods of all namespaces or of one, nodes, and the page in a pod
_PATHS = r"^/api/v1/(pods|nodes(/[^/]+)?|namespaces/[^/]+/pods(/[^/]+/proxy/metrics)?)$"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_NOT_GET = "^[^G]"  # GET is the only method that begins with this letter
# $0 is the folder. What is called kubectl may be a script that starts kubectl: all of the process group is ended.
_UNTIL_WE_END = '"$@" & exec >/dev/null 2>&1; cat; trap "" TERM; kill 0; wait; rm -rf "$0"'


# kubectl's default, if the kubeconfig names no server: localhost:8080
_DEFAULT_REFUSES = re.compile(r"dial tcp (127\.0\.0\.1|\[::1\]):8080: .*refused")


class ApiAnswer(NamedTuple):
    """An answer's status and body."""

    status: int
    body: bytes

    @property
    def refusal(self) -> KubectlRefusal | None:
        """The API server's own refusal; None for an answer that it only passed on."""
        if self.status == HTTPStatus.OK or not self.body.startswith(b"{"):
            return None
        try:
            content = mapping(json.loads(self.body))
        except ValueError:
            return None
        if content.get("kind") != "Status":
            return None
        return KubectlRefusal(text(content, "reason"), one_line(text(content, "message"), 300))


class TooSlow(Gone):
    """No answer came in time."""


class ApiProxy:
    """A running `kubectl proxy`. It ends where the `with` block ends. Threads may share it."""

    def __init__(self, kubectl: Kubectl) -> None:
        """Start it.

        Raises:
            Gone: kubectl is not there, or does not start.
        """
        program = shutil.which("kubectl")
        if program is None:
            raise Gone("kubectl is not in the PATH -> install it, or add its folder to the PATH")
        self._folder = _folder()
        self._socket = self._folder / _SOCKET
        options = ("--unix-socket", str(self._socket), "--append-server-path")
        filters = ("--accept-paths", _PATHS, "--reject-methods", _NOT_GET)
        command = [program, *kubectl.flags, "proxy", *options, *filters]
        with (self._folder / "log").open("wb") as log:
            # a session of its own: Ctrl-C is for this program, which then ends kubectl
            self._process = subprocess.Popen(  # noqa: S603 - the user's own kubectl and flags
                ["/bin/sh", "-c", _UNTIL_WE_END, str(self._folder), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        if not self._is_listening():
            words = one_line((self._folder / "log").read_text("utf-8", "replace"))
            self.close()
            raise failure_of(words)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End kubectl, and with it the answers that are still awaited."""
        self.close()

    def close(self) -> None:
        """End kubectl. The shell takes the folder away."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def get(self, path: str, seconds: float, *, accept: str = "*/*", **parameters: str) -> ApiAnswer:
        """Answer of the API server at a path, in any status.

        Raises:
            TooSlow: the whole answer is not there after `seconds`.
            Gone: there is none.
        """
        query = f"?{urlencode(parameters)}" if parameters else ""
        until = time.monotonic() + seconds
        connection = _UnixConnection(self._socket, seconds)
        try:
            connection.request("GET", path + query, headers={"Accept": accept})
            answer = connection.getresponse()
            return ApiAnswer(answer.status, _whole(answer, connection, until))
        except TimeoutError as error:
            raise TooSlow(f"no answer within {seconds:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise Gone(f"kubectl proxy does not answer: {one_line(error) or type(error).__name__}") from error
        finally:
            connection.close()

    def item(self, path: str, seconds: float, *, metadata_only: bool = False, **parameters: str) -> AnyObject:
        """An object of the API, or a list of objects, perhaps with nothing but their metadata.

        Raises:
            KubectlRefusal: the API server does not give it.
            Gone: there is no answer, or none that can be read.
        """
        accept = _METADATA if metadata_only else "application/json"
        try:
            answer = self.get(path, seconds, accept=accept, **parameters)
        except TooSlow as error:
            raise Gone(f"the API server gives {error} -> {CONTEXTS}") from error
        if answer.refusal is not None:
            raise answer.refusal
        try:
            content = json.loads(answer.body)
        except ValueError:
            content = None
        if answer.status != HTTPStatus.OK or not isinstance(content, dict):
            raise _no_server(one_line(answer.body[:400].decode("utf-8", "replace"), 200))
        return content

    def _is_listening(self) -> bool:
        """Wait until kubectl says that it listens, as it does once its socket is there. False: it has ended before.

        A script that starts kubectl may print words of its own first.
        """
        pipe = self._process.stdout
        until = time.monotonic() + _START_SECONDS
        while pipe is not None:
            ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
            if not ready or not os.read(pipe.fileno(), _PIECE_BYTES):
                return False
            if self._socket.exists():
                return True
        return False


def _no_server(words: str) -> Gone:
    """The error for what kubectl proxy says in plain text if it reaches no API server."""
    if _DEFAULT_REFUSES.search(words):
        return Gone(NO_SERVER_NAMED)
    if CREDENTIALS in words:
        return failure_of(words)
    return Gone(f"the API server does not answer: {words} -> {CONTEXTS}")


def _folder() -> Path:
    """A new folder that only this user may enter, whose name is short enough for a socket in it."""
    name = f"{tempfile.gettempdir()}/{_PREFIX}12345678/{_SOCKET}"
    is_short = len(os.fsencode(name)) <= _LONGEST_SOCKET_BYTES
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=None if is_short else "/tmp"))  # noqa: S108 - mkdtemp makes it safe


class _UnixConnection(http.client.HTTPConnection):
    """A connection to a Unix socket; kubectl takes requests for localhost alone."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _whole(answer: http.client.HTTPResponse, connection: http.client.HTTPConnection, until: float) -> bytes:
    """The whole body. Raises TimeoutError: it is not there at `until`. Gone: it is too large."""
    body = bytearray()
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if connection.sock is not None:
            connection.sock.settimeout(left)
        piece = answer.read1(_PIECE_BYTES)
        if not piece:
            return bytes(body)
        body += piece
        if len(body) > MOST_BYTES:
            raise Gone(f"it answers more than {MOST_BYTES} bytes")
