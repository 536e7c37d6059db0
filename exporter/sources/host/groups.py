"""The groups of character devices that NVIDIA's driver registers, with their majors: /proc/devices.

Only the major of the GPUs is fixed: 195, of the group nvidia-frontend, or nvidia in newer drivers. The file is the same
in every container.
"""

from collections.abc import Mapping
from pathlib import Path

# GPUs with /dev/nvidiactl, CUDA's memory, MIG instances. Not what joins machines: nvswitch, nvidia-caps-imex-channels.
GROUPS = ("nvidia", "nvidia-frontend", "nvidia-uvm", "nvidia-caps")
DEVICES = "proc/devices"
MOST_BYTES = 64 * 1024


def groups_in(text: str) -> Mapping[str, int]:
    """The major of each of GROUPS that /proc/devices names among its character devices."""
    majors: dict[str, int] = {}
    for line in text.partition("Block devices:")[0].splitlines():
        major, _, name = line.strip().partition(" ")
        if name in GROUPS and major.isascii() and major.isdigit():
            majors[name] = int(major)
    return majors


def read_groups(root: Path) -> Mapping[str, int]:
    """The same, as the kernel says it now; empty where the driver is not loaded.

    Raises:
        OSError: the file cannot be read.
    """
    with (root / DEVICES).open("rb") as file:
        return groups_in(file.read(MOST_BYTES).decode("utf-8", "replace"))
