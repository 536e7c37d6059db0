/*
 * A libcudart.so.13 that needs no GPU. It does the work itself; with CALLS_DRIVER it asks libcuda.so.1, which it opens
 * at its first call, as NVIDIA's does.
 */
#define _GNU_SOURCE
#include "cuda_api.h"
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>

enum { INVALID_CONFIGURATION = 9, HOST_TO_HOST = 0, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS };

static uint64_t blocks_of(dim3 shape) { return (uint64_t)shape.x * shape.y * shape.z; }

#ifdef CALLS_DRIVER

static struct {
#define FIELD(name, arguments) int (*name) arguments;
    DRIVER_FUNCTIONS(FIELD)
} driver;
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

static void load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
#define FIND(name, arguments) driver.name = (int (*) arguments)dlsym(library, #name);
    DRIVER_FUNCTIONS(FIND)
    driver.cuInit(0);
}

#define DO(driver_call, own) (pthread_once(&loaded, load), driver.driver_call)
#else
#define DO(driver_call, own) (own)
#endif

int cudaSetDevice(int device)
{
    if (device < 0 || device >= DEVICES)
        return INVALID_DEVICE;
    return DO(cuCtxSetCurrent((void *)(uintptr_t)(device + 1)), gpu_choose(device));
}

int cudaMalloc(void **address, size_t size)
{
    return DO(cuMemAlloc_v2((CUdeviceptr *)address, size), gpu_allocate((uint64_t *)address, size));
}

int cudaMallocManaged(void **address, size_t size, unsigned int flags)
{
    if (!flags)
        return INVALID_VALUE;
    return DO(cuMemAllocManaged((CUdeviceptr *)address, size, flags), gpu_allocate((uint64_t *)address, size));
}

int cudaFree(void *address)
{
    if (!address)
        return SUCCESS;
    return DO(cuMemFree_v2((CUdeviceptr)address), gpu_free((uint64_t)address));
}

int cudaDeviceReset(void) { return DO(cuDevicePrimaryCtxReset_v2(0), gpu_reset()); }
int cudaDeviceSynchronize(void) { return DO(cuCtxSynchronize(), gpu_wait_for_device()); }
int cudaStreamCreate(stream_t *stream) { return DO(cuStreamCreate(stream, 0), gpu_create_stream(stream)); }
int cudaStreamDestroy(stream_t stream) { return DO(cuStreamDestroy_v2(stream), gpu_destroy_stream(stream)); }
int cudaEventCreate(event_t *event) { return DO(cuEventCreate(event, 0), gpu_create_event(event)); }
int cudaEventQuery(event_t event) { return DO(cuEventQuery(event), gpu_query(event)); }
int cudaEventSynchronize(event_t event) { return DO(cuEventSynchronize(event), gpu_wait_for_event(event)); }
int cudaEventDestroy(event_t event) { return DO(cuEventDestroy_v2(event), (free(event), SUCCESS)); }

#define FLAVOUR(Z, D, per_thread) \
    static int launch##Z(const void *func, dim3 grid, dim3 block, size_t shared, stream_t stream) \
    { \
        (void)shared; \
        if (gpu_refuses(blocks_of(grid), blocks_of(block))) \
            return INVALID_CONFIGURATION; \
        return DO(cuLaunchKernel##Z((void *)func, grid.x, grid.y, grid.z, block.x, block.y, block.z, \
                                    (unsigned int)shared, stream, NULL, NULL), \
                  gpu_work(stream, per_thread, (uintptr_t)func)); \
    } \
    int cudaLaunchKernel##Z(const void *func, dim3 grid, dim3 block, void **args, size_t shared, stream_t stream) \
    { \
        (void)args; \
        return launch##Z(func, grid, block, shared, stream); \
    } \
    int cudaLaunchKernelExC##Z(const cudaLaunchConfig_t *config, const void *func, void **args) \
    { \
        (void)args; \
        return launch##Z(func, config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream); \
    } \
    int cudaGraphLaunch##Z(void *graph, stream_t stream) \
    { \
        return DO(cuGraphLaunch##Z(graph, stream), gpu_work(stream, per_thread, (uintptr_t)graph)); \
    } \
    int cudaMallocAsync##Z(void **address, size_t size, stream_t stream) \
    { \
        (void)stream; \
        return DO(cuMemAllocAsync##Z((CUdeviceptr *)address, size, stream), gpu_allocate((uint64_t *)address, size)); \
    } \
    int cudaFreeAsync##Z(void *address, stream_t stream) \
    { \
        (void)stream; \
        return DO(cuMemFreeAsync##Z((CUdeviceptr)address, stream), gpu_free((uint64_t)address)); \
    } \
    int cudaMemcpy##D(void *to, const void *from, size_t size, int kind) \
    { \
        (void)to, (void)from; \
        if (kind < HOST_TO_HOST || kind > BY_ADDRESS) \
            return INVALID_VALUE; \
        if (kind == HOST_TO_DEVICE) \
            return DO(cuMemcpyHtoD_v2##D((CUdeviceptr)to, from, size), gpu_copy_now(size, per_thread)); \
        if (kind == DEVICE_TO_HOST) \
            return DO(cuMemcpyDtoH_v2##D(to, (CUdeviceptr)from, size), gpu_copy_now(size, per_thread)); \
        if (kind == DEVICE_TO_DEVICE) \
            return DO(cuMemcpyDtoD_v2##D((CUdeviceptr)to, (CUdeviceptr)from, size), gpu_copy_now(size, per_thread)); \
        return DO(cuMemcpy##D((CUdeviceptr)to, (CUdeviceptr)from, size), gpu_copy_now(size, per_thread)); \
    } \
    int cudaMemcpyAsync##Z(void *to, const void *from, size_t size, int kind, stream_t stream) \
    { \
        (void)to, (void)from, (void)stream; \
        if (kind < HOST_TO_HOST || kind > BY_ADDRESS) \
            return INVALID_VALUE; \
        if (kind == HOST_TO_DEVICE) \
            return DO(cuMemcpyHtoDAsync_v2##Z((CUdeviceptr)to, from, size, stream), gpu_copy(size)); \
        if (kind == DEVICE_TO_HOST) \
            return DO(cuMemcpyDtoHAsync_v2##Z(to, (CUdeviceptr)from, size, stream), gpu_copy(size)); \
        if (kind == DEVICE_TO_DEVICE) \
            return DO(cuMemcpyDtoDAsync_v2##Z((CUdeviceptr)to, (CUdeviceptr)from, size, stream), gpu_copy(size)); \
        return DO(cuMemcpyAsync##Z((CUdeviceptr)to, (CUdeviceptr)from, size, stream), gpu_copy(size)); \
    } \
    int cudaStreamSynchronize##Z(stream_t stream) \
    { \
        return DO(cuStreamSynchronize##Z(stream), gpu_wait_for_stream(stream, per_thread)); \
    } \
    int cudaStreamEndCapture##Z(stream_t stream, void **graph) \
    { \
        return DO(cuStreamEndCapture##Z(stream, graph), (*graph = NULL, SUCCESS)); \
    } \
    int cudaEventRecord##Z(event_t event, stream_t stream) \
    { \
        return DO(cuEventRecord##Z(event, stream), gpu_record(event, stream, per_thread)); \
    }

FLAVOUR(, , 0)
FLAVOUR(_ptsz, _ptds, 1)
