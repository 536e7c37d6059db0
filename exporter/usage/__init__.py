"""Who used how much of a shared GPU, by processes and their kernels. Pure."""
