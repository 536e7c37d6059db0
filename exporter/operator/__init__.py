"""The operator: GPUExporter and GPUAutoscaler → the objects that do what they say.

Pure functions decide what these objects should be: `exporters`, `autoscalers` and `objects`. `api` reads, watches and
writes the Kubernetes API. The files here join the two.
"""
