"""The probed functions, by dynamic symbol, and the way in which cuda.bpf.c reads each one's arguments.

If each thread has its own default stream, a function's name ends with _ptsz, or with _ptds if it takes no stream. The
versions of a library differ; a function that a library lacks is not probed.

Tests: tests/probe/test_loading.py.
"""

from collections.abc import Mapping
from typing import Literal

Role = Literal["cudart", "cuda", "libc"]

# programs of cuda.bpf.c
ENTERED = "entered"
RETURNED = "returned"
THREAD_ENDED = "thread_ended"
PROGRAM_REPLACED = "program_replaced"
SET_ENVIRONMENT = "setenv_called"

# By `enum shape` of cuda.bpf.c, in its order: the functions of the runtime and of the driver with such arguments.
_FUNCTIONS = {
    "cuda_launch": ("cudaLaunchKernel", ""),
    "cuda_launch_ex": ("cudaLaunchKernelExC", "cuLaunchKernelEx"),
    "cu_launch": ("", "cuLaunchKernel"),
    "cuda_graph_launch": ("cudaGraphLaunch", "cuGraphLaunch"),
    "cuda_allocate": (
        "cudaMalloc cudaMallocAsync cudaMallocManaged",
        "cuMemAlloc_v2 cuMemAllocAsync cuMemAllocManaged",
    ),
    "cuda_free": ("cudaFree cudaFreeAsync", "cuMemFree_v2 cuMemFreeAsync"),
    "cuda_copy": ("cudaMemcpy", ""),
    "cuda_copy_async": ("cudaMemcpyAsync", ""),
    "cu_copy_to_device": ("", "cuMemcpyHtoD_v2"),
    "cu_copy_to_device_async": ("", "cuMemcpyHtoDAsync_v2"),
    "cu_copy_to_host": ("", "cuMemcpyDtoH_v2"),
    "cu_copy_to_host_async": ("", "cuMemcpyDtoHAsync_v2"),
    "cu_copy_on_device": ("", "cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2"),
    "cu_copy": ("", "cuMemcpy cuMemcpyAsync"),
    "cuda_stream_sync": ("cudaStreamSynchronize", "cuStreamSynchronize"),
    "cuda_stream_end": ("cudaStreamEndCapture cudaStreamDestroy", "cuStreamEndCapture cuStreamDestroy_v2"),
    "cuda_device_sync": ("cudaDeviceSynchronize", "cuCtxSynchronize"),
    "cuda_event_record": ("cudaEventRecord", "cuEventRecord"),
    "cuda_event_query": ("cudaEventQuery", "cuEventQuery"),
    "cuda_event_sync": ("cudaEventSynchronize", "cuEventSynchronize"),
    "cuda_event_destroy": ("cudaEventDestroy", "cuEventDestroy_v2"),
    "cuda_set_device": ("cudaSetDevice", ""),
}
SHAPES = tuple(_FUNCTIONS)
_PER_THREAD = 1 << 8


def _cookies(library: int) -> Mapping[str, int]:
    plain = {name: number for number, names in enumerate(_FUNCTIONS.values(), 1) for name in names[library].split()}
    variants = {name + suffix: number | _PER_THREAD for name, number in plain.items() for suffix in ("_ptsz", "_ptds")}
    return plain | variants


# The cookie of each symbol's place.
COOKIES: Mapping[Role, Mapping[str, int]] = {"cudart": _cookies(0), "cuda": _cookies(1), "libc": {"setenv": 0}}
WANTED: Mapping[Role, frozenset[str]] = {role: frozenset(of) for role, of in COOKIES.items()}
