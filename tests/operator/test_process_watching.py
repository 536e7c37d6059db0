"""The operator as a process goes on being told of changes, whatever one of the kinds that it watches answers."""

import time
from collections.abc import Iterator

import pytest

from exporter.operator.objects.kinds import SCALED_OBJECT, key_of
from tests.operator.test_process_autoscaling import autoscaler, deploy, ready
from tests.support.operator import Api, OperatorProcess, until
from tests.support.real_api import IS_REAL

LATE_SECONDS = 1.0


@pytest.fixture
def late(api: Api, operator: OperatorProcess) -> Iterator[None]:
    """A definition is told of for longer than usual before it is served."""
    time.sleep(LATE_SECONDS)  # those of the operator's own kinds are older than that
    assert api.simulated is not None
    definitions = api.simulated.definitions
    usual, definitions.not_found_seconds = definitions.not_found_seconds, LATE_SECONDS
    yield
    definitions.not_found_seconds = usual
    api.undefine(SCALED_OBJECT)


# issue 14, "Must show" 1 and 2
@pytest.mark.skipif(IS_REAL, reason="how long it takes is the simulated API's to say")
def test_a_kind_that_is_not_served_yet_ends_no_watch(
    api: Api, operator: OperatorProcess, namespace: str, late: None
) -> None:
    """As KEDA is installed: discovery names ScaledObjects, and a list of them is 404 for a moment."""
    deploy(api, namespace)
    first = key_of(api.put(autoscaler(namespace, "a")))
    until(lambda: ready(api, first), why=lambda: operator.told)
    api.define(SCALED_OBJECT)
    operator.says("the kinds that the API serves have changed")
    until(lambda: (api.get(first) or {})["status"].get("via") == "keda", why=lambda: operator.told)
    # nobody has told of this one but a watch
    deploy(api, namespace, "another")
    second = key_of(api.put(autoscaler(namespace, "b")))
    until(lambda: ready(api, second), 20, lambda: operator.told)
