"""Who used how much of what is shared: cgroups, containers, processes, and CUDA's owners and totals. Pure."""
