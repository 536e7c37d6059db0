// The beginning of a call: what its arguments say, kept with the thread until it returns.
//
// Arguments are read as the ABI has them. A dim3 (three 32-bit numbers) is passed in two registers, in x86-64's
// System V ABI and in AArch64's.

#pragma once
#include "busy.bpf.h"
#include "threads.bpf.h"

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

// What a call waits for is the work there is when it begins.
static __always_inline void note_works(struct thread *thread)
{
	struct device_id device = thread->device;
	struct sums *sums = bpf_map_lookup_elem(&devices, &device);

	thread->works = sums ? works_of(sums) : 0;
}

static __always_inline int timed(struct pt_regs *ctx, u32 operation, u64 a)
{
	struct thread *thread = enter(ctx, operation);

	if (thread) {
		thread->a = a;
		note_works(thread);
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

// Whether it is the default stream, of which each device has one of its own.
static __always_inline int is_default(u64 stream)
{
	return stream == 1 || (stream & 0xff) == 2;
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
	struct thread *thread = enter(ctx, COPY);

	if (!thread)
		return 0;
	thread->a = (kind < 5 ? kind : 4) | waits_for << 8;
	thread->b = PT_REGS_PARM3(ctx);
	if (waits_for)
		note_works(thread);
	return 0;
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
