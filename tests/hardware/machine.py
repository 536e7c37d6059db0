"""What is kept of the machine beside the samples: the driver's files, the kernel's log, versions."""

import contextlib
import os
import platform
import subprocess
import sys
from pathlib import Path

PROC_DRIVER = Path("/proc/driver/nvidia")
KERNEL_LOG = Path("/dev/kmsg")
_MOST_RECORD_BYTES = 8192
_MOST_LINES = 1000


def keep_proc_driver(folder: Path) -> None:
    """Copy the files below /proc/driver/nvidia, as far as they can be read."""
    for place in sorted(PROC_DRIVER.rglob("*")) if PROC_DRIVER.exists() else ():
        if place.is_file():
            kept = folder / place.relative_to(PROC_DRIVER)
            kept.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):
                kept.write_bytes(place.read_bytes())


def kernel_log_trouble() -> str:
    """Why /dev/kmsg cannot be read; "" if it can."""
    try:
        _records()
    except OSError as error:
        return f"{KERNEL_LOG}: {error.strerror}"
    return ""


def keep_kernel_log(file: Path) -> None:
    """Write the last records of the kernel's log; nothing if it cannot be read."""
    with contextlib.suppress(OSError):
        file.write_bytes(b"".join(_records()[-_MOST_LINES:]))


def _records() -> list[bytes]:
    """All records. Raises OSError: they cannot be read."""
    log = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    records: list[bytes] = []
    try:
        while True:
            try:
                record = os.read(log, _MOST_RECORD_BYTES)
            except BlockingIOError:
                return records
            except BrokenPipeError:  # it was overwritten meanwhile
                continue
            if not record:
                return records
            records.append(record)
    finally:
        os.close(log)


def versions() -> dict[str, str]:
    """The versions of what the exporter stands on; the commit only where git is, and a checkout."""
    root = Path(__file__).resolve().parents[2]
    commit = ""
    with contextlib.suppress(OSError):
        asked = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "machine": platform.machine(),
        "commit": commit,
    }
