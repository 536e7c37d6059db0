/* What program.c did, for each device, and its telling as one line of JSON. */
#ifndef TRUTH_H
#define TRUTH_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define DEVICES 16
#define CODES 1024
#define SPANS 65536

struct truth {
    uint64_t launches, threads, graph_launches, allocations, failed_allocations, frees, memory_bytes, peak_bytes,
        freed_bytes, copies[5], copied_bytes[5], syncs, sync_ns, active_ns, errors[CODES];
    struct { uint64_t begin, end; } spans[SPANS];
    int span_count;
};

/* The lock holds for the truths, and for the streams and the memory of calls.h. */
static struct truth truths[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
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

#endif
