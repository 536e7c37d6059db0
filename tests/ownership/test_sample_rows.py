"""Whose a row is, as an object: nobody needs to read it out of the labels."""

from dataclasses import replace

import pytest

from exporter.model.devices import Claim, DeviceKey, Holder, Owners
from exporter.model.pages import Row
from exporter.model.pods import Owner
from exporter.ownership.labels import LabelPolicy, PodAdditions
from exporter.ownership.sample_rows import Attribution

A, B = (Owner(namespace="ml", pod=pod, container="main") for pod in "ab")
CAME = Owner(namespace="n", pod="came", container="c")
CLAIM = Claim(namespace="ml", name="gpu", driver="gpu.nvidia.com", pool="p", device="d")
OF_A = PodAdditions(uid="uid-a", labels=(("label_team", "red"),))
POLICY = LabelPolicy(has_pod_labels=True, has_claims=True)


def said_of(row: Row) -> tuple[Owner | None, bool, str, dict[str, str], Claim | None]:
    return row.owner, row.shared, row.uid, dict(row.pod_labels), row.claim


def rows_of(came: dict[str, str], *holders: Holder, policy: LabelPolicy = POLICY) -> list[object]:
    owners = Owners(holders={DeviceKey(uuid="GPU-1"): holders})
    attribution = Attribution(owners, policy, of_pods={("ml", "a"): OF_A})
    (rows,) = attribution([(b"power", policy.read_subject({"UUID": "GPU-1", **came}))])
    return [said_of(row) for row in rows.each]


def held_by(owner: Owner, claim: Claim | None = None, *, shared: bool = False) -> Holder:
    return Holder(owner=owner, resource="nvidia.com/gpu", shared=shared, claim=claim)


NOBODYS: tuple[object, ...] = (None, False, "", {}, None)
IN_A = {"pod": "a", "namespace": "ml"}
IN_CAME = {"pod": "came", "namespace": "n", "container": "c"}


@pytest.mark.parametrize(
    ("came", "holders", "expected"),
    [
        ({}, [], [NOBODYS]),
        ({}, [held_by(A, CLAIM)], [(A, False, "uid-a", {"label_team": "red"}, CLAIM)]),
        ({}, [held_by(A, shared=True), held_by(B, shared=True)],
         [(A, True, "uid-a", {"label_team": "red"}, None), (B, True, "", {}, None)]),
        # what the page said of the same pod stays where nothing here says it
        ({**IN_A, "label_team": "blue", "label_tier": "1", "pod_uid": "old"}, [held_by(A)],
         [(A, False, "uid-a", {"label_tier": "1", "label_team": "red"}, None)]),
        ({"pod": "b", "namespace": "ml", "pod_uid": "uid-b"}, [held_by(B)], [(B, False, "uid-b", {}, None)]),
        # the page's word alone
        ({**IN_CAME, "pod_uid": "7", "label_x": "y", "dra_claim_name": "c", "gpu_shared": "true"}, [],
         [(CAME, True, "7", {"label_x": "y"}, None)]),
        ({"label_x": "y"}, [], [(None, False, "", {"label_x": "y"}, None)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("names", [("pod", "namespace", "container"), ("x", "label_y", "z")])
def test_a_row_carries_its_owner_whatever_its_labels_are_called(
    came: dict[str, str], holders: list[Holder], expected: list[object], names: tuple[str, str, str]
) -> None:
    assert rows_of(came, *holders, policy=replace(POLICY, names=names)) == expected


def test_a_device_shown_once_is_nobodys_and_a_counter_has_a_row_that_is() -> None:
    both = held_by(A, shared=True), held_by(B, shared=True)
    assert rows_of({}, *both, policy=replace(POLICY, sharing="device")) == [NOBODYS]
    split = replace(POLICY, sharing="split")
    (rows,) = Attribution(Owners(holders={DeviceKey(uuid="GPU-1"): both}), split)(
        [(b"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", split.read_subject({"UUID": "GPU-1"}))]
    )
    assert [row.owner for row in rows.each] == [A, B, None]
