"""A real Alertmanager with the shipped example of a configuration, and what it tells whom."""

import json
import subprocess
import threading
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support import quick_yaml
from tests.support.components import free_port, real
from tests.support.places import ROOT
from tests.support.waiting import PATIENCE_SECONDS, wait_until

SHIPPED = ROOT / "deploy" / "prometheus" / "alertmanager.yaml"


@dataclass
class Alertmanager:
    """A server at an address, and the notifications that it has sent: the receiver's name, and what it was told."""

    base: str
    log: Path
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def raise_alerts(self, alerts: Iterable[Mapping[str, str]]) -> None:
        """Give it alerts by their labels, as Prometheus does while they fire."""
        body = json.dumps([{"labels": labels} for labels in alerts]).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.base}/api/v2/alerts", body, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            assert answer.status == 200

    def is_ready(self) -> bool:
        """Whether it takes alerts."""
        try:
            with urllib.request.urlopen(f"{self.base}/-/ready", timeout=PATIENCE_SECONDS) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def settings(address: str, waits: str) -> dict[str, Any]:
    """The shipped example with our receiver in place of its own; `waits` is for what belongs together."""
    shipped: dict[str, Any] = quick_yaml.load(SHIPPED.read_text())
    for receiver in shipped["receivers"]:
        for hook in receiver.get("webhook_configs", ()):
            hook["url"] = f"{address}/{receiver['name']}"
    shipped["route"] |= {"group_wait": waits, "group_interval": waits}
    return shipped


def _program() -> list[str | Path]:
    """Debian's reads its own template from /usr/share: unpacked, it sees the package's there."""
    program = real("prometheus-alertmanager", "alertmanager")
    share = program.parents[1] / "share"
    if str(program).startswith("/usr/") or not (share / "prometheus" / "alertmanager").exists():
        return [program]
    to_it = 'mount --bind "$0" /usr/share && exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", to_it, share, program]


@contextmanager
def alertmanager(folder: Path, waits: str = "1s") -> Iterator[Alertmanager]:
    """A server; its log is `alertmanager.log` in the folder."""
    sent: list[tuple[str, dict[str, Any]]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            sent.append((self.path[1:], json.loads(self.rfile.read(size))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    # before anything runs beside the test: it may be skipped here
    program = _program()
    hook = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    config = folder / "alertmanager.yml"
    config.write_text(json.dumps(settings(f"http://127.0.0.1:{hook.server_address[1]}", waits)))
    port = free_port()
    log = folder / "alertmanager.log"
    thread = threading.Thread(target=hook.serve_forever, daemon=True)
    thread.start()
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                *program,
                f"--config.file={config}",
                f"--storage.path={folder}/alertmanager",
                f"--web.listen-address=127.0.0.1:{port}",
                "--cluster.listen-address=",
            ],
            stdout=output,
            stderr=output,
        )
    server = Alertmanager(f"http://127.0.0.1:{port}", log, sent)
    try:
        wait_until(server.is_ready, why=log.read_text)
        yield server
    finally:
        process.terminate()
        process.wait(20)
        hook.shutdown()
        hook.server_close()
        thread.join()
