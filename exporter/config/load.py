"""Configuration: flags, environment and file become one frozen `Config`, or a `ConfigError` of one line.

Precedence: flag > environment > file > default. What can be set is in settings.py. Pure: the environment and the
file's content come in as values.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from exporter.config.environment import Doubt, Given, dcgm_path, dcgm_port, doubts, settings_from
from exporter.config.parsers import GPU_OPERATOR_NAMESPACES, LABEL_SETS, Address, Selector, without_secrets
from exporter.config.settings import DEFAULT_DCGM_URL, SETTINGS, Setting
from exporter.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What `serve` needs to know. Durations in seconds; the flags' documentation is in `SETTINGS`.

    `given` is what it was made of, by setting name; `doubts` what was probably meant otherwise.
    """

    config_file: str | None
    listen_addresses: tuple[Address, ...]
    web_config_file: str | None
    kubelet_socket: str
    kubelet_max_age_seconds: float
    kubelet_timeout_seconds: float
    kubelet_max_stale_seconds: float | None
    resources: tuple[str, ...]
    dcgm_urls: tuple[str, ...]
    dcgm_selectors: tuple[Selector, ...]
    dcgm_namespaces: tuple[str, ...]
    dcgm_port: int
    dcgm_path: str
    dcgm_files: tuple[str, ...]
    dcgm_file_max_age_seconds: float
    dcgm_timeout_seconds: float
    dcgm_max_bytes: int
    dcgm_http_config: str | None
    node_name: str
    node_is_named: bool
    label_names: tuple[str, str, str]
    incoming_wins: bool
    idle_labels: bool
    sharing: str
    sharing_gauges: tuple[str, ...]
    sharing_counters: tuple[str, ...]
    device_rules: str | None
    inventory_file: str | None
    dra: str
    pod_uid: bool
    pod_labels: tuple[str, ...]
    pod_labels_limit: int
    pods_source: str
    kubelet_pods_socket: str
    kubernetes_url: str | None
    kubernetes_token_file: str
    kubernetes_ca_file: str
    workload_labels: tuple[str, ...]
    families_allow: tuple[str, ...]
    families_deny: tuple[str, ...]
    log_level: str
    log_format: str
    given: tuple[tuple[str, Given], ...]
    doubts: tuple[Doubt, ...]

    def shown(self) -> dict[str, dict[str, str]]:
        """Every setting's value and where it comes from, for people: without user information and query of URLs."""
        return {
            name: {"value": ",".join(map(without_secrets, given.values)), "from": _origin(given)}
            for name, given in self.given
        }

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it is made of: a change in one of them is a change of the configuration."""
        named = (self.config_file, self.web_config_file, self.dcgm_http_config, self.device_rules)
        return tuple(path for path in named if path)


_BY_NAME = {setting.name: setting for setting in SETTINGS}


def load(
    flags: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    file: Mapping[str, Any] | None,
    host_name: str,
    config_file: str | None = None,
    own_namespace: str = "",
) -> Config:
    """Put the sources together.

    Args:
        flags: by setting name, the texts given on the command line; a flag that was not given is absent.
        environ: the process environment. Unknown names are ignored, with a doubt: Kubernetes' service links are none.
        file: the parsed `--config.file`, flat (`kubelet.socket: …`) or nested.
        host_name: the default of `--node-name`.
        config_file: the path that `file` was read from.
        own_namespace: the namespace of the service account; POD_NAMESPACE wins over it.

    Raises:
        ConfigError: with one line that names the key, the value and what is allowed.
    """
    texts = _defaults()
    texts.update(_from_file(file or {}))
    texts.update(settings_from(environ))
    if environ.get("DCGM_HOST", "").strip():
        texts.pop("dcgm.selector", None)
    texts.update({name: Given(flag_of(name), tuple(values)) for name, values in flags.items()})
    value = {name: _parse(_BY_NAME[name], given) for name, given in texts.items()}
    names = value["labels.names"]
    others = value.keys() & {"dcgm.file", "dcgm.selector"}
    idle = value.get("labels.idle") or ("empty" if names == LABEL_SETS["pod"] else "omit")
    config = Config(
        config_file=config_file,
        listen_addresses=value["web.listen-address"],
        web_config_file=value.get("web.config.file"),
        kubelet_socket=value["kubelet.socket"],
        kubelet_max_age_seconds=value["kubelet.max-age"],
        kubelet_timeout_seconds=value["kubelet.timeout"],
        kubelet_max_stale_seconds=value.get("kubelet.max-stale"),
        resources=value["resources"],
        dcgm_urls=value.get("dcgm.url", () if others else (DEFAULT_DCGM_URL,)),
        dcgm_selectors=value.get("dcgm.selector", ()),
        dcgm_namespaces=value.get("dcgm.selector-namespace") or _usual_namespaces(environ, own_namespace),
        dcgm_port=dcgm_port(environ),
        dcgm_path=dcgm_path(environ),
        dcgm_files=value.get("dcgm.file", ()),
        dcgm_file_max_age_seconds=value["dcgm.file-max-age"],
        dcgm_timeout_seconds=value["dcgm.timeout"],
        dcgm_max_bytes=value["dcgm.max-bytes"],
        dcgm_http_config=value.get("dcgm.http-config"),
        node_name=value.get("node-name", host_name),
        node_is_named="node-name" in value,
        label_names=names,
        incoming_wins=value["labels.conflict"] == "keep",
        idle_labels=idle == "empty",
        sharing=value["sharing"],
        sharing_gauges=value.get("sharing.gauges", ()),
        sharing_counters=value.get("sharing.counters", ()),
        device_rules=value.get("device-rules"),
        inventory_file=value.get("inventory.file"),
        dra=value["dra"],
        pod_uid=value["labels.pod-uid"] == "on",
        pod_labels=value.get("labels.pod-labels", ()),
        pod_labels_limit=value["labels.pod-labels-limit"],
        pods_source=value["pods.source"],
        kubelet_pods_socket=value["kubelet.pods-socket"],
        kubernetes_url=value.get("kubernetes.url"),
        kubernetes_token_file=value["kubernetes.token-file"],
        kubernetes_ca_file=value["kubernetes.ca-file"],
        workload_labels=value.get("workload.labels", ()),
        families_allow=value.get("families.allow", ()),
        families_deny=value.get("families.deny", ()),
        log_level=value["log.level"],
        log_format=value["log.format"],
        given=tuple(sorted({**_computed(host_name, idle, has_other_pages=bool(others)), **texts}.items())),
        doubts=tuple(doubts(environ, port_is_used="dcgm.selector" in value or _is_by_host(texts))),
    )
    _check_together(config)
    return config


def flag_of(name: str) -> str:
    """How a setting is named in an error about the command line."""
    return f"--{name}"


def _defaults() -> dict[str, Given]:
    return {
        setting.name: Given(f"the default of {setting.flag}", (setting.default,))
        for setting in SETTINGS
        if setting.default is not None
    }


def _computed(host_name: str, idle: str, *, has_other_pages: bool) -> dict[str, Given]:
    """The defaults that follow from other settings or from the machine."""
    found = {"node-name": Given("the host name", (host_name,)), "labels.idle": Given("--labels.names", (idle,))}
    if not has_other_pages:
        found["dcgm.url"] = Given("the default of --dcgm.url", (DEFAULT_DCGM_URL,))
    return found


def _is_by_host(texts: Mapping[str, Given]) -> bool:
    return "dcgm.url" in texts and texts["dcgm.url"].where == "DCGM_HOST"


def _parse(setting: Setting, given: Given) -> Any:  # noqa: ANN401 - each setting has a type of its own
    values = []
    for text in given.values:
        try:
            values.append(setting.parse(text))
        except ValueError:
            shown = without_secrets(repr(text))
            raise ConfigError(f"{given.where}: {shown} is not allowed; it takes {setting.allowed}") from None
    return tuple(values) if setting.repeatable else values[-1]


def _usual_namespaces(environ: Mapping[str, str], own_namespace: str) -> tuple[str, ...]:
    """Where only the cluster's administrators make pods: the exporter's own namespace, and the GPU operator's."""
    own = environ.get("POD_NAMESPACE", "").strip() or own_namespace
    return tuple(dict.fromkeys((*((own,) if own else ()), *GPU_OPERATOR_NAMESPACES)))


def _from_file(file: Mapping[str, Any], prefix: str = "") -> dict[str, Given]:
    found: dict[str, Given] = {}
    for key, value in file.items():
        name = f"{prefix}{key}"
        setting = _BY_NAME.get(name)
        if setting is None and isinstance(value, Mapping):
            inside = _from_file(value, f"{name}.")
            _refuse_twice(found.keys() & inside.keys())
            found |= inside
            continue
        _refuse_twice({name} & found.keys())
        if setting is None:
            close = ", ".join(sorted(_BY_NAME))
            raise ConfigError(f"config file: {name!r} is not a key; the keys are {close}")
        values = value if isinstance(value, list) else [value]
        if (isinstance(value, list) and not setting.repeatable) or any(
            isinstance(item, list | Mapping) or item is None for item in values
        ):
            shown = without_secrets(repr(value))
            raise ConfigError(f"config file: {name}: {shown} is not allowed; it takes {setting.allowed}")
        found[name] = Given(f"config file: {name}", tuple(_text_of(item) for item in values))
    return found


def _refuse_twice(names: AbstractSet[str]) -> None:
    """`kubelet.socket: /x` and `kubelet: {socket: /y}` are one key."""
    if names:
        raise ConfigError(f"config file: {min(names)} is given twice; give each key once")


def _text_of(value: object) -> str:
    """YAML's booleans are accepted where on and off are meant."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _check_together(config: Config) -> None:
    """Contradictions between settings."""
    _check_addresses(config)
    _check_names(config)
    if (config.pod_uid or config.pod_labels) and config.pods_source == "api" and not config.kubernetes_url:
        raise ConfigError(
            "--pods.source: api needs the Kubernetes API: run in a pod with a service account, or name it with"
            " --kubernetes.url"
        )


def _check_addresses(config: Config) -> None:
    for upstream in config.dcgm_urls:
        parts = urlsplit(upstream)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        for own in config.listen_addresses:
            if port == own.port and _same_machine(parts.hostname or "", own.host):
                raise ConfigError(
                    f"--dcgm.url: {without_secrets(upstream)} is this exporter's own address ({own}): one of the two"
                    " must move, --web.listen-address or dcgm-exporter's own (its flag -a or DCGM_EXPORTER_LISTEN)"
                )


def _check_names(config: Config) -> None:
    for prefix, used in (("label_", config.pod_labels), ("dra_", config.dra != "off")):
        for name in config.label_names if used else ():
            if name.startswith(prefix):
                raise ConfigError(f"--labels.names: {name!r} is not allowed; names that begin with {prefix} are taken")
    both = set(config.sharing_gauges) & set(config.sharing_counters)
    if both:
        raise ConfigError(f"--sharing.gauges: {min(both)} is in --sharing.counters too; it can be divided in one way")
    for what, given in (
        ("--dcgm.url", config.dcgm_urls),
        ("--dcgm.file", config.dcgm_files),
        ("--web.listen-address", config.listen_addresses),
    ):
        for value in given:
            if given.count(value) > 1 and not (isinstance(value, Address) and value.port == 0):
                raise ConfigError(f"{what}: {without_secrets(str(value))} is named twice; name each once")


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


def _origin(given: Given) -> str:
    return "default" if given.where.startswith("the default of ") else given.where


def source_names(urls: Sequence[str]) -> tuple[str, ...]:
    """`dcgm:<host:port>` for each URL; where two share an address, their paths tell them apart, or else their order.

    Neither user information nor a query is in a name: names stand on pages and in the log.
    """
    parts = [urlsplit(text) for text in urls]
    hosts = [
        str(Address(host=part.hostname or "", port=part.port or (443 if part.scheme == "https" else 80)))
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
