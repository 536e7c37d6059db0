// Counts what programs ask of the GPU: uprobes and uretprobes on the functions of libcudart and libcuda.
//
// Rules:
// - Nothing wakes user space: the maps are read when somebody wants to know.
// - A call counts once. The runtime calls the driver, and a file may be probed by two of its names: while a thread is
//   in a call, what it enters below (or at the same place of its stack) is part of that call.
// - Every map has a limit. What does not fit is counted in `lost`, and nothing else breaks.
// - Nothing is written to the memory of a program.
//
// See functions.py for the functions.

#include "arguments.bpf.h"
#include "busy.bpf.h"

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

static __noinline int event_recorded(struct thread *thread, struct sums *sums)
{
	if (!thread || !sums)
		return 0;
	struct address_id id = address_of(thread, thread->a);
	struct event event = { .recorded = works_of(sums), .stream = thread->b, .ordinal = thread->device.ordinal };
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
	if (operation == SET_DEVICE && !code) { // a: ordinal
		thread->device.ordinal = thread->a; // nothing is asked of the device before
		return 0;
	}
	struct device_id device = thread->device;
	struct sums *sums = sums_of(&device);
	if (!sums)
		return 0;
	if (code && code != NOT_READY)
		count_error(&device, code);
	u64 now; // asked for where it is needed: it takes longer than all else that a launch does here
	switch (operation) {
	case LAUNCH: // a: stream, b: threads
		__sync_fetch_and_add(&sums->launches, 1);
		if (!code) {
			__sync_fetch_and_add(&sums->threads, thread->b);
			begin_work(sums, thread->a);
		}
		break;
	case GRAPH_LAUNCH: // a: stream
		__sync_fetch_and_add(&sums->graph_launches, 1);
		if (!code)
			begin_work(sums, thread->a);
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
			end_stream(&device, sums, thread->a >> 8, bpf_ktime_get_ns());
		break;
	}
	case STREAM_SYNC: // a: stream
		now = bpf_ktime_get_ns();
		count_sync(thread, sums, now);
		if (!code)
			end_stream(&device, sums, thread->a, now);
		break;
	case DEVICE_SYNC:
		now = bpf_ktime_get_ns();
		count_sync(thread, sums, now);
		if (!code)
			end_streams(&device, sums, now);
		break;
	case EVENT_RECORD: // a: event, b: stream
		if (!code)
			event_recorded(thread, sums);
		break;
	case EVENT_SYNC: // a: event
		now = bpf_ktime_get_ns();
		count_sync(thread, sums, now);
		if (!code)
			event_happened(thread, now);
		break;
	case EVENT_QUERY: // a: event
		if (!code)
			event_happened(thread, bpf_ktime_get_ns());
		break;
	case EVENT_DESTROY: { // a: event
		struct address_id id = address_of(thread, thread->a);
		bpf_map_delete_elem(&events, &id);
		break;
	}
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
