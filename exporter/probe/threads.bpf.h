// Threads that call CUDA, the processes that they are of, and what is summed up for each of their devices.

#pragma once
#include "layout.bpf.h"

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
	// The thread first: a process none of whose threads is known would never be seen to end. BPF_ANY: the place may
	// still be that of a thread whose number this one has now.
	if (bpf_map_update_elem(&threads, &tid, &thread, BPF_ANY)) {
		lose(FULL_THREADS);
		return 0;
	}
	if (!bpf_map_lookup_elem(&processes, &id) && bpf_map_update_elem(&processes, &id, &process, BPF_NOEXIST) &&
	    !bpf_map_lookup_elem(&processes, &id)) {
		lose(FULL_PROCESSES);
		bpf_map_delete_elem(&threads, &tid);
	}
	return 0;
}

static __always_inline struct thread *this_thread(void)
{
	u64 both = bpf_get_current_pid_tgid();
	u32 tid = both;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	if (thread && thread->device.pid == both >> 32)
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
