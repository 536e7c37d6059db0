"""The exporter under clocks that step: they are ahead of the machine's by the seconds that a file holds.

    python -m tests.support.stepping_clock wall|monotonic FILE serve …

`wall` is `time.time()`. `monotonic` is the clock by which the exporter waits: a step is time that has passed, although
files and others' clocks do not say so. Only what the exporter itself takes from `time` is exchanged: gRPC works out
deadlines from `time.time()` and from the machine's clock, which would no longer agree, and the event loop has its own.
"""

import builtins
import sys
import time
import types
from collections.abc import Callable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path


def exchange(functions: Mapping[str, object]) -> None:
    """Make every module of the program that is imported from now on see these functions in place of those of `time`."""
    early = [name for name in sys.modules if name.startswith("exporter.")]
    assert not early, f"imported with the machine's clock: {early}"
    stepping = types.ModuleType("time")
    stepping.__dict__.update(vars(time))
    stepping.__dict__.update(functions)

    def import_module(name: str, *more: object) -> object:
        return stepping if name == "time" else builtins.__import__(name, *more)  # type: ignore[arg-type]  # as called

    names = {**vars(builtins), "__import__": import_module}
    run = SourceFileLoader.exec_module

    def exec_module(loader: SourceFileLoader, module: types.ModuleType) -> None:
        if module.__name__.partition(".")[0] == "exporter":
            vars(module)["__builtins__"] = names
        run(loader, module)

    SourceFileLoader.exec_module = exec_module  # type: ignore[assignment,method-assign]  # of this loader


def ahead(name: str, file: Path) -> Callable[[], float]:
    """A function of `time` that is ahead of the machine's clock by the seconds in the file."""
    real = getattr(time, name)
    times = 10**9 if name.endswith("_ns") else 1
    return lambda: real() + float(file.read_text() or 0) * times


if __name__ == "__main__":
    which, given = sys.argv[1], Path(sys.argv[2])
    given.touch()
    clocks = {"wall": ("time",), "monotonic": ("monotonic", "monotonic_ns")}[which]
    exchange({name: ahead(name, given) for name in clocks})
    from exporter.cli.main import run

    sys.exit(run(sys.argv[3:]))
