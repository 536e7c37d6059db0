"""The settings with which a bundle is made: those of the exporter, without what writes, pushes or reads secrets.

Accounts and OTLP are off by themselves: only a beat keeps accounts and pushes, and the node of a bundle has none. A
bundle has the settings that a node needs to see the same, and none that say where the exporter answers or writes.

Pure.

Tests: tests/bundle/test_collecting.py.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from exporter.bundle.collecting.needed_parts import IsWanted
from exporter.bundle.recording import Absence
from exporter.config.named_files import NodeFiles
from exporter.config.node_settings import Config
from exporter.config.parsers import without_secrets
from exporter.errors import Trouble
from exporter.node.policies import device_rules
from exporter.ownership.allocators.allocator_table import ANNOTATIONS, annotations_of
from exporter.ownership.allocators.gpu_groups import GROUP_LABEL, GROUP_LABELS
from exporter.ownership.queues import QUEUE_KEYS

# settings that say where the exporter answers, writes and pushes, which no replay does
_LEFT_OUT = frozenset({"accounting.state", "log.level", "log.format", "kubernetes.ca-file", "kubernetes.token-file"})
_LEFT_OUT_GROUPS = ("web.", "otlp.")
# what follows from another setting
_FOLLOWING = frozenset({"labels.idle"})
# what would write, or read secrets: it is off while a bundle is made
_UNSAFE = frozenset({"probe.mode", "allocators.environ", "processes.expose"})


def safe_config(config: Config) -> tuple[Config, tuple[Absence, ...]]:
    """The configuration of a node that only looks, and what a bundle lacks for it.

    A setting that is turned off here is not among `given`, so that the bundle does not show it either.
    """
    absences = []
    if config.probe.is_on:
        absences.append(_left_out("--probe.mode on", "the CUDA probe loads a program into the kernel"))
    if config.allocators.reads_environ:
        absences.append(_left_out("--allocators.environ on", "a bundle has no environments of processes"))
    if config.processes.is_exposed:
        absences.append(_left_out("--processes.expose on", "a bundle has no command lines of processes"))
    safe = replace(
        config,
        probe=replace(config.probe, is_on=False),
        allocators=replace(config.allocators, reads_environ=False),
        processes=replace(config.processes, is_exposed=False),
        given=tuple((name, texts) for name, texts in config.given if name not in _UNSAFE),
    )
    return safe, tuple(absences)


def _left_out(what: str, why: str) -> Absence:
    return Absence(what=f"what {what} adds", why=Trouble("", f"{why}, so it is off while a bundle is made"))


def recorded_settings(config: Config) -> Mapping[str, tuple[str, ...]]:
    """The settings that differ from their defaults, by flag without dashes. URLs have neither user nor query."""
    return {
        name: tuple(without_secrets(text).removesuffix("?…") for text in texts.values)
        for name, texts in config.given
        if _is_recorded(name) and not config.is_default(name) and (name != "node-name" or config.node.is_named)
    }


def _is_recorded(name: str) -> bool:
    return name not in _LEFT_OUT | _FOLLOWING | _UNSAFE and not name.startswith(_LEFT_OUT_GROUPS)


def wanted_labels(config: Config) -> IsWanted:
    """Whether a pod's label is used: on samples, to name workloads or queues, to find pages, or by an allocator."""
    names = {GROUP_LABEL, *QUEUE_KEYS, *config.workloads.labels}
    names |= {name for selector in config.dcgm.selectors for name, _ in selector}
    patterns = [re.compile(text) for text in config.labels.pod_labels]

    def is_wanted(label: str) -> bool:
        is_matched = any(pattern.fullmatch(label) for pattern in patterns)
        return label in names or label.startswith(GROUP_LABELS) or is_matched

    return is_wanted


def wanted_annotations(config: Config, files: NodeFiles) -> IsWanted:
    """Whether an allocator's word stands in a pod's annotation. Raises ConfigError: --device-rules cannot be used."""
    rules = device_rules(config.devices, config.labels, files.rules)
    return (ANNOTATIONS | annotations_of(rules.allocators)).__contains__
