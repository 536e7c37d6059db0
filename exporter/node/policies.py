"""What the configuration says of labels, shares and families, as the policies that a page is made by."""

import re
from collections.abc import Callable, Mapping, Sequence

from exporter.attribution.fields import ADDITIVE, Additive
from exporter.attribution.labels import LabelPolicy
from exporter.attribution.pod_labels import PodLabelPolicy
from exporter.attribution.rule_file import DeviceRules, read_rules
from exporter.config.node import Config
from exporter.errors import ConfigError


def device_rules(config: Config, content: object) -> DeviceRules:
    """The built-in rules, and those of --device-rules, of which `content` is the parsed file.

    Raises:
        ConfigError: the file cannot be used.
    """
    if config.devices.rules_file is None:
        return DeviceRules()
    flag = "--device-rules"
    try:
        rules = read_rules(content)
    except ValueError as error:
        raise ConfigError(f"{flag}: {config.devices.rules_file!r}: {error}") from error
    for name in config.labels.names:
        if name in rules.sample_labels.all:
            raise ConfigError(f"--labels.names: {name!r} is not allowed; {flag} reads the device from it")
    return rules


def label_policy(config: Config, rules: DeviceRules, *, divides_counters: bool) -> LabelPolicy:
    """The label flags; `divides_counters` is off where only one page will be made."""
    additive: Mapping[str, Additive] = {
        **ADDITIVE,
        **dict.fromkeys(config.sharing.gauges, Additive.GAUGE),
        **dict.fromkeys(config.sharing.counters, Additive.COUNTER),
    }
    return LabelPolicy(
        names=config.labels.names,
        incoming_wins=config.labels.incoming_wins,
        idle_labels=config.labels.idle,
        sharing=config.sharing.mode,
        additive=additive,
        divides_counters=divides_counters,
        has_pod_labels=bool(config.labels.pod_labels),
        has_claims=config.devices.dra != "off",
        sample_labels=rules.sample_labels,
    )


def pod_label_policy(config: Config) -> PodLabelPolicy | None:
    """Which labels come from pods; None where none do, and no source of pods is needed."""
    if not config.labels.pod_uid and not config.labels.pod_labels:
        return None
    return PodLabelPolicy(
        with_uid=config.labels.pod_uid,
        patterns=tuple(map(re.compile, config.labels.pod_labels)),
        limit=config.labels.pod_labels_limit,
    )


def family_filter(allow: Sequence[str], deny: Sequence[str]) -> Callable[[str], bool]:
    """Whether a family goes out: its whole name matches one of `allow` (if there are any) and none of `deny`."""
    allowed, denied = [re.compile(text) for text in allow], [re.compile(text) for text in deny]

    def wanted(name: str) -> bool:
        return (not allowed or any(pattern.fullmatch(name) for pattern in allowed)) and not any(
            pattern.fullmatch(name) for pattern in denied
        )

    return wanted
