"""A door of the README, run as written: in namespaces of its own, with a simulated node where the README says one is.

Run under `unshare --mount --net` as root. Argument: the command. The kubelet's socket and dcgm-exporter's page are at
their default places; a .prom file is at /run/prometheus. Prints what came of it: the page on :9400, or the file that
the command was told to write.
"""

import asyncio
import fcntl
import shlex
import socket
import struct
import subprocess
import sys
from pathlib import Path

import aiohttp

from exporter.simulator.dcgm import SimulatedDcgm
from tests.support.simulated import SimulatedKubelet, World

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
PROM_FILE = Path("/run/prometheus/dcgm.prom")
DROP = Path("/var/lib/prometheus/node-exporter/gpu.prom")


def isolate() -> None:
    """Empty folders where the node's are, and a loopback interface that is up."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for folder in ("/var/lib", "/run"):
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
    for path in (SOCKET, PROM_FILE, DROP):
        path.parent.mkdir(parents=True)
    with socket.socket() as any_socket:
        interface = struct.pack("16sh14x", b"lo", 1)  # struct ifreq: IFF_UP
        fcntl.ioctl(any_socket, 0x8914, interface)  # SIOCSIFFLAGS


async def main(command: str) -> None:
    isolate()
    world = World(gpus=2, shared=1, seed=3)
    kubelet = SimulatedKubelet(SOCKET, lambda: world.pods)
    await kubelet.start()
    await SimulatedDcgm(world).start(port=9401)
    beside = PROM_FILE.with_suffix(".swp")
    beside.write_text(SimulatedDcgm(world, generation="1").page())
    beside.replace(PROM_FILE)
    if " doctor" in command:
        doctor = await asyncio.create_subprocess_exec(*shlex.split(command))
        sys.exit(await doctor.wait())
    process = await asyncio.create_subprocess_exec(*shlex.split(command))
    try:
        print(await (the_drop() if " textfile " in command else the_page()))
    finally:
        process.terminate()
        await process.wait()


async def the_drop() -> str:
    while not DROP.exists():
        await asyncio.sleep(0.1)
    return DROP.read_text()


async def the_page() -> str:
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get("http://localhost:9400/gpu/metrics") as response:
                    if response.status == 200:
                        return await response.text()
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(main(sys.argv[1]), 30))
