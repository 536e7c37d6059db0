"""What `doctor` says of the driver's device files: which of them the exporter may open. Pure."""

from collections.abc import Iterator

from exporter.model.host import DeviceFile, Refusal
from exporter.outputs.findings.report import Finding, Level, grouped

_ABOUT = "device files"
_RUNTIME = "give it NVIDIA's runtime (runtimeClassName: nvidia; with Docker --gpus all, or CDI)"
# what keeps the exporter from opening a file, and what to do
_SAYS: dict[Refusal, tuple[str, str]] = {
    "mode": (
        "the mode of the file does not let the exporter open it",
        "run the exporter as root, or in the group of the file (ls -l shows it)",
    ),
    "security_module": (
        "the mode of the file lets the exporter open it, and a security module such as SELinux does not",
        "look at the node's audit log (ausearch -m avc), and let the exporter use the driver's devices",
    ),
    "cgroup": (
        "the mode of the file lets the exporter open it, and the cgroup's rules for devices do not",
        f"in a container, {_RUNTIME}; for a systemd unit, run pod-gpu-metrics-exporter device-access --unit NAME",
    ),
}


def of_device_files(files: tuple[DeviceFile, ...], *, are_wanted: bool) -> Iterator[Finding]:
    """Of a machine whose driver is loaded. `are_wanted` says that NVML may be asked, which opens them."""
    if not files:
        # Without NVML the main job needs none of them: whoever would like to have it reads here how.
        says = "NVIDIA's driver is loaded, and none of its device files is here: the exporter cannot ask NVML"
        yield Finding(level=Level.OK, about=_ABOUT, says=says, remedy=f"in a container, {_RUNTIME}")
        return
    allowed = [file for file in files if not file.refusal]
    if allowed:
        says = f"the exporter may open {len(allowed)} of NVIDIA's {len(files)}"
        yield Finding(level=Level.OK, about=_ABOUT, says=says)
    level = Level.WARNING if are_wanted else Level.OK
    yield from grouped(
        (file.path, Finding(level=level, about=file.path, says=says, remedy=remedy))
        for file in files
        if file.refusal
        for says, remedy in (_SAYS[file.refusal],)
    )
