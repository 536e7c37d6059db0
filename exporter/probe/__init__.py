"""The CUDA probe: it counts in the kernel what programs ask of the GPU."""
