"""/: a page for people: the nodes, and who holds which GPU on each. `?node=` has the GPUs of one node alone."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import islice
from urllib.parse import quote

from exporter.cluster.outputs.look import ClusterLook, answered, which_are_missing
from exporter.dcgm.fields import METRICS
from exporter.model.cluster import NodeView
from exporter.model.slices import Work
from exporter.outputs.output import Answer, Output
from exporter.outputs.page.devices import Figures, Object, devices_table, summary
from exporter.outputs.page.document import MORE, TOOLS, PageColumn, alert, document, sources, state, table, text
from exporter.outputs.page.events import MOST_SHOWN, events_section

# Without its script the page shows so many objects; /container/metrics has all, and ?node= those of a node.
MOST_ROWS = 200
# So many nodes are shown at once; of more, only the heading.
MOST_OPEN_NODES = 12
_COLUMNS = (
    PageColumn(title="Node", is_header=True),
    *(
        PageColumn(title=title)
        for title in ("State", "Last answer", "GPUs", "Held", "Held but idle", "Unknown", "What is wrong")
    ),
)
# An exporter of another version may leave a field out: then it is not known.
_UNKNOWN: Object = {
    **dict.fromkeys(METRICS),
    **dict.fromkeys(("model_name", "device", "device_id", "device_uuid", "namespace", "pod", "container"), ""),
    "entity": "gpu",
    "gpu_shared": False,
}


def render(look: ClusterLook) -> Work[Answer]:
    """The page of this moment."""
    view, one = look.view, dict(look.question.query).get("node", "")
    good = answered(view)
    held = [(node, each) for node in good if one in ("", node.name) for each in node.devices]
    figures: dict[str, Figures] = {}
    for node in good:
        objects = (((node.name, each.uuid, each.instance), each.entity, each.state) for each in node.devices)
        figures[node.name] = Figures.of_states(objects)
        yield
    shown = [{**_UNKNOWN, **json.loads(each.text), "node_name": node.name} for node, each in islice(held, MOST_ROWS)]
    note = f" (the first {MOST_ROWS} of {len(held)}; each node above has its own)" if len(shown) < len(held) else ""
    of_nodes = None if view.events is None else [each.text for each in view.events if one in ("", each.node)]
    events = None if of_nodes is None else [json.loads(each) for each in of_nodes[:MOST_SHOWN]]
    sections = (
        alert(_trouble(look, one)),
        summary(figures.get(one, Figures()) if one else Figures.sum(figures.values())),
        _nodes(view.nodes, figures),
        events_section(events, with_node=True),
        sources(look.health),
        TOOLS,
        *(yield from devices_table(shown, with_node=True, note=note)),
        MORE,
    )
    about = f"{len(view.nodes)} nodes: {len(good)} have answered, {len(view.missing)} are missing."
    data = {"health": "debug/nodes", "node": one, "events": "" if events is None else "events"}
    title = f"GPUs of {one}" if one else "GPUs of the cluster"
    return document(title, about, sections, data, look.outputs)


def _trouble(look: ClusterLook, one: str) -> str:
    view = look.view
    if view.trouble:
        return f"It is not known which nodes there are: {view.trouble}"
    if one and one not in view.nodes:
        return f"No node {one} is known."
    return f"Nodes are missing, and their GPUs with them: {which_are_missing(view)}" if view.missing else ""


def _nodes(nodes: Mapping[str, NodeView], figures: Mapping[str, Figures]) -> str:
    """The nodes: open where they are few, or some are missing."""
    missing = sum(node.is_missing for node in nodes.values())
    opened = " open" if missing or len(nodes) <= MOST_OPEN_NODES else ""
    rows = (_node(node, figures.get(node.name)) for node in nodes.values())
    return (
        f'<details id="nodes"{opened}><summary><h2>Nodes</h2>'
        f' <span id="nodes-up">{len(nodes) - missing} of {len(nodes)} answer</span></summary>\n'
        + table("nodes-table", "The nodes whose exporters are known, and what each said last", _COLUMNS, rows)
        + "</details>"
    )


def _node(node: NodeView, figures: Figures | None) -> Sequence[str]:
    at = node.answered_at_seconds
    counts = (figures.gpus, figures.held, figures.idle, figures.unknown) if figures else ("",) * 4
    return (
        f'<a href="?node={escape(quote(node.name, safe="", errors="replace"))}">{text(node.name)}</a>',
        state(up=not node.is_missing),
        f"{datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC" if at is not None else "none",
        *map(str, counts),
        text(node.trouble),
    )


OUTPUT = Output(path="/", says="", make=render)
