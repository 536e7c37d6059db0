"""What the configuration says of labels, shares and families, as the policies that a page is made by."""

import logging
import re
from collections.abc import Callable, Mapping

from exporter.accounting.fields import ADDITIVE, Additive
from exporter.attribution.labels import LabelPolicy
from exporter.attribution.pod_labels import PodLabelPolicy
from exporter.attribution.rule_file import DeviceRules, read_rules
from exporter.config.node import DeviceSettings, LabelSettings, SharingSettings
from exporter.config.pages import FamilySettings
from exporter.errors import ConfigError
from exporter.exposition.gpu_families import only_gpu_families
from exporter.log import log


def device_rules(devices: DeviceSettings, labels: LabelSettings, content: object) -> DeviceRules:
    """The built-in rules, and those of --device-rules, of which `content` is the parsed file.

    Raises:
        ConfigError: the file cannot be used.
    """
    if devices.rules_file is None:
        return DeviceRules()
    flag = "--device-rules"
    try:
        rules = read_rules(content)
    except ValueError as error:
        raise ConfigError(f"{flag}: {devices.rules_file!r}: {error}") from error
    for name in labels.names:
        if name in rules.sample_labels.all:
            raise ConfigError(f"--labels.names: {name!r} is not allowed; {flag} reads the device from it")
    return rules


def label_policy(
    labels: LabelSettings, sharing: SharingSettings, rules: DeviceRules, *, has_claims: bool, divides_counters: bool
) -> LabelPolicy:
    """The label flags. `has_claims` says that claims are followed.

    `divides_counters` is off where only one page will be made.
    """
    additive: Mapping[str, Additive] = {
        **ADDITIVE,
        **dict.fromkeys(sharing.gauges, Additive.GAUGE),
        **dict.fromkeys(sharing.counters, Additive.COUNTER),
    }
    return LabelPolicy(
        names=labels.names,
        incoming_wins=labels.incoming_wins,
        idle_labels=labels.idle,
        sharing=sharing.mode,
        additive=additive,
        divides_counters=divides_counters,
        has_pod_labels=bool(labels.pod_labels),
        has_claims=has_claims,
        sample_labels=rules.sample_labels,
    )


def pod_label_policy(labels: LabelSettings) -> PodLabelPolicy | None:
    """Which labels come from pods; None where none do, and no source of pods is needed."""
    if not labels.pod_uid and not labels.pod_labels:
        return None
    return PodLabelPolicy(
        with_uid=labels.pod_uid,
        patterns=tuple(map(re.compile, labels.pod_labels)),
        limit=labels.pod_labels_limit,
    )


def family_filter(families: FamilySettings) -> Callable[[str], bool]:
    """Whether a family goes out: its whole name matches one of those allowed (if any are) and none denied."""
    allowed, denied = [re.compile(text) for text in families.allow], [re.compile(text) for text in families.deny]

    def wanted(name: str) -> bool:
        return (not allowed or any(pattern.fullmatch(name) for pattern in allowed)) and not any(
            pattern.fullmatch(name) for pattern in denied
        )

    return wanted


def gpu_families_from(name: str) -> Callable[[bytes], bytes]:
    """What a pod that was found may bring; that it brings more is said once."""
    complained = False

    def admit(page: bytes) -> bytes:
        nonlocal complained
        admitted = only_gpu_families(page)
        if admitted is not page and not complained:
            complained = True
            log(
                logging.WARNING,
                "a pod that was found brings families that are not dcgm-exporter's: they are left out;"
                " --families.allow takes them",
                source=name,
            )
        return admitted

    return admit
