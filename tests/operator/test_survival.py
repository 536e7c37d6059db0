"""Whatever fails or restarts in the middle of anything: in the end all is as it is wanted.

# issue 14, "Must show" 1
"""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.operator.objects.kinds import LEASE, Key, key_of
from tests.support.operator import LEASE_NAMESPACE, Api, OperatorProcess, exporter, is_seen, names, until, versions
from tests.support.real_api import IS_REAL

TOLD_TO_FAIL = pytest.mark.skipif(IS_REAL, reason="a real API server does not fail on demand")
# the user whose token it has, and further flags
Start = Callable[..., OperatorProcess]
LEASE_PATH = LEASE.path(LEASE_NAMESPACE, "pod-gpu-metrics-operator")


def everything(*of: str) -> set[str]:
    """What there is of exporters of these names."""
    kinds = ("Service {0}", "ConfigMap {0}-counters", "ServiceAccount {0}-gpu-metrics", "DaemonSet {0}")
    return {kind.format(name) for name in of for kind in kinds}


def missing(api: Api, namespace: str, *of: str) -> set[str]:
    return everything(*of) - names(api.made_in(namespace))


def is_settled(api: Api, key: Key) -> bool:
    """Whether its DaemonSet has been counted, and its exporters asked: there are none."""
    said = str((api.get(key) or {}).get("status"))
    return "NoNodes" in said and "NoTrouble" in said


def holder(api: Api) -> str:
    """Who has the lease."""
    return str(api.ask("GET", LEASE_PATH)[1]["spec"]["holderIdentity"])


@pytest.fixture
def start(api: Api, folder: Path) -> Iterator[Start]:
    made: list[OperatorProcess] = []

    def run(user: str = "a", *flags: str) -> OperatorProcess:
        made.append(OperatorProcess(api, folder, user, *flags, lease_seconds=3))
        return made[-1]

    yield run
    for process in made:
        if process.process.returncode is None:
            process.kill()
        assert "a fault of the operator" not in process.told, process.told
    api.ask("DELETE", LEASE_PATH, {})


@pytest.fixture(autouse=True)
def no_faults(api: Api) -> Iterator[None]:
    yield
    if api.simulated is not None:
        api.simulated.faults.end()


@TOLD_TO_FAIL
@pytest.mark.parametrize(
    ("answer", "more"),
    [
        ("conflict", {"verbs": {"patch", "create", "update"}, "times": 6}),
        ("busy", {"share": 0.4}),
        ("initializing", {"resource": "gpuexporters", "times": 6}),
        ("unavailable", {"share": 0.3}),
        ("error", {"share": 0.3}),
        ("slow", {"seconds": 0.7}),
    ],
)
def test_it_survives(api: Api, start: Start, namespace: str, answer: str, more: dict[str, object]) -> None:
    process = start()
    process.says("leading")
    assert api.simulated is not None
    # which the operator meets, and not this test
    keys = [key_of(api.put(exporter(name, namespace))) for name in ("one", "two")]
    api.simulated.faults.add(answer, **more)
    until(lambda: api.simulated and api.simulated.faults.given >= 3)
    api.simulated.faults.end()
    until(lambda: not missing(api, namespace, "one", "two"), why=lambda: process.told)
    until(lambda: all(is_seen(api, key) for key in keys))


def test_the_api_restarts_in_the_middle(api: Api, start: Start, namespace: str) -> None:
    process = start()
    process.says("leading")
    for name in ("one", "two", "three"):
        api.put(exporter(name, namespace))
    api.halt()
    time.sleep(0.5)
    api.go_on()
    until(lambda: not missing(api, namespace, "one", "two", "three"), why=lambda: process.told)
    # and it goes on to be told of changes
    api.patch(Key("GPUExporter", namespace, "two"), {"spec": {"sharing": "split"}})
    until(lambda: "split" in str(api.get(Key("ConfigMap", namespace, "two-config"))), why=lambda: process.told)


@TOLD_TO_FAIL
def test_what_went_while_nobody_watched_is_made_again(api: Api, start: Start, namespace: str) -> None:
    process = start()
    api.put(exporter("one", namespace))
    until(lambda: not missing(api, namespace, "one"))
    until(lambda: is_settled(api, Key("GPUExporter", namespace, "one")))
    assert api.simulated is not None
    # of Services alone nothing is told
    api.simulated.faults.add("unavailable", verbs={"list", "watch"}, resource="services")
    api.simulated.break_watches()
    time.sleep(1)  # the others watch again
    api.remove(Key("Service", namespace, "one"))
    api.simulated.store.compact()  # it cannot go on where it was: it lists, and what is gone is in no list
    api.simulated.faults.end()
    until(lambda: not missing(api, namespace, "one"), why=lambda: process.told)


def test_the_operator_is_killed_in_the_middle(api: Api, start: Start, namespace: str) -> None:
    first = start()
    first.says("leading")
    of = [f"gpu-{number}" for number in range(4)]
    if api.simulated is not None:
        api.simulated.faults.add("slow", verbs={"patch"}, seconds=0.2)  # else it may be done before it is killed
    for name in of:
        api.put(exporter(name, namespace))
    until(lambda: api.writes(namespace))
    first.kill()
    if api.simulated is not None:
        api.simulated.faults.end()
    assert missing(api, namespace, *of)  # it was in the middle
    second = start("b")
    until(lambda: not missing(api, namespace, *of), why=lambda: second.told)
    until(lambda: all(is_seen(api, Key("GPUExporter", namespace, name)) for name in of))
    until(lambda: all(is_settled(api, Key("GPUExporter", namespace, name)) for name in of))
    # a third finds all as it is wanted, and writes nothing
    assert second.end() == 0
    was = [api.get(Key("GPUExporter", namespace, name)) for name in of]
    before, writes = versions(api.made_in(namespace)), len(api.writes(namespace))
    third = start("a")
    until(lambda: "leading" in third.told)
    name = 'pod_gpu_exporter_operator_reconciliations_total{kind="GPUExporter",result="settled"}'
    until(lambda: third.metric(name) >= len(of))
    time.sleep(1.5)  # its exporters are asked, of which there are none
    assert versions(api.made_in(namespace)) == before
    assert [api.get(Key("GPUExporter", namespace, name)) for name in of] == was
    assert api.writes(namespace)[writes:] == []


def test_what_is_deleted_while_nobody_works_leaves_nothing(api: Api, start: Start, namespace: str) -> None:
    first = start()
    api.put(exporter("one", namespace))
    until(lambda: not missing(api, namespace, "one"))
    assert first.end() == 0
    api.remove(Key("GPUExporter", namespace, "one"))
    until(lambda: not [key for key in api.made_in(namespace) if key.namespace])
    assert {key.kind for key in api.made_in(namespace)} == {"ClusterRoleBinding"}
    start("b")
    until(lambda: not api.made_in(namespace))


def test_one_of_two_replicas_works(api: Api, start: Start, namespace: str) -> None:
    first = start("a")
    first.says("leading")
    second = start("b")
    second.says("listening")
    api.put(exporter("one", namespace))
    until(lambda: not missing(api, namespace, "one"))
    assert {write.user for write in api.writes(namespace)} == {"operator-a"}
    until(lambda: first.metric("pod_gpu_exporter_operator_is_leader") == 1)
    assert second.metric("pod_gpu_exporter_operator_is_leader") == 0

    first.kill()  # it lets go of nothing: the lease has to run out. test_leader.py says how long that takes
    second.says("leading")
    api.put(exporter("two", namespace))
    until(lambda: not missing(api, namespace, "one", "two"))

    third = start("a")
    third.says("listening")
    had_it = holder(api)
    assert second.end() == 0
    assert holder(api) != had_it, "it lets go of the lease"
    third.says("leading")
    api.put(exporter("three", namespace))
    until(lambda: not missing(api, namespace, "three"))


def test_who_was_stopped_for_too_long_works_no_more(api: Api, start: Start, namespace: str) -> None:
    first = start("a")
    first.says("leading")
    second = start("b")
    first.process.send_signal(signal.SIGSTOP)
    second.says("leading")
    first.process.send_signal(signal.SIGCONT)
    first.says("no longer leading")
    api.put(exporter("one", namespace))
    until(lambda: not missing(api, namespace, "one"))
    assert {write.user for write in api.writes(namespace)} == {"operator-b"}
    until(lambda: first.metric("pod_gpu_exporter_operator_is_leader") == 0)


def test_a_reload_goes_on_with_the_lease(api: Api, start: Start, namespace: str, folder: Path) -> None:
    file = folder / "operator.yaml"
    file.write_text("log.level: info\n")
    process = start("a", "--config.file", str(file))
    process.says("leading")
    file.write_text("log.level: debug\n")
    process.process.send_signal(signal.SIGHUP)
    process.says("configuration reloaded")
    until(lambda: process.told.count("msg=leading ") == 2, why=lambda: process.told)
    api.put(exporter("one", namespace))
    until(lambda: not missing(api, namespace, "one"))
    file.write_text("operator.nonsense: 1\n")
    process.process.send_signal(signal.SIGHUP)
    process.says("configuration refused")
    until(lambda: process.metric("pod_gpu_exporter_operator_is_leader") == 1)


def test_what_it_says_before_the_api_answers(api: Api, start: Start, namespace: str) -> None:
    api.halt()
    process = start()
    process.says("cannot be asked")
    until(lambda: "nobody listens" in process.get("/-/ready")[1], why=lambda: process.get("/-/ready"))
    assert process.get("/-/ready")[0] == 503
    assert process.get("/-/healthy")[0] == 200
    api.go_on()
    process.says("leading")
    ready = (200, "ready; this replica works\n")
    until(lambda: process.get("/-/ready") == ready, why=lambda: process.get("/-/ready"))
