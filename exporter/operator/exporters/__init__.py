"""What a GPUExporter stands for, and what is true of it. Pure."""
