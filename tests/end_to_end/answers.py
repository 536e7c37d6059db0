"""What the questions of docs/promql.md should answer of a run of the simulated node."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from tests.end_to_end.accounted import Held, Truth
from tests.support.prometheus import Answers

NODE = "gpu-node-1"
LOOK = 1.0  # seconds between looks, and between scrapes
IDLE_BELOW = 0.05
HOUR = 3600.0
PRICE = 2.50
XID = 48
LIMITED = (700 - 70) / (740 - 70)  # by exporter/simulator/machine.py
Key = tuple[str, ...]
Check = Callable[[Answers, Truth], None]


def by(answers: Answers, labels: str) -> dict[Key, float]:
    """The values by these labels, of which no two are the same."""
    found = {tuple(known.get(label, "") for label in labels.split()): value for known, value in answers}
    assert len(found) == len(answers)
    return found


def amounts_by(answers: Answers, labels: str) -> dict[Key, float]:
    """The same without those that were gone when the span began: their rows stay for a while, and grow no more."""
    return {name: value for name, value in by(answers, labels).items() if value > 0}


def key(held: Held, labels: str) -> Key:
    """The same labels of who holds something."""
    model = "NVIDIA H100 80GB HBM3"
    known = {
        "namespace": held.namespace, "pod": held.pod, "container": held.container, "UUID": held.uuid,
        "GPU_I_ID": held.instance, "node": NODE, "modelName": model, "workload_name": held.workload,
    }  # fmt: skip
    return tuple(known[label] for label in labels.split())


def gpu_seconds(
    labels: str, answers: Answers, truth: Truth, *, unit: float = 1.0, of: Callable[[float], float] = lambda _: 1.0
) -> None:
    """By these labels, what was held, each second weighed by `of` its activity.

    Every change is seen a look late at most. What increase() guesses is a few in a hundred.
    """
    expected = truth.gpu_seconds(lambda held: key(held, labels), of)
    late = truth.changed(lambda held: key(held, labels), of)
    found = {name: value * unit for name, value in amounts_by(answers, labels).items()}
    assert found
    for name in found.keys() | expected.keys():
        real = expected[name]
        assert found.get(name, 0.0) == pytest.approx(real, abs=LOOK * (1 + late[name]) + 0.06 * real), name


def most(labels: str, answers: Answers, truth: Truth) -> None:
    """The ten of the most GPU-hours: where several have nearly the same it may be either."""
    expected = truth.gpu_seconds(lambda held: key(held, labels))
    late = truth.changed(lambda held: key(held, labels))
    found = {name: value * HOUR for name, value in amounts_by(answers, labels).items()}
    assert len(found) == min(10, len(expected))
    for name, seconds in found.items():
        assert seconds == pytest.approx(expected[name], abs=LOOK * (1 + late[name]) + 0.06 * expected[name]), name
    surely = {name for name, seconds in expected.items() if seconds > min(found.values()) + 2 * LOOK * (1 + late[name])}
    assert surely <= found.keys()


def near(amount: float, truth: Truth) -> Any:
    """An amount of the span, as Prometheus may know it: at an end it may lack what came after a look and a scrape."""
    return pytest.approx(amount, rel=2 * LOOK / truth.seconds)


def energy(answers: Answers, truth: Truth) -> None:
    found = amounts_by(answers, "namespace")
    assert found.keys() == {("",), *truth.gpu_seconds(lambda held: (held.namespace,))}
    assert sum(found.values()) == near(truth.drawn_joules() / 3.6e6, truth)


def power(answers: Answers, truth: Truth) -> None:
    drawn = truth.drawn_joules() / truth.seconds
    assert sum(by(answers, "namespace").values()) == near(drawn, truth)


def used(truth: Truth, labels: str) -> Mapping[Key, float]:
    """How much (0 to 1) of what was held was used."""
    active = truth.gpu_seconds(lambda held: key(held, labels), lambda activity: activity)
    return {name: active[name] / of for name, of in truth.gpu_seconds(lambda held: key(held, labels)).items()}


def utilisation(answers: Answers, truth: Truth) -> None:
    expected = used(truth, "namespace")
    assert max(expected.values()) > 0.3  # else it shows nothing
    assert amounts_by(answers, "namespace") == pytest.approx(expected, abs=0.08)


def held_idle(answers: Answers, truth: Truth) -> None:
    labels = "namespace pod container UUID GPU_I_ID"
    everybody = set(truth.moments[0].held).intersection(*(moment.held for moment in truth.moments))
    idle = {held for held in everybody if all(moment.held[held] < IDLE_BELOW for moment in truth.moments)}
    busy = {held for held in everybody if all(moment.held[held] >= IDLE_BELOW for moment in truth.moments)}
    found = by(answers, labels)
    assert idle
    assert busy
    assert {key(held, labels) for held in idle} <= found.keys() <= {key(held, labels) for held in everybody - busy}
    assert all(found[key(held, labels)] == pytest.approx(float(held.ratio)) for held in idle)


def without_use(answers: Answers, truth: Truth) -> None:
    found, expected = by(answers, "namespace pod"), used(truth, "namespace pod")
    assert found
    assert {pod for pod, part in expected.items() if part == 0} <= found.keys()
    assert not found.keys() & {pod for pod, part in expected.items() if part > IDLE_BELOW}


def memory(answers: Answers, truth: Truth) -> None:
    found = by(answers, "namespace pod")
    # with --sharing device the rows of a shared GPU are nobody's
    of_one = {key(held, "namespace pod") for held in truth.now if held.instance or held.ratio == 1}
    assert of_one <= found.keys() <= {key(held, "namespace pod") for held in truth.now}
    assert all(0 <= part <= 1 for part in found.values())
    assert max(found.values()) > 0.5


def held_now(truth: Truth) -> float:
    return float(sum(held.ratio for held in truth.now))


def full(answers: Answers, truth: Truth) -> None:
    ((labels, value),) = answers
    assert labels["model"].startswith("NVIDIA")
    assert value == pytest.approx(held_now(truth) / len(truth.world.gpus))


def free(answers: Answers, truth: Truth) -> None:
    ((labels, value),) = answers
    assert labels["node"] == NODE
    assert value == pytest.approx(len(truth.world.gpus) - held_now(truth))


def holders(answers: Answers, truth: Truth) -> None:
    labels = "namespace pod container UUID GPU_I_ID"
    expected = {key(held, labels): 1.0 for held in truth.now if held.uuid == truth.shared_gpu.uuid}
    assert by(answers, labels) == expected
    assert len(expected) > 1


def parts(answers: Answers, truth: Truth) -> None:
    labels = "namespace pod container UUID GPU_I_ID"
    expected = {key(held, labels): float(held.ratio) for held in truth.now if held.ratio < 1}
    assert by(answers, labels) == pytest.approx(expected)
    assert expected


def throttled(answers: Answers, truth: Truth) -> None:
    """The simulated GPU would draw more than its limit from this activity on."""
    expected = truth.gpu_seconds(
        lambda held: (*key(held, "namespace pod"), "power"), lambda activity: activity > LIMITED
    )
    found = by(answers, "namespace pod reason")
    assert found
    assert found.keys() <= expected.keys()
    assert {name for name, seconds in expected.items() if seconds > 2 * LOOK} <= found.keys()
    for name, seconds in found.items():
        assert seconds == pytest.approx(expected[name], abs=2 * LOOK)


def xids(answers: Answers, truth: Truth) -> None:
    assert by(answers, "namespace pod xid") == {(*truth.struck, str(XID)): 1.0}


def gaps(answers: Answers, _: Truth) -> None:
    assert len({labels["instance"] for labels, _ in answers}) == 1
    seconds = by(answers, "reason")
    # a machine that stopped for a while has a gap of the exporter's, too
    assert seconds.keys() - {("exporter",)} == {("page",)}
    assert 1.0 <= seconds["page",] <= 5.0


def wasted(answers: Answers, truth: Truth) -> None:
    """A difference of two sums, each of which increase() guesses."""
    expected = truth.gpu_seconds(lambda held: key(held, "namespace"), lambda activity: 1 - activity)
    held = truth.gpu_seconds(lambda held: key(held, "namespace"))
    late = truth.changed(lambda held: key(held, "namespace"))
    found = by(answers, "namespace")
    assert held.keys() <= found.keys()
    for name, seconds in held.items():
        within = 2 * LOOK * (1 + late[name]) + 0.12 * seconds
        assert found[name] * HOUR == pytest.approx(expected[name], abs=within), name


def always(truth: Truth, fits: Callable[[Held, float], bool]) -> set[Key]:
    """The pods whose devices all fit in each moment, and that were there all the time."""
    pods = {key(held, "namespace pod") for moment in truth.moments for held in moment.held}
    for moment in truth.moments:
        here = {key(held, "namespace pod") for held in moment.held}
        pods &= here - {
            key(held, "namespace pod") for held, activity in moment.held.items() if not fits(held, activity)
        }
    return pods


def idle_now(answers: Answers, truth: Truth) -> None:
    found = by(answers, "namespace pod")
    assert [*found.values()] == sorted(found.values(), reverse=True)
    idle = always(truth, lambda _, activity: activity < IDLE_BELOW)
    assert idle
    assert idle <= found.keys()
    assert not found.keys() & always(truth, lambda _, activity: activity >= IDLE_BELOW)


def would_do_with_less(answers: Answers, truth: Truth) -> None:
    found = by(answers, "namespace pod")
    assert found
    assert found.keys() <= {key(held, "namespace pod") for held in truth.now if held.ratio == 1}
    assert always(truth, lambda held, activity: held.ratio == 1 and activity < IDLE_BELOW) <= found.keys()
    assert not found.keys() & always(truth, lambda _, activity: activity > 0.6)
    assert all(0 <= part < 3 / 7 for part in found.values())


def left(answers: Answers, truth: Truth) -> None:
    labels = "namespace pod UUID GPU_I_ID"
    found = by(answers, labels)
    # with --sharing device the rows of a shared GPU are nobody's
    assert {key(held, labels) for held in truth.now if held.instance or held.ratio == 1} <= found.keys()
    assert all(0 <= mib <= 81_559 for mib in found.values())
    assert min(found.values()) < 0.5 * max(found.values())


def busiest(answers: Answers, truth: Truth) -> None:
    found, expected = by(answers, "namespace workload_name"), used(truth, "namespace workload_name")
    assert expected.keys() <= found.keys()
    assert max(expected.values()) > 0.3
    held = [key(held, "namespace workload_name") for moment in truth.moments for held in moment.held]
    for name, mean in expected.items():
        # what a new pod does is known a look or two later: of a short life that is a large part
        late = 2 * LOOK / (truth.seconds * held.count(name) / len(truth.moments))
        assert mean - 0.15 - late <= found[name] <= 1.15, name


def hours(labels: str, **more: Any) -> Check:
    return partial(gpu_seconds, labels, **{"unit": HOUR, **more})


# By the number of the question. What happened before the span that was noted is asked for as the page has it.
ANSWERS: Mapping[int, Check] = {
    1: hours("namespace"),
    2: hours("namespace workload_name"),
    3: partial(most, "namespace pod"),
    4: hours("node"),
    5: hours("modelName"),
    6: energy,
    7: hours("namespace", unit=HOUR / PRICE),
    8: power,
    9: utilisation,
    10: hours("namespace", of=lambda activity: float(activity < IDLE_BELOW)),
    11: held_idle,
    12: without_use,
    13: memory,
    14: full,
    15: free,
    16: holders,
    17: parts,
    18: xids,
    19: throttled,
    20: gaps,
    21: wasted,
    22: hours("namespace", of=lambda activity: float(activity < IDLE_BELOW), unit=HOUR / PRICE),
    23: idle_now,
    24: would_do_with_less,
    25: left,
    26: busiest,
}
OF_ALL_TIME = {18, 20}
