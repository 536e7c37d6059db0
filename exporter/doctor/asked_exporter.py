"""The exporter that runs here, asked over HTTP: whether it is one, and what it answers at its paths."""

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import ip_address

from exporter.bundle.collecting.looking import RECORDED, SHOWN_STATUS
from exporter.bundle.recording import Absence
from exporter.config.http_file import HttpConfig
from exporter.config.parsers import Address
from exporter.doctor.checkup import Checkup
from exporter.errors import Trouble
from exporter.lenient import AnyObject
from exporter.model.nothing import nothing
from exporter.outputs.diagnosis import fine, read_report
from exporter.top.transport import Gone, HttpTransport, OtherProtocol

_ANSWER_SECONDS = 20.0  # long, since an exporter asks its own sources before it answers
MAPPING = "/debug/mapping"
PAGE = "/gpu/metrics"
METRICS = "/metrics"
LOG = "/debug/log"
_LOOK_AT_IT = (
    "look at the exporter's log; kill -CONT goes on with a process that was stopped, and kill -QUIT ends one that hangs"
)

_ASKS = "asks for a password"
_ATTACH_ITS_LOG = "its settings and sources are in the bundle all the same; attach what `kubectl logs` says of its pod"


def is_elsewhere(host: str) -> bool:
    """Whether a name is certainly not this machine's. Then the sources here say nothing about the exporter there."""
    if host in ("", "localhost", socket.gethostname()):
        return False
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


def exporter_at(address: Address) -> tuple[HttpTransport, AnyObject, bytes]:
    """The exporter that listens at an address, its /debug/mapping as JSON, and the same as bytes.

    Raises:
        Gone: there is no exporter, or it asks for a password or a client certificate.
    """
    for exporter in HttpTransport.here(address, HttpConfig(), _ANSWER_SECONDS):
        try:
            status, body = exporter.get(MAPPING)
        except OtherProtocol:
            continue
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise Gone(f"the exporter at {exporter.url} {_ASKS} (--web.config.file)")
        try:
            mapping = json.loads(body) if status == HTTPStatus.OK else None
        except (ValueError, RecursionError):
            mapping = None
        if not isinstance(mapping, dict) or "doctor" not in mapping:
            raise Gone(f"what answers at {exporter.url} is not this exporter (HTTP status {status})")
        return exporter, mapping, body
    # TLS 1.3 closes the connection without a reason if the client has no certificate
    why = "it asks for a client certificate, or speaks neither HTTP nor TLS"
    raise Gone(f"what listens at {address} cannot be read: {why}")


def pages_of(exporter: HttpTransport) -> Mapping[str, bytes]:
    """The exporter's pages, by their names among the files of a checkup."""
    pages = {}
    for path, name in ((PAGE, "gpu-metrics.prom"), (METRICS, "metrics.prom")):
        try:
            pages[name] = exporter.get(path)[1]
        except Gone as error:  # the exporter is gone meanwhile, and the file says so in place of the page
            pages[name] = f"{path}: {error}\n".encode()
    return pages


def checkup_of(exporter: HttpTransport, mapping: AnyObject, body: bytes) -> Checkup:
    """The checkup by an exporter's own report. Raises KeyError, TypeError or ValueError: it is of another version."""
    report = read_report(mapping["doctor"])
    seen = Checkup(report=report, files={"mapping.json": body, **pages_of(exporter)}, where=exporter.url)
    asked = f"asked the exporter that runs here, {exporter.url} ({mapping.get('version')})"
    return seen.remarked(fine("doctor", asked))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAnswers:
    """What an exporter answers by path, the last lines of its log, and what it does not answer."""

    by_path: Mapping[str, bytes] = field(default_factory=nothing)
    log: tuple[str, ...] = ()
    absences: tuple[Absence, ...] = ()


def answers_of(exporter: HttpTransport) -> OwnAnswers:
    """Ask an exporter for every path that a recording keeps. If it stops answering, it is not asked for the rest."""
    answers: dict[str, bytes] = {}
    absences = []
    for path in (*(output.path for output in RECORDED), LOG):
        try:
            status, body = exporter.get(path)
        except Gone as error:
            why = Trouble("unreachable", str(error), _LOOK_AT_IT)
            absences.append(Absence(what=f"what the exporter answers at {path} and the paths after it", why=why))
            break
        if status in SHOWN_STATUS:
            answers[path] = body
    log = answers.pop(LOG, None)
    if log is None:
        why = Trouble("missing", f"the exporter does not answer {LOG}", "attach what `kubectl logs` says of its pod")
        absences.append(Absence(what="the exporter's log", why=why))
    lines = (log or b"").decode("utf-8", "replace").splitlines()
    return OwnAnswers(by_path=answers, log=tuple(lines), absences=tuple(absences))


def nothing_answers(why: str) -> Absence:
    """The absence of all answers of an exporter that could not be asked."""
    what = "the answers of the exporter that runs here, and its log"
    remedy = _ATTACH_ITS_LOG if _ASKS in why else _LOOK_AT_IT
    return Absence(what=what, why=Trouble("unreachable", why, remedy))
