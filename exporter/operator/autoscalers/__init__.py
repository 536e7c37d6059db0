"""The object that scales for a GPUAutoscaler, and its status. Pure."""
