"""A user's own allocator, by a file: its ids are tokens, its annotation is read, and errors say what is wrong."""

import re
from collections.abc import Mapping

import pytest
import yaml

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment
from exporter.model.grants import Grant
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.ownership.allocators.allocator_table import ALLOCATORS, ANNOTATIONS, annotations_of
from exporter.ownership.allocators.said import Unreadable
from exporter.ownership.device_ids import DeviceRules, read_device_id, read_rules
from exporter.ownership.owners import Knowledge, Unmatched
from tests.ownership.allocators.spelling import A, B, given, names
from tests.support.owners import build_owners
from tests.support.places import ROOT

RESOURCE = "example.com/gpu"
KEY = "example.com/gpus"
OURS = {
    "name": "Our scheduler",
    "resource": RESOURCE,
    "annotation": KEY,
    "containers": ";",
    "devices": ":",
    "device": "(?P<uuid>[^,]+),(?P<memory_mib>[0-9]+),(?P<cores_percent>[0-9]+)",
}


def rules(**changed: str | None) -> DeviceRules:
    fields: Mapping[str, str | None] = {**OURS, **changed}
    return read_rules({"allocators": [{key: text for key, text in fields.items() if text is not None}]})


# issue 24, "Must show" 6
def test_the_example_of_the_docs_is_read() -> None:
    (example,) = re.findall(r"```yaml\n(allocators:\n.*?)```", (ROOT / "docs" / "devices.md").read_text(), re.DOTALL)
    (ours,) = read_rules(yaml.safe_load(example)).allocators
    (device,) = given(ours, RESOURCE, {KEY: f"{A},10240,45:;"}, "M")["M"]
    assert device.ref.uuid == A
    assert device.grant == Grant(allocator="Our scheduler", memory_mib=10240, cores_percent=45)


@pytest.mark.parametrize(
    ("text", "spelt", "expected"),
    [
        # whether the separator ends or separates is told by what fits
        (f"{A},1,2", "M", {"M": [A]}),
        (f"{A},1,2:;", "M", {"M": [A]}),
        (f"{A},1,2:{B},1,2;", "Ms", {"M": [A, B]}),
        (f";{A},1,2", "sM", {"M": [A]}),
    ],
)
def test_its_annotation(text: str, spelt: str, expected: dict[str, list[str]]) -> None:
    (ours,) = rules().allocators
    assert names(given(ours, RESOURCE, {KEY: text}, spelt)) == expected


def test_a_text_of_another_form_is_compared_with_the_file() -> None:
    (ours,) = rules().allocators
    with pytest.raises(Unreadable, match=r"^place 1, device 1: 'x' is not as allocators\[0\]\.device has it$"):
        given(ours, RESOURCE, {KEY: "x"}, "M")


def test_its_grants_are_shares() -> None:
    (ours,) = rules().allocators
    (device,) = given(ours, RESOURCE, {KEY: f"{A},100,20"}, "M")["M"]
    assert device.grant == Grant(allocator="Our scheduler", memory_mib=100, cores_percent=20)
    assert device.ref.shared


def test_without_containers_the_annotation_is_the_pods() -> None:
    (ours,) = rules(containers=None, devices=",", device="(?P<minor>[0-9]+)").allocators
    devices = given(ours, RESOURCE, {KEY: "0,3"}, "MsN")
    assert names(devices) == {"M": ["0", "3"], "N": ["0", "3"]}
    assert not any(device.ref.shared for place in devices.values() for device in place)


@pytest.mark.parametrize(
    ("device", "text"), [(r"(?P<index>[0-9]+)=(?P<fraction>[0-9.]+)", "1=0.5"), (r"(?P<index>[0-9]+)=?.*", "1")]
)
def test_a_fraction(device: str, text: str) -> None:
    (ours,) = rules(device=device).allocators
    (given_device,) = given(ours, RESOURCE, {KEY: text}, "M")["M"]
    assert given_device.ref.index == "1"
    assert given_device.grant.fraction == (0.5 if "=" in text else None)
    with pytest.raises(Unreadable):
        given(ours, RESOURCE, {KEY: "1=1.5" if "=" in text else ""}, "M")


def test_every_id_of_its_resource_is_a_token_by_default() -> None:
    ref = read_device_id(RESOURCE, "slot 7", rules().rules)
    assert ref == DeviceRef(form="a token of Our scheduler", allocator="Our scheduler")
    assert not ref.is_no_gpu
    # before the table's allocators, and only for its resource
    token = f"{A}-3"
    assert [getattr(read_device_id(name, token, rules().rules), "allocator", "") for name in (RESOURCE, "x/y")] == [
        "Our scheduler",
        "HAMi",
    ]
    some = rules(id=r"(?P<uuid>GPU-[0-9a-f-]{36})(?P<share>-[0-9]+)").rules
    assert read_device_id(RESOURCE, token, some) == DeviceRef(
        form="a token of Our scheduler", uuid=A, shared=True, allocator="Our scheduler"
    )
    assert getattr(read_device_id(RESOURCE, A, some), "allocator", None) == "", "an id that its pattern leaves out"


ONE = {Subject(uuid=A, index="0", device="nvidia0"): 3}
TWO = {**ONE, Subject(uuid=B, index="1", device="nvidia1"): 3}


@pytest.mark.parametrize(("subjects", "expected"), [(ONE, A), (TWO, None)])
def test_a_token_without_a_name_means_the_nodes_only_gpu(subjects: dict[Subject, int], expected: str | None) -> None:
    owner = Owner(namespace="ml", pod="a", container="main")
    assignment = Assignment(owner=owner, resource=RESOURCE, device_id="slot 7")
    owners = build_owners([assignment], subjects, Knowledge(rules=rules().rules))
    (match,) = owners.matches
    assert [key.uuid for key in owners.holders] == ([expected] if expected else [])
    assert match.reason == ("" if expected else Unmatched.ALLOCATOR)


def test_its_annotation_is_kept_of_pods() -> None:
    assert annotations_of(rules().allocators) == {KEY}
    assert KEY not in ANNOTATIONS
    assert [*rules().every_allocator] == ["Our scheduler", *ALLOCATORS]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("x", "`allocators` must be a list, each with `name`, `resource`, `annotation`, `device`"),
        (["x"], "allocators[0] must hold `name`, `resource`, `annotation`, `device`, and may hold `id`, `containers`"),
        ([{"name": "a"}], "allocators[0] must hold"),
        ([{**OURS, "scope": "pod"}], "allocators[0] must hold"),
        ([{**OURS, "name": 5}], "allocators[0].name must be a text"),
        ([{**OURS, "containers": ""}], "allocators[0].containers must be a text"),
        ([{**OURS, "name": "HAMi"}], "allocators[0].name: 'HAMi' is taken; give the allocator a name of its own"),
        ([OURS, OURS], "allocators[1].name: 'Our scheduler' is taken"),
        ([{**OURS, "device": "("}], "allocators[0].device: '(' is no regular expression"),
        ([{**OURS, "device": "(?P<memory_mib>[0-9]+)"}], "allocators[0].device: '(?P<memory_mib>[0-9]+)' must"),
        ([{**OURS, "device": "(?P<uuid>.)(?P<y>.)"}], "allocators[0].device: '(?P<uuid>.)(?P<y>.)' must name"),
        ([{**OURS, "id": "["}], "allocators[0].id: '[' is no regular expression"),
        ([{**OURS, "id": "(?P<memory_mib>.)"}], "allocators[0].id: '(?P<memory_mib>.)' must name nothing but device,"),
    ],
)  # fmt: skip
def test_a_wrong_section(content: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}"):
        read_rules({"allocators": content})
