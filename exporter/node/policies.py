"""Turns the settings of labels, shares and families into the policies by which pages are made.

Tests: tests/node/test_names.py.
"""

import re
from collections.abc import Callable, Mapping

from exporter import log
from exporter.config.node_settings import DeviceSettings, LabelSettings, SharingSettings
from exporter.config.page_settings import AS_IS, BOTH, FamilySettings
from exporter.dcgm.fields import ADDITIVE
from exporter.dcgm.generation_names import NEWER, OLDER, NewName, label_names_in, names_in
from exporter.dcgm.table import Additive
from exporter.dividing.decimals import in_unit
from exporter.errors import ConfigError
from exporter.exposition.gpu_families import only_gpu_families
from exporter.exposition.renaming import AS_IT_CAME, Renamed, Renaming, Texts
from exporter.exposition.vendor_pages import Vendor
from exporter.ownership.device_ids import DeviceRules, read_rules
from exporter.ownership.labels import OWNER_LABELS, LabelPolicy, PodLabelPolicy


def device_rules(devices: DeviceSettings, labels: LabelSettings, content: object) -> DeviceRules:
    """The built-in rules, and those of --device-rules (parsed: `content`). Raises ConfigError: it cannot be used."""
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


def vendor_of(rules: DeviceRules, labels: LabelSettings) -> Vendor | None:
    """The rules of --device-rules for another vendor's pages; None if they map no families."""
    if not rules.families:
        return None
    return Vendor(
        families=rules.families, naming=rules.sample_labels.naming, owner_labels=OWNER_LABELS | frozenset(labels.names)
    )


def label_policy(
    labels: LabelSettings, sharing: SharingSettings, rules: DeviceRules, *, has_claims: bool, divides_counters: bool
) -> LabelPolicy:
    """The policy of the label flags. `has_claims`: claims are followed.

    `divides_counters`: more than one page is made.
    """
    additive: Mapping[str, Additive] = {
        **ADDITIVE,
        **dict.fromkeys(sharing.gauges, Additive.GAUGE),
        **dict.fromkeys(sharing.counters, Additive.COUNTER),
    }
    return LabelPolicy(
        names=labels.names,
        names_owners=labels.owners,
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
    """The policy for labels that come from pods; None if none do, so that no source of pods is needed."""
    if not labels.pod_uid and not labels.pod_labels:
        return None
    return PodLabelPolicy(
        with_uid=labels.pod_uid, patterns=tuple(map(re.compile, labels.pod_labels)), limit=labels.pod_labels_limit
    )


def family_filter(families: FamilySettings) -> Callable[[str], bool]:
    """A filter of families: the whole name must match an allowed name (if any are given) and no denied name."""
    allowed = [re.compile(text) for text in families.allow]
    denied = [re.compile(text) for text in families.deny]

    def wanted(name: str) -> bool:
        return (not allowed or any(pattern.fullmatch(name) for pattern in allowed)) and not any(
            pattern.fullmatch(name) for pattern in denied
        )

    return wanted


def renaming_to(names: str) -> Renaming:
    """The renaming of a page's lines for --families.names."""
    if names == AS_IS:
        return AS_IT_CAME
    units: dict[tuple[int, int], Texts] = {}
    labels = {
        name.encode(): tuple(label.encode() for label in new_names)
        for name, new_names in label_names_in(*((OLDER, NEWER) if names == BOTH else (names,))).items()
    }

    def renamed(new: NewName) -> Renamed:
        unit = (new.times, new.per)
        texts = None if new.times == new.per else units.setdefault(unit, Texts(in_unit(*unit)))
        return Renamed(new.name.encode(), new.kind.encode(), new.help.encode(), texts, labels)

    older = names_in(OLDER)
    newer = names_in(NEWER)
    families = {name.encode(): renamed(new) for name, new in (newer if names == NEWER else older).items()}
    twins = {name.encode(): renamed(new) for name, new in newer.items() if new.name != older[name].name}
    return Renaming(families, twins if names == BOTH else {})


def gpu_families_from(name: str) -> Callable[[bytes], bytes]:
    """A filter that admits only GPU families of a discovered pod. The log tells the first time that it drops others."""
    complained = False

    def admit(page: bytes) -> bytes:
        nonlocal complained
        admitted = only_gpu_families(page)
        if admitted is not page and not complained:
            complained = True
            log.warning(
                "a pod that was found brings families that are not dcgm-exporter's: they are left out;"
                " --families.allow takes them",
                source=name,
            )
        return admitted

    return admit
