"""The page for people as HTML: what it says of objects, sources and files. tests/browser/ opens it in a browser."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.dcgm.fields import METRICS
from exporter.errors import Trouble
from exporter.model.cluster import OWNERS_UNKNOWN_HEADER
from exporter.model.slices import at_once
from exporter.model.snapshot import Health
from exporter.model.states import IN_HAND, DeviceState, state_of, stated
from exporter.outputs.output import NO_QUESTION, Look, Output
from exporter.outputs.page import document
from exporter.outputs.page.devices import DeviceId, Figures, Object, Scales, device_of, devices_table
from exporter.outputs.page.document import sources, text, visible
from exporter.outputs.page.node import render
from tests.support.answers import answer_of
from tests.support.exporter import Start
from tests.support.looks import Looks, row, whole
from tests.support.places import ROOT

WHOLE: Object = {
    **dict.fromkeys(METRICS),
    "node_name": "n",
    "model_name": "H100",
    "device": "nvidia0",
    "device_id": "0",
    "device_uuid": "GPU-0",
    "entity": "gpu",
    "pod": "",
    "container": "",
    "namespace": "",
    "gpu_shared": False,
}
HELD = {"pod": "p", "container": "c", "namespace": "ns"}


def object_of(**fields: Any) -> Object:
    return {**WHOLE, **fields}


def table(rows: Sequence[Object], *, with_node: bool = False) -> str:
    return "\n".join(at_once(devices_table(rows, with_node=with_node)))


def cells(*rows: Mapping[str, Any]) -> list[list[str]]:
    """The texts of the table's rows."""
    html = table(rows)
    return [
        [
            " ".join(unescape(re.sub("<[^>]*>", " ", cell)).split())
            for cell in re.findall(r"<t[dh][ >].*?</t[dh]>", line)
        ]
        for line in re.findall(r"<tr.*?</tr>", html)[1:]
    ]


def bars(*rows: Mapping[str, Any]) -> list[tuple[str, str]]:
    return re.findall(r'<meter aria-hidden="true" max="([^"]*)" value="([^"]*)">', table(rows))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({}, ["free", "", "", *["unknown"] * 4], id="nothing is known of it"),
        pytest.param({"gpu_utilization": 0}, ["free", "", "", "0 %"], id="free"),
        pytest.param({"gpu_utilization": 5}, ["used around Kubernetes", "", "", "5 %"], id="busy without a pod"),
        pytest.param({**HELD, "gpu_utilization": 5}, ["p c", "ns", "", "5 %"], id="held"),
        pytest.param({**HELD, "gpu_utilization": 4.9}, ["p c held but idle", "ns", "", "5 %"], id="held but idle"),
        pytest.param(
            {
                **HELD,
                "gpu_utilization": 0,
                "idle_since": "2026-11-01T10:00:00.000Z",
                "timestamp": "2026-11-01T13:59:00.000Z",
            },
            ["p c held but idle, 3 h", "ns", "", "0 %"],
            id="held but idle for long",
        ),
        pytest.param({**HELD, "graphics_engine_active": 0.498}, ["p c", "ns", "", "50 %"], id="by the engine"),
        pytest.param({**HELD, "graphics_engine_active": 0}, ["p c held but idle", "ns", "", "0 %"], id="engine idle"),
        pytest.param({**HELD}, ["p c", "ns", "", "unknown"], id="held, and it is not known what it does"),
        pytest.param(
            {**HELD, "workload_name": "w", "workload_kind": "Job"},
            ["p c", "ns", "w Job", "unknown"],
            id="of a workload",
        ),
        pytest.param(
            {"gpu_shared": True, "gpu_utilization": 0},
            ["several owners, which --sharing device does not name", "", "", "0 %"],
            id="shared, owners not named",
        ),
        pytest.param({"entity": "mig-parent"}, ["cut into instances", "", "", "", "", "", ""], id="cut"),
    ],
)
def test_who_holds_a_device(fields: dict[str, Any], said: list[str]) -> None:
    ((_, *seen),) = cells(object_of(**fields))
    assert seen[: len(said)] == said


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
    seen = [row[1] if number == 0 else row[0] for number, row in enumerate(cells(first, second))]
    assert seen == [f"p c {words}".strip(), "q c"]


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
    assert stated(object_of(gpu_utilization=0, used_by=[user(**amounts)])) == state


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
        ({"health": "ok", "last_xid": 31}, "last XID 31"),
        ({"health": "ok", "last_xid": None}, ""),
        ({"health": "ok"}, ""),
        ({"health": "ok", "last_xid": "<b>"}, ""),
        ({"health": "gone", "health_reasons": "odd", "last_xid": 79}, "gone last XID 79"),
    ],
)
def test_the_last_xid_stands_beside_the_health(row: Object, words: str) -> None:
    name = table([object_of(**row)]).partition('<span class="name">')[2].partition('<small class="model">')[0]
    assert " ".join(unescape(re.sub("<[^>]+>", " ", name)).split()) == f"GPU 0 {words}".strip()


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
def test_a_gpu_that_failed_and_that_nobody_holds_is_not_free(health: str, holder: Object, state: str) -> None:
    bare = object_of(**holder, health=health)
    row = {**bare, "state": str(state_of(bare))}
    figures = Figures.of([row])
    assert (row["state"], figures.free, figures.failing) == (state, int(state == "free"), int(state == "failing"))
    assert ('<span class="none">failing</span>' in table([row])) == (state == "failing")


def test_a_shared_gpu_whose_owners_are_not_named_is_not_free() -> None:
    assert 'class="free"' in table([object_of()])
    assert 'class="idle"' in table([object_of(gpu_shared=True, gpu_utilization=0)])


@pytest.mark.parametrize(
    ("fields", "said", "bar"),
    [
        ({"framebuffer_used": 1280, "framebuffer_free": 1280}, "1.3 of 2.5 GiB", ("2560", "1280")),
        ({"framebuffer_used": 1280}, "1.3 GiB", None),
        ({"framebuffer_used": 0, "framebuffer_total": 1024}, "0.0 of 1.0 GiB", ("1024", "0")),
        ({"framebuffer_free": 1024}, "unknown", None),
        ({"power_usage": 70.5}, "71 W", ("75", "70.5")),
        ({"power_usage": 9999}, "9999 W", ("3000", "3000")),
        ({"temperature": 33}, "33 °C", ("100", "33")),
        ({"temperature": 120}, "120 °C", ("100", "100")),
        ({"gpu_utilization": 49.5}, "50 %", ("100", "49.5")),
    ],
)
def test_numbers_and_bars(fields: dict[str, Any], said: str, bar: tuple[str, str] | None) -> None:
    (seen,) = cells(object_of(**HELD, **fields))
    assert said in seen[4:]
    assert bars(object_of(**HELD, **fields)) == ([bar] if bar else [])


# issue 18, line 5
@pytest.mark.parametrize(
    ("whole", "words"),
    [
        ({"gpu_utilization": 85, "framebuffer_used": 28672, "power_usage": 312.5}, " in all 85 %, 28.0 GiB, 313 W"),
        ({"gpu_utilization": 85.4}, " in all 85 %"),
        ({}, ""),
        ({"gpu_utilization": "<b>", "power_usage": None}, ""),
        ("<b>", ""),
    ],
)
def test_the_name_of_a_shared_device_has_what_it_does_in_all(whole: object, words: str) -> None:
    row = object_of(**HELD, gpu_shared=True, gpu_utilization=10, whole_device=whole)
    assert cells(row)[0][0] == f"GPU 0 shared H100 GPU-0{words}"


# issue 30, line 15
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "GPU 0 H100 GPU-0"),
        ({"health": "ok"}, "GPU 0 H100 GPU-0"),
        ({"health": "gone", "health_reasons": ["Xid 79 -> drain it"]}, "GPU 0 gone Xid 79 -> drain it H100 GPU-0"),
        ({"health": "failing", "health_reasons": ["ecc", "hot"]}, "GPU 0 failing ecc; hot H100 GPU-0"),
        ({"health": "<b>", "health_reasons": {"<b>": 1}}, "GPU 0 <b> H100 GPU-0"),
    ],
)
def test_what_is_wrong_with_a_device_stands_beside_its_name(fields: dict[str, Any], words: str) -> None:
    assert cells(object_of(**HELD, gpu_utilization=10, **fields))[0][0] == words


def test_a_shared_gpu_has_a_row_for_each_owner_under_one_name() -> None:
    shared = {"gpu_shared": True, "framebuffer_used": 1024, "framebuffer_free": 512}
    first, second = (
        object_of(**{**HELD, "pod": pod}, **shared, gpu_utilization=use) for pod, use in (("a", 90), ("b", 1))
    )
    html = table((first, second), with_node=True)
    assert html.count('rowspan="2"') == 2, "the node and the name"
    assert '<tr role="row" class="idle more">' in html
    one, two = cells(first, second)
    assert one[:2] == ["GPU 0 shared by 2 H100 GPU-0", "a c"]
    assert two[0] == "b c held but idle"
    # an owner's memory and the free memory do not add up to a GPU: nobody knows how large it is
    assert "1.0 GiB" in one
    # unless an unshared GPU of this model says so
    other = object_of(device_uuid="GPU-1", framebuffer_used=0, framebuffer_free=4096)
    assert Scales.of((first, second, other)).full_mib(first) == 4096
    assert "1.0 of 4.0 GiB" in cells(first, second, other)[0]


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
    figures = Figures.of(rows)
    assert figures == Figures(gpus=5, instances=3, held=4, idle=2, free=3)
    assert Figures.sum([figures, figures]) == Figures(gpus=10, instances=6, held=8, idle=4, free=6)


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
def test_the_cards_add_up_to_the_devices_of_the_rows(rows: list[Object]) -> None:
    by_device: dict[DeviceId, list[DeviceState]] = {}
    for each in rows:
        by_device.setdefault(device_of(each), []).append(stated(each))
    figures = Figures.of(rows)
    devices = [states for states in by_device.values() if {*states} != {DeviceState.CUT}]
    assert figures.held + figures.free + figures.failing + figures.outside + figures.unknown == len(devices)
    assert figures.idle <= figures.held
    assert figures.idle == sum(
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
    assert f'class="{holder}"' in html
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


def test_sources_are_open_where_one_is_in_trouble() -> None:
    good = {"kubelet": Health(up=True), "nvml": Health(up=None)}
    html = sources(good)
    assert '<details id="sources">' in html
    assert "1 of 2 up" in html
    assert "not asked yet" in html
    bad = {**good, "dcgm:<x>": Health(up=False, trouble=Trouble("refused", "nobody <listens>", "start & see"))}
    html = sources(bad)
    assert '<details id="sources" open>' in html
    for said in ("dcgm:&lt;x&gt;", "nobody &lt;listens&gt;", "start &amp; see", '<span class="state down">down</span>'):
        assert said in html


def test_a_gpu_that_nobody_holds_is_idle_and_a_doubt_has_its_reason() -> None:
    page = row("DCGM_FI_DEV_POWER_USAGE", "70") + row("DCGM_FI_DEV_POWER_USAGE", "70", gpu=1)
    looks = Looks()
    snapshot = looks.snapshot(page, {"a": whole(0)})
    html = b"".join(at_once(render(snapshot)).pieces).decode()
    assert html.count('<span class="none">free</span>') >= 1
    assert "names no container" not in html.partition("<table")[2]
    silent = replace(snapshot, assignments_age_seconds=None)
    html = b"".join(at_once(render(silent)).pieces).decode()
    assert "<summary>not known</summary><bdi>the kubelet has not answered yet</bdi>" in html


@pytest.mark.parametrize("output", [document.STYLE, document.SCRIPT], ids=lambda output: output.path)
def test_a_file_is_kept_for_good_by_its_version_alone(output: Output[Any]) -> None:
    address = document.address(output)
    path, _, version = address.partition("?v=")
    assert f"/{path}" == output.path
    look = Look.of(None)
    made = answer_of(output, replace(look, question=NO_QUESTION._replace(query=(("v", version),))))
    assert made.headers == (("Cache-Control", "max-age=31536000, immutable"),)
    assert made.pieces == ((ROOT / "exporter" / "outputs" / "page" / Path(path).name).read_bytes(),)
    for query in ((), (("v", "other"),)):
        made = answer_of(output, replace(look, question=NO_QUESTION._replace(query=query)))
        assert made.headers == (("Cache-Control", "no-cache"),)


def test_the_script_and_the_page_agree_on_states_and_on_scales() -> None:
    from exporter.outputs.page import devices  # noqa: PLC0415

    script = (ROOT / "exporter" / "outputs" / "page" / "page.js").read_text()
    assert f"const STATES = {json.dumps([*DeviceState])};" in script
    assert f"const IN_HAND = {json.dumps([state for state in DeviceState if state in IN_HAND])};" in script
    assert f"const POWER_SCALES = {json.dumps(devices._POWER_SCALES)};" in script
    assert f"const HOTTEST = {devices._HOTTEST};" in script
    assert f"const METRICS = {json.dumps(devices.METRIC_TITLES)};" in script
    assert f'const OWNERS_UNKNOWN = "{OWNERS_UNKNOWN_HEADER}";' in script
    # the only ways to make HTML of a string
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script)
    style = (ROOT / "exporter" / "outputs" / "page" / "page.css").read_text()
    assert not re.search(r"url\(|@import|https?:", style), "nothing from elsewhere"
    assert {*re.findall(r"https?://[^\"' )]*", script)} == {"http://www.w3.org/2000/svg"}


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
