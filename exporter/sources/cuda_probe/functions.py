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
THREAD_ENDED, PROGRAM_REPLACED = "thread_ended", "program_replaced"
SET_ENVIRONMENT = "setenv_called"

# `enum shape` of cuda.bpf.c
SHAPES = (
    "cuda_launch",
    "cuda_launch_ex",
    "cu_launch",
    "cuda_graph_launch",
    "cuda_allocate",
    "cuda_free",
    "cuda_copy",
    "cuda_copy_async",
    "cu_copy_to_device",
    "cu_copy_to_device_async",
    "cu_copy_to_host",
    "cu_copy_to_host_async",
    "cu_copy_on_device",
    "cu_copy",
    "cuda_stream_sync",
    "cuda_stream_end",
    "cuda_device_sync",
    "cuda_event_record",
    "cuda_event_query",
    "cuda_event_sync",
    "cuda_event_destroy",
    "cuda_set_device",
)
_NUMBER = {shape: number for number, shape in enumerate(SHAPES, 1)}
_PER_THREAD = 1 << 8

_CUDART = {
    "cudaLaunchKernel": "cuda_launch",
    "cudaLaunchKernelExC": "cuda_launch_ex",
    "cudaGraphLaunch": "cuda_graph_launch",
    "cudaMalloc": "cuda_allocate",
    "cudaMallocAsync": "cuda_allocate",
    "cudaMallocManaged": "cuda_allocate",
    "cudaFree": "cuda_free",
    "cudaFreeAsync": "cuda_free",
    "cudaMemcpy": "cuda_copy",
    "cudaMemcpyAsync": "cuda_copy_async",
    "cudaStreamSynchronize": "cuda_stream_sync",
    "cudaStreamEndCapture": "cuda_stream_end",
    "cudaStreamDestroy": "cuda_stream_end",
    "cudaDeviceSynchronize": "cuda_device_sync",
    "cudaEventRecord": "cuda_event_record",
    "cudaEventQuery": "cuda_event_query",
    "cudaEventSynchronize": "cuda_event_sync",
    "cudaEventDestroy": "cuda_event_destroy",
    "cudaSetDevice": "cuda_set_device",
}
_CUDA = {
    "cuLaunchKernel": "cu_launch",
    "cuLaunchKernelEx": "cuda_launch_ex",
    "cuGraphLaunch": "cuda_graph_launch",
    "cuMemAlloc_v2": "cuda_allocate",
    "cuMemAllocAsync": "cuda_allocate",
    "cuMemAllocManaged": "cuda_allocate",
    "cuMemFree_v2": "cuda_free",
    "cuMemFreeAsync": "cuda_free",
    "cuMemcpyHtoD_v2": "cu_copy_to_device",
    "cuMemcpyHtoDAsync_v2": "cu_copy_to_device_async",
    "cuMemcpyDtoH_v2": "cu_copy_to_host",
    "cuMemcpyDtoHAsync_v2": "cu_copy_to_host_async",
    "cuMemcpyDtoD_v2": "cu_copy_on_device",
    "cuMemcpyDtoDAsync_v2": "cu_copy_on_device",
    "cuMemcpy": "cu_copy",
    "cuMemcpyAsync": "cu_copy",
    "cuStreamSynchronize": "cuda_stream_sync",
    "cuStreamEndCapture": "cuda_stream_end",
    "cuStreamDestroy_v2": "cuda_stream_end",
    "cuCtxSynchronize": "cuda_device_sync",
    "cuEventRecord": "cuda_event_record",
    "cuEventQuery": "cuda_event_query",
    "cuEventSynchronize": "cuda_event_sync",
    "cuEventDestroy_v2": "cuda_event_destroy",
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
