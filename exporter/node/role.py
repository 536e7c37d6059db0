"""The node role as the service runs it, made of a configuration and of the previous node.

Tests: tests/test_reload.py.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from exporter import __version__, log
from exporter.config.named_files import read_node_files
from exporter.config.node_settings import Config
from exporter.config.page_settings import source_names
from exporter.config.parsers import SHIPPED_RULES
from exporter.model.snapshot import Snapshot
from exporter.node.build import make_node
from exporter.node.node import Node
from exporter.role import RoleKind

if TYPE_CHECKING:
    from exporter.outputs.diagnosis import Diagnosis


def diagnose(config: Config, snapshot: Snapshot) -> "Diagnosis":
    """The findings of a look with these settings. Rules that the program brings for another vendor are experimental."""
    from exporter.outputs import findings  # noqa: PLC0415 - only /debug/mapping and doctor need them
    from exporter.outputs.diagnosis import fine  # noqa: PLC0415 - as above

    report = findings.diagnose(snapshot, config.doubts, asks_nvml=config.nvml.mode != "off")
    vendors = [name for name, path in SHIPPED_RULES.items() if str(path) == config.devices.rules_file]
    tried = "are experimental: nobody has seen them on hardware (docs/vendors.md)"
    of_rules = [fine("--device-rules", f"the rules for {name} {tried}") for name in vendors]
    return replace(report, findings=(*of_rules, *report.findings))


def as_json(config: Config, snapshot: Snapshot) -> Mapping[str, Any]:
    """The part of /debug/mapping beside the mapping: the program, its settings (without secrets), and the report."""
    # only the simulated node has another root, and `doctor --bundle` must find its files
    root = {} if config.root == "/" else {"root": config.root}
    return {"version": __version__, **root, "settings": config.shown(), "doctor": diagnose(config, snapshot).as_json()}


def make_role(
    config: Config, before: object = None, *, divides_counters: bool = True, keeps_accounts: bool = True
) -> Node:
    """A node that continues with what `before` hands over, if that was a node. All files are read first.

    `divides_counters` is off if only one page is made, and `keeps_accounts` if nobody makes the node beat. Raises
    ConfigError: a file that the configuration names cannot be used; then `before` is unchanged.
    """
    return make_node(
        config,
        read_node_files(config),
        divides_counters=divides_counters,
        keeps_accounts=keeps_accounts,
        handover=before.handover if isinstance(before, Node) else None,
    )


def say_what_is_read(config: Config) -> None:
    """Log one line: the sources, the names under which families go out, and the kind of sharing."""
    by_nvml = ("nvml",) if config.dcgm.mode == "off" else ()
    needs_pods = config.labels.pod_labels or config.labels.pod_uid or config.allocators.pods == "on"
    selectors = [",".join(f"{name}={value}" for name, value in labels) for labels in config.dcgm.selectors]
    log.info(
        "reading",
        kubelet=config.kubelet.socket,
        pages=" ".join((*by_nvml, *source_names(config.dcgm.urls), *(f"file:{path}" for path in config.dcgm.files)))
        or f"pods with {' or '.join(selectors)}",
        resources=",".join(config.devices.resources),
        labels=",".join(config.labels.names) if config.labels.owners else "none",
        conflict="keep" if config.labels.incoming_wins else "replace",
        sharing=config.sharing.mode,
        dra=config.devices.dra,
        inventory=config.devices.inventory_file or config.devices.inventory,
        pods=config.pods.source if needs_pods or selectors else "none",
    )


NODE = RoleKind(make=make_role, about=as_json, say=say_what_is_read, names=lambda config: {"node": config.node.name})
