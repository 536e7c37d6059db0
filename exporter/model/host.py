"""What is known of the machine itself: its driver and kernel, and which of the driver's device files may be opened."""

from typing import Literal, NamedTuple


class Host(NamedTuple):
    """`driver_version` is that of NVIDIA's kernel module, "" where it is not loaded, or does not say.

    `kernel` and `architecture` are the release and the machine of uname(2).
    """

    driver_version: str
    kernel: str
    architecture: str


# What keeps a process from opening a device file: its mode, the rules of the cgroup for devices, or a security module
# such as SELinux, although its mode would allow it. "" for nothing.
Refusal = Literal["", "mode", "cgroup", "security_module"]


class DeviceFile(NamedTuple):
    """A character device of NVIDIA's driver, and what keeps this process from opening it."""

    path: str
    refusal: Refusal = ""
