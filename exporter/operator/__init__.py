"""The operator: it makes the objects that a GPUExporter or a GPUAutoscaler describes.

Pure functions decide what these objects should be: `exporters`, `autoscalers` and `objects`. `api` reads, watches and
writes the Kubernetes API. The files here join the two.
"""
