"""What requests to the simulated Kubernetes API are about, and how a real one refuses them."""

from typing import Any

from aiohttp import web

Object = dict[str, Any]
# The collections of namespaces, by the kinds of their objects.
COLLECTIONS = {
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
}


def key_of(item: Object) -> str:
    """By which an object of a namespace is known here."""
    metadata = item["metadata"]
    return f"{COLLECTIONS[item['kind']].format(namespace=metadata['namespace'])} {metadata['name']}"


def is_meant(request: web.Request, key: str, item: Object) -> bool:
    """Whether a request's path and labels are about an object."""
    path = "/resourceslices" if request.path.endswith("/resourceslices") else request.path
    wanted = filter(None, request.query.get("labelSelector", "").split(","))
    labels = item["metadata"].get("labels") or {}
    return key.startswith(f"{path} ") and all(
        labels.get(pair.partition("=")[0]) == pair.partition("=")[2] for pair in wanted
    )


def resource_of(path: str) -> tuple[str, str]:
    """The API group and the resource of a collection's path."""
    parts = path.strip("/").split("/")
    return (parts[1] if parts[0] == "apis" else ""), parts[-1]


def forbidden(path: str, namespace: str, verb: str = "list") -> web.Response:
    """What RBAC says of a collection, in a real API server's words."""
    group, resource = resource_of(path)
    message = (
        f'{resource} is forbidden: User "system:serviceaccount:simulated" cannot {verb} resource "{resource}"'
        f' in API group "{group}"' + (f' in the namespace "{namespace}"' if namespace else " at the cluster scope")
    )
    return web.json_response(status_of(403, "Forbidden", message, details={"kind": resource}), status=403)


def status_of(code: int, reason: str, message: str, **more: Object) -> Object:
    """The object that says why a request failed."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return {**status, "reason": reason, **more, "code": code}
