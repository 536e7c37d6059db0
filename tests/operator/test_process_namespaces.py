"""The operator as a process that looks after one namespace, with rights in that one alone."""

from pathlib import Path

from exporter.operator.objects.kinds import POD_MONITOR, key_of
from tests.operator.test_process_autoscaling import autoscaler, deploy
from tests.support.operator import Api, OperatorProcess, exporter, is_seen, names, until

EVERYTHING = {
    "ClusterRoleBinding pod-gpu-metrics-exporter:ml:gpu",
    "ConfigMap gpu-config",
    "ConfigMap gpu-counters",
    "DaemonSet gpu",
    "HorizontalPodAutoscaler trainer",
    "PodMonitor gpu",
    "Service gpu",
    "ServiceAccount gpu-gpu-metrics",
}


# issue 14: "RBAC minimal"
def test_it_does_all_in_its_namespace_and_nothing_elsewhere(tmp_path: Path) -> None:
    api = Api(within="ml")
    api.start()
    api.add_namespace("other")
    api.define(POD_MONITOR)
    until(lambda: api.ask("GET", POD_MONITOR.path(None))[0] == 200)  # else the operator warns that it cannot watch them
    process = OperatorProcess(api, tmp_path, "a", "--operator.namespace", "ml")
    try:
        deploy(api, "ml")
        scaler = api.put(autoscaler("ml"))
        for namespace in ("other", "ml"):
            api.put(exporter("gpu", namespace))
        until(lambda: names(api.made_in("ml")) == EVERYTHING, why=lambda: process.told)
        key = key_of(api.put(exporter("gpu", "ml", sharing="split")))
        until(lambda: is_seen(api, key), why=lambda: process.told)
        for each in (key, key_of(scaler)):
            api.remove(each)
        until(lambda: not api.made_in("ml"), why=lambda: process.told)
        assert not api.made_in("other")
    finally:
        code = process.end()
        api.stop()
    assert code == 0, process.told
    assert "level=warning" not in process.told, process.told
    assert "level=error" not in process.told, process.told
