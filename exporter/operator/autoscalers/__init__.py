"""What a GPUAutoscaler stands for, and what is true of it. Pure."""
