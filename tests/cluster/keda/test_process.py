"""KEDA's port of the cluster role as a process."""

import asyncio
import re
import signal
import sys

import grpc
import grpc.aio
import pytest

from tests.support.fixed_exporter import fixed_exporter
from tests.support.keda import Keda
from tests.support.waiting import until

TRIGGER = {"metric": "gpu_utilization", "target": "70", "workload": "deployment:eval-nightly"}


async def test_a_signal_ends_a_stream_without_an_error_and_the_process_cleanly() -> None:
    with fixed_exporter("node") as node:
        command = (sys.executable, "-m", "exporter", "cluster", f"--cluster.node=gpu-node-1={node.url}")
        where = ("--web.listen-address=127.0.0.1:0", "--keda.listen-address=127.0.0.1:0", "--cluster.timeout=10s")
        process = await asyncio.create_subprocess_exec(*command, *where, stderr=asyncio.subprocess.PIPE)
        try:
            await converse(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def converse(process: asyncio.subprocess.Process) -> None:
    """KEDA asks for a workload that is there and for one that is not, and holds a stream until the process is ended."""
    assert process.stderr is not None
    address = ""
    while not address:
        line = (await asyncio.wait_for(process.stderr.readline(), 20)).decode()
        if found := re.search(r'msg="listening for KEDA" address=(\S+) tls=False', line):
            address = found[1]
    async with grpc.aio.insecure_channel(address) as channel:
        # issue 22, line 17
        unknown = Keda(channel, TRIGGER, namespace="no-such-namespace")

        async def is_unknown() -> bool:
            """Whether it is refused as unknown, and no longer since the node has not answered yet."""
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await unknown.value("gpu_utilization")
            is_not_found = refused.value.code() == grpc.StatusCode.NOT_FOUND
            return is_not_found and "no pod of a workload" in (refused.value.details() or "")

        await until(is_unknown)
        keda = Keda(channel, TRIGGER, namespace="ml-research")
        assert await keda.value("gpu_utilization") > 0
        stream = keda.stream()
        assert (await stream.read()).result is True
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(stream.read(), 10) is grpc.aio.EOF
        _, rest = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0
    assert b"KEDA is answered with an error" in rest
    assert b"Traceback" not in rest
