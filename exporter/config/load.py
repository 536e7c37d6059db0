"""The loading of a node's configuration: flags, environment and file become a frozen `Config`.

node_settings.py has the settings. Pure: the environment and the file's content come in as values.

Tests: tests/config/test_config.py.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from exporter.config import otlp
from exporter.config.environment import dcgm_host, dcgm_path, dcgm_port, doubts, doubts_of_port
from exporter.config.gather import check_not_own_address, check_once, fields_of, from_flags, gather, parse
from exporter.config.node_settings import GROUPS, SETTINGS, Config
from exporter.config.page_settings import DEFAULT_DCGM_URL
from exporter.config.parsers import GPU_OPERATOR_NAMESPACES, LABEL_SETS
from exporter.config.settings import SettingTexts, by_default
from exporter.errors import ConfigError
from exporter.lenient import AnyObject

_SETTINGS = {setting.name: setting for setting in SETTINGS}
_OTHER_PAGES = frozenset({"dcgm.file", "dcgm.selector"})


def load(
    flags: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    file: AnyObject | None,
    host_name: str,
    config_file: str | None = None,
    own_namespace: str = "",
) -> Config:
    """The configuration that flags, environment and file give together.

    Args:
        flags: the texts given on the command line, by setting name; a flag that was not given is absent.
        environ: the process environment. An unknown name is ignored, with a doubt unless it is a service link.
        file: the parsed `--config.file`, flat (`kubelet.socket: …`) or nested.
        host_name: the default of `--node-name`.
        config_file: the path that `file` was read from.
        own_namespace: the namespace of the service account; POD_NAMESPACE wins over it.

    Raises:
        ConfigError: a setting is not allowed. The error's one line has the key, the value and what is allowed.
    """
    given = _given(flags, environ, file)
    values = {name: parse(_SETTINGS, name, texts) for name, texts in given.items()}
    following = _following(values, host_name)
    values.update({name: parse(_SETTINGS, name, texts) for name, texts in following.items()})
    values.setdefault("dcgm.selector", ())
    if not values.get("dcgm.selector-namespace"):
        values["dcgm.selector-namespace"] = _usual_namespaces(environ, own_namespace)
    config = _config(values, given, following, environ, config_file)
    _check_together(config)
    return config


def _given(
    flags: Mapping[str, Sequence[str]], environ: Mapping[str, str], file: AnyObject | None
) -> dict[str, SettingTexts]:
    """The texts of settings. OpenTelemetry's environment counts last, after this program's own places."""
    given = gather(_SETTINGS, {}, environ, file)
    host = dcgm_host(environ)
    if host:
        given.update(host)
        given.pop("dcgm.selector", None)
    return otlp.endpoint(environ) | given | from_flags(flags)


def _config(
    values: AnyObject,
    given: Mapping[str, SettingTexts],
    following: Mapping[str, SettingTexts],
    environ: Mapping[str, str],
    config_file: str | None,
) -> Config:
    """A Config of checked values. `given` says where each was set, `following` what was set by another setting."""
    url = otlp.url_of(values.get("otlp.endpoint"), given.get("otlp.endpoint"))
    besides: Mapping[str, Mapping[str, object]] = {
        "dcgm": {"port": dcgm_port(environ), "path": dcgm_path(environ)},
        "node": {"is_named": "node-name" in given},
        "otlp": {
            "url": url,
            "headers": otlp.headers(environ),
            "resource": otlp.resource(environ, str(values["node-name"])),
        },
    }
    dcgm_url = given.get("dcgm.url")
    port_is_used = "dcgm.selector" in given or (dcgm_url is not None and dcgm_url.where == "DCGM_HOST")
    groups: dict[str, Any] = {
        name: group(**fields_of(group, values), **besides.get(name, {})) for name, group in GROUPS.items()
    }
    return Config(
        **groups,
        config_file=config_file,
        given=tuple(sorted({**given, **following}.items())),
        doubts=(*doubts(environ, SETTINGS), *doubts_of_port(environ, is_used=port_is_used), *otlp.doubts(environ, url)),
    )


def _following(values: Mapping[str, object], host_name: str) -> dict[str, SettingTexts]:
    """The settings that nobody gave and that follow from other settings or from the machine."""
    idle = "empty" if values["labels.names"] == LABEL_SETS["pod"] else "omit"
    following = {
        "node-name": SettingTexts("the host name", (host_name,)),
        "labels.idle": SettingTexts("--labels.names", (idle,)),
    }
    if values["dcgm.mode"] != "off" and not values.keys() & _OTHER_PAGES:
        following["dcgm.url"] = by_default("--dcgm.url", DEFAULT_DCGM_URL)
    return {name: texts for name, texts in following.items() if name not in values}


def _usual_namespaces(environ: Mapping[str, str], own_namespace: str) -> tuple[str, ...]:
    """The namespaces in which usually only administrators make pods: the exporter's own, and the GPU operator's."""
    own = environ.get("POD_NAMESPACE", "").strip() or own_namespace
    namespaces = (own, *GPU_OPERATOR_NAMESPACES) if own else GPU_OPERATOR_NAMESPACES
    return tuple(dict.fromkeys(namespaces))


def _check_together(config: Config) -> None:
    who_can_move = ", --web.listen-address or dcgm-exporter's own (its flag -a or DCGM_EXPORTER_LISTEN)"
    for upstream in config.dcgm.urls:
        check_not_own_address("--dcgm.url", urlsplit(upstream), config.web.listen_addresses, who_can_move)
    _check_names(config)
    _check_mode(config)
    _check_inventory(config)
    if config.accounting.state_file and not config.accounting.is_on:
        raise ConfigError("--accounting.state: nothing is kept with --accounting.mode off; leave one of the two out")
    if config.otlp.http_config_file and not config.otlp.url:
        raise ConfigError("--otlp.http-config: nothing is pushed without --otlp.endpoint; name it, or leave this out")
    if config.processes.is_exposed and config.nvml.mode == "off":
        raise ConfigError("--processes.expose: on needs NVML, and --nvml.mode is off; leave one of the two out")
    _check_pods(config)


def _check_inventory(config: Config) -> None:
    devices = config.devices
    if devices.inventory == "off" and devices.inventory_file:
        raise ConfigError("--inventory: off contradicts --inventory.file; leave one of the two out")
    if devices.inventory == "file" and not devices.inventory_file:
        raise ConfigError("--inventory: file needs --inventory.file: name it")


def _check_pods(config: Config) -> None:
    needs_pods = config.labels.pod_uid or config.labels.pod_labels or config.allocators.pods == "on"
    if needs_pods and config.pods.source == "api" and not config.kubernetes.url:
        raise ConfigError(
            "--pods.source: api needs the Kubernetes API: run in a pod with a service account, or name it with"
            " --kubernetes.url"
        )


def _check_mode(config: Config) -> None:
    dcgm = config.dcgm
    if dcgm.mode != "off":
        return
    named = {"--dcgm.url": dcgm.urls, "--dcgm.file": dcgm.files, "--dcgm.selector": dcgm.selectors}
    for flag, pages in named.items():
        if pages:
            raise ConfigError(
                f"--dcgm.mode: off means that no dcgm-exporter is asked, and contradicts {flag}; leave one of the two"
                " out (DCGM_HOST and DCGM_LABELS name pages, too)"
            )
    if config.nvml.mode == "off":
        raise ConfigError("--dcgm.mode: off has NVML make the page, and contradicts --nvml.mode off; leave one out")


def _check_names(config: Config) -> None:
    """Raises ConfigError: a label's name is taken, settings contradict one another, or a value is there twice."""
    for prefix, used in (("label_", config.labels.pod_labels), ("dra_", config.devices.follows_claims)):
        for name in config.labels.names if used else ():
            if name.startswith(prefix):
                raise ConfigError(f"--labels.names: {name!r} is not allowed; names that begin with {prefix} are taken")
    if not config.labels.owners and config.sharing.mode == "split":
        raise ConfigError(
            "--labels.owners: off serves one row a device, and contradicts --sharing split, which divides it among its"
            " owners; choose --sharing copy, or leave --labels.owners out"
        )
    if not config.labels.owners and config.labels.incoming_wins:
        raise ConfigError(
            "--labels.owners: off takes the page's owners off its samples, and contradicts --labels.conflict keep;"
            " leave one of the two out"
        )
    both = set(config.sharing.gauges) & set(config.sharing.counters)
    if both:
        raise ConfigError(f"--sharing.gauges: {min(both)} is in --sharing.counters too; it can be divided in one way")
    check_once("--dcgm.url", config.dcgm.urls)
    check_once("--dcgm.file", config.dcgm.files)
    check_once("--web.listen-address", config.web.listen_addresses)
