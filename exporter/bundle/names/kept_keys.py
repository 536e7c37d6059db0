"""Names of resources, labels and annotations that everybody has, and that decide: allocators' and vendors' own.

Tests: tests/bundle/names/test_hostile_names.py.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

from exporter.bundle.names.common_words import listed
from exporter.ownership.allocators.allocator_table import ALLOCATORS
from exporter.ownership.allocators.gpu_groups import GROUP_ANNOTATIONS, GROUP_LABEL
from exporter.ownership.queues import QUEUE_KEYS

_DOMAINS = """
nvidia.com gpu.nvidia.com k8s.gpu.nvidia.com mig.nvidia.com compute-domain.nvidia.com resource.nvidia.com
amd.com gpu.amd.com intel.com gpu.intel.com habana.ai google.com cloud.google.com aws.amazon.com huawei.com
tencent.com aliyun.com alibabacloud.com volcano.sh hami.io 4pd.io koordinator.sh node.koordinator.sh run.ai
kubernetes.io k8s.io app.kubernetes.io apps.kubernetes.io batch.kubernetes.io resource.kubernetes.io pod.kubernetes.io
statefulset.kubernetes.io node.kubernetes.io node-role.kubernetes.io topology.kubernetes.io helm.sh
argoproj.io keda.sh kubevirt.io kubeflow.org training.kubeflow.org ray.io leaderworkerset.sigs.k8s.io
jobset.sigs.k8s.io kueue.x-k8s.io serving.knative.dev
"""
# NVIDIA's plugin for KubeVirt names resources as PCI's list has them, in capitals
_OF_VIRTUAL_MACHINES = re.compile(r"nvidia\.com/[A-Z][A-Z0-9_]*")


def _keys() -> Iterator[str]:
    """The annotations and labels that allocators write, and the labels that name queues."""
    yield from (GROUP_LABEL, *GROUP_ANNOTATIONS, *QUEUE_KEYS)
    for allocator in ALLOCATORS.values():
        for annotation in allocator.annotations:
            yield from (annotation.key, *annotation.markers)
            yield from (key for key, _ in annotation.also)


def _globs() -> Iterator[str]:
    """The resources of allocators; most are globs."""
    for allocator in ALLOCATORS.values():
        yield from (resource for resource, _ in allocator.tokens)
        for annotation in allocator.annotations:
            yield from annotation.resources


KEPT_KEYS: Final = frozenset(_keys()) | listed("predicate-time pod-template-hash controller-revision-hash job-name")
_GLOBS: Final = tuple({glob for glob in _globs() if "/" in glob})
KEPT_DOMAINS: Final = listed(_DOMAINS) | {text.partition("/")[0] for text in (*KEPT_KEYS, *_GLOBS) if "/" in text}


def is_well_known(resource: str) -> bool:
    """Whether a resource, or a glob for some, is an allocator's or a virtual machine's."""
    if _OF_VIRTUAL_MACHINES.fullmatch(resource):
        return True
    return resource in _GLOBS or any(fnmatchcase(resource, glob) for glob in _GLOBS)
