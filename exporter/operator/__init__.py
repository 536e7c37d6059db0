"""The operator: GPUExporter and GPUAutoscaler → the objects that do what they say.

What these objects should be is decided by pure functions: `exporters`, `autoscalers`, `objects`. `api` is how the
Kubernetes API is asked, watched and written to; the files here join the two.
"""
