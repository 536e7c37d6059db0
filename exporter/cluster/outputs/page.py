"""/: a page for people with all nodes, their GPUs and the holders. With `?node=` it has the GPUs of that node alone."""

import json
from datetime import UTC, datetime

from exporter.cluster.outputs.look import ClusterLook, answered, which_are_missing, why_nothing
from exporter.model.cluster_view import NodeView
from exporter.model.slices import Work
from exporter.outputs.output import Answer, Output
from exporter.outputs.page.device_table import devices_table, summary, tools
from exporter.outputs.page.document import alert, document, sources
from exporter.outputs.page.event_list import MOST_SHOWN, events_section
from exporter.outputs.page.pod import of_pod, pod_accounts, pod_section
from exporter.outputs.page.strip import strips
from exporter.outputs.page.tree import figures_of
from exporter.outputs.page.view import PageView


def render(look: ClusterLook) -> Work[Answer]:
    """The page, made of a look."""
    view = look.view
    asked = PageView.of(look.question.query)
    one = asked.node
    rows = [held.row for node in answered(view) for held in node.devices]
    yield
    mine = [row for row in rows if one in ("", row.node_name)]
    figures = yield from figures_of(mine)
    yield
    of_nodes = None if view.events is None else [event.text for event in view.events if one in ("", event.node)]
    events = None if of_nodes is None else [json.loads(of_node) for of_node in of_nodes[:MOST_SHOWN]]
    listed = of_pod(mine, asked.pod) if asked.pod else mine
    table, fold = yield from devices_table(listed, asked, with_node=True)
    picture = yield from strips(rows, {node.name: _last_answer(node) for node in view.nodes.values()})
    sections = (
        alert(_trouble(look, one), look.health),
        *(() if asked.pod else (summary(figures, asked), *picture)),
        *((pod_section(listed, asked),) if asked.pod else ()),
        tools(asked, fold, with_node=True),
        *table,
        pod_accounts(asked.pod, None) if asked.pod else "",
        events_section(events, mine, with_node=True),
        sources(look.health),
    )
    about = f"{len(view.nodes)} nodes: {len(answered(view))} have answered, {len(view.missing)} are missing."
    title = f"Pod {asked.pod}" if asked.pod else f"GPUs of {one}" if one else "GPUs of the cluster"
    return document(title, about, sections, look.outputs, is_stale=bool(why_nothing(view)))


def _trouble(look: ClusterLook, one: str) -> str:
    view = look.view
    if view.trouble:
        return f"It is not known which nodes there are: {view.trouble}"
    if one and one not in view.nodes:
        return f"No node {one} is known."
    return f"Nodes are missing, and their GPUs with them: {which_are_missing(view)}" if view.missing else ""


def _last_answer(node: NodeView) -> str:
    at = node.answered_at_seconds
    when = f"last answer {datetime.fromtimestamp(at, UTC):%H:%M:%S} UTC" if at is not None else "has not answered yet"
    return f"missing, {when}" if node.is_missing else when


OUTPUT = Output(path="/", says="", make=render)
