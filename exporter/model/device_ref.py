"""The device that a device id, a claim or an allocator's word refers to.

Tests: tests/ownership/test_device_ids.py.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRef:
    """The facts that a device id gives about its device; a text is "" if the id does not give it.

    Attributes:
        form: the name of the rule that read the id.
        uuid: a GPU's UUID.
        mig: a MIG instance's UUID, which gives neither the GPU nor the GPU_I_ID.
        device: a GPU's name (nvidia3). With `is_vfio`, its device node (vfio/<IOMMU group>), or the DRA driver's name
            for it.
        index: a GPU's number.
        instance: a GPU_I_ID.
        parent: the GPU of a MIG instance that the id does not identify; it narrows the choice down.
        profile: the profile of a MIG instance; it narrows the choice down.
        minor: N of the GPU's device node /dev/nvidia<N>, which may differ from `index`.
        shared: the id is one share of a device.
        is_vfio: the device is a whole GPU that a virtual machine has by vfio.
        allocator: the allocator whose token the id is. Such an id names this device only if the node has no other. "":
            the id names the device itself.
        is_look: a container with this id looks at the device, as monitoring does, and does not hold it.
    """

    form: str
    uuid: str = ""
    mig: str = ""
    device: str = ""
    index: str = ""
    instance: str = ""
    parent: str = ""
    profile: str = ""
    minor: str = ""
    shared: bool = False
    is_vfio: bool = False
    allocator: str = ""
    is_look: bool = False

    @property
    def is_no_gpu(self) -> bool:
        """Whether the device is known to be no GPU of the node: its CDI spec names no device node of a GPU."""
        return not (self.names_device or self.allocator)

    @property
    def names_device(self) -> bool:
        """Whether the id gives a name of its device. A token may give none."""
        return bool(self.uuid or self.mig or self.device or self.index or self.minor)
