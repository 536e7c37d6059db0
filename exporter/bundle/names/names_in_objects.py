"""JSON: objects of Kubernetes, the exporter's own answers, and files.

Tests: tests/bundle/names/test_hostile_names.py.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from exporter.bundle.names.common_words import listed
from exporter.bundle.names.names_in_fields import POD_LABEL, NamesInFields
from exporter.bundle.names.names_in_settings import NAMING_FLAGS, NamesInSettings
from exporter.bundle.names.names_in_texts import NamesInTexts

_INDENTED = re.compile(rb"[\[{]\n( +)")
_MOST_DEPTH = 100
# what the name in an object's metadata is, by the collection of its path
_KIND_OF_COLLECTION: Final[Mapping[str, str]] = {
    "pods": "pod",
    "nodes": "node",
    "namespaces": "namespace",
    "resourceclaims": "claim",
    "replicasets": "workload",
    "deployments": "workload",
    "statefulsets": "workload",
    "daemonsets": "workload",
    "jobs": "workload",
    "cronjobs": "workload",
    "rollouts": "workload",
}
# what a field `name` is, by the field around it
_KIND_OF_NAME: Final[Mapping[str, str]] = {
    "containers": "container",
    "initContainers": "container",
    "containerStatuses": "container",
    "initContainerStatuses": "container",
    "ownerReferences": "workload",
    "pool": "pool",
    "requests": "request",
}
_LABELS = listed("labels matchLabels")
_ANNOTATIONS = listed("annotations")
_BY_RESOURCE = listed("limits requests capacity allocatable RegisteredDevices")
# what a container is started with
_NEVER_SHOWN = listed("env envs envFrom environ command_line cmdline args")
_CONTAINER_ANNOTATION = "gpu-fraction-container-name"
_PATH_OF_OBJECT = re.compile(r"/namespaces/(?P<namespace>[^/?]+)(?:/(?P<collection>[^/?]+)/(?P<name>[^/?]+))?")


class NamesInObjects:
    """Replaces the names in JSON."""

    def __init__(self, scanner: NamesInTexts, fields: NamesInFields) -> None:
        self._scanner = scanner
        self._fields = fields
        self._settings = NamesInSettings(scanner, fields)

    def document(self, body: bytes, object_kind: str = "object") -> bytes | None:
        """A whole document; None if it is none. `object_kind` is what names in `metadata` are."""
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            return None
        if not isinstance(content, dict | list):
            return None
        new = self.walked(content, "", object_kind)
        indented = _INDENTED.match(body)
        compact = b", " not in body[:1000] and b'": ' not in body[:1000]
        text = json.dumps(
            new,
            indent=len(indented[1]) if indented else None,
            separators=(",", ":") if compact and not indented else None,
            ensure_ascii=body.isascii(),
        )
        return text.encode("utf-8", "replace") + (b"\n" if body.endswith(b"\n") else b"")

    def question(self, path: str) -> str:
        """A path of the Kubernetes API, which may have names."""
        match = _PATH_OF_OBJECT.search(path)
        if match:
            self._fields.name("namespace", match["namespace"])
            if match["name"]:
                self._fields.name(kind_of(path), match["name"])
        return self._scanner.strict(path)

    def walked(self, value: Any, key: str, object_kind: str, depth: int = 0) -> Any:  # noqa: ANN401 - JSON
        """A value of JSON. `key` is the field that has it, or the field of the list that has it."""
        if depth > _MOST_DEPTH:
            return None
        if isinstance(value, str):
            return self._text(value, key)
        if isinstance(value, list):
            return [self.walked(item, key, object_kind, depth + 1) for item in value]
        if not isinstance(value, dict):
            return value
        if key in _ANNOTATIONS:
            return {self._fields.label_key(name): self._annotation(name, item) for name, item in value.items()}
        if key in _LABELS:
            return {self._fields.label_key(name): self._label(item) for name, item in value.items()}
        if key in _BY_RESOURCE and all(isinstance(item, str | int | list) for item in value.values()):
            return {
                self._fields.resource(name): self.walked(item, "device_ids", object_kind, depth + 1)
                for name, item in value.items()
            }
        return {
            self._key(name): self._field(name, item, key, value, object_kind, depth + 1)
            for name, item in value.items()
            if name not in _NEVER_SHOWN
        }

    def _key(self, name: str) -> str:
        """The name of a field, which may be a label's of a pod."""
        return self._fields.label_name(name) if name.startswith(POD_LABEL) else self._scanner.text(name)

    def _field(self, name: str, item: Any, around: str, fields: Any, object_kind: str, depth: int) -> Any:  # noqa: ANN401 - JSON
        """A field of an object; `around` is the field that has the object, `fields` are all of the object."""
        if isinstance(item, str):
            if name == "name":
                return self._name(item, around, fields, object_kind)
            if name == "value" and around in NAMING_FLAGS:  # a setting, as /debug/mapping has it
                return self._settings.value(around, item)
            if name == "string":  # the value of an attribute of a ResourceSlice, which has its name
                return self._text(item, around.rpartition("/")[2])
        return self.walked(item, name, object_kind, depth)

    def _name(self, text: str, around: str, fields: Mapping[str, Any], object_kind: str) -> str:
        """A field `name`, whose meaning the fields around it tell."""
        if around == "metadata":
            return self._fields.name(object_kind, text)
        if around == "ownerReferences" and fields.get("kind") == "Node":
            return self._fields.name("node", text)
        if around == "allocatedResourcesStatus":
            return self.resource_or_claim(text)
        if around in _KIND_OF_NAME:
            return self._fields.name(_KIND_OF_NAME[around], text)
        return self._fields.name("object", text) if "namespace" in fields else self._scanner.strict(text)

    def resource_or_claim(self, text: str) -> str:
        """A resource, or claim:<name>/<request>."""
        if not text.startswith("claim:"):
            return self._fields.resource(text)
        claim, slash, request = text.removeprefix("claim:").partition("/")
        return f"claim:{self._fields.name('claim', claim)}{slash}{self._fields.name('request', request)}"

    def _text(self, text: str, key: str) -> str:
        if key.startswith(POD_LABEL):
            return self._fields.value(text)
        return self._fields.field(key, text, self._scanner.strict)

    def _label(self, value: object) -> object:
        return self._fields.value(value) if isinstance(value, str) else value

    def _annotation(self, key: str, value: object) -> object:
        """The text of an annotation: an allocator's has ids among numbers, or is JSON."""
        return self.annotation(key, value) if isinstance(value, str) else value

    def annotation(self, key: str, text: str) -> str:
        """The text of an annotation."""
        if key == _CONTAINER_ANNOTATION:
            return self._fields.name("container", text)
        if text[:1] in ("{", "["):
            new = self.document(text.encode("utf-8", "replace"))
            if new is not None:
                return new.decode()
        return self._scanner.strict(text)


def kind_of(path: str) -> str:
    """What the names of the objects of a path are, such as pod for /api/v1/pods."""
    segments = path.partition("?")[0].split("/")
    collections = [segment for segment in segments if segment in _KIND_OF_COLLECTION]
    return _KIND_OF_COLLECTION[collections[-1]] if collections else "object"
