"""The operator: GPUExporter and GPUAutoscaler → the objects that do what they say.

`kopf` alone watches; what an object should be is decided by pure functions.
"""
