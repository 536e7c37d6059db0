"""Which pod holds which GPU: families, node families, and the reasons in /debug/mapping."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.exposition.families import render
from exporter.model.devices import Assignment
from exporter.model.pages import JoinedPage, Subject
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.model.snapshot import Health, LookContext, Snapshot
from exporter.outputs import mapping, nodes, own_metrics
from exporter.outputs.families.family import filled
from exporter.outputs.families.mapping import FAMILIES, MAP_INFO
from exporter.outputs.output import Look
from tests.support.owners import build_owners

TI = Owner(namespace="default", pod="test", container="main")
TWO = Owner(namespace="default", pod="test", container="second")
UUID = "GPU-40f717b2-d09e-4a1f-b8e7-0f5ef53b8a9f"
MODEL = "NVIDIA A100-SXM4-40GB"
WHOLE = Subject(uuid=UUID, index="0", device="nvidia0", model=MODEL)


def snapshot(
    assigned: dict[str, Owner], *subjects: Subject, node: str = "ti", page: bool = True, age: float | None = 0.5
) -> Snapshot:
    return Snapshot(
        node=node,
        owners=build_owners(
            (
                Assignment(owner=owner, resource="nvidia.com/gpu", device_id=device_id)
                for device_id, owner in assigned.items()
            ),
            dict.fromkeys(subjects, 1),
        ),
        joined=JoinedPage(pieces=(), size=0, subjects=dict.fromkeys(subjects, 1), sample_count=1, rejected={})
        if page
        else None,
        health={"kubelet": Health(up=True)},
        assignments_age_seconds=age,
    )


def text_of(given: Snapshot) -> str:
    return render(filled(FAMILIES, Look(snapshot=given))).decode()


def test_the_families_are_the_contract() -> None:
    lines = text_of(snapshot({UUID: TI}, WHOLE)).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        f'pod_gpu_device_owners{{UUID="{UUID}",GPU_I_ID="",gpu="0",entity="gpu",node="ti"}} 1',
        f'pod_and_gpu_map_info{{gpu_id="{UUID}",gpu_model="{MODEL}",namespace="default",node="ti",pod_name="test"}} 1',
        (
            f'pod_gpu_info{{namespace="default",pod="test",container="main",UUID="{UUID}",gpu="0",device="nvidia0",'
            f'modelName="{MODEL}",resource="nvidia.com/gpu",GPU_I_ID="",GPU_I_PROFILE="",node="ti"}} 1'
        ),
    ]


def test_two_containers_of_a_pod_are_one_row_by_pod_and_two_by_container() -> None:
    text = text_of(snapshot({f"{UUID}::0": TI, f"{UUID}::1": TWO}, WHOLE))
    assert text.count("pod_and_gpu_map_info{") == 1
    assert text.count("pod_gpu_info{") == 2
    assert f'pod_gpu_device_owners{{UUID="{UUID}",GPU_I_ID="",gpu="0",entity="gpu",node="ti"}} 2\n' in text


def test_idle_devices_and_instances_have_no_owners() -> None:
    text = text_of(snapshot({}, WHOLE, Subject(uuid=UUID, instance="7", profile="1g.5gb")))
    assert f'pod_gpu_device_owners{{UUID="{UUID}",GPU_I_ID="7",gpu="",entity="mig",node="ti"}} 0\n' in text
    assert "pod_gpu_info" not in text


# issue 28, churn-free series
def test_without_owners_on_samples_the_info_has_what_they_would_say() -> None:
    by_page = Subject(uuid="GPU-3", came_with=TWO, came_with_uid="u-2", came_extra=(("label_team", "b"),))
    hidden = Subject(uuid=UUID, index="0", device="nvidia0", model=MODEL, came_with=TWO)
    given = replace(
        snapshot({f"{UUID}::0": TI}, hidden, by_page),
        context=LookContext(names_owners=False),
        pod_labels={("default", "test"): (("pod_uid", "u-1"), ("label_team", "a"))},
    )
    assert [line for line in text_of(given).splitlines() if line.startswith("pod_gpu_info{")] == [
        (
            f'pod_gpu_info{{namespace="default",pod="test",container="main",UUID="{UUID}",gpu="0",device="nvidia0",'
            f'modelName="{MODEL}",resource="nvidia.com/gpu",GPU_I_ID="",GPU_I_PROFILE="",node="ti",'
            'samples="without_owners",gpu_shared="true",pod_uid="u-1",label_team="a"} 1'
        ),
        # where the kubelet's ids lead to no device, the page may have named the owner
        (
            'pod_gpu_info{namespace="default",pod="test",container="second",UUID="GPU-3",gpu="",device="",modelName="",'
            'resource="",GPU_I_ID="",GPU_I_PROFILE="",node="ti",samples="without_owners",pod_uid="u-2",'
            'label_team="b"} 1'
        ),
    ]


# issue 7, line 17
def test_device_owners_say_which_gpu_of_which_node_and_whether_it_is_cut() -> None:
    instance = Subject(uuid=UUID, index="0", instance="7", profile="1g.5gb")
    other = Subject(uuid="GPU-2", index="2")
    text = text_of(snapshot({"GPU-2::0": TI, "GPU-2::1": TWO, "MIG-1": TI}, WHOLE, instance, other, node="n"))
    assert [line for line in text.splitlines() if line.startswith("pod_gpu_device_owners{")] == [
        f'pod_gpu_device_owners{{UUID="{UUID}",GPU_I_ID="",gpu="0",entity="mig-parent",node="n"}} 0',
        f'pod_gpu_device_owners{{UUID="{UUID}",GPU_I_ID="7",gpu="0",entity="mig",node="n"}} 0',
        'pod_gpu_device_owners{UUID="GPU-2",GPU_I_ID="",gpu="2",entity="gpu",node="n"} 2',
        'pod_gpu_device_owners{UUID="MIG-1",GPU_I_ID="",gpu="",entity="mig",node="n"} 1',
    ]


def test_a_device_without_samples_is_there_with_the_kubelets_word() -> None:
    for found in (snapshot({UUID: TI}), snapshot({UUID: TI}, page=False)):
        assert f'UUID="{UUID}",gpu="",device="",modelName=""' in text_of(found)


def test_devices_are_ordered_by_index_and_instance_as_numbers() -> None:
    subjects = [
        Subject(uuid="GPU-10", index="10"),
        Subject(uuid="GPU-2", index="2", instance="11"),
        Subject(uuid="GPU-2", index="2", instance="7"),
        Subject(uuid="GPU-2", index="2"),
        Subject(uuid="GPU-x", index="x"),
        Subject(uuid="GPU-0", index="0"),
    ]
    text = text_of(snapshot({"GPU-1": TI}, *subjects))
    found = [line.split('"')[1:4:2] for line in text.splitlines() if line.startswith("pod_gpu_device_owners{")]
    assert found == [
        ["GPU-0", ""],
        ["GPU-2", ""],
        ["GPU-2", "7"],
        ["GPU-2", "11"],
        ["GPU-10", ""],
        ["GPU-x", ""],
        ["GPU-1", ""],
    ]


# issue 7, line 41 (mapping.py)
@pytest.mark.parametrize(
    ("node", "name"),
    [
        ("ti", "ti_info"),
        ("7seas", "_7seas_info"),
        ("a1", "a1_info"),
        ("gpu-node-1", "gpu_node_1_info"),
        ("10.0.0.1", "_10_0_0_1_info"),
        ("nöde", "n_de_info"),
    ],
)
def test_a_nodes_family_name(node: str, name: str) -> None:
    assert nodes.family_name_of(node) == name


def test_nodes_whose_names_come_out_alike_share_a_family() -> None:
    looks = [Look(snapshot=snapshot({UUID: TI}, WHOLE, node=node)) for node in ("a-b", "a.b")]
    text = render(at_once(nodes.node_families((look.snapshot.node, MAP_INFO.fill(look)) for look in looks))).decode()
    assert text.count("# TYPE a_b_info gauge\n") == 1
    assert text.count('node="a-b"') == text.count('node="a.b"') == 1


def test_why_a_device_has_no_owner_and_an_id_no_sample() -> None:
    answer = mapping.debug(snapshot({UUID: TI, "tpu0": TI, "MIG-1": TI, "GPU-9": TI}, WHOLE, Subject(uuid="GPU-8")))
    reasons = {row["device_id"]: (row["matched"], row["reason"]) for row in answer["assigned"]}
    assert reasons == {
        UUID: (True, ""),
        "tpu0": (False, "unknown_id"),
        "MIG-1": (False, "mig_unresolved"),
        "GPU-9": (False, "no_sample"),
    }
    assert all(bool(row["explanation"]) is not row["matched"] for row in answer["assigned"])
    idle = next(row for row in answer["seen"] if row["uuid"] == "GPU-8")
    assert "not understood" in idle["reason"]
    assert (
        "names no container" in mapping.debug(snapshot({UUID: TI}, WHOLE, Subject(uuid="GPU-8")))["seen"][1]["reason"]
    )
    instance = Subject(uuid=UUID, instance="7")
    (of_instance,) = mapping.debug(snapshot({"MIG-1": TI}, instance))["seen"]
    assert of_instance["reason"].startswith("not known")
    unknown = mapping.debug(snapshot({}, WHOLE, age=None))["seen"][0]
    assert "has not answered yet" in unknown["reason"]


IDS = st.sampled_from(
    (
        UUID,
        UUID[4:],
        f"{UUID}::1",
        "MIG-1",
        f"MIG-{UUID}/7/0",
        "nvidia0",
        "nvidia5",
        "nvidia6/vgpu1",
        "5/vgpu",
        "6/vgpu",
        "tpu",
    )
)
OWNERS = st.builds(Owner, namespace=st.just("ml"), pod=st.sampled_from("ab"), container=st.sampled_from("cd"))
SUBJECTS = st.sampled_from(
    (WHOLE, Subject(uuid=UUID), Subject(uuid=UUID, instance="7", profile="1g.5gb"), Subject(uuid="GPU-8", index="5"),
     Subject(device="nvidia5"), Subject(index="6"), Subject())
)  # fmt: skip


@given(held=st.lists(st.tuples(OWNERS, IDS)), subjects=st.lists(SUBJECTS))
def test_every_row_is_there_once_whatever_was_handed_out(
    held: list[tuple[Owner, str]], subjects: list[Subject]
) -> None:
    counted = dict.fromkeys(subjects, 1)
    given_snapshot = Snapshot(
        node="ti",
        owners=build_owners(
            (Assignment(owner=owner, resource="nvidia.com/gpu", device_id=device_id) for owner, device_id in held),
            counted,
        ),
        joined=JoinedPage(pieces=(), size=0, subjects=counted, sample_count=1, rejected={}),
        health={},
        assignments_age_seconds=0.0,
    )
    look = Look(snapshot=given_snapshot)
    families = tuple(filled(FAMILIES, look))
    for found in (*families, *at_once(nodes.node_families([(look.snapshot.node, MAP_INFO.fill(look))]))):
        labels = [values for values, _ in found.samples]
        assert len(set(labels)) == len(labels)
    # every container that holds something is somewhere, but for ids that say nothing
    named = {match.assignment.owner for match in given_snapshot.owners.matches if match.key}
    shown = {values[:3] for values, _ in families[2].samples}
    assert shown == {(owner.namespace, owner.pod, owner.container) for owner in named}


def test_unmatched_devices_are_counted_by_reason() -> None:
    text = b"".join(
        at_once(own_metrics.render(Look(snapshot=snapshot({UUID: TI, "tpu0": TI, "tpu1": TI}, WHOLE))))
    ).decode()
    assert 'pod_gpu_exporter_unmatched_devices{reason="unknown_id"} 2\n' in text
    assert 'pod_gpu_exporter_assignments{resource="nvidia.com/gpu"} 3\n' in text
    assert 'pod_gpu_exporter_rejected_lines_total{reason="utf8_name"} 0\n' in text
