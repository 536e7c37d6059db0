/*
 * A GPU that only takes time: what the stub libraries say that a device does.
 *
 * A stream is busy until a moment of the monotonic clock, which each launch puts off by as many nanoseconds as the
 * value of its function pointer. A function pointer of the last 4096 values is an error code instead, as Linux returns
 * them: (void *)-719 fails with 719. One of the 4096 values below is the code of a kernel that breaks the device: its
 * launch succeeds, and whatever waits or is launched from then on fails with it. Memory is addresses, never touched; the address freed last is given out first.
 */
#ifndef GPU_H
#define GPU_H

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, NOT_READY = 600 };

#define DEVICES 8
#define BLOCKS 65536
#define TOO_MUCH ((size_t)1 << 40)
#define MOST_THREADS_OF_A_BLOCK 1024

struct gpu_stream {
    uint64_t busy_until;
    int device;
};

struct gpu_event {
    uint64_t done_at;
};

static struct { uint64_t address; size_t size; } gpu_used[BLOCKS], gpu_freed[BLOCKS];
static int gpu_used_blocks, gpu_freed_blocks;
static uint64_t gpu_next_address = 0x7f0000000000;
static pthread_mutex_t gpu_memory = PTHREAD_MUTEX_INITIALIZER;
static uint64_t gpu_device_busy_until[DEVICES];
static struct gpu_stream gpu_default_stream[DEVICES];
static __thread struct gpu_stream gpu_stream_of_thread[DEVICES];
static __thread int gpu_device;
static int gpu_broken;

static inline uint64_t gpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline void gpu_wait_until(uint64_t moment)
{
    struct timespec until = {.tv_sec = (time_t)(moment / 1000000000), .tv_nsec = (long)(moment % 1000000000)};
    while (moment && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}

static inline void gpu_raise(uint64_t *moment, uint64_t to)
{
    uint64_t was = __atomic_load_n(moment, __ATOMIC_RELAXED);
    while (was < to && !__atomic_compare_exchange_n(moment, &was, to, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* The handles of cuda.h: 0 is the default stream of the function's flavour, 1 the legacy one, 2 that of the thread. */
static inline struct gpu_stream *gpu_stream_of(void *handle, int per_thread)
{
    if (handle == (void *)2 || (!handle && per_thread))
        return &gpu_stream_of_thread[gpu_device];
    if (!handle || handle == (void *)1)
        return &gpu_default_stream[gpu_device];
    return handle;
}

static inline int gpu_work(void *stream, int per_thread, uintptr_t takes_ns)
{
    if (takes_ns >= (uintptr_t)-4096)
        return (int)-takes_ns;
    if (gpu_broken)
        return gpu_broken;
    if (takes_ns >= (uintptr_t)-8192) {
        gpu_broken = (int)-takes_ns - 4096;
    } else if (takes_ns) {
        struct gpu_stream *at = gpu_stream_of(stream, per_thread);
        uint64_t now = gpu_now(), free_at = __atomic_load_n(&at->busy_until, __ATOMIC_RELAXED);
        uint64_t until = (free_at > now ? free_at : now) + takes_ns;
        gpu_raise(&at->busy_until, until);
        gpu_raise(&gpu_device_busy_until[gpu_device], until);
    }
    return SUCCESS;
}

/* The shape of a launch that a device refuses; the two libraries have different codes for it. */
static inline int gpu_refuses(uint64_t blocks, uint64_t threads_of_a_block)
{
    return !blocks || !threads_of_a_block || threads_of_a_block > MOST_THREADS_OF_A_BLOCK;
}

static inline int gpu_allocate(uint64_t *address, size_t size)
{
    int result = OUT_OF_MEMORY;
    if (!address || !size)
        return INVALID_VALUE;
    if (size > TOO_MUCH)
        return OUT_OF_MEMORY;
    pthread_mutex_lock(&gpu_memory);
    if (gpu_used_blocks < BLOCKS) {
        uint64_t found = 0;
        for (int i = gpu_freed_blocks - 1; i >= 0 && i >= gpu_freed_blocks - 64 && !found; i--)
            if (gpu_freed[i].size == size) {
                found = gpu_freed[i].address;
                gpu_freed[i] = gpu_freed[--gpu_freed_blocks];
            }
        if (!found) {
            found = gpu_next_address;
            gpu_next_address += (size + 511) / 512 * 512;
        }
        gpu_used[gpu_used_blocks].address = found;
        gpu_used[gpu_used_blocks++].size = size;
        *address = found;
        result = SUCCESS;
    }
    pthread_mutex_unlock(&gpu_memory);
    return result;
}

static inline int gpu_free(uint64_t address)
{
    int result = INVALID_VALUE;
    pthread_mutex_lock(&gpu_memory);
    for (int i = gpu_used_blocks - 1; i >= 0; i--)
        if (gpu_used[i].address == address) {
            if (gpu_freed_blocks < BLOCKS)
                gpu_freed[gpu_freed_blocks++] = gpu_used[i];
            gpu_used[i] = gpu_used[--gpu_used_blocks];
            result = SUCCESS;
            break;
        }
    pthread_mutex_unlock(&gpu_memory);
    return result;
}

/* All memory is free, as after cudaDeviceReset. */
static inline int gpu_reset(void)
{
    pthread_mutex_lock(&gpu_memory);
    while (gpu_used_blocks && gpu_freed_blocks < BLOCKS)
        gpu_freed[gpu_freed_blocks++] = gpu_used[--gpu_used_blocks];
    pthread_mutex_unlock(&gpu_memory);
    return SUCCESS;
}

static inline int gpu_copy(size_t size)
{
    return size > TOO_MUCH ? INVALID_VALUE : SUCCESS;
}

static inline int gpu_wait_for_stream(void *stream, int per_thread)
{
    if (!gpu_broken)
        gpu_wait_until(__atomic_load_n(&gpu_stream_of(stream, per_thread)->busy_until, __ATOMIC_RELAXED));
    return gpu_broken;
}

/* A copy that is done when the function returns, after the work of the default stream. */
static inline int gpu_copy_now(size_t size, int per_thread)
{
    gpu_wait_for_stream(NULL, per_thread);
    return gpu_copy(size);
}

static inline int gpu_wait_for_device(void)
{
    if (!gpu_broken)
        gpu_wait_until(__atomic_load_n(&gpu_device_busy_until[gpu_device], __ATOMIC_RELAXED));
    return gpu_broken;
}

static inline int gpu_create_stream(void **stream)
{
    struct gpu_stream *made = calloc(1, sizeof *made);
    made->device = gpu_device;
    *stream = made;
    return SUCCESS;
}

static inline int gpu_destroy_stream(void *stream)
{
    free(stream);
    return SUCCESS;
}

static inline int gpu_create_event(void **event)
{
    *event = calloc(1, sizeof(struct gpu_event));
    return SUCCESS;
}

static inline int gpu_record(struct gpu_event *event, void *stream, int per_thread)
{
    if (!event)
        return INVALID_VALUE;
    event->done_at = __atomic_load_n(&gpu_stream_of(stream, per_thread)->busy_until, __ATOMIC_RELAXED);
    return SUCCESS;
}

static inline int gpu_query(const struct gpu_event *event)
{
    if (!event)
        return INVALID_VALUE;
    return event->done_at > gpu_now() ? NOT_READY : SUCCESS;
}

static inline int gpu_wait_for_event(const struct gpu_event *event)
{
    if (!event)
        return INVALID_VALUE;
    if (!gpu_broken)
        gpu_wait_until(event->done_at);
    return gpu_broken;
}

static inline int gpu_choose(int device)
{
    if (device < 0 || device >= DEVICES)
        return INVALID_DEVICE;
    gpu_device = device;
    return SUCCESS;
}

#endif
