"""Node exporters that lie, flood, stall or change their minds: each costs itself, and nobody else."""

import asyncio
import gzip
import json
import time
from contextlib import suppress

import pytest

from exporter.cluster.exporters import known_nodes
from exporter.cluster.exporters.exporters_source import MOST_IN_FLIGHT_BYTES
from exporter.cluster.exporters.node_answer import MOST_ROWS
from exporter.config.http_file import HttpConfig
from exporter.sources.exporters.asking import ExporterClient
from tests.cluster.exporters.conftest import Make, Respond, Serve, good, head, round_of, says, whole
from tests.cluster.exporters.test_node_answer import row
from tests.support.waiting import until

TIMEOUT_SECONDS = 1.5


def rows(count: int) -> bytes:
    return json.dumps([row(number, node_name="bad") for number in range(count)]).encode()


async def flood(writer: asyncio.StreamWriter, _: str) -> None:
    """100 MB, as fast as they are taken."""
    writer.write(head("Content-Length: 100000000"))
    with suppress(ConnectionError):
        for _number in range(100):
            writer.write(b"[" + b" " * 999_999)
            await writer.drain()


async def drip(writer: asyncio.StreamWriter, _: str) -> None:
    """A byte now and then, for ever."""
    writer.write(head("Transfer-Encoding: chunked"))
    with suppress(ConnectionError):
        while True:
            writer.write(b"1\r\n[\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)


async def drip_headers(writer: asyncio.StreamWriter, _: str) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    with suppress(ConnectionError):
        while True:
            writer.write(b"X-More: 1\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)


async def endless_headers(writer: asyncio.StreamWriter, _: str) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    with suppress(ConnectionError):
        while True:
            writer.write(b"X-More: " + b"x" * 8000 + b"\r\n")
            await writer.drain()


async def hang_up(writer: asyncio.StreamWriter, _: str) -> None:
    writer.write(head("Content-Length: 1000") + b"[")
    writer.close()


async def never(_: asyncio.StreamWriter, __: str) -> None:
    await asyncio.sleep(3600)


def bomb(megabytes: int) -> bytes:
    return whole(gzip.compress(b"[" + b" " * (megabytes * 1_000_000)), "Content-Encoding: gzip")


HOSTILE: dict[str, tuple[Respond, str, str]] = {
    "nonsense": (says(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "garbage", "does not answer in HTTP"),
    "a page": (says(whole(b"<html>")), "garbage", "not a JSON array"),
    "nothing": (says(whole(b"")), "garbage", "not a JSON array"),
    "100 MB": (flood, "oversize", "more than --cluster.max-bytes 1000000"),
    "a drip": (drip, "deadline", f"no whole answer within {TIMEOUT_SECONDS} s"),
    "a drip of headers": (drip_headers, "deadline", f"no whole answer within {TIMEOUT_SECONDS} s"),
    "endless headers": (endless_headers, "garbage", "does not answer in HTTP"),
    "never": (never, "deadline", f"no whole answer within {TIMEOUT_SECONDS} s"),
    "cut off": (hang_up, "truncated", "cut off"),
    "a gzip bomb": (says(bomb(200)), "oversize", "more than --cluster.max-bytes"),
    "no gzip": (says(whole(b"[]", "Content-Encoding: gzip")), "encoding", "not gzip"),
    "another encoding": (says(whole(b"[]", "Content-Encoding: br")), "encoding", "was not asked for"),
    "a redirect": (
        says(whole(b"", "Location: http://169.254.169.254/", status="302 Found")),
        "http_status",
        "asked elsewhere",
    ),
    "a refusal": (says(whole(b"", status="401 Unauthorized")), "permission", "HTTP status 401"),
    "another path": (says(whole(b"", status="404 Not Found")), "http_status", "404"),
    "no samples": (
        says(whole(b'{"error": "all\\nfailed"}', status="503 Service Unavailable")),
        "http_status",
        "HTTP status 503: all failed",
    ),
    "an endless refusal": (
        says(head("Content-Length: 100000000", status="500 Internal") + b"x" * 5000),
        "http_status",
        "HTTP status 500",
    ),
    "another node's name": (good("good"), "garbage", "answers as the node 'good'"),
    "10,000 rows": (says(whole(rows(10_000))), "oversize", "more than"),
    "many rows": (says(whole(rows(MOST_ROWS + 1))), "oversize", "more than"),
}


@pytest.mark.parametrize("kind", HOSTILE)  # issue 11, "Must show" 5
async def test_a_hostile_exporter_costs_only_itself(kind: str, serve: Serve, make: Make) -> None:
    respond, reason, message = HOSTILE[kind]
    most = 20_000_000 if "rows" in kind else 1_000_000
    source = make(
        ("bad", await serve(respond)),
        ("good", await serve(good("good"))),
        # a busy machine answers late: only who never answers has little time
        timeout_seconds=TIMEOUT_SECONDS if reason == "deadline" else 30.0,
        max_bytes=most,
    )
    for asked in (1, 2):
        await round_of(source)
        view = source.view
        assert view.missing == ("bad",)
        trouble = view.nodes["bad"].trouble
        assert trouble is not None
        assert (trouble.reason, message in trouble.message) == (reason, True), trouble
        assert "\n" not in str(trouble)
        assert trouble.remedy
        assert [device.row.gpu_utilization for device in view.nodes["good"].devices] == [asked, asked]
    assert source._client.in_flight.used == 0


async def test_an_exporter_of_changing_names_never_counts_as_two(serve: Serve, make: Make) -> None:
    """Its first word holds: a Service's address, behind which are several exporters, is no node."""
    asked = 0

    async def respond(writer: asyncio.StreamWriter, request: str) -> None:
        nonlocal asked
        asked += 1
        await good(f"node-{asked}")(writer, request)

    source = make(("", await serve(respond)), max_age_seconds=0.2)
    await round_of(source)
    assert list(source.view.nodes) == ["node-1"]
    await round_of(source)
    await until(lambda: source.view.missing)
    assert list(source.view.nodes) == ["node-1"]
    trouble = source.view.nodes["node-1"].trouble
    assert trouble is not None
    assert "answers as the node 'node-2', and is the exporter of 'node-1'" in trouble.message
    assert "--cluster.service" in trouble.remedy


async def test_a_name_that_is_given_wins_over_one_that_is_claimed(serve: Serve, make: Make) -> None:
    honest, liar = await serve(good("a", pod="honest")), await serve(good("a", pod="liar"))
    source = make(("", liar), ("a", honest))
    await round_of(source)
    assert source.view.missing == (liar.removeprefix("http://"),)
    assert {device.row.pod for device in source.view.nodes["a"].devices} == {"honest"}


# issue 11, "Must show" 4
async def test_those_that_stall_delay_nobody(serve: Serve, make: Make) -> None:
    """Far more of them than are begun at a time; a good one is asked last."""
    stalled = await serve(never)
    nodes = [(f"a{number}", stalled) for number in range(200)]
    source = make(*nodes, ("z", await serve(good("z"))), timeout_seconds=30.0)
    started = time.monotonic()
    await source.begin()
    await until(lambda: not source.view.nodes["z"].is_missing)
    assert time.monotonic() - started < 25  # one after the other they would take minutes
    assert len(source.view.missing) == 200
    assert len(source._asks) == 200


async def test_the_largest_answer_goes_where_all_together_are_too_many(
    serve: Serve, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_nodes, "MOST_KEPT_BYTES", 300_000)
    nodes = [(f"n{number}", await serve(good(f"n{number}"))) for number in range(20)]
    source = make(("bad", await serve(says(whole(rows(90))))), *nodes)
    await round_of(source)
    assert source.view.missing == ("bad",)
    trouble = source.view.nodes["bad"].trouble
    assert trouble is not None
    assert (trouble.reason, "its answer is the largest" in trouble.message) == ("oversize", True)
    assert source.bounds["answers_kept_bytes"].used() <= 300_000


async def test_the_largest_of_what_comes_at_a_time_goes(serve: Serve) -> None:
    assert MOST_IN_FLIGHT_BYTES >= 4_000_000
    asking = ExporterClient(timeout_seconds=30, max_bytes=10_000_000, http=HttpConfig(), most_in_flight_bytes=600_000)

    others_came = asyncio.Event()

    async def slowly(writer: asyncio.StreamWriter, _: str) -> None:
        writer.write(head("Content-Length: 1000000") + b" " * 500_000)
        await others_came.wait()
        writer.write(b" " * 500_000)

    large = asyncio.create_task(asking.ask(await serve(slowly)))
    await until(lambda: asking.in_flight.used >= 500_000)
    small = await asking.ask(await serve(says(whole(b" " * 200_000))))
    assert len(small) == 200_000
    others_came.set()
    with pytest.raises(Exception, match="the largest of many"):
        await large
    assert asking.in_flight.used == 0
    await asking.close()
