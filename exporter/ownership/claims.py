"""ResourceClaims: which of their devices were allocated with admin access. Who has such a device looks at it.

`status.allocation.devices.results` of a ResourceClaim has an entry for each device that was allocated to one of its
requests: `{"request", "driver", "pool", "device", "adminAccess": true}`. Monitoring asks for GPUs this way (NVIDIA's
GPU operator gives it to dcgm-exporter and its validators), beside those who hold them. The kubelet lists both alike.

NVIDIA's DRA driver keeps the whole status of each claim that it has prepared in a file of its own, checkpoint.json,
before the kubelet names the claim's devices:

    {"checksum": 1, "v1": {"preparedClaims": {"<claim's uid>": {"status": {"allocation": …}, "preparedDevices": […]}}},
     "v2": {"checksum": 2, "preparedClaims": {"<claim's uid>": {"checkpointState": "PrepareCompleted", "status": …}}}}

The uid of a claim stands in the names of its CDI devices: `k8s.gpu.nvidia.com/claim=<uid>-gpu-3`.

Pure.
"""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.lenient import AnyObject, mapping, mappings, text
from exporter.model.devices import Claim

MOST_RESULTS = 4096  # of a claim; Kubernetes allows 32
_UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_UID_IN_CDI_NAME = re.compile(rf"[^=]+/claim=({_UID})-.+")
_VERSIONS = ("v1", "v2")  # of the checkpoint; what a later one says counts

# the devices of a claim (driver, pool and name), and whether all requests that got it have admin access
AdminAccess = Mapping[tuple[str, str, str], bool]
ClaimName = tuple[str, str]  # namespace and name


def read_status(status: AnyObject) -> AdminAccess:
    """The devices of a ResourceClaim's status, also of one that is not as specified; none before it is allocated."""
    devices: dict[tuple[str, str, str], bool] = {}
    for result in mappings(mapping(status, "allocation", "devices"), "results", MOST_RESULTS):
        device = (text(result, "driver"), text(result, "pool"), text(result, "device"))
        devices[device] = result.get("adminAccess") is True and devices.get(device, True)
    return devices


def read_checkpoint(content: object) -> Mapping[str, AdminAccess]:
    """The claims of a driver's checkpoint, by uid. Raises ValueError: it has another form."""
    versions = [mapping(content, version) for version in _VERSIONS if mapping(content, version)]
    if not versions:
        raise ValueError(f"it has none of {', '.join(_VERSIONS)}")
    claims: dict[str, AdminAccess] = {}
    for version in versions:
        for uid, claim in mapping(version, "preparedClaims").items():
            devices = read_status(mapping(claim, "status"))
            if devices:
                claims[uid] = devices
    return claims


def uid_of(claim: Claim) -> str:
    """A claim's uid by the names of its CDI devices, as NVIDIA's driver names them; "" where they do not say it."""
    matches = map(_UID_IN_CDI_NAME.fullmatch, claim.cdi_names)
    uids = {match[1] for match in matches if match}
    return uids.pop() if len(uids) == 1 else ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownClaims:
    """What is known of claims: by the driver's checkpoint (`by_uid`), and by the Kubernetes API (`by_name`, with uid).

    Where neither says anything of a device, claims of `admin_namespaces` have admin access. Both were asked of the
    claims in `asked_of`, so more will not be known of these soon; None: nobody is asked of any claim.
    """

    by_uid: Mapping[str, AdminAccess] = field(default_factory=lambda: MappingProxyType({}))
    by_name: Mapping[ClaimName, tuple[str, AdminAccess]] = field(default_factory=lambda: MappingProxyType({}))
    admin_namespaces: AbstractSet[str] = frozenset()
    asked_of: AbstractSet[Claim] | None = None

    def access(self, claim: Claim) -> bool | None:
        """Whether a claim has its device by admin access; None where nobody has said it."""
        device, uid = (claim.driver, claim.pool, claim.device), uid_of(claim)
        by_checkpoint = self.by_uid.get(uid, {}).get(device)
        if by_checkpoint is not None:
            return by_checkpoint
        uid_by_api, devices = self.by_name.get((claim.namespace, claim.name), ("", {}))
        # another claim may have had the name
        return devices.get(device) if not uid or uid == uid_by_api else None

    def is_to_be_asked(self, claim: Claim) -> bool:
        """Whether it may yet turn out to have admin access: until then nobody is known to hold its device."""
        return self.asked_of is not None and claim not in self.asked_of and self.access(claim) is None

    def is_look(self, claim: Claim) -> bool:
        """Whether who has this device looks at it and does not hold it."""
        access = self.access(claim)
        return claim.namespace in self.admin_namespaces if access is None else access


NO_CLAIMS = KnownClaims()
