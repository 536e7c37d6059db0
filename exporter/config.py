"""Configuration: flags, environment and file become one frozen `Config`, or a `ConfigError` of one line.

`SETTINGS` is the table of everything that can be set: the command line, the environment names, the file's keys and the
documentation are made from it. Precedence: flag > environment > file > default.

Parsing is pure: the environment and the file's text come in as values.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from exporter.errors import ConfigError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What `serve` needs to know. Durations in seconds; the flags' documentation is in `SETTINGS`."""

    listen_addresses: tuple[Address, ...]
    kubelet_socket: str
    kubelet_max_age_seconds: float
    kubelet_timeout_seconds: float
    kubelet_max_stale_seconds: float | None
    resources: tuple[str, ...]
    dcgm_urls: tuple[str, ...]
    dcgm_files: tuple[str, ...]
    dcgm_file_max_age_seconds: float
    dcgm_timeout_seconds: float
    dcgm_max_bytes: int
    node_name: str
    label_names: tuple[str, str, str]
    incoming_wins: bool
    idle_labels: bool
    copy_shared: bool
    families_allow: tuple[str, ...]
    families_deny: tuple[str, ...]
    log_level: str
    log_format: str


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


def one_of_any_case(*allowed: str) -> Parse:
    """One of a few words, in any case."""
    parse = one_of(*allowed)
    return lambda text: parse(text.lower())


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
        name="sharing",
        parse=one_of("copy", "device"),
        allowed="copy or device",
        help="A device with several owners: one copy of each sample per owner, or the device's sample with no owner.",
        default="copy",
        metavar="copy|device",
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
        parse=one_of_any_case("debug", "info", "warn", "error"),
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
_BY_NAME = {setting.name: setting for setting in SETTINGS}


def load(
    flags: Mapping[str, Sequence[str]], environ: Mapping[str, str], file: Mapping[str, Any] | None, host_name: str
) -> Config:
    """Put the sources together.

    Args:
        flags: by setting name, the texts given on the command line; a flag that was not given is absent.
        environ: the process environment. Unknown names are ignored: Kubernetes' service links inject some.
        file: the parsed `--config.file`, flat (`kubelet.socket: …`) or nested.
        host_name: the default of `--node-name`.

    Raises:
        ConfigError: with one line that names the key, the value and what is allowed.
    """
    texts = _defaults()
    texts.update(_from_file(file or {}))
    texts.update(_from_environment(environ))
    texts.update({name: _Given(flag_of(name), tuple(values)) for name, values in flags.items()})
    value = {name: _parse(_BY_NAME[name], given) for name, given in texts.items()}
    names = value["labels.names"]
    idle = value.get("labels.idle") or ("empty" if names == LABEL_SETS["pod"] else "omit")
    config = Config(
        listen_addresses=value["web.listen-address"],
        kubelet_socket=value["kubelet.socket"],
        kubelet_max_age_seconds=value["kubelet.max-age"],
        kubelet_timeout_seconds=value["kubelet.timeout"],
        kubelet_max_stale_seconds=value.get("kubelet.max-stale"),
        resources=value["resources"],
        dcgm_urls=value.get("dcgm.url", () if "dcgm.file" in value else (DEFAULT_DCGM_URL,)),
        dcgm_files=value.get("dcgm.file", ()),
        dcgm_file_max_age_seconds=value["dcgm.file-max-age"],
        dcgm_timeout_seconds=value["dcgm.timeout"],
        dcgm_max_bytes=value["dcgm.max-bytes"],
        node_name=value.get("node-name", host_name),
        label_names=names,
        incoming_wins=value["labels.conflict"] == "keep",
        idle_labels=idle == "empty",
        copy_shared=value["sharing"] == "copy",
        families_allow=value.get("families.allow", ()),
        families_deny=value.get("families.deny", ()),
        log_level=value["log.level"],
        log_format=value["log.format"],
    )
    _check_together(config)
    return config


def flag_of(name: str) -> str:
    """How a setting is named in an error about the command line."""
    return f"--{name}"


@dataclass(frozen=True, slots=True)
class _Given:
    where: str
    values: tuple[str, ...]


def _defaults() -> dict[str, _Given]:
    return {
        setting.name: _Given(f"the default of {setting.flag}", (setting.default,))
        for setting in SETTINGS
        if setting.default is not None
    }


def _parse(setting: Setting, given: _Given) -> Any:  # noqa: ANN401 - each setting has a type of its own
    values = []
    for text in given.values:
        try:
            values.append(setting.parse(text))
        except ValueError:
            shown = _without_user(repr(text))
            raise ConfigError(f"{given.where}: {shown} is not allowed; it takes {setting.allowed}") from None
    return tuple(values) if setting.repeatable else values[-1]


def _from_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    found: dict[str, _Given] = {}
    host = environ.get("DCGM_HOST", "").strip()
    if host:
        port = environ.get("DCGM_PORT", "").strip()
        # Kubernetes' service links set DCGM_PORT=tcp://10.0.0.1:9400 where a service is called dcgm
        port = port if port.isascii() and port.isdigit() else "9400"
        path = environ.get("DCGM_METRICS_ENDPOINT", "").strip() or "/metrics"
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        found["dcgm.url"] = _Given("DCGM_HOST", (f"http://{host}:{port}/{path.removeprefix('/')}",))
    for setting in SETTINGS:
        for name in (setting.also_env, setting.env):  # the exporter's own name wins
            text = environ.get(name, "").strip() if name else ""
            if not text:
                continue
            if name == "HTTP_LISTEN_PORT":
                text = f":{text}"
            values = tuple(part.strip() for part in text.split(",") if part.strip()) if setting.repeatable else (text,)
            found[setting.name] = _Given(name, values)
    return found


def _from_file(file: Mapping[str, Any], prefix: str = "") -> dict[str, _Given]:
    found: dict[str, _Given] = {}
    for key, value in file.items():
        name = f"{prefix}{key}"
        setting = _BY_NAME.get(name)
        if setting is None and isinstance(value, Mapping):
            found |= _from_file(value, f"{name}.")
            continue
        if setting is None:
            close = ", ".join(sorted(_BY_NAME))
            raise ConfigError(f"config file: {name!r} is not a key; the keys are {close}")
        values = value if isinstance(value, list) else [value]
        if (isinstance(value, list) and not setting.repeatable) or any(
            isinstance(item, list | Mapping) or item is None for item in values
        ):
            raise ConfigError(f"config file: {name}: {value!r} is not allowed; it takes {setting.allowed}")
        found[name] = _Given(f"config file: {name}", tuple(_text_of(item) for item in values))
    return found


def _text_of(value: object) -> str:
    """YAML's booleans are accepted where on and off are meant."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _check_together(config: Config) -> None:
    """Contradictions between settings."""
    listening = config.listen_addresses
    for upstream in config.dcgm_urls:
        parts = urlsplit(upstream)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        for own in listening:
            if port == own.port and _same_machine(parts.hostname or "", own.host):
                raise ConfigError(
                    f"--dcgm.url: {_without_user(upstream)} is this exporter's own address ({own}): one of the two must"
                    " move, --web.listen-address or dcgm-exporter's own (its flag -a or DCGM_EXPORTER_LISTEN)"
                )
    for what, given in (
        ("--dcgm.url", config.dcgm_urls),
        ("--dcgm.file", config.dcgm_files),
        ("--web.listen-address", listening),
    ):
        for value in given:
            if given.count(value) > 1 and not (isinstance(value, Address) and value.port == 0):
                raise ConfigError(f"{what}: {_without_user(str(value))} is named twice; name each once")


def _same_machine(upstream: str, own: str) -> bool:
    """Whether a URL's host is surely this machine, at an address where this program listens."""
    if own and upstream == own:
        return True
    return _is_loopback(upstream) and (not own or _is_loopback(own))


def _is_loopback(host: str) -> bool:
    if host in ("localhost", "0.0.0.0", "::"):  # noqa: S104 - connecting to "any" reaches this machine
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _without_user(text: str) -> str:
    """A text without the user information of URLs in it, which may hold a password."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def source_names(urls: Sequence[str]) -> tuple[str, ...]:
    """`dcgm:<host:port>` for each URL; where two share an address, their paths tell them apart. No user information."""
    parts = [urlsplit(text) for text in urls]
    hosts = [
        str(Address(host=part.hostname or "", port=part.port or (443 if part.scheme == "https" else 80)))
        for part in parts
    ]
    return tuple(
        f"dcgm:{host}" if hosts.count(host) == 1 else f"dcgm:{host}{part.path}{part.query and '?'}{part.query}"
        for host, part in zip(hosts, parts, strict=True)
    )
