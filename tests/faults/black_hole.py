"""A watch of pods whose API server falls into a black hole, in network namespaces of their own.

Run as root under `unshare --net`: this namespace is the exporter's, a second one the API server's. Then the server's
packets to us are thrown away by a route, so nothing comes back from it: no answer, no acknowledgement, no refusal.
Prints two lines: how many seconds an idle watch was still called up, and how long a request waited that was sent into
the hole on a connection kept from before.
"""

import asyncio
import os
import subprocess
import sys
import time
from contextlib import suppress

from exporter.errors import SourceError
from exporter.sources.kubernetes.api import KubernetesApi
from exporter.sources.kubernetes.node_objects import ApiPods
from tests.support.components import real
from tests.support.places import ROOT
from tests.support.simulated import World
from tests.support.simulated_api import SimulatedApi

NODE = "gpu-node-1"
OURS, THEIRS = "192.0.2.1", "192.0.2.2"  # TEST-NET-1 (RFC 5737)
PORT = 6443


async def lines_of_a_fall() -> dict[str, str]:
    """What this program prints, by the first word."""
    for program in ("unshare", "nsenter", "ip"):
        real(program)
    if os.geteuid() != 0:
        real("root-to-make-network-namespaces-with")
    process = await asyncio.create_subprocess_exec(
        "unshare", "--net", sys.executable, "-m", "tests.faults.black_hole", stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        async with asyncio.timeout(100):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return dict(line.split(" ", 1) for line in output.decode().splitlines())


def run(*command: str) -> None:
    subprocess.run(command, check=True)


async def serve() -> None:
    """The API server: on every address of its namespace. It says where it is ready, and waits to be ended."""
    api = SimulatedApi(World(gpus=1, seed=1), node_name=NODE)
    await api.start(PORT, host="0.0.0.0")  # noqa: S104 - in a namespace of its own
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def fall() -> None:
    server = await asyncio.create_subprocess_exec(
        "unshare", "--net", sys.executable, "-m", "tests.faults.black_hole", "serve",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    assert await server.stdout.readline() == b"ready\n"
    theirs = ("nsenter", "--net", "--target", str(server.pid))
    run("ip", "link", "add", "ours", "type", "veth", "peer", "name", "theirs", "netns", str(server.pid))
    run("ip", "address", "add", f"{OURS}/24", "dev", "ours")
    run("ip", "link", "set", "ours", "up")
    run(*theirs, "ip", "address", "add", f"{THEIRS}/24", "dev", "theirs")
    run(*theirs, "ip", "link", "set", "theirs", "up")
    url = f"http://{THEIRS}:{PORT}"
    watching, asking = (KubernetesApi(url=url, token_file="/x", ca_file="/x") for _ in range(2))
    pods = ApiPods(api=watching, node_name=NODE, on_health=lambda *_: None)
    try:
        first = pods.begin()
        assert first is not None
        await first
        await asking.list("/api/v1/pods", {})
        assert pods.health.up
        run(*theirs, "ip", "route", "add", "blackhole", f"{OURS}/32")
        began = time.monotonic()
        await asyncio.gather(until_down(pods, began), until_refused(asking, began))
    finally:
        await pods.close()
        await asking.close()
        with suppress(ProcessLookupError):
            server.kill()
        await server.wait()


async def until_down(pods: ApiPods, began: float) -> None:
    while pods.health.up:
        await asyncio.sleep(0.1)
    print(f"watch {time.monotonic() - began:.1f} {pods.health.message}", flush=True)


async def until_refused(api: KubernetesApi, began: float) -> None:
    """A watch, which has no time of its own in which it must be answered."""
    try:
        async for _ in api.lines("/api/v1/pods", {"watch": "1"}, lambda: None):
            pass
    except SourceError as error:
        print(f"request {time.monotonic() - began:.1f} {error}", flush=True)


if __name__ == "__main__":
    asyncio.run(serve() if "serve" in sys.argv else fall())
