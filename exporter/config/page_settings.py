"""The settings of the sources that describe GPUs: pages of samples, NVML, processes, the CUDA probe.

Tests: tests/config/test_config.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from exporter.config import parsers
from exporter.config.parsers import FILE, NUMBER, POSITIVE_DURATION, REGEX, SettingKind, choice, one_of
from exporter.config.settings import optional, setting, several

AS_IS = "as-is"
BOTH = "both"
DEFAULT_DCGM_URL = "http://127.0.0.1:9401/metrics"
USUAL_DCGM_FILE = "/run/prometheus/dcgm.prom"  # where dcgm-exporter 1.x writes its page


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmSettings:
    """dcgm-exporter's pages. `port` and `path` (DCGM_PORT, DCGM_METRICS_ENDPOINT) are for pods found by `selectors`."""

    urls: tuple[str, ...] = several(
        "dcgm.url",
        SettingKind(parsers.url, f"an http or https URL such as {DEFAULT_DCGM_URL}", "URL"),
        "dcgm-exporter's page; several become one. Also made of DCGM_HOST, DCGM_PORT (9400) and DCGM_METRICS_ENDPOINT"
        f" (/metrics). Default without another source of samples: {DEFAULT_DCGM_URL}.",
    )
    selectors: tuple[parsers.Selector, ...] = setting(
        "dcgm.selector",
        SettingKind(parsers.selectors, "auto, or labels such as app=dcgm-exporter,tier=gpu", "auto|LABELS"),
        "Find dcgm-exporter's pods on this node by labels; auto knows the usual ones. DCGM_HOST wins over it.",
        also_env="DCGM_LABELS",
    )
    namespaces: tuple[str, ...] = several(
        "dcgm.selector-namespace",
        SettingKind(parsers.namespace, "a namespace's name", "NAMESPACE"),
        "Where --dcgm.selector may find pods. Whoever may make pods there may write GPU samples. Default: the"
        " exporter's own namespace (POD_NAMESPACE, else its service account's), "
        + ", ".join(parsers.GPU_OPERATOR_NAMESPACES)
        + ".",
    )
    port: int
    path: str
    mode: Literal["auto", "off"] = setting(
        "dcgm.mode",
        one_of("auto", "off"),
        "auto: read dcgm-exporter's page. off: make the page from NVML, for nodes without dcgm-exporter.",
        default="auto",
    )
    files: tuple[str, ...] = several(
        "dcgm.file",
        SettingKind(parsers.absolute_path, f"an absolute path such as {USUAL_DCGM_FILE}", "FILE", is_path=True),
        "A .prom file of GPU samples, as dcgm-exporter's shell version writes it. No FIFO.",
    )
    file_max_age_seconds: float = setting(
        "dcgm.file-max-age", POSITIVE_DURATION, "A file older than this is a failed source.", default="1m"
    )
    timeout_seconds: float = setting(
        "dcgm.timeout",
        POSITIVE_DURATION,
        "How long one page may take. A scrape with a timeout h of its own waits at most max(h - 0.5s, h / 2).",
        default="5s",
    )
    max_bytes: int = setting(
        "dcgm.max-bytes",
        SettingKind(parsers.positive_integer, "a whole number of bytes above 0", "BYTES"),
        "A page that is larger after decompression is a failure. A memory limit of 160Mi is enough for this size; the"
        " shipped limit is 256Mi.",
        default="6291456",
    )
    http_config_file: str | None = optional(
        "dcgm.http-config", FILE, "TLS and authorisation towards dcgm-exporter, as Prometheus' http_config."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlSettings:
    """NVIDIA's management library."""

    mode: Literal["auto", "on", "off"] = setting(
        "nvml.mode",
        one_of("auto", "on", "off"),
        "Ask NVML (libnvidia-ml.so.1) for GPUs and MIG instances. auto: if the library is there. on: without it"
        " the source is down.",
        default="auto",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """The processes that run on the GPUs."""

    is_exposed: bool = setting(
        "processes.expose",
        choice({"on": True, "off": False}),
        "Answer at /processes which processes use the GPUs, with their command lines, which may hold secrets.",
        default="off",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySettings:
    """The families that go out, and the generation of their names."""

    allow: tuple[str, ...] = several("families.allow", REGEX, "Only families whose whole name matches go out.")
    deny: tuple[str, ...] = several("families.deny", REGEX, "Families whose whole name matches do not go out.")
    names: str = setting(
        "families.names",
        one_of(AS_IS, "4.8", "4.9", BOTH),
        "The names, units and labels of DCGM's families: as they come (as-is), those of dcgm-exporter 4.8 or 4.9,"
        " or both, each sample twice.",
        default=AS_IS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSettings:
    """The CUDA probe. A reload with another mode attaches or detaches it at once."""

    is_on: bool = setting(
        "probe.mode",
        choice({"off": False, "on": True}),
        "Count what programs ask of CUDA, by uprobes on its libraries. Each probed call then takes longer, until"
        " a reload with off.",
        default="off",
    )
    interval_seconds: float = setting(
        "probe.interval",
        POSITIVE_DURATION,
        "How often the probe looks for new processes that use CUDA.",
        default="5s",
    )
    max_programs: int = setting(
        "probe.max-programs",
        NUMBER,
        "The most CUDA libraries and programs that are probed at a time. Before Linux 6.6 each takes some 200"
        " file descriptors.",
        default="64",
    )
    any_kernel: bool = setting(
        "probe.any-kernel",
        choice({"on": True, "off": False}),
        "Probe also with kernels that it is not made for: Linux 5.15 (arm64: 5.18) or later with BTF.",
        default="off",
    )


def source_names(urls: Sequence[str]) -> tuple[str, ...]:
    """The name of each URL's source: `dcgm:<host:port>`. If two share an address, their paths or numbers are added.

    A name has neither user information nor a query, since pages and the log show names.
    """
    parts = [urlsplit(text) for text in urls]
    hosts = [
        str(parsers.Address(host=part.hostname or "", port=part.port or (443 if part.scheme == "https" else 80)))
        for part in parts
    ]
    paths = [f"{host}{part.path}" for host, part in zip(hosts, parts, strict=True)]
    names = []
    for number, (host, path) in enumerate(zip(hosts, paths, strict=True)):
        if hosts.count(host) == 1:
            names.append(f"dcgm:{host}")
        elif paths.count(path) == 1:
            names.append(f"dcgm:{path}")
        else:
            names.append(f"dcgm:{path}#{paths[: number + 1].count(path)}")
    return tuple(names)
