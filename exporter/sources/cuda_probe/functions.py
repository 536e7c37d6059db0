"""The functions that are probed, and the program of cuda.bpf.c that reads the arguments of each.

The names are those of the libraries' dynamic symbols. A function for the API with one default stream a thread has the
suffix _ptsz, or _ptds where it takes no stream. All but `setenv` also have the program RETURNED at their return.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Role = Literal["cudart", "cuda", "libc"]

RETURNED = "returned"
THREAD_ENDED = "thread_ended"
SET_ENVIRONMENT = "setenv_called"

_CUDART = {
    "cudaLaunchKernel": "cuda_launch",
    "cudaLaunchKernel_ptsz": "cuda_launch_per_thread",
    "cudaLaunchKernelExC": "cuda_launch_ex",
    "cudaLaunchKernelExC_ptsz": "cuda_launch_ex_per_thread",
    "cudaGraphLaunch": "graph_launch",
    "cudaGraphLaunch_ptsz": "graph_launch_per_thread",
    "cudaMalloc": "allocate",
    "cudaMallocAsync": "allocate",
    "cudaMallocAsync_ptsz": "allocate",
    "cudaMallocManaged": "allocate",
    "cudaFree": "free_memory",
    "cudaFreeAsync": "free_memory",
    "cudaFreeAsync_ptsz": "free_memory",
    "cudaMemcpy": "cuda_copy",
    "cudaMemcpy_ptds": "cuda_copy_per_thread",
    "cudaMemcpyAsync": "cuda_copy_async",
    "cudaMemcpyAsync_ptsz": "cuda_copy_async",
    "cudaStreamSynchronize": "stream_sync",
    "cudaStreamSynchronize_ptsz": "stream_sync_per_thread",
    "cudaDeviceSynchronize": "device_sync",
    "cudaEventRecord": "event_record",
    "cudaEventRecord_ptsz": "event_record_per_thread",
    "cudaEventQuery": "event_query",
    "cudaEventSynchronize": "event_sync",
    "cudaEventDestroy": "event_destroy",
    "cudaSetDevice": "set_device",
}
_CUDA = {
    "cuLaunchKernel": "cu_launch",
    "cuLaunchKernel_ptsz": "cu_launch_per_thread",
    "cuLaunchKernelEx": "cuda_launch_ex",
    "cuLaunchKernelEx_ptsz": "cuda_launch_ex_per_thread",
    "cuGraphLaunch": "graph_launch",
    "cuGraphLaunch_ptsz": "graph_launch_per_thread",
    "cuMemAlloc_v2": "allocate",
    "cuMemAllocAsync": "allocate",
    "cuMemAllocAsync_ptsz": "allocate",
    "cuMemAllocManaged": "allocate",
    "cuMemFree_v2": "free_memory",
    "cuMemFreeAsync": "free_memory",
    "cuMemFreeAsync_ptsz": "free_memory",
    "cuMemcpyHtoD_v2": "cu_copy_to_device",
    "cuMemcpyHtoD_v2_ptds": "cu_copy_to_device_per_thread",
    "cuMemcpyHtoDAsync_v2": "cu_copy_to_device_async",
    "cuMemcpyHtoDAsync_v2_ptsz": "cu_copy_to_device_async",
    "cuMemcpyDtoH_v2": "cu_copy_to_host",
    "cuMemcpyDtoH_v2_ptds": "cu_copy_to_host_per_thread",
    "cuMemcpyDtoHAsync_v2": "cu_copy_to_host_async",
    "cuMemcpyDtoHAsync_v2_ptsz": "cu_copy_to_host_async",
    "cuMemcpyDtoD_v2": "cu_copy_on_device",
    "cuMemcpyDtoD_v2_ptds": "cu_copy_on_device",
    "cuMemcpyDtoDAsync_v2": "cu_copy_on_device",
    "cuMemcpyDtoDAsync_v2_ptsz": "cu_copy_on_device",
    "cuMemcpy": "cu_copy",
    "cuMemcpy_ptds": "cu_copy",
    "cuMemcpyAsync": "cu_copy",
    "cuMemcpyAsync_ptsz": "cu_copy",
    "cuStreamSynchronize": "stream_sync",
    "cuStreamSynchronize_ptsz": "stream_sync_per_thread",
    "cuCtxSynchronize": "device_sync",
    "cuEventRecord": "event_record",
    "cuEventRecord_ptsz": "event_record_per_thread",
    "cuEventQuery": "event_query",
    "cuEventSynchronize": "event_sync",
    "cuEventDestroy_v2": "event_destroy",
}

ENTRY: Mapping[Role, Mapping[str, str]] = MappingProxyType(
    {"cudart": _CUDART, "cuda": _CUDA, "libc": {"setenv": SET_ENVIRONMENT}}
)
WANTED: Mapping[Role, frozenset[str]] = MappingProxyType({role: frozenset(of) for role, of in ENTRY.items()})
