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
#include "results.bpf.h"

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
	CUDA_STREAM_END,
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
	case CUDA_STREAM_END:
		return call(ctx, STREAM_END, stream_of(first, per_thread), 0);
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
	u64 now;      // asked for where it is needed: it takes longer than all else that a launch does here
	u64 done = 0; // up to which launch all streams of the device are done
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
			end_stream(&device, sums, thread->a >> 8, thread->works, bpf_ktime_get_ns());
		break;
	}
	case STREAM_SYNC: // a: stream
		now = bpf_ktime_get_ns();
		count_sync(thread, sums, now);
		if (!code && !end_stream(&device, sums, thread->a, thread->works, now) && !is_default(thread->a))
			end_stream_elsewhere(&device, thread->a, now);
		break;
	case STREAM_END: // a: stream. What was captured never ran; of one that is destroyed nothing more is heard
		now = bpf_ktime_get_ns();
		if (!end_stream(&device, sums, thread->a, -1, now) && !is_default(thread->a))
			end_stream_elsewhere(&device, thread->a, now);
		break;
	case DEVICE_SYNC:
		now = bpf_ktime_get_ns();
		count_sync(thread, sums, now);
		if (!code)
			done = thread->works;
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
	if (is_lasting(code))
		done = -1;
	if (done)
		end_streams(&device, sums, done, bpf_ktime_get_ns());
	return 0;
}

// --- what a program sets itself, and its end ------------------------------------------------------------------------

// CUDA reads CUDA_VISIBLE_DEVICES with the first call: what is set later changes nothing.
SEC("uprobe") int setenv_called(struct pt_regs *ctx)
{
	static const char wanted[] = "CUDA_VISIBLE_DEVICES";
	char name[sizeof(wanted) + 1] = {}; // a longer name is cut to this, and is another one
	u32 zero = 0;

	// without its third argument it leaves a variable that is there as it is: /proc tells
	if (!(u32)PT_REGS_PARM3(ctx))
		return 0;
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

static __noinline int forget_thread(u32 tid)
{
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

SEC("raw_tp/sched_process_exit") int thread_ended(void *ctx)
{
	return forget_thread(bpf_get_current_pid_tgid());
}

// A thread that executes another program goes on as the first of its process, with that one's number.
SEC("raw_tp/sched_process_exec") int program_replaced(struct bpf_raw_tracepoint_args *ctx)
{
	forget_thread(ctx->args[1]); // the number that it had
	return forget_thread(bpf_get_current_pid_tgid());
}
