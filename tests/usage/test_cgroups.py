"""The text of /proc/<pid>/cgroup, and which container a process is in.

The forms were taken from what Kubernetes' nodes show (kubeadm, GKE, EKS, OpenShift, minikube, kind, k3d); the ids are
made up.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.measured import ProcessPlace
from exporter.usage.process_owners import kubelet_root, read_cgroups

ID = "3f7a" * 16
OTHER_ID = "b0c1" * 16
NODE_ID = "99ee" * 16
UID = "0f5b2c31-7d0e-4a52-9c7e-5d1f0a9b8c7d"
OTHER_UID = "e2a4c6d8-1111-4222-8333-444455556666"
STATIC_UID = "4a163a05439d484b8e532968bc15824f"
SLICE_UID, OTHER_SLICE_UID = UID.replace("-", "_"), OTHER_UID.replace("-", "_")
SYSTEMD = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE_UID}.slice"
_KIND_CLASS = "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice"
KIND = f"{_KIND_CLASS}/kubelet-kubepods-besteffort-pod{SLICE_UID}.slice"
OF_OTHER = f"/kubepods.slice/kubepods-pod{OTHER_SLICE_UID}.slice/cri-containerd-{OTHER_ID}.scope"

HERE = ProcessPlace(container_id=ID, pod_uid=UID)
IN_POD_ALONE = ProcessPlace(container_id="", pod_uid=UID)
IN_DOCKER = ProcessPlace(container_id=ID, is_of_pod=False, engine="docker")


def v1(path: str, *others: str) -> str:
    """The lines of cgroup v1, with `others` for the first hierarchies."""
    controllers = ("rdma", "misc", "pids", "memory", "cpu,cpuacct", "name=systemd")
    paths = (*others, *(path,) * (len(controllers) - len(others)))
    lines = zip(range(12, 0, -1), controllers, paths, strict=False)
    return "".join(f"{number}:{controller}:{of}\n" for number, controller, of in lines)


def v2(path: str) -> str:
    return f"0::{path}\n"


# issue 10, "Must show" 4
@pytest.mark.parametrize(
    ("text", "place"),
    [
        # cgroup v2
        pytest.param(v2(f"{SYSTEMD}/cri-containerd-{ID}.scope"), HERE, id="containerd, systemd"),
        pytest.param(v2(f"{SYSTEMD}/crio-{ID}.scope"), HERE, id="CRI-O, systemd"),
        pytest.param(v2(f"{SYSTEMD}/crio-{ID}.scope/container"), HERE, id="CRI-O with crun"),
        pytest.param(v2(f"{SYSTEMD}/docker-{ID}.scope"), HERE, id="cri-dockerd, systemd"),
        pytest.param(v2(f"{SYSTEMD}/crio-conmon-{ID}.scope"), IN_POD_ALONE, id="CRI-O's monitor is no container"),
        pytest.param(v2(SYSTEMD), IN_POD_ALONE, id="a pod's level"),
        pytest.param(
            v2(
                f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope"
            ),
            HERE,
            id="BestEffort, systemd",
        ),
        pytest.param(
            v2(f"/kubepods.slice/kubepods-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope"),
            HERE,
            id="Guaranteed, systemd",
        ),
        pytest.param(v2(f"/kubepods/pod{UID}/{ID}"), HERE, id="Guaranteed, cgroupfs"),
        pytest.param(v2(f"/kubepods/burstable/pod{UID}/{ID}"), HERE, id="Burstable, cgroupfs"),
        pytest.param(v2(f"/kubepods/besteffort/pod{UID}/crio-{ID}"), HERE, id="CRI-O, cgroupfs"),
        pytest.param(v2(f"/kubepods/besteffort/pod{UID}/crio-conmon-{ID}"), IN_POD_ALONE, id="its monitor, cgroupfs"),
        pytest.param(
            v2(f"/kubepods/burstable/pod{STATIC_UID}/{ID}"),
            ProcessPlace(container_id=ID, pod_uid=STATIC_UID),
            id="a static pod",
        ),
        pytest.param(
            v2(f"/kubepods/burstable/pod{UID}/{ID}/system.slice/x.service"), HERE, id="systemd in a container"
        ),
        pytest.param(v2(f"/kubepods/burstable/pod{UID}/{ID}/docker/{OTHER_ID}"), HERE, id="docker in a container"),
        pytest.param(v2(f"{SYSTEMD}/cri-containerd-{ID}.scope (deleted)"), HERE, id="a container that is gone"),
        # cgroup v1
        pytest.param(v1(f"/kubepods/burstable/pod{UID}/{ID}"), HERE, id="v1, cgroupfs"),
        pytest.param(v1(f"{SYSTEMD}/cri-containerd-{ID}.scope", "/"), HERE, id="v1, a hierarchy without pods"),
        pytest.param(
            v1(f"{SYSTEMD}/docker-{ID}.scope") + v2("/system.slice/containerd.service"), HERE, id="v1 beside v2"
        ),
        pytest.param(
            v1(f"/system.slice/containerd.service/kubepods-burstable-pod{SLICE_UID}.slice:cri-containerd:{ID}"),
            HERE,
            id="the kubelet with systemd, containerd without",
        ),
        pytest.param(v2(f"/system.slice/kubepods-pod{SLICE_UID}.slice:cri-containerd:{ID}"), HERE, id="that on v2"),
        pytest.param(v1(f"/kubepods-pod{SLICE_UID}.slice:cri-containerd:{ID}"), HERE, id="that at the root"),
        pytest.param(
            v1(f"/kubepods/pod{UID}/{ID}", f"/kubepods/pod{UID}/{OTHER_ID}"), None, id="v1, two that do not agree"
        ),
        pytest.param(
            v1(f"/kubepods/pod{UID}/{ID}", f"/kubepods/pod{OTHER_UID}/{ID}"), None, id="v1, two pods of one container"
        ),
        # nodes in containers
        pytest.param(v2(f"{KIND}/cri-containerd-{ID}.scope"), HERE, id="kind, within the node"),
        pytest.param(v2(f"/kubelet/kubepods/besteffort/pod{UID}/{ID}"), HERE, id="kind before 1.24, within the node"),
        pytest.param(
            v2(f"/system.slice/docker-{NODE_ID}.scope{KIND}/cri-containerd-{ID}.scope"), HERE, id="kind, from its host"
        ),
        pytest.param(
            v1(f"/docker/{NODE_ID}/kubelet/kubepods/burstable/pod{UID}/{ID}", f"/docker/{NODE_ID}"), HERE, id="kind, v1"
        ),
        pytest.param(v1(f"/docker/{NODE_ID}/docker/{NODE_ID}/kubepods/besteffort/pod{UID}/{ID}"), HERE, id="k3d, v1"),
        pytest.param(v2(f"/lxc.payload.node-1/kubepods/pod{UID}/{ID}"), HERE, id="a node in LXC"),
        # seen from a container's own cgroup namespace
        pytest.param(
            v2(f"/../../kubepods-burstable-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope"), HERE, id="another pod"
        ),
        pytest.param(
            v2(f"/../../../kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE_UID}.slice/crio-{ID}.scope"),
            HERE,
            id="a pod of another QoS class",
        ),
        pytest.param(v2(f"/../../../kubepods-pod{SLICE_UID}.slice/crio-{ID}.scope"), HERE, id="a Guaranteed one"),
        pytest.param(v2(f"/../../pod{UID}/{ID}"), HERE, id="another pod, cgroupfs"),
        pytest.param(v2(f"/../../../burstable/pod{UID}/{ID}"), HERE, id="of another QoS class, cgroupfs"),
        pytest.param(v2(f"/../../../..{SYSTEMD}/crio-{ID}.scope"), HERE, id="from outside every pod"),
        pytest.param(
            v2(f"/../../kubelet-kubepods-besteffort-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope"), HERE, id="on kind"
        ),
        pytest.param(
            v2(f"/../cri-containerd-{ID}.scope"), ProcessPlace(container_id=ID), id="a container of the same pod"
        ),
        pytest.param(v2(f"/../pod{UID}/{ID}"), HERE, id="a pod beside the reader's level"),
        pytest.param(v2(f"/../crio-conmon-{ID}.scope"), None, id="the monitor of the same pod"),
        pytest.param(v2("/"), None, id="the reader's own container"),
        pytest.param(v2("/../../../../system.slice/sshd.service"), None, id="a service"),
        # containers that are no pod's
        pytest.param(v2(f"/system.slice/docker-{ID}.scope"), IN_DOCKER, id="docker, systemd"),
        pytest.param(v1(f"/docker/{ID}", "/"), IN_DOCKER, id="docker, v1"),
        pytest.param(v1(f"/docker/{ID}/docker/{OTHER_ID}"), IN_DOCKER, id="docker in docker"),
        pytest.param(v2(f"/../../../../system.slice/docker-{ID}.scope"), IN_DOCKER, id="docker, from a container"),
        pytest.param(
            v2(f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container"),
            ProcessPlace(container_id=ID, is_of_pod=False, engine="podman"),
            id="podman without root",
        ),
        # no container
        pytest.param(v2("/init.scope"), None, id="init"),
        pytest.param(v2("/user.slice/user-1000.slice/session-3.scope"), None, id="somebody's session"),
        pytest.param(v2("/system.slice/kubelet.service"), None, id="the kubelet"),
        pytest.param(v2("/kubepods.slice/kubepods-burstable.slice"), None, id="a QoS class"),
        pytest.param("", None, id="nothing"),
        pytest.param("0::\n::\n:\n\0\nkubepods\n", None, id="no such lines"),
    ],
)
def test_a_processs_cgroups(text: str, place: ProcessPlace | None) -> None:
    assert read_cgroups(text) == place


# issue 10, "Must show" 4
@pytest.mark.parametrize(
    ("path", "place"),
    [
        pytest.param(f"{SYSTEMD}/cri-containerd-{ID}.scope{OF_OTHER}", HERE, id="below its own container"),
        pytest.param(
            f"/../../kubepods-pod{SLICE_UID}.slice/crio-{ID}.scope{OF_OTHER}", HERE, id="that in a cgroup namespace"
        ),
        pytest.param(f"/../cri-containerd-{ID}.scope{OF_OTHER}", ProcessPlace(container_id=ID), id="beside the reader"),
        pytest.param(f"/kubepods/pod{UID}/{ID}/../../pod{OTHER_UID}/{OTHER_ID}", HERE, id="levels upwards"),
        pytest.param(
            f"/kubepods/pod{UID}/{ID}/x\r0::{OF_OTHER}\N{LINE SEPARATOR}0::{OF_OTHER}", HERE, id="what looks like lines"
        ),
        pytest.param(f"/kubepods/pod{UID}/{ID}/0::{OF_OTHER}", HERE, id="colons"),
        pytest.param(f"/kubepods/pod{UID}/evil/pod{OTHER_UID}/{OTHER_ID}", IN_POD_ALONE, id="no container's level"),
        pytest.param(
            f"/kubepods/pod{UID}/x:cri-containerd:{OTHER_ID}", IN_POD_ALONE, id="a container's id after colons"
        ),
        pytest.param(f"/user.slice/user-1000.slice/user@1000.service{OF_OTHER}", None, id="a user's cgroup"),
        pytest.param(f"/../../../../user.slice/user-1000.slice{OF_OTHER}", None, id="a user's, from a container"),
        pytest.param(f"/../../../../docker/{NODE_ID}{OF_OTHER}", "docker", id="docker's container, from a pod"),
        pytest.param(f"/user.slice/docker/{NODE_ID}{OF_OTHER}", "docker", id="a user's that plays docker"),
        pytest.param(f"/system.slice/job.service{OF_OTHER}", None, id="a service that may make cgroups"),
        pytest.param(f"/pod{OTHER_UID}/{OTHER_ID}", None, id="below the reader's own container"),
        pytest.param(f"/burstable/pod{OTHER_UID}/{OTHER_ID}", None, id="with a QoS class"),
        pytest.param(f"/kubepods/pod{OTHER_UID}x/{OTHER_ID}", None, id="no UID"),
        pytest.param(f"/kubepods/pod../{OTHER_ID}", None, id="dots for a UID"),
        pytest.param(f"/kubepods-pod{OTHER_SLICE_UID}.slice:docker-evil:{OTHER_ID}", None, id="no runtime's colons"),
        pytest.param(f"/kubepods/pod{UID}/{ID}0", IN_POD_ALONE, id="an id that is too long"),
        pytest.param(f"/kubepods/pod{UID}/{ID[1:]}", IN_POD_ALONE, id="an id that is too short"),
    ],
)
def test_a_hostile_name_claims_nobody_elses_identity(path: str, place: ProcessPlace | str | None) -> None:
    read = read_cgroups(v2(path))
    if isinstance(place, str):
        assert read is not None
        assert (read.is_of_pod, read.engine, read.pod_uid) == (False, place, "")
    else:
        assert read == place


# issue 10, "Must show" 4
@given(
    below=st.lists(st.one_of(st.text(st.characters(exclude_characters="/\n")), st.sampled_from(OF_OTHER.split("/"))))
)
def test_whatever_is_below_a_container_it_is_that_container(below: list[str]) -> None:
    for container in (f"{SYSTEMD}/crio-{ID}.scope", f"/kubepods/pod{UID}/{ID}", f"/../../pod{UID}/{ID}"):
        assert read_cgroups(v2("/".join((container, *below)))) == HERE


@given(st.text(st.sampled_from("/.:-_\n0") | st.characters()))
def test_anything_can_be_read(text: str) -> None:
    assert read_cgroups(text) is None
    assert kubelet_root(text) is None


@pytest.mark.parametrize(
    ("own", "root"),
    [
        (v2(f"{SYSTEMD}/crio-{ID}.scope"), ()),
        (v1(f"/kubepods/pod{UID}/{ID}", "/"), ()),
        (v2(f"{KIND}/cri-containerd-{ID}.scope"), ("kubelet.slice",)),
        (v2(f"/k8s.slice/k8s-kubepods.slice/k8s-kubepods-pod{SLICE_UID}.slice/crio-{ID}.scope"), ("k8s.slice",)),
        (v2(f"/kubepods/pod{UID}/{ID}/kubepods/pod{OTHER_UID}/{OTHER_ID}"), ("kubepods", f"pod{UID}", ID)),
        (v1(f"/system.slice/kubepods-pod{SLICE_UID}.slice:cri-containerd:{ID}"), ("system.slice",)),
        (v2("/"), None),
        (v2("/system.slice/pod-gpu-metrics-exporter.service"), None),
        (v1(f"/kubepods/pod{UID}/{ID}", f"/docker/{NODE_ID}/kubepods/pod{UID}/{ID}"), None),
    ],
)
def test_where_the_kubelets_cgroups_begin(own: str, root: tuple[str, ...] | None) -> None:
    assert kubelet_root(own) == root


# issue 10, "Must show" 4
def test_where_the_root_is_known_pods_are_nowhere_else() -> None:
    nested = v2(f"/docker/{NODE_ID}/kubepods/pod{UID}/{ID}")
    assert read_cgroups(nested) == HERE
    assert read_cgroups(nested, ("docker", NODE_ID)) == HERE
    in_node = ProcessPlace(container_id=NODE_ID, is_of_pod=False, engine="docker")
    assert read_cgroups(nested, ()) == in_node
    # a reader whose namespace is deeper sees other pods beside it, wherever the root is
    assert read_cgroups(v2(f"/../../pod{UID}/{ID}"), ("k8s",)) == HERE
    assert read_cgroups(v2(f"/k8s/kubepods/pod{UID}/{ID}")) is None
    assert read_cgroups(v2(f"/k8s/kubepods/pod{UID}/{ID}"), ("k8s",)) == HERE
    within = ("kubepods", f"pod{OTHER_UID}", OTHER_ID)
    deeper = v2(f"/{'/'.join(within)}/kubepods/pod{UID}/{ID}")
    assert read_cgroups(deeper) == ProcessPlace(container_id=OTHER_ID, pod_uid=OTHER_UID)
    assert read_cgroups(deeper, within) == HERE
