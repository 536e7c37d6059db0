"""ResourceClaims, and their devices with admin access. A container with such a device only looks at it.

`status.allocation.devices.results` of a ResourceClaim has an entry for each device that was allocated to one of its
requests: `{"request", "driver", "pool", "device", "adminAccess": true}`. Monitoring asks for GPUs this way (as NVIDIA's
GPU operator does for dcgm-exporter and its validators), while other containers hold them. The kubelet lists both alike.

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

from exporter.lenient import AnyObject, mapping, mappings, text
from exporter.model.devices import Claim
from exporter.model.nothing import nothing

MOST_RESULTS = 4096  # devices of one claim; Kubernetes allows 32
_UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_UID_IN_CDI_NAME = re.compile(rf"[^=]+/claim=({_UID})-.+")
_VERSIONS = ("v1", "v2")  # the checkpoint's versions; where two differ, the later one counts

# By a claim's device (driver, pool and name): whether all requests that got the device have admin access.
AdminAccess = Mapping[tuple[str, str, str], bool]
ClaimName = tuple[str, str]  # namespace and name


def read_status(status: AnyObject) -> AdminAccess:
    """The devices of a ResourceClaim's status, even if it is not as specified; none before the claim is allocated."""
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
    """A claim's uid, from the names that NVIDIA's driver gives its CDI devices; "" if they do not say it."""
    matches = map(_UID_IN_CDI_NAME.fullmatch, claim.cdi_names)
    uids = {match[1] for match in matches if match}
    return uids.pop() if len(uids) == 1 else ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownClaims:
    """The known claims: from the driver's checkpoint (`by_uid`), and from the Kubernetes API (`by_name`, with the uid).

    If neither says anything of a device, claims of `admin_namespaces` have admin access. Both have been asked about the
    claims in `asked_of`, so no more will be known of these claims soon. None: nobody asks about claims.
    """

    by_uid: Mapping[str, AdminAccess] = field(default_factory=nothing)
    by_name: Mapping[ClaimName, tuple[str, AdminAccess]] = field(default_factory=nothing)
    admin_namespaces: AbstractSet[str] = frozenset()
    asked_of: AbstractSet[Claim] | None = None

    def access(self, claim: Claim) -> bool | None:
        """Whether a claim has its device by admin access; None if neither the checkpoint nor the API says it."""
        device = claim.slice_name
        uid = uid_of(claim)
        by_checkpoint = self.by_uid.get(uid, {}).get(device)
        if by_checkpoint is not None:
            return by_checkpoint
        uid_by_api, devices = self.by_name.get((claim.namespace, claim.name), ("", {}))
        # what the API said may be of an earlier claim with the same name
        return devices.get(device) if not uid or uid == uid_by_api else None

    def is_to_be_asked(self, claim: Claim) -> bool:
        """Whether it may still turn out that the claim has admin access. Until then its device has no known holder."""
        return self.asked_of is not None and claim not in self.asked_of and self.access(claim) is None

    def is_look(self, claim: Claim) -> bool:
        """Whether a container with this claim only looks at the device, and does not hold it."""
        access = self.access(claim)
        return claim.namespace in self.admin_namespaces if access is None else access


NO_CLAIMS = KnownClaims()
