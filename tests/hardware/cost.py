"""What a reading of NVML costs, with the library that is here: JSON of milliseconds of time and of CPU, and of RSS."""

import json
import statistics
import sys
import time
from pathlib import Path

from exporter.sources.nvml.library import NAME, Library
from exporter.sources.nvml.nvml_page import PageMaker
from exporter.sources.nvml.nvml_reader import NvmlReader

READINGS = 30
_PAUSE_SECONDS = 0.1


def rss_mib() -> float:
    """This process' resident memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1024**2


def main() -> None:
    """Read and print."""
    before = rss_mib()
    library = Library(NAME)
    reader = NvmlReader(library, PageMaker(library, "hardware"))
    began = time.perf_counter()
    reader.read(time.monotonic())
    first_ms = (time.perf_counter() - began) * 1000
    times_ms = []
    cpu_ms = []
    for _ in range(READINGS):
        time.sleep(_PAUSE_SECONDS)
        cpu = time.process_time()
        began = time.perf_counter()
        reader.read(time.monotonic())
        times_ms.append((time.perf_counter() - began) * 1000)
        cpu_ms.append((time.process_time() - cpu) * 1000)
    answer = {
        "first_ms": round(first_ms, 2),
        "median_ms": round(statistics.median(times_ms), 2),
        "most_ms": round(max(times_ms), 2),
        "cpu_ms": round(statistics.mean(cpu_ms), 2),
        "rss_mib": round(rss_mib() - before, 1),
        "page_bytes": len(reader.page),
    }
    reader.close()
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
