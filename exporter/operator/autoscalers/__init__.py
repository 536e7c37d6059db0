"""The object that scales for a GPUAutoscaler, and the GPUAutoscaler's status. Pure."""
