"""The settings of the CUDA probe: what programs ask of the GPU, seen by uprobes. A group of node.py."""

from dataclasses import dataclass

from exporter.config.kinds import NUMBER, POSITIVE_DURATION, choice
from exporter.config.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """The CUDA probe. A reload with another mode attaches or detaches it at once."""

    is_on: bool = setting(
        "probe.mode",
        choice({"off": False, "on": True}),
        "Count what programs ask of CUDA, by uprobes on its libraries. Each probed call then takes the program longer;"
        " a reload with off ends that at once.",
        default="off",
    )
    interval_seconds: float = setting(
        "probe.interval",
        POSITIVE_DURATION,
        "How often the probe looks for processes that have begun to use CUDA.",
        default="5s",
    )
    max_programs: int = setting(
        "probe.max-programs",
        NUMBER,
        "The most CUDA libraries and programs that are probed at a time. Before Linux 6.6 each takes some 200 file"
        " descriptors.",
        default="64",
    )
    any_kernel: bool = setting(
        "probe.any-kernel",
        choice({"on": True, "off": False}),
        "Probe with other kernels, too, than those that it is made for: Linux 5.15 (arm64: 5.18) or later with BTF.",
        default="off",
    )
