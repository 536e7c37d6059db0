// Counts what programs ask of the GPU: uprobes and uretprobes on the functions of libcudart and libcuda.
//
// Rules:
// - Nothing wakes user space: the maps are read when somebody wants to know.
// - A call counts once. The runtime calls the driver, and a file may be probed by two of its names: while a thread is
//   in a call, what it enters below (or at the same place of its stack) is part of that call.
// - Every map has a limit. What does not fit is counted in `lost`, and nothing else breaks.
// - Nothing is written to the memory of a program.
//
// Arguments are read as the ABI has them. A dim3 (three 32-bit numbers) is passed in two registers, in x86-64's
// System V ABI and in AArch64's. See functions.py for the functions; records.py reads the maps, with the same layout.

#define __VMLINUX_H__ // the kernel's own names of registers; what is needed of them stands below
#include <linux/bpf.h>

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	unsigned long long regs[31], sp, pc, pstate;
};
struct pt_regs {
	struct user_pt_regs user_regs;
};
#else
#error "no such architecture: the ABI is read for x86-64 and arm64"
#endif

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define STREAMS 32		   // streams of one process on one device that can have work at a time
#define TRIES 8			   // places in which one stream is looked for
#define SPAN_NS (10 * 1000 * 1000) // shorter spans that follow each other are told as one
#define MOST_VISIBLE 512	   // characters of CUDA_VISIBLE_DEVICES
#define NOT_READY 600		   // an answer of cudaEventQuery, and no error

struct task_struct {
	struct task_struct *group_leader;
	u64 start_boottime;
} __attribute__((preserve_access_index));

// --- what user space reads ------------------------------------------------------------------------------------------

struct process_id {
	u32 pid;
	u32 zero;
	u64 started; // ns of the boot-time clock
};

struct process {
	u64 cgroup_id;
	u64 thread_ended; // when a thread of it ended last, ns of the monotonic clock; 0: none has
};

struct device_id {
	u32 pid;
	u32 ordinal;
	u64 started;
};

struct stream {
	u64 handle; // 0: this place is free
	u64 since;  // its first launch that no synchronisation has ended; 0: it has no work
	u64 last;   // its last launch
};

struct sums {
	u64 launches, threads, graph_launches;
	u64 allocations, failed_allocations, frees;
	u64 memory, peak, freed;
	u64 copies[5], copied[5]; // by cudaMemcpyKind
	u64 syncs, sync_ns;
	u64 active_ns;	// of all times that are over
	u64 open_since; // since when any stream has work; 0: none has
	u64 open;	// how many have
	u64 span_begin, span_end, span_active; // times that are over and not told yet
	struct stream streams[STREAMS];
};

struct error_id {
	u32 pid;
	u32 ordinal;
	u64 started;
	u32 code;
	u32 zero;
};

struct address_id {
	u64 address;
	u32 pid;
	u32 started; // the low half: enough to tell a process from a later one with its pid
};

struct allocation {
	u64 bytes;
	u32 ordinal;
	u32 zero;
};

struct span {
	struct device_id device;
	u64 begin, end, active;
};

// --- what threads are doing -----------------------------------------------------------------------------------------

enum operation {
	LAUNCH = 1,
	GRAPH_LAUNCH,
	ALLOCATE,
	RELEASE,
	COPY,
	STREAM_SYNC,
	DEVICE_SYNC,
	EVENT_RECORD,
	EVENT_QUERY,
	EVENT_SYNC,
	EVENT_DESTROY,
	SET_DEVICE,
};

struct thread {
	struct device_id device; // of which process, and the device that it has chosen
	u64 sp;			 // of the call that it is in; 0: it is in none
	u64 began;
	u64 a, b; // the call's arguments, by operation: see `returned`
	u32 operation;
	u32 ordinal; // of an allocation that is being released
};

struct event {
	u64 recorded;
	u64 stream;
	u32 ordinal;
	u32 zero;
};

enum full {
	FULL_PROCESSES,
	FULL_THREADS,
	FULL_DEVICES,
	FULL_ALLOCATIONS,
	FULL_ERRORS,
	FULL_STREAMS,
	FULL_SPANS,
	UNREADABLE, // an argument in memory that could not be read
	FULL_KINDS,
};

#define MAP(kind, name, of_key, of_value, most)  \
	struct {                                 \
		__uint(type, kind);              \
		__uint(max_entries, most);       \
		__type(key, of_key);             \
		__type(value, of_value);         \
	} name SEC(".maps")

MAP(BPF_MAP_TYPE_HASH, processes, struct process_id, struct process, 2048);
MAP(BPF_MAP_TYPE_HASH, threads, u32, struct thread, 16384);
MAP(BPF_MAP_TYPE_HASH, devices, struct device_id, struct sums, 2048);
MAP(BPF_MAP_TYPE_HASH, allocations, struct address_id, struct allocation, 65536);
MAP(BPF_MAP_TYPE_HASH, errors, struct error_id, u64, 4096);
MAP(BPF_MAP_TYPE_LRU_HASH, events, struct address_id, struct event, 16384);
MAP(BPF_MAP_TYPE_LRU_HASH, visible, struct process_id, char[MOST_VISIBLE], 512);
MAP(BPF_MAP_TYPE_ARRAY, lost, u32, u64, FULL_KINDS);
MAP(BPF_MAP_TYPE_ARRAY, blank, u32, struct sums, 1); // too large for the stack
MAP(BPF_MAP_TYPE_PERCPU_ARRAY, scratch, u32, char[MOST_VISIBLE], 1);
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 512 * 1024);
} spans SEC(".maps");

static __always_inline void lose(u32 what)
{
	u64 *times = bpf_map_lookup_elem(&lost, &what);
	if (times)
		__sync_fetch_and_add(times, 1);
}

// --- threads, processes and their devices ---------------------------------------------------------------------------

static __noinline int start_of(struct process_id *id)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	id->pid = bpf_get_current_pid_tgid() >> 32;
	id->zero = 0;
	id->started = BPF_CORE_READ(task, group_leader, start_boottime);
	return 0;
}

// The entry of a thread that calls CUDA for the first time.
static __noinline int add_thread(u32 tid)
{
	struct process_id id = {};
	struct process process = { .cgroup_id = bpf_get_current_cgroup_id() };
	struct thread thread = {};

	start_of(&id);
	thread.device.pid = id.pid;
	thread.device.started = id.started;
	if (!bpf_map_lookup_elem(&processes, &id) && bpf_map_update_elem(&processes, &id, &process, BPF_NOEXIST) &&
	    !bpf_map_lookup_elem(&processes, &id)) {
		lose(FULL_PROCESSES);
		return 0;
	}
	if (bpf_map_update_elem(&threads, &tid, &thread, BPF_NOEXIST))
		lose(FULL_THREADS);
	return 0;
}

static __always_inline struct thread *this_thread(void)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	if (thread)
		return thread;
	add_thread(tid);
	return bpf_map_lookup_elem(&threads, &tid);
}

static __noinline int add_sums(struct device_id *device)
{
	u32 zero = 0;
	struct sums *nothing = bpf_map_lookup_elem(&blank, &zero);

	if (!device || !nothing)
		return 0;
	if (bpf_map_update_elem(&devices, device, nothing, BPF_NOEXIST) && !bpf_map_lookup_elem(&devices, device))
		lose(FULL_DEVICES);
	return 0;
}

static __always_inline struct sums *sums_of(struct device_id *device)
{
	struct sums *found = bpf_map_lookup_elem(&devices, device);

	if (found)
		return found;
	add_sums(device);
	return bpf_map_lookup_elem(&devices, device);
}

static __always_inline struct address_id address_of(struct thread *thread, u64 address)
{
	struct address_id id = { .address = address, .pid = thread->device.pid, .started = thread->device.started };
	return id;
}

// --- busy time ------------------------------------------------------------------------------------------------------
// Each stream is busy from its first launch to the synchronisation that ends it. A device is busy for a process while
// any of its streams is: `open` counts them, and the time from 0 to 1 and back to 0 is one span.

static __always_inline u64 place_of(u64 handle)
{
	return handle ^ handle >> 5 ^ handle >> 12;
}

static __always_inline struct stream *known_stream(struct sums *sums, u64 handle)
{
	u64 first = place_of(handle);

	for (u64 i = 0; i < TRIES; i++) {
		struct stream *stream = &sums->streams[(first + i) % STREAMS];
		if (stream->handle == handle)
			return stream;
	}
	return NULL;
}

static __always_inline struct stream *any_stream(struct sums *sums, u64 handle)
{
	struct stream *stream = known_stream(sums, handle);
	u64 first = place_of(handle);

	if (stream)
		return stream;
	for (u64 i = 0; i < TRIES; i++) {
		stream = &sums->streams[(first + i) % STREAMS];
		u64 other = stream->handle;
		if (!other || !stream->since) // free, or of a stream without work
			if (__sync_val_compare_and_swap(&stream->handle, other, handle) == other)
				return stream;
	}
	lose(FULL_STREAMS);
	return NULL;
}

static __always_inline void begin_work(struct sums *sums, u64 handle, u64 now)
{
	struct stream *stream = any_stream(sums, handle);

	if (!stream)
		return;
	stream->last = now;
	if (!stream->since && !__sync_val_compare_and_swap(&stream->since, 0, now))
		if (!__sync_fetch_and_add(&sums->open, 1))
			sums->open_since = now;
}

static __always_inline void tell_span(struct device_id *device, struct sums *sums)
{
	struct span span = {
		.device = *device,
		.begin = sums->span_begin,
		.end = sums->span_end,
		.active = sums->span_active,
	};

	if (bpf_ringbuf_output(&spans, &span, sizeof(span), BPF_RB_NO_WAKEUP))
		lose(FULL_SPANS);
	sums->span_begin = 0;
	sums->span_active = 0;
}

static __noinline int end_span(struct device_id *device, struct sums *sums, u64 begin, u64 now)
{
	if (!device || !sums)
		return 0;
	__sync_fetch_and_add(&sums->active_ns, now - begin);
	if (sums->span_begin && begin > sums->span_end + SPAN_NS)
		tell_span(device, sums);
	if (!sums->span_begin)
		sums->span_begin = begin;
	sums->span_end = now;
	sums->span_active += now - begin;
	if (now - sums->span_begin >= SPAN_NS)
		tell_span(device, sums);
	return 0;
}

static __always_inline void end_work(struct device_id *device, struct sums *sums, struct stream *stream, u64 now)
{
	if (!stream->since || !__sync_lock_test_and_set(&stream->since, 0))
		return;
	u64 begin = sums->open_since;
	if (__sync_fetch_and_add(&sums->open, -1) != 1 || !begin)
		return;
	// where another thread has begun work meanwhile, the time since then stays open
	__sync_val_compare_and_swap(&sums->open_since, begin, 0);
	end_span(device, sums, begin, now);
}

static __always_inline void end_stream(struct device_id *device, struct sums *sums, u64 handle, u64 now)
{
	struct stream *stream = known_stream(sums, handle);

	if (stream)
		end_work(device, sums, stream, now);
}

static __noinline int end_streams(struct device_id *device, struct sums *sums, u64 now)
{
	if (!device || !sums)
		return 0;
	for (u32 i = 0; i < STREAMS; i++)
		end_work(device, sums, &sums->streams[i], now);
	return 0;
}

// --- the beginning of a call ----------------------------------------------------------------------------------------

static __always_inline struct thread *enter(struct pt_regs *ctx, u32 operation)
{
	struct thread *thread = this_thread();
	u64 sp = PT_REGS_SP(ctx);

	if (!thread)
		return NULL;
	// Stacks grow downwards. A call that was left without returning (longjmp, an exception) has no frame any more.
	if (thread->sp && sp <= thread->sp)
		return NULL;
	thread->sp = sp;
	thread->operation = operation;
	return thread;
}

static __always_inline int call(struct pt_regs *ctx, u32 operation, u64 a, u64 b)
{
	struct thread *thread = enter(ctx, operation);

	if (thread) {
		thread->a = a;
		thread->b = b;
	}
	return 0;
}

static __always_inline int timed(struct pt_regs *ctx, u32 operation, u64 a)
{
	struct thread *thread = enter(ctx, operation);

	if (thread) {
		thread->a = a;
		thread->began = bpf_ktime_get_ns();
	}
	return 0;
}

// Streams: 0 and 1 are the legacy default stream, 2 is the thread's own. The functions for the API with one default
// stream a thread (_ptsz, _ptds) take 0 as the thread's own. No handle ends in these bits: they are addresses.
static __always_inline u64 stream_of(u64 handle, int per_thread)
{
	if (handle == 2 || (!handle && per_thread))
		return (u64)(u32)bpf_get_current_pid_tgid() << 8 | 2;
	return handle ?: 1;
}

static __always_inline u64 on_stack(struct pt_regs *ctx, u32 number)
{
	u64 value = 0;
#if defined(__TARGET_ARCH_x86)
	number++; // the first word is the return address
#endif
	if (bpf_probe_read_user(&value, sizeof(value), (void *)(PT_REGS_SP(ctx) + 8 * number)))
		lose(UNREADABLE);
	return value;
}

static __always_inline u64 volume(u64 xy, u64 z)
{
	return (xy & 0xffffffff) * (xy >> 32) * (u32)z;
}

static __always_inline int launch(struct pt_regs *ctx, int per_thread)
{
#if defined(__TARGET_ARCH_x86)
	u64 stream = on_stack(ctx, 1); // after the bytes of shared memory
#else
	u64 stream = ((struct user_pt_regs *)ctx)->regs[7];
#endif
	u64 threads = volume(PT_REGS_PARM2(ctx), PT_REGS_PARM3(ctx)) * volume(PT_REGS_PARM4(ctx), PT_REGS_PARM5(ctx));
	return call(ctx, LAUNCH, stream_of(stream, per_thread), threads);
}

// cudaLaunchConfig_t and CUlaunchConfig begin alike: grid, block, bytes of shared memory (of another width), stream.
static __always_inline int launch_ex(struct pt_regs *ctx, int per_thread)
{
	struct {
		u32 grid[3], block[3];
		u64 shared, stream;
	} config = {};

	if (bpf_probe_read_user(&config, sizeof(config), (void *)PT_REGS_PARM1(ctx)))
		lose(UNREADABLE);
	u64 threads = (u64)config.grid[0] * config.grid[1] * config.grid[2];
	threads *= (u64)config.block[0] * config.block[1] * config.block[2];
	return call(ctx, LAUNCH, stream_of(config.stream, per_thread), threads);
}

static __always_inline int launch_driver(struct pt_regs *ctx, int per_thread)
{
#if defined(__TARGET_ARCH_x86)
	u64 y = ctx->r9, z = (u32)on_stack(ctx, 0), stream = on_stack(ctx, 2);
#else
	struct user_pt_regs *regs = (struct user_pt_regs *)ctx;
	u64 y = regs->regs[5], z = (u32)regs->regs[6], stream = on_stack(ctx, 0);
#endif
	u64 threads = (PT_REGS_PARM2(ctx) & 0xffffffff) * (u32)PT_REGS_PARM3(ctx) * (u32)PT_REGS_PARM4(ctx);
	threads *= (u64)(u32)PT_REGS_PARM5(ctx) * (u32)y * z;
	return call(ctx, LAUNCH, stream_of(stream, per_thread), threads);
}

static __always_inline int copy(struct pt_regs *ctx, u64 kind, u64 waits_for)
{
	return call(ctx, COPY, (kind < 5 ? kind : 4) | waits_for << 8, PT_REGS_PARM3(ctx));
}

static __always_inline int release(struct pt_regs *ctx)
{
	u64 address = PT_REGS_PARM1(ctx);
	struct thread *thread = enter(ctx, RELEASE);

	if (!thread)
		return 0;
	thread->a = address;
	thread->b = 0;
	// Taken out before the address can be given to somebody else. Where the call fails it is put back.
	struct address_id id = address_of(thread, address);
	struct allocation *known = bpf_map_lookup_elem(&allocations, &id);
	if (known) {
		thread->b = known->bytes;
		thread->ordinal = known->ordinal;
		bpf_map_delete_elem(&allocations, &id);
	}
	return 0;
}

// What a blocking copy to or from the host waits for: the default stream. One between devices waits for nothing.
static __always_inline u64 waited_for(u64 kind, int per_thread)
{
	return kind <= 2 ? stream_of(0, per_thread) : 0;
}

// The cookie of each place says what is called there: a shape, and whether it is of the API with one default stream a
// thread. See functions.py.
enum shape {
	CUDA_LAUNCH = 1,
	CUDA_LAUNCH_EX,
	CU_LAUNCH,
	CUDA_GRAPH_LAUNCH,
	CUDA_ALLOCATE,
	CUDA_FREE,
	CUDA_COPY,
	CUDA_COPY_ASYNC,
	CU_COPY_TO_DEVICE,
	CU_COPY_TO_DEVICE_ASYNC,
	CU_COPY_TO_HOST,
	CU_COPY_TO_HOST_ASYNC,
	CU_COPY_ON_DEVICE,
	CU_COPY,
	CUDA_STREAM_SYNC,
	CUDA_DEVICE_SYNC,
	CUDA_EVENT_RECORD,
	CUDA_EVENT_QUERY,
	CUDA_EVENT_SYNC,
	CUDA_EVENT_DESTROY,
	CUDA_SET_DEVICE,
	PER_THREAD = 1 << 8,
};

SEC("uprobe") int entered(struct pt_regs *ctx)
{
	u64 cookie = bpf_get_attach_cookie(ctx), first = PT_REGS_PARM1(ctx);
	int per_thread = !!(cookie & PER_THREAD);

	switch (cookie & ~PER_THREAD) {
	case CUDA_LAUNCH:
		return launch(ctx, per_thread);
	case CUDA_LAUNCH_EX:
		return launch_ex(ctx, per_thread);
	case CU_LAUNCH:
		return launch_driver(ctx, per_thread);
	case CUDA_GRAPH_LAUNCH:
		return call(ctx, GRAPH_LAUNCH, stream_of(PT_REGS_PARM2(ctx), per_thread), 0);
	case CUDA_ALLOCATE:
		return call(ctx, ALLOCATE, first, PT_REGS_PARM2(ctx));
	case CUDA_FREE:
		return release(ctx);
	case CUDA_COPY:
		return copy(ctx, (u32)PT_REGS_PARM4(ctx), waited_for((u32)PT_REGS_PARM4(ctx), per_thread));
	case CUDA_COPY_ASYNC:
		return copy(ctx, (u32)PT_REGS_PARM4(ctx), 0);
	case CU_COPY_TO_DEVICE:
		return copy(ctx, 1, waited_for(1, per_thread));
	case CU_COPY_TO_DEVICE_ASYNC:
		return copy(ctx, 1, 0);
	case CU_COPY_TO_HOST:
		return copy(ctx, 2, waited_for(2, per_thread));
	case CU_COPY_TO_HOST_ASYNC:
		return copy(ctx, 2, 0);
	case CU_COPY_ON_DEVICE:
		return copy(ctx, 3, 0);
	case CU_COPY:
		return copy(ctx, 4, 0);
	case CUDA_STREAM_SYNC:
		return timed(ctx, STREAM_SYNC, stream_of(first, per_thread));
	case CUDA_DEVICE_SYNC:
		return timed(ctx, DEVICE_SYNC, 0);
	case CUDA_EVENT_RECORD:
		return call(ctx, EVENT_RECORD, first, stream_of(PT_REGS_PARM2(ctx), per_thread));
	case CUDA_EVENT_QUERY:
		return call(ctx, EVENT_QUERY, first, 0);
	case CUDA_EVENT_SYNC:
		return timed(ctx, EVENT_SYNC, first);
	case CUDA_EVENT_DESTROY:
		return call(ctx, EVENT_DESTROY, first, 0);
	case CUDA_SET_DEVICE:
		return call(ctx, SET_DEVICE, (u32)first, 0);
	}
	return 0;
}

// --- the end of a call ----------------------------------------------------------------------------------------------

static __noinline int count_error(struct device_id *device, u32 code)
{
	if (!device)
		return 0;
	struct error_id id = { .pid = device->pid, .ordinal = device->ordinal, .started = device->started, .code = code };
	u64 *times = bpf_map_lookup_elem(&errors, &id), one = 1;

	if (times)
		__sync_fetch_and_add(times, 1);
	else if (bpf_map_update_elem(&errors, &id, &one, BPF_NOEXIST)) {
		times = bpf_map_lookup_elem(&errors, &id); // another thread has just put it in
		if (times)
			__sync_fetch_and_add(times, 1);
		else
			lose(FULL_ERRORS);
	}
	return 0;
}

static __noinline int allocated(struct thread *thread, struct sums *sums, u32 code)
{
	if (!thread || !sums)
		return 0;
	if (code) {
		__sync_fetch_and_add(&sums->failed_allocations, 1);
		return 0;
	}
	__sync_fetch_and_add(&sums->allocations, 1);
	u64 address = 0;
	if (bpf_probe_read_user(&address, sizeof(address), (void *)thread->a)) {
		lose(UNREADABLE);
		return 0;
	}
	if (!address)
		return 0; // of no bytes
	struct address_id id = address_of(thread, address);
	struct allocation allocation = { .bytes = thread->b, .ordinal = thread->device.ordinal };
	if (bpf_map_update_elem(&allocations, &id, &allocation, BPF_ANY)) {
		lose(FULL_ALLOCATIONS); // its release could not be told: it does not count as memory in use
		return 0;
	}
	u64 now = __sync_fetch_and_add(&sums->memory, thread->b) + thread->b;
	u64 peak = sums->peak;
	for (u32 i = 0; i < 8 && now > peak; i++) {
		u64 seen = __sync_val_compare_and_swap(&sums->peak, peak, now);
		if (seen == peak)
			break;
		peak = seen;
	}
	return 0;
}

static __noinline int released(struct thread *thread, u32 code)
{
	if (!thread || !thread->a)
		return 0; // cudaFree(NULL) is a way to begin with CUDA
	struct device_id device = thread->device;
	if (thread->b)
		device.ordinal = thread->ordinal; // any device may be the thread's by now
	struct address_id id = address_of(thread, thread->a);
	if (code) {
		struct allocation allocation = { .bytes = thread->b, .ordinal = thread->ordinal };
		if (thread->b)
			bpf_map_update_elem(&allocations, &id, &allocation, BPF_NOEXIST);
		return 0;
	}
	struct sums *sums = sums_of(&device);
	if (!sums)
		return 0;
	__sync_fetch_and_add(&sums->frees, 1);
	__sync_fetch_and_add(&sums->freed, thread->b);
	__sync_fetch_and_add(&sums->memory, -thread->b);
	return 0;
}

static __noinline int event_recorded(struct thread *thread, u64 now)
{
	if (!thread)
		return 0;
	struct address_id id = address_of(thread, thread->a);
	struct event event = { .recorded = now, .stream = thread->b, .ordinal = thread->device.ordinal };
	bpf_map_update_elem(&events, &id, &event, BPF_ANY);
	return 0;
}

// An event that has happened ends the work of its stream if nothing was launched since it was recorded.
static __noinline int event_happened(struct thread *thread, u64 now)
{
	if (!thread)
		return 0;
	struct address_id id = address_of(thread, thread->a);
	struct event *event = bpf_map_lookup_elem(&events, &id);
	if (!event)
		return 0;
	struct device_id device = thread->device;
	device.ordinal = event->ordinal;
	struct sums *sums = bpf_map_lookup_elem(&devices, &device);
	if (!sums)
		return 0;
	struct stream *stream = known_stream(sums, event->stream);
	if (stream && stream->last <= event->recorded)
		end_work(&device, sums, stream, now);
	return 0;
}

static __noinline int count_sync(struct thread *thread, struct sums *sums, u64 now)
{
	if (!thread || !sums)
		return 0;
	__sync_fetch_and_add(&sums->syncs, 1);
	__sync_fetch_and_add(&sums->sync_ns, now - thread->began);
	return 0;
}

SEC("uretprobe") int returned(struct pt_regs *ctx)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	u64 sp = PT_REGS_SP(ctx);

#if defined(__TARGET_ARCH_x86)
	sp -= 8; // the return address is off the stack
#endif
	if (!thread || !thread->sp || thread->sp != sp)
		return 0;
	thread->sp = 0;

	u32 code = (u32)PT_REGS_RC(ctx), operation = thread->operation;
	struct device_id device = thread->device;
	struct sums *sums = sums_of(&device);
	if (!sums)
		return 0;
	u64 now = bpf_ktime_get_ns();
	if (code && code != NOT_READY)
		count_error(&device, code);
	switch (operation) {
	case LAUNCH: // a: stream, b: threads
		__sync_fetch_and_add(&sums->launches, 1);
		if (!code) {
			__sync_fetch_and_add(&sums->threads, thread->b);
			begin_work(sums, thread->a, now);
		}
		break;
	case GRAPH_LAUNCH: // a: stream
		__sync_fetch_and_add(&sums->graph_launches, 1);
		if (!code)
			begin_work(sums, thread->a, now);
		break;
	case ALLOCATE: // a: where the address is put, b: bytes
		allocated(thread, sums, code);
		break;
	case RELEASE: // a: address, b: bytes
		released(thread, code);
		break;
	case COPY: { // a: kind, and above its byte the stream that it waits for; b: bytes
		u32 kind = thread->a & 0xff;
		if (kind > 4)
			break;
		__sync_fetch_and_add(&sums->copies[kind], 1);
		if (code)
			break;
		__sync_fetch_and_add(&sums->copied[kind], thread->b);
		if (thread->a >> 8)
			end_stream(&device, sums, thread->a >> 8, now);
		break;
	}
	case STREAM_SYNC: // a: stream
		count_sync(thread, sums, now);
		if (!code)
			end_stream(&device, sums, thread->a, now);
		break;
	case DEVICE_SYNC:
		count_sync(thread, sums, now);
		if (!code)
			end_streams(&device, sums, now);
		break;
	case EVENT_RECORD: // a: event, b: stream
		if (!code)
			event_recorded(thread, now);
		break;
	case EVENT_SYNC: // a: event
		count_sync(thread, sums, now);
		if (!code)
			event_happened(thread, now);
		break;
	case EVENT_QUERY: // a: event
		if (!code)
			event_happened(thread, now);
		break;
	case EVENT_DESTROY: { // a: event
		struct address_id id = address_of(thread, thread->a);
		bpf_map_delete_elem(&events, &id);
		break;
	}
	case SET_DEVICE: // a: ordinal
		if (!code)
			thread->device.ordinal = thread->a;
		break;
	}
	return 0;
}

// --- what a program sets itself, and its end ------------------------------------------------------------------------

// CUDA reads CUDA_VISIBLE_DEVICES with the first call: what is set later changes nothing.
SEC("uprobe") int setenv_called(struct pt_regs *ctx)
{
	static const char wanted[] = "CUDA_VISIBLE_DEVICES";
	char name[sizeof(wanted)] = {};
	u32 zero = 0;

	if (bpf_probe_read_user_str(name, sizeof(name), (void *)PT_REGS_PARM1(ctx)) != sizeof(wanted))
		return 0;
	for (u32 i = 0; i < sizeof(wanted); i++)
		if (name[i] != wanted[i])
			return 0;
	struct process_id id = {};
	start_of(&id);
	if (bpf_map_lookup_elem(&processes, &id))
		return 0;
	char *value = bpf_map_lookup_elem(&scratch, &zero);
	if (!value || bpf_probe_read_user_str(value, MOST_VISIBLE, (void *)PT_REGS_PARM2(ctx)) < 0)
		return 0;
	bpf_map_update_elem(&visible, &id, value, BPF_ANY);
	return 0;
}

SEC("raw_tp/sched_process_exit") int thread_ended(void *ctx)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	if (!thread)
		return 0;
	struct process_id id = { .pid = thread->device.pid, .started = thread->device.started };
	struct process *process = bpf_map_lookup_elem(&processes, &id);
	if (process)
		process->thread_ended = bpf_ktime_get_ns();
	bpf_map_delete_elem(&threads, &tid);
	return 0;
}
