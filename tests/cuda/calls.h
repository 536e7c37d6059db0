/* The calls that program.c can make, by the runtime or by the driver; each writes into the truth what it did. */
#ifndef CALLS_H
#define CALLS_H

#include "cuda_api.h"
#include "truth.h"

#include <dlfcn.h>
#include <string.h>

#define NOT_READY 600 // what a query returns, and no error
#define SLOTS 4096
#define STREAMS 64
#define WORKERS 64

static struct {
#define FIELD(name, arguments) int (*name) arguments;
    RUNTIME_FUNCTIONS(FIELD)
} runtime;
static struct {
    DRIVER_FUNCTIONS(FIELD)
} driver;

#ifdef LINKED
#define OF_RUNTIME(name, arguments) runtime.name = name;
#define OF_DRIVER(name, arguments) driver.name = name;
#else
#define LINKED 3
#define OF_RUNTIME(name, arguments) runtime.name = cudart ? (int (*) arguments)dlsym(cudart, #name) : NULL;
#define OF_DRIVER(name, arguments) driver.name = cuda ? (int (*) arguments)dlsym(cuda, #name) : NULL;
#define OPENS
#endif

static void find_functions(void)
{
#ifdef OPENS
    void *cudart = dlopen("libcudart.so.13", RTLD_NOW), *cuda = dlopen("libcuda.so.1", RTLD_NOW);
#endif
#if LINKED & 1
    RUNTIME_FUNCTIONS(OF_RUNTIME)
#endif
#if LINKED & 2
    DRIVER_FUNCTIONS(OF_DRIVER)
#endif
}

struct stream_state {
    stream_t handle;
    int device;
    uint64_t begin, launches;
};

struct event_state {
    event_t handle;
    struct stream_state *stream;
    uint64_t launches;
};

struct worker {
    const char *script;
    int device, per_thread, by_driver, number;
};

static struct { void *address; uint64_t size; int device; } memory[SLOTS];
static struct stream_state streams[STREAMS], legacy_stream[DEVICES], thread_streams[WORKERS][DEVICES];
static struct event_state events[STREAMS];

/* Calls of the api and the flavour that the worker has chosen. */
#define CALL(own, runtime_call, driver_call) ((own)->by_driver ? driver.driver_call : runtime.runtime_call)
#define EITHER(own, r, rz, rargs, d, dz, dargs) \
    ((own)->by_driver ? ((own)->per_thread ? driver.d##dz dargs : driver.d dargs) \
                      : ((own)->per_thread ? runtime.r##rz rargs : runtime.r rargs))

static struct stream_state *stream_of_default(struct worker *own)
{
    struct stream_state *found = own->per_thread ? &thread_streams[own->number][own->device] : &legacy_stream[own->device];
    found->device = own->device;
    return found;
}

static struct stream_state *stream_of(struct worker *own, int number)
{
    struct stream_state *found;
    if (!number)
        return stream_of_default(own);
    found = &streams[number % STREAMS];
    pthread_mutex_lock(&lock);
    if (!found->handle) {
        if (CALL(own, cudaStreamCreate(&found->handle), cuStreamCreate(&found->handle, 0)))
            abort();
        found->device = own->device;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static uint64_t launches_of(struct stream_state *stream)
{
    pthread_mutex_lock(&lock);
    uint64_t launches = stream->launches;
    pthread_mutex_unlock(&lock);
    return launches;
}

/* Under the lock: the stream has no work any more, unless another thread has launched some since `launched`. */
static void end_span(struct stream_state *stream, uint64_t launched)
{
    struct truth *of = &truths[stream->device];
    if (stream->launches != launched)
        return;
    if (stream->begin && of->span_count < SPANS) {
        of->spans[of->span_count].begin = stream->begin;
        of->spans[of->span_count++].end = now_ns();
    }
    stream->begin = 0;
}

static void note_error(struct worker *own, int result)
{
    if (result && result != NOT_READY)
        truths[own->device].errors[result % CODES]++;
}

static void note_work(struct worker *own, struct stream_state *stream, int result, uint64_t threads, uint64_t before)
{
    pthread_mutex_lock(&lock);
    if (threads) {
        truths[own->device].launches++;
        truths[own->device].threads += result ? 0 : threads;
    } else {
        truths[own->device].graph_launches++;
    }
    note_error(own, result);
    if (!result) {
        stream->launches++;
        if (!stream->begin)
            stream->begin = before;
    }
    pthread_mutex_unlock(&lock);
}

static void launch(struct worker *own, const char *arguments, int with_config)
{
    int number;
    dim3 grid, block;
    long takes;
    sscanf(arguments, "%d %u %u %u %u %u %u %ld", &number, &grid.x, &grid.y, &grid.z, &block.x, &block.y, &block.z,
           &takes);
    struct stream_state *stream = stream_of(own, number);
    uint64_t threads = (uint64_t)grid.x * grid.y * grid.z * block.x * block.y * block.z, before = now_ns();
    int result;
    if (with_config) {
        cudaLaunchConfig_t config = {.gridDim = grid, .blockDim = block, .stream = stream->handle};
        CUlaunchConfig of_driver = {grid.x, grid.y, grid.z, block.x, block.y, block.z, 0, stream->handle, NULL, 0};
        result = EITHER(own, cudaLaunchKernelExC, _ptsz, (&config, (void *)takes, NULL), cuLaunchKernelEx, _ptsz,
                        (&of_driver, (void *)takes, NULL, NULL));
    } else {
        result = EITHER(own, cudaLaunchKernel, _ptsz, ((void *)takes, grid, block, NULL, 16, stream->handle),
                        cuLaunchKernel, _ptsz, ((void *)takes, grid.x, grid.y, grid.z, block.x, block.y, block.z, 16,
                                                stream->handle, NULL, NULL));
    }
    note_work(own, stream, result, threads ? threads : 1, before);
}

static void launch_graph(struct worker *own, int number, long takes)
{
    struct stream_state *stream = stream_of(own, number);
    uint64_t before = now_ns();
    int result = EITHER(own, cudaGraphLaunch, _ptsz, ((void *)takes, stream->handle), cuGraphLaunch, _ptsz,
                        ((void *)takes, stream->handle));
    note_work(own, stream, result, 0, before);
}

static void allocate(struct worker *own, const char *kind, int slot, uint64_t size, int number)
{
    struct truth *of = &truths[own->device];
    void *address = NULL, **to = &address;
    stream_t stream = number >= 0 ? stream_of(own, number)->handle : NULL;
    int result;
    if (!strcmp(kind, "malloc"))
        result = CALL(own, cudaMalloc(to, size), cuMemAlloc_v2((CUdeviceptr *)to, size));
    else if (!strcmp(kind, "managed"))
        result = CALL(own, cudaMallocManaged(to, size, 1), cuMemAllocManaged((CUdeviceptr *)to, size, 1));
    else
        result = EITHER(own, cudaMallocAsync, _ptsz, (to, size, stream), cuMemAllocAsync, _ptsz,
                        ((CUdeviceptr *)to, size, stream));
    pthread_mutex_lock(&lock);
    if (result) {
        of->failed_allocations++;
    } else {
        of->allocations++;
        of->memory_bytes += size;
        if (of->memory_bytes > of->peak_bytes)
            of->peak_bytes = of->memory_bytes;
        memory[slot].address = address;
        memory[slot].size = size;
        memory[slot].device = own->device;
    }
    note_error(own, result);
    pthread_mutex_unlock(&lock);
}

static void release(struct worker *own, int slot, int number)
{
    void *address = memory[slot].address;
    int result;
    if (number >= 0) {
        stream_t stream = stream_of(own, number)->handle;
        result = EITHER(own, cudaFreeAsync, _ptsz, (address, stream), cuMemFreeAsync, _ptsz,
                        ((CUdeviceptr)address, stream));
    } else {
        result = CALL(own, cudaFree(address), cuMemFree_v2((CUdeviceptr)address));
    }
    pthread_mutex_lock(&lock);
    if (!result && address) {
        struct truth *of = &truths[memory[slot].device];
        of->frees++;
        of->memory_bytes -= memory[slot].size;
        of->freed_bytes += memory[slot].size;
        memory[slot].address = NULL;
    }
    note_error(own, result);
    pthread_mutex_unlock(&lock);
}

static int copy_by_driver(struct worker *own, int kind, uint64_t size, int async, stream_t stream)
{
    int z = own->per_thread;
#define COPY(name) \
    (async ? (z ? driver.name##Async_ptsz : driver.name##Async)(0, 0, size, stream) \
           : (z ? driver.name##_ptds : driver.name)(0, 0, size))
#define COPY2(name) \
    (async ? (z ? driver.name##Async_v2_ptsz : driver.name##Async_v2)(0, 0, size, stream) \
           : (z ? driver.name##_v2_ptds : driver.name##_v2)(0, 0, size))
    switch (kind) {
    case 1: return COPY2(cuMemcpyHtoD);
    case 2: return COPY2(cuMemcpyDtoH);
    case 3: return COPY2(cuMemcpyDtoD);
    default: return COPY(cuMemcpy);
    }
}

static void copy(struct worker *own, int kind, uint64_t size, int number)
{
    stream_t stream = number >= 0 ? stream_of(own, number)->handle : NULL;
    struct stream_state *default_stream = stream_of_default(own);
    uint64_t launched = launches_of(default_stream);
    int result;
    if (own->by_driver)
        result = copy_by_driver(own, kind, size, number >= 0, stream);
    else if (number >= 0)
        result = (own->per_thread ? runtime.cudaMemcpyAsync_ptsz : runtime.cudaMemcpyAsync)(NULL, NULL, size, kind,
                                                                                            stream);
    else
        result = (own->per_thread ? runtime.cudaMemcpy_ptds : runtime.cudaMemcpy)(NULL, NULL, size, kind);
    pthread_mutex_lock(&lock);
    truths[own->device].copies[kind]++;
    if (!result) {
        truths[own->device].copied_bytes[kind] += size;
        if (number < 0 && (kind == 1 || kind == 2)) // it waits for the default stream
            end_span(default_stream, launched);
    }
    note_error(own, result);
    pthread_mutex_unlock(&lock);
}

static void note_sync(struct worker *own, uint64_t before, int result)
{
    truths[own->device].syncs++;
    truths[own->device].sync_ns += now_ns() - before;
    note_error(own, result);
}

static void synchronise(struct worker *own, int number)
{
    struct stream_state *stream = stream_of(own, number);
    uint64_t launched = launches_of(stream), before = now_ns();
    int result = EITHER(own, cudaStreamSynchronize, _ptsz, (stream->handle), cuStreamSynchronize, _ptsz,
                        (stream->handle));
    pthread_mutex_lock(&lock);
    note_sync(own, before, result);
    end_span(stream, launched);
    pthread_mutex_unlock(&lock);
}

/* What was launched on the stream was captured, or nobody waits for it. */
static void end_stream(struct worker *own, int number, int destroys)
{
    struct stream_state *stream = stream_of(own, number);
    void *graph;
    int result;
    if (destroys)
        result = CALL(own, cudaStreamDestroy(stream->handle), cuStreamDestroy_v2(stream->handle));
    else
        result = EITHER(own, cudaStreamEndCapture, _ptsz, (stream->handle, &graph), cuStreamEndCapture, _ptsz,
                        (stream->handle, &graph));
    pthread_mutex_lock(&lock);
    note_error(own, result);
    end_span(stream, stream->launches);
    if (destroys)
        stream->handle = NULL;
    pthread_mutex_unlock(&lock);
}

static void synchronise_device(struct worker *own)
{
    uint64_t launched[STREAMS + 1 + WORKERS], before;
    struct stream_state *of_device[STREAMS + 1 + WORKERS];
    int count = 0;
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].device == own->device)
            of_device[count++] = &streams[i];
    of_device[count++] = &legacy_stream[own->device];
    for (int i = 0; i < WORKERS; i++)
        of_device[count++] = &thread_streams[i][own->device];
    for (int i = 0; i < count; i++)
        launched[i] = launches_of(of_device[i]);
    before = now_ns();
    int result = CALL(own, cudaDeviceSynchronize(), cuCtxSynchronize());
    pthread_mutex_lock(&lock);
    note_sync(own, before, result);
    for (int i = 0; i < count; i++)
        end_span(of_device[i], launched[i]);
    pthread_mutex_unlock(&lock);
}

static void use_event(struct worker *own, const char *command, int number, int on)
{
    struct event_state *event = &events[number % STREAMS];
    uint64_t before = now_ns();
    int result;
    if (!event->handle && CALL(own, cudaEventCreate(&event->handle), cuEventCreate(&event->handle, 0)))
        abort();
    if (!strcmp(command, "record")) {
        event->stream = stream_of(own, on);
        event->launches = event->stream->launches;
        result = EITHER(own, cudaEventRecord, _ptsz, (event->handle, event->stream->handle), cuEventRecord, _ptsz,
                        (event->handle, event->stream->handle));
    } else if (!strcmp(command, "destroy")) {
        result = CALL(own, cudaEventDestroy(event->handle), cuEventDestroy_v2(event->handle));
        event->handle = NULL;
    } else if (!strcmp(command, "query")) {
        result = CALL(own, cudaEventQuery(event->handle), cuEventQuery(event->handle));
    } else {
        result = CALL(own, cudaEventSynchronize(event->handle), cuEventSynchronize(event->handle));
    }
    pthread_mutex_lock(&lock);
    if (!strcmp(command, "eventsync"))
        note_sync(own, before, result);
    else
        note_error(own, result);
    if ((!strcmp(command, "eventsync") || !strcmp(command, "query")) && !result && event->stream)
        end_span(event->stream, event->launches);
    pthread_mutex_unlock(&lock);
}

/* Frees all memory, of which the truth knows nothing. */
static void reset(struct worker *own)
{
    if (CALL(own, cudaDeviceReset(), cuDevicePrimaryCtxReset_v2(own->device)))
        abort();
}

static void choose(struct worker *own, int device)
{
    int result = CALL(own, cudaSetDevice(device), cuCtxSetCurrent((void *)(uintptr_t)(device + 1)));
    pthread_mutex_lock(&lock);
    note_error(own, result);
    pthread_mutex_unlock(&lock);
    if (!result)
        own->device = device;
}

static void spin(struct worker *own, long times)
{
    dim3 one = {1, 1, 1};
    uint64_t before = now_ns();
    for (long i = 0; i < times; i++)
        EITHER(own, cudaLaunchKernel, _ptsz, (NULL, one, one, NULL, 0, NULL), cuLaunchKernel, _ptsz,
               (NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    uint64_t took = now_ns() - before;
    pthread_mutex_lock(&lock);
    spin_ns = (double)took / (double)times;
    truths[own->device].launches += (uint64_t)times;
    truths[own->device].threads += (uint64_t)times;
    pthread_mutex_unlock(&lock);
}

#endif
