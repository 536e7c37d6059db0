"""/gpu/metrics: the joined page, ended by the slim part of the exporter's own families.

Tests: tests/web/test_endpoints.py.
"""

from collections.abc import Sequence

from exporter.model.snapshot import Snapshot
from exporter.outputs.complaints import why_not
from exporter.outputs.families.slim import slim
from exporter.outputs.output import TEXT_FORMAT, Answer, Look, Output, Question, line


def render(snapshot: Snapshot) -> tuple[Sequence[bytes], int] | None:
    """The page in pieces (see `JoinedPage`) and its size in bytes; None if every GPU source failed."""
    if snapshot.joined is None:
        return None
    end = slim(snapshot)
    return (*snapshot.joined.pieces, end), snapshot.joined.size + len(end)


def _refuse(question: Question) -> Answer | None:
    return line("this exporter is its own upstream: look at --dcgm.url", 508) if question.is_own else None


def _make(look: Look) -> Answer:
    page = render(look.snapshot)
    return line(why_not(look.snapshot), 503) if page is None else Answer(TEXT_FORMAT, *page)


OUTPUT = Output(path="/gpu/metrics", says="GPU metrics with pod, namespace and container", make=_make, refuse=_refuse)
