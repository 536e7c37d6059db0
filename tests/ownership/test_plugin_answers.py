"""What device plugins gave containers, by their answers to Allocate: each plugin's answer as its source makes it."""

from dataclasses import replace

import pytest
from hypothesis import given as having
from hypothesis import strategies as st

from exporter.model.device_ref import DeviceRef
from exporter.model.grants import Grant
from exporter.ownership.plugin_answers import (
    ASCEND_DEVICES,
    ENVS,
    GPUSHARE_INDEX,
    NVIDIA_DEVICES,
    PluginAnswer,
    as_given_by,
    matters,
    needed_of,
    read_answer,
)

X, Y = "GPU-9567a9e7-341e-bb7e-fcf5-788d8caa50f9", "GPU-40f717b2-d09e-4a1f-b8e7-0f5ef53b8a9f"
MIG = "MIG-7d4b5a1c-3e3e-5e0f-8a3b-3f5d2c1b0a99"
MOUNTS = "/var/run/nvidia-container-devices"
HAMI_MOUNTS = ("/usr/local/vgpu/libvgpu.so", "/usr/local/vgpu", "/etc/ld.so.preload")


def gpu(uuid: str, of: str = NVIDIA_DEVICES) -> DeviceRef:
    return DeviceRef(form=of, uuid=uuid)


def part(memory: float | None = None, cores: float | None = None) -> Grant:
    return Grant(allocator="it", memory_mib=memory, cores_percent=cores)


ONE_OF_HAMI = {NVIDIA_DEVICES: X, "CUDA_DEVICE_MEMORY_LIMIT_0": "10240m", "CUDA_DEVICE_SM_LIMIT": "45"}
TWO_OF_HAMI = {**ONE_OF_HAMI, NVIDIA_DEVICES: f"{X},{Y}", "CUDA_DEVICE_MEMORY_LIMIT_1": "2048m"}
GPUSHARE = {
    NVIDIA_DEVICES: X,
    "ALIYUN_COM_GPU_MEM_IDX": "0",
    "ALIYUN_COM_GPU_MEM_POD": "8",
    "ALIYUN_COM_GPU_MEM_CONTAINER": "8",
    "ALIYUN_COM_GPU_MEM_DEV": "15",
}
# by the plugins' sources, which plugin_answers.py names
ANSWERS = {
    "HAMi": (PluginAnswer(envs=ONE_OF_HAMI, mounts=HAMI_MOUNTS), [gpu(X)], [part(10240, 45)]),
    "HAMi, two GPUs": (PluginAnswer(envs=TWO_OF_HAMI), [gpu(X), gpu(Y)], [part(10240, 45), part(2048, 45)]),
    "HAMi, without a limit of cores": (
        PluginAnswer(envs={**ONE_OF_HAMI, "CUDA_DEVICE_SM_LIMIT": "0"}),
        [gpu(X)],
        [part(10240)],
    ),
    "HAMi, two shares of one GPU": (
        PluginAnswer(envs={**TWO_OF_HAMI, NVIDIA_DEVICES: X}),
        [gpu(X), gpu(X)],
        [part(10240, 45), part(2048, 45)],
    ),
    "HAMi, three shares of two GPUs": (
        PluginAnswer(envs={**TWO_OF_HAMI, "CUDA_DEVICE_MEMORY_LIMIT_2": "1m"}),
        [gpu(X), gpu(Y)],
        [],
    ),
    "HAMi in its mode mig": (PluginAnswer(envs={NVIDIA_DEVICES: MIG}), [DeviceRef(form=NVIDIA_DEVICES, mig=MIG)], []),
    "an old driver's MIG": (
        PluginAnswer(envs={NVIDIA_DEVICES: f"MIG-{X}/3/0"}),
        [DeviceRef(form=NVIDIA_DEVICES, uuid=X, instance="3")],
        [],
    ),
    "indices": (
        PluginAnswer(envs={NVIDIA_DEVICES: "2,0"}),
        [DeviceRef(form=NVIDIA_DEVICES, index="2"), DeviceRef(form=NVIDIA_DEVICES, index="0")],
        [],
    ),
    "HAMi, cdi-cri": (
        PluginAnswer(
            envs={name: text for name, text in ONE_OF_HAMI.items() if name != NVIDIA_DEVICES},
            cdi_devices=[f"k8s.device-plugin.nvidia.com/gpu={X}", "k8s.device-plugin.nvidia.com/imex-channel=0"],
        ),
        [gpu(X, "a CDI device")],
        [part(10240, 45)],
    ),
    "HAMi, cdi-annotations": (
        PluginAnswer(
            annotations={
                "cdi.k8s.io/nvidia-device-plugin_0af3": f"k8s.device-plugin.nvidia.com/gpu={X},nvidia.com/gpu={Y}",
                "other": "nvidia.com/gpu=7",
            }
        ),
        [gpu(X, "a CDI device"), gpu(Y, "a CDI device")],
        [],
    ),
    "HAMi, volume-mounts": (
        PluginAnswer(envs={NVIDIA_DEVICES: MOUNTS}, mounts=[f"{MOUNTS}/{X}", f"{MOUNTS}/imex/0", *HAMI_MOUNTS]),
        [gpu(X, "a mount")],
        [],
    ),
    "device nodes alone": (
        PluginAnswer(nodes=["/dev/nvidiactl", "/run/nvidia/driver/dev/nvidia3", "/dev/nvidia-uvm"]),
        [DeviceRef(form="a device node", minor="3")],
        [],
    ),
    "device nodes of a MIG instance": (PluginAnswer(nodes=["/dev/nvidia3", "/dev/nvidia-caps/nvidia-cap30"]), None, []),
    "Volcano": (PluginAnswer(envs=TWO_OF_HAMI), [gpu(X), gpu(Y)], [part(10240, 45), part(2048, 45)]),
    "Volcano's vgpu-memory": (PluginAnswer(), None, []),
    "Volcano's own": (
        PluginAnswer(envs={NVIDIA_DEVICES: "1", "VOLCANO_GPU_ALLOCATED": "100", "VOLCANO_GPU_TOTAL": "15109"}),
        [DeviceRef(form=NVIDIA_DEVICES, index="1")],
        [],
    ),
    "gpushare in GiB": (PluginAnswer(envs=GPUSHARE), [gpu(X)], [part(8192)]),
    "gpushare in MiB": (
        PluginAnswer(envs={**GPUSHARE, "ALIYUN_COM_GPU_MEM_CONTAINER": "8192", "ALIYUN_COM_GPU_MEM_DEV": "15109"}),
        [gpu(X)],
        [part(8192)],
    ),
    "gpushare that found no pod": (
        PluginAnswer(envs={**GPUSHARE, NVIDIA_DEVICES: "no-gpu-has-8GiB-to-run", "ALIYUN_COM_GPU_MEM_IDX": "-1"}),
        None,
        [],
    ),
    "gpushare by the index": (
        PluginAnswer(envs={name: text for name, text in GPUSHARE.items() if name != NVIDIA_DEVICES}),
        [DeviceRef(form="ALIYUN_COM_GPU_MEM_IDX", index="0")],
        [part(8192)],
    ),
    "Ascend": (
        PluginAnswer(envs={"ASCEND_VISIBLE_DEVICES": "3,7", "ASCEND_RUNTIME_OPTIONS": ""}),
        [DeviceRef(form="ASCEND_VISIBLE_DEVICES", index=index) for index in "37"],
        [],
    ),
    "Ascend's virtual devices": (
        PluginAnswer(envs={"ASCEND_VISIBLE_DEVICES": "100", "ASCEND_RUNTIME_OPTIONS": "VIRTUAL"}),
        None,
        [],
    ),
    "Ascend without its own runtime": (
        PluginAnswer(nodes=["/dev/davinci3", "/dev/davinci_manager", "/dev/vdavinci100"]),
        [DeviceRef(form="a device node", index="3")],
        [],
    ),
    "Intel with GPU Aware Scheduling": (
        PluginAnswer(nodes=["/dev/dri/card1", "/dev/dri/renderD129"]),
        [DeviceRef(form="a device node", device="card1")],
        [],
    ),
    "all GPUs": (PluginAnswer(envs={NVIDIA_DEVICES: "all"}), None, []),
    "one that cannot be read": (PluginAnswer(envs={NVIDIA_DEVICES: f"{X},gpu-of-tomorrow"}), None, []),
    "a MIG instance among CDI devices": (
        PluginAnswer(cdi_devices=[f"nvidia.com/mig={MIG}"]),
        [DeviceRef(form="a CDI device", mig=MIG)],
        [],
    ),
    "a CDI device that cannot be read": (PluginAnswer(cdi_devices=[f"x/gpu={X}", "x/gpu=all"]), None, []),
    "a mount that cannot be read": (PluginAnswer(mounts=[f"{MOUNTS}/{X}", f"{MOUNTS}/all"]), None, []),
    "spaces between names": (PluginAnswer(envs={NVIDIA_DEVICES: f" {X} , {Y}"}), [gpu(X), gpu(Y)], []),
    "a limit of cores alone": (
        PluginAnswer(envs={NVIDIA_DEVICES: f"{X},{Y}", "CUDA_DEVICE_SM_LIMIT": "30"}),
        [gpu(X), gpu(Y)],
        [part(None, 30), part(None, 30)],
    ),
    "one limit of memory for all": (
        PluginAnswer(envs={NVIDIA_DEVICES: f"{X},{Y}", "CUDA_DEVICE_MEMORY_LIMIT": "5m"}),
        [gpu(X), gpu(Y)],
        [part(5), part(5)],
    ),
    "a limit of each device before that of all": (
        PluginAnswer(envs={**TWO_OF_HAMI, "CUDA_DEVICE_MEMORY_LIMIT": "5m"}),
        [gpu(X), gpu(Y)],
        [part(10240, 45), part(2048, 45)],
    ),
    "a limit of 0 is none": (
        PluginAnswer(envs={**TWO_OF_HAMI, "CUDA_DEVICE_MEMORY_LIMIT_1": "0m"}),
        [gpu(X), gpu(Y)],
        [part(10240, 45), part(None, 45)],
    ),
    "limits of 0 alone": (
        PluginAnswer(envs={NVIDIA_DEVICES: X, "CUDA_DEVICE_MEMORY_LIMIT_0": "0m", "CUDA_DEVICE_SM_LIMIT": "x"}),
        [gpu(X)],
        [],
    ),
    "the least GPU that gpushare counts in MiB": (
        PluginAnswer(envs={**GPUSHARE, "ALIYUN_COM_GPU_MEM_DEV": "1024"}),
        [gpu(X)],
        [part(8)],
    ),
    "the largest GPU that gpushare counts in GiB": (
        PluginAnswer(envs={**GPUSHARE, "ALIYUN_COM_GPU_MEM_DEV": "1023"}),
        [gpu(X)],
        [part(8192)],
    ),
    "gpushare's memory of two GPUs": (
        PluginAnswer(envs={**GPUSHARE, NVIDIA_DEVICES: f"{X},{Y}"}),
        [gpu(X), gpu(Y)],
        [],
    ),
    "gpushare without the part of the container": (
        PluginAnswer(envs={**GPUSHARE, "ALIYUN_COM_GPU_MEM_CONTAINER": "0"}),
        [gpu(X)],
        [],
    ),
    "gpushare without the size of the GPU": (
        PluginAnswer(envs={**GPUSHARE, "ALIYUN_COM_GPU_MEM_DEV": ""}),
        [gpu(X)],
        [],
    ),
    "too many": (PluginAnswer(envs={NVIDIA_DEVICES: ",".join(map(str, range(1000)))}), None, []),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_a_plugin_gave(name: str) -> None:
    answer, refs, grants = ANSWERS[name]
    given = read_answer(answer, "it", "here")
    if refs is None:
        assert given is None
        return
    assert given is not None
    assert (given.source, list(given.refs), list(given.grants)) == ("here", refs, grants)
    assert given.is_whole


FIELDS = [
    PluginAnswer(envs={NVIDIA_DEVICES: X, ASCEND_DEVICES: "3"}),
    PluginAnswer(envs={ASCEND_DEVICES: "3"}),
    PluginAnswer(cdi_devices=[f"nvidia.com/gpu={X}"]),
    PluginAnswer(annotations={"cdi.k8s.io/x": f"nvidia.com/gpu={Y}"}),
    PluginAnswer(mounts=[f"{MOUNTS}/{X}"]),
    PluginAnswer(envs={GPUSHARE_INDEX: "5"}),
    PluginAnswer(nodes=["/dev/nvidia4"]),
]


@pytest.mark.parametrize("better", range(len(FIELDS) - 1))
def test_the_first_field_that_names_devices_counts(better: int) -> None:
    one, other = FIELDS[better : better + 2]
    both = PluginAnswer(
        envs={**other.envs, **one.envs},
        annotations={**other.annotations, **one.annotations},
        cdi_devices=(*one.cdi_devices, *other.cdi_devices),
        mounts=(*one.mounts, *other.mounts),
        nodes=(*one.nodes, *other.nodes),
    )
    assert read_answer(both, "it", "here") == read_answer(one, "it", "here") != read_answer(other, "it", "here")


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_kept_of_an_answer_says_the_same(name: str) -> None:
    answer, _, _ = ANSWERS[name]
    assert read_answer(needed_of(answer), "it", "here") == read_answer(answer, "it", "here")


def test_what_tells_no_device_is_not_kept() -> None:
    names = {"cdi.k8s.io/a": "nvidia.com/gpu=0"}
    nodes = ["/dev/nvidia3", "/dev/nvidia-caps/nvidia-cap30", "/dev/dri/card1"]
    answer = PluginAnswer(
        envs={**ONE_OF_HAMI, "TOKEN": "secret"},
        annotations={**names, "example.com/key": "secret"},
        cdi_devices=["nvidia.com/gpu=0"],
        mounts=[f"{MOUNTS}/{X}", *HAMI_MOUNTS],
        nodes=["/dev/fuse", *nodes, "/dev/nvidiactl"],
    )
    assert needed_of(answer) == PluginAnswer(
        envs=ONE_OF_HAMI,
        annotations=names,
        cdi_devices=["nvidia.com/gpu=0"],
        mounts=[f"{MOUNTS}/{X}"],
        nodes=nodes,
    )


@pytest.mark.parametrize("of", ["envs", "nodes"])
@pytest.mark.parametrize(("devices", "is_read"), [(256, True), (257, False)])
def test_an_answer_with_more_devices_than_a_node_has_says_nothing(of: str, devices: int, *, is_read: bool) -> None:
    numbers = [str(number) for number in range(devices)]
    by_nodes = PluginAnswer(nodes=[f"/dev/nvidia{number}" for number in numbers])
    answer = by_nodes if of == "nodes" else PluginAnswer(envs={NVIDIA_DEVICES: ",".join(numbers)})
    given = read_answer(answer, "it", "here")
    assert (len(given.refs) if given else 0) == (devices if is_read else 0)


def test_no_more_limits_are_read_than_a_node_has_devices() -> None:
    limits = {f"CUDA_DEVICE_MEMORY_LIMIT_{number}": "1m" for number in range(300)}
    given = read_answer(PluginAnswer(envs={NVIDIA_DEVICES: X, **limits}), "it", "here")
    assert given is not None
    assert [*given.grants] == [part(1)] * 256


@pytest.mark.parametrize(
    ("limit", "mib"),
    [
        ("10240m", 10240),
        ("2G", 2048),
        ("512M", 512),
        ("1048576k", 1024),
        ("1073741824", 1024),
        ("much", None),
        ("", None),
    ],
)
def test_limits_of_memory_have_units(limit: str, mib: float | None) -> None:
    given = read_answer(PluginAnswer(envs={NVIDIA_DEVICES: X, "CUDA_DEVICE_MEMORY_LIMIT": limit}), "it", "here")
    assert given is not None
    assert [grant.memory_mib for grant in given.grants] == ([mib] if mib else [])


def test_grants_name_the_allocator_whose_token_the_id_is() -> None:
    given = read_answer(PluginAnswer(envs=ONE_OF_HAMI), "", "here")
    assert given is not None
    assert as_given_by(given, "Volcano", is_share=False).refs == (gpu(X),)
    by_volcano = as_given_by(given, "Volcano", is_share=True)
    assert [grant.allocator for grant in by_volcano.grants] == ["Volcano"]
    assert by_volcano.refs == (replace(gpu(X), shared=True),)


@having(
    st.dictionaries(st.sampled_from(sorted(ENVS)) | st.text(max_size=8), st.text(max_size=60), max_size=6),
    st.lists(st.text(max_size=60), max_size=4),
)
def test_whatever_an_answer_says_it_is_read_or_not(envs: dict[str, str], paths: list[str]) -> None:
    given = read_answer(PluginAnswer(envs=envs, cdi_devices=paths, mounts=paths, nodes=paths), "it", "here")
    assert given is None or (given.refs and len(given.grants) in (0, len(given.refs)))


def test_only_variables_that_tell_devices_matter() -> None:
    assert all(map(matters, [*ENVS, "CUDA_DEVICE_MEMORY_LIMIT_7"]))
    assert not any(map(matters, ["PATH", "AWS_SECRET_ACCESS_KEY", "CUDA_DEVICE_MEMORY_SHARED_CACHE", ""]))
