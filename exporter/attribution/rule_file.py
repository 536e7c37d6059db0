"""A user's own rules (`--device-rules`): more forms of device ids, more labels that name a sample's device.

devices:
- resource: gpu.intel.com/*
id: '(?P<device>card[0-9]+)-(?P<share>[0-9]+)'
samples:
device: [dev_file]
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from exporter.attribution.device_ids import NAMING_PARTS, PARTS, RULES, Rule
from exporter.attribution.labels import SampleLabels

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRules:
    """The rules for ids and the labels of samples; a user's come before the built-in ones."""

    rules: tuple[Rule, ...] = RULES
    sample_labels: SampleLabels = field(default_factory=SampleLabels)


def read_rules(content: object) -> DeviceRules:
    """The rules that a parsed YAML or JSON file describes.

    Raises:
        ValueError: the file has another form; one line that says what is wrong, and where.
    """
    if not isinstance(content, Mapping) or not content.keys() <= {"devices", "samples"} or not content:
        raise ValueError("it must hold `devices` (rules for ids), `samples` (labels), or both")
    devices, samples = content.get("devices") or [], content.get("samples") or {}
    if not isinstance(devices, list):
        raise ValueError("`devices` must be a list of rules, each with `resource` and `id`")  # noqa: TRY004 - the caller words it
    if not isinstance(samples, Mapping):
        raise ValueError("`samples` must hold lists of labels by part")  # noqa: TRY004 - see above
    return DeviceRules(
        rules=(*(_rule(rule, f"devices[{i}]") for i, rule in enumerate(devices)), *RULES),
        sample_labels=_sample_labels(samples),
    )


def _rule(content: object, where: str) -> Rule:
    if not isinstance(content, Mapping) or content.keys() != {"resource", "id"}:
        raise ValueError(f"{where} must hold `resource` (a glob) and `id` (a regular expression)")
    resource, text = content["resource"], content["id"]
    if not isinstance(resource, str) or not isinstance(text, str) or not resource:
        raise ValueError(f"{where}: `resource` and `id` must be texts")
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ValueError(f"{where}.id: {text!r} is no regular expression: {error}") from error
    parts = set(pattern.groupindex)
    if not parts & NAMING_PARTS or not parts <= PARTS:
        raise ValueError(
            f"{where}.id: {text!r} must name what it finds, (?P<uuid>…), with one of {', '.join(sorted(NAMING_PARTS))},"
            f" and no other names than {', '.join(sorted(PARTS))}"
        )
    return Rule(f"{resource} {text}", pattern, resource=resource)


def _sample_labels(content: Mapping[object, object]) -> SampleLabels:
    known = {part.name for part in fields(SampleLabels)}
    built_in = SampleLabels()
    given: dict[str, tuple[str, ...]] = {}
    for part, labels in content.items():
        if not isinstance(part, str) or part not in known:
            raise ValueError(f"samples: {part!r} is not known; the parts are {', '.join(sorted(known))}")
        if not isinstance(labels, list) or not all(
            isinstance(label, str) and _LABEL_NAME.fullmatch(label) for label in labels
        ):
            raise ValueError(f"samples.{part}: {labels!r} must be a list of label names")
        given[part] = tuple(labels)
    # a label means one thing: where a user names it for one part, it no longer counts for another
    taken = {label for labels in given.values() for label in labels}
    return SampleLabels(
        **{
            part: (*given.get(part, ()), *(label for label in getattr(built_in, part) if label not in taken))
            for part in known
        }
    )
