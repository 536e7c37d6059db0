"""The pure parts of `top`: words, columns, keys, and what is made of an exporter's answers, whatever they are."""

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from exporter.model.device_row import from_objects
from exporter.model.states import DeviceState
from exporter.top.columns import ASCII, UNICODE, Glyphs, Line, bar, cut, harmless, width_of
from exporter.top.command import document
from exporter.top.history import SECONDS, DeviceHistory, charts
from exporter.top.screen import draw, frame, strip
from exporter.top.shown_devices import MOST_DEVICES, Role, ShownDevice, ShownExporter, processes_of, shown_of
from exporter.top.state import MOST_FILTER_CHARS, State, chosen_devices, press
from exporter.top.terminal import Keys
from tests.support.fixed_exporter import fixed

MAPPING, ROWS = fixed("node-mapping"), fixed("node-metrics")
GLYPHS = st.sampled_from([UNICODE, ASCII])
NASTY = st.text(st.characters() | st.sampled_from("\x1b\n\r\x9b\u202e\u2066\u200d\ufe0f\u0301\ud800東😀א"), max_size=40)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NASTY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NASTY, inner, max_size=4),
    max_leaves=20,
)


def shown_by(role: Role, url: str, about: Any, answer: Any, trouble: str) -> ShownExporter:
    """What is shown where /container/metrics answers so."""
    return shown_of(role, url, about, from_objects(answer, MOST_DEVICES), trouble)


def text_of(line: Line) -> str:
    return "".join(span.text for span in line)


@given(NASTY, GLYPHS, st.integers(0, 30), st.integers(0, 6))
def test_a_name_is_one_line_of_what_it_says_it_takes(name: str, glyphs: Glyphs, width: int, keeps_end: int) -> None:
    shown = harmless(name, glyphs)
    assert all(
        unicodedata.category(char)[0] not in "CZM" or char == " " or unicodedata.category(char) == "Mc"
        for char in shown
    )
    assert not any(unicodedata.bidirectional(char) in ("R", "AL", "AN") for char in shown)
    assert shown.isascii() or glyphs is UNICODE
    short = cut(shown, width, glyphs, keeps_end=keeps_end)
    assert cell_len(short) == width_of(short) <= width
    assert (short == shown) is (width_of(shown) <= width)


@pytest.mark.parametrize(("ratio", "says"), [(0, ""), (0.001, "▏"), (0.5, "██▌"), (1, "█████"), (7, "█████"), (-1, "")])
def test_a_bar_is_as_long_as_the_ratio(ratio: float, says: str) -> None:
    assert bar(ratio, 5, UNICODE) == says


@pytest.mark.parametrize(
    ("pieces", "keys"),
    [
        ([b"u"], ["u"]),
        ([b"\x1b[A", b"\x1bOB"], ["up", "down"]),
        ([b"\x1b", b"[", b"5~q"], ["page up", "q"]),
        ([b"\x1b[1;5C\x1b[Hq"], ["home", "q"]),  # what nobody knows is nothing
        ([b"\x1b"], ["escape"]),
        ([b"\x1bq"], ["escape", "q"]),
        (["é".encode()[:1], "é".encode()[1:]], ["é"]),
        ([b"\xff\x00\x7f\r"], ["backspace", "enter"]),
        ([b"\x1b[" + b"1;" * 40 + b"q"], []),
    ],
)
def test_keys(pieces: list[bytes], keys: list[str]) -> None:
    reader = Keys()
    found = [key for piece in pieces for key in reader.feed(piece)]
    if not keys:
        assert len(found) < 80, "an endless sequence ends"
    else:
        assert [*found, *reader.flush()] == keys


@settings(max_examples=40)
@given(
    st.lists(
        st.sampled_from([*"umwtnigrph? /q", "up", "down", "page down", "end", "escape", "enter", "backspace", "x"])
    )
)
def test_no_row_of_keys_breaks_the_picture(typed: list[str]) -> None:
    state = State()
    lines: Sequence[Line] = ()
    shown = shown_by("node", "http://x", MAPPING, ROWS, "")
    for key in ["?", *typed]:
        state = press(state, key)
        lines, state = frame(shown, "", state, (80, 10), 2.0, UNICODE, DeviceHistory())
    assert (len(lines), state.cursor >= 0) == (10, True)
    assert {width_of(text_of(line)) <= 80 for line in lines} == {True}


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(("settings", "sources", "seen", "nodes", "version"), JUNK)),
    st.lists(
        JUNK
        | st.fixed_dictionaries(
            {"device_uuid": JUNK | st.just("GPU-1"), "pod": JUNK | st.just("a")},
            optional={
                name: JUNK | st.floats() | st.integers()
                for name in (
                    "gpu_utilization",
                    "framebuffer_used",
                    "framebuffer_free",
                    "power_usage",
                    "mig_instance_id",
                    "measured",
                    "whole_device",
                )
            },
        ),
        max_size=4,
    )
    | JUNK,
    st.integers(1, 130),
    st.integers(2, 12),
    GLYPHS,
)
# a chart's label that is wider than its place
@example(
    {}, [{"device_uuid": "GPU-1", "pod": "a", "framebuffer_used": -(10**7), "framebuffer_free": 0}], 19, 12, UNICODE
)
@example({"sources": {"kubelet": {"up": True}}}, [], 2, 4, UNICODE)
@example({"sources": {"kubelet": {"up": False, "reason": "missing"}}}, [], 3, 4, UNICODE)
def test_whatever_an_exporter_says_the_picture_fits(
    about: Any, rows: Any, width: int, height: int, glyphs: Glyphs
) -> None:
    for made in (shown_by("node", "u", about, rows, ""), shown_by("cluster", "u", about, rows, "no\nGPU")):
        history = DeviceHistory()
        history.add(made.devices, 7.0)
        for state in (
            State(),
            State(sort="idle"),
            State(view="processes"),
            State(view="history"),
            State(helps=True),
            State(typing=True),
        ):
            lines, _ = frame(made, "", state, (width, height), 2.0, glyphs, history)
            assert len(lines) == height
            for line in lines:
                assert width_of(text_of(line)) <= width
                assert "\x1b" not in text_of(line)
        json.dumps(document(made, State(view="processes")), allow_nan=False)
    processes_of(rows)


def row(
    pod: str, *, used: float, free: float, util: float, measured: dict[str, float] | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "node_name": "n", "device_uuid": "GPU-1", "device_id": "0", "entity": "gpu", "pod": pod, "namespace": "ns",
        "container": "c", "gpu_shared": True, "framebuffer_used": used, "framebuffer_free": free,
        "gpu_utilization": util, "power_usage": 300.0, **({"measured": measured} if measured else {}), **more,
    }  # fmt: skip


def mapping(sharing: str) -> dict[str, Any]:
    return {"settings": {"sharing": {"value": sharing}}, "assignments_age_seconds": 1.0}


MIB = 1024 * 1024
WHOLE = {"gpu_utilization": 85, "framebuffer_used": 28_672, "framebuffer_total": 80_000, "power_usage": 300.0}
HALF = {"memory_used_bytes": 20_000 * MIB, "utilization_ratio": 0.5}


@pytest.mark.parametrize(
    ("sharing", "rows", "device", "holders"),
    [
        # nothing is measured: the rows repeat the device's values, and nobody knows an owner's part
        (
            "copy",
            [row("a", used=30_000, free=50_000, util=60), row("b", used=30_000, free=50_000, util=60)],
            (60, 30_000, 80_000, 300),
            [(None, None), (None, None)],
        ),
        # one owner is measured: the other's row has the device's values
        (
            "copy",
            [row("a", used=20_000, free=50_000, util=50, measured=HALF), row("b", used=30_000, free=50_000, util=60)],
            (60, 30_000, 80_000, 300),
            [(50, 20_000), (None, None)],
        ),
        # divided: the parts add up
        (
            "split",
            [
                row("a", used=20_000, free=25_000, util=50, measured=HALF, power_usage=100.0),
                row("b", used=10_000, free=25_000, util=60, power_usage=200.0),
            ],
            (60, 30_000, 80_000, 300),
            [(50, 20_000), (None, None)],
        ),
        # the device's own values, of which its owners' leave some out (issue 18, line 5)
        (
            "split",
            [
                row("a", used=9_000, free=25_000, util=20, measured=HALF, power_usage=100.0, whole_device=WHOLE),
                row("b", used=10_000, free=25_000, util=10, measured=HALF, power_usage=90.0, whole_device=WHOLE),
            ],
            (85, 28_672, 80_000, 300),
            [(50, 20_000), (50, 20_000)],
        ),
    ],
)
def test_a_shared_gpu_is_whole_in_each_mode(
    sharing: str, rows: list[dict[str, Any]], device: tuple[float, ...], holders: list[tuple[float | None, ...]]
) -> None:
    (shown,) = shown_by("node", "u", mapping(sharing), rows, "").devices
    whole = (shown.utilization_percent, shown.memory_used_mib, shown.memory_total_mib, shown.power_watts)
    assert whole == device
    assert [(each.utilization_percent, each.memory_used_mib) for each in shown.holders] == holders


@pytest.mark.parametrize(
    ("said", "owners", "held", "why"),
    [
        ({"state": "free"}, [], "free", ""),
        ({"state": "failing", "health": "gone"}, [], "failing", ""),
        ({"state": "unknown", "state_reason": "units"}, [], "unknown", "units"),
        ({"state": "of a newer exporter"}, [], "free", ""),
        ({"gpu_shared": True}, [], "held", "shared by several"),
        ({"state": "held"}, [{"namespace": "a", "pod": "b", "container": "c"}], "held", ""),  # --sharing device
    ],
)
def test_who_has_a_device_is_not_guessed(
    said: dict[str, Any], owners: list[dict[str, str]], held: str, why: str
) -> None:
    about = {**mapping("device"), "seen": [{"uuid": "GPU-1", "gpu_i_id": "", "owners": owners}]}
    rows = [{**row("", used=1, free=1, util=1, gpu_shared=False), **said}]
    (device,) = shown_by("node", "u", about, rows, "").devices
    assert (device.held, device.why) == (held, why)


# issue 15, line 23
def test_an_instance_that_a_node_does_not_know_the_holder_of_is_not_free() -> None:
    of = {"entity": "mig", "mig_instance_id": "7", "state": "unknown", "state_reason": "odd ids"}
    rows = [{**row("", used=1, free=1, util=1, gpu_shared=False), **of}]
    nodes = {"nodes": [{"name": "n", "missing": False}]}
    shown = shown_by("cluster", "u", nodes, rows, "")
    assert [(each.state, each.why) for each in shown.devices] == [("cut", ""), ("unknown", "odd ids")]
    assert shown.counts == {
        "gpus": 1,
        "instances": 1,
        "held": 0,
        "idle": 0,
        "free": 0,
        "failing": 0,
        "outside": 0,
        "unknown": 1,
    }


def cluster(gpus: dict[str, list[dict[str, Any]]], *, missing: str = "") -> ShownExporter:
    rows = [
        {"node_name": node, "device_id": str(index), "device_uuid": f"{node}-{index}", "entity": "gpu", **of}
        for node, devices in gpus.items()
        for index, of in enumerate(devices)
    ]
    names = [*gpus, *filter(None, [missing])]
    nodes = {"nodes": [{"name": name, "missing": name == missing, "message": "m"} for name in names]}
    return shown_by("cluster", "u", nodes, rows, "")


# issue 32, "top"
def test_a_cluster_has_a_cell_for_each_gpu_by_its_state() -> None:
    cut_gpu = {"device_id": "7", "device_uuid": "cut", "entity": "mig"}
    gpus = {
        "gpu-node-2": [{"state": "used"}, {"state": "held"}, {"state": "idle"}, {"state": "free"}],
        "gpu-node-10": [{"state": "outside"}, {"state": "unknown"}, {"state": "failing", "health": "gone"}],
        "gpu-node-3": [{"state": "used", "health": "failing"}],
        "gpu-node-4": [
            cut_gpu | {"mig_instance_id": instance, "state": state}
            for instance, state in (("1", "free"), ("2", "idle"))
        ],
    }
    shown = cluster(gpus, missing="gpu-node-5")
    for glyphs, cells in ((UNICODE, ("█▓░·", "!?X", "░")), (ASCII, ("#=-.", "!?X", "-"))):
        legend, first = map(text_of, strip(shown, 140, 9, glyphs))
        assert legend.startswith(f"gpu-node-{glyphs.ellipsis} {cells[0][0]} used  {cells[0][1]} use unknown  ")
        assert legend.endswith("! used outside Kubernetes  ? holder unknown  X failing or gone  ")
        words = first.split()
        assert dict(zip(words[::2], words[1::2], strict=True)) == {
            "2": cells[0],
            "10": cells[1],
            "3": "X",
            "4": cells[2],
            "5": "missing",
        }


# issue 22, line 15
def test_nodes_are_in_the_order_in_which_people_count() -> None:
    shown = cluster({f"n-{number}": [{"state": "used"}] for number in (1, 10, 11, 2)}, missing="n-3")
    _, first = map(text_of, strip(shown, 140, 9, UNICODE))
    assert first.split()[::2] == ["1", "2", "3", "10", "11"]
    assert [of.node for of in chosen_devices(shown.devices, State())] == ["n-1", "n-2", "n-10", "n-11"]


# issue 32, "top"
def test_of_too_many_nodes_those_with_most_to_look_at_stay() -> None:
    used = [{"state": "used"}] * 8
    gpus = {f"n-{number:03}": [*used] for number in range(500)}
    gpus["n-321"][3] = {"state": "idle"}
    gpus["n-444"][3] = {"state": "free", "health": "failing"}
    lines = [text_of(line) for line in strip(cluster(gpus, missing="n-500"), 80, 4, UNICODE)]
    assert len(lines) == 4
    assert "321 ███░████" in lines[1] + lines[2]
    assert "444 ███X████" in lines[1] + lines[2]
    assert "500 missing" in lines[1] + lines[2]
    assert lines[3] == "and 491 more nodes, with less to look at"
    alone = cluster({"n-1": used})
    assert [*strip(alone, 80, 9, UNICODE)] == [], "one node's table is as short"


# issue 15, line 25
def test_what_was_read_before_the_hands_changed_is_marked() -> None:
    moment = "2026-11-22T20:00:00.000Z"
    rows = [{**row("", used=1, free=1, util=92, gpu_shared=False), "holder_since": moment, "read_at": moment}]
    shown = shown_by("node", "u", mapping("copy"), rows, "")
    lines = draw(shown, State(), 120, UNICODE).lines
    words = "".join(span.text for span in lines[-1]).split()
    assert "before" in words
    assert "92%" in words
    assert document(shown, State())["devices"][0]["before"] is True


DEVICES = [
    ShownDevice(node="n", gpu="0", uuid="GPU-0", utilization_percent=None, power_watts=70),
    ShownDevice(node="n", gpu="10", uuid="GPU-10", utilization_percent=5, power_watts=None, state=DeviceState.IDLE),
    ShownDevice(node="n", gpu="2", uuid="GPU-2", utilization_percent=99, power_watts=700),
]


@pytest.mark.parametrize(
    ("state", "order"),
    [
        (State(), ["0", "2", "10"]),
        (State(reverse=True), ["10", "2", "0"]),
        (State(sort="utilization"), ["2", "10", "0"]),
        (State(sort="utilization", reverse=True), ["10", "2", "0"]),  # the unknown stays last
        (State(sort="watts"), ["2", "0", "10"]),
        (State(sort="idle"), ["10", "0", "2"]),
        (State(filter="idle gpu-1"), ["10"]),
    ],
)
def test_order(state: State, order: list[str]) -> None:
    assert [device.gpu for device in chosen_devices(DEVICES, state)] == order


def idle(uuid: str, since: Any, used: float = 1) -> dict[str, Any]:
    more = {"device_uuid": uuid, "gpu_shared": False, "timestamp": "2026-11-01T12:00:00.000Z", "idle_since": since}
    return row(f"p{uuid}", used=used, free=1, util=0, **more)


# issue 20, "Idle since"
def test_the_idle_are_sorted_by_how_long_they_are() -> None:
    rows = [
        idle("1", "2026-11-01T11:50:00.000Z"),
        idle("2", None, used=9),  # an older exporter's, or not known
        idle("3", "2026-10-29T11:00:00.000Z"),
        idle("4", "soon"),
        idle("5", "2026-11-01T10:30:00.000Z"),
        row("busy", used=99, free=1, util=99, device_uuid="6", gpu_shared=False),
    ]
    shown = shown_by("node", "u", mapping("copy"), rows, "")
    state = State(sort="idle")
    assert [device.uuid for device in chosen_devices(shown.devices, state)] == ["3", "5", "1", "2", "4", "6"]
    lines = ["".join(span.text for span in line) for line in draw(shown, state, 120, UNICODE).lines]
    said = [
        next((word for word in ("idle 3d", "idle 1h", "idle 10min", "idle ") if word in line), "") for line in lines
    ]
    assert [word for word in said if word][-5:] == ["idle 3d", "idle 1h", "idle 10min", "idle ", "idle "]
    seconds = [device["owners"][0]["idle_seconds"] for device in document(shown, state)["devices"]]
    assert seconds == [3 * 86_400 + 3_600, 5_400, 600, None, None, None]


# issue 22, line 19: so the sample of the docs had it
def test_where_there_is_no_room_for_how_long_the_word_idle_is_whole() -> None:
    rows = [idle("1", "2026-11-01T11:50:00.000Z")]
    shown = shown_by("node", "u", mapping("copy"), rows, "")
    for width in range(30, 120):
        lines = ["".join(span.text for span in line) for line in draw(shown, State(), width, UNICODE).lines]
        (line,) = (line for line in lines if "p1" in line)
        assert "idle" in line, width
        assert "idle 10min" in line or "idle 1" not in line, width


def test_the_filter_is_typed_and_given_up() -> None:
    state = press(State(filter="old"), "/")
    for key in "q" * 2 * MOST_FILTER_CHARS:
        state = press(state, key)
    assert (len(state.filter), state.quits) == (MOST_FILTER_CHARS, False)
    assert press(state, "escape") == State(filter="old", before_typing="old")
    assert press(state, "quit").quits


def test_what_is_not_known_counts_for_nothing() -> None:
    shown = ShownExporter(role="cluster", url="u", devices=DEVICES)
    assert shown.counts == {
        "gpus": 3,
        "instances": 0,
        "held": 1,
        "idle": 1,
        "free": 2,
        "failing": 0,
        "outside": 0,
        "unknown": 0,
    }
    assert shown.totals == {
        "utilization_percent": 52,
        "memory_used_mib": None,
        "memory_total_mib": None,
        "power_watts": 770,
    }


# issue 30, line 15
def test_a_device_that_is_not_well_has_a_column_for_it() -> None:
    def screen(health: str, **more: Any) -> str:
        rows = [{**row, "health": health, **more} for row in ROWS]
        shown = shown_by("node", "http://x", MAPPING, rows, "")
        return "\n".join(map(text_of, draw(shown, State(), 200, ASCII).lines))

    assert "HEALTH" not in screen("ok")
    assert "HEALTH" in screen("gone")
    assert " gone " in screen("gone")
    assert " gone: XID 79 " in screen("gone", health_reasons=["Xid 79 (fallen off the bus) -> restart it"], last_xid=79)
    assert " failing " in screen("failing", health_reasons=["hot -> look"], last_xid=31)


# issue 26, part 1
def test_links_have_columns_for_their_traffic_and_their_errors() -> None:
    reason = "errors of NVLink on link 5 within the last hour: 200 replays"

    def screen(**more: Any) -> str:
        shown = shown_by("node", "http://x", MAPPING, [{**row, **more} for row in ROWS], "")
        return "\n".join(map(text_of, draw(shown, State(), 400, ASCII).lines))

    quiet = screen(nvlink_tx_bytes=0, nvlink_rx_bytes=0)
    assert "NVLINK" not in quiet
    assert "REASON" not in quiet
    assert "NVLINK" not in screen(nvlink_tx_bytes=9e9, nvlink_rx_bytes=None)
    assert re.search(r"NVLINK.*\n.* 150 GB/s ", screen(nvlink_tx_bytes=80e9, nvlink_rx_bytes=70e9))
    ill = screen(health="degraded", health_reasons=[f"{reason} -> look at the link", "hot -> look"])
    assert f" {reason}" in ill
    assert "look at" not in ill


def test_a_gpu_with_a_fan_of_its_own_has_a_column_for_it() -> None:
    def screen(fan: float | None) -> str:
        shown = shown_by("node", "http://x", MAPPING, [{**row, "fan_speed": fan} for row in ROWS], "")
        return "\n".join(map(text_of, draw(shown, State(), 200, ASCII).lines))

    assert "FAN" not in screen(None)
    assert re.search(r"FAN.*\n.* 0%", screen(0))
    assert " 45%" in screen(44.6)


# issue 22, line 7
@pytest.mark.parametrize(
    ("says", "xid"),
    [
        ({"last_xid": None, "xid_errors": 154}, None),
        ({"last_xid": 79, "xid_errors": 45}, 79),
        ({"xid_errors": 79}, 79),  # an older exporter
        ({"xid_errors": 0}, None),
    ],
)
def test_the_last_xid_is_the_exporter_s(says: dict[str, int | None], xid: int | None) -> None:
    rows = [{**{name: value for name, value in ROWS[0].items() if name != "last_xid"}, **says}]
    assert [device.xid for device in shown_by("node", "http://x", MAPPING, rows, "").devices] == [xid]


def charted(device: ShownDevice, history: DeviceHistory, rows: int, glyphs: Glyphs = UNICODE) -> dict[str, list[str]]:
    """The ten last columns of each chart, from above, by its title."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in map(text_of, charts(device, history, (78, rows), 2.0, glyphs)):
        title = line[:5].strip() or title
        found.setdefault(title, []).append(line[-10:])
    return found


# issue 32, "top"
def test_a_chart_has_what_was_seen_and_nothing_where_nothing_was() -> None:
    history = DeviceHistory()
    percents = (0, 50, 100, None, None, 25)  # one each five seconds, of which a column is made
    for number, percent in enumerate(percents):
        device = ShownDevice(node="n", gpu="0", uuid="GPU-0", utilization_percent=percent, power_watts=70)
        history.add([device], 1000.0 + 5 * number)
    assert charted(device, history, 3) == {"UTIL": ["    ▁▄█  ▂"], "POWER": ["    ██████", "       now"]}
    assert charted(device, history, 5)["UTIL"] == ["      █   ", "    ▁██  ▄"]
    assert charted(device, history, 3, ASCII)["UTIL"] == ["    _:#  ."]
    # a reading may be late, but not for long
    history.add([replace(device, utilization_percent=50)], 1050.0)
    assert charted(device, history, 3)["UTIL"] == ["▄█  ▂▂▂  ▄"]
    history.add([], 1000.0 + SECONDS + 90)
    assert "nothing of it has been read yet" in "".join(
        text_of(line) for line in charts(device, history, (78, 3), 2.0, UNICODE)
    )


# issue 32, "top"
def test_the_history_stays_with_its_device_however_the_lines_are_sorted() -> None:
    history = DeviceHistory()
    shown = ShownExporter(role="cluster", url="u", devices=DEVICES)

    def title(state: State) -> tuple[str, State]:
        lines, state = frame(shown, "", state, (80, 24), 2.0, UNICODE, history)
        return text_of(lines[0]), state

    _, state = title(press(press(State(), "down"), "down"))
    said, state = title(press(state, "enter"))
    assert "GPU 10 " in said
    said, state = title(press(state, "u"))
    assert ("GPU 10 " in said, state.cursor) == (True, 1)
    said, state = title(press(state, "up"))
    assert "GPU 2 " in said
    said, state = title(replace(state, filter="GPU-10"))
    assert "not there any more, or the filter leaves it out" in said
    assert press(state, "escape").view == "devices"
