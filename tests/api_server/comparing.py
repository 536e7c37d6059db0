"""Comparing an answer with a recorded one: what is said is true, and what is left out is on a list."""

import json
import re
from collections.abc import Iterator
from typing import Any

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class Words:
    """The uids and versions of one side, numbered as they were first seen, so that two sides can be compared."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}

    def plain(self, value: Any, name: str = "") -> Any:
        """The value with times, uids and versions that are the same on both sides, and managers by their names."""
        if isinstance(value, dict):
            return {self._key(key): self.plain(inner, key) for key, inner in sorted(value.items())}
        if name == "managedFields":
            return {_manager(entry): self.plain(entry) for entry in value}
        if isinstance(value, list):
            return [self.plain(inner) for inner in value]
        if name in ("uid", "resourceVersion") and value:
            number = sum(key.startswith(name) for key in self.seen)
            return self.seen.setdefault(f"{name} {value}", f"{name}-{number}")
        if isinstance(value, str) and _TIME.fullmatch(value):
            return "a time"
        return re.sub(r"in record \(\d+\)", "in record (N)", value) if isinstance(value, str) else value

    def _key(self, key: str) -> str:
        if not key.startswith('k:{"uid"'):
            return key
        uid = json.loads(key[2:])["uid"]
        return f"k:uid {self.seen.get(f'uid {uid}')}"


def _manager(entry: dict[str, str]) -> str:
    return f"{entry['manager']} {entry['operation']} {entry.get('subresource', '')}".strip()


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """The places where an answer differs from the recorded one, a line each; `left out: ` begins what it lacks."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            if key not in ours:
                yield f"left out: {path}.{key}"
            else:
                yield from differences(ours[key], theirs.get(key, "nothing"), f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(*pair, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: {str(ours)[:200]} | recorded: {str(theirs)[:200]}"
