"""The CUDA probe: uprobes on the CUDA libraries count, in the kernel, the requests of programs to the GPU."""
