"""The functions that are probed, and how cuda.bpf.c reads the arguments of each.

The names are those of the libraries' dynamic symbols. A function of the API with one default stream a thread has the
suffix _ptsz, or _ptds where it takes no stream. Which of them a library has differs by version: what is not there is
not probed.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Role = Literal["cudart", "cuda", "libc"]

# programs of cuda.bpf.c
ENTERED, RETURNED = "entered", "returned"
THREAD_ENDED = "thread_ended"
SET_ENVIRONMENT = "setenv_called"

# `enum shape` of cuda.bpf.c
_SHAPES = (
    "launch",
    "launch_ex",
    "launch_driver",
    "graph_launch",
    "allocate",
    "free",
    "copy",
    "copy_async",
    "copy_to_device",
    "copy_to_device_async",
    "copy_to_host",
    "copy_to_host_async",
    "copy_on_device",
    "copy_of_any_kind",
    "stream_sync",
    "device_sync",
    "event_record",
    "event_query",
    "event_sync",
    "event_destroy",
    "set_device",
)
_NUMBER = {shape: number for number, shape in enumerate(_SHAPES, 1)}
_PER_THREAD = 1 << 8

_CUDART = {
    "cudaLaunchKernel": "launch",
    "cudaLaunchKernelExC": "launch_ex",
    "cudaGraphLaunch": "graph_launch",
    "cudaMalloc": "allocate",
    "cudaMallocAsync": "allocate",
    "cudaMallocManaged": "allocate",
    "cudaFree": "free",
    "cudaFreeAsync": "free",
    "cudaMemcpy": "copy",
    "cudaMemcpyAsync": "copy_async",
    "cudaStreamSynchronize": "stream_sync",
    "cudaDeviceSynchronize": "device_sync",
    "cudaEventRecord": "event_record",
    "cudaEventQuery": "event_query",
    "cudaEventSynchronize": "event_sync",
    "cudaEventDestroy": "event_destroy",
    "cudaSetDevice": "set_device",
}
_CUDA = {
    "cuLaunchKernel": "launch_driver",
    "cuLaunchKernelEx": "launch_ex",
    "cuGraphLaunch": "graph_launch",
    "cuMemAlloc_v2": "allocate",
    "cuMemAllocAsync": "allocate",
    "cuMemAllocManaged": "allocate",
    "cuMemFree_v2": "free",
    "cuMemFreeAsync": "free",
    "cuMemcpyHtoD_v2": "copy_to_device",
    "cuMemcpyHtoDAsync_v2": "copy_to_device_async",
    "cuMemcpyDtoH_v2": "copy_to_host",
    "cuMemcpyDtoHAsync_v2": "copy_to_host_async",
    "cuMemcpyDtoD_v2": "copy_on_device",
    "cuMemcpyDtoDAsync_v2": "copy_on_device",
    "cuMemcpy": "copy_of_any_kind",
    "cuMemcpyAsync": "copy_of_any_kind",
    "cuStreamSynchronize": "stream_sync",
    "cuCtxSynchronize": "device_sync",
    "cuEventRecord": "event_record",
    "cuEventQuery": "event_query",
    "cuEventSynchronize": "event_sync",
    "cuEventDestroy_v2": "event_destroy",
}


def _with_variants(shapes: Mapping[str, str]) -> Mapping[str, int]:
    plain = {name: _NUMBER[shape] for name, shape in shapes.items()}
    per_thread = {
        f"{name}{suffix}": number | _PER_THREAD for name, number in plain.items() for suffix in ("_ptsz", "_ptds")
    }
    return MappingProxyType(plain | per_thread)


# By symbol, what stands in the cookie of the place.
COOKIES: Mapping[Role, Mapping[str, int]] = MappingProxyType(
    {"cudart": _with_variants(_CUDART), "cuda": _with_variants(_CUDA), "libc": MappingProxyType({"setenv": 0})}
)
WANTED: Mapping[Role, frozenset[str]] = MappingProxyType({role: frozenset(of) for role, of in COOKIES.items()})
