"""The source of single ResourceClaims, by name. Claims name no node: a watch would send the whole cluster's claims."""

import asyncio
from urllib.parse import quote

from exporter.errors import SourceError, Unsupported
from exporter.lenient import mapping, text
from exporter.model.snapshot import Health
from exporter.ownership.admin_access import AdminAccess, read_status
from exporter.sources.kubernetes.api import KubernetesApi
from exporter.sources.kubernetes.node_objects import SLICE_VERSIONS
from exporter.sources.source import NO_BOUNDS, Attempt, Bounds, absent

AT_ONCE = 8


class ApiClaims:
    """ResourceClaims by the Kubernetes API. It raises failures, which the caller reports."""

    name = "resourceclaims"
    patience_seconds = 0.0
    bounds: Bounds = NO_BOUNDS
    health: Health = absent(
        "a claim that is not known is asked for again", "the log says why each kind of failure came"
    )

    def __init__(self, *, api: KubernetesApi) -> None:
        self._api = api
        self._versions: tuple[str, ...] = SLICE_VERSIONS
        self._places = asyncio.Semaphore(AT_ONCE)

    async def close(self) -> None:
        """Close the connections to the API."""
        await self._api.close()

    def begin(self) -> Attempt | None:
        """Begin nothing: the API is asked only when a claim is named."""
        return None

    async def get(self, namespace: str, name: str) -> tuple[str, AdminAccess]:
        """The uid of the claim, and its devices. Raises SourceError: the API does not answer, or has no such claim."""
        error: SourceError | None = None
        named = f"namespaces/{quote(namespace, '')}/resourceclaims/{quote(name, '')}"
        async with self._places:
            for version in self._versions:
                try:
                    claim = await self._api.get(f"/apis/resource.k8s.io/{version}/{named}")
                except Unsupported as why:
                    # the API may lack this version, or the claim
                    error = error or why
                    continue
                self._versions = (version, *(other for other in SLICE_VERSIONS if other != version))
                return text(mapping(claim, "metadata"), "uid"), read_status(mapping(claim, "status"))
        raise error or Unsupported("the Kubernetes API serves no ResourceClaims", remedy="is it older than 1.32?")
