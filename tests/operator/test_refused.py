"""What a 403 of the API server is for."""

import pytest

from exporter.operator.api.writer import is_by_admission

USER = "system:serviceaccount:operators:operator-a"
ALIKE = 'configmaps "x" is forbidden: '
# of kube-apiserver 1.36, but for the webhook's and the last two
BY_ADMISSION = [
    ALIKE + "ValidatingAdmissionPolicy 'no' with binding 'no' denied request: no a",
    ALIKE + "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=0, limited: count/configmaps=0",
    ALIKE + "unable to create new content in namespace ml because it is being terminated",
    'admission webhook "validation.gatekeeper.sh" denied the request: [images] pod-gpu-metrics-exporter is not allowed',
]
FOR_WANT_OF_A_RIGHT = [
    ALIKE + f'User "{USER}" cannot patch resource "configmaps" in API group "" in the namespace "default"',
    f'clusterrolebindings "z" is forbidden: user "{USER}" (groups=["a"]) is attempting to grant RBAC permissions …',
    ALIKE
    + "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , nil",
    ALIKE + "cannot set an ownerRef on a resource you can't delete: , <nil>",
    ALIKE + "not yet ready to handle request",
    "",
]


@pytest.mark.parametrize("told", BY_ADMISSION)
def test_what_is_not_admitted_is_no_want_of_a_right(told: str) -> None:
    assert is_by_admission(told)


@pytest.mark.parametrize("told", FOR_WANT_OF_A_RIGHT)
def test_a_right_that_is_lacking_is_one(told: str) -> None:
    assert not is_by_admission(told)
