"""Contradictions between settings, each of which is allowed by itself."""

from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from exporter.config.node import Config
from exporter.config.parsers import Address, without_secrets
from exporter.errors import ConfigError


def check_together(config: Config) -> None:
    """Refuse what cannot all be meant.

    Raises:
        ConfigError: with one line that names both settings.
    """
    _check_addresses(config)
    _check_names(config)
    _check_mode(config)
    if config.devices.inventory == "off" and config.devices.inventory_file:
        raise ConfigError("--inventory: off contradicts --inventory.file; leave one of the two out")
    if config.devices.inventory == "file" and not config.devices.inventory_file:
        raise ConfigError("--inventory: file needs --inventory.file: name it")
    if config.accounting.state_file and not config.accounting.is_on:
        raise ConfigError("--accounting.state: nothing is kept with --accounting.mode off; leave one of the two out")
    if config.processes.is_exposed and config.nvml.mode == "off":
        raise ConfigError("--processes.expose: on needs NVML, and --nvml.mode is off; leave one of the two out")
    needs_pods = config.labels.pod_uid or config.labels.pod_labels
    if needs_pods and config.pods.source == "api" and not config.kubernetes.url:
        raise ConfigError(
            "--pods.source: api needs the Kubernetes API: run in a pod with a service account, or name it with"
            " --kubernetes.url"
        )


def _check_addresses(config: Config) -> None:
    for upstream in config.dcgm.urls:
        check_not_own_address(
            "--dcgm.url",
            urlsplit(upstream),
            config.web.listen_addresses,
            ", --web.listen-address or dcgm-exporter's own (its flag -a or DCGM_EXPORTER_LISTEN)",
        )


def check_not_own_address(flag: str, upstream: SplitResult, own_addresses: Sequence[Address], which: str = "") -> None:
    """Refuse an upstream that is surely this program itself; `which` says what can move.

    Raises:
        ConfigError: it is.
    """
    port = upstream.port or (443 if upstream.scheme == "https" else 80)
    for own in own_addresses:
        if port == own.port and _same_machine(upstream.hostname or "", own.host):
            raise ConfigError(
                f"{flag}: {without_secrets(upstream.geturl())} is this exporter's own address ({own}): one of the two"
                f" must move{which}"
            )


def check_once(flag: str, values: Sequence[object]) -> None:
    """Refuse a value that is given twice; two free ports (port 0) are two.

    Raises:
        ConfigError: there is one.
    """
    for value in values:
        if values.count(value) > 1 and not (isinstance(value, Address) and value.port == 0):
            raise ConfigError(f"{flag}: {without_secrets(str(value))} is named twice; name each once")


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
    for prefix, used in (("label_", config.labels.pod_labels), ("dra_", config.devices.follows_claims)):
        for name in config.labels.names if used else ():
            if name.startswith(prefix):
                raise ConfigError(f"--labels.names: {name!r} is not allowed; names that begin with {prefix} are taken")
    both = set(config.sharing.gauges) & set(config.sharing.counters)
    if both:
        raise ConfigError(f"--sharing.gauges: {min(both)} is in --sharing.counters too; it can be divided in one way")
    check_once("--dcgm.url", config.dcgm.urls)
    check_once("--dcgm.file", config.dcgm.files)
    check_once("--web.listen-address", config.web.listen_addresses)


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
