"""The objects of a GPUExporter, the troubles of its nodes, and its status. Pure."""
