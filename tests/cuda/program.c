/*
 * A program that uses CUDA as its script says, and prints the exact truth about it as one line of JSON.
 *
 *     program [--late] SCRIPT...
 *
 * Each SCRIPT is run by a thread of its own; its commands end with ";". The program prints "ready" and waits for a line
 * on its standard input, runs the scripts, prints the truth, waits for another line and ends without freeing anything.
 * Compiled with LINKED it is linked with the runtime (1) or the driver (2); else it opens both, before "ready" or, with
 * --late, after it.
 *
 *     api runtime|driver        whose functions are called from here on (runtime at first)
 *     perthread on|off          the flavour with a default stream for each thread: _ptsz, _ptds
 *     device N                  cudaSetDevice; for the driver its context
 *     launch S GX GY GZ BX BY BZ NS, launchex ...  on stream S (0: the default one) a kernel that takes NS
 *     graph S NS                                   with NS of -719 both fail with this code
 *     malloc M BYTES, managed M BYTES, mallocasync M BYTES S, free M, freeasync M S     M: a number below 4096
 *     copy KIND BYTES, copyasync KIND BYTES S      KIND: a cudaMemcpyKind, 0 to 4
 *     sync S, devicesync, record E S, query E, eventsync E, destroy E
 *     sleep US, barrier, setenv VALUE (of CUDA_VISIBLE_DEVICES), fork (a child runs the rest), exit (at once)
 *     repeat N ... end          not nested in another repeat
 *     spin N                    N launches as fast as can be; "spin_ns" is what one took
 */
#define _GNU_SOURCE
#include "cuda_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEVICES 16
#define SLOTS 4096
#define STREAMS 64
#define CODES 1024
#define SPANS 65536

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

struct truth {
    uint64_t launches, threads, graph_launches, allocations, failed_allocations, frees, memory_bytes, peak_bytes,
        freed_bytes, copies[5], copied_bytes[5], syncs, sync_ns, active_ns, errors[CODES];
    struct { uint64_t begin, end; } spans[SPANS];
    int span_count;
};

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
    int device, per_thread, by_driver;
    struct stream_state default_stream[DEVICES];
};

static struct truth truths[DEVICES];
static struct { void *address; uint64_t size; int device; } memory[SLOTS];
static struct stream_state streams[STREAMS], legacy_stream[DEVICES];
static struct event_state events[STREAMS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static double spin_ns;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int by_begin(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static uint64_t united(struct truth *of)
{
    uint64_t total = 0, until = 0;
    qsort(of->spans, (size_t)of->span_count, sizeof of->spans[0], by_begin);
    for (int i = 0; i < of->span_count; i++) {
        uint64_t begin = of->spans[i].begin > until ? of->spans[i].begin : until;
        if (of->spans[i].end > begin)
            total += of->spans[i].end - begin;
        if (of->spans[i].end > until)
            until = of->spans[i].end;
    }
    return total;
}

static void print_list(const char *name, const uint64_t *values, int count)
{
    printf(", \"%s\": [", name);
    for (int i = 0; i < count; i++)
        printf("%s%lu", i ? ", " : "", values[i]);
    printf("]");
}

static void print_truth(void)
{
    const char *between = "";
    printf("{\"pid\": %d, \"spin_ns\": %.1f, \"devices\": {", getpid(), spin_ns);
    for (int device = 0; device < DEVICES; device++) {
        struct truth *of = &truths[device];
        const char *comma = "";
        uint64_t errors = 0;
        for (int code = 0; code < CODES; code++)
            errors += of->errors[code];
        if (!(of->launches + of->graph_launches + of->allocations + of->failed_allocations + of->frees + of->syncs +
              errors + of->copies[0] + of->copies[1] + of->copies[2] + of->copies[3] + of->copies[4]))
            continue;
        printf("%s\"%d\": {\"launches\": %lu, \"threads\": %lu, \"graph_launches\": %lu, \"allocations\": %lu, "
               "\"failed_allocations\": %lu, \"frees\": %lu, \"memory_bytes\": %lu, \"peak_bytes\": %lu, "
               "\"freed_bytes\": %lu, \"syncs\": %lu, \"sync_ns\": %lu, \"active_ns\": %lu",
               between, device, of->launches, of->threads, of->graph_launches, of->allocations, of->failed_allocations,
               of->frees, of->memory_bytes, of->peak_bytes, of->freed_bytes, of->syncs, of->sync_ns, united(of));
        print_list("copies", of->copies, 5);
        print_list("copied_bytes", of->copied_bytes, 5);
        printf(", \"errors\": {");
        for (int code = 0; code < CODES; code++)
            if (of->errors[code]) {
                printf("%s\"%d\": %lu", comma, code, of->errors[code]);
                comma = ", ";
            }
        printf("}}");
        between = ", ";
    }
    printf("}}\n");
    fflush(stdout);
}

static void wait_for_line(void)
{
    char line[64];
    if (!fgets(line, sizeof line, stdin))
        line[0] = 0;
}

/* Calls of the api and the flavour that the worker has chosen. */
#define CALL(own, runtime_call, driver_call) ((own)->by_driver ? driver.driver_call : runtime.runtime_call)
#define EITHER(own, r, rz, rargs, d, dz, dargs) \
    ((own)->by_driver ? ((own)->per_thread ? driver.d##dz dargs : driver.d dargs) \
                      : ((own)->per_thread ? runtime.r##rz rargs : runtime.r rargs))

static struct stream_state *stream_of(struct worker *own, int number)
{
    struct stream_state *found;
    if (!number) {
        found = own->per_thread ? &own->default_stream[own->device] : &legacy_stream[own->device];
        found->device = own->device;
        return found;
    }
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

/* Under the lock: the stream has no work any more. */
static void end_span(struct stream_state *stream)
{
    struct truth *of = &truths[stream->device];
    if (stream->begin && of->span_count < SPANS) {
        of->spans[of->span_count].begin = stream->begin;
        of->spans[of->span_count++].end = now_ns();
    }
    stream->begin = 0;
}

static void note_error(struct worker *own, int result)
{
    if (result)
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
    int result;
    if (own->by_driver)
        result = copy_by_driver(own, kind, size, number >= 0, stream);
    else if (number >= 0)
        result = (own->per_thread ? runtime.cudaMemcpyAsync_ptsz : runtime.cudaMemcpyAsync)(NULL, NULL, size, kind,
                                                                                            stream);
    else
        result = (own->per_thread ? runtime.cudaMemcpy_ptds : runtime.cudaMemcpy)(NULL, NULL, size, kind);
    pthread_mutex_lock(&lock);
    if (!result) {
        truths[own->device].copies[kind]++;
        truths[own->device].copied_bytes[kind] += size;
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
    uint64_t before = now_ns();
    int result = EITHER(own, cudaStreamSynchronize, _ptsz, (stream->handle), cuStreamSynchronize, _ptsz,
                        (stream->handle));
    pthread_mutex_lock(&lock);
    note_sync(own, before, result);
    end_span(stream);
    pthread_mutex_unlock(&lock);
}

static void synchronise_device(struct worker *own)
{
    uint64_t before = now_ns();
    int result = CALL(own, cudaDeviceSynchronize(), cuCtxSynchronize());
    pthread_mutex_lock(&lock);
    note_sync(own, before, result);
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].device == own->device)
            end_span(&streams[i]);
    end_span(&legacy_stream[own->device]);
    end_span(&own->default_stream[own->device]);
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
    if ((!strcmp(command, "eventsync") || !strcmp(command, "query")) && !result && event->stream &&
        event->launches == event->stream->launches)
        end_span(event->stream);
    pthread_mutex_unlock(&lock);
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

/* Returns 0 where this process is to run no more of the script. */
static int run(struct worker *own, const char *command, const char *arguments)
{
    char word[256] = "";
    long a = 0, b = 0, c = -1;
    sscanf(arguments, "%255s", word);
    sscanf(arguments, "%ld %ld %ld", &a, &b, &c);
    int has_second = strchr(arguments + strspn(arguments, " "), ' ') != NULL;
    if (!strcmp(command, "api"))
        own->by_driver = !strcmp(word, "driver");
    else if (!strcmp(command, "perthread"))
        own->per_thread = !strcmp(word, "on");
    else if (!strcmp(command, "device"))
        choose(own, (int)a);
    else if (!strcmp(command, "launch") || !strcmp(command, "launchex"))
        launch(own, arguments, !strcmp(command, "launchex"));
    else if (!strcmp(command, "graph"))
        launch_graph(own, (int)a, b);
    else if (!strcmp(command, "malloc") || !strcmp(command, "managed") || !strcmp(command, "mallocasync"))
        allocate(own, command, (int)a % SLOTS, (uint64_t)b, (int)c);
    else if (!strcmp(command, "free") || !strcmp(command, "freeasync"))
        release(own, (int)a % SLOTS, has_second ? (int)b : -1);
    else if (!strcmp(command, "copy") || !strcmp(command, "copyasync"))
        copy(own, (int)a, (uint64_t)b, (int)c);
    else if (!strcmp(command, "sync"))
        synchronise(own, (int)a);
    else if (!strcmp(command, "devicesync"))
        synchronise_device(own);
    else if (!strcmp(command, "record") || !strcmp(command, "query") || !strcmp(command, "eventsync") ||
             !strcmp(command, "destroy"))
        use_event(own, command, (int)a, (int)b);
    else if (!strcmp(command, "sleep"))
        usleep((unsigned int)a);
    else if (!strcmp(command, "barrier"))
        pthread_barrier_wait(&barrier);
    else if (!strcmp(command, "setenv"))
        setenv("CUDA_VISIBLE_DEVICES", word, 1);
    else if (!strcmp(command, "spin"))
        spin(own, a);
    else if (!strcmp(command, "fork")) {
        fflush(stdout);
        pid_t child = fork();
        if (child) {
            waitpid(child, NULL, 0);
            return 0;
        }
        memset(truths, 0, sizeof truths);
    } else if (!strcmp(command, "exit")) {
        print_truth();
        _exit(0);
    } else {
        fprintf(stderr, "no such command: %s\n", command);
        exit(2);
    }
    return 1;
}

static void *work(void *of)
{
    struct worker *own = of;
    const char *at = own->script, *again = NULL;
    long left = 0;
    pid_t started_in = getpid();
    while (*at) {
        char line[256], command[32] = "";
        size_t length = strcspn(at, ";");
        snprintf(line, sizeof line, "%.*s", (int)length, at);
        at += length + (at[length] == ';');
        int taken = 0;
        if (sscanf(line, " %31s %n", command, &taken) < 1)
            continue;
        if (!strcmp(command, "repeat")) {
            left = atol(line + taken);
            again = at;
        } else if (!strcmp(command, "end")) {
            if (--left > 0)
                at = again;
        } else if (!run(own, command, line + taken)) {
            break;
        }
    }
    if (getpid() != started_in) {
        print_truth();
        _exit(0);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    static struct worker workers[64];
    pthread_t threads[64];
    int first = 1, late = count > 1 && !strcmp(arguments[1], "--late");
    first += late;
    if (!late)
        find_functions();
    pthread_barrier_init(&barrier, NULL, (unsigned int)(count - first > 0 ? count - first : 1));
    printf("ready\n");
    fflush(stdout);
    wait_for_line();
    if (late)
        find_functions();
    for (int i = 0; i < count - first && i < 64; i++) {
        workers[i].script = arguments[first + i];
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < count - first && i < 64; i++)
        pthread_join(threads[i], NULL);
    print_truth();
    wait_for_line();
    return 0;
}
