"""The simulated kubelet as a process of its own, which a test can kill, stop and start like a real one.

    python -m tests.support.kubelet_process SOCKET CONTROL [--empty SECONDS] [--partial SECONDS]

CONTROL is a JSON file that is read for every call: {"pods": …, "offers": [[resource, id]], "failure": [code, text],
"raw_megabytes": 65, "gone": ["v1"], "api_away": true}. The number of calls is written to the file `calls` beside it.
SIGTERM ends the process in an orderly way.
"""

import argparse
import asyncio
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from exporter.simulator.parts import Container, Pod
from tests.support.simulated import SimulatedKubelet


def pods_to_json(pods: Sequence[Pod]) -> list[dict[str, Any]]:
    """Pods and the devices of their containers, for CONTROL."""
    return [
        {
            "namespace": pod.namespace,
            "name": pod.name,
            "containers": {container.name: list(container.devices) for container in pod.containers},
        }
        for pod in pods
    ]


def pods_from_json(pods: Sequence[dict[str, Any]]) -> tuple[Pod, ...]:
    """The pods that `pods_to_json` wrote; of containers only names and devices are kept."""
    return tuple(
        Pod(
            namespace=pod["namespace"],
            name=pod["name"],
            containers=tuple(
                Container(name=name, devices=tuple((resource, device) for resource, device in devices))
                for name, devices in pod["containers"].items()
            ),
        )
        for pod in pods
    )


async def run(socket: Path, control: Path, *, empty_seconds: float, partial_seconds: float) -> None:
    """Answer on `socket` until SIGTERM comes, as the JSON file `control` says at each call."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    def pods() -> tuple[Pod, ...]:
        content = json.loads(control.read_text())
        code = content.get("failure")
        kubelet.failure = (grpc.StatusCode[code[0]], code[1]) if code else None
        kubelet.api_away = bool(content.get("api_away"))
        kubelet.gone = frozenset(content.get("gone", ()))
        written = control.parent / "calls.new"
        written.write_text(str(kubelet.calls))
        written.replace(control.parent / "calls")  # whoever reads it meanwhile reads a number
        megabytes = content.get("raw_megabytes")
        kubelet.raw_answer = None if megabytes is None else bytes(megabytes * 1024 * 1024)
        return pods_from_json(content["pods"])

    def offers() -> tuple[tuple[str, str], ...]:
        content = json.loads(control.read_text())
        return tuple((resource, device) for resource, device in content.get("offers", ()))

    kubelet = SimulatedKubelet(socket, pods, offers=offers)
    await kubelet.start(empty_seconds=empty_seconds, partial_seconds=partial_seconds)
    print("serving", flush=True)  # noqa: T201 - whoever started it waits for this
    await stop.wait()
    await kubelet.stop()


def main(words: Sequence[str] | None = None) -> None:
    """Read the command line, or `words` in place of it, and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("socket", type=Path)
    parser.add_argument("control", type=Path)
    parser.add_argument("--empty", type=float, default=0.0)
    parser.add_argument("--partial", type=float, default=0.0)
    given = parser.parse_args(words)
    asyncio.run(run(given.socket, given.control, empty_seconds=given.empty, partial_seconds=given.partial))


if __name__ == "__main__":
    main()
