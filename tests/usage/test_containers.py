"""From a container id to its owner, by links to logs and by pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.measured import ProcessPlace
from exporter.model.pods import Owner, PodInfo
from exporter.usage.process_owners import (
    MOST_CHARS,
    Containers,
    LogLink,
    containers_of_logs,
    containers_of_pods,
    owner_of,
    read_log_link,
)

ID, OTHER_ID = "3f7a" * 16, "b0c1" * 16
UID = "0f5b2c31-7d0e-4a52-9c7e-5d1f0a9b8c7d"
OTHER_UID = "e2a4c6d8-1111-4222-8333-444455556666"
STATIC_UID = "4a163a05439d484b8e532968bc15824f"


def name_of(owner: Owner, container_id: str = ID) -> str:
    """A link's name, as the kubelet makes it."""
    return f"{owner.pod}_{owner.namespace}_{owner.container}-{container_id}"[:MOST_CHARS] + ".log"


def target_of(owner: Owner, uid: str = UID, number: int = 0, folder: str = "/var/log/pods") -> str:
    return f"{folder}/{owner.namespace}_{owner.pod}_{uid}/{owner.container}/{number}.log"


def owner(pod: str = "train-0", namespace: str = "ml", container: str = "main") -> Owner:
    return Owner(namespace=namespace, pod=pod, container=container)


# issue 10, "Must show" 4
@pytest.mark.parametrize(
    "whose",
    [
        owner(),
        owner(pod="a", namespace="b", container="c"),
        owner(pod="web.v1.2-x"),
        owner(pod="web-0.default-1", namespace="team-a", container="side-car"),
        owner(pod=f"x-{ID}"),
        owner(pod=ID[:63], namespace=ID[:63], container=f"c-{ID[:40]}"),
        owner(pod=f"main-{ID}.log", container="log"),
        owner(pod="p" * 109, namespace="n" * 63, container="c" * 12),  # 251 characters and .log: just not cut
    ],
)
def test_a_links_name_and_target(whose: Owner) -> None:
    link = read_log_link(name_of(whose), target_of(whose, number=12))
    folder = f"{whose.namespace}_{whose.pod}_{UID}"
    assert link == LogLink(owner=whose, pod_uid=UID, container_id=ID, folder=folder)
    assert owner_of(ProcessPlace(container_id=ID, pod_uid=UID), [containers_of_logs([link])]) == whose
    assert owner_of(ProcessPlace(container_id=ID, pod_uid=OTHER_UID), [containers_of_logs([link])]) is None


# issue 10, "Must show" 4
@pytest.mark.parametrize(
    ("name", "target"),
    [
        pytest.param(name_of(owner()), target_of(owner("train-1")), id="another pod"),
        pytest.param(name_of(owner()), target_of(owner(namespace="ops")), id="another namespace"),
        pytest.param(name_of(owner()), target_of(owner(container="init")), id="another container"),
        pytest.param(f"train_0_ml_main-{ID}.log", target_of(owner("0", "ml")), id="an underscore in the name"),
        pytest.param(f"train_0_ml_main-{ID}.log", f"/var/log/pods/ml_train_0_{UID}/main/0.log", id="in both"),
        pytest.param(f"Train_ml_main-{ID}.log", f"/var/log/pods/ml_Train_{UID}/main/0.log", id="a capital letter"),
        pytest.param(name_of(owner(), ID[:63]), target_of(owner()), id="an id that is too short"),
        pytest.param(name_of(owner(), f"{ID}0"), target_of(owner()), id="an id that is too long"),
        pytest.param(name_of(owner(), f"x-{ID}"), target_of(owner()), id="more before the id"),
        pytest.param(name_of(owner()).removesuffix(".log"), target_of(owner()), id="not .log"),
        pytest.param(name_of(owner()), target_of(owner(), uid="../../.."), id="no UID"),
        pytest.param(name_of(owner()), target_of(owner()).replace("0.log", "0.log.20260101"), id="a rotated file"),
        pytest.param(name_of(owner()), "/var/log/pods/../../etc/passwd", id="another file"),
        pytest.param(f"{ID}.log", target_of(owner()), id="an id alone"),
        pytest.param(name_of(owner("p" * 172), f"{ID}012345"), target_of(owner("p" * 172)), id="too long and cut"),
        pytest.param(name_of(owner()), "", id="nothing"),
        pytest.param("", target_of(owner()), id="no name"),
    ],
)
def test_what_is_no_such_link(name: str, target: str) -> None:
    assert read_log_link(name, target) is None


def test_the_kubelet_may_keep_logs_elsewhere() -> None:
    assert read_log_link(name_of(owner()), target_of(owner(), folder="/data/pod logs")) is not None
    assert read_log_link(name_of(owner()), target_of(owner(), folder="")) is not None


# issue 10, "Must show" 4
@pytest.mark.parametrize("chars", [180, 200, 240, 253])
def test_a_cut_name_counts_by_the_pods_uid_and_never_by_a_part_of_the_id(chars: int) -> None:
    whose = owner(pod="p" * (chars - 4) + "-abc")
    link = read_log_link(name_of(whose), target_of(whose))
    assert link is not None
    assert (link.owner, link.container_id, link.pod_uid) == (whose, "", UID)
    known = containers_of_logs([link])
    assert known == Containers()
    for part in (ID, ID[:20], ""):
        assert owner_of(ProcessPlace(container_id=part, pod_uid=UID), [known]) is None
    alone = containers_of_logs([link], [link])
    assert owner_of(ProcessPlace(container_id=ID, pod_uid=UID), [alone]) == whose
    assert owner_of(ProcessPlace(container_id="", pod_uid=UID), [alone]) is None
    assert owner_of(ProcessPlace(container_id=ID, pod_uid=OTHER_UID), [alone]) is None
    assert owner_of(ProcessPlace(container_id=ID), [alone]) is None
    # the first part of another pod's name
    assert read_log_link(name_of(whose), target_of(owner(pod="q" + whose.pod[1:]))) is None


def test_a_whole_id_at_the_end_of_a_cut_name_is_part_of_a_name() -> None:
    whose = owner(pod="p" * (MOST_CHARS - 65) + "-" + ID[:61] + "-x")
    link = read_log_link(name_of(whose), target_of(whose))
    assert link is not None
    assert link.container_id == ""


def test_what_follows_a_cut_name_begins_an_id_or_is_another_pods_link() -> None:
    whose = owner(pod="p" * 180)
    name = name_of(whose)
    assert read_log_link(name, target_of(whose)) is not None
    assert read_log_link(name[: -len("z.log")] + "z.log", target_of(whose)) is None


_WORDS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
_OWNERS = st.builds(
    owner,
    pod=st.builds(lambda parts, times: ".".join(parts * times)[:250] + "x", st.lists(_WORDS, min_size=1), st.just(9)),
    namespace=_WORDS,
    container=_WORDS,
)


# issue 10, "Must show" 4
@given(_OWNERS, _OWNERS)
def test_no_two_owners_are_taken_for_each_other(one: Owner, other: Owner) -> None:
    link = read_log_link(name_of(one), target_of(one))
    assert link is not None
    assert link.owner == one
    assert bool(link.container_id) == (len(name_of(one)) < 255 or name_of(one).endswith(f"-{ID}.log"))
    mixed = read_log_link(name_of(one), target_of(other))
    assert mixed is None or one == other or not mixed.container_id


def pod(
    uid: str = UID, *, name: str = "train-0", container_id: str = f"containerd://{ID}", static: bool = False
) -> PodInfo:
    ids = {"main": container_id}
    return PodInfo(namespace="ml", name=name, uid=uid, labels={}, container_ids=ids, is_static=static)


HERE = ProcessPlace(container_id=ID, pod_uid=UID)


@pytest.mark.parametrize(
    ("pods", "place", "whose"),
    [
        pytest.param([pod()], HERE, "train-0", id="containerd"),
        pytest.param([pod(container_id=f"cri-o://{ID}")], HERE, "train-0", id="CRI-O"),
        pytest.param([pod(container_id=f"docker://{ID}")], HERE, "train-0", id="docker"),
        pytest.param([pod(container_id="containerd://")], HERE, None, id="not started"),
        pytest.param([pod(container_id=f"containerd://{ID[:20]}")], HERE, None, id="a part of an id"),
        pytest.param([pod()], ProcessPlace(container_id=ID), "train-0", id="a place that does not say the pod"),
        pytest.param([pod(OTHER_UID)], HERE, None, id="a pod of this name that is another one"),
        pytest.param([pod(), pod(OTHER_UID, name="thief")], HERE, "train-0", id="a pod that claims another's id"),
        pytest.param([pod(OTHER_UID, name="thief")], HERE, None, id="it alone"),
        pytest.param([pod(OTHER_UID, name="thief", static=True)], HERE, None, id="it says that it is static"),
        pytest.param(
            [pod(), pod(OTHER_UID, name="thief")], ProcessPlace(container_id=ID), None, id="two, in doubt none"
        ),
        pytest.param(
            [pod(static=True)],
            ProcessPlace(container_id=ID, pod_uid=STATIC_UID),
            "train-0",
            id="a static pod has another UID",
        ),
        pytest.param([pod()], ProcessPlace(container_id=ID, pod_uid=STATIC_UID), None, id="a pod that is not static"),
        pytest.param(
            [pod()], ProcessPlace(container_id=ID, is_of_pod=False, engine="docker"), None, id="docker's container"
        ),
    ],
)
def test_owners_by_what_pods_say(pods: list[PodInfo], place: ProcessPlace, whose: str | None) -> None:
    of = owner_of(place, [containers_of_pods(pods)])
    assert (of.pod if of else None) == whose


def test_tables_that_do_not_agree_name_nobody() -> None:
    link = read_log_link(name_of(owner("train-1")), target_of(owner("train-1")))
    assert link is not None
    logs, pods = containers_of_logs([link]), containers_of_pods([pod()])
    assert owner_of(HERE, [logs]) == owner("train-1")
    assert owner_of(HERE, [pods]) == owner("train-0")
    assert owner_of(HERE, [logs, pods]) is None
    assert owner_of(HERE, [pods, containers_of_pods([pod()])]) == owner("train-0")
