"""The process itself, by the families that all clients of Prometheus have: memory, CPU, files, collections of garbage.

https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics names the first of them; those of Python
itself are called as by its own client. That one brings a server with it, and takes 1 MiB.
"""

import gc
import os
import platform
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from exporter.exposition.families import Family, Filled

_VIRTUAL = Family("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.")
_RESIDENT = Family("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.")
_STARTED = Family("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
_CPU = Family("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.")
_OPEN = Family("process_open_fds", "gauge", "Number of open file descriptors.")
_MOST_OPEN = Family("process_max_fds", "gauge", "Maximum number of open file descriptors.")
_PYTHON = Family(
    "python_info",
    "gauge",
    "Python platform information",
    ("implementation", "major", "minor", "patchlevel", "version"),
)
_COLLECTIONS = {
    "collected": Family("python_gc_objects_collected_total", "counter", "Objects collected during gc", ("generation",)),
    "uncollectable": Family(
        "python_gc_objects_uncollectable_total", "counter", "Uncollectable objects found during GC", ("generation",)
    ),
    "collections": Family(
        "python_gc_collections_total", "counter", "Number of times this generation was collected", ("generation",)
    ),
}
FAMILIES = (_VIRTUAL, _RESIDENT, _STARTED, _CPU, _OPEN, _MOST_OPEN, _PYTHON, *_COLLECTIONS.values())
# Of /proc/PID/stat, counted from behind the name, which may hold anything: ticks since the boot, bytes, pages.
_START, _VSIZE, _RSS = 19, 20, 21


class OwnProcess:
    """What there is to say of the process. Without /proc (a Mac, where the demo runs too) that is less."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._started_seconds = self._start()

    def filled(self) -> Iterator[Filled]:
        """The families, with what is so now."""
        stat = self._stat()
        if stat:
            yield Filled(_VIRTUAL, [((), float(stat[_VSIZE]))])
            yield Filled(_RESIDENT, [((), float(stat[_RSS]) * resource.getpagesize())])
        if self._started_seconds is not None:
            yield Filled(_STARTED, [((), self._started_seconds)])
        yield Filled(_CPU, [((), round(time.process_time(), 6))])
        with suppress(OSError):
            # the one that lists them is open meanwhile
            yield Filled(_OPEN, [((), sum(1.0 for _ in (self._proc / "self" / "fd").iterdir()) - 1)])
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most != resource.RLIM_INFINITY:
            yield Filled(_MOST_OPEN, [((), float(most))])
        version = platform.python_version()
        yield Filled(_PYTHON, [((platform.python_implementation(), *platform.python_version_tuple(), version), 1.0)])
        generations = list(enumerate(gc.get_stats()))
        for name, family in _COLLECTIONS.items():
            yield Filled(family, [((str(number),), float(told[name])) for number, told in generations])

    def _stat(self) -> list[str]:
        try:
            return (self._proc / "self" / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return []

    def _start(self) -> float | None:
        """Seconds of Unix time. /proc/stat, which is long on large machines, is read once."""
        stat = self._stat()
        try:
            told = (self._proc / "stat").read_text()
        except OSError:
            return None
        booted = told.partition("\nbtime ")[2].partition("\n")[0]
        if not stat or not booted:
            return None
        return int(booted) + int(stat[_START]) / os.sysconf("SC_CLK_TCK")
