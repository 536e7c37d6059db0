"""The page's table of GPUs and MIG instances: a line for each device.

Only this module turns a device into HTML: page.js asks for the page again and takes over what has changed.

Tests: tests/outputs/test_page.py.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from math import floor
from typing import Final, NamedTuple

from exporter.dividing.figures import gigabytes_over_nvlink, is_older
from exporter.model.device_row import DeviceRow
from exporter.model.hangs import SUSPECTED
from exporter.model.name_order import as_people_count
from exporter.model.slices import Work
from exporter.model.states import WORDS, DeviceState, counts_of, rounded
from exporter.outputs.page.document import link, plain, text
from exporter.outputs.page.tree import DeviceLine, Rank, matching, shown
from exporter.outputs.page.view import FOLDS, MOST_LINES, PageView
from exporter.wording import counted

_MIB_PER_GIB = 1024
_ROWS_A_SLICE = 100
SHARED = (
    " The line of a shared GPU has the whole GPU's figures. Each holder's line below has its own, if they are measured."
)
UNKNOWN: Final = '<span class="none">unknown</span>'
# The mark of rows whose values were read before the device changed hands, or before its holder changed its activity.
BEFORE: Final = ' <span class="badge before">before</span>'
_POWER = 2
_TEMPERATURE = 3
_OF_GPU = frozenset({_POWER, _TEMPERATURE})
_ORDERS = (("-", "▾"), ("", "▴"))  # the highest first, and the lowest
_CELL = '<span class="cell {}" aria-hidden="true"></span>'
_COUNT = '<span class="count" title="{1} {2}">{0} {1}<span class="seen"> {2}</span></span> '
_SPARK = (
    '<svg class="spark" data-metric="{number}" data-full="{full:g}" viewBox="0 0 100 20" preserveAspectRatio="none"'
    ' aria-hidden="true"><path/></svg>'
)


class DeviceColumn(NamedTuple):
    """A column: its name in addresses, its title, a line's cell (HTML), and the value that lines are sorted by."""

    name: str
    title: str
    cell: Callable[[DeviceLine, PageView], str]
    rank: Rank


def devices_table(rows: Sequence[DeviceRow], view: PageView, *, with_node: bool) -> Work[tuple[Sequence[str], str]]:
    """The table in pieces of HTML, and its fold: a key of FOLDS. `rows` are the rows of all devices, in their order."""
    devices = yield from matching(rows, view)
    yield
    ranks = {column.name: column.rank for column in COLUMNS}
    rank = ranks.get(view.sort.removeprefix("-"))
    lines, fold = yield from shown(devices, rows, view, rank, with_node=with_node)
    yield
    columns = COLUMNS if with_node else COLUMNS[1:]
    head = "".join(_head(column, view) for column in columns)
    texts = []
    rows_of_slice = 0
    for line in lines[: view.lines]:
        texts.append(_line(line, columns, view))
        # a node's line costs as much as all its rows
        rows_of_slice += len(line.rows)
        if rows_of_slice >= _ROWS_A_SLICE:
            rows_of_slice = 0
            yield
    nothing = "" if devices else _nothing(rows, view)
    table = (
        f'<table id="devices" role="table"><caption>{_caption(rows, devices)}</caption>',
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead><tbody role="rowgroup">',
        *texts,
        f"</tbody></table>{nothing}{_more(len(lines) - view.lines, view)}",
    )
    return table, fold


def _caption(rows: Sequence[DeviceRow], devices: Sequence[Sequence[DeviceRow]]) -> str:
    count = sum(device_rows[0].entity != "mig-parent" for device_rows in devices)
    of_all = len({row.row_device for row in rows if row.entity != "mig-parent"})
    note = SHARED if any(row.gpu_shared for row in rows) else ""
    matches = f"{count} of {of_all} GPUs and instances match"
    return f'GPUs and MIG instances, and who holds them: <span id="matches">{matches}</span>.{escape(note)}'


def _nothing(rows: Sequence[DeviceRow], view: PageView) -> str:
    """The reason why the table is empty, and a link that shows all devices."""
    if not rows:
        return "" if view.pod else '<p id="nothing">No GPU is known.</p>'
    asked = [f"“{view.filter}”"] if view.filter else []
    if view.show in _SHOWN:
        asked.append(_SHOWN[view.show])
    back = link(view.address(filter="", show=""), "Show all")
    return f'<p id="nothing">No GPU or MIG instance matches {text(" and ".join(asked))}. {back}</p>'


def _more(rest: int, view: PageView) -> str:
    if rest <= 0:
        return ""
    href = escape(view.address(lines=view.lines + MOST_LINES))
    return f'<p><a id="more" href="{href}">Show more ({rest} lines are not shown)</a></p>'


def _head(column: DeviceColumn, view: PageView) -> str:
    order = {column.name: "ascending", f"-{column.name}": "descending"}.get(view.sort, "none")
    title = link(view.sorted_by(column.name), column.title)
    return f'<th scope="col" role="columnheader" aria-sort="{order}" class="{column.name}">{title}</th>'


def _line(line: DeviceLine, columns: Sequence[DeviceColumn], view: PageView) -> str:
    """The HTML of a row. The page's script finds a row by `data-key`, and draws `data-now` as its history."""
    classes = f"{line.kind} {line.state}"
    if line.depth:
        classes += f" d{line.depth}"
    classes += _age(line)
    marks = ""
    if line.key and line.kind != "node":
        marks = f' id="{plain(f"device-{line.key}")}"'
    cells = "".join(_cell(line, column, view) for column in columns)
    values = (column.rank(line) for column in _MEASURED)
    history = ",".join("" if value is None else f"{value:g}" for value in values)
    return f'<tr role="row" class="{classes}"{marks} data-key="{_key(line)}" data-now="{history}">{cells}</tr>'


def _key(line: DeviceLine) -> str:
    """The key that distinguishes a line from all others of the table."""
    row = line.row
    node, uuid, instance = row.row_device
    if line.kind == "node":
        uuid = ""
    owner = f"{row.pod_name}/{row.container}" if line.kind == "owner" or not line.below else ""
    return plain(f"{line.kind} {node} {uuid} {instance} {owner}")


def _cell(line: DeviceLine, column: DeviceColumn, view: PageView) -> str:
    content = column.cell(line, view)
    if column.name == ("node" if line.kind == "node" else "gpu"):
        return f'<th scope="row" role="rowheader" class="{column.name}">{content}</th>'
    return f'<td role="cell" class="{column.name}" data-label="{column.title}">{content}</td>'


def _fold(line: DeviceLine, view: PageView, name: str) -> str:
    """The link that folds or unfolds a line."""
    if line.is_open is None:
        return ""
    sign, verb, is_open = ("▾", "Fold", "true") if line.is_open else ("▸", "Unfold", "false")
    href = escape(view.toggled(line.key))
    label = plain(f"{verb} {name}")
    return f'<a class="fold" href="{href}" aria-expanded="{is_open}" aria-label="{label}">{sign}</a> '


def _node(line: DeviceLine, view: PageView) -> str:
    name = line.row.node_name
    node = link(PageView(node=name).address(), text(name))
    return f"{_fold(line, view, name)}{node}" if line.kind == "node" else node


def _device_name(line: DeviceLine) -> str:
    """A GPU's number, or a MIG instance's number below its GPU."""
    row = line.row
    number = row.device_id or row.device
    name = f"GPU {number}" if number else "GPU"
    if row.entity != "mig":
        return name
    if not row.mig_instance_id:
        return "MIG"
    instance = f"MIG {row.mig_instance_id}"
    return instance if line.kind == "instance" else f"{name} / {instance}"


def _name(line: DeviceLine, view: PageView) -> str:
    """The device's name, with the facts about it folded below."""
    row = line.row
    if line.kind == "node":
        return counted(len(line.below), "GPU")
    if line.kind == "owner":
        return f'<span class="branch">└ {text(row.container)}</span>'
    what = _device_name(line)
    facts = {
        "Model": row.model_name,
        "UUID": row.device_uuid,
        "Profile": row.mig_profile,
        "Granted": f"{row.granted}, by {row.allocator}" if row.granted and not line.below else "",
        "Container": row.container,
        "Workload": f"{row.workload_kind} {row.workload_name}".strip(),
        "NVLink": "" if line.kind == "owner" else _over_nvlink(line.rows),
        "State": row.state_reason,
        "Health": row.health_message,
        "Suspected hang": row.suspected_hang_message,
        "Others": line.rows[0].users_in_words or row.users_in_words,
    }
    items = "".join(f"<div><dt>{title}</dt><dd>{text(fact)}</dd></div>" for title, fact in facts.items() if fact)
    profile = f' <span class="badge">{text(row.mig_profile)}</span>' if row.mig_profile else ""
    return (
        f'{_fold(line, view, what)}<details class="facts"><summary><span class="name">{text(what)}</span></summary>'
        f"<dl>{items}</dl></details>{profile}"
    )


def _over_nvlink(rows: Sequence[DeviceRow]) -> str:
    """What a GPU sends and receives over NVLink; "" if nothing goes over it, or nobody measures that."""
    gigabytes = gigabytes_over_nvlink(rows)
    return f"{gigabytes:.0f} GB/s sent and received" if gigabytes else ""


def _state(line: DeviceLine, _: PageView) -> str:
    if line.kind == "node" or line.is_cut:
        if not line.below:
            return WORDS[DeviceState.CUT]
        return _states_below(line)
    state = line.state
    cell = _CELL.format(state)
    age = BEFORE if _is_before(line) or _is_older(line) else ""
    if line.row.suspected_hang:
        age += f' <span class="badge others" title="{escape(line.row.suspected_hang_message)}">{SUSPECTED}</span>'
    if state is DeviceState.IDLE:
        words = ", ".join(filter(None, (WORDS[state], rounded(line.row.idle_seconds))))
        return f'{cell} <span class="idle">{words}</span>{age}'
    return f"{cell} {WORDS[state]}{age}"


def _states_below(line: DeviceLine) -> str:
    """How many of the devices below a line are in each state."""
    counts = Counter(below.state for below in line.below)
    states = (state for state in DeviceState if counts[state])
    return "".join(_COUNT.format(_CELL.format(state), counts[state], WORDS[state]) for state in states)


def _age(line: DeviceLine) -> str:
    """The class of a line whose values are older than its state: " before" if all are, " older" if all but utilisation.

    "" for any other line.
    """
    if _is_before(line):
        return " before"
    if not _is_older(line):
        return ""
    # a single holder's utilisation is NVML's measurement; with several holders it comes from the page, as the rest does
    return " before" if len(line.rows) > 1 else " older"


def _is_before(line: DeviceLine) -> bool:
    return line.kind != "node" and line.row.is_before


def _is_older(line: DeviceLine) -> bool:
    return line.kind != "node" and not line.parts and is_older(line.rows)


def _holder(line: DeviceLine, view: PageView) -> str:
    """The pod that holds the device, with its part of it, or the number of holders; and whether others use it, too."""
    row = line.row
    words = ""
    if line.kind == "node":
        pods = {held.pod_name for held in line.rows if held.pod}
        return counted(len(pods), "pod")
    if line.below:
        words = _holders_below(line)
    elif row.pod:
        href = escape(view.address(pod=row.pod_name, lines=MOST_LINES))
        words = f'<a class="pod" href="{href}">{text(row.namespace)}/<strong>{text(row.pod)}</strong></a>'
        words += f" <small>{text(row.granted)}</small>" if row.granted else ""
    elif row.gpu_shared:
        words = "several owners; --sharing device names none"
    if line.kind != "owner" and row.users_in_words:
        words += ' <span class="badge others">used by others, too</span>'
    return words


def _holders_below(line: DeviceLine) -> str:
    """How many share the device, or how many MIG instances it has, and how many of them are shown."""
    count = len(line.below)
    if line.below[0].kind == "owner":
        return f"shared by {count}"
    instances = counted(line.parts or count, "MIG instance")
    return f"{count} of {instances}" if count < line.parts else instances


def _workload(line: DeviceLine, _: PageView) -> str:
    row = line.row
    if not row.workload_name:
        return ""
    return f"{text(row.workload_name)} <small>{text(row.workload_kind)}</small>"


def _memory(line: DeviceLine, _: PageView) -> str:
    total = line.figures.memory_total_mib
    unit = f"/{_gib(total)} GiB" if total else " GiB"
    return _metric(line, 1, line.figures.memory_used_mib, unit, total)


def _temperature(line: DeviceLine, _: PageView) -> str:
    """The temperature, and the speed of the GPU's own fan if it has one."""
    cell = _metric(line, _TEMPERATURE, _degrees(line), " °C", 0)
    fan = line.row.fan_speed
    if fan is None or line.kind in ("node", "owner") or _degrees(line) is None:
        return cell
    return f"{cell} <small>fan {_amount(fan, ' %')}</small>"


def _degrees(line: DeviceLine) -> float | None:
    return line.figures.temperature_celsius


def _health(line: DeviceLine, _: PageView) -> str:
    """The device's health with its reason, remedy and last XID. A node's cell counts its ill devices by health."""
    if line.kind == "owner":
        return ""
    if line.kind == "node":
        counts = Counter(below.worst.health for below in line.below if below.is_ill)
        return "".join(f'<span class="ill">{count} {text(health)}</span> ' for health, count in counts.items())
    row = line.worst
    summary = text(row.health)
    if row.is_xid_why:
        summary = f'{text(f"{row.health}:")} <span class="xid">XID {row.last_xid}</span>'
    words = summary
    if row.health_reasons or line.is_ill:
        why = text("; ".join(row.health_reasons))
        words = f'<details class="health"><summary>{summary}</summary><p>{why}</p></details>'
    if row.last_xid and not row.is_xid_why:
        words += f' <small class="xid">last XID {row.last_xid}</small>'
    return words


def _measured(name: str, title: str, number: int, value: Rank, unit: str, full: float = 0) -> DeviceColumn:
    return DeviceColumn(name, title, lambda line, _: _metric(line, number, value(line), unit, full), value)


# The columns with a drawn line, in the order of the numbers in page.js.
_MEASURED: Final = (
    _measured("utilisation", "Utilisation", 0, lambda line: line.figures.utilization_percent, " %", 100),
    DeviceColumn("memory", "Memory", _memory, lambda line: line.figures.memory_used_mib),
    _measured("power", "Power", _POWER, lambda line: line.figures.power_watts, " W"),
    DeviceColumn("temperature", "Temp.", _temperature, _degrees),
)
COLUMNS: Final = (
    DeviceColumn("node", "Node", _node, lambda line: as_people_count(line.row.node_name)),
    DeviceColumn("gpu", "GPU", _name, lambda line: line.row.model_name),
    DeviceColumn("state", "State", _state, lambda line: [*DeviceState].index(line.state)),
    DeviceColumn("pod", "Held by", _holder, lambda line: line.row.pod_name if line.row.pod else None),
    DeviceColumn("workload", "Workload", _workload, lambda line: line.row.workload_name or None),
    *_MEASURED,
    DeviceColumn("health", "Health", _health, lambda line: line.illness),
)


def tools(view: PageView, fold: str, *, with_node: bool) -> str:
    """A form for filter, state, order and folding, which works without a script."""
    states = {"": "all", **_SHOWN}
    folds = {name: title for name, title in FOLDS.items() if with_node or name != "node"}
    folds[""] = f"automatic ({FOLDS[fold]})"
    ends = {"": "position"}
    for column in COLUMNS if with_node else COLUMNS[1:]:
        for sign, arrow in _ORDERS:
            ends[f"{sign}{column.name}"] = f"{column.title} {arrow}"
    hidden = [("node", view.node), ("pod", view.pod), *(("but", key) for key in view.but)]
    return (
        '<form id="tools" method="get"><label>Filter <input id="filter" name="filter" type="search" autocomplete="off"'
        f' spellcheck="false" placeholder="pod, model …" value="{escape(view.filter)}"></label>'
        + _select("show", "Show", states, view.show)
        + _select("sort", "Sort", ends, view.sort)
        + _select("fold", "Fold", folds, view.fold)
        + "".join(f'<input type="hidden" name="{name}" value="{escape(value)}">' for name, value in hidden if value)
        + '<button id="apply">Apply</button><button id="pause" type="button" hidden>Pause updates</button>'
        '<span id="updated"></span><span id="status" role="status"></span></form>'
    )


def _select(name: str, label: str, options: Mapping[str, str], chosen: str) -> str:
    items = ""
    for value, title in options.items():
        mark = " selected" if value == chosen else ""
        items += f'<option value="{value}"{mark}>{title}</option>'
    return f'<label class="by-{name}">{label} <select id="{name}" name="{name}">{items}</select></label>'


def _metric(line: DeviceLine, number: int, value: float | None, unit: str, full: float | None) -> str:
    """A number, its bar, and the place of a line that page.js draws. Bar and line repeat the number for the eye."""
    if value is None:
        # a MIG GPU's values stand on its instances' lines, the power of an instance or a holder on the GPU's line
        is_elsewhere = line.below or line.row.entity == "mig-parent"
        is_of_gpu = number in _OF_GPU and (line.kind == "owner" or line.row.entity == "mig")
        return "" if is_elsewhere or is_of_gpu else UNKNOWN
    bar = ""
    if full:
        bar = f'<meter aria-hidden="true" max="{full:g}" value="{min(value, full):g}"></meter>'
    return f'<span class="value">{_amount(value, unit)}</span>{bar}{_SPARK.format(number=number, full=full or 0)}'


def _amount(value: float, unit: str) -> str:
    """A number with its unit. The value of memory is in MiB, its text in GiB."""
    number = _gib(value) if "GiB" in unit else floor(value + 0.5)
    return f"{number}{unit}"


def _gib(mib: float) -> str:
    gib = mib / _MIB_PER_GIB
    if gib >= _MIB_PER_GIB / 10:
        return f"{floor(gib + 0.5)}"
    return f"{floor(gib * 10 + 0.5) / 10:.1f}"


# The titles of states. Each is a link to the devices in that state.
_SHOWN = {name: "held" if name == "held" else WORDS[DeviceState(name)] for name in counts_of(())}
TITLES = {"gpus": "GPUs", "instances": "MIG instances", **_SHOWN}


def summary(figures: Mapping[str, int], view: PageView) -> str:
    """The figures. A state's title is a link to the devices in that state."""
    items = []
    for name, title in TITLES.items():
        term = title
        if name in _SHOWN:
            cell = _CELL.format("used" if name == "held" else name)
            term = f"{cell} {link(view.address(show=name), title)}"
        items.append(f'<div><dt>{term}</dt><dd id="figure-{name}">{figures[name]}</dd></div>')
    return f'<dl id="figures">{"".join(items)}</dl>'
