"""The kubelet's messages: they are read, replaced and written anew.

Tests: tests/bundle/names/test_random_worlds.py.
"""

from collections.abc import Sequence
from typing import Any

from exporter.bundle.names.names_in_fields import NamesInFields
from exporter.bundle.names.names_in_objects import NamesInObjects
from exporter.bundle.names.names_in_texts import NamesInTexts

# no message: whoever reads it fails, as with what stood there
UNREADABLE = b"\xff"
# what the exporter reads of a plugin's environment for a container: devices and amounts
_ENVS = ("NVIDIA_", "CUDA_", "ALIYUN_COM_GPU_", "ASCEND_", "GPU_", "VOLCANO_", "HAMI_")


class NamesInMessages:
    """Replaces the names in serialised messages. Its methods need protobuf."""

    def __init__(self, scanner: NamesInTexts, fields: NamesInFields, objects: NamesInObjects) -> None:
        self._scanner = scanner
        self._fields = fields
        self._objects = objects

    def answer(self, method: str, body: bytes) -> bytes:
        """The answer to a method, such as v1.PodResourcesLister/List."""
        # imported only here and below: kubectl's plugin has no protobuf, and no message either
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - kubectl-gpu of krew has no protobuf

        from exporter._gen import podresources_v1_pb2, podresources_v1alpha1_pb2  # noqa: PLC0415 - see above

        message: Any = podresources_v1_pb2.ListPodResourcesResponse()
        if "Allocatable" in method:
            message = podresources_v1_pb2.AllocatableResourcesResponse()
        elif "v1alpha1" in method:
            message = podresources_v1alpha1_pb2.ListPodResourcesResponse()
        try:
            message.ParseFromString(body)
        except DecodeError:
            return UNREADABLE
        message.DiscardUnknownFields()
        if "Allocatable" in method:
            self._devices(message.devices)
        else:
            for pod in message.pod_resources:
                self._pod(pod)
        new: bytes = message.SerializeToString()
        return new

    def plugin_answer(self, body: bytes) -> bytes:
        """A plugin's ContainerAllocateResponse."""
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - see above

        from exporter._gen import deviceplugin_pb2  # noqa: PLC0415 - see above

        message = deviceplugin_pb2.ContainerAllocateResponse()
        try:
            message.ParseFromString(body)
        except DecodeError:
            return UNREADABLE
        message.DiscardUnknownFields()
        envs = {name: value for name, value in message.envs.items() if name.startswith(_ENVS)}
        annotations = dict(message.annotations)
        message.envs.clear()
        message.annotations.clear()
        for name, value in envs.items():
            message.envs[name] = self._scanner.strict(value)
        for key, text in annotations.items():
            message.annotations[self._fields.label_key(key)] = self._objects.annotation(key, text)
        places: list[Any] = [*message.mounts, *message.devices]
        for place in places:
            place.container_path = self._scanner.strict(place.container_path)
            place.host_path = self._scanner.strict(place.host_path)
        for device in message.cdi_devices:
            device.name = self._scanner.strict(device.name)
        new: bytes = message.SerializeToString()
        return new

    def _pod(self, pod: Any) -> None:  # noqa: ANN401 - of either version
        """A PodResources."""
        pod.namespace = self._fields.name("namespace", pod.namespace)
        pod.name = self._fields.name("pod", pod.name)
        for container in pod.containers:
            container.name = self._fields.name("container", container.name)
            self._devices(container.devices)
            for claim in getattr(container, "dynamic_resources", ()):
                claim.claim_namespace = self._fields.name("namespace", claim.claim_namespace)
                claim.claim_name = self._fields.name("claim", claim.claim_name)
                for resource in claim.claim_resources:
                    self._claimed(resource)

    def _claimed(self, resource: Any) -> None:  # noqa: ANN401 - a ClaimResource
        """A device of a claim: its name is the driver's, and says which device it is."""
        resource.driver_name = self._scanner.strict(resource.driver_name)
        resource.pool_name = self._fields.name("pool", resource.pool_name)
        resource.device_name = self._scanner.strict(resource.device_name)
        if resource.HasField("share_id"):
            resource.share_id = self._scanner.strict(resource.share_id)
        for device in resource.cdi_devices:
            device.name = self._scanner.strict(device.name)

    def _devices(self, devices: Sequence[Any]) -> None:
        """Resources and their ids."""
        for device in devices:
            device.resource_name = self._fields.resource(device.resource_name)
            device.device_ids[:] = [self._fields.device_id(device_id) for device_id in device.device_ids]
