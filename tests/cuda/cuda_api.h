/* The functions of CUDA that the stubs have, with the types and layouts of CUDA 13's own headers. */
#ifndef CUDA_API_H
#define CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct { unsigned int x, y, z; } dim3;
typedef void *stream_t;
typedef void *event_t;
typedef uint64_t CUdeviceptr;

typedef struct {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    stream_t stream;
    void *attrs;
    unsigned int numAttrs;
} cudaLaunchConfig_t;

typedef struct {
    unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    stream_t hStream;
    void *attrs;
    unsigned int numAttrs;
} CUlaunchConfig;

/* F(result name, arguments): of the runtime, those that come in a second flavour with _ptsz or _ptds last. */
#define RUNTIME_FUNCTIONS(F) \
    F(cudaSetDevice, (int device)) \
    F(cudaMalloc, (void **address, size_t size)) \
    F(cudaMallocManaged, (void **address, size_t size, unsigned int flags)) \
    F(cudaFree, (void *address)) \
    F(cudaDeviceSynchronize, (void)) \
    F(cudaDeviceReset, (void)) \
    F(cudaStreamCreate, (stream_t *stream)) \
    F(cudaStreamDestroy, (stream_t stream)) \
    F(cudaEventCreate, (event_t *event)) \
    F(cudaEventQuery, (event_t event)) \
    F(cudaEventSynchronize, (event_t event)) \
    F(cudaEventDestroy, (event_t event)) \
    RUNTIME_PER_THREAD(F, , )  \
    RUNTIME_PER_THREAD(F, _ptsz, _ptds)

#define RUNTIME_PER_THREAD(F, Z, D) \
    F(cudaLaunchKernel##Z, (const void *func, dim3 grid, dim3 block, void **args, size_t shared, stream_t stream)) \
    F(cudaLaunchKernelExC##Z, (const cudaLaunchConfig_t *config, const void *func, void **args)) \
    F(cudaGraphLaunch##Z, (void *graph, stream_t stream)) \
    F(cudaMallocAsync##Z, (void **address, size_t size, stream_t stream)) \
    F(cudaFreeAsync##Z, (void *address, stream_t stream)) \
    F(cudaMemcpy##D, (void *to, const void *from, size_t size, int kind)) \
    F(cudaMemcpyAsync##Z, (void *to, const void *from, size_t size, int kind, stream_t stream)) \
    F(cudaStreamSynchronize##Z, (stream_t stream)) \
    F(cudaStreamEndCapture##Z, (stream_t stream, void **graph)) \
    F(cudaEventRecord##Z, (event_t event, stream_t stream))

#define DRIVER_FUNCTIONS(F) \
    F(cuInit, (unsigned int flags)) \
    F(cuCtxSetCurrent, (void *context)) \
    F(cuMemAlloc_v2, (CUdeviceptr *address, size_t size)) \
    F(cuMemAllocManaged, (CUdeviceptr *address, size_t size, unsigned int flags)) \
    F(cuMemFree_v2, (CUdeviceptr address)) \
    F(cuCtxSynchronize, (void)) \
    F(cuDevicePrimaryCtxReset_v2, (int device)) \
    F(cuStreamCreate, (stream_t *stream, unsigned int flags)) \
    F(cuStreamDestroy_v2, (stream_t stream)) \
    F(cuEventCreate, (event_t *event, unsigned int flags)) \
    F(cuEventQuery, (event_t event)) \
    F(cuEventSynchronize, (event_t event)) \
    F(cuEventDestroy_v2, (event_t event)) \
    DRIVER_PER_THREAD(F, , ) \
    DRIVER_PER_THREAD(F, _ptsz, _ptds)

#define DRIVER_PER_THREAD(F, Z, D) \
    F(cuLaunchKernel##Z, (void *func, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, \
                          unsigned int by, unsigned int bz, unsigned int shared, stream_t stream, void **args, \
                          void **extra)) \
    F(cuLaunchKernelEx##Z, (const CUlaunchConfig *config, void *func, void **args, void **extra)) \
    F(cuGraphLaunch##Z, (void *graph, stream_t stream)) \
    F(cuMemAllocAsync##Z, (CUdeviceptr *address, size_t size, stream_t stream)) \
    F(cuMemFreeAsync##Z, (CUdeviceptr address, stream_t stream)) \
    F(cuMemcpy##D, (CUdeviceptr to, CUdeviceptr from, size_t size)) \
    F(cuMemcpyHtoD_v2##D, (CUdeviceptr to, const void *from, size_t size)) \
    F(cuMemcpyDtoH_v2##D, (void *to, CUdeviceptr from, size_t size)) \
    F(cuMemcpyDtoD_v2##D, (CUdeviceptr to, CUdeviceptr from, size_t size)) \
    F(cuMemcpyAsync##Z, (CUdeviceptr to, CUdeviceptr from, size_t size, stream_t stream)) \
    F(cuMemcpyHtoDAsync_v2##Z, (CUdeviceptr to, const void *from, size_t size, stream_t stream)) \
    F(cuMemcpyDtoHAsync_v2##Z, (void *to, CUdeviceptr from, size_t size, stream_t stream)) \
    F(cuMemcpyDtoDAsync_v2##Z, (CUdeviceptr to, CUdeviceptr from, size_t size, stream_t stream)) \
    F(cuStreamSynchronize##Z, (stream_t stream)) \
    F(cuStreamEndCapture##Z, (stream_t stream, void **graph)) \
    F(cuEventRecord##Z, (event_t event, stream_t stream))

#define DECLARE(name, arguments) int name arguments;
RUNTIME_FUNCTIONS(DECLARE)
DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE

#endif
