"""The exporter under a wall clock that steps: its `time.time()` is shifted by the seconds that a file holds.

    python -m tests.support.stepping_clock FILE serve …

Only what the exporter itself takes from `time` is exchanged: gRPC works out deadlines from `time.time()` and from the
machine's clock, which would no longer agree.
"""

import importlib
import pkgutil
import sys
import time
import types
from collections.abc import Mapping
from pathlib import Path


def exchange(functions: Mapping[str, object]) -> None:
    """Import the whole program with these in place of those of `time`."""
    for foreign in ("aiohttp.web", "asyncio", "grpc.aio", "logging", "prometheus_client", "tempfile"):
        importlib.import_module(foreign)
    stepping = types.ModuleType("time")
    stepping.__dict__.update(vars(time))
    stepping.__dict__.update(functions)
    sys.modules["time"] = stepping
    import exporter  # noqa: PLC0415

    for module in pkgutil.walk_packages(exporter.__path__, "exporter."):
        if not module.name.startswith("exporter.__main__"):
            importlib.import_module(module.name)
    sys.modules["time"] = time


if __name__ == "__main__":
    given = Path(sys.argv[1])
    given.touch()
    exchange({"time": lambda: time.time() + float(given.read_text() or 0)})
    from exporter.cli.main import run

    sys.exit(run(sys.argv[2:]))
