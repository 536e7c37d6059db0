"""Which device a token means: by what the node shows, or by the allocator's word on the pod."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment, Claim, DeviceKey, Inventory, InventoryGpu, Owners
from exporter.model.grants import Evidence, Given, Grant
from exporter.model.pages import Subject
from exporter.model.pods import Owner, PodContainer, PodInfo, PodsByName
from exporter.ownership.allocators.allocator_table import ALLOCATORS, Grammar
from exporter.ownership.allocators.said import Said
from exporter.ownership.device_ids import RULES, Rule
from exporter.ownership.owners import Knowledge, Unmatched
from exporter.ownership.words import Words
from tests.support.owners import build_owners

UUIDS = [f"{number}567a9e7-341e-bb7e-fcf5-788d8caa50f9" for number in range(4)]
GPUS = [f"GPU-{uuid}" for uuid in UUIDS]
PAGE = {Subject(uuid=gpu, index=str(number), device=f"nvidia{number}"): 3 for number, gpu in enumerate(GPUS)}
INVENTORY = Inventory(
    gpus=tuple(InventoryGpu(uuid=gpu, index=str(n), device=f"nvidia{n}") for n, gpu in enumerate(GPUS))
)
GPU = "nvidia.com/gpu"
HAMI = "hami.io/vgpu-devices-allocated"
MAIN, SIDE = (Owner(namespace="ml", pod="a", container=container) for container in ("main", "side"))


def ids(owner: Owner, *gpus: int) -> list[Assignment]:
    """What the kubelet picked: shares of these GPUs."""
    return [Assignment(owner=owner, resource=GPU, device_id=f"{GPUS[gpu]}-{n}") for n, gpu in enumerate(gpus)]


def pod(text: str | None, *containers: str, init: Sequence[str] = ()) -> PodsByName:
    """The pod with this annotation of HAMi's. A container whose name ends in - asks for no GPU."""
    spec = [(name, True) for name in init] + [(name, False) for name in containers or ("main",)]
    info = PodInfo(
        namespace="ml",
        name="a",
        uid="1",
        labels={},
        annotations={} if text is None else {HAMI: text},
        containers=tuple(
            PodContainer(name=name, is_init=is_init, resources=frozenset() if name.endswith("-") else frozenset({GPU}))
            for name, is_init in spec
        ),
    )
    return {("ml", "a"): info}


def hami(*containers: Sequence[int]) -> str:
    """HAMi's annotation that gives each container these GPUs."""
    devices = ("".join(f"{GPUS[gpu]},NVIDIA,10240,45:" for gpu in of) for of in containers)
    return "".join(f"{of};" for of in devices)


def shows(*gpus: int, source: str = "the kubelet's checkpoint", is_whole: bool = True) -> Given:
    return Given(source=source, refs=tuple(DeviceRef(form="", uuid=GPUS[gpu]) for gpu in gpus), is_whole=is_whole)


NVML = "NVML"


def owners_of(
    assignments: Iterable[Assignment], pods: PodsByName, evidence: Evidence | None = None, words: Words | None = None
) -> Owners:
    with_words = (words or Words()).of(frozenset(assignments), pods, evidence or {}, INVENTORY)
    return build_owners(with_words, PAGE)


def held(owners: Owners) -> Mapping[str, list[int]]:
    """The GPUs of each container."""
    gpus: dict[str, list[int]] = {}
    for key, holders in sorted(owners.holders.items()):
        for holder in holders:
            gpus.setdefault(holder.owner.container, []).append(GPUS.index(key.uuid))
    return gpus


CASES: dict[str, tuple[list[Assignment], PodsByName, Evidence, Mapping[str, list[int]]]] = {
    "the annotation": (ids(MAIN, 0), pod(hami([2])), {}, {"main": [2]}),
    "several devices": (ids(MAIN, 0, 0), pod(hami([2, 3])), {}, {"main": [2, 3]}),
    "two containers": (
        [*ids(MAIN, 0), *ids(SIDE, 1)], pod(hami([2], [3]), "main", "side"), {}, {"main": [2], "side": [3]}
    ),
    "the second container": (ids(SIDE, 1), pod(hami([], [3]), "main-", "side"), {}, {"side": [3]}),
    "behind an init container": (ids(MAIN, 0), pod(hami([], [2]), "main", init=["pull-"]), {}, {"main": [2]}),
    "before init containers counted": (ids(MAIN, 0), pod(hami([2]), "main", init=["pull-"]), {}, {"main": [2]}),
    "not written yet": (ids(MAIN, 0), pod(None), {}, {}),
    "a pod that nobody knows": (ids(MAIN, 0), {}, {}, {}),
    "broken": (ids(MAIN, 0), pod("GPU-0,NVIDIA,many,45:;"), {}, {}),
    "too few": (ids(MAIN, 0, 1), pod(hami([2])), {}, {}),
    "too many containers": (ids(MAIN, 0), pod(hami([2], [3], [1])), {}, {}),
    "of another node": (ids(MAIN, 0), pod(hami([2]).replace(GPUS[2], f"{GPUS[2][:-1]}0")), {}, {}),
    "evidence alone": (ids(MAIN, 0), {}, {(MAIN, GPU): (shows(3),)}, {"main": [3]}),
    "evidence for any resource": (ids(MAIN, 0), {}, {(MAIN, ""): (shows(3),)}, {"main": [3]}),
    "evidence against the word": (ids(MAIN, 0), pod(hami([2])), {(MAIN, GPU): (shows(3),)}, {"main": [3]}),
    "evidence of too few devices": (
        ids(MAIN, 0, 0), pod(hami([2, 3])), {(MAIN, GPU): (shows(1),)}, {"main": [2, 3]}
    ),
    "evidence of too many devices": (ids(MAIN, 0), pod(hami([2])), {(MAIN, GPU): (shows(1, 3),)}, {"main": [2]}),
    "a process where the word says": (
        ids(MAIN, 0), pod(hami([2])), {(MAIN, ""): (shows(2, is_whole=False),)}, {"main": [2]}
    ),
    "a process elsewhere": (ids(MAIN, 0), pod(hami([2])), {(MAIN, ""): (shows(1, is_whole=False),)}, {"main": [1]}),
    "a privileged container's": (
        ids(MAIN, 0), pod(hami([2])), {(MAIN, ""): (shows(0, 1, 2, 3, is_whole=False),)}, {"main": [2]}
    ),
    "a process and no word": (ids(MAIN, 0, 0), {}, {(MAIN, ""): (shows(1, is_whole=False),)}, {"main": [1]}),
    "the best evidence": (
        ids(MAIN, 0), pod(hami([2])), {(MAIN, GPU): (shows(3),), (MAIN, ""): (shows(1, is_whole=False),)}, {"main": [3]}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_device_of_a_token(case: str) -> None:
    assignments, pods, evidence, gpus = CASES[case]
    owners = owners_of(assignments, pods, evidence)
    assert held(owners) == gpus
    if not gpus:
        (match, *_) = owners.matches
        assert match.reason == Unmatched.ALLOCATOR
        assert match.is_token or match.key is None


OF_NO_DEVICE = [
    ({}, "HAMi's scheduler chose the GPU and wrote it on the pod (the annotation", ""),
    # other pods are known
    (
        {("ml", "b"): replace(pod(None)["ml", "a"], name="b")},
        "an allocator's scheduler chose the GPU, and which pod bears this name now is not known",
        "",
    ),
    (pod(None), "HAMi's scheduler chose the GPU, and has not written on the pod yet which one", ""),
    (pod("x"), f"the annotation {HAMI} cannot be believed: place 1, device 1: 'x' is not", f"the annotation {HAMI}"),
    (
        pod(hami([2, 3])),
        f"the annotation {HAMI} cannot be believed: it names 2 devices for this container, and the kubelet handed",
        f"the annotation {HAMI}",
    ),
    (
        pod(hami([], [2]), "main-", "side"),
        f"the annotation {HAMI} cannot be believed: it names no device for this container",
        f"the annotation {HAMI}",
    ),
]


@pytest.mark.parametrize(("pods", "why", "source"), OF_NO_DEVICE)
def test_why_a_token_has_no_device(pods: PodsByName, why: str, source: str) -> None:
    (assignment,) = Words().of(frozenset(ids(MAIN, 0)), pods)
    word = assignment.word
    assert word is not None
    assert word.trouble is not None
    assert word.trouble.message.startswith(why)
    assert (word.grant, word.source, word.ref, word.is_of_id) == (Grant(allocator="HAMi"), source, None, None)


def test_a_process_where_the_word_says_leaves_the_word_its_source() -> None:
    evidence: Evidence = {(MAIN, ""): (shows(2, source=NVML, is_whole=False),)}
    word = owners_of(ids(MAIN, 0), pod(hami([2])), evidence).matches[0].assignment.word
    assert word is not None
    assert (word.source, word.is_of_id) == (f"the annotation {HAMI}", False)


@pytest.mark.parametrize("of_claim", [True, False])
def test_claims_and_units_that_name_no_device_are_no_tokens(*, of_claim: bool) -> None:
    """Though such ids of an unknown pod would be."""
    claim = Claim(namespace="ml", name="c", driver="huawei.com/npu", pool="n", device="npu-0")
    held = Assignment(owner=MAIN, resource="huawei.com/npu", device_id="npu-0")
    none: PodsByName = {}
    assert Words().of(frozenset([held]), none) != {held}
    assignments = frozenset([replace(held, claim=claim) if of_claim else replace(held, units=4)])
    assert Words().of(assignments, none) is assignments


class _Rules(list[Rule]):
    """Counts how often it is gone through."""

    rounds = 0

    def __iter__(self) -> Iterator[Rule]:
        self.rounds += 1
        return super().__iter__()


def test_an_id_is_read_once_while_its_assignment_stays_the_same_object() -> None:
    rules = _Rules(RULES)
    words = Words(rules=rules)
    assignments = frozenset([*ids(MAIN, 0), *ids(SIDE, 1)])
    for pods in (pod(None), pod(hami([2], [3]), "main", "side")):
        words.of(assignments, pods)
        assert rules.rounds == 2
    words.of(frozenset(), {})
    words.of(assignments, {})
    assert rules.rounds == 4, "what is gone is forgotten"


@pytest.mark.parametrize(("text", "memory"), [(None, [None, None]), (hami([0, 1]), [10240, 10240])])
def test_where_ids_count_the_annotation_only_tells_the_parts(text: str | None, memory: list[int | None]) -> None:
    owners = owners_of(ids(MAIN, 0, 1), pod(text), words=Words(trusts_ids_of="HAMi"))
    assert held(owners) == {"main": [0, 1]}
    words = [match.assignment.word for match in owners.matches]
    assert [(word.grant.allocator, word.grant.memory_mib, word.source) for word in words if word] == [
        ("HAMi", mib, "the id") for mib in memory
    ]
    assert {word.is_of_id for word in words if word} == {None if text is None else True}


def test_where_ids_count_each_gpu_has_the_part_written_for_it() -> None:
    text = f"{GPUS[1]},NVIDIA,2000,20:{GPUS[0]},NVIDIA,1000,10:;"
    owners = owners_of(ids(MAIN, 0, 1), pod(text), words=Words(trusts_ids_of="HAMi"))
    grants = {GPUS.index(key.uuid): holder.grant for key, (holder,) in owners.holders.items()}
    assert grants == {
        0: Grant(allocator="HAMi", memory_mib=1000, cores_percent=10),
        1: Grant(allocator="HAMi", memory_mib=2000, cores_percent=20),
    }


@pytest.mark.parametrize(
    ("text", "shown", "grants"),
    [
        # the part of the device that the annotation names, or else the part in its order
        (hami([2]), shows(3), {3: (10240, 45)}),
        (f"{GPUS[2]},NVIDIA,1,2:{GPUS[3]},NVIDIA,3,4:;", shows(3, 2), {2: (1, 2), 3: (3, 4)}),
        (f"{GPUS[2]},NVIDIA,1,2:{GPUS[3]},NVIDIA,3,4:;", shows(0, 3), {0: (1, 2), 3: (3, 4)}),
        (f"{GPUS[2]},NVIDIA,1,2:{GPUS[3]},NVIDIA,3,4:;", shows(0, is_whole=False), {0: (1, 2)}),
        (None, shows(3, 2), {2: (None, None), 3: (None, None)}),
        (
            hami([2, 3]),
            replace(shows(3, 2), grants=(Grant(allocator="HAMi", memory_mib=7), Grant(allocator="HAMi", memory_mib=8))),
            {2: (8, None), 3: (7, None)},
        ),
    ],
)
def test_the_parts_of_the_devices_that_the_node_shows(
    text: str | None, shown: Given, grants: Mapping[int, tuple[float | None, float | None]]
) -> None:
    assigned = ids(MAIN, 0, 1) if len(shown.refs) > 1 or (text or "").count(":") > 1 else ids(MAIN, 0)
    owners = owners_of(assigned, pod(text), {(MAIN, GPU): (shown,)})
    assert {
        GPUS.index(key.uuid): (holder.grant.memory_mib, holder.grant.cores_percent)
        for key, (holder,) in owners.holders.items()
        if holder.grant
    } == grants


def test_devices_without_a_process_stay_unknown_beside_those_with_one() -> None:
    owners = owners_of(
        ids(MAIN, 0, 0, 0), pod(hami([1, 2, 2])), {(MAIN, ""): (shows(0, 3, source=NVML, is_whole=False),)}
    )
    assert held(owners) == {"main": [0, 3]}
    (unknown,) = [match.assignment.word for match in owners.matches if match.key is None]
    assert unknown is not None
    assert unknown.trouble is not None
    assert "HAMi's scheduler chose the GPU and wrote it on the pod" in unknown.trouble.message
    troubles = {match.assignment.word.trouble for match in owners.matches if match.key and match.assignment.word}
    assert [trouble.message for trouble in troubles if trouble] == [
        f"the annotation {HAMI} says {GPUS[1]}, {GPUS[2]}, {GPUS[2]}, and NVML shows {GPUS[0]}, {GPUS[3]}, which counts"
    ]


def test_what_the_allocator_gave_is_the_holders_part() -> None:
    owners = owners_of(ids(MAIN, 0, 1), pod(hami([2, 2])))
    (holder,) = owners.holders[DeviceKey(uuid=GPUS[2])]
    assert holder.grant == Grant(allocator="HAMi", memory_mib=20480, cores_percent=90)
    assert holder.shared


def test_a_contradiction_is_told_and_a_word_that_agrees_is_not() -> None:
    contradicted = owners_of(ids(MAIN, 0), pod(hami([2])), {(MAIN, GPU): (shows(3),)})
    word = contradicted.matches[0].assignment.word
    assert word is not None
    assert word.trouble is not None
    assert word.trouble.message == (
        f"the annotation {HAMI} says {GPUS[2]}, and the kubelet's checkpoint shows {GPUS[3]}, which counts"
    )
    word = owners_of(ids(MAIN, 0), pod(hami([2])), {(MAIN, GPU): (shows(2),)}).matches[0].assignment.word
    assert word is not None
    assert word.trouble is None
    assert word.grant.memory_mib == 10240


@pytest.mark.parametrize(
    ("trusts", "gpus", "is_of_id"), [("", [2], False), ("HAMi", [0], False), ("Volcano", [2], False)]
)
def test_where_ids_and_annotation_differ_a_setting_decides(trusts: str, gpus: list[int], is_of_id: bool) -> None:
    owners = owners_of(ids(MAIN, 0), pod(hami([2])), words=Words(trusts_ids_of=trusts))
    assert held(owners) == {"main": gpus}
    word = owners.matches[0].assignment.word
    assert word is not None
    assert word.is_of_id is is_of_id


def test_nothing_is_made_anew_while_nothing_changes() -> None:
    words = Words()
    assignments = frozenset([*ids(MAIN, 0), *ids(SIDE, 1)])
    before = words.of(assignments, pod(hami([2], [3]), "main", "side"))
    # the pod changed, and what the allocator wrote did not
    assert words.of(assignments, pod(hami([2], [3]), "main", "side")) is before
    after = words.of(assignments, pod(hami([2], [1]), "main", "side"))
    assert after != before
    same = [assignment for assignment in after if any(assignment is other for other in before)]
    assert [assignment.owner for assignment in same] == [MAIN]


class _Counting:
    """A grammar that counts how often it reads."""

    def __init__(self, grammar: Grammar) -> None:
        self.texts: list[str] = []
        self._grammar = grammar

    def __call__(self, text: str) -> Said:
        self.texts.append(text)
        return self._grammar(text)


def test_an_annotation_is_read_once_while_it_stays_the_same() -> None:
    """To read one may take milliseconds, and a node has a hundred pods that come and go."""
    (written,) = (of for of in ALLOCATORS["HAMi"].annotations if of.key == HAMI)
    grammar = _Counting(written.grammar)
    allocator = replace(ALLOCATORS["HAMi"], annotations=(replace(written, grammar=grammar),))
    words = Words(allocators={**ALLOCATORS, "HAMi": allocator})
    other = replace(MAIN, pod="b")
    assignments = frozenset([*ids(MAIN, 0), *ids(SIDE, 1), *ids(other, 2)])
    pods = pod(hami([2], [3]), "main", "side")
    of_other = replace(pod(hami([1]))["ml", "a"], name="b", uid="2")
    words.of(assignments, {**pods, ("ml", "b"): of_other})
    assert sorted(grammar.texts) == sorted([hami([2], [3]), hami([1])])
    now = {**pods, ("ml", "b"): replace(of_other, annotations={HAMI: hami([0])})}
    words.of(assignments, now)
    assert grammar.texts[2:] == [hami([0])]
    # it is kept with its word alone, since another pod may get the place of this one in memory
    words.of(assignments, now, {(other, ""): (shows(3),)})
    assert grammar.texts[3:] == [hami([0])]


ASCEND = "huawei.com/Ascend910"


def npu(pod_annotations: Mapping[str, str] | None, rules: Sequence[Rule] = RULES) -> frozenset[Assignment]:
    """What becomes of the id Ascend910-3, on a pod with these annotations (None: a pod that nobody knows)."""
    held = Assignment(owner=MAIN, resource=ASCEND, device_id="Ascend910-3")
    container = PodContainer(name="main", resources=frozenset({ASCEND}))
    info = PodInfo(
        namespace="ml", name="a", uid="1", labels={}, annotations=pod_annotations or {}, containers=(container,)
    )
    pods = {} if pod_annotations is None else {("ml", "a"): info}
    return Words(rules).of(frozenset([held]), pods)


@pytest.mark.parametrize(
    ("annotations", "index"),
    [
        # without Volcano nothing is on the pod, and the id is true
        ({}, "the id"),
        ({"huawei.com/kltDev": "Ascend910-3", "huawei.com/AscendReal": "Ascend910-5"}, "5"),
        # the scheduler writes at bind, and the plugin some time after the kubelet has listed the pod
        ({"predicate-time": "1"}, "none"),
        (None, "none"),
    ],
)
def test_an_id_that_only_its_pod_shows_to_be_a_token(annotations: Mapping[str, str] | None, index: str) -> None:
    (assignment,) = npu(annotations)
    word = assignment.word
    if index == "the id":
        assert word is None
        return
    assert word is not None
    assert (word.ref.index if word.ref else "none") == index
    assert bool(word.trouble) is (index == "none")


@pytest.mark.parametrize(("real", "is_of_id"), [("Ascend910-3", True), ("Ascend910-5", False)])
def test_a_marked_id_is_compared_with_the_device_of_the_word(real: str, *, is_of_id: bool) -> None:
    rule = Rule("a rule of the user's", re.compile("Ascend910-(?P<index>[0-9]+)"), "huawei.com/*")
    written = {"huawei.com/kltDev": "Ascend910-3", "huawei.com/AscendReal": real}
    (assignment,) = npu(written, rules=(rule,))
    assert assignment.word is not None
    assert assignment.word.is_of_id is is_of_id


@pytest.mark.parametrize(("annotations", "is_held"), [({}, True), ({"predicate-time": "1"}, False), (None, False)])
def test_a_token_without_a_word_names_no_device_though_a_rule_reads_its_id(
    annotations: Mapping[str, str] | None, is_held: bool
) -> None:
    rule = Rule("a rule of the user's", re.compile("Ascend910-(?P<index>[0-9]+)"), "huawei.com/*")
    owners = build_owners(npu(annotations), PAGE, Knowledge(rules=(rule,)))
    assert bool(owners.holders) is is_held
