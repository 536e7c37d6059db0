"""A simulated Kubernetes API server that writes: objects, server-side apply, garbage collection, faults."""
