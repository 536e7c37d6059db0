"""Allocators: device plugins of a scheduler that chooses the GPU itself and writes its choice on the pod.

Such a plugin gives a container the GPU that its scheduler chose, whatever ids the kubelet picked. So an id is a
*token*: a share of some GPU of the node, mostly not of the GPU that the id names. A token names no device, unless the
node has only one GPU. These facts come from the allocators' own sources:

- HAMi (pkg/device-plugin/nvidiadevice/nvinternal/rm/devices.go): <uuid>-<n>. Whole MIG instances keep their own ids,
  which are true;
- Volcano's vGPU (volcano-vgpu-device-plugin, pkg/plugin/server.go): <uuid>-<n>; volcano.sh/vgpu-memory and -cores
  count (<uuid>-memory-<n>, <uuid>-core-<n>);
- gpushare (gpushare-device-plugin, pkg/gpu/nvidia): <uuid>-_-<n>, one for each GiB or MiB.

A new allocator is a row of `ALLOCATORS`. A user's rule comes before all rows, so a user can say that ids name their own
devices.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from exporter.errors import Trouble


class Allocator(NamedTuple):
    """An allocator: its name, the annotation with its choice, and the ids that are its tokens.

    `tokens` are pairs of a glob for resources and a regular expression for ids, with groups as in device_ids.py. `hint`
    says when its ids name their own devices after all; "" if they never do.
    """

    name: str
    writes: str
    tokens: tuple[tuple[str, str], ...]
    hint: str = ""

    @property
    def trouble(self) -> Trouble:
        """The reason why a token of this allocator has no device, and what to do."""
        return Trouble(
            "",
            f"{self.name}'s scheduler chose the GPU and wrote it on the pod (the annotation {self.writes}); the"
            " kubelet's id does not say which",
            f"{self.hint}let NVML tell which GPU its processes use (--nvml.mode, hostPID): /processes and the measured"
            " families have it; the exporter does not read the annotation yet",
        )


_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_GPU = rf"(?:GPU-)?(?P<uuid>{_UUID})"
_MIG = rf"(?P<mig>MIG-{_UUID})"


def _of_resource(resource: str) -> tuple[tuple[str, str], ...]:
    """The `tokens` of a resource: all its ids that begin with a device's UUID."""
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
# the first allocator counts whose resource and id fit
ALLOCATORS: Final[Mapping[str, Allocator]] = {allocator.name: allocator for allocator in (_GPUSHARE, _VOLCANO, _HAMI)}
