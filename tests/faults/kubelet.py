"""What is done to the kubelet: each fault begins, lasts and is healed."""

import asyncio
import os
import signal
import stat
from contextlib import suppress

from tests.faults.lab import Lab, Run


def kubelet_restart(
    number: signal.Signals, down: float, *, unlink: bool = False, passes: float = 0.0, **starts: float
) -> Run:
    """The kubelet is down for so many seconds, and `passes` more by the exporter's clocks."""

    async def run(lab: Lab) -> None:
        inode = lab.socket.stat().st_ino
        await lab.end_kubelet(number)
        if unlink:
            lab.socket.unlink()
        await lab.hurt(down)
        if passes:
            await lab.step(passes)
        if unlink:
            reuse(lab, inode)
        await lab.start_kubelet(empty_seconds=starts.get("empty", 1.0), partial_seconds=starts.get("partial", 1.0))
        await asyncio.sleep(starts.get("empty", 1.0) + starts.get("partial", 1.0))
        lab.healed()

    return run


async def kubelet_without_api_server(lab: Lab) -> None:
    """A kubelet that starts without its API server: it answers, and lists no pod."""
    await lab.end_kubelet(signal.SIGKILL)
    lab.tell(api_away=True)
    await lab.hurt(1.0)
    await lab.start_kubelet()
    await lab.lists_again()
    await lab.step(62)
    await lab.lists_again()
    lab.tell()
    lab.healed()


def reuse(lab: Lab, inode: int) -> None:
    """Free this inode number last, so that a file system that reuses numbers gives it to the next file."""
    for number in range(50):
        probe = lab.sockets / f"probe-{number}"
        probe.touch()
        if probe.stat().st_ino == inode:
            probe.unlink()
            return


def kubelet_says(**answers: object) -> Run:
    async def run(lab: Lab) -> None:
        lab.tell(**answers)
        await lab.hurt(asked=lab.kubelet_calls)
        lab.tell()
        lab.healed()

    return run


async def kubelet_stopped(lab: Lab) -> None:
    lab.signal_kubelet(signal.SIGSTOP)
    await lab.hurt(8.0)
    lab.signal_kubelet(signal.SIGCONT)
    lab.healed()


async def no_permission(lab: Lab) -> None:
    await lab.end_kubelet(signal.SIGTERM)
    mine = lab.sockets.stat()
    os.chown(lab.sockets, 12345, 12345)
    lab.sockets.chmod(stat.S_IRWXU)
    await lab.hurt()
    os.chown(lab.sockets, mine.st_uid, mine.st_gid)
    lab.sockets.chmod(stat.S_IMODE(mine.st_mode))
    await lab.start_kubelet()
    lab.healed()


async def garbage_socket(lab: Lab) -> None:
    """Another program listens at the kubelet's socket, and speaks no gRPC."""
    await lab.end_kubelet(signal.SIGKILL)
    beside = lab.sockets / "other.sock"
    connections = 0

    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(ConnectionError):
            writer.write(b"\0\xff<html>" * 1000)
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(babble, beside)
    beside.rename(lab.socket)
    await lab.hurt(asked=lambda: connections)
    server.close()
    await lab.start_kubelet()
    lab.healed()


async def pods_gone(lab: Lab) -> None:
    """A pod ends: its series must lose its labels soon after the kubelet says so."""
    await lab.lists_again()
    owners = [pod for pod in lab.world.pods if any(container.devices for container in pod.containers)]
    await lab.expect(pods=tuple(pod for pod in lab.world.pods if pod is not owners[0]))
    lab.tell()
    lab.begins()
    lab.healed()


async def pod_gone_while_down(lab: Lab) -> None:
    """A pod ends while the kubelet is down: it keeps its labels for 10 s, the others keep theirs."""
    await lab.end_kubelet(signal.SIGKILL)
    await lab.hurt(1.0)
    assert lab.expected
    named = {(namespace, name) for _, name, namespace, _ in lab.expected.owned}
    gone = next(pod for pod in lab.world.pods if (pod.namespace, pod.name) in named)
    await lab.expect(pods=tuple(pod for pod in lab.world.pods if pod is not gone))
    lab.tell()
    await lab.start_kubelet(empty_seconds=0.5)
    lab.healed()


async def pod_gone_during_a_restart(lab: Lab) -> None:
    """A pod ends while the kubelet restarts: the new kubelet lists it once more, then no longer."""
    await lab.end_kubelet(signal.SIGKILL)
    await lab.hurt(1.0)
    await lab.start_kubelet(empty_seconds=0.5, partial_seconds=0.5)
    await asyncio.sleep(1.0)
    await lab.lists_again()
    await pods_gone(lab)
