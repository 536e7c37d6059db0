// Nothing: what a place costs a program by itself, for benchmarks/probe.py.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("uprobe") int entered(void *ctx)
{
	return 0;
}

SEC("uretprobe") int returned(void *ctx)
{
	return 0;
}
