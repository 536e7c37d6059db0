"""Pages that already say something of owners, under any names: no label twice, no series twice, in any mode."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.exposition.families import unescape
from exporter.exposition.join import Joiner
from exporter.exposition.lines import SampleLine, read_line
from exporter.model.devices import Assignment, Claim
from exporter.model.pods import Owner
from exporter.ownership.labels import LabelPolicy, PodAdditions
from exporter.ownership.sample_rows import Attribution
from tests.support.owners import build_owners

A, B = (Owner(namespace="ml", pod=pod, container="main") for pod in "ab")
UUIDS = (f"GPU-{'1' * 8}-1111-1111-1111-{'1' * 12}", "GPU-2")
CLAIM = Claim(
    namespace="ml", name="gpu", driver="gpu.nvidia.com", pool="p", device="d", cdi_names=(f"nvidia.com/gpu={UUIDS[0]}",)
)
OF_PODS = {
    ("ml", "a"): PodAdditions(uid="uid-a", labels=(("label_team", "red"),)),
    ("ml", "b"): PodAdditions(uid="uid-b"),
}
NAMES = (
    ("pod", "namespace", "container"),
    ("pod_name", "pod_namespace", "container_name"),
    ("x", "y", "z"),
    ("exported_pod", "exported_namespace", "exported_container"),
)
LABELS = [
    "pod", "namespace", "container", "pod_name", "pod_namespace", "container_name", "exported_pod",
    "exported_namespace",
    "pod_uid", "gpu_shared", "label_team", "label_x", "dra_claim_name", "x", "vgpu", "GPU_I_ID", "job",
]  # fmt: skip
VALUES = st.sampled_from(("", "a", "b", "true", '\\"'))
SAMPLES = st.builds(
    lambda family, uuid, labels, value: (family, {"UUID": uuid, **labels}, value),
    st.sampled_from(("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_TEMP")),
    st.sampled_from((*UUIDS, "")),
    st.dictionaries(st.sampled_from(LABELS), VALUES, max_size=6),
    st.integers(0, 1000),
)
POLICIES = st.builds(
    LabelPolicy,
    names=st.sampled_from(NAMES),
    incoming_wins=st.booleans(),
    idle_labels=st.booleans(),
    sharing=st.sampled_from(("copy", "split", "device")),
    divides_counters=st.booleans(),
    has_pod_labels=st.booleans(),
    has_claims=st.booleans(),
)
HELD = st.lists(
    st.sampled_from(
        (
            *(
                Assignment(owner=owner, resource="nvidia.com/gpu", device_id=device_id)
                for owner in (A, B)
                for device_id in (UUIDS[0], f"{UUIDS[0]}::1", "GPU-2::0")
            ),
            Assignment(owner=A, resource=CLAIM.driver, device_id=CLAIM.device_id, claim=CLAIM),
        )
    ),
    max_size=4,
)


def text_of(sample: tuple[str, dict[str, str], int]) -> str:
    family, labels, value = sample
    return f"{family}{{{','.join(f'{name}={chr(34)}{text}{chr(34)}' for name, text in labels.items())}}} {value}"


def out_lines(body: bytes) -> list[SampleLine]:
    lines = [read_line(line) for line in body.splitlines()]
    samples = [line for line in lines if isinstance(line, SampleLine)]
    assert len(samples) == len(lines)
    return samples


@given(pages=st.lists(st.lists(SAMPLES, max_size=8), min_size=1, max_size=3), held=HELD, policy=POLICIES)
def test_no_label_and_no_series_is_there_twice(
    pages: list[list[tuple[str, dict[str, str], int]]], held: list[Assignment], policy: LabelPolicy
) -> None:
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    # the kubelet's claims are read only with `--dra on`, as pods' labels are with `--labels.pod-labels`
    held = [found for found in held if policy.has_claims or found.claim is None]
    attribution = Attribution(build_owners(held), policy, of_pods=OF_PODS if policy.has_pod_labels else {})
    for page in pages:
        body = "".join(f"{text_of(sample)}\n" for sample in page).encode()
        seen = set()
        for line in out_lines(joiner.join([body], attribution).body):
            names = [name for name, _ in line.labels]
            assert len(set(names)) == len(names)
            series = (line.name, frozenset(label for label in line.labels if label[1]))
            assert series not in seen
            seen.add(series)


OWNED = {"pod": "a", "namespace": "ml", "container": "main"}
IDLE = {"pod": "", "namespace": "", "container": ""}
LEGACY = {"pod_name": "a", "pod_namespace": "ml", "container_name": "main"}
CUSTOM = {"x": "a", "y": "ml", "z": "main"}
FULL = {"pod": "theirs", "namespace": "n", "container": "c"}


@pytest.mark.parametrize(
    ("came", "owned", "legacy", "custom", "nobody", "nobody_omits"),
    [
        ({}, OWNED, LEGACY, CUSTOM, IDLE, {}),
        ({"pod": ""}, OWNED, LEGACY, CUSTOM, IDLE, {}),
        ({"pod": "", "namespace": "", "container": ""}, OWNED, LEGACY, CUSTOM, IDLE, {}),
        ({"exported_pod": "e"}, {**OWNED, "exported_pod": "e"}, {**LEGACY, "exported_pod": "e"},
         {**CUSTOM, "exported_pod": "e"}, {**IDLE, "exported_pod": "e"}, {"exported_pod": "e"}),
        ({"pod_name": "theirs"}, OWNED, LEGACY, CUSTOM, {**IDLE, "pod": "theirs"}, {**IDLE, "pod": "theirs"}),
        (FULL, OWNED, LEGACY, CUSTOM, FULL, FULL),
    ],
)  # fmt: skip
def test_names_and_idle_modes_on_pages_that_already_say_something(
    came: dict[str, str],
    owned: dict[str, str],
    legacy: dict[str, str],
    custom: dict[str, str],
    nobody: dict[str, str],
    nobody_omits: dict[str, str],
) -> None:
    def labels_of(uuid: str, **settings: object) -> dict[str, str]:
        policy = LabelPolicy(**settings)  # type: ignore[arg-type]
        joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
        owners = build_owners([Assignment(owner=A, resource="nvidia.com/gpu", device_id="GPU-2")])
        body = (text_of(("temp", {"UUID": uuid, **came}, 1)) + "\n").encode()
        (line,) = out_lines(joiner.join([body], Attribution(owners, policy)).body)
        found = {name.decode(): unescape(value) for name, value in line.labels}
        assert found.pop("UUID") == uuid
        return found

    assert labels_of("GPU-2") == owned
    assert labels_of("GPU-2", names=NAMES[1]) == legacy
    assert labels_of("GPU-2", names=NAMES[2]) == custom
    assert labels_of("GPU-3") == nobody
    assert labels_of("GPU-3", idle_labels=False) == nobody_omits
