"""/: a page for people. Plain HTML without scripts; everything that came from elsewhere is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from exporter import __version__
from exporter.attribution.explain import Explainer
from exporter.model.pages import Subject
from exporter.model.snapshot import Health, Snapshot
from exporter.outputs.devices import explainer, seen_devices
from exporter.outputs.output import Answer, Look, Output, answer

_HTML = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>pod-gpu-metrics-exporter</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }}
table {{ border-collapse: collapse; }} td, th {{ padding: .2rem 1rem .2rem 0; text-align: left; vertical-align: top; }}
.down {{ color: #b00020; font-weight: bold; }} .up {{ color: #1b6e3c; font-weight: bold; }}
</style></head><body>
<h1>pod-gpu-metrics-exporter</h1>
<p>Version {version}{about}</p>
{tables}
</body></html>
"""
Rows = Iterable[Sequence[str]]


def document(about: str, tables: Sequence[str], outputs: Iterable[Output[Any]]) -> str:
    """A page: what it is about, tables, and links to the outputs. `about`, which follows the version, is no HTML."""
    links = ((f'<a href="{output.path}">{output.path}</a>', escape(output.says)) for output in outputs if output.says)
    return _HTML.format(
        version=escape(__version__), about=escape(about), tables="\n".join((*tables, table("Endpoints", (), links)))
    )


def table(title: str, heads: Sequence[str], rows: Rows) -> str:
    """A table with a title. The cells of its rows are HTML."""
    head = "<tr>" + "".join(f"<th>{each}</th>" for each in heads) + "</tr>" if heads else ""
    lines = ("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<h2>{title}</h2>\n<table>{head}\n" + "\n".join(lines) + "\n</table>"


def state(*, up: bool | None) -> str:
    """Up or down, as a cell."""
    word = "up" if up else "down"
    return f'<span class="{word}">{word}</span>'


def sources(health: Mapping[str, Health]) -> str:
    """The table of sources."""
    rows = ((escape(name), state(up=each.up), escape(str(each.trouble or ""))) for name, each in health.items())
    return table("Sources", ("source", "state", ""), rows)


def render(snapshot: Snapshot, outputs: Iterable[Output[Any]] = ()) -> str:
    """The page of this moment, with links to the outputs."""
    devices = seen_devices(snapshot)
    words = explainer(snapshot)
    gpus = {subject.uuid for subject in devices}
    held = gpus & {key.uuid for key in snapshot.owners.holders}
    seen = f"{len(gpus)} GPUs seen, {len(held)} held by pods." if snapshot.joined else "No GPU page."
    heads = ("GPU", "model", "UUID", "instance", "held by (namespace / pod / container)")
    rows = (_device_row(snapshot, subject, words) for subject in devices)
    return document(
        f" on node {snapshot.node}. {seen}", (sources(snapshot.health), table("GPUs", heads, rows)), outputs
    )


def _device_row(snapshot: Snapshot, subject: Subject, words: Explainer) -> Sequence[str]:
    owners = [
        f"{holder.owner.namespace} / {holder.owner.pod} / {holder.owner.container}"
        + (" (share)" if holder.shared else "")
        for holder in snapshot.owners.of(subject.key)
    ]
    instance = f"{subject.instance} ({subject.profile})" if subject.instance else ""
    cells = [escape(text) for text in (subject.index, subject.model, subject.uuid, instance)]
    return (*cells, "<br>".join(map(escape, owners)) or escape(f"({words.unowned(subject)})"))


def _make(look: Look) -> Answer:
    return answer("text/html; charset=utf-8", render(look.snapshot, look.outputs).encode())


OUTPUT = Output(path="/", says="", make=_make)
