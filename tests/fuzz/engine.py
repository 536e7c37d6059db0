"""Atheris around a target, and what each begins with."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.cuda_binaries import CUDA, program
from tests.support.device_checkpoint import alloc_resp, checkpoint, entry
from tests.support.places import DATA

EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"b","uid":"c","labels":{"d":"e"}},"spec":%b}}'
SLICE = (
    b'{"driver":"gpu.nvidia.com","pool":{"name":"p","generation":1,"resourceSliceCount":1},"devices":[{"name":"g"}]}'
)
ENDPOINTS = (
    b'{"metadata":{"name":"one"},"ports":[{"name":"metrics","port":9400}],"endpoints":[{"addresses":["10.0.0.1"],'
    b'"nodeName":"a","conditions":{"ready":true}}]}'
)
ANSWER = (
    b'[{"node_name":"a","device_uuid":"GPU-0","namespace":"ml","pod":"t","container":"main","gpu_shared":true,'
    b'"sm_active":0.5,"power_usage":null,"mig_instance_id":"3","measured":{"processes":1}}]'
)


def seeds(target: str) -> list[bytes]:
    """Real answers, small ones."""
    if target == "annotations":
        # not imported above, since Atheris does not watch what is imported before it
        its_seeds: list[bytes] = importlib.import_module("tests.fuzz.annotations").seeds()
        return its_seeds
    pages = [b"\0" + path.read_bytes()[:4000] for path in sorted((DATA / "pages").glob("*.prom"))]
    lists = [bytes([number]) + path.read_bytes() for number in (0, 1) for path in sorted(DATA.glob("kubelet*/*.pb"))]
    ids = b"GPU-a\nMIG-b::1\nnvidia0/gi7\n0/vgpu\nMIG-GPU-a/7/0\n11111111-2222-3333-4444-555555555555-_-1"
    files = [
        b'\5{"basic_auth_users":{"a":"b"},"tls_server_config":{"cert_file":"a","key_file":"b"}}',
        b'\6{"basic_auth":{"username":"a","password":"b"},"tls_config":{"ca_file":"a"}}',
        b'\7{"gpus":[{"uuid":"GPU-a","index":0,"mig":[{"uuid":"MIG-b","instance_id":3,"profile":"1g"}]}]}',
        b'\x08{"devices":[{"resource":"amd.com/gpu","id":"<index>"}],"samples":{"index":["gpu_id"]}}',
    ]
    spec = (
        b"\x09devices:\n- name: MIG-c7384736-a75d-5afc-978f-d2f1294409fd\n  containerEdits:\n    deviceNodes:\n"
        b"    - path: /dev/nvidia0\n    - path: /dev/nvidia-caps/nvidia-cap66\n\0gpu0/gi7/access 66\n"
    )
    gpu_code = [(CUDA / name).read_bytes() for name in ("speed.fatbin", "size.fatbin", "11.8-sm_35.cubin")]
    return {
        "exposition": pages,
        "device_ids": [ids],
        "decoders": [
            b"\3" + b"[" * 10_000,
            b"\4" + EVENT % SLICE.replace(b":1", b":Infinity"),
            *lists,
            b"\3" + EVENT % b"{}",
            b"\4" + EVENT % SLICE,
            *files,
            spec,
            b"\x0a" + ANSWER,
            b"\x0b" + EVENT % ENDPOINTS,
            b"\x0e"
            + checkpoint(
                entry("u", "main", "nvidia.com/gpu", ["GPU-0-1"], alloc_resp({"NVIDIA_VISIBLE_DEVICES": "0"}))
            ),
            *(b"\x0d" + binary for binary in (*gpu_code, program(gpu_code[0]))),
        ],
    }[target]


def watched(targets: Sequence[str]) -> Mapping[str, Callable[[bytes], None]]:
    """What tries an input of each target. Nothing of the program may be imported before."""
    import atheris  # noqa: PLC0415 - where it is not installed, the seeds can still be tried

    # what is already imported is not watched, and only the program itself is worth it
    with atheris.instrument_imports(include=["exporter"]):
        return {target: importlib.import_module(f"tests.fuzz.{target}").one_input for target in targets}


def fuzz(target: str, one_input: Callable[[bytes], None], corpus: Path, *options: str) -> None:
    """Run until libFuzzer's options end it, or an input is found that breaks a property; then the process ends."""
    import atheris  # noqa: PLC0415 - without it the seeds can still be tried

    for number, seed in enumerate(seeds(target)):
        (corpus / f"seed-{number}").write_bytes(seed)
    # an input that takes longer than 10 s is a finding too; pages are longer than libFuzzer would guess
    atheris.Setup([target, "-timeout=10", "-max_len=20000", *options, str(corpus)], one_input)
    atheris.Fuzz()
