"""dcgm-exporter's GPU metrics with the pod, namespace and container that own each GPU."""

__version__ = "0.1.0"
