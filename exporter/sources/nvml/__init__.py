"""NVML, NVIDIA's management library, by NVIDIA's own bindings."""
