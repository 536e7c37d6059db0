"""What commands say of the program itself."""

import sys
from pathlib import Path

PROGRAM = "pod-gpu-metrics-exporter"


def this_program() -> str:
    """The program as the person at this terminal can start it once more: its name, or the path it was started by."""
    import shutil  # noqa: PLC0415 - half a megabyte, which a healthcheck every 30 s does not need

    started_by = sys.argv[0]
    if Path(started_by).name != PROGRAM or shutil.which(PROGRAM) == str(Path(started_by).absolute()):
        return PROGRAM
    return started_by
