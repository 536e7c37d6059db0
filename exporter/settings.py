"""Everything that can be set: one table, from which the command line, environment names and file keys are made.

Each setting has a parser: a plain function that turns a text into a value and raises ValueError for a text that is not
allowed. Errors are worded where the table is used (config.py).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

ENVIRONMENT_PREFIX = "POD_GPU_EXPORTER_"
DEFAULT_DCGM_URL = "http://127.0.0.1:9401/metrics"
LABEL_SETS = {
    "pod": ("pod", "namespace", "container"),
    "legacy": ("pod_name", "pod_namespace", "container_name"),
}
# Labels that say which device a sample is of: a custom owner label must not take their place.
DEVICE_LABELS = frozenset(
    [
        "UUID",
        "uuid",
        "gpu_uuid",
        "gpu",
        "device",
        "modelName",
        "model_name",
        "GPU_I_ID",
        "GPU_I_PROFILE",
        "vgpu",
        "gpu_shared",
        "pod_uid",
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen. An empty host is every address of the machine."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


Parse = Callable[[str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One flag: `name` without its dashes, how a text becomes a value, and what is allowed, in words."""

    name: str
    parse: Parse
    allowed: str
    help: str
    default: str | None = None
    repeatable: bool = False
    also_env: str = ""
    metavar: str = "TEXT"

    @property
    def flag(self) -> str:
        """As it stands on the command line."""
        return f"--{self.name}"

    @property
    def parameter(self) -> str:
        """As a Python name."""
        return re.sub(r"[.-]", "_", self.name)

    @property
    def env(self) -> str:
        """The environment name: `--web.listen-address` is POD_GPU_EXPORTER_WEB_LISTEN_ADDRESS."""
        return ENVIRONMENT_PREFIX + self.parameter.upper()


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_DURATION_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_FAMILY_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_MAX_PORT = 65535
# sockaddr_un.sun_path holds 108 bytes with its closing NUL
_MAX_SOCKET_PATH_BYTES = 107


def duration(text: str) -> float:
    """`500ms`, `5s`, `1m`, `1h` in seconds."""
    found = _DURATION.fullmatch(text)
    if not found:
        raise ValueError
    return float(found[1]) * _DURATION_SECONDS[found[2]]


def positive_duration(text: str) -> float:
    """A duration that is not nothing."""
    seconds = duration(text)
    if not seconds:
        raise ValueError
    return seconds


def address(text: str) -> Address:
    """`:9400`, `127.0.0.1:9400`, `[::1]:9400`; port 0 is any free port."""
    host, separator, port = text.rpartition(":")
    if not separator or not (port.isascii() and port.isdigit()) or int(port) > _MAX_PORT:
        raise ValueError
    if host.startswith("[") and host.endswith("]"):
        host = str(ip_address(host[1:-1]))
    elif ":" in host or "/" in host or "@" in host:
        raise ValueError
    return Address(host=host, port=int(port))


def url(text: str) -> str:
    """An absolute http or https URL."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment or re.search(r"\s", text):
        raise ValueError
    if parts.port is not None and not 0 < parts.port <= _MAX_PORT:
        raise ValueError
    return text if parts.path else parts._replace(path="/metrics").geturl()


def base_url(text: str) -> str:
    """An absolute http or https URL that paths are put after."""
    parts = urlsplit(url(text))
    if parts.username or parts.password or parts.query:
        raise ValueError
    return text.rstrip("/")


def socket_path(text: str) -> str:
    """A path that fits a unix socket's address; `unix://` before it is taken off."""
    path = text.removeprefix("unix://")
    if not path.startswith("/") or len(path.encode()) > _MAX_SOCKET_PATH_BYTES or "\0" in path:
        raise ValueError
    return path


def absolute_path(text: str) -> str:
    """A path from the root."""
    if not text.startswith("/") or "\0" in text:
        raise ValueError
    return text


def positive_integer(text: str) -> int:
    """A whole number above 0."""
    if not (text.isascii() and text.isdigit()) or not int(text):
        raise ValueError
    return int(text)


def not_empty(text: str) -> str:
    """Any text but none."""
    if not text.strip():
        raise ValueError
    return text


def family_name(text: str) -> str:
    """The name of a metric family."""
    if not _FAMILY_NAME.fullmatch(text):
        raise ValueError
    return text


def regex(text: str) -> str:
    """A regular expression; it is matched against the whole name, as Prometheus does."""
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError from error
    return text


def label_names(text: str) -> tuple[str, str, str]:
    """`pod`, `legacy` or `pod=x,namespace=y,container=z`."""
    if text in LABEL_SETS:
        return LABEL_SETS[text]
    given = dict(part.partition("=")[::2] for part in text.split(","))
    names = tuple(given.get(role, "") for role in LABEL_SETS["pod"])
    if set(given) != set(LABEL_SETS["pod"]) or len(set(names)) != len(names):
        raise ValueError
    for role, name in given.items():
        known_elsewhere = any(
            name in labels and labels[LABEL_SETS["pod"].index(role)] != name for labels in LABEL_SETS.values()
        )
        if not _LABEL_NAME.fullmatch(name) or name.startswith("__") or name in DEVICE_LABELS or known_elsewhere:
            raise ValueError
    return names[0], names[1], names[2]


def one_of(*allowed: str) -> Parse:
    """One of a few words."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError
        return text

    return parse


def log_level(text: str) -> str:
    """In any case, and `warning` as well as `warn`: LOG_LEVEL is often set for other programs too."""
    level = "warn" if text.lower() == "warning" else text.lower()
    if level not in ("debug", "info", "warn", "error"):
        raise ValueError
    return level


_A_DURATION = "a duration such as 500ms, 5s or 1m"
SETTINGS = (
    Setting(
        name="web.listen-address",
        parse=address,
        allowed="an address such as :9400, 127.0.0.1:9400 or [::1]:9400",
        help="Where to listen.",
        default=":9400",
        repeatable=True,
        also_env="HTTP_LISTEN_PORT",
        metavar="ADDRESS",
    ),
    Setting(
        name="kubelet.socket",
        parse=socket_path,
        allowed=f"an absolute path of at most {_MAX_SOCKET_PATH_BYTES} bytes",
        help="The kubelet's pod-resources socket. Mount its directory, not the file: a kubelet restart replaces it.",
        default="/var/lib/kubelet/pod-resources/kubelet.sock",
        also_env="DCGM_POD_RESOURCES_KUBELET_SOCKET",
        metavar="PATH",
    ),
    Setting(
        name="kubelet.max-age",
        parse=duration,
        allowed=_A_DURATION,
        help="A kubelet's answer younger than this is not asked for again.",
        default="1s",
        metavar="DURATION",
    ),
    Setting(
        name="kubelet.timeout",
        parse=positive_duration,
        allowed=f"{_A_DURATION}, above 0",
        help="How long one call to the kubelet may take.",
        default="5s",
        metavar="DURATION",
    ),
    Setting(
        name="kubelet.max-stale",
        parse=duration,
        allowed=_A_DURATION,
        help="How long the last known owners stay in force when the kubelet fails. "
        "Default: 10m while the connection is refused (the kubelet is down), 1m for any other failure.",
        metavar="DURATION",
    ),
    Setting(
        name="resources",
        parse=not_empty,
        allowed="a glob such as nvidia.com/*",
        help="Which extended resources are GPUs.",
        default="nvidia.com/*",
        repeatable=True,
        also_env="NVIDIA_RESOURCE_NAMES",
        metavar="GLOB",
    ),
    Setting(
        name="device-rules",
        parse=absolute_path,
        allowed="an absolute path",
        help="More rules for device ids, and more labels of samples that say which device they are of: a YAML file.",
        metavar="FILE",
    ),
    Setting(
        name="inventory.file",
        parse=absolute_path,
        allowed="an absolute path",
        help="The node's GPUs and their MIG instances, to resolve MIG-<uuid> ids: a YAML or JSON file.",
        metavar="FILE",
    ),
    Setting(
        name="dra",
        parse=one_of("off", "on"),
        allowed="on or off",
        help="Devices of DRA claims too, found by ResourceSlices (Kubernetes API) or CDI names; adds dra_… labels.",
        default="off",
        metavar="on|off",
    ),
    Setting(
        name="dcgm.url",
        parse=url,
        allowed="an http or https URL such as http://127.0.0.1:9401/metrics",
        help="dcgm-exporter's page. Also made of DCGM_HOST, DCGM_PORT (9400) and DCGM_METRICS_ENDPOINT (/metrics). "
        f"Default, if no other source of GPU samples is named: {DEFAULT_DCGM_URL}.",
        repeatable=True,
        metavar="URL",
    ),
    Setting(
        name="dcgm.file",
        parse=absolute_path,
        allowed="an absolute path such as /run/prometheus/dcgm.prom",
        help="A .prom file of GPU samples, as the shell version of dcgm-exporter writes it.",
        repeatable=True,
        metavar="FILE",
    ),
    Setting(
        name="dcgm.file-max-age",
        parse=positive_duration,
        allowed=f"{_A_DURATION}, above 0",
        help="A file older than this is a failed source.",
        default="1m",
        metavar="DURATION",
    ),
    Setting(
        name="dcgm.timeout",
        parse=positive_duration,
        allowed=f"{_A_DURATION}, above 0",
        help="How long one page may take. A scrape that says its own timeout h waits at most max(h - 0.5s, h / 2).",
        default="5s",
        metavar="DURATION",
    ),
    Setting(
        name="dcgm.max-bytes",
        parse=positive_integer,
        allowed="a whole number of bytes above 0",
        help="A page larger than this, counted after decompression, is a failure.",
        default="33554432",
        metavar="BYTES",
    ),
    Setting(
        name="node-name",
        parse=not_empty,
        allowed="a name",
        help="The node's name in the mapping families. Default: the host name.",
        also_env="NODE_NAME",
        metavar="NAME",
    ),
    Setting(
        name="labels.names",
        parse=label_names,
        allowed="pod, legacy, or pod=X,namespace=Y,container=Z with three different label names"
        " that are not a device's own",
        help="The names of the added labels: pod (pod, namespace, container), legacy (pod_name, pod_namespace,"
        " container_name), or names of your own.",
        default="pod",
        metavar="NAMES",
    ),
    Setting(
        name="labels.conflict",
        parse=one_of("replace", "keep"),
        allowed="replace or keep",
        help="Whose word counts when a page already names an owner: the kubelet's (replace) or the page's (keep).",
        default="replace",
        metavar="replace|keep",
    ),
    Setting(
        name="labels.idle",
        parse=one_of("empty", "omit"),
        allowed="empty or omit",
        help="Samples without an owner get the three labels with empty values, or none. "
        "Default: empty with the names pod, omit with others.",
        metavar="empty|omit",
    ),
    Setting(
        name="labels.pod-uid",
        parse=one_of("off", "on"),
        allowed="on or off",
        help="Add the owner's UID as pod_uid.",
        default="off",
        metavar="on|off",
    ),
    Setting(
        name="labels.pod-labels",
        parse=regex,
        allowed="a regular expression",
        help="Add the owner's pod labels whose whole name matches one of these, as label_<name>; at most 32 a pod.",
        repeatable=True,
        metavar="REGEX",
    ),
    Setting(
        name="pods.source",
        parse=one_of("auto", "kubelet", "api"),
        allowed="auto, kubelet or api",
        help="Where pods' labels and UIDs come from: the kubelet's Pods API, the Kubernetes API, or the first of the"
        " two that is there (auto). Used only if something needs them.",
        default="auto",
        metavar="auto|kubelet|api",
    ),
    Setting(
        name="kubelet.pods-socket",
        parse=socket_path,
        allowed=f"an absolute path of at most {_MAX_SOCKET_PATH_BYTES} bytes",
        help="The socket of the kubelet's Pods API (Kubernetes 1.37 and later). Mount its directory, not the file.",
        default="/var/lib/kubelet/pods-api/pods-api.sock",
        metavar="PATH",
    ),
    Setting(
        name="kubernetes.url",
        parse=base_url,
        allowed="an http or https URL without a query",
        help="The Kubernetes API. Default: https:// with KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT.",
        metavar="URL",
    ),
    Setting(
        name="kubernetes.token-file",
        parse=absolute_path,
        allowed="an absolute path",
        help="The token for the Kubernetes API; read for every request.",
        default="/var/run/secrets/kubernetes.io/serviceaccount/token",
        metavar="FILE",
    ),
    Setting(
        name="kubernetes.ca-file",
        parse=absolute_path,
        allowed="an absolute path",
        help="The certificate authority of the Kubernetes API; the system's where the file does not exist.",
        default="/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
        metavar="FILE",
    ),
    Setting(
        name="sharing",
        parse=one_of("copy", "split", "device"),
        allowed="copy, split or device",
        help="A device with several owners: one copy of each sample per owner (copy), the same with what adds up"
        " divided among them (split), or the device's sample with no owner (device).",
        default="copy",
        metavar="copy|split|device",
    ),
    Setting(
        name="sharing.gauges",
        parse=family_name,
        allowed="a family's name",
        help="One more family that split divides as it stands, as it does power and memory.",
        repeatable=True,
        metavar="NAME",
    ),
    Setting(
        name="sharing.counters",
        parse=family_name,
        allowed="a family's name",
        help="One more family that split divides by its increases, as it does energy.",
        repeatable=True,
        metavar="NAME",
    ),
    Setting(
        name="families.allow",
        parse=regex,
        allowed="a regular expression",
        help="Only families whose whole name matches one of these go out.",
        repeatable=True,
        metavar="REGEX",
    ),
    Setting(
        name="families.deny",
        parse=regex,
        allowed="a regular expression",
        help="Families whose whole name matches one of these do not go out.",
        repeatable=True,
        metavar="REGEX",
    ),
    Setting(
        name="log.level",
        parse=log_level,
        allowed="debug, info, warn or error",
        help="The least serious message that is logged.",
        default="info",
        also_env="LOG_LEVEL",
        metavar="LEVEL",
    ),
    Setting(
        name="log.format",
        parse=one_of("logfmt", "json"),
        allowed="logfmt or json",
        help="How messages are logged, on standard error.",
        default="logfmt",
        metavar="logfmt|json",
    ),
)
