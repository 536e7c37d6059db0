"""An hour of the demo in half a minute: its node and the real exporter, under a clock that jumps while they rest.

    python -m tests.support.quick_hour FILE SECONDS [FAILS_AFTER [SEED]]

writes what both pages answered every SCRAPES_APART seconds, as JSON: `[[gpu/metrics, metrics], …]`. The world, the
event loop and all that the exporter itself takes from `time` go by that clock; gRPC and the machine do not. So it jumps
only once the look is over that the jump before made due, and no call ends for lack of time. Pods come and go as with
`demo --speed 0.5`, by the demo's own scheduler, and none crashes. FAILS_AFTER is when a GPU is lost (see
`demo --fail`); SEED is the world's and the scheduler's.
"""

import asyncio
import json
import sys
import time
from dataclasses import replace
from math import inf
from pathlib import Path

from tests.support.stepping_clock import exchange

SCRAPES_APART = 30
STEP = 30
SPEED = 0.5
_BEAT_NS = STEP * 10**9
PATHS = ("/gpu/metrics", "/metrics")


class Jumps:
    """How far the clock is ahead of the machine's."""

    seconds = 0

    @classmethod
    def of(cls, name: str) -> object:
        """The function of `time` by this name, by that clock."""
        real = getattr(time, name)
        times = 10**9 if name.endswith("_ns") else 1
        return lambda: real() + cls.seconds * times


class _Loop(asyncio.SelectorEventLoop):
    def time(self) -> float:
        return super().time() + Jumps.seconds


async def pages(seconds: int, fails_after: float, seed: int) -> list[list[str]]:
    """What was answered."""
    from exporter.simulator.fail_flag import Fails  # noqa: PLC0415 - only now the clock is another one
    from exporter.simulator.scheduler import Scheduler  # noqa: PLC0415 - only now the clock is another one
    from exporter.simulator.simulated_node import SimulatedNode  # noqa: PLC0415 - only now the clock is another one
    from exporter.simulator.world import World  # noqa: PLC0415 - only now the clock is another one
    from exporter.sources.nvml.nvml_source import Nvml  # noqa: PLC0415 - only now the clock is another one
    from tests.node.test_accounting import node_of  # noqa: PLC0415 - only now the clock is another one
    from tests.support.exporter import config_of, running  # noqa: PLC0415 - only now the clock is another one
    from tests.support.node_parts import accounts_of, source_of  # noqa: PLC0415 - only now the clock is another one
    from tests.support.waiting import until  # noqa: PLC0415 - only now the clock is another one

    class Careful(Scheduler):
        """One whose pods do not crash."""

        def _crash(self) -> None:
            pass

    world = World(gpus=8, shared=2, mig=1, seed=seed, speed=SPEED)
    name = f"gpu-node-{seed}"
    node = SimulatedNode(world, name, collect_seconds=30.0, fails=Fails(gpu_seconds=fails_after))
    scheduler = Careful([world], [node.failure], seed=seed)
    answers: list[list[str]] = []
    try:
        await node.start(live=scheduler.live, step_seconds=STEP)
        node.nvml.load()
        config = config_of(
            node_name=name,
            kubelet_socket=str(node.socket),
            kubelet_timeout="60s",
            kubelet_pods_socket=str(node.pods_socket),
            kubernetes_url=node.api_url,
            dcgm_url=node.url,
            dcgm_timeout="60s",
            nvml_mode="auto",
            kernel_log_mode="on",
            # no pod has it: each is of its topmost controller, and the accounts say of which
            workload_labels=["workload"],
            accounting_interval=f"{STEP}s",
        )
        async with running(replace(config, root=str(node.root))) as exporter:
            watched = node_of(exporter.service)
            kept, nvml = accounts_of(watched), source_of(watched, Nvml)

            def is_at_rest() -> bool:
                looked_at = kept.looked_at_ns
                return looked_at is not None and kept.clock() - looked_at < _BEAT_NS

            await until(is_at_rest)
            for passed in range(0, seconds + 1, STEP):
                if passed % SCRAPES_APART == 0:
                    both = [await exporter.get(path) for path in PATHS]
                    assert [status for status, _ in both] == [200, 200], both
                    answers.append([text for _, text in both])
                # what NVML is asked meanwhile would seem to take so long
                await nvml.ended()
                Jumps.seconds += STEP
                await asyncio.sleep(0.01)
                await until(is_at_rest)
    finally:
        await node.stop()
    return answers


def main(file: Path, seconds: int, fails_after: float, seed: int) -> None:
    """Write the file."""
    names = ("time", "time_ns", "monotonic", "monotonic_ns")
    exchange({name: Jumps.of(name) for name in names})
    with asyncio.Runner(loop_factory=_Loop) as runner:
        file.write_text(json.dumps(runner.run(pages(seconds, fails_after, seed))))


if __name__ == "__main__":
    given = sys.argv[3:]
    main(Path(sys.argv[1]), int(sys.argv[2]), float(given[0]) if given else inf, int(given[1]) if given[1:] else 1)
