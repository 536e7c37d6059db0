"""The interface definitions: packages, services and field numbers are the contracts of the kubelet and of KEDA."""

from typing import Any

import grpc
import grpc_testing
import pytest
from google.protobuf.descriptor import FieldDescriptor

from exporter._gen import (
    deviceplugin_pb2 as deviceplugin,
)
from exporter._gen import (
    externalscaler_pb2 as externalscaler,
)
from exporter._gen import (
    podresources_v1_pb2 as v1,
)
from exporter._gen import (
    podresources_v1alpha1_pb2 as v1alpha1,
)
from exporter.cluster.keda.grpc_server import SERVICE
from exporter.sources.kubelet.assignments import LIST_METHODS
from exporter.sources.kubelet.pod_resources import parse
from tests.support.places import DATA

MESSAGES = {"v1": v1, "v1alpha1": v1alpha1, "deviceplugin": deviceplugin, "externalscaler": externalscaler}
FIELDS = {
    "v1": {
        "ListPodResourcesRequest": {},
        "ListPodResourcesResponse": {"pod_resources": 1},
        "AllocatableResourcesRequest": {},
        "AllocatableResourcesResponse": {"devices": 1, "cpu_ids": 2, "memory": 3},
        "GetPodResourcesRequest": {"pod_name": 1, "pod_namespace": 2},
        "GetPodResourcesResponse": {"pod_resources": 1},
        "PodResources": {"name": 1, "namespace": 2, "containers": 3, "cpu_ids": 4, "memory": 5},
        "ContainerResources": {"name": 1, "devices": 2, "cpu_ids": 3, "memory": 4, "dynamic_resources": 5},
        "ContainerDevices": {"resource_name": 1, "device_ids": 2, "topology": 3},
        "ContainerMemory": {"memory_type": 1, "size": 2, "topology": 3},
        "TopologyInfo": {"nodes": 1},
        "NUMANode": {"ID": 1},
        "DynamicResource": {"claim_name": 2, "claim_namespace": 3, "claim_resources": 4},
        "ClaimResource": {"cdi_devices": 1, "driver_name": 2, "pool_name": 3, "device_name": 4, "share_id": 5},
        "CDIDevice": {"name": 1},
    },
    "v1alpha1": {
        "ListPodResourcesRequest": {},
        "ListPodResourcesResponse": {"pod_resources": 1},
        "PodResources": {"name": 1, "namespace": 2, "containers": 3},
        "ContainerResources": {"name": 1, "devices": 2},
        "ContainerDevices": {"resource_name": 1, "device_ids": 2},
    },
    # Kubernetes' (1.36), the fields that are read
    "deviceplugin": {
        "ContainerAllocateResponse": {"envs": 1, "mounts": 2, "devices": 3, "annotations": 4, "cdi_devices": 5},
        "Mount": {"container_path": 1, "host_path": 2},
        "DeviceSpec": {"container_path": 1, "host_path": 2},
        "CDIDevice": {"name": 1},
    },
    # KEDA's (2.20)
    "externalscaler": {
        "ScaledObjectRef": {"name": 1, "namespace": 2, "scalerMetadata": 3},
        "IsActiveResponse": {"result": 1},
        "GetMetricSpecResponse": {"metricSpecs": 1},
        "MetricSpec": {"metricName": 1, "targetSize": 2, "targetSizeFloat": 3},
        "GetMetricsRequest": {"scaledObjectRef": 1, "metricName": 2},
        "GetMetricsResponse": {"metricValues": 1},
        "MetricValue": {"metricName": 1, "metricValue": 2, "metricValueFloat": 3},
    },
}
METHODS = {"v1": ["List", "GetAllocatableResources", "Get"], "v1alpha1": ["List"]}


@pytest.mark.parametrize("version", MESSAGES)
def test_field_numbers(version: str) -> None:
    descriptor = MESSAGES[version].DESCRIPTOR
    assert descriptor.package == version
    assert {
        name: {field.name: field.number for field in message.fields}
        for name, message in descriptor.message_types_by_name.items()
    } == FIELDS[version]


@pytest.mark.parametrize("version", METHODS)
def test_the_service_answers_a_call_as_our_client_makes_it(version: str) -> None:
    """A servicer made from the definition alone, asked by grpc's test server."""
    recorded = (DATA / "kubelet-1.20.2" / f"four-pods.{version}.pb").read_bytes()
    messages: Any = MESSAGES[version]
    service = messages.DESCRIPTOR.services_by_name["PodResourcesLister"]
    assert [method.name for method in service.methods] == METHODS[version]
    assert LIST_METHODS[version] == f"/{service.full_name}/List"

    class Servicer:
        def List(self, request: Any, _: grpc.ServicerContext) -> Any:  # noqa: N802 - the interface's name
            assert not request.ListFields()
            return messages.ListPodResourcesResponse.FromString(recorded)

    server = grpc_testing.server_from_dictionary({service: Servicer()}, grpc_testing.strict_real_time())
    call = server.invoke_unary_unary(
        service.methods_by_name["List"], (), messages.ListPodResourcesRequest.FromString(b""), None
    )
    response, _, code, _ = call.termination()
    assert code is grpc.StatusCode.OK
    assert parse(response.SerializeToString(), version) == parse(recorded, version)


def test_kedas_service_and_the_kinds_of_its_numbers() -> None:
    descriptor = externalscaler.DESCRIPTOR
    service = descriptor.services_by_name["ExternalScaler"]
    assert service.full_name == SERVICE
    found = {
        method.name: (method.input_type.name, method.output_type.name, method.server_streaming)
        for method in service.methods
    }
    assert found == {
        "IsActive": ("ScaledObjectRef", "IsActiveResponse", False),
        "StreamIsActive": ("ScaledObjectRef", "IsActiveResponse", True),
        "GetMetricSpec": ("ScaledObjectRef", "GetMetricSpecResponse", False),
        "GetMetrics": ("GetMetricsRequest", "GetMetricsResponse", False),
    }
    for message, whole, exact in (
        ("MetricSpec", "targetSize", "targetSizeFloat"),
        ("MetricValue", "metricValue", "metricValueFloat"),
    ):
        fields = descriptor.message_types_by_name[message].fields_by_name
        assert (fields[whole].type, fields[exact].type) == (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_DOUBLE)
