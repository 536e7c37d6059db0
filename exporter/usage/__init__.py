"""The use of shared GPUs by their owners: cgroups, containers, processes, and CUDA's owners and totals. Pure."""
