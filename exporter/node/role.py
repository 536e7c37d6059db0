"""The node role as the service runs it: made of a configuration and of the node until now."""

import logging

from exporter.config.named_files import read_node_files
from exporter.config.node import Config
from exporter.config.pages import source_names
from exporter.log import debug, log
from exporter.node import diagnosis
from exporter.node.build import make_node
from exporter.node.node import Node
from exporter.role import RoleKind


def make_role(
    config: Config, before: object = None, *, divides_counters: bool = True, keeps_accounts: bool = True
) -> Node:
    """A node that goes on with what `before` hands over, where that was a node. All files are read first.

    `divides_counters` is off where only one page will be made, and `keeps_accounts` where nobody has it beat.

    Raises:
        ConfigError: a file that the configuration names cannot be used. `before` is then what it was.
    """
    lasting = before.lasting if isinstance(before, Node) else None
    return make_node(
        config,
        read_node_files(config),
        divides_counters=divides_counters,
        keeps_accounts=keeps_accounts,
        lasting=lasting,
    )


def say_what_is_read(config: Config) -> None:
    """One line that says what will be read, under which names it goes out and how it is shared; and every doubt."""
    by_nvml = ("nvml",) if config.dcgm.mode == "off" else ()
    selectors = [",".join(f"{name}={value}" for name, value in labels) for labels in config.dcgm.selectors]
    log(
        logging.INFO,
        "reading",
        kubelet=config.kubelet.socket,
        pages=" ".join((*by_nvml, *source_names(config.dcgm.urls), *(f"file:{path}" for path in config.dcgm.files)))
        or f"pods with {' or '.join(selectors)}",
        resources=",".join(config.devices.resources),
        labels=",".join(config.labels.names),
        conflict="keep" if config.labels.incoming_wins else "replace",
        sharing=config.sharing.mode,
        dra=config.devices.dra,
        inventory=config.devices.inventory_file or config.devices.inventory,
        pods=config.pods.source if config.labels.pod_labels or config.labels.pod_uid or selectors else "none",
    )
    for doubt in config.doubts:
        log(logging.WARNING, doubt.says, remedy=doubt.remedy)
    for name, shown in config.shown().items():
        debug("setting", name=name, value=shown["value"], given_by=shown["from"])


NODE = RoleKind(
    make=make_role, about=diagnosis.as_json, say=say_what_is_read, names=lambda config: {"node": config.node.name}
)
