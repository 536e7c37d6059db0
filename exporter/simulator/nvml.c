/* A stand-in for libnvidia-ml.so.1 on machines without NVIDIA's driver.

   It answers the calls that the exporter makes from the file `nvml.txt` in its own folder, which it reads again when
   another file takes its place. Signatures, structs and return codes are those of nvml.h. The lines of the file:

     gpu <index> <minor> <mig: 0, 1, or -1 for a GPU that cannot be cut> <bytes> <uuid>
     slices <gpu> <into how many compute slices it can be cut>
     mig <gpu> <place> <gpu instance> <compute instance> <slices> <compute slices> <MiB> <uuid> <name to the end>
     process <gpu> <gpu instance or -1> <compute instance or -1> <pid> <list: c, g or m> <bytes, or -1: not known>
     sample <gpu> <pid> <microseconds> <percent of the time>
     memory <gpu> <gpu instance or -1> <bytes in all> <reserved> <used> <free; without it, what is left>
     value <gpu> <call> <its argument, or which of its numbers> <number> <its nvmlValueType_t; 3 without it>
       A call without a value is not supported; of MIG devices, kinds of events and licences it has a usual answer.
     text <gpu, or -1> <call> <text to the end>
     gpm <gpu> <gpu instance or -1> <metric> <value>; a GPU without one has no profiling counters
     fail <call> <return code> <gpu, or -1: all> <0: the GPU itself, or 1 + place of a MIG device; without it, both>
     hang <call> <milliseconds, or until the file says no more of it>
     events <0 or 1: whether changes are told> <a number that is another one after each change>
     xid <gpu> <the error's code> <a number that grows with each error>            */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int result_t;
typedef struct device *device_t; /* 1000 * (gpu + 1), of a MIG device 1 + place more */

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, ARGUMENT_VERSION_MISMATCH = 25
};
enum { UNSIGNED_LONG_LONG = 3 }; /* of nvmlValueType_t */
enum { MOST = 4096, MOST_FEW = 2048, TEXT = 96 };

typedef struct { unsigned index; int minor, mig; unsigned long long memory; char uuid[TEXT]; } gpu_t;
typedef struct {
    unsigned gpu, place, instance, part, slices, part_slices;
    unsigned long long mib;
    char uuid[TEXT], name[TEXT];
} mig_t;
typedef struct { unsigned gpu; int instance, part; unsigned pid; char list; long long memory; } running_t;
typedef struct { unsigned gpu, pid; unsigned long long at; unsigned percent; } used_t;
typedef struct { unsigned gpu; int instance; unsigned long long total, reserved, used, free; } held_t;
typedef struct { unsigned gpu; char call[TEXT]; unsigned of; unsigned long long number; unsigned type; } value_t;
typedef struct { unsigned gpu; int instance; unsigned metric; double value; } gpm_t;
typedef struct { int gpu; char call[TEXT], text[TEXT]; } text_t;
typedef struct { char call[TEXT]; int code, gpu, place; unsigned ms; } fault_t;
typedef struct { unsigned gpu, code; long number; } xid_t;

/* of nvml.h */
typedef struct { unsigned pid; unsigned long long used; unsigned instance, part; } process_info_t;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } sample_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, slices, part_slices;
    unsigned long long mib;
} attributes_t;
typedef struct { unsigned version, id, is_p2p, slices; } profile_t; /* its beginning */
typedef struct { unsigned version, sensor; int celsius; } temperature_t;
typedef struct { unsigned gpu, memory; } rates_t;
typedef struct { unsigned long long reference, lasted; } violation_t;
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
} pci_t;
typedef struct { unsigned version, is_supported; } support_t;
typedef struct {
    unsigned version;
    unsigned char cluster[16];
    unsigned status, clique;
    unsigned char state;
    unsigned mask;
    unsigned char summary;
} fabric_t;
typedef struct { unsigned gpu; int instance; } gpm_sample_t;
typedef struct { unsigned metric; result_t result; double value; char *names[3]; } gpm_metric_t;
typedef struct { unsigned version, count; gpm_sample_t *first, *second; gpm_metric_t metrics[]; } gpm_metrics_t;
typedef struct {
    int code;
    unsigned state;
    char info[128], product[128];
    unsigned is_enabled;
    char expiry[16];
} licence_t;
typedef struct { int is_supported; unsigned count; licence_t licences[3]; } licences_t;
typedef struct {
    unsigned field, scope;
    long long at, took;
    unsigned type;
    result_t result;
    union { double real; unsigned small; unsigned long long large; } value;
} field_t;
typedef struct { device_t device; unsigned long long type, data; unsigned instance, part; } event_t;

static struct {
    gpu_t gpus[64];
    unsigned slices[64];
    mig_t migs[MOST];
    running_t running[MOST];
    used_t used[MOST];
    held_t held[MOST];
    value_t values[MOST];
    gpm_t gpms[MOST];
    text_t texts[MOST_FEW];
    fault_t faults[MOST_FEW];
    xid_t xids[256];
    unsigned xid_count, gpu_count, mig_count, running_count, used_count, held_count, value_count,
        text_count, gpm_count, fault_count;
    int tells_changes;
    long change;
} state;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users;
static struct stat last;

static int load(void)
{
    Dl_info self;
    char path[4096], line[1024];
    unsigned of, slices;
    int fields;
    struct stat now;
    if (!dladdr((void *)load, &self) || !self.dli_fname)
        return 0;
    snprintf(path, sizeof path, "%s", self.dli_fname);
    char *slash = strrchr(path, '/');
    if (!slash || slash - path > 4000)
        return 0;
    strcpy(slash + 1, "nvml.txt");
    if (stat(path, &now))
        return 0;
    if (now.st_ino == last.st_ino && now.st_mtim.tv_sec == last.st_mtim.tv_sec
        && now.st_mtim.tv_nsec == last.st_mtim.tv_nsec && now.st_size == last.st_size)
        return 1;
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    last = now;
    memset(&state, 0, sizeof state);
    while (fgets(line, sizeof line, file)) {
        gpu_t *g = &state.gpus[state.gpu_count % 64];
        mig_t *m = &state.migs[state.mig_count % MOST];
        running_t *r = &state.running[state.running_count % MOST];
        used_t *u = &state.used[state.used_count % MOST];
        held_t *h = &state.held[state.held_count % MOST];
        value_t *v = &state.values[state.value_count % MOST];
        gpm_t *p = &state.gpms[state.gpm_count % MOST];
        text_t *t = &state.texts[state.text_count % MOST_FEW];
        fault_t *f = &state.faults[state.fault_count % MOST_FEW];
        xid_t *x = &state.xids[state.xid_count % 256];
        if (sscanf(line, "gpu %u %d %d %llu %95s", &g->index, &g->minor, &g->mig, &g->memory, g->uuid) == 5)
            state.gpu_count++;
        else if (sscanf(line, "mig %u %u %u %u %u %u %llu %95s %95[^\n]", &m->gpu, &m->place, &m->instance, &m->part,
                        &m->slices, &m->part_slices, &m->mib, m->uuid, m->name) >= 8)
            state.mig_count++;
        else if (sscanf(line, "slices %u %u", &of, &slices) == 2)
            state.slices[of % 64] = slices;
        else if (sscanf(line, "process %u %d %d %u %c %lld", &r->gpu, &r->instance, &r->part, &r->pid, &r->list,
                        &r->memory) == 6)
            state.running_count++;
        else if (sscanf(line, "sample %u %u %llu %u", &u->gpu, &u->pid, &u->at, &u->percent) == 4)
            state.used_count++;
        else if ((fields = sscanf(line, "memory %u %d %llu %llu %llu %llu", &h->gpu, &h->instance, &h->total,
                                  &h->reserved, &h->used, &h->free)) >= 5) {
            if (fields == 5)
                h->free = h->total - h->reserved - h->used;
            state.held_count++;
        } else if ((fields = sscanf(line, "value %u %95s %u %llu %u", &v->gpu, v->call, &v->of, &v->number,
                                    &v->type)) >= 4) {
            if (fields == 4)
                v->type = UNSIGNED_LONG_LONG;
            state.value_count++;
        }
        else if (sscanf(line, "text %d %95s %95[^\n]", &t->gpu, t->call, t->text) == 3)
            state.text_count++;
        else if (sscanf(line, "gpm %u %d %u %lf", &p->gpu, &p->instance, &p->metric, &p->value) == 4)
            state.gpm_count++;
        else if ((fields = sscanf(line, "fail %95s %d %d %d", f->call, &f->code, &f->gpu, &f->place)) >= 3) {
            if (fields == 3)
                f->place = -1;
            state.fault_count++;
        }
        else if (sscanf(line, "hang %95s %u", f->call, &f->ms) == 2)
            state.fault_count++;
        else if (sscanf(line, "xid %u %u %ld", &x->gpu, &x->code, &x->number) == 3)
            state.xid_count++;
        else
            sscanf(line, "events %d %ld", &state.tells_changes, &state.change);
    }
    fclose(file);
    return 1;
}

static unsigned gpu_of(device_t device) { return (unsigned)((uintptr_t)device / 1000 - 1); }

static int hangs(const char *call)
{
    for (unsigned i = 0; i < state.fault_count && i < MOST_FEW; i++)
        if (state.faults[i].ms && (!strcmp(state.faults[i].call, call) || !strcmp(state.faults[i].call, "*")))
            return 1;
    return 0;
}

/* Takes the lock. What is not SUCCESS is the call's answer, and the lock is free. */
static result_t enter(const char *call, device_t device)
{
    unsigned ms = 0;
    int code = SUCCESS;
    pthread_mutex_lock(&lock);
    if (!load())
        code = DRIVER_NOT_LOADED;
    else if (!users && strcmp(call, "nvmlInitWithFlags"))
        code = UNINITIALIZED;
    for (unsigned i = 0; i < state.fault_count && i < MOST_FEW; i++) {
        fault_t *f = &state.faults[i];
        if (strcmp(f->call, call) && strcmp(f->call, "*"))
            continue;
        if (f->ms)
            ms = f->ms;
        else if (f->gpu < 0 || (device && f->gpu == (int)gpu_of(device)
                                && (f->place < 0 || f->place == (int)((uintptr_t)device % 1000))))
            code = f->code;
    }
    for (unsigned waited = 0; waited < ms; waited += 10) {
        pthread_mutex_unlock(&lock);
        usleep(10000u);
        pthread_mutex_lock(&lock);
        if (!load() || !hangs(call)) /* it ends when the file says no more of it */
            break;
    }
    if (code != SUCCESS)
        pthread_mutex_unlock(&lock);
    return code;
}

static result_t leave(result_t result)
{
    pthread_mutex_unlock(&lock);
    return result;
}

#define ENTER(device) \
    do { result_t entered = enter(__func__, device); if (entered != SUCCESS) return entered; } while (0)

static gpu_t *gpu(device_t device)
{
    unsigned index = gpu_of(device);
    for (unsigned i = 0; i < state.gpu_count; i++)
        if (state.gpus[i].index == index && (uintptr_t)device % 1000 == 0)
            return &state.gpus[i];
    return NULL;
}

static mig_t *mig(device_t device)
{
    for (unsigned i = 0; i < state.mig_count; i++)
        if (state.migs[i].gpu == gpu_of(device) && (uintptr_t)device % 1000 == 1 + state.migs[i].place)
            return &state.migs[i];
    return NULL;
}

static result_t text(char *to, unsigned length, const char *from)
{
    if (strlen(from) >= length)
        return leave(INSUFFICIENT_SIZE);
    strcpy(to, from);
    return leave(SUCCESS);
}

/* The text of a call; NULL where the file has none. */
static const char *text_of(int of, const char *call)
{
    for (unsigned i = 0; i < state.text_count && i < MOST_FEW; i++)
        if (state.texts[i].gpu == of && !strcmp(state.texts[i].call, call))
            return state.texts[i].text;
    return NULL;
}

/* The number of a call; NULL where the file has none. */
static const value_t *value_of(device_t device, const char *call, unsigned of)
{
    for (unsigned i = 0; i < state.value_count && i < MOST; i++) {
        const value_t *v = &state.values[i];
        if (v->gpu == gpu_of(device) && v->of == of && !strcmp(v->call, call))
            return v;
    }
    return NULL;
}

static unsigned long long number_or(device_t device, const char *call, unsigned of, unsigned long long usual)
{
    const value_t *v = value_of(device, call, of);
    return v ? v->number : usual;
}

result_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    ENTER(NULL);
    users++;
    return leave(SUCCESS);
}

result_t nvmlShutdown(void)
{
    ENTER(NULL);
    users--;
    return leave(SUCCESS);
}

result_t nvmlDeviceGetCount_v2(unsigned *count)
{
    ENTER(NULL);
    *count = state.gpu_count;
    return leave(SUCCESS);
}

result_t nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device)
{
    device_t found = (device_t)(uintptr_t)(1000 * (index + 1));
    ENTER(found);
    *device = found;
    return leave(gpu(found) ? SUCCESS : INVALID_ARGUMENT);
}

result_t nvmlDeviceGetUUID(device_t device, char *uuid, unsigned length)
{
    ENTER(device);
    gpu_t *g = gpu(device);
    mig_t *m = mig(device);
    return g || m ? text(uuid, length, g ? g->uuid : m->uuid) : leave(INVALID_ARGUMENT);
}

result_t nvmlDeviceGetName(device_t device, char *name, unsigned length)
{
    ENTER(device);
    mig_t *m = mig(device);
    const char *of_gpu = text_of((int)gpu_of(device), __func__);
    return text(name, length, m ? m->name : of_gpu ? of_gpu : "NVIDIA H100 80GB HBM3");
}

result_t nvmlDeviceGetMinorNumber(device_t device, unsigned *minor)
{
    ENTER(device);
    gpu_t *g = gpu(device);
    if (!g)
        return leave(INVALID_ARGUMENT);
    *minor = (unsigned)g->minor;
    return leave(SUCCESS);
}

/* Of a GPU without a line all is free; of an instance without one nothing is known. */
static result_t memory(device_t device, memory_v2_t *told)
{
    gpu_t *g = gpu(device);
    mig_t *m = mig(device);
    told->reserved = told->used = 0;
    told->total = told->free = g ? g->memory : 0;
    for (unsigned i = 0; i < state.held_count && i < MOST; i++) {
        held_t *h = &state.held[i];
        if (h->gpu != gpu_of(device) || h->instance != (m ? (int)m->instance : -1))
            continue;
        told->total = h->total;
        told->reserved = h->reserved;
        told->used = h->used;
        told->free = h->free;
    }
    return !g && !m ? INVALID_ARGUMENT : told->total ? SUCCESS : NOT_SUPPORTED;
}

result_t nvmlDeviceGetMemoryInfo_v2(device_t device, memory_v2_t *told)
{
    ENTER(device);
    return leave(told->version == 0x2000028 ? memory(device, told) : ARGUMENT_VERSION_MISMATCH);
}

result_t nvmlDeviceGetMemoryInfo(device_t device, memory_t *old)
{
    ENTER(device);
    memory_v2_t told;
    result_t result = memory(device, &told);
    old->total = told.total;
    old->free = told.free;
    old->used = told.used + told.reserved;
    return leave(result);
}

result_t nvmlDeviceGetMigMode(device_t device, unsigned *now, unsigned *pending)
{
    ENTER(device);
    gpu_t *g = gpu(device);
    if (!g)
        return leave(INVALID_ARGUMENT);
    if (g->mig < 0)
        return leave(NOT_SUPPORTED);
    *now = *pending = (unsigned)g->mig;
    return leave(SUCCESS);
}

result_t nvmlDeviceGetMaxMigDeviceCount(device_t device, unsigned *count)
{
    ENTER(device);
    *count = (unsigned)number_or(device, __func__, 0, 7);
    return leave(SUCCESS);
}

result_t nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned place, device_t *found)
{
    ENTER(device);
    *found = (device_t)((uintptr_t)device + 1 + place);
    return leave(mig(*found) ? SUCCESS : NOT_FOUND);
}

result_t nvmlDeviceGetGpuInstanceId(device_t device, unsigned *id)
{
    ENTER(device);
    mig_t *m = mig(device);
    if (!m)
        return leave(INVALID_ARGUMENT);
    *id = m->instance;
    return leave(SUCCESS);
}

result_t nvmlDeviceGetAttributes_v2(device_t device, attributes_t *attributes)
{
    ENTER(device);
    mig_t *m = mig(device);
    if (!m)
        return leave(NOT_SUPPORTED);
    memset(attributes, 0, sizeof *attributes);
    attributes->slices = m->slices;
    attributes->part_slices = m->part_slices;
    attributes->mib = m->mib;
    return leave(SUCCESS);
}

/* of nvml.h: a profile's number stands for its slices */
result_t nvmlDeviceGetGpuInstanceProfileInfoV(device_t device, unsigned profile, profile_t *info)
{
    static const unsigned slices_of[] = {1, 2, 3, 4, 7, 8, 6};
    ENTER(device);
    unsigned most = state.slices[gpu_of(device) % 64];
    if (profile >= sizeof slices_of / sizeof *slices_of || slices_of[profile] > most)
        return leave(NOT_SUPPORTED);
    info->slices = slices_of[profile];
    return leave(SUCCESS);
}

static result_t processes(device_t device, unsigned *count, process_info_t *infos, char list)
{
    mig_t *m = mig(device);
    unsigned found = 0, room = infos ? *count : 0;
    for (unsigned i = 0; i < state.running_count && i < MOST; i++) {
        running_t *r = &state.running[i];
        if (r->gpu != gpu_of(device) || r->list != list)
            continue;
        if (m && (r->instance != (int)m->instance || r->part != (int)m->part))
            continue;
        if (found < room) {
            infos[found].pid = r->pid;
            infos[found].used = (unsigned long long)r->memory;
            infos[found].instance = (unsigned)r->instance;
            infos[found].part = (unsigned)r->part;
        }
        found++;
    }
    *count = found;
    return leave(found > room ? INSUFFICIENT_SIZE : SUCCESS);
}

#define LIST(name, list) \
    result_t name(device_t device, unsigned *count, process_info_t *infos) \
    { \
        ENTER(device); \
        return processes(device, count, infos, list); \
    }
LIST(nvmlDeviceGetComputeRunningProcesses_v2, 'c')
LIST(nvmlDeviceGetComputeRunningProcesses_v3, 'c')
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, 'g')
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 'g')
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, 'm')
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 'm')

result_t nvmlDeviceGetProcessUtilization(device_t device, sample_t *samples, unsigned *count, unsigned long long since)
{
    ENTER(device);
    unsigned found = 0, room = samples ? *count : 0;
    gpu_t *g = gpu(device);
    if (!g || g->mig > 0)
        return leave(NOT_SUPPORTED);
    for (unsigned i = 0; i < state.used_count && i < MOST; i++) {
        used_t *u = &state.used[i];
        if (u->gpu != g->index || u->at <= since)
            continue;
        if (found < room) {
            memset(&samples[found], 0, sizeof *samples);
            samples[found].pid = u->pid;
            samples[found].at = u->at;
            samples[found].sm = u->percent;
        }
        found++;
    }
    *count = found;
    return leave(!found ? NOT_FOUND : found > room ? INSUFFICIENT_SIZE : SUCCESS);
}

/* Events. There is one set; a GPU's events are told from its registration on. */
enum { XID = 0x8, MIG_CHANGE = 0x100 };
static struct { unsigned long long types[64]; long change, xid; } told;

static unsigned long long types_of(device_t device)
{
    unsigned long long usual = 0xf | (state.tells_changes ? MIG_CHANGE : 0);
    return number_or(device, "nvmlDeviceGetSupportedEventTypes", 0, usual);
}

result_t nvmlDeviceGetSupportedEventTypes(device_t device, unsigned long long *types)
{
    ENTER(device);
    *types = types_of(device);
    return leave(SUCCESS);
}

result_t nvmlEventSetCreate(void **set)
{
    ENTER(NULL);
    memset(&told, 0, sizeof told);
    told.change = state.change;
    for (unsigned i = 0; i < state.xid_count && i < 256; i++)
        told.xid = state.xids[i].number;
    *set = &told;
    return leave(SUCCESS);
}

result_t nvmlEventSetFree(void *set)
{
    (void)set;
    ENTER(NULL);
    return leave(SUCCESS);
}

result_t nvmlDeviceRegisterEvents(device_t device, unsigned long long types, void *set)
{
    (void)set;
    ENTER(device);
    if (types & ~types_of(device))
        return leave(NOT_SUPPORTED);
    told.types[gpu_of(device) % 64] |= types;
    return leave(SUCCESS);
}

result_t nvmlEventSetWait_v2(void *set, event_t *event, unsigned ms)
{
    (void)set;
    (void)ms; /* nobody waits */
    ENTER(NULL);
    memset(event, 0, sizeof *event);
    event->instance = event->part = 0xFFFFFFFF;
    for (unsigned i = 0; i < 64; i++)
        if (told.change != state.change && told.types[i] & MIG_CHANGE) {
            told.change = state.change;
            event->device = (device_t)(uintptr_t)(1000 * (i + 1));
            event->type = MIG_CHANGE;
            return leave(SUCCESS);
        }
    for (unsigned i = 0; i < state.xid_count && i < 256; i++) {
        xid_t *x = &state.xids[i];
        if (x->number <= told.xid)
            continue;
        told.xid = x->number;
        if (!(told.types[x->gpu % 64] & XID))
            continue;
        event->device = (device_t)(uintptr_t)(1000 * (x->gpu + 1));
        event->type = XID;
        event->data = x->code;
        return leave(SUCCESS);
    }
    return leave(TIMEOUT);
}

/* Where the file says nothing, it is not supported. */
static result_t number(device_t device, const char *call, unsigned of, unsigned long long *told)
{
    if (!gpu(device))
        return INVALID_ARGUMENT;
    const value_t *v = value_of(device, call, of);
    if (v)
        *told = v->number;
    return v ? SUCCESS : NOT_SUPPORTED;
}

static result_t small_number(device_t device, const char *call, unsigned of, unsigned *told)
{
    unsigned long long found = 0;
    result_t result = number(device, call, of, &found);
    *told = (unsigned)found;
    return result;
}

#define SMALL(name) \
    result_t name(device_t device, unsigned *told) \
    { \
        ENTER(device); \
        return leave(small_number(device, __func__, 0, told)); \
    }
#define SMALL_OF(name) \
    result_t name(device_t device, unsigned of, unsigned *told) \
    { \
        ENTER(device); \
        return leave(small_number(device, __func__, of, told)); \
    }
#define LARGE(name) \
    result_t name(device_t device, unsigned long long *told) \
    { \
        ENTER(device); \
        return leave(number(device, __func__, 0, told)); \
    }
#define WITH_PERIOD(name) \
    result_t name(device_t device, unsigned *told, unsigned *period) \
    { \
        ENTER(device); \
        *period = 166000; \
        return leave(small_number(device, __func__, 0, told)); \
    }
SMALL(nvmlDeviceGetPowerUsage)
SMALL(nvmlDeviceGetEnforcedPowerLimit)
SMALL(nvmlDeviceGetPcieReplayCounter)
SMALL(nvmlDeviceGetCurrPcieLinkGeneration)
SMALL(nvmlDeviceGetCurrPcieLinkWidth)
SMALL(nvmlDeviceGetMaxPcieLinkGeneration)
SMALL(nvmlDeviceGetMaxPcieLinkWidth)
SMALL(nvmlDeviceGetGpuMaxPcieLinkGeneration)
SMALL_OF(nvmlDeviceGetNvLinkState)
SMALL_OF(nvmlDeviceGetNvLinkRemoteDeviceType)
SMALL_OF(nvmlDeviceGetClockInfo)
SMALL_OF(nvmlDeviceGetTemperature)
LARGE(nvmlDeviceGetTotalEnergyConsumption)
LARGE(nvmlDeviceGetCurrentClocksEventReasons)
LARGE(nvmlDeviceGetCurrentClocksThrottleReasons)
WITH_PERIOD(nvmlDeviceGetEncoderUtilization)
WITH_PERIOD(nvmlDeviceGetDecoderUtilization)

result_t nvmlDeviceGetTemperatureV(device_t device, temperature_t *told)
{
    ENTER(device);
    if (told->version != 0x100000c)
        return leave(ARGUMENT_VERSION_MISMATCH);
    return leave(small_number(device, __func__, told->sensor, (unsigned *)&told->celsius));
}

result_t nvmlDeviceGetUtilizationRates(device_t device, rates_t *told)
{
    ENTER(device);
    result_t result = small_number(device, __func__, 0, &told->gpu);
    return leave(result == SUCCESS ? small_number(device, __func__, 1, &told->memory) : result);
}

result_t nvmlDeviceGetViolationStatus(device_t device, unsigned policy, violation_t *told)
{
    ENTER(device);
    told->reference = 0;
    return leave(number(device, __func__, policy, &told->lasted));
}

result_t nvmlDeviceGetTotalEccErrors(device_t device, unsigned type, unsigned counter, unsigned long long *told)
{
    ENTER(device);
    return leave(number(device, __func__, type + 2 * counter, told));
}

result_t nvmlDeviceGetRemappedRows(
    device_t device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    unsigned *told[] = {corrected, uncorrected, pending, failed};
    result_t result = SUCCESS;
    ENTER(device);
    for (unsigned i = 0; i < 4 && result == SUCCESS; i++)
        result = small_number(device, __func__, i, told[i]);
    return leave(result);
}

result_t nvmlDeviceGetGridLicensableFeatures_v4(device_t device, licences_t *told)
{
    ENTER(device);
    told->is_supported = (int)number_or(device, __func__, 1, 0);
    for (unsigned i = 0; i < 3; i++) {
        told->licences[i].code = (int)number_or(device, __func__, 10 + 2 * i, 0);
        told->licences[i].state = (unsigned)number_or(device, __func__, 11 + 2 * i, 0);
    }
    return leave(small_number(device, __func__, 0, &told->count));
}

result_t nvmlDeviceGetFieldValues(device_t device, int count, field_t *fields)
{
    ENTER(device);
    for (int i = 0; i < count; i++) {
        /* a field of a link: the link is its scope */
        unsigned link = fields[i].scope < 64 ? fields[i].scope : 0;
        const value_t *v = value_of(device, __func__, fields[i].field + 1000 * link);
        fields[i].type = v ? v->type : UNSIGNED_LONG_LONG;
        fields[i].value.large = v ? v->number : 0;
        fields[i].result = v ? SUCCESS : NOT_SUPPORTED;
    }
    return leave(gpu(device) ? SUCCESS : INVALID_ARGUMENT);
}

static result_t told_text(int of, const char *call, char *to, unsigned length)
{
    const char *told = text_of(of, call);
    return told ? text(to, length, told) : leave(NOT_SUPPORTED);
}

result_t nvmlDeviceGetPciInfo_v3(device_t device, pci_t *told)
{
    ENTER(device);
    memset(told, 0, sizeof *told);
    return told_text((int)gpu_of(device), __func__, told->id, sizeof told->id);
}

/* The peer of a link is a GPU of the node, by its number. */
result_t nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t device, unsigned link, pci_t *told)
{
    ENTER(device);
    memset(told, 0, sizeof *told);
    const value_t *v = value_of(device, __func__, link);
    return v ? told_text((int)v->number, "nvmlDeviceGetPciInfo_v3", told->id, sizeof told->id) : leave(NOT_SUPPORTED);
}

/* Of the struct: status, state, mask and, in version 3, summary. */
result_t nvmlDeviceGetGpuFabricInfoV(device_t device, fabric_t *told)
{
    ENTER(device);
    if (told->version != 0x2000024 && told->version != 0x3000028)
        return leave(ARGUMENT_VERSION_MISMATCH);
    told->status = (unsigned)number_or(device, __func__, 1, 0);
    told->mask = (unsigned)number_or(device, __func__, 2, 0);
    if (told->version == 0x3000028)
        told->summary = (unsigned char)number_or(device, __func__, 3, 0);
    unsigned state = 0;
    result_t result = small_number(device, __func__, 0, &state);
    told->state = (unsigned char)state;
    return leave(result);
}

result_t nvmlDeviceGetSerial(device_t device, char *serial, unsigned length)
{
    ENTER(device);
    return told_text((int)gpu_of(device), __func__, serial, length);
}

result_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    ENTER(NULL);
    return told_text(-1, __func__, version, length);
}

/* Profiling counters. A sample only says whose it is: the values are those of now. */
static gpm_t *gpm(unsigned of, int instance, unsigned metric)
{
    for (unsigned i = 0; i < state.gpm_count && i < MOST; i++) {
        gpm_t *p = &state.gpms[i];
        if (p->gpu == of && p->instance == instance && (!metric || p->metric == metric))
            return p;
    }
    return NULL;
}

static result_t sample(device_t device, int instance, gpm_sample_t *taken)
{
    taken->gpu = gpu_of(device);
    taken->instance = instance;
    return leave(!gpu(device) ? INVALID_ARGUMENT : gpm(taken->gpu, instance, 0) ? SUCCESS : NOT_SUPPORTED);
}

result_t nvmlGpmQueryDeviceSupport(device_t device, support_t *told)
{
    ENTER(device);
    told->is_supported = 0;
    for (unsigned i = 0; i < state.gpm_count && i < MOST; i++)
        told->is_supported |= state.gpms[i].gpu == gpu_of(device);
    return leave(SUCCESS);
}

result_t nvmlGpmSampleAlloc(gpm_sample_t **made)
{
    ENTER(NULL);
    *made = calloc(1, sizeof **made);
    return leave(SUCCESS);
}

result_t nvmlGpmSampleFree(gpm_sample_t *taken)
{
    ENTER(NULL);
    free(taken);
    return leave(SUCCESS);
}

result_t nvmlGpmSampleGet(device_t device, gpm_sample_t *taken)
{
    ENTER(device);
    return sample(device, -1, taken);
}

result_t nvmlGpmMigSampleGet(device_t device, unsigned instance, gpm_sample_t *taken)
{
    ENTER(device);
    return sample(device, (int)instance, taken);
}

result_t nvmlGpmMetricsGet(gpm_metrics_t *asked)
{
    ENTER(NULL);
    if (asked->version != 1 || asked->first->gpu != asked->second->gpu)
        return leave(INVALID_ARGUMENT);
    for (unsigned i = 0; i < asked->count; i++) {
        gpm_metric_t *m = &asked->metrics[i];
        gpm_t *p = gpm(asked->second->gpu, asked->second->instance, m->metric);
        m->result = p ? SUCCESS : NOT_SUPPORTED;
        m->value = p ? p->value : 0;
    }
    return leave(SUCCESS);
}

const char *nvmlErrorString(result_t result)
{
    (void)result;
    return "a stand-in's error";
}
