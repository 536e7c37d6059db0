"""The CUDA probe: what programs ask of the GPU, counted in the kernel by uprobes on the CUDA libraries."""
