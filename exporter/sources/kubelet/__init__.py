"""The kubelet's two sockets: pod-resources and the Pods API."""
