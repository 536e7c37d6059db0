"""The page for people as HTML: what it says of objects, sources and files. tests/browser/ opens it in a browser."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import Trouble
from exporter.model.device_row import DeviceRow, RowDevice, from_object
from exporter.model.slices import at_once
from exporter.model.snapshot import Health
from exporter.model.states import DeviceState
from exporter.outputs.output import NO_QUESTION, Look, Output
from exporter.outputs.page import document
from exporter.outputs.page.device_table import devices_table
from exporter.outputs.page.document import alert, sources, text, visible
from exporter.outputs.page.node_page import render
from exporter.outputs.page.tree import figures_of
from exporter.outputs.page.view import PageView
from tests.support.answers import answer_of
from tests.support.exporter import Start
from tests.support.looks import Looks, row, whole
from tests.support.places import ROOT

NAMES = {
    "node_name": "n",
    "model_name": "H100",
    "device": "nvidia0",
    "device_id": "0",
    "device_uuid": "GPU-0",
}
HELD = {"pod": "p", "container": "c", "namespace": "ns"}


def object_of(**fields: Any) -> DeviceRow:
    """The row that an exporter of any version wrote so."""
    return from_object({**NAMES, **fields})


def table(rows: Sequence[DeviceRow], *, with_node: bool = False, **asked: Any) -> str:
    return "\n".join(at_once(devices_table(rows, PageView(fold="none", **asked), with_node=with_node))[0])


def words_of(html: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())


def cells(*rows: DeviceRow, **asked: Any) -> list[dict[str, str]]:
    """The texts of the table's lines, by column."""
    return [
        {name: words_of(cell) for name, cell in re.findall(r'<t[dh] [^>]*class="(\w+)"[^>]*>(.*?)</t[dh]>', line)}
        for line in re.findall(r"<tr.*?</tr>", table(rows, **asked), re.DOTALL)[1:]
    ]


def bars(*rows: DeviceRow) -> list[tuple[str, str]]:
    return re.findall(r'<meter aria-hidden="true" max="([^"]*)" value="([^"]*)">', table(rows))


@pytest.mark.parametrize(
    ("fields", "state", "holder", "use"),
    [
        pytest.param({}, "free", "", "unknown", id="nothing is known of it"),
        pytest.param({"gpu_utilization": 0}, "free", "", "0 %", id="free"),
        pytest.param({"gpu_utilization": 5}, "used outside Kubernetes", "", "5 %", id="busy without a pod"),
        pytest.param({**HELD, "gpu_utilization": 5}, "used", "ns / p", "5 %", id="used"),
        pytest.param({**HELD, "gpu_utilization": 4.9}, "held but idle", "ns / p", "5 %", id="held but idle"),
        pytest.param(
            {
                **HELD,
                "gpu_utilization": 0,
                "idle_since": "2026-11-01T10:00:00.000Z",
                "timestamp": "2026-11-01T13:59:00.000Z",
            },
            "held but idle, 3 h",
            "ns / p",
            "0 %",
            id="held but idle for long",
        ),
        pytest.param({**HELD, "graphics_engine_active": 0.498}, "used", "ns / p", "50 %", id="by the engine"),
        pytest.param({**HELD, "graphics_engine_active": 0}, "held but idle", "ns / p", "0 %", id="engine idle"),
        pytest.param({**HELD}, "use unknown", "ns / p", "unknown", id="held, and it is not known what it does"),
        pytest.param(
            {"gpu_shared": True, "gpu_utilization": 0},
            "held but idle",
            "several owners; --sharing device names none",
            "0 %",
            id="shared, owners not named",
        ),
        pytest.param({"entity": "mig-parent"}, "cut into instances", "", "", id="cut"),
    ],
)
def test_who_holds_a_device(fields: dict[str, Any], state: str, holder: str, use: str) -> None:
    (line,) = cells(object_of(**fields))
    assert (line["state"], line["pod"], line["utilisation"]) == (state, holder, use)


def test_the_workload_stands_beside_its_kind() -> None:
    (line,) = cells(object_of(**HELD, workload_name="w", workload_kind="Job"))
    assert line["workload"] == "w Job"
    # issue 22, line 11: a narrow window has no room for the column
    assert line["gpu"].endswith("Workload Job w")


def user(**fields: Any) -> Mapping[str, Any]:
    return {"namespace": "ml", "pod": "x", "container": "c", **fields}


# issue 18, line 4
@pytest.mark.parametrize(
    ("users", "words"),
    [
        ([user()], "used by ml/x, which does not hold it"),
        ([user(), user(container="d"), user(pod="y")], "used by ml/x and ml/y, which do not hold it"),
        ([user(pod=pod) for pod in "abc"], "used by ml/a and ml/b and ml/c, which do not hold it"),
        ([user(pod=pod) for pod in "abcd"], "used by ml/a and ml/b and 2 others, which do not hold it"),
        ([{"engine": "docker", "id": "0123456789abcdef"}], "used by docker 0123456789ab, which does not hold it"),
        ([{"command": "./miner -x" + "y" * 99, "pid": 7}], f"used by ./miner -x{'y' * 50}, which does not hold it"),
        ([user(pod="<b>\u202e")], r"used by ml/<b>\u{202e}, which does not hold it"),
        ([{}, "odd", None], ""),
        ({"odd": 1}, ""),
    ],
)
def test_who_uses_a_device_without_holding_it(users: Any, words: str) -> None:
    first, second = (object_of(**{**HELD, "pod": pod}, used_by=users) for pod in "pq")
    device, *owners = cells(first, second)
    assert device["pod"] == f"shared by 2{' used by others, too' * bool(words)}"
    assert device["gpu"].partition(" Others ")[2] == words
    assert [line["pod"] for line in owners] == ["ns / p", "ns / q"]


@pytest.mark.parametrize(
    ("amounts", "state"),
    [
        ({"memory_used_bytes": 2**30}, "outside"),
        ({"utilization_ratio": 0.05}, "outside"),
        ({"memory_used_bytes": 2**30 - 1, "utilization_ratio": 0.049}, "free"),
        ({}, "free"),
    ],
)
def test_a_device_that_somebody_uses_without_holding_it_is_not_free(amounts: Mapping[str, Any], state: str) -> None:
    assert object_of(gpu_utilization=0, used_by=[user(**amounts)]).state == state


# issue 30, line 14
@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"health": "gone", "health_reasons": ["Xid 79 (a) -> b"], "last_xid": 79}, "gone: XID 79 Xid 79 (a) -> b"),
        ({"health": "degraded", "health_reasons": ["hot -> b"], "last_xid": 7}, "degraded hot -> b last XID 7"),
        (
            {"health": "failing", "health_reasons": ["Xid 790 (a) -> b"], "last_xid": 79},
            "failing Xid 790 (a) -> b last XID 79",
        ),
        ({"health": "ok", "last_xid": 31}, "ok last XID 31"),
        ({"health": "ok", "last_xid": None}, "ok"),
        ({}, ""),
        ({"health": "ok", "last_xid": "<b>"}, "ok"),
        ({"health": "failing", "health_reasons": ["ecc", "hot"]}, "failing ecc; hot"),
        ({"health": "<b>", "health_reasons": {"<b>": 1}}, "<b>"),
        ({"health": "gone", "health_reasons": "odd", "last_xid": 79}, "gone last XID 79"),
    ],
)
def test_the_last_xid_stands_beside_the_health(row: Mapping[str, Any], words: str) -> None:
    assert cells(object_of(**row))[0]["health"] == words


# issue 26, part 1
@pytest.mark.parametrize(
    ("row", "is_there"),
    [
        ({"nvlink_tx_bytes": 80e9, "nvlink_rx_bytes": 70e9}, True),
        ({"nvlink_tx_bytes": 0, "nvlink_rx_bytes": 0}, False),
        ({"nvlink_tx_bytes": 80e9}, False),
        # the line of its GPU alone has it
        ({"nvlink_tx_bytes": 80e9, "nvlink_rx_bytes": 70e9, "entity": "mig", "mig_instance_id": "3"}, True),
    ],
)
def test_what_goes_over_nvlink_is_a_fact_of_a_gpu(row: Mapping[str, Any], is_there: bool) -> None:
    page = table([object_of(**row)])
    assert page.count("<dt>NVLink</dt>") == is_there
    assert page.count("150 GB/s sent and received") == is_there


@pytest.mark.parametrize(
    ("health", "holder", "state"),
    [
        ("gone", {}, "failing"),
        ("failing", {}, "failing"),
        ("degraded", {}, "free"),
        ("unknown", {}, "free"),
        ("gone", HELD, "held"),
        ("gone", {"gpu_utilization": 90}, "outside"),
        ("gone", {"entity": "mig-parent"}, "cut"),
    ],
)
def test_a_gpu_that_failed_and_that_nobody_holds_is_not_free(
    health: str, holder: Mapping[str, Any], state: str
) -> None:
    row = object_of(**holder, health=health)
    figures = at_once(figures_of([row]))
    assert (row.state, figures["free"], figures["failing"]) == (state, int(state == "free"), int(state == "failing"))
    assert (cells(row)[0]["state"] == "broken") == (state == "failing")


def test_a_shared_gpu_whose_owners_are_not_named_is_not_free() -> None:
    assert 'class="gpu free"' in table([object_of()])
    assert 'class="gpu idle"' in table([object_of(gpu_shared=True, gpu_utilization=0)])


@pytest.mark.parametrize(
    ("fields", "said", "bar"),
    [
        ({"framebuffer_used": 1280, "framebuffer_free": 1280}, "1.3/2.5 GiB", ("2560", "1280")),
        ({"framebuffer_used": 1280}, "1.3 GiB", None),
        ({"framebuffer_used": 0, "framebuffer_total": 1024}, "0.0/1.0 GiB", ("1024", "0")),
        ({"framebuffer_free": 1024}, "unknown", None),
        ({"framebuffer_used": 648000, "framebuffer_total": 648000}, "633/633 GiB", ("648000", "648000")),
        ({"power_usage": 70.5}, "71 W", None),
        ({"temperature": 33}, "33 °C", None),
        ({"temperature": 33, "fan_speed": 44.6}, "33 °C fan 45 %", None),
        ({"temperature": 33, "fan_speed": 0}, "33 °C fan 0 %", None),
        ({"fan_speed": 45}, "unknown", None),
        ({"gpu_utilization": 49.5}, "50 %", ("100", "49.5")),
    ],
)
def test_numbers_and_bars(fields: dict[str, Any], said: str, bar: tuple[str, str] | None) -> None:
    (seen,) = cells(object_of(**HELD, **fields))
    assert said in seen.values()
    assert bars(object_of(**HELD, **fields)) == ([bar] if bar else [])


def test_a_device_that_may_be_shared_has_its_own_memory() -> None:
    whole = {"gpu_utilization": 85, "framebuffer_used": 28672, "power_usage": 312.5}
    row = object_of(**HELD, gpu_shared=True, gpu_utilization=10, framebuffer_used=1024, whole_device=whole)
    (line,) = cells(row)
    assert (line["memory"], line["power"]) == ("28.0 GiB", "313 W")


def test_a_shared_gpu_has_a_line_and_below_it_one_for_each_owner() -> None:
    whole = {"gpu_utilization": 91, "framebuffer_used": 3072, "framebuffer_free": 1024}
    first, second = (
        object_of(
            **{**HELD, "pod": pod}, gpu_shared=True, framebuffer_used=1024, gpu_utilization=use, whole_device=whole
        )
        for pod, use in (("a", 90), ("b", 1))
    )
    device, *owners = cells(first, second)
    assert (device["pod"], device["utilisation"], device["memory"]) == ("shared by 2", "91 %", "3.0/4.0 GiB")
    assert [(line["pod"], line["state"], line["memory"]) for line in owners] == [
        ("ns / a", "used", "unknown"),
        ("ns / b", "held but idle", "unknown"),
    ]
    # without the whole device's values nobody knows how much of its memory is in use
    bare = [each._replace(whole_device=None) for each in (first, second)]
    assert cells(*bare)[0]["memory"] == ""


def mig(instance: int, **fields: Any) -> DeviceRow:
    return object_of(entity="mig", mig_instance_id=str(instance), **fields)


PARENT = object_of(entity="mig-parent", temperature=60)
INSTANCES = [
    mig(7, **HELD, graphics_engine_active=0.9, framebuffer_used=1024, framebuffer_total=2048),
    mig(8, graphics_engine_active=0, framebuffer_used=0, framebuffer_total=2048),
]
OTHER = object_of(device_uuid="GPU-1", device_id="1", **{**HELD, "pod": "q"}, gpu_utilization=40, temperature=50)


# issue 32, Must show 1
def test_a_gpu_that_is_cut_says_what_its_instances_do_together() -> None:
    parent, *instances = cells(PARENT, *INSTANCES)
    assert parent["state"] == "1 used 1 free"
    assert (parent["pod"], parent["memory"], parent["temperature"]) == ("2 MIG instances", "1.0/4.0 GiB", "60 °C")
    assert [line["gpu"].partition(" Model")[0] for line in instances] == ["MIG 7", "MIG 8"]


def lines(*rows: DeviceRow, with_node: bool = False, **asked: Any) -> list[str]:
    made, _ = at_once(devices_table(rows, PageView(**asked), with_node=with_node))
    return re.findall(r'<span class="name"><bdi>([^<]*)', "".join(made))


# issue 32, Must show 1
def test_112_instances_fold_to_their_8_gpus_and_unfold() -> None:
    rows = [
        row._replace(device_id=str(gpu), device_uuid=f"GPU-{gpu}")
        for gpu in range(8)
        for row in (PARENT, *(mig(number) for number in range(14)))
    ]
    gpus = [f"GPU {gpu}" for gpu in range(8)]
    assert lines(*rows) == lines(*rows, fold="gpu") == gpus, "by itself, since they are many"
    assert len(lines(*rows, fold="none")) == 120
    unfolded = lines(*rows, but=("n/3",))
    assert (len(unfolded), unfolded[4:18]) == (8 + 14, [f"MIG {number}" if number else "MIG 0" for number in range(14)])
    assert len(lines(*rows, fold="none", but=("n/3",))) == 120 - 14


# issue 32, Must show 1
def test_nodes_fold_and_say_what_their_gpus_do_together() -> None:
    rows = [row._replace(node_name=node) for node in ("a", "b") for row in (PARENT, *INSTANCES, OTHER)]
    made, fold = at_once(devices_table(rows, PageView(fold="node"), with_node=True))
    html = "".join(made)
    assert fold == "node"
    assert html.count('<tr role="row" class="node used"') == 2
    first = words_of(html.partition("<tbody")[2].partition("</tr>")[0].partition(">")[2])
    assert first == "▸ a 2 GPUs 2 used 2 pods 40 % 60 °C"
    made, _ = at_once(devices_table(rows, PageView(fold="node", but=("b",)), with_node=True))
    assert re.findall(r'data-key="(\w+ \w)', "".join(made)) == ["node a", "node b", "gpu b", "gpu b"]


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("", ["GPU 0", "MIG 7", "MIG 8", "GPU 1"]),
        ("-temperature", ["GPU 0", "MIG 7", "MIG 8", "GPU 1"]),
        ("temperature", ["GPU 1", "GPU 0", "MIG 7", "MIG 8"]),
        ("utilisation", ["GPU 1", "GPU 0", "MIG 8", "MIG 7"]),
        ("-utilisation", ["GPU 1", "GPU 0", "MIG 7", "MIG 8"]),
        ("-pod", ["GPU 1", "GPU 0", "MIG 7", "MIG 8"]),
        ("no such column", ["GPU 0", "MIG 7", "MIG 8", "GPU 1"]),
    ],
)
def test_lines_are_sorted_at_each_level_and_what_is_not_known_comes_last(sort: str, names: list[str]) -> None:
    assert lines(PARENT, *INSTANCES, OTHER, sort=sort) == names


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"filter": "NS q"}, ["GPU 1"]),
        ({"filter": "GPU-0"}, ["GPU 0", "MIG 7", "MIG 8"]),
        ({"filter": "no such"}, []),
        ({"show": "free"}, ["GPU 0", "MIG 8"]),
        ({"show": "held"}, ["GPU 0", "MIG 7", "GPU 1"]),
        ({"show": "odd"}, ["GPU 0", "MIG 7", "MIG 8", "GPU 1"]),
    ],
)
def test_an_instance_that_matches_stands_below_its_gpu(asked: Mapping[str, Any], names: list[str]) -> None:
    assert lines(PARENT, *INSTANCES, OTHER, **asked) == names


# issue 22, line 14
def test_a_filtered_gpu_has_the_memory_of_all_its_instances() -> None:
    parent = PARENT._replace(framebuffer_used=1536)
    (asked, instance), (whole, *_) = cells(parent, *INSTANCES, show="free"), cells(parent, *INSTANCES)
    assert asked["memory"] == whole["memory"] == "1.0/4.0 GiB", "what the GPU has and its instances have is not mixed"
    assert (whole["pod"], asked["pod"]) == ("2 MIG instances", "1 of 2 MIG instances")
    assert instance["memory"] == "0.0/2.0 GiB"
    known = parent._replace(framebuffer_free=2560)
    assert cells(known, *INSTANCES, show="free")[0]["memory"] == "1.5/4.0 GiB"


# issue 22, line 14
@pytest.mark.parametrize(
    ("rows", "asked", "words"),
    [
        ([OTHER], {}, ""),
        ([OTHER], {"filter": "<b>"}, "No GPU or MIG instance matches “<b>” . Show all"),
        ([OTHER], {"show": "idle"}, "No GPU or MIG instance matches held but idle . Show all"),
        ([OTHER], {"filter": "x", "show": "free"}, "No GPU or MIG instance matches “x” and free . Show all"),
        ([], {}, "No GPU is known."),
        ([], {"pod": "ns/gone"}, ""),
    ],
)
def test_an_empty_table_says_why_and_leads_back(rows: list[DeviceRow], asked: Mapping[str, Any], words: str) -> None:
    html = table(rows, sort="pod", **asked)
    assert words_of(html.partition("</table>")[2]) == words
    if "Show all" in words:
        assert 'href="?sort=pod&amp;fold=none"' in html


def test_of_more_lines_than_are_shown_a_link_leads_to_the_next() -> None:
    rows = [object_of(device_uuid=f"GPU-{number}", device_id=str(number)) for number in range(450)]
    html = table(rows)
    assert html.count('<tr role="row" class="gpu') == 200
    assert '<a id="more" href="?fold=none&amp;lines=400">Show more (250 lines are not shown)</a>' in html
    assert table(rows, lines=5000).count('<tr role="row" class="gpu') == 450


VIEWS = st.builds(
    PageView,
    node=st.text(),
    pod=st.text(),
    filter=st.text(),
    show=st.text(),
    sort=st.text(),
    fold=st.text(),
    but=st.lists(st.text(min_size=1), unique=True, max_size=5).map(tuple),
    lines=st.sampled_from([200, 400, 5000]),
)


# issue 32, Must show 1
@given(VIEWS)
def test_a_link_has_the_whole_view(view: PageView) -> None:
    assert PageView.of(parse_qsl(view.address().removeprefix("?"), keep_blank_values=True)) == view


@pytest.mark.parametrize("lines", ["-1", "1e9", "99999999999", "²", "", "1"])
def test_a_wrong_number_of_lines_is_left_out(lines: str) -> None:
    assert PageView.of([("lines", lines), ("odd", "1")]) == PageView()


def test_figures_count_gpus_and_not_rows() -> None:
    rows = (
        object_of(**HELD, gpu_utilization=0, gpu_shared=True),
        object_of(**{**HELD, "pod": "q"}, gpu_utilization=50, gpu_shared=True),
        object_of(device_uuid="GPU-1", entity="mig-parent"),
        object_of(device_uuid="GPU-1", entity="mig", mig_instance_id="7", **HELD, graphics_engine_active=0.01),
        object_of(device_uuid="GPU-1", entity="mig", mig_instance_id="8"),
        object_of(device_uuid="MIG-2", entity="mig", **HELD),
        object_of(device_uuid="GPU-3"),
        object_of(device_uuid="GPU-3", node_name="other"),
        object_of(device_uuid="GPU-4", gpu_shared=True, gpu_utilization=0),
    )
    # of the shared GPU somebody makes use; of what has no number nobody knows
    figures = at_once(figures_of(rows))
    assert {name: count for name, count in figures.items() if count} == {
        "gpus": 5,
        "instances": 3,
        "held": 4,
        "idle": 2,
        "free": 3,
    }


OBJECTS = st.builds(
    object_of,
    device_uuid=st.sampled_from(["GPU-0", "GPU-1", "MIG-2"]),
    entity=st.sampled_from(["gpu", "mig", "mig-parent"]),
    mig_instance_id=st.sampled_from(["", "1"]),
    state=st.sampled_from([*DeviceState, "of a newer exporter"]),
    pod=st.sampled_from(["", "p"]),
    gpu_utilization=st.sampled_from([None, 0, 90]),
)


# issue 15, line 25
@given(st.lists(OBJECTS))
def test_the_cards_add_up_to_the_devices_of_the_rows(rows: list[DeviceRow]) -> None:
    by_device: dict[RowDevice, list[DeviceState]] = {}
    for each in rows:
        by_device.setdefault(each.row_device, []).append(each.state)
    figures = at_once(figures_of(rows))
    devices = [states for states in by_device.values() if {*states} != {DeviceState.CUT}]
    assert sum(figures[name] for name in ("held", "free", "failing", "outside", "unknown")) == len(devices)
    assert figures["idle"] <= figures["held"]
    assert figures["idle"] == sum(
        DeviceState.IDLE in states and not {*states} & {DeviceState.USED, DeviceState.HELD} for states in devices
    )


# issue 15, line 25
@pytest.mark.parametrize(
    ("fields", "holder"),
    [
        pytest.param({"gpu_utilization": 92}, "free before", id="nobody's, and read of the holder before"),
        pytest.param({**HELD, "gpu_utilization": 0}, "held before", id="held, and read when nobody had it"),
    ],
)
def test_what_was_read_before_the_hands_changed_is_marked(fields: dict[str, Any], holder: str) -> None:
    then, later = "2026-11-22T20:00:00.000Z", "2026-11-22T20:00:00.001Z"
    html = table([object_of(**fields, holder_since=then, read_at=then)])
    assert f'class="gpu {holder}"' in html
    assert '<span class="badge before">before</span>' in html
    html = table([object_of(**fields, holder_since=then, read_at=later)])
    assert "before" not in html, "the values are those of the present hands"


# issue 12, "Must show" 1
@given(st.text())
def test_whatever_somebody_says_is_text_and_can_be_seen(said: str) -> None:
    html = text(said)
    inner = html.removeprefix("<bdi>").removesuffix("</bdi>")
    assert not re.search("[<>\"']", inner)
    assert unescape(inner) == visible(said)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]", inner)
    inner.encode()


def test_what_is_wrong_with_a_source_is_said_once_on_top() -> None:
    good = {"kubelet": Health(up=True), "nvml": Health(up=None)}
    html = sources(good)
    assert "not asked yet" in html
    assert "hidden" in alert("", good)
    bad = {**good, "dcgm:<x>": Health(up=False, trouble=Trouble("refused", "nobody <listens>", "start & see"))}
    assert '<li class="state down" title="down"><bdi>dcgm:&lt;x&gt;</bdi>' in sources(bad)
    assert "nobody" not in sources(bad)
    assert "<li><bdi>dcgm:&lt;x&gt;: nobody &lt;listens&gt; -&gt; start &amp; see</bdi></li>" in alert("", bad)


def test_a_gpu_that_nobody_holds_is_idle_and_a_doubt_has_its_reason() -> None:
    page = row("DCGM_FI_DEV_POWER_USAGE", "70") + row("DCGM_FI_DEV_POWER_USAGE", "70", gpu=1)
    looks = Looks()
    snapshot = looks.snapshot(page, {"a": whole(0)})
    html = b"".join(at_once(render(Look(snapshot=snapshot))).pieces).decode()
    assert "</span> free</td>" in html
    assert "names no container" not in html.partition("<table")[2]
    silent = replace(snapshot, assignments_age_seconds=None)
    html = b"".join(at_once(render(Look(snapshot=silent))).pieces).decode()
    assert "<dt>State</dt><dd><bdi>the kubelet has not answered yet</bdi></dd>" in html


@pytest.mark.parametrize("output", [document.STYLE, document.SCRIPT], ids=lambda output: output.path)
def test_a_file_is_kept_for_good_by_its_version_alone(output: Output[Any]) -> None:
    address = document.address(output)
    path, _, version = address.partition("?v=")
    assert f"/{path}" == output.path
    look = Look.of(None)
    made = answer_of(output, replace(look, question=NO_QUESTION._replace(query=(("v", version),))))
    assert made.headers == (("Cache-Control", "max-age=31536000, immutable"),)
    assert (ROOT / "exporter" / "outputs" / "page" / Path(path).name).read_bytes() in made.pieces[0]
    for query in ((), (("v", "other"),)):
        made = answer_of(output, replace(look, question=NO_QUESTION._replace(query=query)))
        assert made.headers == (("Cache-Control", "no-cache"),)


def test_no_script_makes_html_of_a_string_and_nothing_comes_from_elsewhere() -> None:
    folder = ROOT / "exporter" / "outputs" / "page"
    script = "".join(path.read_text() for path in folder.glob("*.js"))
    # the only ways to make HTML of a string
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|parseFrom", script
    )
    style = (folder / "page.css").read_text()
    assert not re.search(r"url\(|@import|https?:", style), "nothing from elsewhere"
    assert not re.search(r"https?://", script)


async def test_the_policy_is_the_pages_own_unless_the_web_config_has_one(start: Start, tmp_path: Path) -> None:
    exporter = await start()

    async def policy(exporter: Any, path: str) -> str:
        async with exporter.session.get(exporter.base + path) as response:
            return str(response.headers["Content-Security-Policy"])

    assert "script-src 'self';" in await policy(exporter, "/")
    for path in ("/container/metrics", "/gpu/metrics", "/static/page.js", "/nothing"):
        assert await policy(exporter, path) == (
            "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
    config = tmp_path / "web.yaml"
    config.write_text('http_server_config:\n  headers:\n    Content-Security-Policy: "default-src *"\n')
    other = await start(web_config_file=str(config))
    assert await policy(other, "/") == "default-src *"
