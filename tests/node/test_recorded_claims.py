"""A recording of a real kubelet and NVIDIA's DRA driver, replayed in front of the exporter: no API is asked.

List, spec files and restarts of kubelet and driver come in the recorded order, and after each change the exporter is
asked who holds which GPU.
"""

import json
import os
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest

from exporter.model.devices import Claim
from tests.ownership.test_claims_by_spec import DATA, UUIDS
from tests.support.exporter import Exporter, config_of, running
from tests.support.simulated import Container, Pod, SimulatedKubelet
from tests.support.waiting import until

SPEC = "k8s.gpu.nvidia.com-claim_"
TEMPLATE = "ab67d604-d5d8-40bc-aede-be0afee3f74c"


class Change(NamedTuple):
    """A row of the recording."""

    seconds: float
    source: str
    of: str
    what: str


@cache
def recording() -> list[Change]:
    rows = [line.split("\t") for line in (DATA / "timeline.tsv").read_text().splitlines()[1:]]
    return [Change(float(seconds), *of) for seconds, *of in rows]


def moments() -> list[list[Change]]:
    """What one answer of List said, or one look at the folder, goes together."""
    return [[*changes] for _, changes in groupby(recording(), lambda change: (change.seconds, change.source))]


class Replay:
    """The node of the recording, as far as it has been replayed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "var/run/cdi"
        self.folder.mkdir(parents=True)
        self.pods: dict[str, Pod] = {}
        self.is_restarting = False
        self.kubelet = SimulatedKubelet(root / "kubelet.sock", lambda: tuple(self.pods.values()))
        for minor, uuid in enumerate(UUIDS):
            gpu = root / f"proc/driver/nvidia/gpus/0000:{minor:02x}:00.0/information"
            gpu.parent.mkdir(parents=True)
            gpu.write_text(f"GPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
        rows = (f'DCGM_FI_DEV_GPU_TEMP{{gpu="{index}",UUID="{uuid}"}} 40\n' for index, uuid in enumerate(sorted(UUIDS)))
        page = root / "page.prom"
        page.write_text("".join(rows))
        # settled: a file that was written just now may not be whole
        os.utime(page, (time.time() - 60, time.time() - 60))

    async def apply(self, changes: list[Change]) -> None:
        for change in changes:
            await self._apply(change)

    async def _apply(self, change: Change) -> None:
        if change.what == "kubelet restarts":
            self.is_restarting = True
        elif change.of == "(socket)":
            await (self.kubelet.stop() if change.what.startswith("error") else self.kubelet.start())
        elif change.source == "pod-resources list" and change.what == "not listed":
            self.pods.pop(change.of)
        elif change.source == "pod-resources list":
            self.is_restarting = False
            self.pods[change.of] = listed(change.of, json.loads(change.what))
        elif change.source == "cdi file" and change.what == "gone":
            (self.folder / change.of).unlink()
        elif change.source == "cdi file":
            self.write(change.of)

    def write(self, name: str) -> None:
        """The recorded spec, or one of its form for the device that List names later."""
        recorded, uid = DATA / name, name.removeprefix(SPEC).removesuffix(".yaml")
        text = (recorded if recorded.exists() else DATA / f"{SPEC}{TEMPLATE}.yaml").read_text()
        if not recorded.exists():
            (device,) = {part.partition('"')[0] for change in recording() for part in change.what.split(f"{uid}-")[1:]}
            minor = device.removeprefix("gpu-")
            text = text.replace(TEMPLATE, uid).replace(f"{uid}-gpu-0", f"{uid}-{device}")
            text = text.replace("/dev/nvidia0", f"/dev/nvidia{minor}")
        (self.folder / name).write_text(text)

    def holders(self) -> dict[str, list[str]]:
        """The containers by the UUID of the device that List names."""
        held: dict[str, list[str]] = {}
        for name, pod in self.pods.items():
            for container in pod.containers:
                for claim in container.claims:
                    held.setdefault(UUIDS[int(claim.device[4:])], []).append(f"{name}/{container.name}")
        return {uuid: sorted(of) for uuid, of in held.items()}


def listed(pod: str, content: dict[str, list[dict[str, list[list[object]]]]]) -> Pod:
    containers = [
        Container(
            name=container,
            claims=tuple(
                Claim(
                    namespace="default",
                    name=name,
                    driver="gpu.nvidia.com",
                    pool=str(pool),
                    device=str(device),
                    cdi_names=cdi_names,
                )
                for claim in claims
                for name, devices in claim.items()
                for (pool, device, *_), cdi_names in zip(devices, own_names(devices), strict=True)
            ),
        )
        for container, claims in content.items()
    ]
    return Pod(namespace="default", name=pod, containers=tuple(containers))


def own_names(devices: list[list[object]]) -> list[tuple[str, ...]]:
    """What each entry names beyond the one before it: the simulated kubelet adds the others again."""
    lists = [tuple(map(str, names)) if isinstance(names, list) else () for *_, names in devices]
    return [names[len(before) :] for before, names in zip([(), *lists], lists, strict=False)]


@pytest.fixture
async def replay(tmp_path: Path) -> AsyncIterator[Replay]:
    made = Replay(tmp_path)
    await made.kubelet.start()
    yield made
    await made.kubelet.stop()


HELD = re.compile(r'UUID="([^"]+)",pod="([^"]+)",.*container="([^"]+)"')


async def owners(exporter: Exporter) -> dict[str, list[str]]:
    held: dict[str, list[str]] = {}
    for uuid, pod, container in HELD.findall(await exporter.page()):
        held.setdefault(uuid, []).append(f"{pod}/{container}")
    return {uuid: sorted(holders) for uuid, holders in held.items()}


# issue 18, lines 1 and 2
@pytest.mark.parametrize("starts_at", [0.0, 10.0, 13.5])
async def test_a_recording_replayed_names_every_device_at_every_moment(replay: Replay, starts_at: float) -> None:
    """Also where the exporter starts before, or right after, the kubelet's restart."""
    root, before = replay.root, [changes for changes in moments() if changes[0].seconds < starts_at]
    for changes in before:
        await replay.apply(changes)
    shown = [replay.holders()]
    config = config_of(
        kubelet_socket=str(root / "kubelet.sock"),
        kubelet_max_age="0s",
        dcgm_file=str(root / "page.prom"),
        dcgm_file_max_age="1h",
    )
    async with running(replace(config, root=str(root))) as exporter:
        for changes in moments()[len(before) :]:
            await replay.apply(changes)
            if replay.is_restarting:
                assert await owners(exporter) == shown[-1], changes
            else:
                expected, calls = replay.holders(), replay.kubelet.calls
                await until(partial(are_shown, exporter, expected))
                # time is pressed together here: a kubelet that restarted has said who is there before anybody goes
                await until(partial(was_asked, exporter, replay, calls))
                shown.append(expected)
        assert "resourceslices" not in json.loads((await exporter.get("/debug/mapping"))[1])["sources"]
    if starts_at == 0.0:
        assert max(len(of) for of in shown) == 7


async def was_asked(exporter: Exporter, replay: Replay, calls: int) -> bool:
    await owners(exporter)
    return replay.kubelet.calls > calls


async def are_shown(exporter: Exporter, expected: dict[str, list[str]]) -> bool:
    return await owners(exporter) == expected
