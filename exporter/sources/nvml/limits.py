"""The most that is taken of what NVML says."""

MOST_GPUS = 256
MOST_PROCESSES = 4096
