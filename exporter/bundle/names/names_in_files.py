"""Files that sources read, by their places in a recording.

Tests: tests/bundle/names/test_hostile_names.py.
"""

import base64
import binascii
import json
import re

from exporter.bundle.names.names_in_messages import NamesInMessages
from exporter.bundle.names.names_in_objects import NamesInObjects
from exporter.bundle.names.names_in_pages import NamesInPages
from exporter.bundle.names.names_in_texts import GONE, NamesInTexts

_NEVER_SHOWN = frozenset(("environ", "cmdline"))
_ENVIRONMENT = re.compile(r"(?P<name>-\s+[\"']?(?!NVIDIA_|CUDA_)[A-Z_][A-Z0-9_]*=)[^\n]*")
_SEPARATOR = re.compile(r"[\\/]")


class NamesInFiles:
    """Replaces the names in files."""

    def __init__(
        self, scanner: NamesInTexts, pages: NamesInPages, objects: NamesInObjects, messages: NamesInMessages
    ) -> None:
        self._scanner = scanner
        self._pages = pages
        self._objects = objects
        self._messages = messages

    def file(self, place: str, content: bytes) -> bytes:
        """The content of the file at this place."""
        last = _SEPARATOR.split(place)[-1]
        if last in _NEVER_SHOWN:
            return b""
        if "kubelet_internal_checkpoint" in place:
            return self._checkpoint(content)
        document = self._objects.document(content)
        if document is not None:
            return document
        try:
            text = content.decode()
        except UnicodeDecodeError:
            return b"\xff"  # nobody reads names in it, and it stays unreadable
        if place.startswith("page/"):
            return self._pages.page(text).encode()
        text = _ENVIRONMENT.sub(rf"\g<name>{GONE}", text)
        is_of_vendor = "nvidia" in place or "/cdi/" in place
        return (self._scanner.text(text) if is_of_vendor else self._scanner.strict(text)).encode()

    def _checkpoint(self, content: bytes) -> bytes:
        """The kubelet's checkpoint of devices, with plugins' answers in it."""
        try:
            whole = json.loads(content)
            entries = whole["Data"]["PodDeviceEntries"] or ()
            answers = [base64.b64decode(entry.pop("AllocResp", ""), validate=True) for entry in entries]
        except (AttributeError, binascii.Error, KeyError, RecursionError, TypeError, ValueError):
            return b"{"
        new = self._objects.walked(whole, "", "object")
        for entry, answer in zip(new["Data"]["PodDeviceEntries"] or (), answers, strict=True):
            entry["AllocResp"] = base64.b64encode(self._messages.plugin_answer(answer)).decode()
        return json.dumps(new).encode()
