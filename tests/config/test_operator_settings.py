"""The operator's configuration."""

from typing import Any

import pytest

from exporter.config.operator_settings import load_operator
from exporter.errors import ConfigError

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAMESPACE": "gpu"}


def test_in_a_pod_nothing_needs_to_be_said() -> None:
    config = load_operator({}, IN_A_POD, None)
    assert config.operator.namespaces == ()
    assert config.operator.lease_namespace == "gpu"
    assert config.operator.lease_seconds == 15
    assert config.kubernetes.url == "https://10.0.0.1:443"
    assert load_operator({}, {"KUBERNETES_SERVICE_HOST": "x"}, None, None, "own").operator.lease_namespace == "own"
    assert config.files == ()
    assert config.shown()["operator.lease-namespace"] == {"value": "gpu", "from": "this pod's own namespace"}


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    file: dict[str, Any] = {"operator": {"namespace": ["a", "b"], "interval": "1s"}, "operator.lease-name": "of-file"}
    environ = {**IN_A_POD, "POD_GPU_EXPORTER_OPERATOR_LEASE_NAME": "of-environment"}
    config = load_operator({"operator.interval": ["2s"]}, environ, file)
    assert config.operator.namespaces == ("a", "b")
    assert config.operator.lease_name == "of-environment"
    assert config.operator.interval_seconds == 2


@pytest.mark.parametrize(
    ("flags", "environ", "says"),
    [
        ({}, {}, "--kubernetes.url"),
        ({"kubernetes.url": ["http://127.0.0.1:1"]}, {}, "--operator.lease-namespace"),
        ({"operator.lease-duration": ["1500ms"]}, IN_A_POD, "--operator.lease-duration"),
        ({"operator.lease-duration": ["2h"]}, IN_A_POD, "--operator.lease-duration"),
        ({"operator.namespace": ["a", "a"]}, IN_A_POD, "--operator.namespace"),
        ({"operator.namespace": ["No"]}, IN_A_POD, "--operator.namespace"),
        ({"operator.leader-election": ["maybe"]}, IN_A_POD, "on or off"),
    ],
)
def test_what_cannot_be_meant_is_refused(flags: dict[str, list[str]], environ: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_operator(flags, environ, None)


def test_without_a_lease_no_namespace_is_needed() -> None:
    flags = {"kubernetes.url": ["http://127.0.0.1:1"], "operator.leader-election": ["off"]}
    assert load_operator(flags, {}, None).operator.lease_namespace is None
