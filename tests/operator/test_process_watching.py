"""The operator as a process goes on being told of changes, whatever one of the kinds that it watches answers."""

from collections.abc import Iterator

import pytest

from exporter.operator.objects.kinds import SCALED_OBJECT, key_of
from tests.operator.test_process_autoscaling import autoscaler, deploy, ready
from tests.support.operator import Api, OperatorProcess, until
from tests.support.real_api import IS_REAL


@pytest.fixture
def late(api: Api, operator: OperatorProcess) -> Iterator[None]:
    """A definition is in the discovery before it is served: 404, then 429 (crd-becomes-served.jsonl)."""
    assert api.simulated is not None
    for answer in ("not served", "initializing"):
        api.simulated.faults.add(answer, resource=SCALED_OBJECT.plural, times=3, seconds=0)
    yield
    assert [fault.times for fault in api.simulated.faults.now] == [0, 0]
    api.simulated.faults.end()
    api.undefine(SCALED_OBJECT)


# issue 14, "Must show" 1 and 2
@pytest.mark.skipif(IS_REAL, reason="a real API server does not fail on demand")
def test_a_kind_that_is_not_served_yet_ends_no_watch(
    api: Api, operator: OperatorProcess, namespace: str, late: None
) -> None:
    """As KEDA is installed: discovery names ScaledObjects, and a list of them is 404 for a moment."""
    deploy(api, namespace)
    first = key_of(api.put(autoscaler(namespace, "a")))
    until(lambda: ready(api, first), why=lambda: operator.told)
    api.define(SCALED_OBJECT)
    operator.says("the API serves other kinds now")
    until(lambda: (api.get(first) or {})["status"].get("via") == "keda", why=lambda: operator.told)
    # nobody has told of this one but a watch
    deploy(api, namespace, "another")
    second = key_of(api.put(autoscaler(namespace, "b")))
    until(lambda: ready(api, second), 20, lambda: operator.told)
