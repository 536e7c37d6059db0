"""An exporter that says what the test has written down: paths → JSON, in a thread of its own."""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tests.support.places import DATA

PATHS = {
    "node": {
        "/debug/mapping": "node-mapping",
        "/container/metrics": "node-metrics",
        "/processes": "node-processes",
    },
    "cluster": {"/debug/nodes": "cluster-nodes", "/container/metrics": "cluster-metrics"},
}


def fixed(name: str) -> Any:
    return json.loads((DATA / "top" / f"{name}.json").read_bytes())


def answers_of(role: str) -> dict[str, tuple[int, bytes]]:
    return {path: (200, json.dumps(fixed(name)).encode()) for path, name in PATHS[role].items()}


@dataclass
class FixedExporter:
    """`answers` may change while it runs; what is not in them is 404. `asked` are the headers of each request.

    With `drops` connections end without an answer.
    """

    url: str
    answers: dict[str, tuple[int, bytes]]
    asked: list[dict[str, str]] = field(default_factory=list)
    drops: bool = False

    def say(self, path: str, answer: object, status: int = 200) -> None:
        self.answers[path] = (status, json.dumps(answer).encode())


@contextmanager
def fixed_exporter(role: str, tls: ssl.SSLContext | None = None, port: int = 0) -> Iterator[FixedExporter]:
    exporter = FixedExporter("", answers_of(role))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if exporter.drops:
                return
            exporter.asked.append(dict(self.headers))
            status, body = exporter.answers.get(self.path, (404, b"nothing is here\n"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    exporter.url = f"{'https' if tls else 'http'}://localhost:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield exporter
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
