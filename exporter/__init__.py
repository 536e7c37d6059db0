"""dcgm-exporter's GPU metrics with the pod, namespace and container that own each GPU."""

import os

__version__ = "0.1.0"
# The commit that an image was built from; the Dockerfile sets it.
__revision__ = os.environ.get("EXPORTER_REVISION") or "unknown"
