"""What a file of rules may hold, and what is said of one that holds something else; devices of claims by slices."""

import re

import pytest

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Claim, SliceDevice
from exporter.ownership.device_ids import PARTS, RULES, Rule, read_claim, read_device_id, read_rules
from exporter.ownership.labels import SampleLabels

ID = "(?P<device>card[0-9]+)"
HAS_NO_SECTION = "it must hold `devices` (rules for ids), `samples` (labels), `families` (fields), `looks` (resources)"
IS_NO_RULE = "devices[1] must hold `resource` (a glob) and `id` (a regular expression)"
NO_SECTIONS: tuple[object, ...] = ({}, [], None, "x", {"rules": []}, {"devices": [], "x": []})
NO_RULES: tuple[object, ...] = ("x", None, [], {}, {"resource": "x"}, {"resource": "x", "id": ID, "y": ""})
IS_NO_TEXT = "devices[1]: `resource` and `id` must be texts"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        *((content, HAS_NO_SECTION) for content in NO_SECTIONS),
        ({"devices": {"resource": "x", "id": ID}}, "`devices` must be a list of rules, each with `resource` and `id`"),
        ({"samples": ["x"]}, "`samples` must hold lists of labels by part"),
        ({"samples": {"gpu": ["x"]}}, "samples: 'gpu' is not known; the parts are address, device, driver, index,"),
        ({"samples": {5: ["x"]}}, "samples: 5 is not known"),
        ({"samples": {"index": "x"}}, "samples.index: 'x' must be a list of label names"),
        ({"samples": {"index": [5]}}, "samples.index: [5] must be a list of label names"),
        ({"samples": {"index": ["fine", "a-b"]}}, "samples.index: ['fine', 'a-b'] must be a list of label names"),
    ],
)
def test_a_file_of_another_form(content: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}"):
        read_rules(content)


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        *((rule, IS_NO_RULE) for rule in NO_RULES),
        *(({"resource": resource, "id": ID}, IS_NO_TEXT) for resource in (5, None, "")),
        ({"resource": "x", "id": 5}, IS_NO_TEXT),
        ({"resource": "x", "id": "("}, "devices[1].id: '(' is no regular expression: "),
        *(
            (
                {"resource": "x", "id": text},
                f"devices[1].id: '{text}' must name what it finds, (?P<uuid>…), with one of",
            )
            for text in ("", "card", "(?P<instance>.)", "(?P<share>.)", f"{ID}(?P<minor>.)")
        ),
    ],
)
def test_a_rule_of_another_form(rule: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}"):
        read_rules({"devices": [{"resource": "x", "id": ID}, rule]})


def test_a_rule_may_name_every_part() -> None:
    text = ",".join(f"(?P<{part}>[^,]*)" for part in sorted(PARTS))
    rules = read_rules({"devices": [{"resource": "x/*", "id": text}]}).rules
    values = {part: part.upper() for part in PARTS}
    ref = read_device_id("x/gpu", ",".join(values[part] for part in sorted(PARTS)), rules)
    values.pop("share")
    assert ref == DeviceRef(form=f"x/* {text}", shared=True, **values)  # type: ignore[arg-type]  # texts only


def test_a_users_rules_come_before_those_that_are_built_in() -> None:
    content = {"devices": [{"resource": "x/*", "id": "(?P<index>[0-9])"}], "looks": ["y/*"]}
    rules = read_rules(content).rules
    look, rule, *others = rules
    assert (look.resource, look.is_look, rule.resource, rule.is_look) == ("y/*", True, "x/*", False)
    assert tuple(others) == RULES
    seen = read_device_id("y/gpu", "any\nid", rules)
    assert seen is not None
    assert (seen.is_look, seen.is_no_gpu, seen.form) == (True, True, "y/* (a look)")
    # a pattern is of the whole id, and a glob of the whole resource
    assert [read_device_id(*id_of, rules) for id_of in (("x/gpu", "12"), ("ax/gpu", "1"))] == [None, None]


def test_families_of_a_file_are_read() -> None:
    content = {"families": [{"family": "xpum_power_watts", "field": "DCGM_FI_DEV_POWER_USAGE", "unit": "W"}]}
    rules = read_rules(content)
    assert [family.family for family in rules.families] == ["xpum_power_watts"]
    assert (rules.rules, rules.allocators, rules.sample_labels) == (RULES, (), SampleLabels())
    with pytest.raises(ValueError, match="families"):
        read_rules({"families": ["x"]})


def test_a_users_labels_come_before_those_that_are_built_in() -> None:
    labels = read_rules({"samples": {"device": ["dev_file", "gpu"], "index": ["number"]}}).sample_labels
    assert labels.device == ("dev_file", "gpu", "device")
    # a label has one meaning
    assert labels.index == ("number",)
    assert labels.uuid == SampleLabels().uuid


def test_without_an_allocator_the_built_in_rules_have_their_uuids_prefix() -> None:
    rule = Rule("mine", re.compile("(?P<uuid>.+)"), uuid_prefix="X-")
    assert read_device_id("x", "1", (rule,)) == DeviceRef(form="mine", uuid="X-1")


UUID = "9567a9e7-341e-bb7e-fcf5-788d8caa50f9"
FORM = "DRA driver/pool/device"


def claim(*cdi_names: str, share: str = "") -> Claim:
    return Claim(
        namespace="ml", name="c", driver="gpu.nvidia.com", pool="n", device="d", cdi_names=cdi_names, share=share
    )


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (SliceDevice(uuid="GPU-1"), DeviceRef(form=FORM, uuid="GPU-1")),
        (SliceDevice(uuid="MIG-1"), DeviceRef(form=FORM, mig="MIG-1")),
        (
            SliceDevice(uuid="1", kind="mig", parent_uuid="GPU-2", profile="1g.10gb"),
            DeviceRef(form=FORM, mig="1", parent="GPU-2", profile="1g.10gb"),
        ),
        (SliceDevice(uuid="GPU-1", kind="vfio"), DeviceRef(form=FORM, device="d", is_vfio=True)),
        (SliceDevice(uuid=""), None),
    ],
)
def test_a_claims_device_by_its_slice(device: SliceDevice, expected: DeviceRef | None) -> None:
    slices = {("gpu.nvidia.com", "n", "d"): device}
    assert read_claim(claim(), slices) == expected
    share = read_claim(claim(share="1"), slices)
    assert (share and share.shared) == (None if expected is None else not expected.is_vfio)


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        ((f"x=GPU-{UUID}",), {"uuid": f"GPU-{UUID}"}),
        ((f"x=MIG-{UUID}",), {"mig": f"MIG-{UUID}"}),
        ((f"x=MIG-{UUID}", f"x=GPU-{UUID}"), {"mig": f"MIG-{UUID}"}),
        ((f"x=GPU-{UUID}", f"y=GPU-{UUID}"), {"uuid": f"GPU-{UUID}"}),
        ((f"x=GPU-{UUID}", f"x=GPU-{UUID[:-1]}0"), None),
        ((f"claim={UUID}-gpu-0",), None),
        ((), None),
    ],
)
def test_a_claims_device_by_its_cdi_names(names: tuple[str, ...], parts: dict[str, str] | None) -> None:
    expected = parts and DeviceRef(form="CDI name with a UUID", **parts)  # type: ignore[arg-type]  # texts only
    assert read_claim(claim(*names), {}) == expected
    shared = read_claim(claim(*names, share="1"), {})
    assert shared is None or shared.shared
