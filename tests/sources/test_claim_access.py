"""Whether claims have admin access: the driver's checkpoint as a file, and the API for what it lacks."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import Unavailable
from exporter.model.devices import Assignment
from exporter.ownership.admin_access import AdminAccess
from exporter.sources import claim_access as source_of_claims
from exporter.sources.claim_access import AGAIN_SECONDS, Claims, ClaimsApi, NoClaimsApi, checkpoint_beside
from exporter.sources.source import NoSource, OptionalSource, absent, is_absent
from tests.ownership.test_admin_access import HOLDING, LOOKING, claim, device, given, results
from tests.support.waiting import until

ONE, TWO = given("dcgm-exporter", claim("c", LOOKING)), given("train", claim("t", HOLDING, namespace="ml"))


class Api(NoSource):
    """It knows these claims, and `asked` are those that it was asked for."""

    def __init__(self, **known: tuple[str, AdminAccess]) -> None:
        super().__init__("resourceclaims", absent("", ""))
        self.known = known
        self.asked: list[str] = []

    async def get(self, namespace: str, name: str) -> tuple[str, AdminAccess]:
        self.asked.append(f"{namespace}/{name}")
        if name not in self.known:
            raise Unavailable("refused", "no right", remedy="give it")
        return self.known[name]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def checkpoint(**claims: dict[str, Any]) -> str:
    prepared = {uid.replace("_", "-"): {"status": status} for uid, status in claims.items()}
    return json.dumps({"checksum": 1, "v2": {"checksum": 2, "preparedClaims": prepared}})


BOTH = checkpoint(**{LOOKING: results(("gpu-0", True)), HOLDING: results(("gpu-0", None))})
Make = Callable[..., Claims]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "plugins" / "gpu.nvidia.com"
    folder.mkdir(parents=True)
    return folder / "checkpoint.json"


@pytest.fixture
async def make(path: Path) -> Any:
    made: list[Claims] = []

    def source(api: ClaimsApi | None = None, clock: Clock | None = None) -> Claims:
        by_api: OptionalSource[ClaimsApi] = OptionalSource(lambda: api, NoClaimsApi())
        new = Claims(path=str(path), api=by_api, admin_namespaces=(), on_health=lambda *_: None, clock=clock or Clock())
        made.append(new)
        return new

    yield source
    for each in made:
        await each.close()


async def ask(source: Claims, *assignments: Assignment) -> None:
    attempt = source.begin(frozenset(assignments))
    if attempt is not None:
        await attempt


def looks(source: Claims) -> list[bool]:
    return [source.facts.is_look(each.claim) for each in (ONE, TWO) if each.claim]


@pytest.mark.parametrize(
    ("socket", "expected"),
    [
        ("/var/lib/kubelet/pod-resources/kubelet.sock", "/var/lib/kubelet/plugins/gpu.nvidia.com/checkpoint.json"),
        ("/run/x/kubelet.sock", "/run/x/plugins/gpu.nvidia.com/checkpoint.json"),
    ],
)
def test_the_checkpoint_lies_in_the_kubelets_folder(socket: str, expected: str) -> None:
    assert checkpoint_beside(socket) == expected


# issue 22, line 32
async def test_the_checkpoint_is_read_when_there_is_a_new_claim(make: Make, path: Path) -> None:
    path.write_text(BOTH)
    source, api = make(), Api()
    assert is_absent(source.health)
    await ask(source)
    assert is_absent(source.health), "nothing is read without a claim"
    await ask(source, ONE, TWO)
    assert (looks(source), source.health.up) == ([True, False], True)
    assert source.facts.asked_of == {ONE.claim, TWO.claim}
    known = source.facts
    path.unlink()
    await ask(source, ONE, TWO)
    await ask(source, TWO)
    assert source.facts is not known
    assert source.facts.by_uid == {HOLDING: {device("gpu-0"): False}}, "only what is in force is kept"
    assert api.asked == []


# issue 22, line 32
async def test_the_api_is_asked_once_for_what_the_checkpoint_lacks(make: Make, path: Path) -> None:
    path.write_text(checkpoint(**{HOLDING: results(("gpu-0", None))}))
    api = Api(c=(LOOKING, {device("gpu-0"): True}))
    source = make(api)
    await ask(source, ONE, TWO)
    await ask(source, ONE, TWO)
    await ask(source, ONE)
    assert (looks(source), api.asked) == ([True, False], ["monitoring/c"])


# issue 22, line 32
async def test_what_nobody_said_is_asked_again_after_a_while_and_nobody_waits(
    make: Make, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, api = Clock(), Api()
    source = make(api, clock)
    assignments = frozenset({ONE})
    first = source.begin(assignments)
    assert first is not None
    await first
    assert source.begin(assignments) is None
    assert looks(source) == [False, False]
    assert source.facts.asked_of == {ONE.claim}
    path.write_text(BOTH)
    clock.now = AGAIN_SECONDS
    assert source.begin(assignments) is None
    await until(lambda: looks(source)[0])
    clock.now += AGAIN_SECONDS
    assert source.begin(assignments) is None
    assert api.asked == ["monitoring/c"]
    assert caplog.text.count("whether a claim has admin access is not known") == 1


# issue 22, line 32
async def test_claims_that_come_during_a_question_are_asked_of_too(make: Make, path: Path) -> None:
    path.write_text(BOTH)
    source = make()
    first = source.begin(frozenset({ONE}))
    both = frozenset({ONE, TWO})
    second = source.begin(both)
    assert first is not None
    assert second is first
    await first
    assert source.facts.asked_of == {ONE.claim, TWO.claim}
    assert source.begin(both) is None


# issue 22, line 32
async def test_a_file_that_is_being_written_is_read_again(
    make: Make, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(BOTH[:-20])
    read, reads = source_of_claims._read_file, 0

    def written_meanwhile(name: str) -> Any:
        nonlocal reads
        reads += 1
        if reads == 3:
            path.write_text(BOTH)
        return read(name)

    monkeypatch.setattr(source_of_claims, "_read_file", written_meanwhile)
    source = make()
    await ask(source, ONE)
    assert (looks(source)[0], source.health.up, reads) == (True, True, 3)


# issue 22, line 32
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (BOTH[:-20], "cannot be used"),
        ("[]", "none of v1, v2"),
        ("[" * 100_000, "cannot be used"),
        ("\x00", "cannot be used"),
    ],
)
async def test_a_file_that_cannot_be_used_is_said_and_what_was_known_stays(
    make: Make, path: Path, content: str, says: str
) -> None:
    path.write_text(BOTH)
    source = make()
    await ask(source, ONE)
    path.write_text(content)
    await ask(source, ONE, TWO)
    assert looks(source)[0]
    assert source.health.up is False
    assert source.health.reason == "garbage"
    assert says in source.health.message
    path.write_text(BOTH)
    await ask(source, TWO, given("new", claim("n", LOOKING.replace("a", "f"))))
    assert source.health.up is True


@pytest.mark.parametrize("make_it", [lambda path: path.mkdir(), os.mkfifo])
async def test_what_is_no_file_is_said(make: Make, path: Path, make_it: Callable[[Path], None]) -> None:
    make_it(path)
    source = make()
    await ask(source, ONE)
    assert (source.health.up, source.health.reason) == (False, "permission")
    assert "cannot be read" in source.health.message


async def test_a_file_that_is_too_large_is_refused(make: Make, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(BOTH)
    monkeypatch.setattr(source_of_claims, "MOST_BYTES", len(BOTH) - 1)
    source = make()
    await ask(source, ONE)
    assert "bytes" in source.health.message
