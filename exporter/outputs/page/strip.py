"""A strip for each node, with a cell for each GPU, coloured by its state: a cluster at a glance.

Tests: tests/cluster/test_page.py.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby

from exporter.model.device_row import DeviceRow
from exporter.model.slices import Work
from exporter.model.states import IN_BAD_HEALTH, WORDS, DeviceState
from exporter.outputs.page.document import plain, text, visible
from exporter.outputs.page.tree import DeviceLine, matching, tree
from exporter.outputs.page.view import PageView

_ILL = f'<span><span class="cell used ill"></span> {IN_BAD_HEALTH}</span>'
_LEGEND = tuple(state for state in DeviceState if state is not DeviceState.CUT)


def strips(rows: Sequence[DeviceRow], nodes: Mapping[str, str]) -> Work[Sequence[str]]:
    """The strips in pieces of HTML. `rows` are the rows of all nodes; `nodes` has a text about each node, by name."""
    devices = yield from matching(rows, PageView())
    gpus = yield from tree(devices, rows)
    by_name = {name: [*lines] for name, lines in groupby(gpus, lambda line: line.row.node_name)}
    items = []
    for name, words in nodes.items():
        items.append(_strip(name, by_name.get(name, ()), words))
        yield
    legend = "".join(f'<span><span class="cell {state}"></span> {WORDS[state]}</span>' for state in _LEGEND)
    return (
        '<section id="strips" aria-label="The GPUs of each node">',
        f'<p class="legend" aria-hidden="true">{legend}{_ILL}</p>',
        '<ul tabindex="0" aria-label="Nodes">',
        *items,
        "</ul></section>",
    )


def _strip(name: str, gpus: Sequence[DeviceLine], words: str) -> str:
    """A node's item: its name, how many GPUs are in which state, and a cell for each."""
    label = title = words
    if gpus:
        label = _counts(gpus)
        title = f"{label}; {words}"
    address = PageView(node=name, fold="none").address()
    cells = "".join(_cell(line, address) for line in gpus)
    href = escape(PageView(node=name).address())
    return (
        f'<li data-key="{plain(name)}"><a href="{href}" title="{plain(title)}">{text(name)}</a>'
        f' <span class="seen">{plain(label)}</span>'
        f'<span class="cells" aria-hidden="true">{cells or "not known"}</span></li>'
    )


def _counts(gpus: Sequence[DeviceLine]) -> str:
    """The number of GPUs in each state, and of GPUs in bad health."""
    counts = Counter(line.state for line in gpus)
    words = [f"{counts[state]} {WORDS[state]}" for state in DeviceState if counts[state]]
    ill = sum(line.is_ill for line in gpus)
    if ill:
        words.append(f"{ill} {IN_BAD_HEALTH}")
    return ", ".join(words)


def _cell(line: DeviceLine, address: str) -> str:
    classes = f"{line.state} ill" if line.is_ill else line.state
    title = f"GPU {line.row.device_id}: {WORDS[line.state]}"
    pods = [row.pod_name for row in line.rows if row.pod]
    if len(pods) == 1:
        title += f", {pods[0]}"
    elif pods:
        title += f", {len(pods)} holders"
    href = escape(f"{address}#{visible(f'device-{line.key}')}")
    return f'<a tabindex="-1" class="cell {classes}" href="{href}" title="{plain(title)}"></a>'
