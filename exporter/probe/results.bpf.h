// The end of a call: what its return code and its results say.

#pragma once
#include "busy.bpf.h"
#include "threads.bpf.h"

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

// Errors after which the process' work on its devices is over: every call fails from then on, those that wait included.
static __always_inline int is_lasting(u32 code)
{
	switch (code) {
	case 214: // uncorrectable ECC error
	case 226: // contained error
	case 700: // illegal address
	case 702: // launch timeout
	case 710: // assert
	case 714 ... 719: // errors of a kernel's stack, instructions and addresses, launch failure
	case 721: // memory of a tensor core not given back
		return 1;
	}
	return 0;
}

// An address that is given out again was released in a way that is not probed, such as cudaDeviceReset.
static __always_inline void release_unseen(struct thread *thread, struct address_id *id)
{
	struct allocation *before = bpf_map_lookup_elem(&allocations, id);
	struct device_id device = thread->device;

	if (!before)
		return;
	device.ordinal = before->ordinal;
	struct sums *sums = bpf_map_lookup_elem(&devices, &device);
	if (sums)
		__sync_fetch_and_add(&sums->memory, -before->bytes);
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
	release_unseen(thread, &id);
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
	end_stream(&device, sums, event->stream, event->recorded, now);
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
