"""KEDA's port of the cluster role as a process."""

import asyncio
import re
import signal
import sys

import grpc.aio

from tests.support.exporter import Start
from tests.support.keda import Keda

TRIGGER = {"metric": "gpu_utilization", "target": "70", "workload": "deployment:trainer"}


async def test_a_signal_ends_a_stream_without_an_error_and_the_process_cleanly(start: Start) -> None:
    node = await start(node_name="gpu-1")
    command = (sys.executable, "-m", "exporter", "cluster", f"--cluster.node=gpu-1={node.base}")
    where = ("--web.listen-address=127.0.0.1:0", "--keda.listen-address=127.0.0.1:0")
    process = await asyncio.create_subprocess_exec(*command, *where, stderr=asyncio.subprocess.PIPE)
    try:
        assert process.stderr is not None
        address = ""
        while not address:
            line = (await asyncio.wait_for(process.stderr.readline(), 20)).decode()
            if found := re.search(r'msg="listening for KEDA" address=(\S+) tls=False', line):
                address = found[1]
        async with grpc.aio.insecure_channel(address) as channel:
            keda = Keda(channel, TRIGGER, namespace="no-such-namespace")
            assert await keda.value("gpu_utilization") == 0.0
            stream = keda.stream()
            assert (await stream.read()).result is False
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(stream.read(), 10) is grpc.aio.EOF
            _, rest = await asyncio.wait_for(process.communicate(), 20)
        assert process.returncode == 0
        assert b"has a GPU: its value is 0" in rest
        assert b"Traceback" not in rest
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
