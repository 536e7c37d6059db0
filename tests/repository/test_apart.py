"""The tests say nothing of the machine that they run on, be it a Kubernetes node itself."""

import os

from exporter.cli.options import read_config
from tests.support.exporter import NOWHERE, config_of

ITS_OWN = ("/var/lib/kubelet", "/var/run/secrets")


# issue 7, line 34
def test_no_default_leads_to_the_machines_own_kubelet() -> None:
    for config in (config_of(), read_config({})):
        paths = (
            config.kubelet.socket,
            config.pods.kubelet_socket,
            config.kubernetes.token_file,
            config.kubernetes.ca_file,
        )
        assert {path.startswith(NOWHERE) for path in paths} == {True}
        assert not any(path.startswith(ITS_OWN) for path in paths)
    assert read_config({}).kubernetes.url is None
    assert not os.path.lexists(NOWHERE)
