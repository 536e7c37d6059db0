// What is counted, and where: the maps and their entries. records.py reads them with the same layout.

#pragma once
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
#define MOST_ORDINALS 16	   // devices of a process among which the one of a stream is looked for
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
	u64 last;   // how many launches there were with its last one
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
	STREAM_END,
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
	u64 works; // of a call that waits: how many launches there were before
	u64 a, b;  // the call's arguments, by operation: see `returned`
	u32 operation;
	u32 ordinal; // of an allocation that is being released
};

struct event {
	u64 recorded; // how many launches there were before
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
