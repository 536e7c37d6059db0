"""Allocators: device plugins that belong to a scheduler, which has chosen the GPU and wrote its choice on the pod.

Such a plugin gives a container the GPU that its scheduler chose, whatever ids the kubelet picked. So an id is a
*token*: a share of some GPU of the node, mostly of another one than the id names. A token names no device, unless the
node has one GPU alone. What is written here is read from the allocators' own sources:

- HAMi (pkg/device-plugin/nvidiadevice/nvinternal/rm/devices.go): <uuid>-<n>. Whole MIG instances keep their own ids,
  which are true;
- Volcano's vGPU (volcano-vgpu-device-plugin, pkg/plugin/server.go): <uuid>-<n>; volcano.sh/vgpu-memory and -cores
  count (<uuid>-memory-<n>, <uuid>-core-<n>);
- gpushare (gpushare-device-plugin, pkg/gpu/nvidia): <uuid>-_-<n>, one for each GiB or MiB.

A new allocator is a row of `ALLOCATORS`. A user's rule comes before all of these, so it can say that ids are true.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from exporter.errors import Trouble


class Allocator(NamedTuple):
    """An allocator: its name, the annotation with its choice, and the ids that are its tokens.

    `tokens` are pairs of a glob for resources and a regular expression for ids, with groups as in device_ids.py. `hint`
    is how its ids may be true after all; "" where they are not.
    """

    name: str
    writes: str
    tokens: tuple[tuple[str, str], ...]
    hint: str = ""

    @property
    def trouble(self) -> Trouble:
        """Why a token of it has no device, and what to do."""
        return Trouble(
            "",
            f"{self.name}'s scheduler chose the GPU and wrote it on the pod (the annotation {self.writes}); the"
            " kubelet's id does not say which",
            f"{self.hint}let NVML tell which GPU its processes use (--nvml.mode, hostPID): /processes and the measured"
            " families have it; the exporter does not read the annotation yet",
        )


_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_GPU, _MIG = rf"(?:GPU-)?(?P<uuid>{_UUID})", rf"(?P<mig>MIG-{_UUID})"


def _of_resource(resource: str) -> tuple[tuple[str, str], ...]:
    """All ids of a resource that begin with a device's UUID."""
    return (resource, rf"{_GPU}(?P<share>.*)"), (resource, rf"{_MIG}(?P<share>.*)")


_GPUSHARE = Allocator(
    "gpushare",
    "ALIYUN_COM_GPU_MEM_IDX or scheduler.framework.gpushare.allocation",
    (*_of_resource("aliyun.com/gpu-mem"), ("*", rf"{_GPU}(?P<share>-_-[0-9]+)")),
)
_VOLCANO = Allocator("Volcano", "volcano.sh/vgpu-ids-new", _of_resource("volcano.sh/vgpu-*"))
_HAMI = Allocator(
    "HAMi",
    "hami.io/vgpu-devices-allocated",
    (("*", rf"{_GPU}(?P<share>-[0-9]+)"), ("*", rf"{_MIG}(?P<share>-[0-9]+)")),
    "where HAMi aligns ids with its choice (enablegetpreferredallocation: true), a rule of --device-rules makes them"
    " count (docs/devices.md has it); else ",
)
# the first one counts whose resource and id fit
ALLOCATORS: Final[Mapping[str, Allocator]] = {each.name: each for each in (_GPUSHARE, _VOLCANO, _HAMI)}
