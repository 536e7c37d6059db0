"""The API server's proxy: a GET below services/…/proxy or pods/…/proxy, passed on to a real server on loopback.

A real API server refuses loopback addresses, and this one has no other. It answers in a real one's words where there is
nobody to pass a request on to (registry/core/service/storage and apimachinery/pkg/util/proxy of Kubernetes 1.36).
"""

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from tests.support.api_server.answers import Object, Refused, not_found
from tests.support.api_server.requests import Path
from tests.support.api_server.store import Key, Store

SUBRESOURCE = "proxy"
_SECONDS = 20.0
# what is not passed on: whom the client is belongs to the API server, and aiohttp writes lengths and encodings itself
_REQUEST, _ANSWER = {"authorization", "host"}, {"content-length", "content-encoding", "transfer-encoding", "connection"}


async def pass_on(store: Store, path: Path, request: web.Request) -> web.Response:
    """What the server behind a Service, or in a pod, answers.

    Raises:
        Refused: 404, the object is not there. 503, no address, or nobody answers at it.
    """
    scheme, name, port = _parts(path.name)
    host, number = (_of_pod if path.plural == "pods" else _of_service)(store, path, name, port)
    below = request.raw_path.partition(f"/{path.name}/{SUBRESOURCE}")[2]
    headers = {key: value for key, value in request.headers.items() if key.lower() not in _REQUEST}
    url = f"{scheme}://{host}:{number}{below or '/'}"
    try:
        async with (
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_SECONDS), connector=aiohttp.TCPConnector(ssl=False)
            ) as session,
            session.get(url, headers=headers, allow_redirects=False) as answer,
        ):
            kept = CIMultiDict(pair for pair in answer.headers.items() if pair[0].lower() not in _ANSWER)
            return web.Response(status=answer.status, body=await answer.read(), headers=kept)
    except (aiohttp.ClientError, TimeoutError) as error:
        why = f"dial tcp {host}:{number}: connect: connection refused"
        if not isinstance(error, aiohttp.ClientConnectorError):
            why = "EOF"
        raise Refused(503, "ServiceUnavailable", f"error trying to reach service: {why}") from error


def _parts(name: str) -> tuple[str, str, str]:
    """Scheme, name and port of NAME, NAME:PORT or SCHEME:NAME:PORT."""
    *scheme, name, port = name.split(":") if ":" in name else (name, "")
    return "".join(scheme) or "http", name, port


def _of_pod(store: Store, path: Path, name: str, port: str) -> tuple[str, str]:
    pod = _there(store, path, "pods", name)
    address = (pod.get("status") or {}).get("podIP", "")
    if not address:
        raise Refused(400, "BadRequest", "address not allowed")
    return address, port or str(pod["spec"]["containers"][0]["ports"][0]["containerPort"])


def _of_service(store: Store, path: Path, name: str, port: str) -> tuple[str, str]:
    service = _there(store, path, "services", name)
    ports = service["spec"]["ports"]
    names = [each.get("name", "") for each in ports if port in ("", each.get("name"), str(each["port"]))]
    for _, item in store.all("endpointslices.discovery.k8s.io", path.namespace):
        if item["metadata"].get("labels", {}).get("kubernetes.io/service-name") != name or not names:
            continue
        numbers = [each["port"] for each in item["ports"] if each.get("name", "") == names[0]]
        addresses = [
            each["addresses"][0] for each in item["endpoints"] if (each.get("conditions") or {}).get("ready", True)
        ]
        if numbers and addresses:
            return addresses[0], str(numbers[0])
    if not names:
        raise Refused(503, "ServiceUnavailable", f'no service port "{port}" found for service "{name}"')
    raise Refused(503, "ServiceUnavailable", f'no endpoints available for service "{path.name}"')


def _there(store: Store, path: Path, plural: str, name: str) -> Object:
    item = store.get(Key(plural, path.namespace, name))
    if item is None:
        raise not_found("", plural, name)
    return item
