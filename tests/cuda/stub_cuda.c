/* A libcuda.so.1 that needs no GPU: the driver's functions over gpu.h. A context is its device's number plus 1. */
#include "cuda_api.h"
#include "gpu.h"

int cuInit(unsigned int flags) { return flags ? INVALID_VALUE : SUCCESS; }
int cuCtxSetCurrent(void *context) { return gpu_choose((int)(uintptr_t)context - 1); }
int cuMemAlloc_v2(CUdeviceptr *address, size_t size) { return gpu_allocate(address, size); }
int cuMemAllocManaged(CUdeviceptr *address, size_t size, unsigned int flags)
{
    return flags ? gpu_allocate(address, size) : INVALID_VALUE;
}
int cuMemFree_v2(CUdeviceptr address) { return gpu_free(address); }
int cuCtxSynchronize(void) { return gpu_wait_for_device(); }
int cuDevicePrimaryCtxReset_v2(int device) { return device < 0 ? INVALID_DEVICE : gpu_reset(); }
int cuStreamCreate(stream_t *stream, unsigned int flags)
{
    return flags > 1 ? INVALID_VALUE : gpu_create_stream(stream);
}

int cuStreamDestroy_v2(stream_t stream) { return gpu_destroy_stream(stream); }

int cuEventCreate(event_t *event, unsigned int flags) { return flags > 7 ? INVALID_VALUE : gpu_create_event(event); }
int cuEventQuery(event_t event) { return gpu_query(event); }
int cuEventSynchronize(event_t event) { return gpu_wait_for_event(event); }
int cuEventDestroy_v2(event_t event)
{
    free(event);
    return SUCCESS;
}

static int launch(void *func, uint64_t blocks, uint64_t threads, stream_t stream, int per_thread)
{
    if (gpu_refuses(blocks, threads))
        return INVALID_VALUE;
    return gpu_work(stream, per_thread, (uintptr_t)func);
}

#define FLAVOUR(Z, D, per_thread) \
    int cuLaunchKernel##Z(void *func, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, \
                          unsigned int by, unsigned int bz, unsigned int shared, stream_t stream, void **args, \
                          void **extra) \
    { \
        (void)shared, (void)args, (void)extra; \
        return launch(func, (uint64_t)gx * gy * gz, (uint64_t)bx * by * bz, stream, per_thread); \
    } \
    int cuLaunchKernelEx##Z(const CUlaunchConfig *config, void *func, void **args, void **extra) \
    { \
        (void)args, (void)extra; \
        return launch(func, (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ, \
                      (uint64_t)config->blockDimX * config->blockDimY * config->blockDimZ, \
                      config->hStream, per_thread); \
    } \
    int cuGraphLaunch##Z(void *graph, stream_t stream) { return gpu_work(stream, per_thread, (uintptr_t)graph); } \
    int cuMemAllocAsync##Z(CUdeviceptr *address, size_t size, stream_t stream) \
    { \
        (void)stream; \
        return gpu_allocate(address, size); \
    } \
    int cuMemFreeAsync##Z(CUdeviceptr address, stream_t stream) \
    { \
        (void)stream; \
        return gpu_free(address); \
    } \
    int cuMemcpy##D(CUdeviceptr to, CUdeviceptr from, size_t size) \
    { \
        return (void)to, (void)from, gpu_copy_now(size, per_thread); \
    } \
    int cuMemcpyHtoD_v2##D(CUdeviceptr to, const void *from, size_t size) \
    { \
        return (void)to, (void)from, gpu_copy_now(size, per_thread); \
    } \
    int cuMemcpyDtoH_v2##D(void *to, CUdeviceptr from, size_t size) \
    { \
        return (void)to, (void)from, gpu_copy_now(size, per_thread); \
    } \
    int cuMemcpyDtoD_v2##D(CUdeviceptr to, CUdeviceptr from, size_t size) \
    { \
        return (void)to, (void)from, gpu_copy_now(size, per_thread); \
    } \
    int cuMemcpyAsync##Z(CUdeviceptr to, CUdeviceptr from, size_t size, stream_t stream) \
    { \
        return (void)to, (void)from, (void)stream, gpu_copy(size); \
    } \
    int cuMemcpyHtoDAsync_v2##Z(CUdeviceptr to, const void *from, size_t size, stream_t stream) \
    { \
        return (void)to, (void)from, (void)stream, gpu_copy(size); \
    } \
    int cuMemcpyDtoHAsync_v2##Z(void *to, CUdeviceptr from, size_t size, stream_t stream) \
    { \
        return (void)to, (void)from, (void)stream, gpu_copy(size); \
    } \
    int cuMemcpyDtoDAsync_v2##Z(CUdeviceptr to, CUdeviceptr from, size_t size, stream_t stream) \
    { \
        return (void)to, (void)from, (void)stream, gpu_copy(size); \
    } \
    int cuStreamSynchronize##Z(stream_t stream) { return gpu_wait_for_stream(stream, per_thread); } \
    int cuStreamEndCapture##Z(stream_t stream, void **graph) \
    { \
        return (void)stream, *graph = NULL, SUCCESS; \
    } \
    int cuEventRecord##Z(event_t event, stream_t stream) { return gpu_record(event, stream, per_thread); }

FLAVOUR(, , 0)
FLAVOUR(_ptsz, _ptds, 1)
