"""/: a page for people. Plain HTML without scripts; everything that came from elsewhere is escaped."""

from collections.abc import Iterable
from html import escape
from typing import Any

from exporter import __version__
from exporter.attribution.explain import Explainer
from exporter.model.pages import Subject
from exporter.model.snapshot import Snapshot
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
<p>Version {version} on node {node}. {devices}</p>
<h2>Sources</h2>
<table><tr><th>source</th><th>state</th><th></th></tr>
{sources}
</table>
<h2>GPUs</h2>
<table><tr><th>GPU</th><th>model</th><th>UUID</th><th>instance</th><th>held by (namespace / pod / container)</th></tr>
{gpus}
</table>
<h2>Endpoints</h2>
<table>
{links}
</table>
</body></html>
"""


def render(snapshot: Snapshot, outputs: Iterable[Output[Any]] = ()) -> str:
    """The page of this moment, with links to the outputs."""
    devices = seen_devices(snapshot)
    words = explainer(snapshot)
    gpus = {subject.uuid for subject in devices}
    held = gpus & {key.uuid for key in snapshot.owners.holders}
    return _HTML.format(
        version=escape(__version__),
        node=escape(snapshot.node),
        devices=f"{len(gpus)} GPUs seen, {len(held)} held by pods." if snapshot.joined else "No GPU page.",
        sources="\n".join(
            f'<tr><td>{escape(name)}</td><td class="{"up" if state.up else "down"}">{"up" if state.up else "down"}</td>'
            f"<td>{escape(str(state.trouble or ''))}</td></tr>"
            for name, state in snapshot.health.items()
        ),
        gpus="\n".join(_device_row(snapshot, subject, words) for subject in devices),
        links="\n".join(
            f'<tr><td><a href="{output.path}">{output.path}</a></td><td>{escape(output.says)}</td></tr>'
            for output in outputs
            if output.says
        ),
    )


def _device_row(snapshot: Snapshot, subject: Subject, words: Explainer) -> str:
    owners = [
        f"{holder.owner.namespace} / {holder.owner.pod} / {holder.owner.container}"
        + (" (share)" if holder.shared else "")
        for holder in snapshot.owners.of(subject.key)
    ]
    instance = f"{subject.instance} ({subject.profile})" if subject.instance else ""
    cells = [escape(text) for text in (subject.index, subject.model, subject.uuid, instance)]
    cells.append("<br>".join(map(escape, owners)) or escape(f"({words.unowned(subject)})"))
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _make(look: Look) -> Answer:
    return answer("text/html; charset=utf-8", render(look.snapshot, look.outputs).encode())


OUTPUT = Output(path="/", says="", make=_make)
